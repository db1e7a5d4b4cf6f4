/*
 * atomic.c -- replaces a file atomically: temporary, fsync, rename, fsync of the folder
 *
 * The folder is opened first, so that an error is found before a file exists.  A writer holds a
 * lock (flock) on its temporary.  The lock, in addition to the pid in the name, distinguishes a
 * temporary in use from a leftover, even if pids are not unique: in containers, where every run has
 * the same pid, and in folders shared between containers.
 *
 * A failed fsync is never repeated: the kernel may have dropped the dirty pages and would report
 * success. Source: Pillai et al. 2014, "All file systems are not created equal", for the order of
 * the steps.
 */
#include "io/atomic.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/paths.h"
#include "base/text.h"

struct td_atomic {
    char *path, *folder, *temp;
    int fd, folder_fd; /* -1: not open */
    bool has_temp;     /* `temp` exists and belongs to this writer */
    bool has_failed;
};

/* --- system calls ---------------------------------------------------------------------------- */

static int open_file(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static const td_atomic_calls system_calls = {
    .open = open_file, .write = write, .fsync = fsync, .rename = rename, .close = close
};

static const td_atomic_calls *sys = &system_calls; /* replaced in tests */

void td_atomic_set_calls(const td_atomic_calls *calls)
{
    sys = calls ? calls : &system_calls;
}

static int open_again(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = sys->open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* on Linux close() closes the file even if it was interrupted */
static int close_once(int *fd)
{
    int rc = *fd < 0 ? 0 : sys->close(*fd);
    *fd = -1;
    return rc < 0 && errno != EINTR ? -1 : 0;
}

static int fsync_again(int fd)
{
    int rc;
    do
        rc = sys->fsync(fd);
    while (rc < 0 && errno == EINTR);
    return rc;
}

/* --- temporaries of other processes ----------------------------------------------------------- */

/* does `name` have the form "<base>.tmp.<pid>"? */
static bool is_temp_of(const char *name, const char *base, int64_t *pid)
{
    size_t n = strlen(base);
    if (strncmp(name, base, n) != 0 || !td_text_starts(name + n, ".tmp."))
        return false;
    const char *digits = name + n + strlen(".tmp.");
    return isdigit((unsigned char)*digits) && td_text_to_int(digits, pid);
}

static bool is_alive(int64_t pid)
{
    return pid > 0 && pid <= INT32_MAX && (kill((pid_t)pid, 0) == 0 || errno != ESRCH);
}

/* removes a temporary that no process has locked; false when it is locked */
static bool remove_unheld(const char *temp)
{
    int fd = open(temp, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || unlink(temp) == 0;
    bool is_free = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (is_free)
        is_free = unlink(temp) == 0;
    close(fd);
    return is_free;
}

/* best effort: files that cannot be listed or removed are left */
static td_status remove_stale(const td_atomic *a)
{
    const char *slash = strrchr(a->path, '/');
    const char *base = slash ? slash + 1 : a->path;
    DIR *dir = opendir(a->folder);
    if (!dir)
        return TD_OK;

    td_status st = TD_OK;
    for (struct dirent *e; st == TD_OK && (e = readdir(dir));) {
        int64_t pid;
        if (!is_temp_of(e->d_name, base, &pid) || is_alive(pid))
            continue;
        td_text name = { 0 };
        td_text_add(&name, "%s/%s", a->folder, e->d_name);
        st = td_text_status(&name);
        if (st == TD_OK)
            (void)remove_unheld(td_text_get(&name));
        td_text_release(&name);
    }
    closedir(dir);
    return st;
}

/* --- temporaries of this process -------------------------------------------------------------- */

enum { N_TEMPS = 16 }; /* open files; temporaries of more are not removed at exit */

static const char *_Atomic temps[N_TEMPS];

static void note_temp(const char *temp)
{
    for (int i = 0; i < N_TEMPS; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&temps[i], &none, temp))
            return;
    }
}

static void forget_temp(const char *temp)
{
    for (int i = 0; i < N_TEMPS; i++) {
        const char *noted = temp;
        if (atomic_compare_exchange_strong(&temps[i], &noted, NULL))
            return;
    }
}

void td_atomic_remove_all(void)
{
    for (int i = 0; i < N_TEMPS; i++) {
        const char *temp = atomic_exchange(&temps[i], NULL);
        if (temp)
            (void)unlink(temp);
    }
}

/* --- open ------------------------------------------------------------------------------------ */

static td_status name_files(td_atomic *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    td_text temp = { 0 };

    a->path = td_copy_text(path);
    a->folder = td_copy_text(slash ? path : ".");
    td_text_add(&temp, "%s.tmp.%ld", path, (long)getpid());
    a->temp = temp.data;
    if (!a->path || !a->folder || td_text_status(&temp) != TD_OK)
        return TD_ENOMEM;
    if (slash)
        a->folder[slash == path ? 1 : slash - path] = '\0';
    return TD_OK;
}

/* reads the permissions of an existing `path` and checks that it may be replaced */
static td_status check_target(const char *path, mode_t *mode)
{
    struct stat s;

    *mode = 0666; /* the umask applies */
    if (!*path || td_text_ends(path, "/"))
        return td_error(TD_EIO, "cannot write '%s': not a file name", path);
    if (stat(path, &s) != 0)
        return TD_OK;
    if (S_ISDIR(s.st_mode))
        return td_error(TD_EIO, "cannot write '%s': it is a folder", path);
    if (!S_ISREG(s.st_mode))
        return td_error(TD_EIO, "cannot write '%s': it is not a regular file", path);
    *mode = s.st_mode & 0777;
    return TD_OK;
}

static td_status open_temp(td_atomic *a, mode_t mode)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL;

    a->fd = open_again(a->temp, flags, mode);
    if (a->fd < 0 && errno == EEXIST) { /* an earlier process with our pid, or another thread */
        if (!remove_unheld(a->temp))
            return td_error(TD_EIO, "cannot write '%s': another process is writing it", a->path);
        a->fd = open_again(a->temp, flags, mode);
    }
    if (a->fd < 0)
        return td_error_errno(TD_EIO, "cannot write '%s': cannot create a file in its folder",
                              a->path);
    a->has_temp = true;
    note_temp(a->temp);
    (void)flock(a->fd, LOCK_EX | LOCK_NB); /* without flock only the pid protects the file */
    return TD_OK;
}

