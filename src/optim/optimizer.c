/*
 * optimizer.c -- emits the nodes after the loss of a training step
 */
#include "optim/optimizer.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "ir/rewrite.h"
#include "ops/ops.h"
#include "optim/freeze.h"

static td_role role_of(const td_value *v)
{
    return (td_role)((const td_param_attr *)v->producer->attr)->role;
}

static bool is_trained(const td_step_opts *o, const td_value *v)
{
    return role_of(v) == TD_ROLE_WEIGHT && !td_is_frozen(o->frozen, td_value_name(v));
}

/*
 * A state parameter with the type of `v`, initialized to zeros; its name is `prefix` + the name of
 * `v`.
 */
static td_value *state_param(td_builder *b, const char *prefix, const td_value *v)
{
    char name[320];
    const td_type t = td_value_type(v);
    snprintf(name, sizeof name, "%s%s", prefix, td_value_name(v));
    return td_param(b, name, t.dtype, t.rank, t.dim, "role=momentum");
}

bool td_optimizer_is_adam(td_optimizer o)
{
    return o == TD_OPTIMIZER_ADAM || o == TD_OPTIMIZER_ADAMW || o == TD_OPTIMIZER_LAMB;
}

/* --- which weights are decayed ---------------------------------------------------------------- */

bool td_is_undecayed(const char *name)
{
    return strstr(name, "bn") != NULL;
}

/*
 * [loss->id + 1], by value id: is it scale or shift of a norm?  Visits all values that `loss`
 * depends on.
 */
static bool *find_norms(td_builder *b, const td_value *loss)
{
    const size_t n = (size_t)loss->id + 1;
    bool *is_norm = td_alloc(n, sizeof *is_norm), *is_seen = td_alloc(n, sizeof *is_seen);
    const td_value **stack = td_alloc(n, sizeof *stack);
    size_t depth = 0;
    if (!is_norm || !is_seen || !stack) {
        td_build_fail(b, TD_ENOMEM);
    } else {
        stack[depth++] = loss;
        is_seen[loss->id] = true;
    }
    while (depth) {
        const td_node *from = stack[--depth]->producer;
        for (int i = 0; i < from->n_in; i++) {
            const td_value *v = from->in[i];
            if ((from->op == &td_op_batch_norm || from->op == &td_op_layer_norm) &&
                (i == 1 || i == 2))
                is_norm[v->id] = true;
            if (!is_seen[v->id])
                stack[depth++] = v;
            is_seen[v->id] = true;
        }
    }
    td_free(is_seen);
    td_free(stack);
    return is_norm;
}

static bool is_decayed(const td_step_opts *o, const bool *is_norm, const td_value *w)
{
    if (o->decays_norms)
        return true;
    if (o->decay_rule == TD_DECAY_KERNELS)
        return w->type.rank > 1;
    return o->decay_rule == TD_DECAY_README ? !is_norm[w->id] : !td_is_undecayed(td_value_name(w));
}

static bool is_embedding(const char *last)
{
    static const char *const names[] = { "class_token", "position_embedding", "pos_embedding",
                                         "relative_position_bias_table" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(last, names[i]) == 0)
            return true;
    return false;
}

/* The decay of a weight, in the order of torchvision's groups; *decays: is it a decayed weight? */
static double decay_of(const td_step_opts *o, const bool *is_norm, const td_value *w, bool *decays)
{
    const td_special_decay *special = &o->special;
    const char *name = td_value_name(w), *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    double decay = o->decay;
    *decays = true;
    if (special->bias.is_given && strcmp(last, "bias") == 0)
        decay = special->bias.decay;
    else if (special->embedding.is_given && is_embedding(last))
        decay = special->embedding.decay;
    else if (special->norm.is_given && is_norm[w->id])
        decay = special->norm.decay;
    else {
        *decays = is_decayed(o, is_norm, w);
        return *decays ? decay : 0;
    }
    *decays = decay > 0;
    return decay;
}

/* --- updates ---------------------------------------------------------------------------------- */

/* Are limits to be applied, for which all gradients must be known? */
static bool clips_norm(const td_step_opts *o)
{
    return o->clip_norm > 0 || (o->optimizer == TD_OPTIMIZER_LAMB && o->lamb_norm > 0);
}

