/*
 * dnnl_attention.c -- attention, a head of an image at a time
 *
 *     scores [T, T] = q k^T       float32, scaled
 *     shares [T, T] = softmax     in x's dtype; float32 in place
 *     y             = shares v
 *
 * Heads are divided among the threads, each with its own single-threaded primitives, scores and
 * copies of q, k, v and y, which stay in its cache: oneDNN's faster kernels want dense matrices,
 * and a head's rows lie far apart in x.
 */
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/dnnl/dnnl_common.h"
#include "base/arena.h"
#include "ops/ops.h"
#include "tandem/program.h"

/* arguments of the three primitives; oneDNN's scratch is where td_dnnl_prepare wants it */
enum { Q, K, SCRATCH, V, SCORES, SHARES, Y, N_ARGS };

enum { N_PARTS = 4 }; /* q, k, v, y */

typedef struct {
    dnnl_primitive_desc_t scores, softmax, sum;
} descriptions;

/* the primitives of one thread */
typedef struct {
    td_prepared scores, softmax, sum;
} worker;

typedef struct {
    td_attention_sizes sizes;
    size_t each;                  /* bytes of an element of x */
    size_t part_bytes;            /* bytes of a copy of q, k, v or y */
    size_t shares_at, scratch_at; /* in a thread's scratch, after the copies and the scores */
    size_t bytes;                 /* bytes of a thread's scratch */
    int threads;
    worker workers[];
} state;

/* --- descriptions ----------------------------------------------------------------------------- */

/* a dense matrix, or, transposed, the same memory as [columns, rows] */
static td_status describe(td_dtype d, int64_t rows, int64_t columns, bool is_transposed,
                          dnnl_memory_desc_t *out)
{
    const td_type t = td_type_2d(d, rows, columns);
    return is_transposed ? td_dnnl_md_transposed(&t, false, out) : td_dnnl_md(&t, 1, false, out);
}

typedef struct {
    dnnl_memory_desc_t q, k, v, scores, shares, y;
    dnnl_primitive_attr_t plain, scaled;
} parts;

static void parts_release(parts *p)
{
    dnnl_memory_desc_t *const all[] = { &p->q, &p->k, &p->v, &p->scores, &p->shares, &p->y };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        dnnl_memory_desc_destroy(*all[i]);
    dnnl_primitive_attr_destroy(p->plain);
    dnnl_primitive_attr_destroy(p->scaled);
}

static td_status add_scale(dnnl_primitive_attr_t attr, double scale)
{
    dnnl_post_ops_t ops;
    DNNL_TRY(dnnl_post_ops_create(&ops));
    dnnl_status_t ds = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, (float)scale, 0);
    if (ds == dnnl_success)
        ds = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    DNNL_TRY(ds);
    return TD_OK;
}

static td_status parts_make(const td_node *n, parts *p)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    const td_dtype d = td_in_type(n, 0)->dtype;
    TD_TRY(describe(d, s.T, s.D, false, &p->q));
    TD_TRY(describe(d, s.T, s.D, true, &p->k));
    TD_TRY(describe(d, s.T, s.D, false, &p->v));
    TD_TRY(describe(TD_DT_F32, s.T, s.T, false, &p->scores));
    TD_TRY(describe(d, s.T, s.T, false, &p->shares));
    TD_TRY(describe(d, s.T, s.D, false, &p->y));
    TD_TRY(td_dnnl_attr(&p->plain));
    TD_TRY(td_dnnl_attr(&p->scaled));
    return add_scale(p->scaled, ((const td_attention_attr *)n->attr)->scale);
}

static void descriptions_release(descriptions *d)
{
    dnnl_primitive_desc_destroy(d->scores);
    dnnl_primitive_desc_destroy(d->softmax);
    dnnl_primitive_desc_destroy(d->sum);
}

static td_status create(const parts *p, descriptions *d)
{
    dnnl_engine_t engine = NULL;
    TD_TRY(td_dnnl_engine(&engine, NULL));
    TD_TRY(td_dnnl_check_primitive(dnnl_matmul_primitive_desc_create(&d->scores, engine, p->q, p->k,
                                                                     NULL, p->scores, p->scaled),
                                   &d->scores));
    TD_TRY(td_dnnl_check_primitive(dnnl_softmax_forward_primitive_desc_create(
                                       &d->softmax, engine, dnnl_forward_inference,
                                       dnnl_softmax_accurate, p->scores, p->shares, 1, p->plain),
                                   &d->softmax));
    return td_dnnl_check_primitive(
        dnnl_matmul_primitive_desc_create(&d->sum, engine, p->shares, p->v, NULL, p->y, p->plain),
        &d->sum);
}

static td_status make(const td_node *n, descriptions *d)
{
    parts p = { 0 };
    *d = (descriptions){ 0 };
    td_status st = td_type_is_plain(td_in_type(n, 0))
                       ? parts_make(n, &p)
                       : td_error(TD_ENOKERNEL, "the operand is not in plain order");
    if (st == TD_OK)
        st = create(&p, d);
    parts_release(&p);
    if (st != TD_OK)
        descriptions_release(d);
    return st;
}

