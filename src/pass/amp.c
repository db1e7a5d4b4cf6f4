/*
 * amp.c -- mixed precision: makes casts and half tensors from the propagated types
 *
 *     describe   our graph as a type graph (amp_propagate.h): one vertex for the type T that an
 *                op's float tensors share, one for tensors that stay float32 (U), one for the rest
 *     propagate  TensorFlow's auto_mixed_precision chooses the types
 *     rewrite    nodes are emitted again; an operand whose type differs from the required one gets
 *                a cast, shared by all readers that need the same cast
 *
 * Parameters are unlisted, so they stay float32 (master weights) and are cast when read.  So are
 * inputs.  Outputs of the graph keep their type.  Layouts and fusion come later and need no special
 * cases.  A second run of the pass changes nothing.
 *
 * Levels autocast and O1 to O3 are another policy, applied before the grad pass: autocast.c.
 */
#include "pass/amp.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ops/ops.h"
#include "pass/cast_cache.h"
#include "pass/pass.h"

/* the kinds of vertices that a node may have, in this order; -1 if absent */
enum { T, U, REST, N_KINDS };

typedef struct {
    int vertex[N_KINDS];
} node_vertices;

typedef struct {
    td_amp_lists *lists;
    td_amp_node *nodes; /* [n_nodes + n_outputs] */
    td_amp_vertex *vertices;
    td_amp_edge *edges;
    node_vertices *of;     /* [n_nodes + n_outputs] */
    bool *is_gradient_sum; /* [n_nodes] */
    int n_vertices, n_edges;
    td_amp_propagate_result result;
} propagation;

/* --- precision classes ------------------------------------------------------------------------ */

static bool is_named(const char *list, const char *name)
{
    return td_text_in_list(list, name);
}

/* "conv2d" also means its folded form */
static bool is_op_named(const char *list, const td_op *op)
{
    return is_named(list, op->name) || (op == &td_op_conv2d_fused && is_named(list, "conv2d"));
}

/* one of our names selects one op, a TensorFlow name all ops that correspond to it */
static td_amp class_of(const td_op *op, const td_amp_lists *lists, const td_amp_opts *o)
{
    const struct {
        const char *add, *remove;
        td_amp class;
    } edits[] = { { o->allow_add, o->allow_remove, TD_AMP_ALLOW },
                  { o->infer_add, o->infer_remove, TD_AMP_INFER },
                  { o->deny_add, o->deny_remove, TD_AMP_DENY },
                  { o->clear_add, o->clear_remove, TD_AMP_CLEAR } };
    if (!op->tf_op)
        return TD_AMP_NONE;
    td_amp class = td_amp_lists_class(lists, op->tf_op);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        if (edits[i].class == class && is_op_named(edits[i].remove, op))
            class = TD_AMP_NONE;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        if (is_op_named(edits[i].add, op))
            class = edits[i].class;
    return class;
}

/* --- describe --------------------------------------------------------------------------------- */

/* the type that a node's float tensors share; NONE: it has none */
static td_dtype shared_type(const td_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i) && !(n->op->wide_in >> i & 1) &&
            td_dtype_is_float(td_in_type(n, i)->dtype))
            return td_in_type(n, i)->dtype;
    for (int i = 0; i < n->n_out; i++)
        if (!(n->op->wide_out >> i & 1) && td_dtype_is_float(n->out[i]->type.dtype))
            return n->out[i]->type.dtype;
    return TD_DT_NONE;
}

static int kind_of(const td_node *n, const td_type *t, bool is_wide)
{
    if (!td_dtype_is_float(t->dtype))
        return REST;
    return is_wide || t->dtype != shared_type(n) ? U : T;
}

static int kind_of_in(const td_node *n, int i)
{
    return kind_of(n, td_in_type(n, i), n->op->wide_in >> i & 1);
}

