/*
 * layout.c -- chooses memory layouts for the whole graph
 *
 * The target gives the layouts that each convolution's fastest kernel prefers (ir/target.h); ops
 * between convolutions use the layout of their operands.  A parameter has the layout of its first
 * convolution, and so do its momentum and gradient: plain order is used only in files and at the
 * graph's inputs and outputs.  The weight of a linear_fused is chosen in the same way; its other
 * operands are plain.  If a reader needs another layout, a reorder is inserted, shared by
 * all readers that need the same one.
 *
 *     plain images -> [conv wants aBcd16b out] -> norm, relu follow -> conv takes aBcd16b -> ...
 *
 * In mixed precision a convolution reads a half copy of its weight, and the library prefers other
 * layouts for that than for the float32 gradient.  The parameter gets the gradient's layout, which
 * the same convolution would prefer in float32; one op (see clean.c) converts and reorders the
 * copy.
 *
 * A transposition reads its operand in the layout it has, if there is a kernel.  Between channels
 * last and [N, H, W, C] it becomes a transpose_view, which moves nothing; convolutions that read or
 * write such images prefer channels last.
 *
 * A FOLLOWS op without a kernel for the layout gets plain order.  A node that reads a mask in
 * memory order (op.h, memory_order) must have the layout in which the mask was made.  A graph that
 * already has layouts is unchanged, except for outputs.
 */
#include <string.h>

#include "ir/match.h"
#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

typedef struct variant variant;
struct variant {
    variant *next;
    td_value *value; /* the reordered copy */
};

typedef struct {
    td_node_layouts *preferred_layout; /* [old nodes] */
    bool *has_preferred;               /* [old nodes] */
    const char **param;                /* [old values] layout of a parameter, NULL: plain */
    variant **variants;                /* [new values, grown] */
    size_t cap_variants;
    td_uses uses;
    td_arena arena;
} layout_state;

/* --- preferred layouts ------------------------------------------------------------------------ */

static bool is_forward_conv(const td_node *n)
{
    return n->op == &td_op_conv2d || n->op == &td_op_conv2d_fused ||
           n->op == &td_op_conv2d_statistics || n->op == &td_op_conv2d_int8;
}

/* nodes that are asked before any value has a layout */
static bool is_asked_first(const td_node *n)
{
    return is_forward_conv(n) || n->op == &td_op_linear_fused;
}

/* is there a kernel for exactly the preferred layouts?  They are only the library's fastest */
static bool is_supported_layout(const td_rewriter *rw, const td_node *n, const td_node_layouts *w)
{
    td_probe p;
    td_probe_init(&p, n);
    td_probe_set_layouts(&p, w);
    return rw->target->supports(rw->target->ctx, &p.node);
}

/* is a transposition to rows of pixels among the readers of v? */
static bool is_read_last(const td_uses *u, const td_value *v)
{
    int n;
    const td_node *const *users = td_uses_of(u, v, &n);
    for (int i = 0; i < n; i++)
        if (td_transpose_is(users[i], TD_PERM_TO_LAST))
            return true;
    return n == 1 && users[0]->op == &td_op_bias_add && users[0]->in[0] == v &&
           is_read_last(u, users[0]->out[0]);
}

/* Do transpositions surround the convolution?  With channels last they move nothing. */
static bool is_among_rows(const td_uses *u, const td_node *conv)
{
    return td_transpose_is(conv->in[0]->producer, TD_PERM_TO_FIRST) ||
           is_read_last(u, conv->out[0]);
}

/* the layouts of a convolution with channels last */
static bool query_last(const td_rewriter *rw, const td_node *conv, td_node_layouts *out)
{
    td_probe p;
    td_probe_init(&p, conv);
    memcpy(p.node.in[0]->type.layout, TD_CHANNELS_LAST, sizeof TD_CHANNELS_LAST);
    memcpy(p.node.out[0]->type.layout, TD_CHANNELS_LAST, sizeof TD_CHANNELS_LAST);
    return rw->target->preferred_layout(rw->target->ctx, &p.node, out) &&
           strcmp(out->out, TD_CHANNELS_LAST) == 0 && is_supported_layout(rw, conv, out);
}

/*
 * Queries the preferences of forward convolutions before any value has a layout.  Gradients are
 * queried later, in query_gradient, when their operands have layouts: otherwise they would prefer
 * other layouts than the forward pass chose, and large activations would be reordered back and
 * forth.
 */
