/*
 * gates.c -- squeeze-excite layers in few passes over memory, where the target has kernels for that
 *
 *     %p = mul %x, %gate               ->    %y = gated_add %x, %g, %z {relu}
 *     %s = add %p, %z                        the gate [N, C] as a vector
 *     %y = relu %s
 *
 *     %d = add %d1, %d2                ->    %dz, %dg = gated_add_relu_grad %d1, %y, %x, %d2
 *     %dz = relu_grad %d, %y                 {wide}, if %dz and %x are cast to float32 for the sum
 *     %dgate = mul_reduce %dz, %x, ...
 *
 *     %m = global_avg_pool_grad %ds    ->    %dx = gated_add %dz, %g, %ds {by = 1 / (H W)}
 *     %h = cast %m
 *     %p = mul %dz, %gate
 *     %dx = add %p, %h
 *
 *     %w = cast %x                     ->    %s = global_avg_pool %x {wide}, or, if %s is only cast
 *     %s = global_avg_pool %w                back to half, without wide: the same bits
 *
 *     %m = global_avg_pool_grad %ds    ->    %h = global_avg_pool_grad %ds {narrow}, or without it,
 *     %h = cast %m                           of what %ds was cast from
 *
 * A rule is emitted at its last node; those of relu_grad and of means, there.  Sums stay float32,
 * as mixed precision wants them; only the float32 copies of images are gone.
 */
#include "ir/match.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef enum { NO_RULE, SUM, SUM_GRAD, IMAGE_GRAD, MEAN, MEAN_GRAD } rule;

/* the nodes of a match; the root is where it is emitted.  MEAN's cast follows it, or is NULL */
typedef struct {
    rule by;
    const td_node *mul, *add; /* in an IMAGE_GRAD, `add` is the root */
    const td_node *reduce;    /* SUM_GRAD only */
    const td_node *mean,
        *cast;             /* of IMAGE_GRAD and MEAN_GRAD; the cast of the former may be NULL */
    const td_value *image; /* of MEAN, and of MEAN_GRAD for its shape: half */
    const td_value *ds;    /* of IMAGE_GRAD and MEAN_GRAD: what the mean's gradient reads */
    const td_value *z;     /* of SUM */
} match;

typedef struct {
    const td_graph *g;
    td_uses uses;
    match *at;       /* [nodes] of roots */
    bool *is_member; /* [nodes] it is emitted with a root */
} state;

/* --- products with gates ---------------------------------------------------------------------- */

/* the operand of `mul` that has one number for each channel of each image; -1: none */
static int gate_of(const td_node *mul)
{
    const td_type *y = &mul->out[0]->type;
    if (mul->op != &td_op_mul || y->rank != 4 || y->dim[2] * y->dim[3] == 1)
        return -1;
    for (int i = 0; i < 2; i++) {
        const td_type *gate = td_in_type(mul, i);
        if (gate->rank == 4 && gate->dim[0] == y->dim[0] && gate->dim[1] == y->dim[1] &&
            gate->dim[2] * gate->dim[3] == 1 && td_type_same_shape(td_in_type(mul, 1 - i), y))
            return i;
    }
    return -1;
}

static const td_value *image_of(const td_node *mul)
{
    return mul->in[1 - gate_of(mul)];
}

/* the operand of `add` that is such a product, which nothing else reads; -1: none */
static int product_of(const state *s, const td_node *add)
{
    for (int i = 0; add->op == &td_op_add && i < 2; i++)
        if (gate_of(add->in[i]->producer) >= 0 && td_uses_only(&s->uses, add->in[i]) == add)
            return i;
    return -1;
}

static bool match_sum(const state *s, const td_node *relu, match *m)
{
    const td_node *add = relu->in[0]->producer;
    const int i = product_of(s, add);
    if (i < 0 || td_uses_only(&s->uses, relu->in[0]) != relu ||
        !td_type_equal(td_in_type(add, 0), td_in_type(add, 1)))
        return false;
    *m = (match){ .by = SUM, .mul = add->in[i]->producer, .add = add, .z = add->in[1 - i] };
    return true;
}

/* --- gradients -------------------------------------------------------------------------------- */

static bool is_widening(const td_node *cast)
{
    return cast->op == &td_op_cast && cast->out[0]->type.dtype == TD_DT_F32 &&
           td_dtype_is_half(td_in_type(cast, 0)->dtype);
}

/* what `v` was cast from, for a node that reads it instead; v itself where that is not possible */
static const td_value *before_cast(const state *s, const td_value *v, const td_node *reader)
{
    const td_node *cast = v->producer;
    return is_widening(cast) && !td_overwritten_between(s->g, cast->id, reader->id, cast)
               ? cast->in[0]
               : v;
}