/* the type of a cast's result is independent of its operand's */
static int kind_of_out(const td_node *n, int i)
{
    const td_type *t = &n->out[i]->type;
    if (n->op == &td_op_cast)
        return td_dtype_is_float(t->dtype) ? U : REST;
    return kind_of(n, t, n->op->wide_out >> i & 1);
}

static int add_vertex(propagation *p, int node, td_amp_type type, bool takes_half)
{
    p->vertices[p->n_vertices] = (td_amp_vertex){ .node = node,
                                                  .type = type,
                                                  .type_ok = takes_half,
                                                  .kernel_ok = takes_half,
                                                  .is_fixed = !takes_half };
    return p->n_vertices++;
}

static td_amp_type type_of(td_dtype d)
{
    return d == TD_DT_F32 ? TD_AMP_TYPE_F32 : TD_AMP_TYPE_OTHER;
}

static void describe_vertices(propagation *p, const td_node *n)
{
    td_dtype type[N_KINDS] = { TD_DT_NONE, TD_DT_NONE, TD_DT_NONE };
    node_vertices *of = &p->of[n->id];
    p->nodes[n->id].first_vertex = p->n_vertices;
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i))
            type[kind_of_in(n, i)] = td_in_type(n, i)->dtype;
    bool has_shared_operand = type[T] != TD_DT_NONE || n->n_in == 0;
    for (int i = 0; i < n->n_out; i++)
        type[kind_of_out(n, i)] = n->out[i]->type.dtype;
    /* a node without any type gets a vertex that never changes */
    for (int k = 0; k < N_KINDS; k++) {
        bool is_there =
            type[k] != TD_DT_NONE || (k == REST && p->n_vertices == p->nodes[n->id].first_vertex);
        /* not U of an allow op (a bias): it would be converted, but must stay float32; and not a
           result whose type does not follow an operand (one_hot's) */
        bool takes_half = (k == T && has_shared_operand) || (k == U && n->op == &td_op_cast);
        td_amp_type t = takes_half ? type_of(type[k]) : TD_AMP_TYPE_OTHER;
        of->vertex[k] = is_there ? add_vertex(p, n->id, t, takes_half) : -1;
    }
    p->nodes[n->id].n_vertices = p->n_vertices - p->nodes[n->id].first_vertex;
}

/* Unlike in TensorFlow a cast is never forced: a second run would force the casts of the first */
static uint32_t flags_of(const td_node *n)
{
    if (n->op == &td_op_constant)
        return TD_AMP_IS_CONST;
    if (n->op == &td_op_param)
        return TD_AMP_IS_VARIABLE;
    if (n->op == &td_op_cast)
        return TD_AMP_IS_CAST | TD_AMP_IS_UNFORCED;
    bool is_cross_entropy =
        n->op == &td_op_softmax_cross_entropy || n->op == &td_op_softmax_cross_entropy_grad;
    return is_cross_entropy || td_node_has_effect(n) ? TD_AMP_IS_UNFORCED : 0;
}

static void add_edge(propagation *p, const td_value *v, int to, int to_port)
{
    int from = p->of[v->producer->id].vertex[kind_of_out(v->producer, v->index)];
    p->edges[p->n_edges++] =
        (td_amp_edge){ .from = from, .from_port = v->index, .to = to, .to_port = to_port };
}

/* adds a node that never changes, which represents the reader of the outputs */
static void describe_outputs(propagation *p, const td_graph *g)
{
    for (int i = 0; i < g->n_outputs; i++) {
        int id = g->n_nodes + i;
        const td_value *v = g->outputs[i].value;
        p->nodes[id] = (td_amp_node){ .name = g->outputs[i].name,
                                      .first_vertex = p->n_vertices,
                                      .n_vertices = 1 };
        add_edge(p, v, add_vertex(p, id, type_of(v->type.dtype), false), 0);
    }
}

/* ops that read gradients: optimizers, sums over batches and ranks, the test for finite values */
static bool is_update(const td_node *n)
{
    return td_node_has_effect(n) || n->op == &td_op_accumulate || n->op == &td_op_all_finite;
}

