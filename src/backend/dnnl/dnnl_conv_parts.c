/*
 * dnnl_conv_parts.c -- the filter gradient in half precision, with the batch divided among the
 * threads
 *
 * In oneDNN's bf16 weight gradients of filters larger than 1 x 1, threads wait for each other many
 * times per call, in spin loops.  If another program uses one thread's core, such a call takes 10
 * to 200 times as long.  Here each thread runs a single-threaded primitive over its own images into
 * its own gradient, and the gradients are summed; threads wait only at the end.  On an idle machine
 * both ways are equally fast.
 *
 * The sum's rounding depends on the number of parts, which is the number of threads at prepare.
 */
#include <stdatomic.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "tandem/program.h"

enum { DY, X, SHAPE, DW, SCRATCH }; /* the kernel's arguments */

/* maximum memory for the gradients of all threads but the first */
#define EXTRA_BYTES_MAX ((int64_t)64 << 20)

static td_status accepts(const td_node *n)
{
    const td_type *dy = td_in_type(n, DY), *x = td_in_type(n, X), *dw = &n->out[0]->type;
    const int threads = td_threads();
    if (x->dtype != TD_DT_BF16 || dw->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "not bf16 with a float32 gradient");
    if (dw->dim[2] == 1 && dw->dim[3] == 1)
        return td_error(TD_ENOKERNEL, "the filter is 1 x 1");
    if (threads > 1 && td_type_bytes(dw) > EXTRA_BYTES_MAX / (threads - 1))
        return td_error(TD_ENOKERNEL, "%d gradients are too much memory", threads);
    return td_dnnl_slices_accept(n, x, dy);
}

/* the gradient buffer of a thread; the first thread uses the result */
static size_t gradient_bytes(const td_node *n)
{
    return td_round_up((size_t)td_type_bytes(&n->out[0]->type), TD_HOST_ALIGN);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    return td_dnnl_slices_prepare(n, gradient_bytes(n) * (size_t)(td_threads() - 1), out);
}

static void sum_parts(int n_parts, int64_t count, float *dw, const float *others, int64_t stride)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < n_parts - 1; k++)
            dw[i] += others[k * stride + i];
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_dnnl_slices *s = p->state;
    const td_type *dw = &n->out[0]->type;
    const int64_t dy_bytes = td_dnnl_image_bytes(td_in_type(n, DY));
    const int64_t x_bytes = td_dnnl_image_bytes(td_in_type(n, X));
    const size_t dw_bytes = gradient_bytes(n);
    char *scratch = args[SCRATCH];
    atomic_int failed = TD_OK;
#pragma omp parallel for num_threads(s->n) schedule(static, 1)
    for (int k = 0; k < s->n; k++) {
        const td_dnnl_slice *q = &s->part[k];
        void *own[] = { (char *)args[DY] + q->first * dy_bytes,
                        (char *)args[X] + q->first * x_bytes, args[SHAPE],
                        k ? scratch + dw_bytes * (size_t)(k - 1) : args[DW],
                        scratch + q->scratch_at };
        const td_status st = td_dnnl_run(&q->call, own);
        if (st != TD_OK)
            atomic_store(&failed, (int)st);
    }
    if (failed != TD_OK)
        return td_error((td_status)failed, "oneDNN could not run a part of a filter's gradient");
    sum_parts(s->n, td_type_padded_count(dw), args[DW], (const float *)scratch,
              (int64_t)(dw_bytes / sizeof(float)));
    return TD_OK;
}

const td_kernel td_dnnl_conv_grad_w_parts = {
    .name = "dnnl_conv_grad_w_parts",
    .op = &td_op_conv2d_grad_w,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = td_dnnl_slices_release,
};
