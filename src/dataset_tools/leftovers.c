/*
 * leftovers.c -- see leftovers.h
 *
 * As for files (io/atomic.c), the lock in addition to the pid distinguishes a folder in use from a
 * leftover where pids are not unique: in containers, every run may have the same one.
 */
#include "dataset_tools/leftovers.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/paths.h"
#include "base/text.h"

enum { DEPTH_MAX = 3 }; /* <path>.part.<pid>, a split, a class */

static int open_folder(const char *folder)
{
    return open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

td_status td_part_open(const char *folder, int *fd)
{
    TD_TRY(td_make_folder(folder));
    *fd = open_folder(folder);
    if (*fd < 0)
        return td_error_errno(TD_EIO, "cannot open folder '%s'", folder);
    (void)flock(*fd, LOCK_EX | LOCK_NB); /* without flock only the pid protects the folder */
    return TD_OK;
}

/* The files of a drawn data set; folders that hold others stay. */
static void remove_below(const char *folder, int depth)
{
    td_listing l;
    if (td_list_folder(folder, &l) != TD_OK) {
        td_error_clear();
        return;
    }
    for (size_t i = 0; i < l.n; i++) {
        struct stat s;
        char *path = td_path_join(folder, l.names[i]);
        if (path && lstat(path, &s) == 0) {
            if (S_ISDIR(s.st_mode) && depth > 1)
                remove_below(path, depth - 1);
            else if (S_ISREG(s.st_mode) &&
                     (td_text_ends(path, ".jpg") || td_text_ends(path, ".json")))
                (void)unlink(path);
        }
        td_free(path);
    }
    td_listing_release(&l);
    (void)rmdir(folder);
}

static bool is_left(const char *name, const char *base)
{
    const size_t n = strlen(base);
    int64_t pid;
    if (strncmp(name, base, n) != 0 || !td_text_starts(name + n, ".part."))
        return false;
    const char *digits = name + n + strlen(".part.");
    if (!isdigit((unsigned char)*digits) || !td_text_to_int(digits, &pid) || pid < 1 ||
        pid > INT32_MAX)
        return false;
    return pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static void remove_unheld(const char *folder)
{
    const int fd = open_folder(folder);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        remove_below(folder, DEPTH_MAX);
    (void)close(fd);
}

void td_parts_remove(const char *path)
{
    td_listing l;
    const char *base = td_path_base(path);
    char *folder = td_copy_text(path);
    if (!folder)
        return;
    folder[base - path] = '\0';
    if (td_list_folder(*folder ? folder : ".", &l) != TD_OK) {
        td_error_clear();
        td_free(folder);
        return;
    }
    for (size_t i = 0; i < l.n; i++) {
        char *part = is_left(l.names[i], base) ? td_path_join(folder, l.names[i]) : NULL;
        if (part)
            remove_unheld(part);
        td_free(part);
    }
    td_listing_release(&l);
    td_free(folder);
}
