/*
 * dnnl_conv_parts.c -- a filter's gradient in half, the batch shared out among the threads
 *
 * oneDNN's bf16 weight gradients of filters larger than 1 x 1 wait for each other inside the
 * kernel, spinning, many times in a call.  With a core taken away from one of the threads, which
 * any other program does, such a call takes 10 to 200 times as long.  Here each thread runs a
 * primitive made for one thread over its own pictures, into a gradient of its own, and the
 * gradients are added up; nothing waits but at the end.  On an idle machine it is as fast.
 *
 * The sum depends on the number of parts, which is the number of threads at prepare.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "tandem/program.h"

enum { DY, X, SHAPE, DW, SCRATCH }; /* the kernel's arguments */

/* the gradients apart from the first thread's: no more than this */
#define EXTRA_BYTES_MAX ((int64_t)64 << 20)

typedef struct {
    td_prepared call;
    int64_t dy_at, x_at;      /* bytes from the operands' beginning */
    size_t dw_at, scratch_at; /* bytes into the scratch; the first part writes the result */
} batch_part;

typedef struct {
    int n;
    batch_part part[];
} parts_state;

bool td_dnnl_is_cut_by_picture(const td_type *t)
{
    return td_type_is_plain(t) || t->layout[0] == 'a';
}

int64_t td_dnnl_share(int64_t batch, int n, int k)
{
    return batch * (k + 1) / n - batch * k / n;
}

static td_status accepts(const td_node *n)
{
    const td_type *dy = td_in_type(n, DY), *x = td_in_type(n, X), *dw = &n->out[0]->type;
    const int threads = td_threads();
    if (x->dtype != TD_DT_BF16 || dw->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "not bf16 with a float32 gradient");
    if (dw->dim[2] == 1 && dw->dim[3] == 1)
        return td_error(TD_ENOKERNEL, "the filter is 1 x 1");
    if (threads < 2 || x->dim[0] < threads)
        return td_error(TD_ENOKERNEL, "%lld pictures for %d threads", (long long)x->dim[0],
                        threads);
    if (!td_dnnl_is_cut_by_picture(x) || !td_dnnl_is_cut_by_picture(dy))
        return td_error(TD_ENOKERNEL, "a picture's values do not lie together");
    if (td_type_bytes(dw) > EXTRA_BYTES_MAX / (threads - 1))
        return td_error(TD_ENOKERNEL, "%d gradients are too much memory", threads);
    return td_dnnl_conv_accepts(n, td_dnnl_share(x->dim[0], threads, threads - 1));
}

static void release(td_prepared *p)
{
    parts_state *s = p->state;
    for (int k = 0; s && k < s->n; k++)
        td_dnnl_release(&s->part[k].call);
    td_free(s);
    p->state = NULL;
}

static td_status prepare_parts(const td_node *n, parts_state *s, size_t *scratch_bytes)
{
    const td_type *dy = td_in_type(n, DY), *x = td_in_type(n, X);
    const int64_t batch = x->dim[0];
    const size_t dw_bytes = td_round_up((size_t)td_type_bytes(&n->out[0]->type), TD_HOST_ALIGN);
    size_t used = dw_bytes * (size_t)(s->n - 1);
    int64_t done = 0;
    for (int k = 0; k < s->n; k++) {
        batch_part *p = &s->part[k];
        const int64_t pictures = td_dnnl_share(batch, s->n, k);
        TD_TRY(td_dnnl_conv_prepare(n, pictures, &p->call));
        p->dy_at = td_type_bytes(dy) / batch * done;
        p->x_at = td_type_bytes(x) / batch * done;
        p->dw_at = k ? dw_bytes * (size_t)(k - 1) : 0;
        p->scratch_at = used;
        used += td_round_up(p->call.scratch_bytes, TD_HOST_ALIGN);
        done += pictures;
    }
    *scratch_bytes = used;
    return TD_OK;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const int threads = td_threads();
    parts_state *s = td_alloc(1, sizeof *s + (size_t)threads * sizeof s->part[0]);
    if (!s)
        return TD_ENOMEM;
    s->n = threads;
    out->state = s;
    td_set_threads(1); /* what a primitive is made for */
    td_status st = prepare_parts(n, s, &out->scratch_bytes);
    td_set_threads(threads);
    if (st == TD_OK)
        snprintf(out->impl, sizeof out->impl, "%d x %.40s", threads, s->part[0].call.impl);
    else
        release(out);
    return st;
}

static void add_up(int n_parts, int64_t count, float *dw, const float *others, int64_t stride)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < n_parts - 1; k++)
            dw[i] += others[k * stride + i];
}

static td_status run(const td_prepared *p, void *const *args)
{
    const parts_state *s = p->state;
    const td_type *dw = &p->node->out[0]->type;
    char *scratch = args[SCRATCH];
    atomic_int failed = TD_OK;
#pragma omp parallel for num_threads(s->n) schedule(static, 1)
    for (int k = 0; k < s->n; k++) {
        const batch_part *q = &s->part[k];
        void *own[] = { (char *)args[DY] + q->dy_at, (char *)args[X] + q->x_at, args[SHAPE],
                        k ? scratch + q->dw_at : args[DW], scratch + q->scratch_at };
        const td_status st = td_dnnl_run(&q->call, own);
        if (st != TD_OK)
            atomic_store(&failed, (int)st);
    }
    if (failed != TD_OK)
        return td_error((td_status)failed, "oneDNN could not run a part of a filter's gradient");
    add_up(s->n, td_type_padded_count(dw), args[DW], (const float *)scratch,
           (int64_t)(td_round_up((size_t)td_type_bytes(dw), TD_HOST_ALIGN) / sizeof(float)));
    return TD_OK;
}

const td_kernel td_dnnl_conv_grad_w_parts = {
    .name = "dnnl_conv_grad_w_parts",
    .op = &td_op_conv2d_grad_w,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = release,
};
