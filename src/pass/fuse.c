/*
 * fuse.c -- fuses neighbouring ops that use the same tensors
 *
 *     batch_norm, relu (or relu6)               -> batch_norm_relu            (with a bit mask)
 *     batch_norm, add, relu                     -> batch_norm_add_relu
 *     relu_grad, batch_norm_grad                -> batch_norm_relu_grad       reads the mask
 *     relu_grad, batch_norm_grad (add variant)  -> batch_norm_add_relu_grad
 *     add, relu_grad, batch_norm_grad (same)    -> batch_norm_add_relu_grad   of two gradients
 *     conv2d_grad_w, cast to f32                -> conv2d_grad_w {wide}       linear_grad_w too
 *     several of them, added, cast to f32       -> the same, added in f32     a shared weight
 *     join_heads, cast to f32                   -> join_heads {wide}
 *     cast from f32, join_heads_grad            -> join_heads_grad {narrow}
 *     normalize, cast to half                   -> normalize {to}
 *     conv2d[_fused], relu (or relu6)           -> conv2d_fused {relu}        relu6 if supported
 *     conv2d[_fused], add, relu                 -> conv2d_fused {relu} with the residual
 *     conv2d[_fused], silu (or hardswish)       -> conv2d_fused {act}         if supported
 *
 * A rule is a row: the op that a pattern ends with, a match function that fills a group, and an
 * emitter.  First all groups are found in the old graph; then nodes are copied, except that a
 * group's members are skipped and its emitter runs at its root: the relu, or the relu_grad.  Nodes
 * that need a result that a group produces later wait for it.
 *
 * This always succeeds, because a group is emitted at its root or (a norm whose residual is older)
 * at its first member: all its operands exist by then, and no node that must precede the root reads
 * its results.  A match that would violate this is rejected.
 */
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct group group;

typedef struct {
    const char *name;
    const td_op *root; /* the op at which a match begins and the group is emitted */
    bool (*match)(const td_uses *u, group *const *of, const td_node *root, group *g);
    void (*emit)(td_rewriter *rw, group *g);
} rule;

struct group {
    const rule *by;
    const td_node *root;
    const td_node *member[3]; /* the norm or conv, then nodes specific to the rule */
    int n_members;
    td_value *residual;     /* old value */
    const td_node *forward; /* the relu of a gradient, in another group */
    const td_node *sum;     /* sum of two gradients, the root's first operand: omitted too */
    td_value *mask;         /* new value, once emitted */
};

/* --- forward ---------------------------------------------------------------------------------- */

static bool one_in_eight(const td_value *v)
{
    return td_type_count(&v->type) % 8 == 0;
}

static bool match_norm_relu(const td_uses *u, group *const *of, const td_node *relu, group *g)
{
    (void)of;
    const td_node *norm = relu->in[0]->producer;
    if (norm->op != &td_op_batch_norm || relu->in[0]->index != 0 ||
        td_uses_only(u, relu->in[0]) != relu || !one_in_eight(relu->in[0]))
        return false;
    g->member[0] = norm;
    g->n_members = 1;
    return true;
}

/* are the batch's statistics used only by running averages before `root`? */
static bool keeps_statistics(const td_uses *u, const td_node *norm, const td_node *root)
{
    for (int k = 1; k < 3; k++) {
        int n;
        const td_node *const *users = td_uses_of(u, norm->out[k], &n);
        for (int i = 0; i < n; i++)
            if (users[i]->n_out && users[i]->id < root->id)
                return false;
    }
    return true;
}

/* the operand of `add` that `op` made and nothing else uses; the other operand is the residual */
static const td_node *main_branch(const td_uses *u, const td_node *add, const td_op *op, group *g)
{
    for (int i = 0; i < 2; i++) {
        const td_node *n = add->in[i]->producer;
        if (n->op == op && add->in[i]->index == 0 && td_uses_only(u, add->in[i]) == add &&
            td_type_same_shape(td_in_type(add, 0), td_in_type(add, 1))) {
            g->residual = add->in[1 - i];
            return n;
        }
    }
    return NULL;
}

