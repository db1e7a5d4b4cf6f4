/*
 * base/signals.h -- signals that end a job after its work has been saved
 */
#ifndef TD_BASE_SIGNALS_H
#define TD_BASE_SIGNALS_H

#include <signal.h>

/**
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1 set a flag; a second one ends the process at once with 128 +
 * signal.  (Batch systems send SIGUSR1 when the time limit is near, for example Slurm with
 * --signal.  A closed terminal sends SIGHUP twice, from the shell and from the kernel: SIGHUP after
 * another signal does nothing; under nohup it stays ignored.)
 * Also ignores SIGPIPE and SIGXFSZ, so that such writes fail instead.
 */
void td_signals_catch(void);

/**
 * Call `tidy`, which must be async-signal-safe, before such a signal ends this process: the first
 * one, until td_signals_catch, and a second one after it.  Ignored signals stay ignored.
 */
void td_signals_tidy(void (*tidy)(void));

/** Make a write beyond the file size limit (ulimit -f) fail with EFBIG instead of ending the
    process. */
void td_signals_ignore_file_limit(void);

/**
 * For a new process, before exec: the default actions, also of SIGPIPE and SIGXFSZ.  SIGINT,
 * SIGTERM, SIGHUP and SIGUSR1 stay ignored if they are.
 */
void td_signals_default(void);

/**
 * Block all signals in this thread but those of its own faults, whose handlers a blocked one would
 * not reach (dnnl_guard.cpp); pthread_sigmask(SIG_SETMASK, before, NULL) ends that.
 */
void td_signals_block(sigset_t *before);

/** The signal received, or 0. */
int td_signal_caught(void);

#endif
