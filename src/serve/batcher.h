/*
 * serve/batcher.h -- decodes requests into rows, batches rows, computes batches
 *
 *     any thread    td_batcher_submit(b, job)         a worker calls job->read: body -> rows
 *     one thread    td_batcher_run_batch(b, wait_ns)  rows of several jobs -> network -> job->done
 *
 *     submitted -- workers: decode --> ready -- one batch: gather, compute --> done
 *          |                             |  ^
 *          +-- large -- its own workers -+  +-- a request of more rows than a batch has: the rest
 *
 * A batch is computed as soon as it is full, no other request is in progress, or its first row has
 * waited for max_delay_ns.  A job that `read` finds to be large is processed by separate threads,
 * so that other jobs never wait for it; afterwards its memory is returned to the system.
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
    int n_computed;   /* rows */
};

typedef struct {
    const td_service *service; /* borrowed; its kind receives the results */
    td_predictor *predictor;   /* borrowed; td_batcher_run_batch runs it */
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

/** Wait up to wait_ns for rows and compute one batch of them. */
void td_batcher_run_batch(td_batcher *b, int64_t wait_ns);

#endif