static bool match_norm_add_relu(const td_uses *u, group *const *of, const td_node *relu, group *g)
{
    (void)of;
    const td_node *add = relu->in[0]->producer;
    if (add->op != &td_op_add || td_uses_only(u, relu->in[0]) != relu || !one_in_eight(relu->in[0]))
        return false;
    g->member[0] = main_branch(u, add, &td_op_batch_norm, g);
    g->member[1] = add;
    g->n_members = 2;
    return g->member[0] && (g->residual->producer->id < g->member[0]->id ||
                            keeps_statistics(u, g->member[0], relu));
}

static void emit_norm(td_rewriter *rw, group *g)
{
    const td_node *norm = g->member[0];
    const td_op *op = g->residual ? &td_op_batch_norm_add_relu : &td_op_batch_norm_relu;
    td_value *out[TD_OUT_MAX], *in[4] = { 0 };
    td_norm_attr attr = *(const td_norm_attr *)norm->attr;
    for (int i = 0; i < 3; i++)
        in[i] = td_rw_get(rw, norm->in[i]);
    if (g->residual)
        in[3] = td_rw_get(rw, g->residual);
    attr.relu6 = g->root->op == &td_op_relu6;
    td_emit_n(rw->b, op, &attr, op->n_in, in, out);
    td_rw_set(rw, g->root->out[0], out[0]);
    td_rw_set(rw, norm->out[1], out[1]);
    td_rw_set(rw, norm->out[2], out[2]);
    g->mask = out[3];
}

/* --- backward --------------------------------------------------------------------------------- */

/* the batch_norm_grad of `norm` among the users of v */
static const td_node *norm_grad_of(const td_uses *u, const td_value *v, const td_node *norm)
{
    int n;
    const td_node *const *users = td_uses_of(u, v, &n);
    for (int i = 0; i < n; i++)
        if (users[i]->op == &td_op_batch_norm_grad && users[i]->in[0] == v &&
            users[i]->in[1] == norm->in[0] && users[i]->in[2] == norm->in[1] &&
            users[i]->in[3] == norm->out[1] && users[i]->in[4] == norm->out[2])
            return users[i];
    return NULL;
}

/* adds to the group a sum of gradients that only the relu's gradient reads */
static void take_sum(const td_uses *u, const td_node *relu_grad, group *g)
{
    const td_node *add = relu_grad->in[0]->producer;
    if (add->op != &td_op_add || td_uses_only(u, relu_grad->in[0]) != relu_grad ||
        !td_type_equal(td_in_type(add, 0), td_in_type(add, 1)))
        return;
    g->member[g->n_members++] = add;
    g->sum = add;
}

static bool match_norm_grad(const td_uses *u, group *const *of, const td_node *relu_grad, group *g)
{
    const td_node *relu = relu_grad->in[1]->producer;
    group *forward = of[relu->id];
    if (!forward || forward->root != relu || forward->member[0]->op != &td_op_batch_norm)
        return false;
    const td_value *masked = relu_grad->out[0];
    g->member[0] = norm_grad_of(u, masked, forward->member[0]);
    g->forward = relu;
    g->n_members = 1;
    g->residual = forward->residual;
    if (!g->member[0] || !(forward->residual || td_uses_only(u, masked) == g->member[0]))
        return false;
    if (forward->residual)
        take_sum(u, relu_grad, g);
    return true;
}

static void emit_norm_grad(td_rewriter *rw, group *g)
{
    group *const *of = rw->state;
    const td_node *norm_grad = g->member[0];
    const td_op *op = g->residual ? &td_op_batch_norm_add_relu_grad : &td_op_batch_norm_relu_grad;
    td_value *out[TD_OUT_MAX];
    const td_node *dy = g->sum ? g->sum : g->root; /* its operands are the gradients */
    td_value *in[7] = { td_rw_get(rw, dy->in[0]), of[g->forward->id]->mask };
    for (int i = 1; i < 5; i++)
        in[i + 1] = td_rw_get(rw, norm_grad->in[i]);
    if (g->sum)
        in[6] = td_rw_get(rw, g->sum->in[1]);
    td_emit_n(rw->b, op, norm_grad->attr, g->sum ? 7 : 6, in, out);
    for (int i = 0; i < 3; i++)
        td_rw_set(rw, norm_grad->out[i], out[i]);
    if (g->residual)
        td_rw_set(rw, g->root->out[0], out[3]);
}