static td_status accepts(const td_node *n)
{
    descriptions d;
    TD_TRY(make(n, &d));
    descriptions_release(&d);
    return TD_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

static void release(td_prepared *p)
{
    state *s = p->state;
    for (int i = 0; s && i < s->threads; i++) {
        td_dnnl_release(&s->workers[i].scores);
        td_dnnl_release(&s->workers[i].softmax);
        td_dnnl_release(&s->workers[i].sum);
    }
    td_free(s);
    p->state = NULL;
}

/* td_dnnl_prepare takes its description; those after a failure are released */
static td_status prepare_worker(const td_node *n, worker *w)
{
    static const td_dnnl_bind scores[] = { { DNNL_ARG_SRC, dnnl_query_src_md, 0, Q },
                                           { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, K },
                                           { DNNL_ARG_DST, dnnl_query_dst_md, 0, SCORES } };
    static const td_dnnl_bind softmax[] = { { DNNL_ARG_SRC, dnnl_query_src_md, 0, SCORES },
                                            { DNNL_ARG_DST, dnnl_query_dst_md, 0, SHARES } };
    static const td_dnnl_bind sum[] = { { DNNL_ARG_SRC, dnnl_query_src_md, 0, SHARES },
                                        { DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, V },
                                        { DNNL_ARG_DST, dnnl_query_dst_md, 0, Y } };
    descriptions d;
    TD_TRY(make(n, &d));
    td_status st = td_dnnl_prepare(d.scores, n, 3, scores, &w->scores);
    d.scores = NULL;
    if (st == TD_OK) {
        st = td_dnnl_prepare(d.softmax, n, 2, softmax, &w->softmax);
        d.softmax = NULL;
    }
    if (st == TD_OK) {
        st = td_dnnl_prepare(d.sum, n, 3, sum, &w->sum);
        d.sum = NULL;
    }
    descriptions_release(&d);
    return st;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void place_scratch(td_dtype dtype, state *s)
{
    const worker *w = &s->workers[0];
    const size_t count = (size_t)(s->sizes.T * s->sizes.T);
    const size_t scores = td_round_up(count * sizeof(float), TD_HOST_ALIGN);
    const size_t shares = td_round_up(count * s->each, TD_HOST_ALIGN);
    s->part_bytes = td_round_up((size_t)(s->sizes.T * s->sizes.D) * s->each, TD_HOST_ALIGN);
    s->shares_at = N_PARTS * s->part_bytes + (dtype == TD_DT_F32 ? 0 : scores);
    s->scratch_at = s->shares_at + shares;
    s->bytes =
        larger(larger(w->scores.scratch_bytes, w->softmax.scratch_bytes), w->sum.scratch_bytes);
    s->bytes = td_round_up(s->scratch_at + s->bytes, TD_HOST_ALIGN);
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    const int threads = td_threads();
    const td_dtype dtype = td_in_type(n, 0)->dtype;
    state *s = td_alloc(1, sizeof *s + (size_t)threads * sizeof s->workers[0]);
    if (!s)
        return TD_ENOMEM;
    out->state = s;
    s->threads = threads;
    s->sizes = td_attention_sizes_of(n);
    s->each = td_dtype_bytes(dtype);
    td_status st = TD_OK;
    td_set_threads(1); /* create single-threaded primitives */
    for (int i = 0; i < threads && st == TD_OK; i++)
        st = prepare_worker(n, &s->workers[i]);
    td_set_threads(threads);
    if (st != TD_OK) {
        release(out);
        return st;
    }
    place_scratch(dtype, s);
    out->scratch_bytes = (size_t)threads * s->bytes;
    memcpy(out->impl, s->workers[0].scores.impl, sizeof out->impl);
    return TD_OK;
}

/* `rows` rows of `bytes`, `from_step` and `to_step` apart */
static void copy_rows(int64_t rows, size_t bytes, const char *from, size_t from_step, char *to,
                      size_t to_step)
{
    for (int64_t i = 0; i < rows; i++, from += from_step, to += to_step)
        memcpy(to, from, bytes);
}

/* head i of all images' heads, in order */
static td_status run_head(const state *s, const worker *w, int64_t i, void *const *args,
                          char *scratch)
{
    const td_attention_sizes z = s->sizes;
    const size_t row = (size_t)z.D * s->each, token = (size_t)z.E * s->each;
    const size_t at = (size_t)(i / z.heads * z.T) * token, head = (size_t)(i % z.heads) * row;
    const char *q = (const char *)args[0] + 3 * at + head;
    char *part[N_PARTS];
    for (int k = 0; k < N_PARTS; k++)
        part[k] = scratch + (size_t)k * s->part_bytes;
    for (int k = 0; k < 3; k++)
        copy_rows(z.T, row, q + (size_t)k * token, 3 * token, part[k], row);
    void *of[N_ARGS] = { [Q] = part[0],
                         [K] = part[1],
                         [V] = part[2],
                         [SCRATCH] = scratch + s->scratch_at,
                         [SCORES] = scratch + N_PARTS * s->part_bytes,
                         [SHARES] = scratch + s->shares_at,
                         [Y] = part[3] };
    TD_TRY(td_dnnl_run(&w->scores, of));
    TD_TRY(td_dnnl_run(&w->softmax, of));
    TD_TRY(td_dnnl_run(&w->sum, of));
    copy_rows(z.T, row, part[3], row, (char *)args[1] + at + head, token);
    return TD_OK;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const state *s = p->state;
    atomic_int failed = TD_OK;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t i = 0; i < s->sizes.N * s->sizes.heads; i++) {
        const int t = omp_get_thread_num();
        char *scratch = (char *)args[2] + s->bytes * (size_t)t;
        const td_status st = run_head(s, &s->workers[t], i, args, scratch);
        if (st != TD_OK)
            atomic_store(&failed, (int)st);
    }
    if (failed != TD_OK)
        return td_error((td_status)failed, "oneDNN could not run a head of an attention");
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    return td_work_share_of(s.N * s.heads, (double)(s.T * s.D), threads);
}

const td_kernel td_dnnl_attention = {
    .name = "dnnl_attention",
    .op = &td_op_attention,
    .accepts = accepts,
    .prepare = prepare,
    .run = run,
    .release = release,
    .share = share,
};
