/*
 * quantize.c -- runs convolutions and linear layers of inference with 8-bit integers
 *
 *     x -> conv2d_fused {relu} -> y -> conv2d_fused -> z      becomes
 *
 *     x -> quantize -> conv2d_int8 {relu} -> y8 -> conv2d_int8 -> z        (z: float32)
 *                                            y8 -> dequantize -> y         for other readers of y
 *
 * A linear layer becomes a convolution of images of one pixel, with a float32 result.  silu and
 * hardswish are computed by conv2d_int8 if the device has such a kernel, otherwise in float32 after
 * it.
 *
 * A convolution takes part if the table of ranges (td_amp_opts.ranges) has its weight and does not
 * keep it in float32, if the weight depends on parameters only, so that quantize_weights runs once,
 * and if the device has a kernel: on the processor a fast one, on the reference device any.  Where
 * only filters of 7 bits have one, because pairs of products are added in 16 bits, the filter gets
 * 7 bits.
 *
 * A kernel that takes u8 images only gets a signed one shifted by 128, with its padding, and a bias
 * that takes this back:
 *
 *     x (s8) -> shift_int8 {pad} -> conv2d_int8 {pad=0}, its bias from shift_int8_bias
 *
 * Whether a result is integers depends on its readers, so nodes are visited backwards: it is if a
 * quantized convolution reads it as its input, or as its residual with a result of integers.  A
 * value that cannot be negative (after relu) is u8, any other s8; a value has one scale, that of
 * its producer's output range if the table has it, otherwise that of its reader's input range.
 */
#include "pass/quantize.h"

#include <string.h>

#include "base/log.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "plan/plan.h"

/* ranges that float32 scales can represent */
#define RANGE_MIN 1e-30F
#define RANGE_MAX 1e30F

/* indexed by ids of the old graph */
typedef struct {
    bool *is_fixed;                  /* [nodes] the results depend on parameters only */
    const td_activation_range **row; /* [nodes] of a convolution that may be quantized, or NULL */
    bool *is_quantized;              /* [nodes] */
    bool *is_unsigned;               /* [values] no element is negative */
    float *range;                    /* [values] 0: unknown */
    bool *wants_int8, *wants_wide;   /* [values] readers of integers, of floats */
    td_value **int8;                 /* [values] the new value of integers, or NULL */
    int *weight_max;                 /* [nodes] of quantized ones: magnitude of the filter */
    bool *is_shifted;                /* [nodes] of quantized ones: the image needs shift_int8 */
    bool *applies_act;               /* [nodes] of those with act_of: conv2d_int8 computes it */
    int n_refused, n_narrow;
} state;

/* --- what may be quantized -------------------------------------------------------------------- */

/* a parameter of the filter's shape in the expression of `v`, at most `depth` nodes above it */
static const td_value *find_filter(const td_value *v, const td_type *shape, int depth)
{
    const td_value *found = NULL;
    if (td_value_is_param(v))
        return td_type_same_shape(&v->type, shape) ? v : NULL;
    for (int i = 0; depth && i < v->producer->n_in && !found; i++)
        found = find_filter(v->producer->in[i], shape, depth - 1);
    return found;
}

const td_value *td_quantize_filter(const td_node *conv)
{
    enum { DEPTH = 3 }; /* fold's product with the norm's scale, a reorder */
    return find_filter(conv->in[1], td_in_type(conv, 1), DEPTH);
}

bool td_quantize_fits(const td_node *conv)
{
    return (conv->op == &td_op_conv2d_fused || conv->op == &td_op_linear) && conv->n_in >= 3 &&
           td_in_type(conv, 0)->dtype == TD_DT_F32;
}

static td_conv_attr conv_of(const td_node *n)
{
    const td_conv_attr linear = { .stride = 1, .dilation = 1, .groups = 1 };
    return n->op == &td_op_linear ? linear : *(const td_conv_attr *)n->attr;
}

/* [N, C] as [N, C, 1, 1] */
static td_type image_type(const td_type *t)
{
    return t->rank == 4 ? *t : td_type_4d(t->dtype, t->dim[0], t->dim[1], 1, 1);
}

static td_value *as_image(td_rewriter *rw, td_value *v)
{
    const td_type t = image_type(&v->type);
    return v->type.rank == 4 ? v : td_reshape(rw->b, v, t.rank, t.dim);
}

static bool is_range(float r)
{
    return r >= RANGE_MIN && r <= RANGE_MAX;
}