static void query_forward(td_rewriter *rw, layout_state *s)
{
    for (int i = 0; i < rw->old->n_nodes; i++) {
        const td_node *n = rw->old->nodes[i];
        if (is_asked_first(n) && rw->target)
            s->has_preferred[i] =
                (is_forward_conv(n) && is_among_rows(&s->uses, n) &&
                 query_last(rw, n, &s->preferred_layout[i])) ||
                (rw->target->preferred_layout(rw->target->ctx, n, &s->preferred_layout[i]) &&
                 is_supported_layout(rw, n, &s->preferred_layout[i]));
    }
}

/*
 * the parameter that a convolution reads, directly or through a cast; NULL: the filter is not a
 * parameter.  The weight of a linear layer keeps its layout if it is cast: nothing else reads it.
 */
static const td_value *filter_param(const td_node *conv)
{
    const td_value *w = conv->in[1];
    if (w->producer->op == &td_op_cast && is_forward_conv(conv))
        w = w->producer->in[0];
    return td_value_is_param(w) ? w : NULL;
}

/* the layout that a convolution would prefer for its filter if it ran in the parameter's dtype */
static const char *preferred_in(td_rewriter *rw, layout_state *s, const td_node *n, td_dtype d)
{
    td_probe p;
    td_node_layouts preferred_layout = { 0 };
    td_probe_init(&p, n);
    for (int i = 0; i < n->n_in + n->n_out; i++)
        p.value[i].type.dtype = d;
    if (!rw->target->preferred_layout(rw->target->ctx, &p.node, &preferred_layout))
        return NULL;
    return td_arena_text(&s->arena, preferred_layout.in[1]);
}

static bool is_written(const td_graph *g, const td_value *param)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == param && (g->nodes[i]->op->writes >> k & 1))
                return true;
    return false;
}

/* the layout that winograd_filter prefers for a parameter that it reads in every step, or NULL */
static const char *preferred_for_tiles(td_rewriter *rw, layout_state *s, const td_node *n)
{
    td_node_layouts preferred = { 0 };
    if (!td_value_is_param(n->in[0]) || !is_written(rw->old, n->in[0]) || !rw->target ||
        !rw->target->preferred_layout(rw->target->ctx, n, &preferred))
        return NULL;
    return td_arena_text(&s->arena, preferred.in[0]);
}

/* convolutions choose the layouts of the parameters that they read */
static void choose_params(td_rewriter *rw, layout_state *s)
{
    const td_graph *g = rw->old;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == &td_op_winograd_filter && !s->param[n->in[0]->id])
            s->param[n->in[0]->id] = preferred_for_tiles(rw, s, n);
        const td_value *w = s->has_preferred[i] ? filter_param(n) : NULL;
        if (w && !s->param[w->id])
            s->param[w->id] = w == n->in[1] ? s->preferred_layout[i].in[1]
                                            : preferred_in(rw, s, n, w->type.dtype);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        for (int k = 1; n->op->writes && k < n->n_in; k++)
            if ((n->op->writes >> k & 1) && n->in[k]->type.rank == n->in[0]->type.rank)
                s->param[n->in[k]->id] = s->param[n->in[0]->id];
    }
}

/* --- reorders --------------------------------------------------------------------------------- */

static td_value *reordered(td_rewriter *rw, td_value *v, const char *layout)
{
    layout_state *s = rw->state;
    if (!td_build_ok(rw->b) || strcmp(v->type.layout, layout) == 0)
        return v;
    size_t had = s->cap_variants;
    td_status st =
        td_reserve(&s->variants, &s->cap_variants, (size_t)v->id + 1, sizeof *s->variants);
    variant *new = st == TD_OK ? td_arena_alloc(&s->arena, 1, sizeof *new) : NULL;
    if (!new) {
        td_build_fail(rw->b, TD_ENOMEM);
        return v;
    }
    if (s->cap_variants > had)
        memset(s->variants + had, 0, (s->cap_variants - had) * sizeof *s->variants);
    for (const variant *old = s->variants[v->id]; old; old = old->next)
        if (strcmp(old->value->type.layout, layout) == 0)
            return old->value;

    td_reorder_attr attr = { .layout = layout };
    new->value = td_emit(rw->b, &td_op_reorder, &attr, v);
    td_build_set_layout(rw->b, new->value, layout);
    new->next = s->variants[v->id];
    s->variants[v->id] = new;
    rw->n_changed++;
    return new->value;
}

/* --- one node --------------------------------------------------------------------------------- */

/* does a kernel support old node n with these operands and results in `layout`? */
static bool supported(const td_rewriter *rw, const td_node *n, td_value **in, const char *layout)
{
    td_probe p;
    if (!rw->target)
        return false;
    td_probe_init_with(&p, n, n->n_in, in);
    for (int i = 0; i < n->n_out; i++) {
        td_type *t = &p.node.out[i]->type;
        memset(t->layout, 0, sizeof t->layout);
        if (t->rank == in[0]->type.rank || (i == 0 && n->op->layout == TD_LAYOUT_CHOOSES))
            memcpy(t->layout, layout, strlen(layout) + 1);
    }
    return rw->target->supports(rw->target->ctx, &p.node);
}

