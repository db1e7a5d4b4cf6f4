/*
 * serve/batcher.h -- decodes requests into rows, batches rows, computes batches
 *
 *     any thread    td_batcher_submit(b, job)            a worker: job->read: body -> rows
 *     each stream   td_batcher_run_batch(b, i, wait_ns)  rows of several jobs -> network, job->done
 *
 *     submitted -- workers: decode --> ready -- a stream: gather, compute --> done
 *          |                             |  ^
 *          +-- large -- its own workers -+  +-- a request of more rows than a batch has: the rest
 *
 * Streams gather and compute at the same time.  A batch is computed as soon as it is full, no other
 * request is on its way, its first row has waited for max_delay_ns, or it has the stream's share of
 * all requests that are not yet computed: with two idle streams half of them.  The batches of a
 * request of more rows than a batch has may be computed by several streams.
 *
 * A job that `read` finds to be large is processed by separate threads, so that other jobs never
 * wait for it; afterwards its memory is returned to the system.
 */
#ifndef TD_SERVE_BATCHER_H
#define TD_SERVE_BATCHER_H

#include "inference/predictor.h"
#include "serve/kind.h"
#include "serve/serve_metrics.h"

typedef struct td_job td_job;

typedef enum {
    TD_READ_NOTHING, /* there is nothing to compute */
    TD_READ_ROWS,    /* work.n rows are to be computed */
    TD_READ_LARGE    /* td_batcher_enter_large was true; call again on a thread for large jobs */
} td_read_result;

/** Must stay valid from submit until `done` is called, which happens once, on any thread. */
struct td_job {
    td_work work;
    td_read_result (*read)(td_job *job, td_transformer *buffers);
    void (*done)(td_job *job, td_status st); /* td_error_message() is valid */
    td_spans spans;                          /* valid in `done` */

    /* used by the batcher only */
    int64_t since_ns; /* when it entered its current queue */
    int n_taken;      /* rows that are in a batch, or were */
    int n_computed;   /* rows */
    td_status st;     /* of the first batch that failed, with: */
    char *error;      /* its message */
};

typedef struct {
    const td_service *service; /* borrowed; its kind receives the results */
    td_predictor *predictor;   /* borrowed; td_batcher_run_batch runs it */
    td_nms_pool *const *nms;   /* borrowed; detectors: [streams], for store_results; or NULL */
    td_metrics *metrics;       /* borrowed */
    int max_rows, max_jobs, workers;
    int large_workers, max_large; /* threads and jobs for large images */
    int64_t max_delay_ns;
} td_batcher_opts;

typedef struct td_batcher td_batcher;

td_status td_batcher_new(const td_batcher_opts *opts, td_batcher **out) TD_CHECKED;

/** Call only if no job is in progress. */
void td_batcher_free(td_batcher *b);

/** Reserve a place for a job; false: max_jobs are in progress.  If true, call td_batcher_submit or
    td_batcher_leave. */
bool td_batcher_enter(td_batcher *b);
void td_batcher_leave(td_batcher *b);
void td_batcher_submit(td_batcher *b, td_job *job);

/** Called by `read`: reserve a place for a large job; false: max_large are in progress. */
bool td_batcher_enter_large(td_batcher *b);

/** Jobs between enter and done. */
int td_batcher_load(const td_batcher *b);

/**
 * On the thread of a stream of the predictor: wait up to wait_ns for rows and compute one batch of
 * them.
 */
void td_batcher_run_batch(td_batcher *b, int stream, int64_t wait_ns);

#endif
