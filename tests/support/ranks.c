/*
 * support/ranks.c -- forks the ranks of a test
 */
#include "support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "transport/local_links.h"

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    TD_CHECK(setenv(name, text, 1) == 0);
}

void td_test_ranks(int size, int (*body)(const td_rank_place *place, void *ctx), void *ctx,
                   int *codes)
{
    td_local_links links;
    pid_t pids[64];
    TD_CHECK(size <= 64 && td_local_links_make(size, &links) == TD_OK);
    for (int r = 0; r < size; r++) {
        pids[r] = fork();
        TD_CHECK(pids[r] >= 0);
        if (pids[r] == 0) {
            TD_CHECK(td_local_links_pass(&links, r) == TD_OK);
            set_number("RANK", r);
            set_number("LOCAL_RANK", r);
            set_number("WORLD_SIZE", size);
            td_rank_place place = {
                .by = TD_RANKS_LAUNCH, .rank = r, .size = size, .fds = getenv(TD_ENV_RANK_FDS)
            };
            int code = body(&place, ctx);
            if (code)
                fprintf(stderr, "rank %d: line %d: %s\n", r, code, td_error_message());
            _exit(code > 125 ? 125 : code);
        }
    }
    td_local_links_close(&links);
    for (int r = 0; r < size; r++) {
        int how;
        TD_CHECK(waitpid(pids[r], &how, 0) == pids[r]);
        codes[r] = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    }
}
