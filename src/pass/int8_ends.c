/*
 * int8_ends.c -- the first convolution of a network of 8-bit integers with its max pooling
 *
 *     %a = conv2d_fused %x, %w, %b {relu}       ->    %h = cast %w {to=bf16}
 *     %p, %i = max_pool2d %a                          %q = conv2d_pool_int8 %x, %h, %b
 *     %q = quantize %p
 *
 * where no other node reads what is between and the device has a kernel.  The result of the pooling
 * is not written as floats.  Pass `quantize` keeps the first convolution wide; here its factors are
 * rounded to bf16 if the device multiplies bf16 faster than float32.
 */
#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct {
    const td_node *conv, *pool, *quantize;
    td_conv_pool_int8_attr attr;
} rule;

static bool is_plain_conv(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    return n->op == &td_op_conv2d_fused && n->n_in == 3 && a->relu && !a->relu6 && !a->tf32 &&
           a->groups == 1 && a->dilation == 1 && !a->pad_extra &&
           td_in_type(n, 0)->dtype == TD_DT_F32;
}

static bool has_users(const td_uses *u, const td_value *v)
{
    int n;
    td_uses_of(u, v, &n);
    return n > 0;
}

static bool match(const td_uses *u, const td_node *n, rule *r)
{
    if (n->op != &td_op_quantize || n->out[0]->type.dtype != TD_DT_U8)
        return false;
    const td_node *pool = n->in[0]->producer;
    if (pool->op != &td_op_max_pool2d || n->in[0] != pool->out[0] ||
        td_uses_only(u, pool->out[0]) != n || has_users(u, pool->out[1]))
        return false;
    const td_node *conv = pool->in[0]->producer;
    const td_pool_attr *p = pool->attr;
    if (!is_plain_conv(conv) || td_uses_only(u, conv->out[0]) != pool || p->pad_extra)
        return false;
    const td_conv_attr *c = conv->attr;
    *r = (rule){ .conv = conv,
                 .pool = pool,
                 .quantize = n,
                 .attr = { .stride = c->stride,
                           .pad = c->pad,
                           .kernel = p->kernel,
                           .pool_stride = p->stride,
                           .pool_pad = p->pad,
                           .y_scale = ((const td_quantize_attr *)n->attr)->scale } };
    return true;
}

static bool is_supported(const td_target *target, rule *r, td_dtype filter)
{
    td_probe p;
    td_probe_init_with(&p, r->quantize, r->conv->n_in, r->conv->in);
    p.node.op = &td_op_conv2d_pool_int8;
    p.node.attr = &r->attr;
    p.node.in[1]->type.dtype = filter;
    return td_probe_has_fast_kernel(&p, target);
}

static void emit(td_rewriter *rw, const rule *r, td_dtype filter)
{
    td_value *in[TD_IN_MAX];
    td_rw_operands(rw, r->conv, in);
    if (filter != TD_DT_F32)
        in[1] = td_cast(rw->b, in[1], filter);
    td_rw_set(rw, r->quantize->out[0],
              td_emit(rw->b, &td_op_conv2d_pool_int8, &r->attr, in[0], in[1], in[2]));
    rw->n_changed++;
}

/* copies a node, or emits the rule that ends with it; what is before it is then removed as dead */
static void visit(td_rewriter *rw, const td_uses *u, const td_node *n)
{
    rule r;
    if (!match(u, n, &r))
        td_rw_copy(rw, n);
    else if (rw->target->bf16_rate > 1 && is_supported(rw->target, &r, TD_DT_BF16))
        emit(rw, &r, TD_DT_BF16);
    else if (is_supported(rw->target, &r, TD_DT_F32))
        emit(rw, &r, TD_DT_F32);
    else
        td_rw_copy(rw, n);
}

static void int8_ends_run(td_rewriter *rw)
{
    td_uses u = { 0 };
    if (!rw->target || !rw->amp || rw->amp->precision != TD_PRECISION_INT8) {
        td_rw_copy_all(rw);
        return;
    }
    td_status st = td_uses_init(&u, rw->old);
    if (st == TD_OK)
        for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
            visit(rw, &u, rw->old->nodes[i]);
    else
        td_build_fail(rw->b, st);
    td_uses_release(&u);
}

const td_pass td_pass_int8_ends = {
    .name = "int8_ends",
    .summary = "make one op of a first convolution, its max pooling and the rounding to integers",
    .counts = "first convolutions made one op",
    .run = int8_ends_run,
};
