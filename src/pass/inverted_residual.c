/*
 * inverted_residual.c -- inference: makes one op of the convolutions of an inverted residual block
 *
 *     e = conv2d_fused(x, w1, b1) {act}                  1 x 1
 *     d = conv2d_fused(e, w2, b2) {act, stride, pad}     depthwise
 *     p = conv2d_fused(d, w3, b3)                        1 x 1, no activation
 *     y = add(p, x)
 *         y = inverted_residual(x, w1, b1, w2, b2, w3, b3) {act, stride, pad, residual}
 *
 * Without the addition it ends with p; without an expansion, as in a first block, it begins with d.
 * A squeeze-excite layer between d and p divides the block in two, of which the first may have no
 * expansion either:
 *
 *     m = global_avg_pool(d)       d, m = expand_depthwise(x, w1, b1, w2, b2) {act, stride, pad}
 *     g = reshape(...(m))          ...
 *     p = conv2d_fused(mul(d, g), w3, b3)
 *     y = add(p, x)                y = conv2d_gated(d, ...(m), w3, b3, x)
 *
 * It applies if nothing else reads what is left out and the device has a kernel for images with
 * channels last; the reference device has none.  In mixed precision, where biases are float32, it
 * applies to bfloat16 if an instruction adds pairs of its products; where one multiplies matrices
 * the library's convolutions are faster.
 */
#include <stdio.h>
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

#define PAIRS_RATE 2 /* td_target's bf16_rate with an instruction for pairs */