/*
 * A weight used several times has several gradients, and their sum is float32 under every rule: in
 * TensorFlow the gradient of the L2 loss, a deny op, is an addend, so the sum is neither between
 * allow ops nor after one.  Here weight decay is part of the optimizer, so sums that only updates
 * read are found and excluded.
 */
static td_status find_gradient_sums(propagation *p, const td_graph *g)
{
    enum { BY_NOBODY, BY_UPDATES, BY_OTHERS };
    char *is_read = td_alloc((size_t)g->n_values + 1, 1);
    if (!is_read)
        return TD_ENOMEM;
    for (int i = 0; i < g->n_outputs; i++)
        is_read[g->outputs[i].value->id] = BY_OTHERS;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const td_node *n = g->nodes[i];
        p->is_gradient_sum[i] = n->op == &td_op_add && is_read[n->out[0]->id] == BY_UPDATES;
        const char by = p->is_gradient_sum[i] || is_update(n) ? BY_UPDATES : BY_OTHERS;
        for (int k = 0; k < n->n_in; k++)
            if (is_read[n->in[k]->id] < by)
                is_read[n->in[k]->id] = by;
    }
    td_free(is_read);
    return TD_OK;
}

static void describe(propagation *p, const td_graph *g, const td_amp_opts *o)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        bool is_leaf = n->op->is_leaf;
        p->nodes[i] =
            (td_amp_node){ .name = td_node_label(n),
                           .class = class_of(n->op, p->lists, o),
                           .is_eligible = !is_leaf && n->op->tf_op && !p->is_gradient_sum[i],
                           .flags = flags_of(n) };
        describe_vertices(p, n);
        for (int k = 0; k < n->n_in; k++)
            if (!td_is_shape_only(n, k))
                add_edge(p, n->in[k], p->of[i].vertex[kind_of_in(n, k)], k);
    }
    describe_outputs(p, g);
}

static void release(propagation *p)
{
    td_amp_propagate_release(&p->result);
    td_amp_lists_free(p->lists);
    td_free(p->nodes);
    td_free(p->vertices);
    td_free(p->edges);
    td_free(p->of);
    td_free(p->is_gradient_sum);
}

static td_status reserve(propagation *p, const td_graph *g)
{
    size_t n_nodes = (size_t)g->n_nodes + (size_t)g->n_outputs + 1;
    size_t n_edges = (size_t)g->n_outputs + 1;
    for (int i = 0; i < g->n_nodes; i++)
        n_edges += (size_t)g->nodes[i]->n_in;
    p->nodes = td_alloc(n_nodes, sizeof *p->nodes);
    p->vertices = td_alloc(n_nodes * N_KINDS, sizeof *p->vertices);
    p->edges = td_alloc(n_edges, sizeof *p->edges);
    p->of = td_alloc(n_nodes, sizeof *p->of);
    p->is_gradient_sum = td_alloc(n_nodes, sizeof *p->is_gradient_sum);
    return p->nodes && p->vertices && p->edges && p->of && p->is_gradient_sum ? TD_OK : TD_ENOMEM;
}

static td_status propagate(propagation *p, const td_graph *g, const td_amp_opts *o)
{
    td_amp_propagate_opts po = { .rule = (td_amp_rule)o->rule,
                                 .mode = td_amp_mode_of(o),
                                 .level = (td_amp_level)o->level };
    *p = (propagation){ 0 };
    TD_TRY(reserve(p, g));
    TD_TRY(td_amp_lists_of(o, &p->lists));
    TD_TRY(find_gradient_sums(p, g));
    po.conflict = td_amp_lists_conflicts(p->lists, &po.n_conflicts);
    describe(p, g, o);
    td_amp_graph bare = { .nodes = p->nodes,
                          .vertices = p->vertices,
                          .edges = p->edges,
                          .n_nodes = g->n_nodes + g->n_outputs,
                          .n_vertices = p->n_vertices,
                          .n_edges = p->n_edges };
    return td_amp_propagate(&bare, &po, &p->result);
}

