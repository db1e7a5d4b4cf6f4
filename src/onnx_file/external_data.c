/*
 * external_data.c -- tensors whose bytes are in a file beside the ONNX file
 */
#include "onnx_file/external_data.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/paths.h"
#include "base/text.h"

void td_external_files_release(td_external_files *e)
{
    for (size_t i = 0; i < e->used.n; i++)
        td_free(e->used.entries[i].value);
    td_map_release(&e->used);
}

/* --- entries ---------------------------------------------------------------------------------- */

/* "net.onnx.data", but no path: no '/', not "." or ".." */
static td_status check_name(const char *name, const char *model)
{
    if (*name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
        return TD_OK;
    return td_error(TD_EUNSUPPORTED,
                    "'%s' has tensors in '%.200s', wanted the name of a file in the same folder",
                    model, name);
}

td_status td_external_place_set(td_external_place *p, const char *key, const char *value,
                                const char *model)
{
    int64_t *number = strcmp(key, "offset") == 0   ? &p->offset
                      : strcmp(key, "length") == 0 ? &p->length
                                                   : NULL;
    if (strcmp(key, "location") == 0) {
        p->location = value;
        return check_name(value, model);
    }
    if (number && (!td_text_to_int(value, number) || *number < 0))
        return td_error(TD_EFORMAT, "'%s': the %s of external data is '%.40s', wanted 0 or more",
                        model, key, value);
    return TD_OK;
}

/* --- files ------------------------------------------------------------------------------------ */

static td_status path_of(const td_external_files *e, const char *location, char **out)
{
    td_text path = { 0 };
    const char *base = td_path_base(e->model);
    td_text_add_bytes(&path, e->model, (size_t)(base - e->model));
    td_text_add(&path, "%s", location);
    return td_text_take(&path, TD_OK, out);
}

/* the first byte of a hole; the size of the file if it has none */
static off_t find_hole(int fd, off_t size)
{
    const off_t at = size ? lseek(fd, 0, SEEK_HOLE) : 0;
    return at < 0 ? size : at; /* the file system does not know */
}

static td_status check_file(int fd, const char *path, int64_t *size)
{
    struct stat s;
    if (fstat(fd, &s) != 0)
        return td_error_errno(TD_EIO, "cannot stat '%s'", path);
    if (!S_ISREG(s.st_mode))
        return td_error(TD_EIO, "'%s' is not a regular file", path);
    if (s.st_nlink > 1)
        return td_error(TD_EUNSUPPORTED, "'%s' has %ju names (hard links), wanted a file with one",
                        path, (uintmax_t)s.st_nlink);
    if (find_hole(fd, s.st_size) < s.st_size)
        return td_error(TD_EFORMAT, "'%s' has a hole at byte %jd", path,
                        (intmax_t)find_hole(fd, s.st_size));
    *size = s.st_size;
    return TD_OK;
}

static td_status open_file(const char *path, int *fd, int64_t *size)
{
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0 && errno == ELOOP)
        return td_error(TD_EUNSUPPORTED, "'%s' is a link, wanted a file", path);
    if (*fd < 0)
        return td_error_errno(errno == ENOENT ? TD_ENOTFOUND : TD_EIO, "cannot open '%s'", path);
    const td_status st = check_file(*fd, path, size);
    if (st != TD_OK)
        close(*fd);
    return st;
}

/* counts `n` bytes as taken from the file */
static td_status take(td_external_files *e, const char *location, int64_t n, int64_t size)
{
    int64_t *used = td_map_get(&e->used, location);
    if (!used) {
        used = TD_NEW(int64_t);
        if (!used)
            return TD_ENOMEM;
        const td_status st = td_map_set(&e->used, location, used);
        if (st != TD_OK) {
            td_free(used);
            return st;
        }
    }
    if (n > size - *used)
        return td_error(TD_EFORMAT, "'%s': the tensors in '%s' overlap: it has %lld bytes",
                        e->model, location, (long long)size);
    *used += n;
    return TD_OK;
}

static td_status read_all(int fd, const char *path, int64_t offset, size_t n, char *to)
{
    while (n) {
        const ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return td_error_errno(TD_EIO, "cannot read '%s'", path);
        if (got == 0)
            return td_error(TD_EFORMAT, "'%s' ends at byte %lld, it was longer before", path,
                            (long long)offset);
        to += got;
        offset += got;
        n -= (size_t)got;
    }
    return TD_OK;
}

/* the range is within the file, and not longer than what no other tensor has taken */
static td_status check_range(td_external_files *e, const td_external_place *p, const char *name,
                             int64_t n, int64_t size)
{
    if (p->offset > size || n > size - p->offset)
        return td_error(
            TD_EFORMAT, "'%s': '%s' has %lld bytes, but tensor '%s' %lld from byte %lld on",
            e->model, p->location, (long long)size, name, (long long)n, (long long)p->offset);
    return take(e, p->location, n, size);
}

td_status td_external_read(td_external_files *e, const td_external_place *p, const char *name,
                           size_t n_bytes, td_arena *arena, const void **out)
{
    int fd;
    char *path;
    void *to = NULL;
    int64_t size;
    if (!p->location)
        return td_error(TD_EFORMAT, "'%s': the external data of tensor '%s' has no location",
                        e->model, name);
    if (n_bytes > INT64_MAX || (p->length >= 0 && (uint64_t)p->length != n_bytes))
        return td_error(TD_EFORMAT, "'%s': tensor '%s' has %lld bytes in '%s', its shape needs %zu",
                        e->model, name, (long long)p->length, p->location, n_bytes);
    TD_TRY(path_of(e, p->location, &path));
    td_status st = open_file(path, &fd, &size);
    if (st == TD_OK) {
        st = check_range(e, p, name, (int64_t)n_bytes, size);
        if (st == TD_OK && !(to = td_arena_alloc(arena, n_bytes + 1, 1)))
            st = TD_ENOMEM;
        if (st == TD_OK)
            st = read_all(fd, path, p->offset, n_bytes, to);
        close(fd);
    }
    td_text_free(path);
    *out = to;
    return st;
}
