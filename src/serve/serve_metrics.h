/*
 * serve/serve_metrics.h -- counters since the start, for Prometheus and for the protocol's
 * statistics
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
    int64_t queue_ns;  /* waiting for a worker and for the network */
    int64_t input_ns;  /* reading and decoding; for a batch: gathering its rows */
    int64_t infer_ns;  /* the network; for a request: the time of its batches */
    int64_t output_ns; /* writing the answer */
} td_spans;

/** The number of events, and their total time. */
typedef struct {
    int64_t n;
    td_spans spans;
} td_span_sums;

typedef struct {
    int64_t count[TD_BUCKETS + 1]; /* the last one counts values above all bounds */
    double sum;
} td_histogram;

typedef struct {
    pthread_mutex_t lock; /* guards all members below */
    struct {
        int status;
        int64_t n;
    } codes[TD_CODES];
    td_histogram seconds; /* from headers to answer; computed requests only */
    td_histogram rows;    /* computed together */
    int64_t n_images, n_batches;
    int64_t last_ms;                        /* time of the last computed answer, since 1970 */
    td_span_sums succeeded;                 /* computed requests that were answered with 200 */
    td_span_sums failed;                    /* other requests with a body to compute */
    td_span_sums batches[TD_BATCH_MAX + 1]; /* indexed by rows */
} td_metrics;

void td_metrics_init(td_metrics *m);
void td_metrics_release(td_metrics *m);

/** Count an answer with this status; seconds < 0: nothing was computed for it. */
void td_metrics_answer(td_metrics *m, int status, double seconds);

/** Count a batch of `rows` rows, 1 .. TD_BATCH_MAX. */
void td_metrics_batch(td_metrics *m, int rows, const td_spans *spans);

/** Count a computed request when it ends. */
void td_metrics_request(td_metrics *m, bool has_succeeded, const td_spans *spans);

/** Print the protocol's statistics: an object of "model_stats". */
void td_metrics_statistics(td_metrics *m, const char *model, td_text *out);

/** Print the metrics page; `queue` is the current number of requests in progress. */
void td_metrics_print(td_metrics *m, const char *model, int queue, int connections, td_text *out);

#endif
