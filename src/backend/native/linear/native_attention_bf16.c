/*
 * native_attention_bf16.c -- attention in bfloat16 with AVX-512, a head of an image at a time
 *
 * Heads are divided among the threads.  Results have the same bits in any batch and with any
 * number of threads.
 */
#include "backend/native/linear/native_attention_bf16.h"

#include <omp.h>

#include "backend/native/common/native_kernel.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "tandem/program.h"

enum { CHANNELS = 32 }; /* a head's channels are a multiple of it */

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (x->dtype != TD_DT_BF16 || !td_half_head_loops_here())
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(x->dtype));
    TD_TRY(td_native_check_no_amx());
    if (!td_type_is_plain(x))
        return td_error(TD_ENOKERNEL, "the operand is not in plain order");
    if (td_attention_sizes_of(n).D % CHANNELS)
        return td_error(TD_ENOKERNEL, "a head's channels are no multiple of %d", CHANNELS);
    return TD_OK;
}

/* bytes of a thread */
static size_t scratch_of(const td_attention_sizes *s)
{
    return td_round_up(td_half_head_scratch(s->T, s->D), TD_HOST_ALIGN);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    out->scratch_bytes = (size_t)td_threads() * scratch_of(&s);
    return TD_OK;
}

/* head i of all images' heads, in order */
static void run_head(const td_node *n, const td_attention_sizes *s, int64_t i, void *const *args,
                     void *scratch)
{
    const int64_t at = i / s->heads * s->T * s->E, head = i % s->heads * s->D;
    const uint16_t *q = (const uint16_t *)args[0] + 3 * at + head;
    const td_half_head h = { .T = s->T,
                             .D = s->D,
                             .x_row = 3 * s->E,
                             .y_row = s->E,
                             .q = q,
                             .k = q + s->E,
                             .v = q + 2 * s->E,
                             .y = (uint16_t *)args[1] + at + head,
                             .scale = (float)((const td_attention_attr *)n->attr)->scale,
                             .scratch = scratch };
    td_half_head_loops_here()(&h);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_attention_sizes s = td_attention_sizes_of(p->node);
    const size_t each = scratch_of(&s);
#pragma omp parallel for schedule(static) num_threads(td_threads())
    for (int64_t i = 0; i < s.N * s.heads; i++)
        run_head(p->node, &s, i, args, (char *)args[2] + each * (size_t)omp_get_thread_num());
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    return td_work_share_of(s.N * s.heads, (double)(s.T * s.D), threads);
}

const td_kernel td_native_attention_bf16 = { .name = "native_attention_bf16",
                                             .op = &td_op_attention,
                                             .accepts = accepts,
                                             .prepare = prepare,
                                             .run = run,
                                             .share = share };
