/*
 * dnnl_conv_slices.c -- convolutions and their gradients with the batch divided among the threads
 *
 *     x  [ images of thread 0 | images of thread 1 | ... ]
 *          one single-threaded primitive for each slice; threads wait for each other only at the
 *          end
 *
 * oneDNN's own kernels divide a convolution among threads by a heuristic.  Here each core reads
 * only its own images and never waits for another.  Which is faster depends on the shape, so these
 * kernels come after the library's in the list, and autotuning chooses them.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "tandem/program.h"

/* The part of a convolution that one thread computes: some of the batch's images. */
typedef struct {
    td_prepared call;
    int64_t first, n;  /* images */
    size_t scratch_at; /* offset in the kernel's scratch */
} slice;

/* The state of a kernel that divides the batch among threads. */
typedef struct {
    int n;
    slice part[];
} slices;

/* is operand i of n a batch of images?  The others are filters, biases or shapes. */
static bool is_images(const td_node *n, int i)
{
    return i == 0 || (i == 3 && n->op == &td_op_conv2d_fused);
}

int64_t td_dnnl_image_bytes(const td_type *t)
{
    return td_type_bytes(t) / t->dim[0];
}

/* the number of images in part k of n, as even as possible */
static int64_t share_of(int64_t batch, int n, int k)
{
    return batch * (k + 1) / n - batch * k / n;
}

bool td_dnnl_is_cut_by_image(const td_type *t)
{
    return td_type_is_plain(t) || t->layout[0] == 'a';
}

static td_status accepts(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const int threads = td_threads();
    if (threads < 2 || x->dim[0] < threads)
        return td_error(TD_ENOKERNEL, "%lld images for %d threads", (long long)x->dim[0], threads);
    if (!td_dnnl_is_cut_by_image(x) || !td_dnnl_is_cut_by_image(y))
        return td_error(TD_ENOKERNEL, "the values of an image are not contiguous");
    return td_dnnl_conv_accepts_alone(n, share_of(x->dim[0], threads, threads - 1), 0);
}

static void release(td_prepared *p)
{
    slices *s = p->state;
    for (int k = 0; s && k < s->n; k++)
        td_dnnl_release(&s->part[k].call);
    td_free(s);
    p->state = NULL;
}

static td_status prepare_parts(const td_node *n, slices *s, int64_t batch, size_t *scratch_bytes)
{
    int64_t done = 0;
    for (int k = 0; k < s->n; k++) {
        slice *p = &s->part[k];
        p->n = share_of(batch, s->n, k);
        TD_TRY(td_dnnl_conv_prepare(n, p->n, 0, &p->call));
        p->first = done;
        p->scratch_at = *scratch_bytes;
        *scratch_bytes += td_round_up(p->call.scratch_bytes, TD_HOST_ALIGN);
        done += p->n;
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
    out->scratch_bytes = 0;
    td_set_threads(1); /* create single-threaded primitives */
    td_status st = prepare_parts(n, s, td_in_type(n, 0)->dim[0], &out->scratch_bytes);
    td_set_threads(threads);
    if (st == TD_OK)
        snprintf(out->impl, sizeof out->impl, "%d x %.40s", threads, s->part[0].call.impl);
    else
        release(out);
    return st;
}

/* in elements of x */
static td_work_share share(const td_node *n, int threads)
{
    const int64_t images = td_in_type(n, 0)->dim[0];
    return td_work_share_of(images, (double)td_type_count(td_in_type(n, 0)) / (double)images,
                            threads);
}

static td_status run_slice(const td_node *n, const slice *p, void *const *args)
{
    void *own[TD_IN_MAX + 2];
    char *y = (char *)args[n->n_in] + p->first * td_dnnl_image_bytes(&n->out[0]->type);
    for (int i = 0; i < n->n_in; i++)
        own[i] = is_images(n, i)
                     ? (char *)args[i] + p->first * td_dnnl_image_bytes(td_in_type(n, i))
                     : args[i];
    own[n->n_in] = y;
    own[n->n_in + 1] = (char *)args[n->n_in + 1] + p->scratch_at;
    if (n->op == &td_op_conv2d_fused && n->n_in > 3 && own[3] != y) /* see dnnl_conv.c */
        memcpy(y, own[3], (size_t)(p->n * td_dnnl_image_bytes(&n->out[0]->type)));
    return td_dnnl_run(&p->call, own);
}

static td_status run(const td_prepared *p, void *const *args)
{
    const slices *s = p->state;
    atomic_int failed = TD_OK;
#pragma omp parallel for num_threads(s->n) schedule(static, 1)
    for (int k = 0; k < s->n; k++) {
        const td_status st = run_slice(p->node, &s->part[k], args);
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
        .share = share,                                                                            \
    }

SLICES(conv_slices, conv2d);
SLICES(conv_fused_slices, conv2d_fused);
SLICES(conv_grad_x_slices, conv2d_grad_x);
