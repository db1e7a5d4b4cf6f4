/*
 * blob.c -- checked pread from a file or from memory
 */
#include "io/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

td_status td_blob_open(const char *path, td_blob *out)
{
    struct stat s;

    /* a fifo would block the open without O_NONBLOCK; it does not affect regular files */
    *out = (td_blob){ .what = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
    if (out->fd < 0)
        return td_error_errno(errno == ENOENT ? TD_ENOTFOUND : TD_EIO, "cannot open '%s'", path);
    if (fstat(out->fd, &s) == 0 && S_ISREG(s.st_mode)) {
        out->n_bytes = (uint64_t)s.st_size;
        return TD_OK;
    }
    td_status st =
        td_error(TD_EIO, "cannot read '%s': it is %s", path,
                 S_ISDIR(s.st_mode) ? "a folder, not a regular file" : "not a regular file");
    td_blob_close(out);
    return st;
}

td_blob td_blob_of(const void *bytes, size_t n_bytes, const char *what)
{
    return (td_blob){ .what = what, .bytes = bytes, .fd = -1, .n_bytes = n_bytes };
}

void td_blob_close(td_blob *b)
{
    if (!b->bytes && b->fd >= 0)
        close(b->fd);
    b->fd = -1;
}

td_status td_blob_read(const td_blob *b, uint64_t at, size_t n_bytes, void *to)
{
    TD_CHECK(at <= b->n_bytes && n_bytes <= b->n_bytes - at);
    if (b->bytes) {
        if (n_bytes)
            memcpy(to, b->bytes + at, n_bytes);
        return TD_OK;
    }
    for (char *p = to; n_bytes;) {
        ssize_t n = pread(b->fd, p, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return td_error_errno(TD_EIO, "cannot read '%s'", b->what);
        if (n == 0)
            return td_error(TD_EIO, "cannot read '%s': the file was truncated while in use",
                            b->what);
        p += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return TD_OK;
}