/* Operands of the updates of a step.  NULL: not used in this step. */
typedef struct {
    td_builder *b;
    const td_step_opts *o;
    const bool *is_norm;
    td_value *lr, *inverse, *rest1, *rest2;
    td_value *guard;                               /* operand of updates; 0: nothing is written */
    td_value *update;                              /* with several batches: 1 on the last */
    td_value *keep, *share, *before, *before_rest; /* factors of the averages */
} step;

static void average(const step *s, td_value *v, td_value *avg, bool of_before, td_value *guard)
{
    td_emit(s->b, &td_op_ema, NULL, v, avg, of_before ? s->before : s->keep,
            of_before ? s->before_rest : s->share, guard);
}

static void emit_rmsprop(const step *s, td_value *w, td_value *grad, double decay)
{
    const td_step_opts *o = s->o;
    const td_rmsprop_attr a = {
        .momentum = o->momentum, .decay = decay, .alpha = o->alpha, .eps = o->eps
    };
    td_value *v = state_param(s->b, TD_MOMENTUM_PREFIX, w);
    td_emit(s->b, &td_op_rmsprop, &a, w, v, grad, s->lr, state_param(s->b, TD_SQUARE_PREFIX, w),
            s->inverse, s->guard);
}

/* Adam, AdamW, LAMB */
static void emit_adam(const step *s, td_value *w, td_value *grad, double decay)
{
    const td_step_opts *o = s->o;
    const td_adam_attr a = { .beta1 = o->beta1,
                             .beta2 = o->beta2,
                             .eps = o->eps,
                             .decay = decay,
                             .decoupled = o->optimizer == TD_OPTIMIZER_ADAMW };
    td_value *m = state_param(s->b, TD_MEAN_PREFIX, w);
    td_emit(s->b, o->optimizer == TD_OPTIMIZER_LAMB ? &td_op_lamb : &td_op_adam, &a, w, m, grad,
            s->lr, state_param(s->b, TD_MEAN_SQ_PREFIX, w), s->rest1, s->rest2, s->inverse,
            s->guard);
}

static void emit_sgd(const step *s, td_value *w, td_value *grad, double decay)
{
    const td_sgd_attr a = { .momentum = s->o->momentum,
                            .decay = decay,
                            .nesterov = s->o->nesterov };
    td_emit(s->b, &td_op_sgd, &a, w, state_param(s->b, TD_MOMENTUM_PREFIX, w), grad, s->lr,
            s->inverse, s->guard);
}

static void emit_update(const step *s, td_value *w, td_value *grad)
{
    const td_step_opts *o = s->o;
    bool decays;
    const double decay = decay_of(o, s->is_norm, w, &decays);
    if (o->optimizer == TD_OPTIMIZER_RMSPROP)
        emit_rmsprop(s, w, grad, decay);
    else if (td_optimizer_is_adam(o->optimizer))
        emit_adam(s, w, grad, decay);
    else
        emit_sgd(s, w, grad, decay);
    if (o->groups && !decays)
        o->groups->n_undecayed++;
    else if (o->groups && td_map_set(&o->groups->decayed, td_value_name(w), w) != TD_OK)
        td_build_fail(s->b, TD_ENOMEM);
}

/* Values computed from a gradient.  With one batch per step `sum` is NULL. */
typedef struct {
    td_value *sum;   /* parameter: sum over the step's previous batches */
    td_value *kept;  /* the new sum, kept unless the step ends */
    td_value *total; /* operand of the update: sum over all ranks */
} gradient;

/*
 * Add the gradient to the sum of the step's previous batches, if any, and over ranks.  Ranks
 * exchange sums once per step; with sums_in_order once per batch, so that batches are added in the
 * same order with any number of ranks.
 */
static gradient summed_gradient(const step *s, td_value *sum, td_value *grad)
{
    const td_all_reduce_attr each = { .always = true };
    gradient g = { .sum = sum, .kept = grad };
    if (sum && s->o->ranks > 1 && s->o->sums_in_order) {
        g.kept = td_emit(s->b, &td_op_all_reduce, &each, grad, s->update, sum);
        g.total = g.kept;
        return g;
    }
    if (sum)
        g.kept = td_emit(s->b, &td_op_accumulate, NULL, sum, grad);
    g.total = s->o->ranks < 2 ? g.kept
              : sum           ? td_emit(s->b, &td_op_all_reduce, NULL, g.kept, s->update)
                              : td_emit(s->b, &td_op_all_reduce, NULL, g.kept);
    return g;
}

