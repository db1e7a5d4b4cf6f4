/*
 * attention.c -- inference: one op for the attention of vision transformers
 *
 *     x [N T, 3 E] -> reshape [N, T, 3, H, D] -> transpose 2:0:3:1:4 -> slices q, k, v [N, H, T, D]
 *     matmul(softmax(matmul(scale q, k^T)), v) -> transpose 0:2:1:3 -> reshape
 *
 *         attention(x) {heads=H, scale}, between reshapes
 *
 * Every value between has one reader, so gradients, which read them, leave training as it is.
 */
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct {
    const td_value *x;    /* what is split */
    const td_type *split; /* [N, T, 3, H, D] */
    td_attention_attr attr;
} found;

/* [3, N, H, T, D] of which v is part i, or NULL */
static const td_value *whole_of(const td_uses *u, const td_value *v, int i)
{
    const td_node *reshape = td_uses_producer(u, v, &td_op_reshape);
    const td_node *slice = reshape ? td_uses_producer(u, reshape->in[0], &td_op_slice) : NULL;
    if (!slice || td_in_type(slice, 0)->rank != 5 || v->type.rank != 4)
        return NULL;
    const td_slice_attr *a = slice->attr;
    const td_type *all = td_in_type(slice, 0);
    for (int d = 0; d < 4; d++)
        if (v->type.dim[d] != all->dim[d + 1])
            return NULL;
    return a->axis == 0 && a->start == i && a->size == 1 && a->step == 1 && all->dim[0] == 3
               ? slice->in[0]
               : NULL;
}

/* softmax(scale q k^T) v, of which `sum` is the last product */
static bool match_products(const td_uses *u, const td_node *sum, const td_value **whole, found *f)
{
    const td_node *softmax = td_uses_producer(u, sum->in[0], &td_op_softmax);
    const td_node *scores = softmax ? td_uses_producer(u, softmax->in[0], &td_op_matmul) : NULL;
    const td_matmul_attr plain = { 0 }, transposed = { .transpose_b = true };
    if (!scores || sum->n_in != 2 || scores->n_in != 2 ||
        memcmp(sum->attr, &plain, sizeof plain) != 0 ||
        memcmp(scores->attr, &transposed, sizeof transposed) != 0)
        return false;
    const td_node *scale = td_uses_producer(u, scores->in[0], &td_op_scale);
    f->attr.scale = scale ? ((const td_scale_attr *)scale->attr)->by : 1;
    *whole = whole_of(u, scale ? scale->in[0] : scores->in[0], 0);
    return *whole && whole_of(u, scores->in[1], 1) == *whole &&
           whole_of(u, sum->in[1], 2) == *whole;
}

static int readers(const td_uses *u, const td_value *v)
{
    int n;
    td_uses_of(u, v, &n);
    return n;
}

/* does reshape `n` end an attention? */
static bool match(const td_uses *u, const td_node *n, found *f)
{
    const td_value *whole;
    if (n->op != &td_op_reshape)
        return false;
    const td_node *joined = td_uses_producer(u, n->in[0], &td_op_transpose);
    const td_node *sum = joined && td_transpose_is(joined, "0:2:1:3")
                             ? td_uses_producer(u, joined->in[0], &td_op_matmul)
                             : NULL;
    if (!sum || !match_products(u, sum, &whole, f) || readers(u, whole) != 3)
        return false;
    const td_node *turn = whole->producer;
    const td_node *split = td_transpose_is(turn, "2:0:3:1:4")
                               ? td_uses_producer(u, turn->in[0], &td_op_reshape)
                               : NULL;
    if (!split)
        return false;
    f->x = split->in[0];
    f->split = &split->out[0]->type;
    f->attr.heads = (int)f->split->dim[3];
    return true;
}

static void type_of(const found *f, td_type *x, td_type *y)
{
    const int64_t *d = f->split->dim, E = d[3] * d[4];
    *x = td_type_of(f->split->dtype, 3, (int64_t[]){ d[0], d[1], 3 * E });
    *y = td_type_of(f->split->dtype, 3, (int64_t[]){ d[0], d[1], E });
}

static bool has_kernel(const td_rewriter *rw, const td_node *reshape, found *f)
{
    td_probe p;
    td_probe_init(&p, reshape);
    p.node.op = &td_op_attention;
    p.node.attr = &f->attr;
    type_of(f, &p.value[0].type, &p.value[1].type);
    return td_probe_has_kernel(&p, rw->target);
}

static void emit(td_rewriter *rw, const td_node *reshape, const found *f)
{
    td_type x, y;
    type_of(f, &x, &y);
    td_value *rows = td_reshape(rw->b, td_rw_get(rw, f->x), 3, x.dim);
    td_value *means = td_emit(rw->b, &td_op_attention, &f->attr, rows);
    td_rw_set(rw, reshape->out[0], td_emit(rw->b, &td_op_reshape, reshape->attr, means));
    rw->n_changed++;
}

static void attention_run(td_rewriter *rw)
{
    td_uses u;
    found f;
    td_status st = td_uses_init(&u, rw->old);
    if (st != TD_OK)
        td_build_fail(rw->b, st);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        if (match(&u, n, &f) && has_kernel(rw, n, &f))
            emit(rw, n, &f);
        else
            td_rw_copy(rw, n);
    }
    td_uses_release(&u);
}

const td_pass td_pass_attention = {
    .name = "attention",
    .summary = "products and softmax of attention as one op, for inference",
    .counts = "attentions",
    .run = attention_run,
};
