/*
 * io/lock.h -- one process at a time in a run's folder
 *
 *     td_lock *l;  TD_TRY(td_lock_open("runs/a", &l));
 *         -> "folder 'runs/a' is in use by process 4711 on 'node3'"
 *     ... write checkpoints and reports ...
 *     td_lock_close(l);
 *
 * The lock is the kernel's, on the file tandem.lock in that folder: it ends with the process,
 * however that dies, so there is never one to remove by hand.  The file itself stays.
 */
#ifndef TD_IO_LOCK_H
#define TD_IO_LOCK_H

#include "base/status.h"

#define TD_LOCK_NAME "tandem.lock"

typedef struct td_lock td_lock;

/**
 * Take the folder, which must exist.  Does not wait.
 *
 *   TD_EIO           another holder (named as far as it is known), in this process or another;
 *                    the folder is missing or read-only
 *   TD_EUNSUPPORTED  the file system has no locks
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_lock_open(const char *folder, td_lock **out);

/** Give the folder back.  NULL is fine. */
void td_lock_close(td_lock *l);

#endif
