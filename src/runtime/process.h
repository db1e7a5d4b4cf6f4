/*
 * runtime/process.h -- how the compute threads of this process wait, and where they run
 */
#ifndef TD_RUNTIME_PROCESS_H
#define TD_RUNTIME_PROCESS_H

#include <stdbool.h>

#include "base/topology.h"

/** GOMP_SPINCOUNT for a team of so many threads: see process.c. */
int td_spin_count(int threads);

/** The threads that the command line asks for, `--threads N` or `--threads=N`; 0: none. */
int td_threads_in(const char *const *argv);

/**
 * Bind compute thread k = 1 .. n - 1 to all processors of core k of `t`; td_set_threads(n) was
 * called.  Thread 0, the caller, keeps its affinity: threads and programs that it starts inherit
 * it.  Returns the number of threads that were bound.
 */
int td_threads_bind(const td_topology *t, int n);

/**
 * Ask OpenMP for no more threads than it gives: OMP_THREAD_LIMIT at most, OMP_DYNAMIC off.  Kernels
 * divide their work when they are prepared; a smaller team would leave a part of it out (oneDNN
 * 3.2's filter gradients do).
 */
void td_threads_keep_limit(void);

/** Has td_set_threads bound this process's threads? */
bool td_threads_are_bound(void);

#endif
