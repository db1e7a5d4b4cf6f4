/*
 * serve/streams.h -- the threads that compute batches: stream 0 on the server's, the others here
 *
 *     td_streams *s;
 *     TD_TRY(td_streams_start(predictor, batcher, &s));
 *     td_batcher_run_batch(batcher, 0, wait_ns) ...     beside the other streams
 *     td_streams_stop(s);
 */
#ifndef TD_SERVE_STREAMS_H
#define TD_SERVE_STREAMS_H

#include "serve/batcher.h"

typedef struct td_streams td_streams;

/**
 * Start a thread for each stream of `p` but the first, which is the caller's.  All streams time
 * their programs, at the same time; then those of the threads run batches of `b`.  The errors of
 * td_predictor_time and of threads.
 */
td_status td_streams_start(td_predictor *p, td_batcher *b, td_streams **out) TD_CHECKED;

/** When no job is in progress: wait for the threads to end.  NULL is fine. */
void td_streams_stop(td_streams *s);

#endif
