/*
 * rank_sums.c -- sums over ranks, to be timed: in the host's memory, or between the ranks' GPUs
 *
 * Both are those of training.  GPUs add in place, so each sum needs its numbers again.
 */
#include <math.h>

#include "base/arena.h"
#include "base/half.h"
#include "benchmark/benchmark.h"
#include "comm/reduction.h"
#include "device/gpu_ranks.h"

struct td_rank_sum {
    td_comm *comm;
    int64_t n;          /* numbers */
    td_reduction *host; /* either ... */
    const float *sum;   /* of the host, after a sum */
    td_gpu_sums *gpus;  /* ... or */
    void *ones;         /* [n] of the type that GPUs send, on the host */
};

td_status td_rank_sums_join(const char *mode, td_device *dev, td_comm *c)
{
    if (dev->memory == &td_gpu_memory && !c)
        return td_error(TD_EUSAGE,
                        "--mode %s --device cuda requires several ranks with a GPU each: start "
                        "them with 'tandem launch --nproc N'",
                        mode);
    dev->needs_group = true;
    TD_TRY_MSG(td_device_join(dev, c), "--mode %s --device %s", mode, dev->name);
    return TD_OK;
}

static td_status make_ones(td_rank_sum *s)
{
    const td_dtype dtype = td_gpu_sums_dtype(s->gpus);
    const size_t n = (size_t)s->n;
    const uint16_t half = dtype == TD_DT_F16 ? td_f32_to_f16(1) : td_f32_to_bf16(1);
    TD_TRY(td_alloc_to(&s->ones, n, td_dtype_bytes(dtype)));
    for (size_t i = 0; i < n; i++)
        if (dtype == TD_DT_F32)
            ((float *)s->ones)[i] = 1;
        else
            ((uint16_t *)s->ones)[i] = half;
    return TD_OK;
}

td_status td_rank_sum_new(td_comm *c, const td_device *dev, int64_t n, td_rank_sum **out)
{
    *out = NULL;
    td_rank_sum *s = TD_NEW(td_rank_sum);
    if (!s)
        return TD_ENOMEM;
    s->comm = c;
    s->n = n;
    td_status st = dev->adds_over_ranks ? td_gpu_sums_new(c, 1, &n, false, &s->gpus)
                                        : td_reduction_new(c, 1, &n, false, &s->host);
    if (st == TD_OK && s->gpus)
        st = make_ones(s);
    if (st == TD_OK)
        *out = s;
    else
        td_rank_sum_free(s);
    return st;
}

void td_rank_sum_free(td_rank_sum *s)
{
    if (!s)
        return;
    td_reduction_free(s->host);
    td_gpu_sums_free(s->gpus);
    td_free(s->ones);
    td_free(s);
}

bool td_rank_sum_is_shared(const td_rank_sum *s)
{
    return s->host && td_reduction_is_shared(s->host);
}

td_status td_rank_sum_fill(td_rank_sum *s)
{
    if (s->gpus)
        return td_gpu_memory.copy_in(td_gpu_sums_part(s->gpus, 0, 0), s->ones,
                                     (size_t)s->n * td_dtype_bytes(td_gpu_sums_dtype(s->gpus)));
    for (int64_t i = 0; i < s->n; i++)
        td_reduction_own(s->host, 0)[i] = 1;
    return TD_OK;
}

td_status td_rank_sum_run(td_rank_sum *s)
{
    if (!s->gpus) {
        td_reduction_begin(s->host, 0);
        return td_reduction_wait(s->host, 0, &s->sum);
    }
    TD_TRY(td_gpu_sums_begin(s->gpus, 0));
    return td_gpu_sums_wait(s->gpus, 0);
}

td_status td_rank_sum_finish(td_rank_sum *s)
{
    return s->gpus ? td_gpu_memory.sync() : TD_OK;
}

static td_status read_number(const td_rank_sum *s, int64_t i, double *out)
{
    float whole;
    uint16_t half;
    if (!s->gpus) {
        *out = (double)s->sum[i];
        return TD_OK;
    }
    const td_dtype dtype = td_gpu_sums_dtype(s->gpus);
    const void *from = td_gpu_sums_part(s->gpus, 0, i);
    if (dtype == TD_DT_F32) {
        TD_TRY(td_gpu_memory.copy_out(&whole, from, sizeof whole));
    } else {
        TD_TRY(td_gpu_memory.copy_out(&half, from, sizeof half));
        whole = dtype == TD_DT_F16 ? td_f16_to_f32(half) : td_bf16_to_f32(half);
    }
    *out = (double)whole;
    return TD_OK;
}

td_status td_rank_sum_check(const td_rank_sum *s)
{
    const double wanted = td_comm_size(s->comm);
    const bool is_half = s->gpus && td_gpu_sums_dtype(s->gpus) != TD_DT_F32;
    const int64_t at[2] = { 0, s->n - 1 };
    for (int i = 0; i < 2; i++) {
        double found;
        TD_TRY(read_number(s, at[i], &found));
        if (!(fabs(found - wanted) <= (is_half ? wanted / 64 : 0)))
            return td_error(TD_EDEVICE, "the sum over %d ranks of ones is %g", (int)wanted, found);
    }
    return TD_OK;
}

void td_rank_sums_describe(const td_device *dev, td_text *out)
{
    if (!dev->adds_over_ranks)
        return;
    td_json_add_text(out, "device", dev->name);
    td_json_add_text(out, "summed_by", "nccl");
}
