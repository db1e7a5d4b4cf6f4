/*
 * members.c -- reads images inside of larger files
 *
 * A file is opened for each read, as separate images are: descriptors of thousands of files are
 * not held.
 */
#include "data/members.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "io/blob.h"

enum { MEMBER_BYTES_MAX = 256 << 20 };

td_status td_member_file_init(const char *path, td_member_file *out)
{
    struct stat s;
    if (stat(path, &s) != 0)
        return td_error(errno == ENOENT ? TD_ENOTFOUND : TD_EIO, "cannot open '%s': %s", path,
                        strerror(errno));
    *out = (td_member_file){ path, s.st_size, s.st_mtim };
    return TD_OK;
}

static bool is_unchanged(const td_member_file *f, int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && s.st_size == f->n_bytes && s.st_mtim.tv_sec == f->changed.tv_sec &&
           s.st_mtim.tv_nsec == f->changed.tv_nsec;
}

static td_status read_open(const td_member *m, const td_blob *file, size_t n, void *to)
{
    const uint64_t at = (uint64_t)m->offset;
    if (!is_unchanged(m->file, file->fd))
        return td_error(TD_EIO, "'%s' was changed since it was opened", file->what);
    if (at > file->n_bytes || n > file->n_bytes - at)
        return td_error(TD_EIO, "cannot read '%s' at byte %lld: the file became shorter",
                        file->what, (long long)m->offset);
    return td_blob_read(file, at, n, to);
}

/* Read the first n bytes of a member. */
static td_status read_bytes(const td_member *m, size_t n, void *to)
{
    td_blob file;
    if (td_blob_open(m->file->path, &file) != TD_OK)
        return td_error_set(TD_EIO, td_error_message());
    const td_status st = read_open(m, &file, n, to);
    td_blob_close(&file);
    return st;
}

td_status td_member_read(const td_member *m, td_transformer *w)
{
    w->n_bytes = 0;
    if (m->n_bytes > MEMBER_BYTES_MAX)
        return td_error(TD_ELIMIT, "it has %lld bytes, wanted at most %d", (long long)m->n_bytes,
                        MEMBER_BYTES_MAX);
    TD_TRY(td_reserve(&w->bytes, &w->cap_bytes, (size_t)m->n_bytes + 1, 1));
    TD_TRY(read_bytes(m, (size_t)m->n_bytes, w->bytes));
    w->n_bytes = (size_t)m->n_bytes;
    return TD_OK;
}

size_t td_member_head(const td_member *m, void *out, size_t room)
{
    const size_t n = m->n_bytes < (int64_t)room ? (size_t)m->n_bytes : room;
    if (read_bytes(m, n, out) == TD_OK)
        return n;
    td_error_clear();
    return 0;
}

void td_member_read_ahead(const td_member *m)
{
    const int fd = open(m->file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)posix_fadvise(fd, (off_t)m->offset, (off_t)m->n_bytes, POSIX_FADV_WILLNEED);
    (void)close(fd);
}