static td_value *number(const step *s, double x)
{
    const td_constant_attr a = { .value = x,
                                 .type = s->lr->type.dtype == TD_DT_F64 ? "f64[]" : "f32[]" };
    return td_emit_n(s->b, &td_op_constant, &a, 0, NULL, NULL);
}

/* min(1, limit / x) */
static td_value *limit_factor(const step *s, double limit, td_value *x)
{
    td_value *share = td_emit(s->b, &td_op_div, NULL, number(s, limit), x);
    return td_emit(s->b, &td_op_min, NULL, share, number(s, 1));
}

/*
 * The norm of all gradients, and limits for it: updates multiply gradients by `inverse`, so the
 * limits cost no pass over memory.  PyTorch's clip_grad_norm_ adds 1e-6 to the norm; LAMB, which
 * limits what is left, does not.
 */
static void limit_norm(step *s, const gradient *grads, int n)
{
    td_builder *b = s->b;
    td_value *norm = NULL, *rest = NULL;
    s->inverse = s->inverse ? s->inverse : number(s, 1);
    for (int i = 0; i < n && td_build_ok(b); i++)
        if (grads[i].total)
            norm = td_emit(b, &td_op_grad_norm, NULL, grads[i].total, s->inverse, norm);
    if (!norm || !td_build_ok(b))
        return;
    td_output(b, TD_OUTPUT_NORM, norm);
    rest = norm;
    if (s->o->clip_norm > 0) {
        td_value *factor = limit_factor(s, s->o->clip_norm, td_add(b, norm, number(s, 1e-6)));
        s->inverse = td_mul(b, s->inverse, factor);
        rest = td_mul(b, norm, factor);
    }
    if (s->o->optimizer == TD_OPTIMIZER_LAMB && s->o->lamb_norm > 0)
        s->inverse = td_mul(b, s->inverse, limit_factor(s, s->o->lamb_norm, rest));
}

static void update(const step *s, td_value *w, gradient g)
{
    step clipped = *s;
    td_value *avg = s->o->averages ? state_param(s->b, TD_EMA_PREFIX, w) : NULL;
    if (avg && s->before)
        average(s, w, avg, true, s->guard);
    if (s->o->clip_value > 0) {
        const td_limit_grad_attr a = { s->o->clip_value };
        clipped.inverse = number(s, 1);
        g.total = td_emit(s->b, &td_op_limit_grad, &a, g.total,
                          s->inverse ? s->inverse : clipped.inverse);
    }
    emit_update(&clipped, w, g.total);
    if (g.sum)
        td_emit(s->b, &td_op_carry, NULL, w, g.sum, g.kept, s->update);
    if (avg)
        average(s, w, avg, false, s->guard);
}

/* Emit each gradient and then its update, after which its memory is free. */
static void add_plain(const step *s, td_value *loss)
{
    const int n = td_build_param_count(s->b);
    for (int i = 0; i < n && td_build_ok(s->b); i++) {
        td_value *w = td_build_param(s->b, i);
        if (!is_trained(s->o, w))
            continue;
        td_value *sum = s->o->accumulates ? state_param(s->b, TD_SUM_PREFIX, w) : NULL;
        update(s, w, summed_gradient(s, sum, td_gradient(s->b, loss, w)));
    }
}

/* Emit all gradients, then their norm, then the updates. */
static void add_clipped(step *s, td_value *loss)
{
    td_builder *b = s->b;
    const int n = td_build_param_count(b);
    gradient *grad = td_alloc((size_t)n + 1, sizeof *grad);
    if (!grad) {
        td_build_fail(b, TD_ENOMEM);
        return;
    }
    for (int i = 0; i < n && td_build_ok(b); i++) {
        td_value *w = td_build_param(b, i);
        if (!is_trained(s->o, w))
            continue;
        td_value *sum = s->o->accumulates ? state_param(b, TD_SUM_PREFIX, w) : NULL;
        grad[i] = summed_gradient(s, sum, td_gradient(b, loss, w));
    }
    limit_norm(s, grad, n);
    for (int i = 0; i < n && td_build_ok(b); i++)
        if (grad[i].total)
            update(s, td_build_param(b, i), grad[i]);
    td_free(grad);
}

