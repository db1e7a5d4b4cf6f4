/*
 * winograd.c -- inference: computes 3x3 convolutions of stride 1 in tiles by Winograd's algorithm
 *
 *     conv2d_fused(x, w, bias, residual) {pad, relu}
 *         conv2d_winograd(x, winograd_filter(w), bias, residual) {pad, relu}
 *
 * It applies if w depends on parameters only, so that winograd_filter runs once and not in every
 * run, and if the device has a kernel for it on channel blocks (the reference device has none).
 *
 * Whether it is faster is estimated from counts.  A tile costs 36 C K multiplications for up to 144
 * C K of the direct convolution; transforms cost about as much as 36 (C + K) 32 more; and the
 * filters, four times as large, are read once per run of tiles, which costs too much for few tiles.
 */
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "pass/plan.h"

/* --- choosing convolutions -------------------------------------------------------------------- */

#define CHANNELS_MIN 32 /* channels of input and output */

/* costs in multiplications: the transforms of a tile, per channel; reading a transformed filter */
#define TRANSFORM_COST (36 * 32)
#define READ_COST      4

static bool is_faster(const td_node *conv)
{
    const td_type *w = td_in_type(conv, 1), *y = &conv->out[0]->type;
    const double c = (double)w->dim[1], k = (double)w->dim[0];
    const double tiles = (double)td_winograd_tiles(y), pixels = (double)td_type_count(y) / k;
    const double direct = 9 * pixels * c * k;
    const double ours = tiles * (36 * c * k + TRANSFORM_COST * (c + k)) + READ_COST * 36 * c * k;
    return ours < direct;
}

static bool has_shape(const td_node *n)
{
    const td_conv_attr *a = n->attr;
    if (n->op != &td_op_conv2d_fused || a->stride != 1 || a->dilation != 1 || a->groups != 1 ||
        a->pad_extra || a->tf32)
        return false;
    const td_type *w = td_in_type(n, 1);
    for (int i = 0; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != TD_DT_F32)
            return false;
    return w->dim[2] == 3 && w->dim[3] == 3 && w->dim[0] % TD_WINO_LANES == 0 &&
           w->dim[1] % TD_WINO_LANES == 0 && w->dim[0] >= CHANNELS_MIN && w->dim[1] >= CHANNELS_MIN;
}

static td_winograd_attr attr_of(const td_node *conv)
{
    const td_conv_attr *a = conv->attr;
    return (td_winograd_attr){ .pad = a->pad, .relu = a->relu, .relu6 = a->relu6 };
}

/* does the device have a kernel for channel blocks? */
static bool is_supported(const td_target *target, const td_node *conv)
{
    static const char layout[] = "aBcd16b";
    td_winograd_attr attr = attr_of(conv);
    td_probe p;
    if (!target)
        return false;
    td_probe_init(&p, conv);
    p.node.op = &td_op_conv2d_winograd;
    p.node.attr = &attr;
    const td_type *w = td_in_type(conv, 1);
    p.node.in[1]->type =
        td_type_4d(w->dtype, w->dim[0] / TD_WINO_LANES, TD_WINO_POINTS, w->dim[1], TD_WINO_LANES);
    memcpy(p.node.in[0]->type.layout, layout, sizeof layout);
    memcpy(p.node.out[0]->type.layout, layout, sizeof layout);
    if (conv->n_in > 3)
        memcpy(p.node.in[3]->type.layout, layout, sizeof layout);
    return target->supports(target->ctx, &p.node);
}

/* --- the pass --------------------------------------------------------------------------------- */

/* is_fixed[node]: its results depend only on parameters, and the graph overwrites none */
static td_status begin(td_rewriter *rw)
{
    const td_graph *g = rw->old;
    bool *is_fixed = td_alloc((size_t)g->n_nodes + 1, sizeof *is_fixed);
    if (!is_fixed)
        return TD_ENOMEM;
    if (td_plan_mark_setup(g, is_fixed))
        for (int i = 0; i < g->n_nodes; i++)
            is_fixed[i] |= g->nodes[i]->n_out && td_value_is_param(g->nodes[i]->out[0]);
    rw->state = is_fixed;
    return TD_OK;
}

static void end(td_rewriter *rw)
{
    td_free(rw->state);
    rw->state = NULL;
}

static void node(td_rewriter *rw, const td_node *n, td_value **in)
{
    const bool *is_fixed = rw->state;
    if (!has_shape(n) || !is_fixed[n->in[1]->producer->id] || !is_faster(n) ||
        !is_supported(rw->target, n)) {
        td_rw_copy_with(rw, n, in);
        return;
    }
    const td_winograd_attr attr = attr_of(n);
    td_value *new[4] = { in[0], td_emit(rw->b, &td_op_winograd_filter, NULL, in[1]) };
    for (int i = 2; i < n->n_in; i++)
        new[i] = in[i];
    td_rw_set(rw, n->out[0], td_emit_n(rw->b, &td_op_conv2d_winograd, &attr, n->n_in, new, NULL));
    rw->n_changed++;
}

const td_pass td_pass_winograd = {
    .name = "winograd",
    .summary = "3x3 convolutions of inference with fewer multiplications",
    .counts = "convolutions in tiles",
    .node = node,
    .begin = begin,
    .end = end,
};
