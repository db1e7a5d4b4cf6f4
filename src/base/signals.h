/*
 * base/signals.h -- signals that end a job after its work has been saved
 */
#ifndef TD_BASE_SIGNALS_H
#define TD_BASE_SIGNALS_H

/**
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1 set a flag; a second one ends the process at once with 128 +
 * signal.  (Batch systems send SIGUSR1 when the time limit is near, for example Slurm with
 * --signal.  A closed terminal sends SIGHUP twice, from the shell and from the kernel: SIGHUP after
 * another signal does nothing; under nohup it stays ignored.)
 * Also ignores SIGPIPE and SIGXFSZ, so that such writes fail instead.
 */
void td_signals_catch(void);

/** Make a write beyond the file size limit (ulimit -f) fail with EFBIG instead of ending the
    process. */
void td_signals_ignore_file_limit(void);

/** The signal received, or 0. */
int td_signal_caught(void);

#endif
