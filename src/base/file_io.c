/*
 * file_io.c -- reads and writes whole files, lists folders
 *
 * Files are opened without blocking and checked before they are read, so that a fifo or a device
 * given by mistake is an error instead of a hang.
 */
#include "base/file_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/paths.h"
#include "base/text.h"

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "folder"
           : S_ISFIFO(mode) ? "pipe"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static td_status open_failed(const char *path)
{
    td_status st = errno == ENOENT || errno == ENOTDIR ? TD_ENOTFOUND : TD_EIO;
    return td_error_errno(st, "cannot open '%s'", path);
}

static td_status open_regular(const char *path, size_t max_bytes, int *fd, size_t *size_bytes)
{
    struct stat s;
    int opened = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0)
        return open_failed(path);
    td_status st = TD_OK;
    if (fstat(opened, &s) != 0)
        st = td_error_errno(TD_EIO, "cannot stat '%s'", path);
    else if (!S_ISREG(s.st_mode))
        st = td_error(TD_EIO, "'%s' is a %s, wanted a file", path, kind_of(s.st_mode));
    else if ((uintmax_t)s.st_size > max_bytes)
        st = td_error(TD_ELIMIT, "'%s' has %jd bytes, at most %zu are read", path,
                      (intmax_t)s.st_size, max_bytes);
    if (st != TD_OK) {
        close(opened);
        return st;
    }
    *fd = opened;
    *size_bytes = (size_t)s.st_size;
    return TD_OK;
}

/* a file may grow while it is read, and files of /proc report size 0: read to the end */
static td_status read_all(int fd, const char *path, size_t max_bytes, char **buf, size_t *cap,
                          size_t *n_bytes)
{
    size_t n = 0;
    for (;;) {
        if (n + 1 >= *cap) /* one byte more than the NUL, to detect the end without growing */
            TD_TRY(td_reserve(buf, cap, n + 2, 1));
        ssize_t got = read(fd, *buf + n, *cap - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return td_error_errno(TD_EIO, "cannot read '%s'", path);
        if (got == 0)
            break;
        n += (size_t)got;
        if (n > max_bytes)
            return td_error(TD_ELIMIT, "'%s' has more than %zu bytes", path, max_bytes);
    }
    (*buf)[n] = '\0';
    *n_bytes = n;
    return TD_OK;
}

td_status td_file_read_into(const char *path, size_t max_bytes, char **buf, size_t *cap,
                            size_t *n_bytes)
{
    int fd;
    size_t size_bytes;
    *n_bytes = 0;
    TD_TRY(open_regular(path, max_bytes, &fd, &size_bytes));
    td_status st = td_reserve(buf, cap, size_bytes + 2, 1);
    if (st == TD_OK)
        st = read_all(fd, path, max_bytes, buf, cap, n_bytes);
    close(fd);
    return st;
}

td_status td_file_read(const char *path, size_t max_bytes, char **out, size_t *n_bytes)
{
    int fd;
    size_t size_bytes, cap;
    *out = NULL;
    *n_bytes = 0;
    TD_TRY(open_regular(path, max_bytes, &fd, &size_bytes));
    cap = size_bytes + 2;
    char *buf = td_alloc(cap, 1);
    td_status st = buf ? read_all(fd, path, max_bytes, &buf, &cap, n_bytes) : TD_ENOMEM;
    close(fd);
    if (st == TD_OK)
        *out = buf;
    else
        td_free(buf);
    return st;
}

size_t td_file_head(const char *path, void *out, size_t max)
{
    struct stat s;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* opening a pipe must not block */
    if (fd < 0)
        return 0;
    for (bool is_file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode); is_file && n < max;) {
        ssize_t done = read(fd, (char *)out + n, max - n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            break;
        n += (size_t)done;
    }
    close(fd);
    return n;
}

td_status td_file_write(const char *path, const void *bytes, size_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return td_error_errno(TD_EIO, "cannot create '%s'", path);
    td_status st = TD_OK;
    for (const char *p = bytes; n_bytes > 0;) {
        ssize_t done = write(fd, p, n_bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            st = td_error_errno(TD_EIO, "cannot write '%s'", path);
            break;
        }
        p += done;
        n_bytes -= (size_t)done;
    }
    if (close(fd) != 0 && st == TD_OK)
        st = td_error_errno(TD_EIO, "cannot write '%s'", path);
    return st;
}

/* --- folders --------------------------------------------------------------------------------- */

/* The state of reading a folder: all names in one text, and their offsets. */
typedef struct {
    size_t offset;
    bool is_folder;
} found;

typedef struct {
    td_text names;
    found *items;
    size_t n, cap;
} finds;

static int by_name(const void *a, const void *b, void *names)
{
    const char *text = names;
    return strcmp(text + ((const found *)a)->offset, text + ((const found *)b)->offset);
}

static td_status read_entries(DIR *dir, const char *path, finds *f)
{
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d && errno)
            return td_error_errno(TD_EIO, "cannot read folder '%s'", path);
        if (!d)
            return td_text_status(&f->names);
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        bool is_folder = d->d_type == DT_DIR;
        struct stat s;
        if (d->d_type == DT_LNK || d->d_type == DT_UNKNOWN)
            is_folder = fstatat(dirfd(dir), d->d_name, &s, 0) == 0 && S_ISDIR(s.st_mode);
        TD_TRY(td_reserve(&f->items, &f->cap, f->n + 1, sizeof *f->items));
        f->items[f->n++] = (found){ .offset = f->names.len, .is_folder = is_folder };
        td_text_add_bytes(&f->names, d->d_name, strlen(d->d_name) + 1);
    }
}