/* --- float32 gradients of weights ------------------------------------------------------------- */

static bool match_wide(const td_uses *u, group *const *of, const td_node *cast, group *g)
{
    (void)of;
    const td_node *grad = cast->in[0]->producer;
    if ((grad->op != &td_op_conv2d_grad_w && grad->op != &td_op_linear_grad_w) ||
        cast->out[0]->type.dtype != TD_DT_F32 || td_uses_only(u, cast->in[0]) != cast)
        return false;
    g->member[0] = grad;
    g->n_members = 1;
    return true;
}

static void *wide_attr(const td_node *grad, td_conv_attr *conv, td_linear_attr *linear)
{
    *linear = (td_linear_attr){ .wide = true };
    if (grad->op != &td_op_conv2d_grad_w)
        return linear;
    *conv = *(const td_conv_attr *)grad->attr;
    conv->wide = true;
    return conv;
}

static bool has_wide_kernel(const td_target *target, const td_node *grad, void *attr)
{
    td_probe p;
    td_probe_init(&p, grad);
    p.node.attr = attr;
    p.node.out[0]->type.dtype = TD_DT_F32;
    return td_probe_has_kernel(&p, target);
}

/* where there is no such kernel, the cast remains */
static void emit_wide(td_rewriter *rw, group *g)
{
    const td_node *grad = g->member[0];
    td_conv_attr conv;
    td_linear_attr linear;
    td_value *in[3];
    void *attr = wide_attr(grad, &conv, &linear);
    const bool is_wide = has_wide_kernel(rw->target, grad, attr);
    for (int i = 0; i < grad->n_in; i++)
        in[i] = td_rw_get(rw, grad->in[i]);
    td_value *dw = td_emit_n(rw->b, grad->op, is_wide ? attr : grad->attr, grad->n_in, in, NULL);
    td_rw_set(rw, g->root->out[0], is_wide ? dw : td_cast(rw->b, dw, TD_DT_F32));
}

/* --- float32 sums of a shared weight's gradients ---------------------------------------------- */

static bool is_weight_grad(const td_node *n)
{
    return n->op == &td_op_conv2d_grad_w || n->op == &td_op_linear_grad_w;
}

/* the cast to float32 if `v` is only an addend of sums and their result is only cast; otherwise
   NULL */
static const td_node *final_cast(const td_uses *u, const td_value *v)
{
    const td_node *n = td_uses_only(u, v);
    if (!n || n->op != &td_op_add)
        return NULL;
    while (n && n->op == &td_op_add)
        n = td_uses_only(u, n->out[0]);
    return n && n->op == &td_op_cast && n->out[0]->type.dtype == TD_DT_F32 ? n : NULL;
}

static bool is_sum_of_grads(const td_uses *u, const td_value *v)
{
    const td_node *n = v->producer;
    if (!td_uses_only(u, v))
        return false;
    if (n->op == &td_op_add)
        return is_sum_of_grads(u, n->in[0]) && is_sum_of_grads(u, n->in[1]);
    return is_weight_grad(n) && td_dtype_is_half(v->type.dtype);
}

static bool match_addend(const td_uses *u, group *const *of, const td_node *grad, group *g)
{
    (void)of;
    (void)g;
    const td_node *cast = final_cast(u, grad->out[0]);
    return cast && is_sum_of_grads(u, cast->in[0]);
}

static void emit_addend(td_rewriter *rw, group *g)
{
    g->member[0] = g->root;
    emit_wide(rw, g);
}

/* the operands of the new sum are float32 already */
static bool match_sum(const td_uses *u, group *const *of, const td_node *add, group *g)
{
    (void)of;
    (void)g;
    const td_node *next = td_uses_only(u, add->out[0]);
    const td_node *cast = next && next->op == &td_op_cast ? next : final_cast(u, add->out[0]);
    return cast && cast->out[0]->type.dtype == TD_DT_F32 && is_sum_of_grads(u, cast->in[0]);
}

static void emit_sum(td_rewriter *rw, group *g)
{
    const td_node *add = g->root;
    td_rw_set(rw, add->out[0], td_add(rw->b, td_rw_get(rw, add->in[0]), td_rw_get(rw, add->in[1])));
}

