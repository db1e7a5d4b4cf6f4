/*
 * launch/mpirun_watch.h -- ends an mpirun that waits for a machine that is lost
 */
#ifndef TD_LAUNCH_MPIRUN_WATCH_H
#define TD_LAUNCH_MPIRUN_WATCH_H

#include "base/status.h"

/**
 * Start a process that watches this one, which becomes mpirun by exec: if it still runs 7 s after
 * a rank has reported that another was lost, it is killed, with an error message.  The ranks report
 * in a file in the current folder, which the process removes when mpirun has ended.
 * TD_EIO, TD_ENOMEM: there is none, and mpirun may wait.
 */
TD_CHECKED td_status td_mpirun_watch(void);

#endif
