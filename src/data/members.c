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
#include "io/tfrecord.h"

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

static td_status read_open(const td_member *m, const td_blob *file, int64_t from, size_t n,
                           void *to)
{
    const uint64_t at = (uint64_t)from;
    if (!is_unchanged(m->file, file->fd))
        return td_error(TD_EIO, "'%s' was changed since it was opened", file->what);
    if (at > file->n_bytes || n > file->n_bytes - at)
        return td_error(TD_EIO, "cannot read '%s' at byte %lld: the file became shorter",
                        file->what, (long long)from);
    return td_blob_read(file, at, n, to);
}

/* Read n bytes of its file. */
static td_status read_bytes(const td_member *m, int64_t from, size_t n, void *to)
{
    td_blob file;
    if (td_blob_open(m->file->path, &file) != TD_OK)
        return td_error_set(TD_EIO, td_error_message());
    const td_status st = read_open(m, &file, from, n, to);
    td_blob_close(&file);
    return st;
}

td_status td_member_read(const td_member *m, td_transformer *w, const void **bytes, size_t *n_bytes)
{
    const int64_t from = m->record ? m->record : m->offset;
    const int64_t n = m->record ? m->record_bytes : m->n_bytes;
    const size_t n_read = (size_t)n + (m->record ? TD_TFRECORD_FOOT : 0);
    w->n_bytes = 0;
    if (n > MEMBER_BYTES_MAX)
        return td_error(TD_ELIMIT, "it has %lld bytes, wanted at most %d", (long long)n,
                        MEMBER_BYTES_MAX);
    TD_TRY(td_reserve(&w->bytes, &w->cap_bytes, n_read + 1, 1));
    TD_TRY(read_bytes(m, from, n_read, w->bytes));
    if (m->record)
        TD_TRY(td_tfrecord_check(w->bytes, (size_t)n, m->file->path, from - TD_TFRECORD_HEAD));
    w->n_bytes = n_read;
    *bytes = w->bytes + (m->offset - from);
    *n_bytes = (size_t)m->n_bytes;
    return TD_OK;
}

size_t td_member_head(const td_member *m, void *out, size_t room)
{
    const size_t n = m->n_bytes < (int64_t)room ? (size_t)m->n_bytes : room;
    if (read_bytes(m, m->offset, n, out) == TD_OK)
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