/*
 * Emit all gradients of the scaled loss, the tests whether they are finite, then the updates.  The
 * loss is tested too: without a finite loss there is no update, even with finite gradients.  With
 * several batches the sums are tested: a sum with an infinity or NaN stays non-finite.
 */
static void add_scaled(step *s, td_value *loss)
{
    td_builder *b = s->b;
    const int n = td_build_param_count(b);
    gradient *grad = td_alloc((size_t)n + 1, sizeof *grad), of_loss = { .total = loss };
    td_value *scaled =
        td_mul(b, loss, td_input(b, TD_INPUT_SCALE, td_type_scalar(s->lr->type.dtype)));
    td_value *losses = NULL;
    if (!grad) {
        td_build_fail(b, TD_ENOMEM);
        return;
    }
    if (s->o->accumulates) {
        const td_type t = td_value_type(loss);
        losses = td_param(b, TD_SUM_PREFIX "loss", t.dtype, t.rank, t.dim, "role=momentum");
    }
    of_loss = summed_gradient(s, losses, loss);
    s->guard = td_emit(b, &td_op_all_finite, NULL, of_loss.total, s->update);
    for (int i = 0; i < n && td_build_ok(b); i++) {
        td_value *w = td_build_param(b, i);
        if (!is_trained(s->o, w))
            continue;
        td_value *sum = s->o->accumulates ? state_param(b, TD_SUM_PREFIX, w) : NULL;
        grad[i] = summed_gradient(s, sum, td_gradient(b, scaled, w));
        s->guard = td_emit(b, &td_op_all_finite, NULL, grad[i].total, s->guard);
    }
    if (clips_norm(s->o))
        limit_norm(s, grad, n);
    for (int i = 0; i < n && td_build_ok(b); i++)
        if (grad[i].total)
            update(s, td_build_param(b, i), grad[i]);
    if (losses)
        td_emit(b, &td_op_carry, NULL, of_loss.kept, losses, of_loss.kept, s->update);
    td_output(b, TD_OUTPUT_FINITE, s->guard);
    td_free(grad);
}

static void average_statistics(const step *s)
{
    const int n = td_build_param_count(s->b);
    for (int i = 0; i < n && td_build_ok(s->b); i++) {
        td_value *v = td_build_param(s->b, i);
        if (role_of(v) == TD_ROLE_STAT)
            average(s, v, state_param(s->b, TD_EMA_PREFIX, v), false, NULL);
    }
}

void td_optimizer_emit(td_builder *b, td_value *loss, td_value *lr, const td_step_opts *o)
{
    const td_type scalar = td_type_scalar(lr->type.dtype);
    bool *is_norm = td_build_ok(b) ? find_norms(b, loss) : NULL;
    step s = { .b = b, .o = o, .is_norm = is_norm, .lr = lr };
    if (!td_build_ok(b)) {
        td_free(is_norm);
        return;
    }
    if (o->is_scaled || o->accumulates || o->ranks > 1)
        s.inverse = td_input(b, TD_INPUT_INVERSE, scalar);
    if (o->accumulates)
        s.guard = s.update = td_input(b, TD_INPUT_UPDATE, scalar);
    if (td_optimizer_is_adam(o->optimizer)) {
        s.rest1 = td_input(b, TD_INPUT_REST1, scalar);
        s.rest2 = td_input(b, TD_INPUT_REST2, scalar);
    }
    if (o->averages) {
        s.keep = td_input(b, TD_INPUT_EMA_KEEP, scalar);
        s.share = td_input(b, TD_INPUT_EMA_SHARE, scalar);
    }
    if (o->averages && o->accumulates) {
        s.before = td_input(b, TD_INPUT_EMA_BEFORE, scalar);
        s.before_rest = td_input(b, TD_INPUT_EMA_REST, scalar);
    }
    if (o->is_scaled)
        add_scaled(&s, loss);
    else if (clips_norm(o))
        add_clipped(&s, loss);
    else
        add_plain(&s, loss);
    if (o->averages && !o->is_scaled)
        average_statistics(&s);
    td_free(is_norm);
}

/* --- running statistics with loss scaling ----------------------------------------------------- */

static bool is_statistics(const td_node *n)
{
    return n->op == &td_op_batch_norm_update;
}

/* Operands of the guarded nodes, in the new graph. */
typedef struct {
    td_rewriter *rw;
    const td_step_opts *o;
    td_value *finite, *update, *keep, *share;
} guard;

