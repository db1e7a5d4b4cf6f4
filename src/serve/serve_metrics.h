/*
 * serve/serve_metrics.h -- what /metrics tells: counts since the start, as Prometheus reads them
 *
 * Shared by all threads of a server: every function takes the lock.
 */
#ifndef TD_SERVE_SERVE_METRICS_H
#define TD_SERVE_SERVE_METRICS_H

#include <pthread.h>
#include <stdint.h>

#include "base/text.h"

enum { TD_BUCKETS = 14, TD_CODES = 12 };

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
    int64_t n_images;
} td_metrics;

void td_metrics_init(td_metrics *m);
void td_metrics_release(td_metrics *m);

/** An answer with this status; seconds < 0: nothing was computed for it. */
void td_metrics_answer(td_metrics *m, int status, double seconds);

/** So many rows were computed together. */
void td_metrics_batch(td_metrics *m, int rows);

/** The page; what is now: requests under way, connections. */
void td_metrics_print(td_metrics *m, const char *model, int queue, int connections, td_text *out);

#endif