static void emit_preferred(td_rewriter *rw, const td_node *n, td_value **in,
                           const td_node_layouts *w)
{
    td_value *out[TD_OUT_MAX];
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i))
            in[i] = reordered(rw, in[i], w->in[i]);
    td_emit_n(rw->b, n->op, n->attr, n->n_in, in, out);
    td_build_set_layout(rw->b, out[0], w->out);
    for (int i = 0; i < n->n_out; i++)
        td_rw_set(rw, n->out[i], out[i]);
}

static void emit_plain(td_rewriter *rw, const td_node *n, td_value **in)
{
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i))
            in[i] = reordered(rw, in[i], "");
    td_rw_copy_with(rw, n, in);
}

/* the layout that the operands of a FOLLOWS op, those of operand 0's rank, should share */
static const char *shared_layout(const td_node *n, td_value **in)
{
    if (n->op->writes)
        return in[0]->type.layout;
    for (int i = 0; i < n->n_in; i++)
        if (n->op->memory_order >> i & 1)
            return td_memory_order(in[i]);
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i) && in[i]->type.rank == in[0]->type.rank &&
            !td_type_is_plain(&in[i]->type))
            return in[i]->type.layout;
    return "";
}

static bool fits(const td_value *v, const char *layout)
{
    td_type t = v->type;
    td_blocking bl;
    memcpy(t.layout, layout, strlen(layout) + 1);
    return td_type_blocking(&t, &bl);
}

static bool follows(const td_node *n, td_value **in, int i)
{
    return in[i]->type.rank == in[0]->type.rank && !td_is_shape_only(n, i) &&
           !(n->op->own_layout >> i & 1);
}

/* can all operands that must share `layout` have it, and are the others plain? */
static bool can_share(const td_node *n, td_value **in, const char *layout)
{
    for (int i = 0; i < n->n_in; i++)
        if (follows(n, in, i) ? !fits(in[i], layout)
                              : !td_is_shape_only(n, i) && !td_type_is_plain(&in[i]->type))
            return false;
    return true;
}

static void emit_follower(td_rewriter *rw, const td_node *n, td_value **in)
{
    td_value *same[TD_IN_MAX];
    if (!td_build_ok(rw->b))
        return;
    const char *layout = shared_layout(n, in);
    bool can = layout[0] && can_share(n, in, layout);
    for (int i = 0; i < n->n_in; i++)
        same[i] = can && follows(n, in, i) ? reordered(rw, in[i], layout) : in[i];
    if (!td_build_ok(rw->b))
        return;
    if (can && supported(rw, n, same, layout))
        td_rw_copy_with(rw, n, same);
    else if (n->op->memory_order && layout[0])
        td_build_fail(rw->b, td_error(TD_ENOKERNEL,
                                      "%s: its mask has layout '%s', which no kernel supports",
                                      n->op->name, layout));
    else
        emit_plain(rw, n, in);
}

/* queries gradients, once their operands have layouts */
static bool query_gradient(td_rewriter *rw, const td_node *n, td_value **in, td_node_layouts *out)
{
    td_node probe = *n;
    probe.in = in;
    return rw->target && td_build_ok(rw->b) &&
           rw->target->preferred_layout(rw->target->ctx, &probe, out) &&
           is_supported_layout(rw, &probe, out);
}

/* emits a gradient whose first result has the type of its last operand, which is shape-only; the
   result gets that operand's layout if there is a kernel */
static void emit_chooser(td_rewriter *rw, const td_node *n, td_value **in)
{
    const char *layout = in[n->n_in - 1]->type.layout;
    td_value *out[TD_OUT_MAX];
    if (!td_is_shape_only(n, n->n_in - 1) || !layout[0] || !supported(rw, n, in, layout)) {
        emit_plain(rw, n, in);
        return;
    }
    td_emit_n(rw->b, n->op, n->attr, n->n_in, in, out);
    td_build_set_layout(rw->b, out[0], layout);
    for (int i = 0; i < n->n_out; i++)
        td_rw_set(rw, n->out[i], out[i]);
}

/* reads its operand in the layout it has, if there is a kernel, and its result is plain */
static void emit_reader(td_rewriter *rw, const td_node *n, td_value **in)
{
    if (td_build_ok(rw->b) && supported(rw, n, in, ""))
        td_rw_copy_with(rw, n, in);
    else
        emit_plain(rw, n, in);
}