static td_value *input_of(const guard *s, const char *name)
{
    return td_rw_get(s->rw, td_graph_find(s->rw->old, name));
}

/* One batch per step: the update is executed only if the step is applied. */
static void guard_one(const guard *s, const td_node *n)
{
    td_value *in[TD_IN_MAX];
    td_rw_operands(s->rw, n, in);
    in[n->n_in] = s->finite;
    td_emit_n(s->rw->b, n->op, n->attr, n->n_in + 1, in, NULL);
    for (int i = 0; i < 2 && s->o->averages; i++)
        td_emit(s->rw->b, &td_op_ema, NULL, in[i], state_param(s->rw->b, TD_EMA_PREFIX, in[i]),
                s->keep, s->share, s->finite);
}

/*
 * Several batches per step: updates go to pending statistics; the last batch commits or discards
 * them.
 */
static void guard_several(const guard *s, const td_node *n)
{
    td_builder *b = s->rw->b;
    td_value *in[TD_IN_MAX], *stat[2];
    td_rw_operands(s->rw, n, in);
    for (int i = 0; i < 2; i++) {
        stat[i] = in[i];
        in[i] = state_param(b, TD_PENDING_PREFIX, stat[i]);
    }
    td_emit_n(b, n->op, n->attr, n->n_in, in, NULL);
    for (int i = 0; i < 2 && td_build_ok(b); i++) {
        if (s->o->averages) {
            td_value *avg = state_param(b, TD_EMA_PREFIX, stat[i]);
            td_value *pending = state_param(b, TD_PENDING_PREFIX, avg);
            td_emit(b, &td_op_ema, NULL, in[i], pending, s->keep, s->share);
            td_emit(b, &td_op_commit, NULL, avg, pending, s->update, s->finite);
        }
        td_emit(b, &td_op_commit, NULL, stat[i], in[i], s->update, s->finite);
    }
}

/*
 * The forward part updates running statistics before it is known whether the step is applied: move
 * those nodes to the end, where `finite` is available as their operand.
 */
td_status td_optimizer_guard_statistics(const td_graph *g, const td_step_opts *o, td_graph **out)
{
    td_rewriter rw = { .old = g, .b = td_build_begin() };
    guard s = { .rw = &rw, .o = o };
    rw.map = td_alloc((size_t)g->n_values + 1, sizeof *rw.map);
    if (!rw.map)
        td_build_fail(rw.b, TD_ENOMEM);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++)
        if (!is_statistics(g->nodes[i]))
            td_rw_copy(&rw, g->nodes[i]);
    if (td_build_ok(rw.b)) {
        s.finite = td_rw_get(&rw, td_graph_output_value(g, TD_OUTPUT_FINITE));
        s.update = o->accumulates ? input_of(&s, TD_INPUT_UPDATE) : NULL;
        s.keep = o->averages ? input_of(&s, TD_INPUT_EMA_KEEP) : NULL;
        s.share = o->averages ? input_of(&s, TD_INPUT_EMA_SHARE) : NULL;
    }
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++)
        if (is_statistics(g->nodes[i]) && o->accumulates)
            guard_several(&s, g->nodes[i]);
        else if (is_statistics(g->nodes[i]))
            guard_one(&s, g->nodes[i]);
    for (int i = 0; i < g->n_outputs && td_build_ok(rw.b); i++)
        td_output(rw.b, g->outputs[i].name, td_rw_get(&rw, g->outputs[i].value));
    td_free(rw.map);
    return td_build_end(rw.b, out);
}

/* --- the value of weight decay ---------------------------------------------------------------- */

td_status td_l2_loss(td_program *p, const td_decay_groups *groups, double decay, double *out)
{
    double sum = 0;
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type t = td_program_param_type(p, i);
        if (!td_map_has(&groups->decayed, name))
            continue;
        const int64_t n = td_type_count(&t);
        float *w = td_alloc((size_t)n, sizeof *w);
        if (!w)
            return TD_ENOMEM;
        const td_status st = td_program_get(p, name, w);
        for (int64_t k = 0; st == TD_OK && k < n; k++)
            sum += (double)w[k] * (double)w[k];
        td_free(w);
        TD_TRY(st);
    }
    *out = 0.5 * decay * sum;
    return TD_OK;
}