static const td_activation_range *row_of(const td_activation_ranges *t, const state *s,
                                         const td_node *n)
{
    if (!td_quantize_fits(n) || !s->is_fixed[n->in[1]->producer->id] ||
        !s->is_fixed[n->in[2]->producer->id])
        return NULL;
    const td_value *filter = td_quantize_filter(n);
    for (int i = 0; filter && i < t->n; i++) {
        const td_activation_range *row = &t->ranges[i];
        if (strcmp(row->weight, filter->name) == 0)
            return is_range(row->input) && is_range(row->output) ? row : NULL;
    }
    return NULL;
}

/* --- values ----------------------------------------------------------------------------------- */

/* ops whose result is not negative if no operand is */
static bool keeps_sign(const td_op *op)
{
    static const td_op *const ops[] = {
        &td_op_max_pool2d, &td_op_avg_pool2d,     &td_op_global_avg_pool, &td_op_add,
        &td_op_mul,        &td_op_resize_nearest, &td_op_concat,          &td_op_reshape,
        &td_op_slice,      &td_op_reorder
    };
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (op == ops[i])
            return true;
    return false;
}

static bool is_never_negative(const bool *is_unsigned, const td_node *n)
{
    if (n->op == &td_op_relu || n->op == &td_op_relu6 || n->op == &td_op_sigmoid)
        return true;
    if (n->op == &td_op_conv2d_fused)
        return ((const td_conv_attr *)n->attr)->relu;
    if (n->op == &td_op_conv2d_int8)
        return ((const td_conv_int8_attr *)n->attr)->relu;
    if (n->op == &td_op_dequantize)
        return td_in_type(n, 0)->dtype == TD_DT_U8;
    bool is_all = keeps_sign(n->op);
    for (int i = 0; i < n->n_in; i++)
        is_all = is_all && is_unsigned[n->in[i]->id];
    return is_all;
}

void td_quantize_signs(const td_graph *g, bool *is_unsigned)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->n_out)
            is_unsigned[g->nodes[i]->out[0]->id] = is_never_negative(is_unsigned, g->nodes[i]);
}

static td_dtype int8_dtype(const state *s, const td_value *v)
{
    return s->is_unsigned[v->id] ? TD_DT_U8 : TD_DT_S8;
}

static double scale_of(const state *s, const td_value *v)
{
    return (double)(s->range[v->id] / (s->is_unsigned[v->id] ? (float)UINT8_MAX : TD_INT8_MAX));
}

static void note_values(const td_graph *g, const td_activation_ranges *t, state *s)
{
    td_quantize_signs(g, s->is_unsigned);
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const td_activation_range *row = row_of(t, s, n);
        if (!row)
            continue;
        s->row[i] = row->is_wide ? NULL : row;
        s->range[n->out[0]->id] = row->output;
        if (s->range[n->in[0]->id] == 0)
            s->range[n->in[0]->id] = row->input;
    }
    for (int i = 0; i < g->n_outputs; i++)
        s->wants_wide[g->outputs[i].value->id] = true;
}

/* --- which convolutions are quantized --------------------------------------------------------- */

/* the activation after a fused convolution, other than relu */
static const td_op *act_of(const td_node *n)
{
    return n->op == &td_op_conv2d_fused ? td_conv_act_op(((const td_conv_attr *)n->attr)->act)
                                        : NULL;
}

static td_conv_int8_attr attr_of(const state *s, const td_node *n, td_dtype result)
{
    const td_conv_attr a = conv_of(n);
    td_conv_int8_attr b = { .stride = a.stride,
                            .pad = a.pad,
                            .dilation = a.dilation,
                            .groups = a.groups,
                            .pad_extra = a.pad_extra,
                            .relu = a.relu,
                            .relu6 = a.relu && a.relu6,
                            .act = s->applies_act[n->id] ? a.act : TD_CONV_LINEAR,
                            .x_scale = scale_of(s, n->in[0]),
                            .y_scale = 1,
                            .residual_scale = 1,
                            .weight_max = s->weight_max[n->id],
                            .to = td_int8_to(result) };
    if (s->is_shifted[n->id])
        b.pad = b.pad_extra = 0;
    if (result != TD_DT_F32) {
        b.y_scale = scale_of(s, n->out[0]);
        if (n->n_in > 3)
            b.residual_scale = scale_of(s, n->in[3]);
    }
    return b;
}

static td_shift_int8_attr shift_of(const td_node *n)
{
    const td_conv_attr a = conv_of(n);
    return (td_shift_int8_attr){ .pad = a.pad, .pad_extra = a.pad_extra };
}

/* the image as conv2d_int8 gets it */
static td_type image_of(const state *s, const td_node *n)
{
    const td_shift_int8_attr a = shift_of(n);
    td_type t = image_type(td_in_type(n, 0));
    t.dtype = int8_dtype(s, n->in[0]);
    if (!s->is_shifted[n->id])
        return t;
    t.dtype = TD_DT_U8;
    t.dim[2] += 2 * a.pad + a.pad_extra;
    t.dim[3] += 2 * a.pad + a.pad_extra;
    return t;
}