/* --- rewrite ---------------------------------------------------------------------------------- */

typedef struct {
    propagation p;
    td_cast_cache casts;
    td_dtype half;
    bool *is_read_wide; /* [old values] half, and some node reads it in float32 */
} amp_state;

static td_dtype propagated_dtype(const amp_state *s, int vertex, td_dtype now)
{
    return vertex >= 0 && s->p.result.is_half[vertex] ? s->half : now;
}

static td_dtype propagated_in(const amp_state *s, const td_node *n, int i)
{
    return propagated_dtype(s, s->p.of[n->id].vertex[kind_of_in(n, i)], td_in_type(n, i)->dtype);
}

static td_dtype propagated_out(const amp_state *s, const td_node *n, int i)
{
    return propagated_dtype(s, s->p.of[n->id].vertex[kind_of_out(n, i)], n->out[i]->type.dtype);
}

/*
 * A cast to float32 is placed right after its operand: a weight's gradient is read only at the end
 * of the step, and until then the half gradient and the operands of the fused op would stay alive.
 */
static void mark_read_wide(amp_state *s, const td_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const td_value *v = g->nodes[i]->in[k];
            if (!td_is_shape_only(g->nodes[i], k) && propagated_in(s, g->nodes[i], k) == TD_DT_F32)
                s->is_read_wide[v->id] = true;
        }
    for (int i = 0; i < g->n_outputs; i++)
        s->is_read_wide[g->outputs[i].value->id] = true;
}

static void amp_node(td_rewriter *rw, amp_state *s, const td_node *n)
{
    td_value *in[TD_IN_MAX], *out[TD_OUT_MAX];
    td_cast_attr to;
    const void *attr = n->attr;
    if (n->op->is_leaf) {
        td_rw_copy(rw, n);
        return;
    }
    td_rw_operands(rw, n, in);
    for (int i = 0; i < n->n_in; i++)
        if (!td_is_shape_only(n, i))
            in[i] = td_cast_shared(rw, &s->casts, in[i], propagated_in(s, n, i));
    if (n->op == &td_op_cast) {
        to = td_cast_attr_of(propagated_out(s, n, 0));
        attr = &to;
    }
    td_emit_n(rw->b, n->op, attr, n->n_in, in, out);
    for (int i = 0; i < n->n_out && td_build_ok(rw->b); i++) {
        if (out[i]->type.dtype != propagated_out(s, n, i))
            td_build_fail(rw->b, td_error(TD_EARG, "%s: result %d is %s, but was assigned %s",
                                          n->op->name, i, td_dtype_name(out[i]->type.dtype),
                                          td_dtype_name(propagated_out(s, n, i))));
        td_rw_set(rw, n->out[i], out[i]);
        td_build_set_layout(rw->b, out[i], n->out[i]->type.layout);
        if (s->is_read_wide[n->out[i]->id] && n->out[i]->type.dtype == TD_DT_F32)
            td_cast_shared(rw, &s->casts, out[i], TD_DT_F32);
    }
}

static void rewrite(td_rewriter *rw, amp_state *s)
{
    const td_graph *g = rw->old;
    s->is_read_wide = td_alloc((size_t)g->n_values + 1, sizeof *s->is_read_wide);
    if (!s->is_read_wide) {
        td_build_fail(rw->b, TD_ENOMEM);
        return;
    }
    mark_read_wide(s, g);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw->b); i++)
        amp_node(rw, s, g->nodes[i]);
    for (int i = 0; i < g->n_outputs && td_build_ok(rw->b); i++) {
        const td_value *v = g->outputs[i].value;
        rw->map[v->id] = td_cast_shared(rw, &s->casts, rw->map[v->id], v->type.dtype);
    }
}