/* between channels last and [N, H, W, C] nothing moves: true if n was emitted as a view */
static bool emit_view(td_rewriter *rw, const td_node *n, td_value **in)
{
    if (n->op != &td_op_transpose || !td_build_ok(rw->b))
        return false;
    const char *from = in[0]->type.layout;
    const bool is_view = (td_transpose_is(n, TD_PERM_TO_FIRST) && !from[0]) ||
                         (td_transpose_is(n, TD_PERM_TO_LAST) && !strcmp(from, TD_CHANNELS_LAST));
    if (is_view)
        td_rw_set(rw, n->out[0], td_emit(rw->b, &td_op_transpose_view, n->attr, in[0]));
    return is_view;
}

static void emit_leaf(td_rewriter *rw, layout_state *s, const td_node *n)
{
    td_type type = n->out[0]->type;
    const char *layout = s->param[n->out[0]->id];
    if (layout && td_type_is_plain(&type))
        memcpy(type.layout, layout, strlen(layout) + 1);
    rw->map[n->out[0]->id] = td_emit_leaf(rw->b, n->op, n->attr, n->out[0]->name, &type);
}

static void emit_node(td_rewriter *rw, layout_state *s, const td_node *n)
{
    td_value *in[TD_IN_MAX];
    td_node_layouts preferred_layout;
    td_rw_operands(rw, n, in);
    if (n->op->is_leaf)
        emit_leaf(rw, s, n);
    else if (n->op == &td_op_reorder)
        td_rw_copy_with(rw, n, in);
    else if (s->has_preferred[n->id])
        emit_preferred(rw, n, in, &s->preferred_layout[n->id]);
    else if (n->op->layout == TD_LAYOUT_FOLLOWS && n->n_in)
        emit_follower(rw, n, in);
    else if (emit_view(rw, n, in))
        return;
    else if (n->op == &td_op_winograd_filter || n->op == &td_op_transpose)
        emit_reader(rw, n, in);
    else if (n->op->layout == TD_LAYOUT_CHOOSES && !is_asked_first(n) &&
             query_gradient(rw, n, in, &preferred_layout))
        emit_preferred(rw, n, in, &preferred_layout);
    else if (n->op->layout == TD_LAYOUT_CHOOSES && !is_asked_first(n))
        emit_chooser(rw, n, in);
    else
        emit_plain(rw, n, in);
}

/* reorders the graph's outputs to plain order */
static void plain_outputs(td_rewriter *rw)
{
    for (int i = 0; i < rw->old->n_outputs && td_build_ok(rw->b); i++) {
        const td_value *v = rw->old->outputs[i].value;
        rw->map[v->id] = reordered(rw, rw->map[v->id], "");
    }
}

static td_status state_init(td_rewriter *rw, layout_state *s)
{
    size_t n_nodes = (size_t)rw->old->n_nodes + 1, n_values = (size_t)rw->old->n_values + 1;
    *s = (layout_state){ 0 };
    s->preferred_layout = td_alloc(n_nodes, sizeof *s->preferred_layout);
    s->has_preferred = td_alloc(n_nodes, sizeof *s->has_preferred);
    s->param = td_alloc(n_values, sizeof *s->param);
    if (!s->preferred_layout || !s->has_preferred || !s->param)
        return TD_ENOMEM;
    return td_uses_init(&s->uses, rw->old);
}

/* did this pass run already, or did the graph's text give layouts? */
static bool has_layouts(const td_graph *g)
{
    for (int i = 0; i < g->n_values; i++)
        if (!td_type_is_plain(&g->values[i]->type))
            return true;
    return false;
}

static void layout_run(td_rewriter *rw)
{
    layout_state s;
    td_status st = state_init(rw, &s);
    rw->state = &s;
    if (st == TD_OK) {
        bool is_chosen = has_layouts(rw->old);
        if (!is_chosen) {
            query_forward(rw, &s);
            choose_params(rw, &s);
        }
        for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
            if (is_chosen)
                td_rw_copy(rw, rw->old->nodes[i]);
            else
                emit_node(rw, &s, rw->old->nodes[i]);
        plain_outputs(rw);
    } else {
        td_build_fail(rw->b, st);
    }
    td_free(s.preferred_layout);
    td_free(s.has_preferred);
    td_free((void *)s.param);
    td_free(s.variants);
    td_uses_release(&s.uses);
    td_arena_release(&s.arena);
}

const td_pass td_pass_layout = {
    .name = "layout",
    .summary = "choose memory layouts for the whole graph",
    .counts = "reorders",
    .run = layout_run,
};
