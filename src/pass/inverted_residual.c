/*
 * inverted_residual.c -- inference: makes one op of the convolutions of an inverted residual block
 *
 *     e = conv2d_fused(x, w1, b1) {act}                  1 x 1
 *     d = conv2d_fused(e, w2, b2) {act, stride, pad}     depthwise
 *     p = conv2d_fused(d, w3, b3)                        1 x 1, no activation
 *     y = add(p, x)
 *         y = inverted_residual(x, w1, b1, w2, b2, w3, b3) {act, stride, pad, residual}
 *
 * Without the addition it ends with p.  Without a projection, as where a squeeze-excite layer comes
 * between, it ends with d; without an expansion, as in a first block, it begins with d.  It applies
 * if nothing else reads what is left out and the device has a kernel for images with channels last;
 * the reference device has none.
 */
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

/* the last of `member` is the root, where the op is emitted */
typedef struct {
    td_value *x;
    const td_node *member[4]; /* [expansion,] depthwise [, projection [, addition]] */
    int n_members, n_convs;
    td_inverted_residual_attr attr;
} block;

/* --- matching --------------------------------------------------------------------------------- */

/* a convolution with a bias and no residual */
static bool is_conv(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    return n->op == &td_op_conv2d_fused && n->n_in == 3 && a->dilation == 1 && !a->tf32;
}

static bool is_1x1(const td_node *n)
{
    if (!is_conv(n))
        return false;
    const td_conv_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    return a->groups == 1 && a->stride == 1 && a->pad == 0 && a->pad_extra == 0 && w->dim[2] == 1 &&
           w->dim[3] == 1;
}

static bool is_depthwise(const td_node *n)
{
    if (!is_conv(n))
        return false;
    const td_type *w = td_in_type(n, 1);
    return w->dim[1] == 1 && w->dim[0] == ((const td_conv_attr *)n->attr)->groups &&
           w->dim[2] == w->dim[3];
}

static int act_of(const td_node *conv)
{
    return td_block_act_of(conv->attr);
}

static const td_node *last_of(const block *b)
{
    return b->member[b->n_members - 1];
}

/* the expansion before d, if nothing else reads its result */
static void match_begin(const td_uses *u, const td_node *d, block *b)
{
    const td_node *e = d->in[0]->producer;
    b->attr.expand = is_1x1(e) && td_uses_only(u, d->in[0]) == d && act_of(e) == act_of(d);
    if (b->attr.expand)
        b->member[b->n_convs++] = e;
    b->x = b->attr.expand ? e->in[0] : d->in[0];
    b->member[b->n_convs++] = d;
}

static void match_projection(const td_uses *u, block *b)
{
    const td_node *d = last_of(b), *p = td_uses_only(u, d->out[0]);
    if (p && is_1x1(p) && p->in[0] == d->out[0] && act_of(p) == TD_BLOCK_LINEAR)
        b->member[b->n_convs++] = p;
}

static void match_addition(const td_uses *u, block *b)
{
    const td_value *y = last_of(b)->out[0];
    const td_node *add = td_uses_only(u, y);
    b->attr.residual = add && add->op == &td_op_add && (add->in[0] == b->x || add->in[1] == b->x) &&
                       td_type_same_shape(&b->x->type, &y->type);
    if (b->attr.residual)
        b->member[b->n_members++] = add;
}

/* may the members be computed at the root? */
static bool is_movable(const td_graph *g, const block *b)
{
    const td_node *root = last_of(b);
    for (int i = 0; i < b->n_members; i++)
        if (td_overwritten_between(g, b->member[i]->id, root->id, b->member[i]))
            return false;
    return true;
}

static bool match(const td_graph *g, const td_uses *u, const td_node *d, block *b)
{
    if (!is_depthwise(d))
        return false;
    const td_conv_attr *a = d->attr;
    *b = (block){
        .attr = { .stride = a->stride, .pad = a->pad, .pad_extra = a->pad_extra, .act = act_of(d) }
    };
    match_begin(u, d, b);
    b->n_members = b->n_convs;
    const int n_before = b->n_convs;
    match_projection(u, b);
    b->n_members = b->n_convs;
    if (b->n_convs > n_before)
        match_addition(u, b);
    return b->n_convs > 1 && is_movable(g, b);
}

/* the operands of the op; returns their number */
static int operands(const block *b, td_value **in)
{
    int n = 0;
    in[n++] = b->x;
    for (int i = 0; i < b->n_convs; i++) {
        in[n++] = b->member[i]->in[1];
        in[n++] = b->member[i]->in[2];
    }
    return n;
}

static bool is_supported(const td_target *target, block *b)
{
    static const td_node_layouts channels_last = {
        .in = { "acdb", "Abcd8a", "", "Abcd8a", "", "Abcd8a", "" }, .out = "acdb"
    };
    td_value *in[TD_IN_MAX];
    td_probe p;
    const int n = operands(b, in);
    if (!target)
        return false;
    td_probe_init_with(&p, last_of(b), n, in);
    p.node.op = &td_op_inverted_residual;
    p.node.attr = &b->attr;
    td_probe_set_layouts(&p, &channels_last);
    return target->supports(target->ctx, &p.node);
}

/* --- the pass --------------------------------------------------------------------------------- */

static void emit(td_rewriter *rw, const block *b)
{
    td_value *in[TD_IN_MAX];
    const int n = operands(b, in);
    for (int i = 0; i < n; i++)
        in[i] = td_rw_get(rw, in[i]);
    td_rw_set(rw, last_of(b)->out[0],
              td_emit_n(rw->b, &td_op_inverted_residual, &b->attr, n, in, NULL));
    rw->n_changed++;
}

/* of[node]: the block that the node belongs to, 1 and up; 0: none */
static void find(td_rewriter *rw, const td_uses *u, block *blocks, int *of)
{
    int n = 0;
    for (int i = 0; i < rw->old->n_nodes; i++) {
        block *b = &blocks[n];
        if (!match(rw->old, u, rw->old->nodes[i], b) || !is_supported(rw->target, b))
            continue;
        n++;
        for (int k = 0; k < b->n_members; k++)
            of[b->member[k]->id] = n;
    }
}

static void emit_all(td_rewriter *rw, const block *blocks, const int *of)
{
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        const block *b = of[i] ? &blocks[of[i] - 1] : NULL;
        if (!b)
            td_rw_copy(rw, n);
        else if (last_of(b) == n)
            emit(rw, b);
    }
}

static void run(td_rewriter *rw)
{
    td_uses u = { 0 };
    block *blocks = td_alloc((size_t)rw->old->n_nodes + 1, sizeof *blocks);
    int *of = td_alloc((size_t)rw->old->n_nodes + 1, sizeof *of);
    td_status st = td_uses_init(&u, rw->old);
    if (st == TD_OK && (!blocks || !of))
        st = TD_ENOMEM;
    if (st == TD_OK) {
        find(rw, &u, blocks, of);
        emit_all(rw, blocks, of);
    } else {
        td_build_fail(rw->b, st);
    }
    td_uses_release(&u);
    td_free(blocks);
    td_free(of);
}

const td_pass td_pass_inverted_residual = {
    .name = "inverted_residual",
    .summary = "make one op of the convolutions of an inverted residual block",
    .counts = "blocks made one op",
    .run = run,
};
