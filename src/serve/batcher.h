/*
 * serve/batcher.h -- decodes requests into rows, batches rows, computes batches
 *
 *     any thread        td_batcher_submit(b, job)     job->read, on a worker: body -> rows
 *     one thread        td_batcher_turn(b, wait_ns)   rows of several jobs -> network -> job->done
 *
 *     submitted -- workers: decode --> ready -- one turn: gather, compute --> done
 *          |                             |  ^
 *          +-- large -- its own workers -+  +-- a request of more rows than a batch has: the rest
 *
 * A batch is computed as soon as it is full, nothing else is on its way, or its first row has
 * waited for max_delay_ns.  A job whose `read` finds that it is costly goes to threads of its own,
 * so that the others never wait for it, and after it the memory it took is given back.
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
    TD_READ_LARGE    /* call again, on a thread for large images: td_batcher_enter_large was true */
} td_read_result;

/** Kept from submit until `done` has been called, once, on whatever thread. */
struct td_job {
    td_work work;
    td_read_result (*read)(td_job *job, td_transformer *buffers);
    void (*done)(td_job *job, td_status st); /* the message is this thread's */
    td_spans spans;                          /* valid in `done` */

    /* the batcher's own */
    int64_t since_ns; /* when it came into the queue it is in */
    int n_computed;   /* rows */
};

typedef struct {
    const td_service *service; /* kept; its kind takes the results */
    td_predictor *predictor;   /* kept; td_batcher_turn runs it */
    td_metrics *metrics;       /* kept */
    int max_rows, max_jobs, workers;
    int large_workers, max_large; /* threads and jobs for large images */
    int64_t max_delay_ns;
} td_batcher_opts;

typedef struct td_batcher td_batcher;

td_status td_batcher_new(const td_batcher_opts *opts, td_batcher **out) TD_CHECKED;

/** Only when no job is under way. */
void td_batcher_free(td_batcher *b);

/** Take a place for a job; false: max_jobs are under way.  Submit follows, or td_batcher_leave. */
bool td_batcher_enter(td_batcher *b);
void td_batcher_leave(td_batcher *b);
void td_batcher_submit(td_batcher *b, td_job *job);

/** Take a place among large jobs, for the job whose `read` runs; false: max_large are under way. */
bool td_batcher_enter_large(td_batcher *b);

/** Jobs between enter and done. */
int td_batcher_load(const td_batcher *b);

/** Wait up to wait_ns for rows and compute one batch of them. */
void td_batcher_turn(td_batcher *b, int64_t wait_ns);

#endif
