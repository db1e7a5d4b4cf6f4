/*
 * int8_ends.c -- the first convolution of a network of 8-bit integers with its max pooling, and its
 * last linear layer
 *
 *     %a = conv2d_fused %x, %w, %b {relu}       ->    %h = cast %w {to=bf16}
 *     %p, %i = max_pool2d %a                          %q = conv2d_pool_int8 %x, %h, %b
 *     %q = quantize %p
 *
 * where no other node reads what is between and the device has a kernel.  The result of the pooling
 * is not written as floats.  Pass `quantize` keeps the first convolution wide; here its factors are
 * rounded to bf16 if the device multiplies bf16 faster than float32.
 *
 *     output linear %x, %w, %b                   ->    %h = cast %w {to=bf16}
 *                                                      output linear_fused %x, %h, %b
 *
 * on the same devices, if the pass `quantize` has left the layer wide: with one row, reading its
 * weight is most of its time.  A batch of too many rows for this kernel has the same
 * weight, rounded to bf16 and widened again, so that scores do not depend on the batch.
 */
#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/plan.h"

/* --- the first convolution -------------------------------------------------------------------- */

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
    if (!is_plain_conv(conv) || td_uses_only(u, conv->out[0]) != pool || p->pad_extra ||
        td_pool_width(p) != p->kernel)
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

/* --- the last linear layer -------------------------------------------------------------------- */

/* has the target a kernel for `rows` rows with a weight of bf16? */
static bool has_half_kernel(const td_target *target, const td_node *linear, int64_t rows)
{
    td_linear_fused_attr attr = { 0 };
    td_probe p;
    td_probe_init(&p, linear);
    p.node.op = &td_op_linear_fused;
    p.node.attr = &attr;
    p.node.in[0]->type.dim[0] = p.node.out[0]->type.dim[0] = rows;
    p.node.in[1]->type.dtype = TD_DT_BF16;
    return td_probe_has_fast_kernel(&p, target);
}

static bool match_last(const td_rewriter *rw, const bool *is_fixed, const td_node *n)
{
    return rw->target->bf16_rate > 1 && n->op == &td_op_linear &&
           td_value_is_output(rw->old, n->out[0]) && !td_is_tf32(n) &&
           td_in_type(n, 0)->dtype == TD_DT_F32 && is_fixed[n->in[1]->producer->id] &&
           has_half_kernel(rw->target, n, 1);
}

static void emit_last(td_rewriter *rw, const td_node *n)
{
    const td_linear_fused_attr attr = { 0 };
    td_value *in[TD_IN_MAX];
    td_rw_operands(rw, n, in);
    in[1] = td_cast(rw->b, in[1], TD_DT_BF16);
    if (!has_half_kernel(rw->target, n, td_in_type(n, 0)->dim[0]))
        in[1] = td_cast(rw->b, in[1], TD_DT_F32);
    td_rw_set(rw, n->out[0], td_emit_n(rw->b, &td_op_linear_fused, &attr, n->n_in, in, NULL));
    rw->n_changed++;
}

/* --- the pass --------------------------------------------------------------------------------- */

/* copies a node, or emits the rule that ends with it; what is before it is then removed as dead */
static void visit(td_rewriter *rw, const td_uses *u, const bool *is_fixed, const td_node *n)
{
    rule r;
    if (match_last(rw, is_fixed, n))
        emit_last(rw, n);
    else if (!match(u, n, &r))
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
    bool *is_fixed = NULL;
    if (!rw->target || !rw->amp || rw->amp->precision != TD_PRECISION_INT8) {
        td_rw_copy_all(rw);
        return;
    }
    td_status st = td_uses_init(&u, rw->old);
    if (st == TD_OK)
        st = td_plan_fixed_new(rw->old, &is_fixed);
    if (st != TD_OK)
        td_build_fail(rw->b, st);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
        visit(rw, &u, is_fixed, rw->old->nodes[i]);
    td_uses_release(&u);
    td_free(is_fixed);
}

const td_pass td_pass_int8_ends = {
    .name = "int8_ends",
    .summary = "in int8, one op of the first convolution and its max pooling, bf16 weights of the "
               "last linear layer",
    .counts = "ends of networks",
    .run = int8_ends_run,
};