/* operands of conv2d_int8: x, w, the filters' scales, bias, residual */
static bool is_supported(const td_target *target, const state *s, const td_node *n, td_dtype result)
{
    td_conv_int8_attr attr = attr_of(s, n, result);
    td_probe p;
    td_value *in[5] = { n->in[0], n->in[1], n->in[2], n->in[2], n->n_in > 3 ? n->in[3] : NULL };
    td_probe_init_with(&p, n, n->n_in + 1, in);
    p.node.op = &td_op_conv2d_int8;
    p.node.attr = &attr;
    p.node.in[0]->type = image_of(s, n);
    p.node.in[1]->type = image_type(td_in_type(n, 1));
    p.node.in[1]->type.dtype = TD_DT_S8;
    if (n->n_in > 3 && result != TD_DT_F32)
        p.node.in[4]->type.dtype = int8_dtype(s, n->in[3]);
    p.node.out[0]->type = image_type(&n->out[0]->type);
    p.node.out[0]->type.dtype = result;
    return td_probe_has_fast_kernel(&p, target);
}

static td_dtype result_of(const state *s, const td_node *n)
{
    const bool has_residual = n->n_in > 3;
    const bool is_last = !act_of(n) || s->applies_act[n->id]; /* nothing in float32 follows */
    const bool is_wanted = s->wants_int8[n->out[0]->id] && n->op != &td_op_linear && is_last;
    return is_wanted && (!has_residual || s->range[n->in[3]->id] > 0) ? int8_dtype(s, n->out[0])
                                                                      : TD_DT_F32;
}

static bool has_kernel(const td_target *target, state *s, const td_node *n)
{
    const td_dtype result = result_of(s, n);
    static const int limits[] = { TD_INT8_MAX, TD_INT8_NARROW };
    const int n_forms = s->is_unsigned[n->in[0]->id] ? 1 : 2;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (int form = 0; form < n_forms; form++) {
            s->weight_max[n->id] = limits[i];
            s->is_shifted[n->id] = form == 1;
            if (is_supported(target, s, n, result))
                return true;
        }
    return false;
}

/* with the activation, or else with one in float32 after it */
static bool has_some_kernel(const td_target *target, state *s, const td_node *n)
{
    s->applies_act[n->id] = act_of(n) != NULL;
    if (has_kernel(target, s, n))
        return true;
    if (!s->applies_act[n->id])
        return false;
    s->applies_act[n->id] = false;
    return has_kernel(target, s, n);
}

static void choose(const td_target *target, state *s, const td_node *n)
{
    s->is_quantized[n->id] = s->row[n->id] && has_some_kernel(target, s, n);
    const td_dtype result = result_of(s, n);
    s->n_narrow += s->is_quantized[n->id] && s->weight_max[n->id] < TD_INT8_MAX;
    s->n_refused += s->row[n->id] && !s->is_quantized[n->id];
    for (int i = 0; i < n->n_in; i++) {
        const bool is_int8 = i == 0 || (i == 3 && result != TD_DT_F32);
        if (s->is_quantized[n->id] && is_int8)
            s->wants_int8[n->in[i]->id] = true;
        else
            s->wants_wide[n->in[i]->id] = true;
    }
}

/* --- emitting --------------------------------------------------------------------------------- */

static td_value *int8_of(td_rewriter *rw, state *s, const td_value *v)
{
    if (!s->int8[v->id]) {
        const td_quantize_attr a = { .scale = scale_of(s, v), .to = td_int8_to(int8_dtype(s, v)) };
        s->int8[v->id] = td_emit(rw->b, &td_op_quantize, &a, td_rw_get(rw, v));
    }
    return s->int8[v->id];
}

/* replaces the image, and the bias by one that fits it */
static void emit_shift(td_rewriter *rw, const td_node *n, const td_conv_int8_attr *a, td_value **in)
{
    const td_shift_int8_attr shift = shift_of(n);
    const td_shift_int8_bias_attr bias = { .x_scale = a->x_scale };
    in[0] = td_emit(rw->b, &td_op_shift_int8, &shift, in[0]);
    in[3] = td_emit(rw->b, &td_op_shift_int8_bias, &bias, in[1], in[2], in[3]);
}