static void log_result(const td_amp_propagate_result *r)
{
    for (int i = 0; i < r->n_messages; i++)
        td_log(r->is_failed ? TD_LOG_WARN : TD_LOG_INFO, "amp", "%s", r->messages[i]);
}

static void amp_run(td_rewriter *rw)
{
    amp_state s = { .half = rw->amp ? td_amp_dtype(rw->amp) : TD_DT_F32 };
    if (s.half == TD_DT_F32 || rw->amp->level > TD_AMP_LEVEL_TREAT_INFER_AS_DENY) {
        td_rw_copy_all(rw);
        return;
    }
    td_status st = propagate(&s.p, rw->old, rw->amp);
    if (st != TD_OK)
        td_build_fail(rw->b, st);
    else {
        if (!rw->amp->is_silent || s.p.result.is_failed)
            log_result(&s.p.result);
        if (s.p.result.is_failed)
            td_rw_copy_all(rw);
        else
            rewrite(rw, &s);
        rw->n_changed = s.p.result.n_converted;
    }
    td_free(s.is_read_wide);
    td_cast_cache_release(&s.casts);
    release(&s.p);
}

const td_pass td_pass_amp = {
    .name = "amp",
    .summary = "mixed precision: casts where the painted graph changes type",
    .counts = "types converted",
    .run = amp_run,
};

/* --- reports ---------------------------------------------------------------------------------- */

static const td_node *node_of(const propagation *p, const td_graph *g, int vertex)
{
    int id = vertex >= 0 ? p->vertices[vertex].node : -1;
    return id >= 0 && id < g->n_nodes ? g->nodes[id] : NULL;
}

static void fill_row(const propagation *p, const td_graph *g, int i, td_amp_row *row)
{
    const td_amp_propagate_result *r = &p->result;
    const int *vertex = p->of[i].vertex;
    int v = vertex[T] >= 0 ? vertex[T] : vertex[U];
    *row = (td_amp_row){ .node = g->nodes[i],
                         .class = p->nodes[i].class,
                         .colour = ' ',
                         .is_gradient_sum = p->is_gradient_sum[i] };
    if (v < 0)
        return;
    row->colour = r->colour[v];
    row->is_half = r->is_half[v];
    row->step = r->step[v];
    row->cause = node_of(p, g, r->source[v]);
}

static void count_casts(const propagation *p, td_amp_explanation *e)
{
    const td_amp_propagate_result *r = &p->result;
    for (int c = 0; c < r->n_casts; c++) {
        int node = p->vertices[r->casts[c].vertex].node;
        if (r->casts[c].is_to_half)
            e->rows[node].casts_to_half++;
        else
            e->rows[node].casts_to_wide++;
    }
}

td_status td_amp_explain(const td_graph *g, const td_amp_opts *opts, td_amp_explanation *out)
{
    td_status st = TD_OK;
    propagation p = { 0 };
    *out = (td_amp_explanation){ 0 };
    TD_OUT(propagate(&p, g, opts));
    out->rows = td_alloc((size_t)g->n_nodes + 1, sizeof *out->rows);
    if (!out->rows) {
        st = TD_ENOMEM;
        goto out;
    }
    out->n_rows = g->n_nodes;
    for (int i = 0; i < g->n_nodes; i++)
        fill_row(&p, g, i, &out->rows[i]);
    count_casts(&p, out);
    out->n_converted = p.result.n_converted;
    out->n_casts = p.result.n_casts;
    out->n_casts_to_half = p.result.n_casts_counted;
    out->is_failed = p.result.is_failed;
    if (p.result.n_messages)
        snprintf(out->message, sizeof out->message, "%s",
                 p.result.messages[p.result.n_messages - 1]);
out:
    release(&p);
    return st;
}

void td_amp_explanation_release(td_amp_explanation *e)
{
    td_free(e->rows);
    *e = (td_amp_explanation){ 0 };
}
