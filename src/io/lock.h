/*
 * io/lock.h -- locks a run's folder for one process
 *
 *     td_lock *l;  TD_TRY(td_lock_open("runs/a", &l));
 *         -> "folder 'runs/a' is in use by process 4711 on 'node3'"
 *     ... write checkpoints and reports ...
 *     td_lock_close(l);
 *
 * The lock is the kernel's (flock), on the file tandem.lock in that folder: it ends with the
 * process, even after a crash, so there are no stale locks.  td_lock_close removes the file; after
 * a crash it stays, without a meaning.
 */
#ifndef TD_IO_LOCK_H
#define TD_IO_LOCK_H

#include "base/status.h"

#define TD_LOCK_NAME "tandem.lock"

typedef struct td_lock td_lock;

/**
 * Lock the folder, which must exist.  Does not wait.
 *
 *   TD_EIO           locked already, possibly by this process (the message names the holder if
 *                    known); the folder is missing or read-only
 *   TD_EUNSUPPORTED  the file system has no locks
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_lock_open(const char *folder, td_lock **out);

/** Remove the file and release the lock.  `l` may be NULL. */
void td_lock_close(td_lock *l);

#endif
