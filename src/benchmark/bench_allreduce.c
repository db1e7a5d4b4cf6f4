/*
 * bench_allreduce.c -- `tandem benchmark --mode allreduce`: sums over ranks, as in training
 *
 *     {"ranks": 2, "sums": [{"bytes": 1048576, "ms": {...}, "gb_per_s": ...}, ...]}
 *
 * With --device cuda the GPUs add, by NCCL.  A rank's time begins when its numbers are ready and
 * ends when it has the sum.  gb_per_s is
 * bytes / median * 2 (W - 1) / W: the least that each rank must send and receive.
 */
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/signals.h"
#include "base/stats.h"
#include "benchmark/benchmark.h"
#include "comm/join.h"

/* The last is the size of ResNet-50's gradients, which training sends in parts of 8 MiB. */
static const int64_t sizes[] = { 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 102228128 };

enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct {
    const td_benchmark_opts *o;
    td_comm *comm;
    td_device *dev;
    double *seconds; /* [iters] */
    bool is_shared;
} bench;

static td_status time_one(bench *b, int64_t bytes)
{
    td_rank_sum *s;
    td_status st = TD_OK;
    TD_TRY(td_rank_sum_new(b->comm, b->dev, bytes / (int64_t)sizeof(float), &s));
    b->is_shared = td_rank_sum_is_shared(s);
    for (int i = -b->o->warmup; i < b->o->iters; i++) {
        int64_t together = 0;
        TD_OUT(td_rank_sum_fill(s));
        TD_OUT(td_comm_sum_i64(b->comm, &together, 1)); /* all ranks start together */
        const int64_t begin_ns = td_now_ns();
        TD_OUT(td_rank_sum_run(s));
        TD_OUT(td_rank_sum_finish(s));
        if (i >= 0)
            b->seconds[i] = (double)(td_now_ns() - begin_ns) * 1e-9;
        TD_OUT(td_rank_sum_check(s));
    }
out:
    td_rank_sum_free(s);
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

static void add_result(const bench *b, const char *rows, td_text *out)
{
    td_text_add(out,
                "{\"mode\": \"allreduce\", \"ranks\": %d, \"local_ranks\": %d, "
                "\"shared_memory\": %s, \"iters\": %d",
                td_comm_size(b->comm), td_comm_local_size(b->comm), b->is_shared ? "true" : "false",
                b->o->iters);
    td_rank_sums_describe(b->dev, out);
    td_text_add(out, ", \"sums\": [%s]}", rows);
}

static td_status measure(bench *b, td_text *out)
{
    td_text rows = { 0 };
    td_status st = TD_OK;
    TD_OUT(TD_ALLOC(b->seconds, (size_t)b->o->iters + 1));
    for (int i = 0; i < N_SIZES; i++) {
        TD_OUT(time_one(b, sizes[i]));
        td_text_add(&rows, i ? ", " : "");
        add_row(sizes[i], td_comm_size(b->comm), b->seconds, b->o->iters, &rows);
        if (td_signal_caught())
            TD_OUT(td_error(TD_ESTOPPED, "interrupted by a signal"));
    }
    TD_OUT(td_text_status(&rows));
    if (td_comm_rank(b->comm) == 0)
        add_result(b, td_text_get(&rows), out);
    else
        td_text_add(out, "%s", ""); /* only rank 0 prints */
    st = td_text_status(out);
out:
    td_text_release(&rows);
    td_free(b->seconds);
    return st;
}

static td_status open_device(bench *b)
{
    TD_TRY(td_device_open(b->o->device.name, &b->dev));
    return td_rank_sums_join("allreduce", b->dev, b->comm);
}

td_status td_benchmark_allreduce(const td_benchmark_opts *o, td_text *out)
{
    bench b = { .o = o };
    const td_join_opts join = {
        .log = o->log, .threads = o->device.threads, .allreduce = o->allreduce, .has_device = true
    };
    TD_TRY(td_join("benchmark", &join, &b.comm));
    td_status st = open_device(&b);
    if (st == TD_OK)
        st = measure(&b, out);
    td_device_leave(b.dev, st);
    td_device_close(b.dev);
    td_leave(b.comm, st);
    return st;
}