/* the reader of dz that sums dz times the image of `mul` to the shape of its gate; or NULL */
static const td_node *reduce_of(const state *s, const td_value *dz, const td_node *mul)
{
    int n;
    const td_node *const *users = td_uses_of(&s->uses, dz, &n);
    for (int i = 0; i < n; i++) {
        const td_node *u = users[i];
        if (is_widening(u))
            u = td_uses_only(&s->uses, u->out[0]);
        if (u && u->op == &td_op_mul_reduce && before_cast(s, u->in[0], u) == dz &&
            before_cast(s, u->in[1], u) == image_of(mul) &&
            td_type_same_shape(&u->out[0]->type, td_in_type(mul, gate_of(mul))))
            return u;
    }
    return NULL;
}

static bool match_sum_grad(const state *s, const td_node *relu_grad, match *m)
{
    const td_node *relu = relu_grad->in[1]->producer, *sum = relu_grad->in[0]->producer;
    const match *forward = &s->at[relu->id];
    if (relu->op != &td_op_relu || forward->by != SUM)
        return false;
    *m = (match){ .by = SUM_GRAD,
                  .mul = forward->mul,
                  .reduce = reduce_of(s, relu_grad->out[0], forward->mul) };
    if (sum->op == &td_op_add && !s->is_member[sum->id] && s->at[sum->id].by == NO_RULE &&
        td_uses_only(&s->uses, relu_grad->in[0]) == relu_grad &&
        td_type_equal(td_in_type(sum, 0), td_in_type(sum, 1)))
        m->add = sum;
    return m->reduce != NULL;
}

/* is v a mean's gradient, or a cast of one, that only `user` reads? */
static bool match_mean_grad(const state *s, const td_value *v, const td_node *user, match *m)
{
    const td_node *n = v->producer;
    if (td_uses_only(&s->uses, v) != user)
        return false;
    m->cast = n->op == &td_op_cast ? n : NULL;
    m->mean = m->cast ? n->in[0]->producer : n;
    if (m->mean->op != &td_op_global_avg_pool_grad)
        return false;
    m->ds = before_cast(s, m->mean->in[0], user);
    if (m->ds->type.dtype != v->type.dtype)
        m->ds = m->mean->in[0];
    return (!m->cast || td_uses_only(&s->uses, n->in[0]) == n) &&
           (m->mean->out[0]->type.dtype == TD_DT_F32 ||
            m->mean->out[0]->type.dtype == v->type.dtype);
}

static bool match_image_grad(const state *s, const td_node *add, match *m)
{
    const int i = product_of(s, add);
    if (i < 0 || !td_type_equal(td_in_type(add, 0), td_in_type(add, 1)) ||
        !match_mean_grad(s, add->in[1 - i], add, m))
        return false;
    m->by = IMAGE_GRAD;
    m->add = add;
    m->mul = add->in[i]->producer;
    return true;
}

/* --- means of half images --------------------------------------------------------------------- */

/* the cast stays for its other readers; without readers it is removed as dead */
static bool match_mean(const state *s, const td_node *mean, match *m)
{
    const td_node *user = td_uses_only(&s->uses, mean->out[0]);
    m->by = MEAN;
    m->image = before_cast(s, mean->in[0], mean);
    if (user && user->op == &td_op_cast && user->out[0]->type.dtype == m->image->type.dtype)
        m->cast = user;
    return m->image != mean->in[0];
}

static bool match_narrow_grad(const state *s, const td_node *cast, match *m)
{
    const td_dtype half = cast->out[0]->type.dtype;
    int n;
    const td_node *const *users = td_uses_of(&s->uses, cast->out[0], &n);
    match other = { 0 };
    if (n == 1 && users[0]->op == &td_op_add && match_image_grad(s, users[0], &other))
        return false;
    m->by = MEAN_GRAD;
    m->cast = cast;
    m->mean = cast->in[0]->producer;
    if (m->mean->op != &td_op_global_avg_pool_grad)
        return false;
    m->image = before_cast(s, m->mean->in[1], cast);
    m->ds = before_cast(s, m->mean->in[0], cast);
    if (m->ds->type.dtype != half)
        m->ds = m->mean->in[0];
    return td_dtype_is_half(half) && m->mean->out[0]->type.dtype == TD_DT_F32 &&
           td_uses_only(&s->uses, cast->in[0]) == cast && m->image->type.dtype == half;
}

/* --- all matches ------------------------------------------------------------------------------ */

static bool find(const state *s, const td_node *n, match *m)
{
    if (n->op == &td_op_relu)
        return match_sum(s, n, m);
    if (n->op == &td_op_relu_grad)
        return match_sum_grad(s, n, m);
    if (n->op == &td_op_add)
        return match_image_grad(s, n, m);
    if (n->op == &td_op_global_avg_pool)
        return match_mean(s, n, m);
    return n->op == &td_op_cast && match_narrow_grad(s, n, m);
}

/* can `member` be emitted at `root`, and does no other match emit it? */
static bool is_free(const state *s, const td_node *root, const td_node *member)
{
    const int first = member->id < root->id ? member->id : root->id;
    const int last = member->id < root->id ? root->id : member->id;
    return !s->is_member[member->id] && (member == root || s->at[member->id].by == NO_RULE) &&
           !td_overwritten_between(s->g, first, last, member);
}

