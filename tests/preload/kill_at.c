/*
 * kill_at.c -- LD_PRELOAD: the process kills itself in one of its calls that write files
 *
 *   KILL_AT=N        at the N-th call: half of a write is done, any other call is not
 *   KILL_WITH=N      the signal; without: 9, SIGKILL
 *   KILL_PATH=TEXT   only calls for files whose path contains TEXT are counted
 *
 * What a killed process leaves behind depends on the calls that it made, not on the time between
 * them.  Counted are write, fsync, rename and fflush, after the program's second start
 * (td_process_setup starts it over, with TANDEM_STARTED set).
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

enum { PATH_BYTES = 4096 };

static atomic_long n_calls;
static long kill_at; /* 0: never */
static const char *kill_path;

static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_rename)(const char *, const char *);
static int (*real_fflush)(FILE *);

/* POSIX's way to turn dlsym's pointer into one to a function */
static void find(const char *name, void *function)
{
    *(void **)function = dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("KILL_AT");
    find("write", &real_write);
    find("fsync", &real_fsync);
    find("rename", &real_rename);
    find("fflush", &real_fflush);
    kill_path = getenv("KILL_PATH");
    if (at && getenv("TANDEM_STARTED"))
        kill_at = atol(at);
}

static int is_last(const char *path)
{
    if (!kill_at || (kill_path && !strstr(path, kill_path)))
        return 0;
    return atomic_fetch_add(&n_calls, 1) + 1 == kill_at;
}

static int is_last_of(int fd)
{
    char link[64], path[PATH_BYTES] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (kill_at && kill_path && readlink(link, path, sizeof path - 1) < 0)
        return 0;
    return is_last(path);
}

static void end(void)
{
    const char *with = getenv("KILL_WITH");
    kill(getpid(), with ? atoi(with) : SIGKILL);
    for (;;)
        pause();
}

VISIBLE ssize_t write(int fd, const void *bytes, size_t n)
{
    if (is_last_of(fd)) {
        if (real_write(fd, bytes, n / 2) >= 0)
            end();
        end();
    }
    return real_write(fd, bytes, n);
}

VISIBLE int fsync(int fd)
{
    if (is_last_of(fd))
        end();
    return real_fsync(fd);
}

VISIBLE int rename(const char *from, const char *to)
{
    if (is_last(from))
        end();
    return real_rename(from, to);
}

VISIBLE int fflush(FILE *f)
{
    if (f && is_last_of(fileno(f)))
        end();
    return real_fflush(f);
}