/* allocates one block: the pointers, followed by the names */
static td_status make_listing(finds *f, td_listing *out)
{
    if (f->n == 0)
        return TD_OK;
    char **names = td_alloc(1, f->n * sizeof *names + f->names.len);
    bool *is_folder = names ? td_alloc(f->n, sizeof *is_folder) : NULL;
    if (!is_folder) {
        td_free(names);
        return TD_ENOMEM;
    }
    char *letters = (char *)(names + f->n);
    memcpy(letters, f->names.data, f->names.len);
    qsort_r(f->items, f->n, sizeof *f->items, by_name, letters);
    for (size_t i = 0; i < f->n; i++) {
        names[i] = letters + f->items[i].offset;
        is_folder[i] = f->items[i].is_folder;
    }
    *out = (td_listing){ .names = names, .is_folder = is_folder, .n = f->n };
    return TD_OK;
}

td_status td_list_folder(const char *path, td_listing *out)
{
    *out = (td_listing){ 0 };
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR && td_path_exists(path))
        return td_error(TD_EIO, "'%s' is not a folder", path);
    if (fd < 0)
        return open_failed(path);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        td_status failed = td_error_errno(TD_EIO, "cannot open folder '%s'", path);
        close(fd);
        return failed;
    }
    finds f = { 0 };
    td_status st = read_entries(dir, path, &f);
    closedir(dir);
    if (st == TD_OK)
        st = make_listing(&f, out);
    td_text_release(&f.names);
    td_free(f.items);
    return st;
}

void td_listing_release(td_listing *l)
{
    td_free(l->names);
    td_free(l->is_folder);
    *l = (td_listing){ 0 };
}

/* --- standard streams ------------------------------------------------------------------------ */

int td_terminal_columns(void)
{
    struct winsize w;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

void td_standard_files_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* open() returns the lowest free number, `fd`; without /dev it opens the root folder */
        const int mode = fd == STDERR_FILENO ? O_WRONLY : O_RDONLY;
        if (open("/dev/null", mode) < 0 && open("/", O_RDONLY | O_DIRECTORY) < 0)
            return;
    }
}
