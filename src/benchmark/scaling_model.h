/*
 * benchmark/scaling_model.h -- predicts the time of a training step on many ranks
 *
 * A step is a list of events of the computing thread: compute for some seconds, begin the sum of a
 * bucket, wait for the sum of a bucket.  The communication thread sums one bucket after the other:
 *
 *     compute   [ forward | backward ... b0 ... b1 ... | wait b0, update | wait b1, update ]
 *     sums                             [ b0 ]   [ b1    ]
 *
 * The time of one sum of n bytes is linear in the latency and in the inverse of the bandwidth:
 *
 *     seconds = latencies * latency_s + bytes / bytes_per_s + other_s
 *
 * with the three coefficients that follow from the algorithm (comm/reduction.c):
 *
 *     one machine      two barriers; the ranks add in shared memory
 *     one rank per     all-to-all and all-gather: every rank sends 2 n (W - 1) / W bytes in
 *     machine          2 (W - 1) messages
 *     else             chunks travel along the M machines and back, one step of the chain after the
 *                      other: (chunks + 2 M - 3) steps, in each of which a machine sends up to two
 *                      chunks of each of its ranks
 *     by GPUs          several ranks on each machine, exact: as one rank per machine, over one link
 *     fast             reduce-scatter by halving and all-gather by doubling: 2 log2(W) messages,
 *                      2 n (W - 1) / W bytes for every rank of a machine (Rabenseifner, 2004)
 */
#ifndef TD_BENCHMARK_SCALING_MODEL_H
#define TD_BENCHMARK_SCALING_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/allreduce.h"

typedef enum {
    TD_EVENT_COMPUTE,
    TD_EVENT_COPY, /* into or out of a bucket; not in a step of one rank */
    TD_EVENT_BEGIN,
    TD_EVENT_WAIT
} td_event_kind;

typedef struct {
    td_event_kind kind;
    int bucket;     /* begin and wait: which bucket */
    double seconds; /* compute and copy: how long it takes */
} td_step_event;

typedef struct {
    int n_events, n_buckets;
    const td_step_event *events;
    const double *floats; /* [n_buckets] */
    double *finished;     /* [n_buckets], for td_step_predict */
} td_step_schedule;

/** How the ranks are spread and how they add. */
typedef struct {
    int n_ranks, per_machine; /* with more than one machine n_ranks is a multiple of per_machine */
    td_allreduce_opts allreduce;
    bool by_gpus; /* which exchange slices with all others, wherever these are */
} td_cluster;

/** What a sum costs. */
typedef struct {
    double latency_s;      /* from sending a message until its arrival is noticed */
    double message_s;      /* to handle one of many messages that are sent together */
    double bytes_per_s;    /* bandwidth of a machine's link in each direction */
    double added_per_s;    /* bytes that a rank adds per second */
    double cpu_s_per_byte; /* taken from the computation while a sum is in progress; 0: none */
} td_link;

/** Predict the time of one sum of `floats` numbers. */
double td_sum_seconds(const td_cluster *c, const td_link *l, double floats);

/** Time of a step, and of the part in which the computation waits for sums. */
typedef struct {
    double seconds, waiting_s;
} td_step_time;

/** n_ranks 1: the computation alone. */
td_step_time td_step_predict(const td_step_schedule *s, const td_cluster *c, const td_link *l);

/**
 * Fit latency_s and bytes_per_s to n measured sums of floats[i] numbers: least squares of
 * errors divided by the square root of the time, neither negative.  The other members are kept.
 */
void td_link_fit(const td_cluster *c, int n, const double *floats, const double *seconds,
                 td_link *link);

#endif
