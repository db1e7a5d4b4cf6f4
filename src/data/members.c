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
    return fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size == f->n_bytes &&
           s.st_mtim.tv_sec == f->changed.tv_sec && s.st_mtim.tv_nsec == f->changed.tv_nsec;
}

static td_status read_bytes(const td_member *m, int fd, size_t n, void *to, size_t *n_done)
{
    while (*n_done < n) {
        const ssize_t got =
            pread(fd, (char *)to + *n_done, n - *n_done, (off_t)(m->offset + (int64_t)*n_done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return td_error(TD_EIO, "cannot read '%s' at byte %lld: %s", m->file->path,
                            (long long)m->offset,
                            got < 0 ? strerror(errno) : "the file became shorter");
        *n_done += (size_t)got;
    }
    return TD_OK;
}

td_status td_member_read(const td_member *m, td_transformer *w)
{
    w->n_bytes = 0;
    if (m->n_bytes > MEMBER_BYTES_MAX)
        return td_error(TD_ELIMIT, "it has %lld bytes, wanted at most %d", (long long)m->n_bytes,
                        MEMBER_BYTES_MAX);
    TD_TRY(td_reserve(&w->bytes, &w->cap_bytes, (size_t)m->n_bytes + 1, 1));
    const int fd = open(m->file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return td_error(TD_EIO, "cannot open '%s': %s", m->file->path, strerror(errno));
    td_status st = is_unchanged(m->file, fd)
                       ? read_bytes(m, fd, (size_t)m->n_bytes, w->bytes, &w->n_bytes)
                       : td_error(TD_EIO, "'%s' was changed since it was opened", m->file->path);
    (void)close(fd);
    return st;
}

size_t td_member_head(const td_member *m, void *out, size_t room)
{
    const size_t n = m->n_bytes < (int64_t)room ? (size_t)m->n_bytes : room;
    size_t n_done = 0;
    const int fd = open(m->file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    const td_status st = is_unchanged(m->file, fd) ? read_bytes(m, fd, n, out, &n_done) : TD_EIO;
    (void)close(fd);
    return st == TD_OK ? n_done : 0;
}

void td_member_read_ahead(const td_member *m)
{
    const int fd = open(m->file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)posix_fadvise(fd, (off_t)m->offset, (off_t)m->n_bytes, POSIX_FADV_WILLNEED);
    (void)close(fd);
}
