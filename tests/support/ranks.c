/*
 * support/ranks.c -- forks the ranks of a test
 */
#include "support/ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

static int listen_anywhere(int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    TD_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 64) == 0 &&
             getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

void td_test_ranks(int size, int (*body)(const td_rank_place *place, void *ctx), void *ctx,
                   int *codes)
{
    int port, fd = listen_anywhere(&port);
    pid_t pids[64];
    TD_CHECK(size <= 64);
    for (int r = 0; r < size; r++) {
        pids[r] = fork();
        TD_CHECK(pids[r] >= 0);
        if (pids[r] == 0) {
            td_rank_place place = { .by = TD_RANKS_LAUNCH,
                                    .rank = r,
                                    .size = size,
                                    .addr = "127.0.0.1",
                                    .port = port,
                                    .listen_fd = r == 0 ? fd : -1,
                                    .token = "test" };
            if (r != 0)
                close(fd);
            int code = body(&place, ctx);
            if (code)
                fprintf(stderr, "rank %d: line %d: %s\n", r, code, td_error_message());
            _exit(code > 125 ? 125 : code);
        }
    }
    close(fd);
    for (int r = 0; r < size; r++) {
        int how;
        TD_CHECK(waitpid(pids[r], &how, 0) == pids[r]);
        codes[r] = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    }
}
