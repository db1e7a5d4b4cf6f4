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
 * Bind the caller's compute thread k = 1 .. n - 1 to all processors of core first + k of `t`.
 * Thread 0, the caller, keeps its affinity: threads and programs that it starts inherit it.
 * Returns the number of threads that were bound.
 */
int td_threads_bind(const td_topology *t, int first, int n);

/**
 * Ask OpenMP for no more threads than it gives: OMP_THREAD_LIMIT at most, OMP_DYNAMIC off.  Kernels
 * divide their work when they are prepared; a smaller team would leave a part of it out (oneDNN
 * 3.2's filter gradients do).
 */
void td_threads_keep_limit(void);

/** Set the number of compute threads of the calling thread, n > 0, and bind nothing. */
void td_threads_use(int n);

/**
 * The calling thread is to prepare or run what one of n threads will run, while the others run the
 * same: it has one compute thread, and td_threads_parts is n until td_threads_use.
 */
void td_threads_divide(int n);
int td_threads_parts(void);

/** Has td_set_threads bound this process's threads? */
bool td_threads_are_bound(void);

/**
 * Streams: threads that run programs at the same time, each with its own compute threads, a share
 * of the `threads` that td_set_threads has set.  Shares differ by one thread at most; each stream
 * has one thread at least.
 *
 *     td_stream_threads   the share of stream `i`
 *     td_stream_enter     the calling thread becomes stream `i`; if threads are bound, those of
 *                         the stream are bound to its part of the cores
 *     td_streams_for      how many streams suit so many threads: one for each 8
 */
int td_stream_threads(int threads, int streams, int i);
void td_stream_enter(int threads, int streams, int i);
int td_streams_for(int threads);

/** Does OpenMP bind the threads of every team to the same places (OMP_PROC_BIND)? */
bool td_openmp_binds(void);

#endif
