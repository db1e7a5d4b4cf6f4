/*
 * base/signals.h -- signals that end a job after its work has been saved
 */
#ifndef TD_BASE_SIGNALS_H
#define TD_BASE_SIGNALS_H

/**
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1 set a flag; the second of any of them ends the process at
 * once with 128 + signal.  (SIGUSR1 is how a batch system says that the time is nearly over, as
 * Slurm with --signal.  SIGHUP comes when a terminal is closed, from the shell and from the kernel:
 * one after another signal does nothing; under nohup it stays ignored.)
 * Also ignores SIGPIPE and SIGXFSZ: such writes fail instead.
 */
void td_signals_catch(void);

/** A write beyond the file size limit (ulimit -f) fails with EFBIG, instead of killing. */
void td_signals_ignore_file_limit(void);

/** 0, or the signal that came. */
int td_signal_caught(void);

#endif
