/*
 * scaling_model.c -- predicts the time of a training step on many ranks
 */
#include "benchmark/scaling_model.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "comm/reduction.h"

enum {
    EAGER = 1 << 16, /* bytes; larger messages are announced and granted first, as MPI does */
    N_RENDEZVOUS = 3 /* messages instead of one */
};

/* coefficients of the time of a sum */
typedef struct {
    double latencies, bytes, other_s;
} sum_cost;

static double messages(double bytes)
{
    return bytes > EAGER ? N_RENDEZVOUS : 1;
}

/* --- one sum ---------------------------------------------------------------------------------- */

static sum_cost on_one_machine(double bytes)
{
    return (sum_cost){ .latencies = 2, .bytes = bytes };
}

static sum_cost by_messages(const td_cluster *c, const td_link *l, double bytes)
{
    const double others = c->n_ranks - 1;
    return (sum_cost){ .latencies = 2 * messages(bytes / c->n_ranks),
                       .bytes = 2 * bytes * others / c->n_ranks * c->per_machine,
                       .other_s = 2 * others * l->message_s + bytes / l->added_per_s };
}

/* does a machine send chunks in both directions at step `time` of the chain? */
static bool is_two_way(int time, int last, int n_chunks)
{
    int low = 1, high = last - 1;
    low = time - n_chunks + 1 > low ? time - n_chunks + 1 : low;
    low = 2 * last - time > low ? 2 * last - time : low;
    high = time < high ? time : high;
    high = 2 * last - time + n_chunks - 1 < high ? 2 * last - time + n_chunks - 1 : high;
    return low <= high;
}

static sum_cost along_machines(int n_machines, int per_machine, const td_link *l, double bytes)
{
    const double share = bytes / per_machine;
    const int64_t n = (int64_t)(share / sizeof(float));
    const double chunk = (double)td_chain_chunk(n_machines, n) * sizeof(float);
    const int n_chunks = (int)ceil(share / chunk), n_steps = n_chunks + 2 * n_machines - 3;
    const double sent = (share < chunk ? share : chunk) * per_machine;
    sum_cost c = { .latencies = n_steps * messages(chunk), .other_s = bytes / l->added_per_s };
    for (int time = 0; time < n_steps; time++)
        c.bytes += is_two_way(time, n_machines - 1, n_chunks) ? 2 * sent : sent;
    return c;
}

static sum_cost by_library(const td_cluster *c, const td_link *l, double floats)
{
    const double bytes = floats * (c->allreduce.dtype == TD_WIRE_FLOAT32 ? 4 : 2);
    const double rounds = ceil(log2(c->n_ranks));
    return (sum_cost){ .latencies = 2 * rounds * messages(bytes / c->n_ranks),
                       .bytes = 2 * bytes * (c->n_ranks - 1) / c->n_ranks * c->per_machine,
                       .other_s = bytes / l->added_per_s };
}

static sum_cost cost_of(const td_cluster *c, const td_link *l, double floats)
{
    const double bytes = floats * (double)sizeof(float);
    if (c->n_ranks <= c->per_machine)
        return on_one_machine(bytes);
    if (c->allreduce.mode == TD_ALLREDUCE_FAST)
        return by_library(c, l, floats);
    if (c->per_machine == 1 || c->by_gpus)
        return by_messages(c, l, bytes);
    return along_machines(c->n_ranks / c->per_machine, c->per_machine, l, bytes);
}

double td_sum_seconds(const td_cluster *c, const td_link *l, double floats)
{
    const sum_cost x = cost_of(c, l, floats);
    return x.latencies * l->latency_s + x.bytes / l->bytes_per_s + x.other_s;
}

/* --- a step ----------------------------------------------------------------------------------- */

typedef struct {
    double now;     /* what the computing thread has reached */
    double free_at; /* when the communication thread has finished all that was begun */
    double taken;   /* processor time that sums have yet to take from the computation */
    double waiting;
} clock;

static void begin_sum(const td_step_schedule *s, const td_cluster *c, const td_link *l, int bucket,
                      clock *k)
{
    const double floats = s->floats[bucket];
    k->free_at = (k->free_at > k->now ? k->free_at : k->now) + td_sum_seconds(c, l, floats);
    k->taken += floats * (double)sizeof(float) * l->cpu_s_per_byte;
    s->finished[bucket] = k->free_at;
}

static void compute(double seconds, clock *k)
{
    k->now += seconds + k->taken;
    k->taken = 0;
}

static void wait_for(double finished, clock *k)
{
    const double wait = finished > k->now ? finished - k->now : 0;
    k->now += wait;
    k->waiting += wait;
    k->taken = k->taken > wait ? k->taken - wait : 0; /* the processor was free */
}

td_step_time td_step_predict(const td_step_schedule *s, const td_cluster *c, const td_link *l)
{
    clock k = { 0 };
    for (int i = 0; i < s->n_events; i++) {
        const td_step_event *e = &s->events[i];
        if (e->kind != TD_EVENT_COMPUTE && c->n_ranks == 1)
            continue;
        if (e->kind == TD_EVENT_BEGIN)
            begin_sum(s, c, l, e->bucket, &k);
        else if (e->kind == TD_EVENT_WAIT)
            wait_for(s->finished[e->bucket], &k);
        else
            compute(e->seconds, &k);
    }
    return (td_step_time){ k.now, k.waiting };
}

/* --- a link ----------------------------------------------------------------------------------- */

/* sums of products for least squares: seconds = x latencies + y bytes */
typedef struct {
    double xx, xy, yy, xt, yt;
} moments;

static double without_negative(double a, double b)
{
    return b > 0 && a > 0 ? a / b : 0;
}

void td_link_fit(const td_cluster *c, int n, const double *floats, const double *seconds,
                 td_link *link)
{
    moments m = { 0 };
    for (int i = 0; i < n; i++) {
        const sum_cost cost = cost_of(c, link, floats[i]);
        const double t = seconds[i] - cost.other_s;
        const double w = 1 / seconds[i]; /* a step waits longest for the largest sums */
        m.xx += w * cost.latencies * cost.latencies;
        m.xy += w * cost.latencies * cost.bytes;
        m.yy += w * cost.bytes * cost.bytes;
        m.xt += w * cost.latencies * t;
        m.yt += w * cost.bytes * t;
    }
    const double det = m.xx * m.yy - m.xy * m.xy;
    double latency = without_negative(m.xt * m.yy - m.yt * m.xy, det);
    double per_byte = without_negative(m.yt * m.xx - m.xt * m.xy, det);
    if (latency == 0)
        per_byte = without_negative(m.yt, m.yy);
    if (per_byte == 0)
        latency = without_negative(m.xt, m.xx);
    link->latency_s = latency;
    link->bytes_per_s = per_byte > 0 ? 1 / per_byte : INFINITY;
}