/* the last of `member` is the root, where the op is emitted */
typedef struct {
    const td_op *op;
    const td_node *member[4]; /* [expansion,] depthwise [, projection [, addition]]; gated: product,
                                 projection [, addition] */
    int n_members;
    td_inverted_residual_attr attr; /* unless gated */
    td_value *in[TD_NODE_LAYOUTS];
    int n_in;
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

static void add_operand(block *b, td_value *v)
{
    b->in[b->n_in++] = v;
}

/* adds a convolution, its filter and its bias */
static void add_conv(block *b, const td_node *conv)
{
    b->member[b->n_members++] = conv;
    add_operand(b, conv->in[1]);
    add_operand(b, conv->in[2]);
}

/* adds an addition of `x` to b's result, or of any value if x is NULL, unless another block has it;
   returns the value, NULL: there is none */
static td_value *match_addition(const td_uses *u, const int *of, block *b, const td_value *x)
{
    const td_value *y = last_of(b)->out[0];
    const td_node *add = td_uses_only(u, y);
    if (!add || add->op != &td_op_add || of[add->id])
        return NULL;
    td_value *other = add->in[add->in[0] == y];
    if ((x && other != x) || !td_type_same_shape(&other->type, &y->type))
        return NULL;
    b->member[b->n_members++] = add;
    return other;
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

static bool is_pooled(const td_uses *u, const td_value *d)
{
    int n;
    const td_node *const *reader = td_uses_of(u, d, &n);
    for (int i = 0; i < n; i++)
        if (reader[i]->op == &td_op_global_avg_pool)
            return true;
    return false;
}

/* a block whose depthwise convolution is d */
static bool match_block(const td_uses *u, const int *of, const td_node *d, block *b)
{
    if (!is_depthwise(d))
        return false;
    const td_conv_attr *a = d->attr;
    const td_node *e = d->in[0]->producer, *p = td_uses_only(u, d->out[0]);
    const bool has_expansion =
        is_1x1(e) && td_uses_only(u, d->in[0]) == d && act_of(e) == act_of(d);
    const bool has_projection =
        p && is_1x1(p) && p->in[0] == d->out[0] && act_of(p) == TD_BLOCK_LINEAR;
    *b = (block){ .op = has_projection ? &td_op_inverted_residual : &td_op_expand_depthwise,
                  .attr = { .stride = a->stride,
                            .pad = a->pad,
                            .pad_extra = a->pad_extra,
                            .act = act_of(d),
                            .expand = has_expansion } };
    add_operand(b, has_expansion ? e->in[0] : d->in[0]);
    if (has_expansion)
        add_conv(b, e);
    add_conv(b, d);
    if (has_projection) {
        add_conv(b, p);
        b->attr.residual = match_addition(u, of, b, b->in[0]);
    }
    return has_expansion || has_projection || is_pooled(u, d->out[0]);
}

/* the gates [N, C] that `mul` multiplies the image with; NULL: it does something else */
static td_value *gates_of(const td_node *mul)
{
    const td_node *reshape = mul->n_in == 2 ? mul->in[1]->producer : NULL;
    if (mul->op != &td_op_mul || !reshape || reshape->op != &td_op_reshape)
        return NULL;
    const td_type *x = td_in_type(mul, 0), *gate = &mul->in[1]->type;
    const td_type *flat = td_in_type(reshape, 0);
    const bool is_gate = x->rank == 4 && gate->rank == 4 && flat->rank == 2 && gate->dim[2] == 1 &&
                         gate->dim[3] == 1 && gate->dim[0] == x->dim[0] &&
                         gate->dim[1] == x->dim[1] && flat->dim[0] == x->dim[0] &&
                         flat->dim[1] == x->dim[1];
    return is_gate ? reshape->in[0] : NULL;
}

/* a projection p of the product of a depthwise convolution's result and gates */
static bool match_gated(const td_uses *u, const int *of, const td_node *p, block *b)
{
    if (!is_1x1(p) || act_of(p) != TD_BLOCK_LINEAR)
        return false;
    const td_node *mul = p->in[0]->producer;
    td_value *gates = gates_of(mul);
    if (!gates || !is_depthwise(mul->in[0]->producer) || td_uses_only(u, p->in[0]) != p)
        return false;
    *b = (block){ .op = &td_op_conv2d_gated, .member = { mul }, .n_members = 1 };
    add_operand(b, mul->in[0]);
    add_operand(b, gates);
    add_conv(b, p);
    td_value *residual = match_addition(u, of, b, NULL);
    if (residual)
        add_operand(b, residual);
    return true;
}

static bool match(const td_rewriter *rw, const td_uses *u, const int *of, const td_node *n,
                  block *b)
{
    return (match_block(u, of, n, b) || match_gated(u, of, n, b)) && is_movable(rw->old, b);
}

static bool is_mixed(const block *b)
{
    return b->in[0]->type.dtype == TD_DT_BF16;
}

/* one dtype, or float32 biases of bfloat16 */
static bool has_dtypes(const block *b)
{
    for (int i = 1; i < b->n_in; i++) {
        const td_type *t = &b->in[i]->type;
        const bool is_bias = is_mixed(b) && t->rank == 1;
        if (t->dtype != (is_bias ? TD_DT_F32 : b->in[0]->type.dtype))
            return false;
    }
    return true;
}

static void set_layout(td_node_layouts *l, int i, const char *layout)
{
    (void)snprintf(l->in[i], TD_LAYOUT_BYTES, "%s", layout);
}

/* channels last; filters in blocks, those of 1x1 convolutions of bfloat16 with pairs of channels */
static td_node_layouts layouts_of(const block *b)
{
    td_node_layouts l = { .out = "acdb" };
    for (int i = 0; i < b->n_in; i++) {
        const td_type *t = &b->in[i]->type;
        const bool is_filter = b->op == &td_op_conv2d_gated ? i == 2 : i % 2 == 1;
        const bool has_pairs = is_mixed(b) && t->rank == 4 && t->dim[1] > 1;
        if (t->rank == 4)
            set_layout(&l, i, !is_filter ? "acdb" : has_pairs ? "ABcd8a2b" : "Abcd8a");
    }
    return l;
}

static bool is_supported(const td_target *target, block *b)
{
    td_probe p;
    if (!target || !has_dtypes(b) || (is_mixed(b) && target->bf16_rate != PAIRS_RATE))
        return false;
    td_probe_init_with(&p, last_of(b), b->n_in, b->in);
    p.node.op = b->op;
    p.node.attr = &b->attr;
    const td_node_layouts layouts = layouts_of(b);
    td_probe_set_layouts(&p, &layouts);
    return target->supports(target->ctx, &p.node);
}

/* --- the pass --------------------------------------------------------------------------------- */

/* the readers of what a block computes means of; *n 0: it computes none */
static const td_node *const *readers_of(const td_uses *u, const block *b, int *n)
{
    *n = 0;
    return b->op == &td_op_expand_depthwise ? td_uses_of(u, last_of(b)->out[0], n) : NULL;
}

static void emit(td_rewriter *rw, const td_uses *u, const block *b)
{
    td_value *in[TD_NODE_LAYOUTS], *out[TD_OUT_MAX];
    int n_readers;
    const td_node *const *reader = readers_of(u, b, &n_readers);
    for (int i = 0; i < b->n_in; i++)
        in[i] = td_rw_get(rw, b->in[i]);
    td_emit_n(rw->b, b->op, b->op->fields ? &b->attr : NULL, b->n_in, in, out);
    td_rw_set(rw, last_of(b)->out[0], out[0]);
    for (int i = 0; i < n_readers; i++)
        if (reader[i]->op == &td_op_global_avg_pool)
            td_rw_set(rw, reader[i]->out[0], out[1]);
    rw->n_changed++;
}

/* of[node]: the block that the node belongs to, 1 and up; 0: none */
static void find(td_rewriter *rw, const td_uses *u, block *blocks, int *of)
{
    int n = 0, n_readers;
    for (int i = 0; i < rw->old->n_nodes; i++) {
        block *b = &blocks[n];
        if (!match(rw, u, of, rw->old->nodes[i], b) || !is_supported(rw->target, b))
            continue;
        n++;
        for (int k = 0; k < b->n_members; k++)
            of[b->member[k]->id] = n;
        const td_node *const *reader = readers_of(u, b, &n_readers);
        for (int k = 0; k < n_readers; k++)
            if (reader[k]->op == &td_op_global_avg_pool)
                of[reader[k]->id] = n;
    }
}

static void emit_all(td_rewriter *rw, const td_uses *u, const block *blocks, const int *of)
{
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        const block *b = of[i] ? &blocks[of[i] - 1] : NULL;
        if (!b)
            td_rw_copy(rw, n);
        else if (last_of(b) == n)
            emit(rw, u, b);
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
        emit_all(rw, &u, blocks, of);
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