static void emit_int8(td_rewriter *rw, state *s, const td_node *n)
{
    const td_value *old = n->out[0];
    const td_dtype result = result_of(s, n);
    const td_conv_int8_attr a = attr_of(s, n, result);
    const td_quantize_weights_attr weights = { .most = a.weight_max };
    td_value *q[TD_OUT_MAX], *in[5] = { as_image(rw, int8_of(rw, s, n->in[0])) };
    td_emit_n(rw->b, &td_op_quantize_weights, &weights, 1,
              TD_ARGS(as_image(rw, td_rw_get(rw, n->in[1]))), q);
    in[1] = q[0];
    in[2] = q[1];
    in[3] = td_rw_get(rw, n->in[2]);
    if (n->n_in > 3)
        in[4] = result == TD_DT_F32 ? td_rw_get(rw, n->in[3]) : int8_of(rw, s, n->in[3]);
    if (s->is_shifted[n->id])
        emit_shift(rw, n, &a, in);
    td_value *y = td_emit_n(rw->b, &td_op_conv2d_int8, &a, n->n_in + 1, in, NULL);
    if (act_of(n) && !s->applies_act[n->id])
        y = td_emit(rw->b, act_of(n), NULL, y);
    rw->n_changed++;
    if (n->op == &td_op_linear)
        y = td_reshape(rw->b, y, 2, old->type.dim);
    if (result != TD_DT_F32) {
        s->int8[old->id] = y;
        if (s->wants_wide[old->id])
            y = td_emit(rw->b, &td_op_dequantize, &(td_quantize_attr){ .scale = a.y_scale }, y);
    }
    td_rw_set(rw, old, y);
}

static void warn(const td_rewriter *rw, const state *s)
{
    const int all = s->n_refused + rw->n_changed;
    if (rw->amp->is_silent)
        return;
    if (s->n_refused)
        td_log(TD_LOG_WARN, "quantize",
               "%d of %d quantized layers run in float32, because the device has no kernel "
               "for them",
               s->n_refused, all);
    if (s->n_narrow)
        td_log(TD_LOG_WARN, "quantize",
               "%d of %d quantized layers have weights of 7 bits, because the processor has "
               "neither VNNI nor AMX",
               s->n_narrow, all);
}

static void rewrite(td_rewriter *rw, const td_activation_ranges *t, state *s)
{
    const td_graph *g = rw->old;
    note_values(g, t, s);
    for (int i = g->n_nodes - 1; i >= 0; i--)
        choose(rw->target, s, g->nodes[i]);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++)
        if (s->is_quantized[i])
            emit_int8(rw, s, g->nodes[i]);
        else
            td_rw_copy(rw, g->nodes[i]);
    warn(rw, s);
}

static td_status state_init(state *s, const td_graph *g)
{
    const size_t n_nodes = (size_t)g->n_nodes + 1, n_values = (size_t)g->n_values + 1;
    *s = (state){ 0 };
    TD_TRY(td_plan_fixed_new(g, &s->is_fixed));
    TD_TRY(TD_ALLOC(s->row, n_nodes));
    TD_TRY(TD_ALLOC(s->is_quantized, n_nodes));
    TD_TRY(TD_ALLOC(s->weight_max, n_nodes));
    TD_TRY(TD_ALLOC(s->is_shifted, n_nodes));
    TD_TRY(TD_ALLOC(s->applies_act, n_nodes));
    TD_TRY(TD_ALLOC(s->is_unsigned, n_values));
    TD_TRY(TD_ALLOC(s->range, n_values));
    TD_TRY(TD_ALLOC(s->wants_int8, n_values));
    TD_TRY(TD_ALLOC(s->wants_wide, n_values));
    return TD_ALLOC(s->int8, n_values);
}

static void state_release(state *s)
{
    td_free(s->is_fixed);
    td_free((void *)s->row);
    td_free(s->is_quantized);
    td_free(s->weight_max);
    td_free(s->is_shifted);
    td_free(s->applies_act);
    td_free(s->is_unsigned);
    td_free(s->range);
    td_free(s->wants_int8);
    td_free(s->wants_wide);
    td_free((void *)s->int8);
}

static void quantize_run(td_rewriter *rw)
{
    const td_activation_ranges *t =
        rw->amp && rw->amp->precision == TD_PRECISION_INT8 ? rw->amp->ranges : NULL;
    state s;
    if (!t || !t->n) {
        td_rw_copy_all(rw);
        return;
    }
    td_status st = state_init(&s, rw->old);
    if (st == TD_OK)
        rewrite(rw, t, &s);
    else
        td_build_fail(rw->b, st);
    state_release(&s);
}

const td_pass td_pass_quantize = {
    .name = "quantize",
    .summary = "convolutions and linear layers of inference with 8-bit integers, for int8",
    .counts = "layers quantized",
    .run = quantize_run,
};
