/*
 * serve/serve_metrics.h -- counts since the start: for Prometheus, and the protocol's statistics
 *
 * Shared by all threads of a server: every function takes the lock.
 */
#ifndef TD_SERVE_SERVE_METRICS_H
#define TD_SERVE_SERVE_METRICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum { TD_BUCKETS = 14, TD_CODES = 16, TD_BATCH_MAX = 256 };

/** The time that a request or a batch spends in each stage. */
typedef struct {
    int64_t queue_ns;  /* waiting, for a worker and for the network */
    int64_t input_ns;  /* reading and decoding; of a batch: bringing its rows together */
    int64_t infer_ns;  /* the network; of a request: that of its batches */
    int64_t output_ns; /* writing the answer */
} td_spans;

/** The number of events, and their total time. */
typedef struct {
    int64_t n;
    td_spans spans;
} td_span_sums;

typedef struct {
    int64_t count[TD_BUCKETS + 1]; /* the last: above all bounds */
    double sum;
} td_histogram;

typedef struct {
    pthread_mutex_t lock; /* guards all below */
    struct {
        int status;
        int64_t n;
    } codes[TD_CODES];
    td_histogram seconds; /* from a request's headers to its answer; computed ones only */
    td_histogram rows;    /* computed together */
    int64_t n_images, n_batches;
    int64_t last_ms;                        /* when the last answer was computed, since 1970 */
    td_span_sums right;                     /* computed requests that were answered with 200 */
    td_span_sums wrong;                     /* all others that had a body to be computed */
    td_span_sums batches[TD_BATCH_MAX + 1]; /* by rows */
} td_metrics;

void td_metrics_init(td_metrics *m);
void td_metrics_release(td_metrics *m);

/** An answer with this status; seconds < 0: nothing was computed for it. */
void td_metrics_answer(td_metrics *m, int status, double seconds);

/** So many rows, 1 .. TD_BATCH_MAX, were computed together. */
void td_metrics_batch(td_metrics *m, int rows, const td_spans *spans);

/** A request for computing is over. */
void td_metrics_request(td_metrics *m, bool is_right, const td_spans *spans);

/** The protocol's statistics of a model: an object of "model_stats". */
void td_metrics_statistics(td_metrics *m, const char *model, td_text *out);

/** The page; what is now: requests under way, connections. */
void td_metrics_print(td_metrics *m, const char *model, int queue, int connections, td_text *out);

#endif
