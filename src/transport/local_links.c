/*
 * local_links.c -- makes socket pairs and passes them on through the environment
 */
#include "transport/local_links.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

enum { FD_DIGITS = 8, OTHER_FILES = 64 };

static int *end_of(const td_local_links *l, int rank, int other)
{
    return &l->fds[(size_t)rank * (size_t)l->size + (size_t)other];
}

/* --- the launcher ----------------------------------------------------------------------------- */

static td_status allow_open_files(int size)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)size * (rlim_t)(size - 1) + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return TD_OK;
    if (limit.rlim_max < wanted)
        return td_error(TD_EIO,
                        "%d ranks need %llu open files, at most %llu are allowed (ulimit -Hn)",
                        size, (unsigned long long)wanted, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return td_error_errno(TD_EIO, "cannot raise the limit of open files to %llu",
                              (unsigned long long)wanted);
    return TD_OK;
}

td_status td_local_links_make(int size, td_local_links *out)
{
    td_status st = TD_OK;
    *out = (td_local_links){ 0 };
    td_local_links l = { .size = size,
                         .fds = td_alloc((size_t)size * (size_t)size, sizeof *l.fds) };
    if (!l.fds)
        return TD_ENOMEM;
    for (size_t i = 0; i < (size_t)size * (size_t)size; i++)
        l.fds[i] = -1;
    TD_OUT(allow_open_files(size));
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
                TD_OUT(td_error_errno(TD_EIO, "cannot make the sockets of %d ranks", size));
            *end_of(&l, a, b) = pair[0];
            *end_of(&l, b, a) = pair[1];
        }
    *out = l;
    return TD_OK;
out:
    td_local_links_close(&l);
    return st;
}

/* "-,5,6": this rank's descriptors by the rank at the other end */
td_status td_local_links_pass(td_local_links *l, int rank)
{
    td_text list = { 0 };
    for (int r = 0; r < l->size; r++) {
        const int fd = *end_of(l, rank, r);
        td_text_add(&list, r ? "," : "");
        if (fd < 0)
            td_text_add(&list, "-");
        else
            td_text_add(&list, "%d", fd);
        if (fd >= 0)
            (void)fcntl(fd, F_SETFD, 0);
        *end_of(l, rank, r) = -1;
    }
    td_status st = td_text_status(&list);
    if (st == TD_OK && setenv(TD_ENV_RANK_FDS, td_text_get(&list), 1) != 0)
        st = TD_ENOMEM;
    td_text_release(&list);
    td_local_links_close(l);
    return st;
}

void td_local_links_close(td_local_links *l)
{
    for (size_t i = 0; l->fds && i < (size_t)l->size * (size_t)l->size; i++)
        if (l->fds[i] >= 0)
            close(l->fds[i]);
    td_free(l->fds);
    *l = (td_local_links){ 0 };
}

/* --- a rank ----------------------------------------------------------------------------------- */

static bool is_rank_socket(int fd)
{
    int domain = 0, type = 0;
    socklen_t n = sizeof domain, m = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &m) == 0 && type == SOCK_STREAM &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

static bool take_one(const char **at, bool is_own, int *out)
{
    char word[FD_DIGITS + 1];
    int64_t fd;
    const size_t n = strcspn(*at, ",");
    if (n == 0 || n >= sizeof word)
        return false;
    memcpy(word, *at, n);
    word[n] = '\0';
    *at += n + ((*at)[n] == ',');
    *out = -1;
    if (is_own)
        return strcmp(word, "-") == 0;
    if (!td_text_to_int(word, &fd) || fd < 3 || !is_rank_socket((int)fd))
        return false;
    *out = (int)fd;
    return true;
}

td_status td_local_links_take(const td_rank_place *place, int *fds)
{
    const char *at = place->fds;
    for (int r = 0; r < place->size; r++)
        if (!at || !take_one(&at, r == place->rank, &fds[r]))
            return td_error(TD_EUSAGE,
                            "environment: " TD_ENV_RANK_FDS
                            " does not name the sockets of rank %d of %d: only 'tandem launch' "
                            "sets it",
                            place->rank, place->size);
    if (*at)
        return td_error(TD_EUSAGE,
                        "environment: " TD_ENV_RANK_FDS " names more sockets than the %d ranks "
                        "need",
                        place->size);
    return TD_OK;
}
