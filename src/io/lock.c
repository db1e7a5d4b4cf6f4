/*
 * lock.c -- flock on <folder>/tandem.lock
 *
 * The file's content, "<pid> <host>", is only for the other process's error message.  The file is
 * never removed: after an unlink, two processes could each hold a lock on a different file.
 */
#include "io/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

#define NOTE_BYTES 320 /* a pid, and a host name of at most 255 bytes */

struct td_lock {
    int fd;
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

static td_status acquire(int fd, const char *folder)
{
    int rc;
    do
        rc = flock(fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return TD_OK;
    if (errno == EWOULDBLOCK)
        return refuse(fd, folder);
    return td_error_errno(TD_EUNSUPPORTED, "cannot lock folder '%s'", folder);
}

td_status td_lock_open(const char *folder, td_lock **out)
{
    td_status st;
    int fd = -1;
    td_text path = { 0 };

    *out = NULL;
    td_lock *l = TD_NEW(td_lock);
    td_text_add(&path, "%s/" TD_LOCK_NAME, folder);
    if (!l)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_text_status(&path));
    fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        TD_OUT(td_error_errno(TD_EIO, "cannot lock folder '%s'", folder));
    TD_OUT(acquire(fd, folder));
    write_holder(fd);
    l->fd = fd;
    *out = l;
    l = NULL;
    fd = -1;
out:
    if (fd >= 0)
        close(fd);
    td_free(l);
    td_text_release(&path);
    return st;
}

void td_lock_close(td_lock *l)
{
    if (!l)
        return;
    (void)!ftruncate(l->fd, 0);
    close(l->fd);
    td_free(l);
}