static bool match_sum_cast(const td_uses *u, group *const *of, const td_node *cast, group *g)
{
    (void)of;
    (void)g;
    return cast->in[0]->producer->op == &td_op_add && cast->out[0]->type.dtype == TD_DT_F32 &&
           is_sum_of_grads(u, cast->in[0]);
}

static void emit_sum_cast(td_rewriter *rw, group *g)
{
    td_rw_set(rw, g->root->out[0], td_rw_get(rw, g->root->in[0]));
}

/* --- float32 tables of detectors -------------------------------------------------------------- */

static bool match_join(const td_uses *u, group *const *of, const td_node *cast, group *g)
{
    (void)of;
    const td_node *join = cast->in[0]->producer;
    if (join->op != &td_op_join_heads || cast->out[0]->type.dtype != TD_DT_F32 ||
        td_uses_only(u, cast->in[0]) != cast)
        return false;
    g->member[0] = join;
    g->n_members = 1;
    return true;
}

static void emit_join(td_rewriter *rw, group *g)
{
    const td_node *join = g->member[0];
    td_join_attr attr = *(const td_join_attr *)join->attr;
    td_value *in[TD_IN_MAX];
    attr.wide = true;
    for (int i = 0; i < join->n_in; i++)
        in[i] = td_rw_get(rw, join->in[i]);
    td_rw_set(rw, g->root->out[0], td_emit_n(rw->b, join->op, &attr, join->n_in, in, NULL));
}

/* the cast stays for its other readers; without readers it is removed as dead */
static bool match_join_grad(const td_uses *u, group *const *of, const td_node *grad, group *g)
{
    (void)u;
    (void)of;
    (void)g;
    const td_node *cast = grad->in[0]->producer;
    return cast->op == &td_op_cast && cast->in[0]->type.dtype == TD_DT_F32 &&
           td_dtype_is_half(cast->out[0]->type.dtype) &&
           grad->in[1]->type.dtype == cast->out[0]->type.dtype;
}

static void emit_join_grad(td_rewriter *rw, group *g)
{
    const td_node *grad = g->root;
    td_join_attr attr = *(const td_join_attr *)grad->attr;
    td_value *out[TD_OUT_MAX];
    attr.narrow = true;
    td_emit_n(rw->b, grad->op, &attr, 2,
              TD_ARGS(td_rw_get(rw, grad->in[0]->producer->in[0]), td_rw_get(rw, grad->in[1])),
              out);
    for (int i = 0; i < grad->n_out; i++)
        td_rw_set(rw, grad->out[i], out[i]);
}

/* --- images as bytes -------------------------------------------------------------------------- */

static bool match_normalize(const td_uses *u, group *const *of, const td_node *cast, group *g)
{
    (void)of;
    const td_node *normalize = cast->in[0]->producer;
    if (normalize->op != &td_op_normalize || !td_dtype_is_half(cast->out[0]->type.dtype) ||
        normalize->out[0]->type.dtype != TD_DT_F32 || td_uses_only(u, cast->in[0]) != cast)
        return false;
    g->member[0] = normalize;
    g->n_members = 1;
    return true;
}

static void emit_normalize(td_rewriter *rw, group *g)
{
    td_normalize_attr attr = *(const td_normalize_attr *)g->member[0]->attr;
    attr.to = td_normalize_to(g->root->out[0]->type.dtype);
    td_value *x = td_rw_get(rw, g->member[0]->in[0]);
    td_rw_set(rw, g->root->out[0], td_emit(rw->b, &td_op_normalize, &attr, x));
}

/* --- convolutions ----------------------------------------------------------------------------- */

static bool is_open_conv(const td_node *n)
{
    if (n->op == &td_op_conv2d)
        return true;
    return n->op == &td_op_conv2d_fused && n->n_in < 4 && !((const td_conv_attr *)n->attr)->relu &&
           ((const td_conv_attr *)n->attr)->act == TD_CONV_LINEAR;
}

