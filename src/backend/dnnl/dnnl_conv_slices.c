/*
 * dnnl_conv_slices.c -- convolutions and their gradients by pictures, a slice for each thread
 *
 *     x  [ pictures of thread 0 | pictures of thread 1 | ... ]
 *          a primitive made for one thread each; they wait for each other only at the end
 *
 * oneDNN shares a convolution out among its threads itself, by whatever it finds best.  This way
 * each core streams through pictures of its own and is disturbed by no other; which is faster
 * depends on the shape, so these stand behind the library's own and are had by measuring.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "tandem/program.h"

typedef struct {
    td_prepared call;
    int64_t first; /* picture */
    size_t scratch_at;
} slice;

typedef struct {
    int n;
    slice part[];
} slices;

/* operand i of n goes by pictures; the others are filters, biases, shapes */
static bool is_pictures(const td_node *n, int i)
{
    return i == 0 || (i == 3 && n->op == &td_op_conv2d_fused);
}

static int64_t picture_bytes(const td_type *t)
{
    return td_type_bytes(t) / t->dim[0];
}

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const int threads = td_threads();
    if (threads < 2 || x->dim[0] < threads)
        return td_error(TD_ENOKERNEL, "%lld pictures for %d threads", (long long)x->dim[0],
                        threads);
    if (!td_dnnl_is_cut_by_picture(x) || !td_dnnl_is_cut_by_picture(y))
        return td_error(TD_ENOKERNEL, "a picture's values do not lie together");
    return td_dnnl_conv_accepts(n, td_dnnl_share(x->dim[0], threads, threads - 1));
}

static void release(td_prepared *p)
{
    slices *s = p->state;
    for (int k = 0; s && k < s->n; k++)
        td_dnnl_release(&s->part[k].call);
    td_free(s);
    p->state = NULL;
}

static td_status prepare_slices(const td_node *n, slices *s, size_t *scratch_bytes)
{
    const int64_t batch = td_in_type(n, 0)->dim[0];
    int64_t done = 0;
    *scratch_bytes = 0;
    for (int k = 0; k < s->n; k++) {
        slice *p = &s->part[k];
        const int64_t pictures = td_dnnl_share(batch, s->n, k);
        TD_TRY(td_dnnl_conv_prepare(n, pictures, &p->call));
        p->first = done;
        p->scratch_at = *scratch_bytes;
        *scratch_bytes += td_round_up(p->call.scratch_bytes, TD_HOST_ALIGN);
        done += pictures;
    }
    return TD_OK;
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const int threads = td_threads();
    slices *s = td_alloc(1, sizeof *s + (size_t)threads * sizeof s->part[0]);
    if (!s)
        return TD_ENOMEM;
    s->n = threads;
    out->state = s;
    td_set_threads(1); /* what a primitive is made for */
    td_status st = prepare_slices(n, s, &out->scratch_bytes);
    td_set_threads(threads);
    if (st == TD_OK)
        snprintf(out->impl, sizeof out->impl, "%d x %.40s", threads, s->part[0].call.impl);
    else
        release(out);
    return st;
}

static td_status run_slice(const td_node *n, const slice *p, int64_t pictures, void *const *args)
{
    void *own[TD_IN_MAX + 2];
    char *y = (char *)args[n->n_in] + p->first * picture_bytes(&n->out[0]->type);
    for (int i = 0; i < n->n_in; i++)
        own[i] = is_pictures(n, i) ? (char *)args[i] + p->first * picture_bytes(td_in_type(n, i))
                                   : args[i];
    own[n->n_in] = y;
    own[n->n_in + 1] = (char *)args[n->n_in + 1] + p->scratch_at;
    if (n->op == &td_op_conv2d_fused && n->n_in > 3 && own[3] != y) /* see dnnl_conv.c */
        memcpy(y, own[3], (size_t)(pictures * picture_bytes(&n->out[0]->type)));
    return td_dnnl_run(&p->call, own);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const slices *s = p->state;
    const int64_t batch = td_in_type(p->node, 0)->dim[0];
    atomic_int failed = TD_OK;
#pragma omp parallel for num_threads(s->n) schedule(static, 1)
    for (int k = 0; k < s->n; k++) {
        const td_status st = run_slice(p->node, &s->part[k], td_dnnl_share(batch, s->n, k), args);
        if (st != TD_OK)
            atomic_store(&failed, (int)st);
    }
    if (failed != TD_OK)
        return td_error((td_status)failed, "oneDNN could not run a slice of a convolution");
    return TD_OK;
}

#define SLICES(name_, op_)                                                                         \
    const td_kernel td_dnnl_##name_ = {                                                            \
        .name = "dnnl_" #name_,                                                                    \
        .op = &td_op_##op_,                                                                        \
        .accepts = accepts,                                                                        \
        .prepare = prepare,                                                                        \
        .run = run,                                                                                \
        .release = release,                                                                        \
    }

SLICES(conv_slices, conv2d);
SLICES(conv_fused_slices, conv2d_fused);
SLICES(conv_grad_x_slices, conv2d_grad_x);
