/*
 * bench_allreduce.c -- `tandem benchmark --mode allreduce`: sums over ranks, as in training
 *
 *     {"ranks": 2, "sums": [{"bytes": 1048576, "ms": {...}, "gb_per_s": ...}, ...]}
 *
 * A rank's time begins when its numbers are ready and ends when it has read the sum.  gb_per_s is
 * bytes / median * 2 (W - 1) / W: the least that each rank must send and receive.
 */
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/signals.h"
#include "base/stats.h"
#include "benchmark/benchmark.h"
#include "comm/join.h"
#include "comm/reduction.h"

/* The last is the size of ResNet-50's gradients, which training sends in parts of 8 MiB. */
static const int64_t sizes[] = { 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 102228128 };

enum { N_SIZES = sizeof sizes / sizeof *sizes };

static td_status time_one(td_comm *c, const td_benchmark_opts *o, int64_t bytes, double *seconds,
                          bool *is_shared)
{
    td_reduction *r;
    const int64_t n = bytes / (int64_t)sizeof(float);
    const float *sum;
    td_status st = TD_OK;
    TD_TRY(td_reduction_new(c, 1, &n, false, &r));
    *is_shared = td_reduction_is_shared(r);
    for (int64_t i = 0; i < n; i++)
        td_reduction_own(r, 0)[i] = 1;
    for (int i = -o->warmup; i < o->iters; i++) {
        int64_t together = 0;
        TD_OUT(td_comm_sum_i64(c, &together, 1)); /* all ranks start together */
        const int64_t begin_ns = td_now_ns();
        td_reduction_begin(r, 0);
        TD_OUT(td_reduction_wait(r, 0, &sum));
        if (i >= 0)
            seconds[i] = (double)(td_now_ns() - begin_ns) * 1e-9;
        if (sum[0] != (float)td_comm_size(c) || sum[n - 1] != sum[0])
            TD_OUT(td_error(TD_EDEVICE, "the sum over %d ranks of ones is %g", td_comm_size(c),
                            (double)sum[0]));
    }
out:
    td_reduction_free(r);
    return st;
}

static void add_row(int64_t bytes, int ranks, double *seconds, int n, td_text *out)
{
    const double median = td_median(seconds, n);
    td_text_add(out, "{");
    td_json_add(out, "bytes", (double)bytes);
    td_text_add(out, ", \"ms\": {\"median\": %.4f, \"min\": %.4f, \"max\": %.4f}", median * 1e3,
                td_quantile(seconds, n, 0) * 1e3, td_quantile(seconds, n, 1) * 1e3);
    td_json_add(out, "gb_per_s",
                median > 0 ? (double)bytes * 2 * (ranks - 1) / ranks / median * 1e-9 : 0);
    td_text_add(out, "}");
}

static td_status measure(td_comm *c, const td_benchmark_opts *o, td_text *out)
{
    bool is_shared;
    td_text rows = { 0 };
    td_status st = TD_OK;
    double *seconds = td_alloc((size_t)o->iters + 1, sizeof *seconds);
    TD_OUT(seconds ? TD_OK : TD_ENOMEM);
    for (int i = 0; i < N_SIZES; i++) {
        TD_OUT(time_one(c, o, sizes[i], seconds, &is_shared));
        td_text_add(&rows, i ? ", " : "");
        add_row(sizes[i], td_comm_size(c), seconds, o->iters, &rows);
        if (td_signal_caught())
            TD_OUT(td_error(TD_ESTOPPED, "interrupted by a signal"));
    }
    TD_OUT(td_text_status(&rows));
    if (td_comm_rank(c) == 0)
        td_text_add(out,
                    "{\"mode\": \"allreduce\", \"ranks\": %d, \"local_ranks\": %d, "
                    "\"shared_memory\": %s, \"iters\": %d, \"sums\": [%s]}",
                    td_comm_size(c), td_comm_local_size(c), is_shared ? "true" : "false", o->iters,
                    td_text_get(&rows));
    else
        td_text_add(out, "%s", "");
    st = td_text_status(out);
out:
    td_text_release(&rows);
    td_free(seconds);
    return st;
}

td_status td_benchmark_allreduce(const td_benchmark_opts *o, td_text *out)
{
    td_comm *c;
    TD_TRY(td_join(
        "benchmark",
        &(td_join_opts){ .log = o->log, .threads = o->device.threads, .allreduce = o->allreduce },
        &c));
    td_status st = measure(c, o, out);
    td_leave(c, st);
    return st;
}
