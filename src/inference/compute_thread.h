/*
 * inference/compute_thread.h -- a thread that runs functions for other threads, one at a time
 *
 *     td_compute_thread *c;
 *     TD_TRY(td_compute_thread_new(&c));
 *     any thread:  TD_TRY(td_compute_thread_run(c, compute, &job));     waits for the result
 *     td_compute_thread_free(c);
 *
 * OpenMP keeps a team of threads for every thread that runs parallel regions.  A program that is
 * run by many threads in turns would have as many teams; here there is one.
 */
#ifndef TD_INFERENCE_COMPUTE_THREAD_H
#define TD_INFERENCE_COMPUTE_THREAD_H

#include "base/status.h"

typedef struct td_compute_thread td_compute_thread;

/** TD_ENOMEM, TD_EIO (no thread could be started). */
td_status td_compute_thread_new(td_compute_thread **out) TD_CHECKED;

/** All calls of td_compute_thread_run must have returned.  `c` may be NULL. */
void td_compute_thread_free(td_compute_thread *c);

/** Run fn(ctx) in the thread; returns its status, with its message. */
td_status td_compute_thread_run(td_compute_thread *c, td_status (*fn)(void *ctx),
                                void *ctx) TD_CHECKED;

#endif
