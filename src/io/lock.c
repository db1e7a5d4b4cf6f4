/*
 * lock.c -- flock on <folder>/tandem.lock
 *
 * The file's content, "<pid> <host>", is only for the other process's error message.
 *
 * The holder removes the file before it releases the lock.  So a process that opened the file
 * before that may lock one that is no longer in the folder, while another process locks a new one.
 * Therefore a lock counts only if, once it is acquired, the file is still the one in the folder;
 * otherwise the process opens the file again.  Only the holder of a lock that counts removes the
 * file, so two processes never both hold one:
 *
 *     A holds file 1        unlink 1, release
 *     B opens file 1                          lock 1: not in the folder -> open again
 *     C                                       create file 2, lock 2: holds
 */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

#define NOTE_BYTES 320 /* a pid, and a host name of at most 255 bytes */

#define TRIES 1000 /* to open the file; each means that another process has ended in between */

struct td_lock {
    int fd;
    char *path;
};

static td_status refuse(int fd, const char *folder)
{
    char note[NOTE_BYTES] = "";
    ssize_t n = pread(fd, note, sizeof note - 1, 0);
    note[n > 0 ? n : 0] = '\0';
    note[strcspn(note, "\n")] = '\0';
    char *host = strchr(note, ' ');
    if (!host || !host[1])
        return td_error(TD_EIO, "folder '%s' is in use by another process", folder);
    *host++ = '\0';
    return td_error(TD_EIO, "folder '%s' is in use by process %s on '%s'", folder, note, host);
}

/* writes the holder's pid and host, only for messages, so failures are ignored */
static void write_holder(int fd)
{
    char host[256] = "";
    td_text note = { 0 };

    if (gethostname(host, sizeof host - 1) != 0)
        return;
    td_text_add(&note, "%ld %s\n", (long)getpid(), host);
    if (td_text_status(&note) == TD_OK && ftruncate(fd, 0) == 0)
        (void)!pwrite(fd, note.data, note.len, 0);
    td_text_release(&note);
}

/* Is `fd` the file in the folder?  After an unlink it is another one or none. */
static bool is_current(int fd, const char *path)
{
    struct stat own, in_folder;
    return fstat(fd, &own) == 0 && own.st_nlink > 0 && lstat(path, &in_folder) == 0 &&
           own.st_dev == in_folder.st_dev && own.st_ino == in_folder.st_ino;
}

/* Lock `fd`.  *is_gone: the file was removed in the meantime; ESTALE: by another NFS client. */
static td_status acquire(int fd, const char *path, const char *folder, bool *is_gone)
{
    int rc;
    do
        rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    *is_gone = rc == 0 ? !is_current(fd, path) : errno == ESTALE;
    if (rc == 0 || *is_gone)
        return TD_OK;
    if (errno == EWOULDBLOCK)
        return refuse(fd, folder);
    return td_error_errno(TD_EUNSUPPORTED, "cannot lock folder '%s'", folder);
}

static td_status open_locked(const char *path, const char *folder, int *out)
{
    for (int i = 0; i < TRIES; i++) {
        bool is_gone;
        const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return td_error_errno(TD_EIO, "cannot lock folder '%s'", folder);
        const td_status st = acquire(fd, path, folder, &is_gone);
        if (st == TD_OK && !is_gone) {
            *out = fd;
            return TD_OK;
        }
        close(fd);
        TD_TRY(st);
    }
    return td_error(TD_EIO, "folder '%s' is in use by other processes", folder);
}

td_status td_lock_open(const char *folder, td_lock **out)
{
    td_status st = TD_OK;
    td_text path = { 0 };

    *out = NULL;
    td_lock *l = TD_NEW(td_lock);
    td_text_add(&path, "%s/" TD_LOCK_NAME, folder);
    if (!l)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_text_take(&path, TD_OK, &l->path));
    TD_OUT(open_locked(l->path, folder, &l->fd));
    write_holder(l->fd);
    *out = l;
    l = NULL;
out:
    if (l)
        td_free(l->path);
    td_free(l);
    td_text_release(&path);
    return st;
}

void td_lock_close(td_lock *l)
{
    if (!l)
        return;
    if (is_current(l->fd, l->path)) /* not one that somebody else has created after a removal */
        (void)unlink(l->path);
    close(l->fd);
    td_free(l->path);
    td_free(l);
}
