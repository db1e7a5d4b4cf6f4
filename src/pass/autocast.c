/*
 * autocast.c -- mixed precision op by op, before the grad pass: the alternative to amp.c
 *
 * The precision of each forward op is decided separately, in order, like a run-time autocast:
 *
 *     low    convolutions, linear layers: float32 operands are cast to half
 *     wide   losses and the ops in the level's list: half operands are cast to float32
 *     rest   follows its operands; if their types differ, the wider type (O2, O3: the half type)
 *
 * The grad pass then differentiates through the casts, so that a gradient has the type of its
 * forward op.  A value is cast once per type, so a weight is cast once per step.
 *
 *     autocast  PyTorch: its CUDA list for fp16, its CPU list for bf16
 *     O1        APEX: patched functions
 *     O2        APEX: half model, float32 batch norm, master weights and loss
 *     O3        APEX: as O2, and weights and momentum are stored in half: no master weights
 *
 * Intended differences: a bias is added in float32 (PyTorch rounds it to half first); batch norm's
 * parameters are float32 at every level (APEX O3 makes them half too).
 */
#include <string.h>

#include "ops/ops.h"
#include "pass/amp.h"
#include "pass/cast_cache.h"
#include "pass/pass.h"

typedef enum { FOLLOWS, LOW, WIDE } policy;

typedef struct {
    td_cast_cache casts;
    td_dtype half;
    td_amp_level level;
    bool *is_half; /* [old values] O3: parameters stored in half */
} autocast_state;

static bool is_one_of(const td_op *op, const td_op *const *list)
{
    for (; *list; list++)
        if (*list == op)
            return true;
    return false;
}

static policy policy_of(const autocast_state *s, const td_op *op)
{
    static const td_op *const low[] = { &td_op_conv2d, &td_op_conv2d_fused, &td_op_linear, NULL };
    static const td_op *const losses[] = {
        &td_op_softmax_cross_entropy, &td_op_sigmoid_cross_entropy, &td_op_sigmoid_focal_loss,
        &td_op_huber_box_loss,        &td_op_multibox_class_loss,   NULL
    };
    static const td_op *const cuda[] = { &td_op_softmax, &td_op_sum, &td_op_resize_nearest, NULL };
    static const td_op *const o2[] = { &td_op_softmax, NULL };
    if (is_one_of(op, low))
        return LOW;
    if (is_one_of(op, losses))
        return WIDE;
    if (s->level >= TD_AMP_LEVEL_O2)
        return is_one_of(op, o2) ? WIDE : FOLLOWS;
    bool has_cuda_list = s->level == TD_AMP_LEVEL_O1 || s->half == TD_DT_F16;
    return has_cuda_list && is_one_of(op, cuda) ? WIDE : FOLLOWS;
}

const char *td_autocast_rule(const td_amp_opts *o, const td_op *op)
{
    static const char *const names[] = { [FOLLOWS] = "follows", [LOW] = "half", [WIDE] = "fp32" };
    const autocast_state s = { .half = td_amp_dtype(o), .level = o->level };
    return names[policy_of(&s, op)];
}

/* operands that share the op's type */
static bool is_shared(const td_node *n, int i)
{
    td_dtype d = td_in_type(n, i)->dtype;
    return !td_is_shape_only(n, i) && !(n->op->wide_in >> i & 1) && td_dtype_is_float(d);
}

/* the type that an op's operands are cast to; NONE: unchanged */
static td_dtype target_dtype(const autocast_state *s, const td_node *n, td_value *const *in)
{
    bool has_half = false, has_wide = false;
    switch (policy_of(s, n->op)) {
    case LOW:
        return s->half;
    case WIDE:
        return TD_DT_F32;
    case FOLLOWS:
        break;
    }
    for (int i = 0; i < n->n_in; i++)
        if (is_shared(n, i)) {
            has_half = has_half || in[i]->type.dtype == s->half;
            has_wide = has_wide || in[i]->type.dtype == TD_DT_F32;
        }
    if (!has_half || !has_wide)
        return TD_DT_NONE;
    return s->level >= TD_AMP_LEVEL_O2 ? s->half : TD_DT_F32;
}