static bool match_conv_relu(const td_uses *u, group *const *of, const td_node *relu, group *g)
{
    (void)of;
    if (!is_open_conv(relu->in[0]->producer) || td_uses_only(u, relu->in[0]) != relu)
        return false;
    g->member[0] = relu->in[0]->producer;
    g->n_members = 1;
    return true;
}

static bool match_conv_add_relu(const td_uses *u, group *const *of, const td_node *relu, group *g)
{
    (void)of;
    const td_node *add = relu->in[0]->producer;
    if (add->op != &td_op_add || td_uses_only(u, relu->in[0]) != relu)
        return false;
    g->member[0] = main_branch(u, add, &td_op_conv2d_fused, g);
    g->member[1] = add;
    g->n_members = 2;
    return g->member[0] && is_open_conv(g->member[0]) && g->member[0]->n_in == 3;
}

static void set_act(const td_op *op, td_conv_attr *attr)
{
    attr->act = op == &td_op_silu        ? TD_CONV_SILU
                : op == &td_op_hardswish ? TD_CONV_HARDSWISH
                                         : TD_CONV_LINEAR;
    attr->relu = attr->act == TD_CONV_LINEAR;
    attr->relu6 = op == &td_op_relu6;
}

static void emit_conv(td_rewriter *rw, group *g)
{
    const td_node *conv = g->member[0];
    td_conv_attr attr = *(const td_conv_attr *)conv->attr;
    td_value *in[4] = { 0 };
    int n_in = conv->n_in;
    set_act(g->root->op, &attr);
    for (int i = 0; i < n_in; i++)
        in[i] = td_rw_get(rw, conv->in[i]);
    if (g->residual)
        in[n_in++] = td_rw_get(rw, g->residual);
    td_rw_set(rw, g->root->out[0], td_emit_n(rw->b, &td_op_conv2d_fused, &attr, n_in, in, NULL));
}

/* not every device's library fuses other activations than relu */
static bool is_supported(const td_target *target, const group *g)
{
    const td_node *conv = g->member[0];
    td_conv_attr attr;
    td_probe p;
    if (g->by->emit != emit_conv || g->root->op == &td_op_relu)
        return true;
    attr = *(const td_conv_attr *)conv->attr;
    set_act(g->root->op, &attr);
    td_probe_init(&p, conv);
    p.node.op = &td_op_conv2d_fused;
    p.node.attr = &attr;
    return td_probe_has_kernel(&p, target);
}

/* clang-format off */
static const rule rules[] = {
    { "norm+add+relu",       &td_op_relu,      match_norm_add_relu, emit_norm },
    { "norm+relu",           &td_op_relu,      match_norm_relu,     emit_norm },
    { "norm+relu6",          &td_op_relu6,     match_norm_relu,     emit_norm },
    { "relu grad+norm grad", &td_op_relu_grad, match_norm_grad,     emit_norm_grad },
    { "relu6 grad+norm grad", &td_op_relu6_grad, match_norm_grad,   emit_norm_grad },
    { "weight gradient+cast", &td_op_cast,     match_wide,          emit_wide },
    { "gradient of several", &td_op_conv2d_grad_w, match_addend,    emit_addend },
    { "sum of gradients",    &td_op_add,       match_sum,           emit_sum },
    { "sum of gradients+cast", &td_op_cast,    match_sum_cast,      emit_sum_cast },
    { "heads+cast",          &td_op_cast,      match_join,          emit_join },
    { "cast+heads grad",     &td_op_join_heads_grad, match_join_grad, emit_join_grad },
    { "normalize+cast",      &td_op_cast,      match_normalize,     emit_normalize },
    { "conv+add+relu",       &td_op_relu,      match_conv_add_relu, emit_conv },
    { "conv+relu",           &td_op_relu,      match_conv_relu,     emit_conv },
    { "conv+relu6",          &td_op_relu6,     match_conv_relu,     emit_conv },
    { "conv+silu",           &td_op_silu,      match_conv_relu,     emit_conv },
    { "conv+hardswish",      &td_op_hardswish, match_conv_relu,     emit_conv },
};
/* clang-format on */

#define N_RULES ((int)(sizeof rules / sizeof rules[0]))

/* --- the pass --------------------------------------------------------------------------------- */