static void find_matches(state *s)
{
    for (int i = 0; i < s->g->n_nodes; i++) {
        const td_node *root = s->g->nodes[i];
        match m = { 0 };
        if (s->is_member[i] || !find(s, root, &m))
            continue;
        const td_node *member[] = { m.by == SUM_GRAD ? NULL : m.mul, m.add, m.reduce, m.mean,
                                    m.cast };
        bool is_possible = true;
        for (int k = 0; k < 5; k++)
            is_possible = is_possible && (!member[k] || is_free(s, root, member[k]));
        for (int k = 0; is_possible && k < 5; k++)
            if (member[k] && member[k] != root)
                s->is_member[member[k]->id] = true;
        if (is_possible)
            s->at[i] = m;
    }
}

/* --- the new graph ---------------------------------------------------------------------------- */

static td_value *as_vector(td_rewriter *rw, const td_value *v)
{
    const td_node *from = v->producer;
    if (from->op == &td_op_reshape && td_in_type(from, 0)->rank == 2 &&
        td_in_type(from, 0)->dim[1] == v->type.dim[1])
        return td_rw_get(rw, from->in[0]);
    return td_reshape(rw->b, td_rw_get(rw, v), 2, v->type.dim);
}

static td_value *emit_gated(td_rewriter *rw, const td_node *mul, td_value *z, td_gated_attr attr)
{
    return td_emit(rw->b, &td_op_gated_add, &attr, td_rw_get(rw, image_of(mul)),
                   as_vector(rw, mul->in[gate_of(mul)]), z);
}

static void emit_sum_grad(td_rewriter *rw, const td_node *relu_grad, const match *m)
{
    td_value *out[2];
    td_value *in[] = { td_rw_get(rw, m->add ? m->add->in[0] : relu_grad->in[0]),
                       td_rw_get(rw, relu_grad->in[1]), td_rw_get(rw, image_of(m->mul)),
                       m->add ? td_rw_get(rw, m->add->in[1]) : NULL };
    const td_gated_grad_attr attr = { .wide = m->reduce->out[0]->type.dtype !=
                                              relu_grad->out[0]->type.dtype };
    td_emit_n(rw->b, &td_op_gated_add_relu_grad, &attr, m->add ? 4 : 3, in, out);
    td_rw_set(rw, relu_grad->out[0], out[0]);
    td_rw_set(rw, m->reduce->out[0], td_reshape(rw->b, out[1], 4, m->reduce->out[0]->type.dim));
}

static void emit_match(td_rewriter *rw, const td_node *root, const match *m)
{
    const td_type *y = &root->out[0]->type;
    td_value *out = NULL;
    const td_global_pool_attr pool = { .wide = m->by == MEAN && !m->cast,
                                       .narrow = m->by == MEAN_GRAD && m->ds == m->mean->in[0] };
    if (m->by == SUM_GRAD)
        emit_sum_grad(rw, root, m);
    else if (m->by == SUM)
        out = emit_gated(rw, m->mul, td_rw_get(rw, m->z), (td_gated_attr){ .relu = true, .by = 1 });
    else if (m->by == IMAGE_GRAD)
        out = emit_gated(rw, m->mul, td_rw_get(rw, m->ds),
                         (td_gated_attr){ .by = 1 / (double)(y->dim[2] * y->dim[3]) });
    else if (m->by == MEAN)
        out = td_emit(rw->b, root->op, &pool, td_rw_get(rw, m->image));
    else
        out = td_emit(rw->b, m->mean->op, &pool, td_rw_get(rw, m->ds), td_rw_get(rw, m->image));
    if (out)
        td_rw_set(rw, root->out[0], out);
    if (m->by == MEAN && m->cast)
        td_rw_set(rw, m->cast->out[0], out);
    rw->n_changed++;
}

static void emit_all(td_rewriter *rw, const state *s)
{
    for (int i = 0; i < s->g->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = s->g->nodes[i];
        if (s->at[i].by != NO_RULE)
            emit_match(rw, n, &s->at[i]);
        else if (!s->is_member[i])
            td_rw_copy(rw, n);
    }
}

static void gates_run(td_rewriter *rw)
{
    const size_t n = (size_t)rw->old->n_nodes + 1;
    state s = { .g = rw->old };
    if (!rw->target || !rw->target->fuses_gates) {
        td_rw_copy_all(rw);
        return;
    }
    td_status st = td_uses_init(&s.uses, rw->old);
    s.at = td_alloc(n, sizeof *s.at);
    s.is_member = td_alloc(n, sizeof *s.is_member);
    if (st == TD_OK && s.at && s.is_member) {
        find_matches(&s);
        emit_all(rw, &s);
    } else {
        td_build_fail(rw->b, st == TD_OK ? TD_ENOMEM : st);
    }
    td_uses_release(&s.uses);
    td_free(s.at);
    td_free(s.is_member);
}

const td_pass td_pass_gates = {
    .name = "gates",
    .summary = "make one op of products with gates and the sums around them, on GPUs",
    .counts = "groups fused",
    .run = gates_run,
};