static bool is_free(const td_node *n)
{
    return n->op->tf_op && n->op != &td_op_cast && !td_node_has_effect(n);
}

/* an update of a half weight by a half gradient: only its scalars are float32 */
static bool is_update_of_half(const bool *is_half, const td_node *n)
{
    return n->op == &td_op_sgd && is_half[n->in[0]->id];
}

/* O3: marks every weight that no op needs in float32, and the state of its update */
static void mark_half_params(autocast_state *s, const td_graph *g)
{
    for (int i = 0; i < g->n_values; i++) {
        const td_node *from = g->values[i]->producer;
        s->is_half[i] = from->op == &td_op_param && g->values[i]->type.dtype == TD_DT_F32 &&
                        ((const td_param_attr *)from->attr)->role == TD_ROLE_WEIGHT;
    }
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->op->wide_in >> k & 1)
                s->is_half[g->nodes[i]->in[k]->id] = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == &td_op_sgd)
            s->is_half[n->in[1]->id] = s->is_half[n->in[0]->id];
    }
}

static void emit_leaf(td_rewriter *rw, const autocast_state *s, const td_node *n)
{
    const td_value *v = n->out[0];
    td_type t = s->is_half[v->id] ? td_type_as(&v->type, s->half) : v->type;
    rw->map[v->id] = td_emit_leaf(rw->b, n->op, n->attr, v->name, &t);
}

static void autocast_node(td_rewriter *rw, autocast_state *s, const td_node *n)
{
    td_value *in[TD_IN_MAX];
    if (n->op->is_leaf) {
        emit_leaf(rw, s, n);
        return;
    }
    td_rw_operands(rw, n, in);
    if (!is_free(n)) { /* float32 operands stay float32; half parameters stay half */
        for (int i = 0; i < n->n_in; i++)
            if (!td_is_shape_only(n, i) && !td_value_is_param(n->in[i]) &&
                !is_update_of_half(s->is_half, n))
                in[i] = td_cast_shared(rw, &s->casts, in[i], td_in_type(n, i)->dtype);
        td_rw_copy_with(rw, n, in);
        return;
    }
    td_dtype to = td_build_ok(rw->b) ? target_dtype(s, n, in) : TD_DT_NONE;
    for (int i = 0; i < n->n_in && to != TD_DT_NONE; i++)
        if (is_shared(n, i) && in[i]->type.dtype != TD_DT_F64)
            in[i] = td_cast_shared(rw, &s->casts, in[i], to);
    td_rw_copy_with(rw, n, in);
}

static void autocast_run(td_rewriter *rw)
{
    autocast_state s = { .half = rw->amp ? td_amp_dtype(rw->amp) : TD_DT_F32 };
    if (s.half == TD_DT_F32 || rw->amp->level < TD_AMP_LEVEL_AUTOCAST ||
        rw->amp->level == TD_AMP_LEVEL_O0) {
        td_rw_copy_all(rw);
        return;
    }
    s.level = rw->amp->level;
    s.is_half = td_alloc((size_t)rw->old->n_values + 1, sizeof *s.is_half);
    if (!s.is_half) {
        td_build_fail(rw->b, TD_ENOMEM);
        return;
    }
    if (s.level == TD_AMP_LEVEL_O3)
        mark_half_params(&s, rw->old);
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
        autocast_node(rw, &s, rw->old->nodes[i]);
    for (int i = 0; i < rw->old->n_outputs && td_build_ok(rw->b); i++) {
        const td_value *v = rw->old->outputs[i].value;
        rw->map[v->id] = td_cast_shared(rw, &s.casts, rw->map[v->id], v->type.dtype);
    }
    rw->n_changed = s.casts.n_casts;
    td_cast_cache_release(&s.casts);
    td_free(s.is_half);
}

const td_pass td_pass_autocast = {
    .name = "autocast",
    .summary = "mixed precision decided op by op, as PyTorch and APEX do",
    .counts = "casts",
    .run = autocast_run,
};