td_status td_atomic_open(const char *path, td_atomic **out)
{
    td_status st;
    mode_t mode;

    *out = NULL;
    TD_TRY(check_target(path, &mode));
    td_atomic *a = TD_NEW(td_atomic);
    if (!a)
        return TD_ENOMEM;
    a->fd = a->folder_fd = -1;

    TD_OUT(name_files(a, path));
    a->folder_fd = open_again(a->folder, O_RDONLY | O_DIRECTORY, 0);
    if (a->folder_fd < 0)
        TD_OUT(td_error_errno(TD_EIO, "cannot write '%s': cannot open its folder", path));
    TD_OUT(remove_stale(a));
    TD_OUT(open_temp(a, mode));
    *out = a;
    a = NULL;
out:
    td_atomic_close(a);
    return st;
}

/* --- write, commit, close -------------------------------------------------------------------- */

static td_status failed(td_atomic *a, const char *what)
{
    a->has_failed = true;
    return td_error_errno(TD_EIO, "cannot write '%s': %s", a->path, what);
}

td_status td_atomic_write(td_atomic *a, const void *bytes, size_t n_bytes)
{
    const char *p = bytes;

    if (a->has_failed)
        return td_error(TD_EIO, "cannot write '%s': an earlier write failed", a->path);
    while (n_bytes) {
        ssize_t n = sys->write(a->fd, p, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC; /* no progress and no errno: report a full disk */
        if (n <= 0)
            return failed(a, "write");
        p += n;
        n_bytes -= (size_t)n;
    }
    return TD_OK;
}

const char *td_atomic_temporary(const td_atomic *a)
{
    return a->temp;
}

td_status td_atomic_commit(td_atomic *a)
{
    if (a->has_failed)
        return td_error(TD_EIO, "cannot write '%s': an earlier write failed", a->path);
    if (fsync_again(a->fd) != 0)
        return failed(a, "flush");
    if (close_once(&a->fd) != 0)
        return failed(a, "close");
    if (sys->rename(a->temp, a->path) != 0)
        return failed(a, "rename");
    forget_temp(a->temp);
    a->has_temp = false;
    /* some network and user-space file systems cannot flush a folder and return EINVAL */
    if (fsync_again(a->folder_fd) != 0 && errno != EINVAL)
        return failed(a, "flush of its folder");
    return TD_OK;
}

void td_atomic_close(td_atomic *a)
{
    if (!a)
        return;
    if (a->has_temp) {
        forget_temp(a->temp);
        (void)unlink(a->temp);
    }
    (void)close_once(&a->fd);
    (void)close_once(&a->folder_fd);
    td_free(a->path);
    td_free(a->folder);
    td_free(a->temp);
    td_free(a);
}

td_status td_atomic_save(const char *path, const void *bytes, size_t n_bytes)
{
    td_status st;
    td_atomic *a = NULL;

    TD_OUT(td_atomic_open(path, &a));
    TD_OUT(td_atomic_write(a, bytes, n_bytes));
    TD_OUT(td_atomic_commit(a));
out:
    td_atomic_close(a);
    return st;
}

td_status td_output_check(const char *path)
{
    td_atomic *a;
    if (!path)
        return TD_OK;
    TD_TRY(td_atomic_open(path, &a));
    td_atomic_close(a);
    return TD_OK;
}

td_status td_output_check_new(const char *path, bool may_overwrite)
{
    if (path && !may_overwrite && td_path_is_file(path))
        return td_error(TD_EARG,
                        "'%s' exists: choose another output, or replace it with --overwrite", path);
    return td_output_check(path);
}