/* of[node id]: the group that a node is a member or the root of */
static bool is_free_group(const td_graph *g, group *const *of, const group *new)
{
    for (int i = 0; i < new->n_members; i++)
        if (of[new->member[i]->id] ||
            td_overwritten_between(g, new->member[i]->id, new->root->id, new->member[i]))
            return false;
    return true;
}

static td_status find_groups(td_rewriter *rw, const td_uses *u, td_arena *arena, group **of)
{
    for (int i = 0; i < rw->old->n_nodes; i++) {
        const td_node *n = rw->old->nodes[i];
        for (int r = 0; r < N_RULES && !of[i]; r++) {
            group g = { .by = &rules[r], .root = n };
            if (n->op != rules[r].root || !rules[r].match(u, of, n, &g) ||
                !is_free_group(rw->old, of, &g) || !is_supported(rw->target, &g))
                continue;
            group *kept = td_arena_alloc(arena, 1, sizeof *kept);
            if (!kept)
                return TD_ENOMEM;
            *kept = g;
            of[i] = kept;
            for (int k = 0; k < g.n_members; k++)
                of[g.member[k]->id] = kept;
            rw->n_changed++;
        }
    }
    return TD_OK;
}

static bool has_operands(const td_rewriter *rw, group *const *of, const td_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        const td_node *from = n->in[i]->producer;
        bool is_inside = of[n->id] && of[n->id] == of[from->id];
        if (!is_inside && !td_rw_get(rw, n->in[i]))
            return false;
    }
    return true;
}

/* can n be emitted, with its whole group if it is a root? */
static bool is_ready(const td_rewriter *rw, group *const *of, const td_node *n)
{
    const group *g = of[n->id];
    for (int i = 0; g && i < g->n_members; i++)
        if (!has_operands(rw, of, g->member[i]))
            return false;
    return has_operands(rw, of, n);
}

static void emit_one(td_rewriter *rw, group *const *of, const td_node *n)
{
    if (of[n->id])
        of[n->id]->by->emit(rw, of[n->id]);
    else
        td_rw_copy(rw, n);
}

/* emit the waiting nodes whose operands exist, in order, until there is none; an update of a
   parameter is never emitted before a waiting node that precedes it */
static int emit_waiting(td_rewriter *rw, group *const *of, const td_node **waiting, int n)
{
    for (int before = n + 1; n < before && td_build_ok(rw->b);) {
        int kept = 0;
        before = n;
        for (int i = 0; i < n; i++)
            if (is_ready(rw, of, waiting[i]) && !(td_node_has_effect(waiting[i]) && kept))
                emit_one(rw, of, waiting[i]);
            else
                waiting[kept++] = waiting[i];
        n = kept;
    }
    return n;
}

static void emit_all(td_rewriter *rw, group *const *of, const td_node **waiting)
{
    int n_waiting = 0;
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        if (of[i] && of[i]->root != n)
            continue;
        if (!is_ready(rw, of, n) || (td_node_has_effect(n) && n_waiting)) {
            waiting[n_waiting++] = n;
            continue;
        }
        emit_one(rw, of, n);
        if (n_waiting)
            n_waiting = emit_waiting(rw, of, waiting, n_waiting);
    }
    if (td_build_ok(rw->b))
        TD_CHECK(n_waiting == 0);
}

static void fuse_run(td_rewriter *rw)
{
    td_uses u = { 0 };
    td_arena arena = { 0 };
    size_t n = (size_t)rw->old->n_nodes + 1;
    group **of = td_alloc(n, sizeof *of);
    const td_node **waiting = td_alloc(n, sizeof *waiting);
    td_status st = of && waiting ? td_uses_init(&u, rw->old) : TD_ENOMEM;

    if (st == TD_OK)
        st = find_groups(rw, &u, &arena, of);
    if (st == TD_OK) {
        rw->state = of;
        emit_all(rw, of, waiting);
    } else {
        td_build_fail(rw->b, st);
    }
    td_uses_release(&u);
    td_arena_release(&arena);
    td_free(of);
    td_free(waiting);
}

const td_pass td_pass_fuse = {
    .name = "fuse",
    .summary = "make one op of neighbours that touch the same memory",
    .counts = "groups fused",
    .run = fuse_run,
};
