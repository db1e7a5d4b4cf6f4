/*
 * full_disk.c -- system calls that fail as on a full disk
 */
#include "support/full_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int open_file(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static ssize_t write_nothing(int fd, const void *bytes, size_t n_bytes)
{
    (void)fd;
    (void)bytes;
    (void)n_bytes;
    errno = ENOSPC;
    return -1;
}

const td_atomic_calls td_test_full_disk = { open_file, write_nothing, fsync, rename, close };
