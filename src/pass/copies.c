/*
 * copies.c -- lets the update write the half copy of a weight, which replaces the cast in the next
 * step
 *
 *     %c = cast %w                 (or reorder %w {dtype}: another layout too)      ->
 *     ... conv2d %x, %c                 %c = param {role=copy, of=w}
 *     %d = reorder %w                   ... conv2d %x, %c
 *     ... conv2d_grad_x %y, %d          %d = reorder %c
 *     sgd %w, %v, %g, %lr               ... conv2d_grad_x %y, %d
 *                                       sgd %w, %v, %g, %lr, 1, 1, %c       (others likewise)
 *
 * Only the first cast becomes a parameter.  Casts to other layouts are computed from it: storing
 * them too would save little time and, in a ResNet-50, take 49 MB.  Applies only if a kernel can
 * write the copy, and if no node after the update and no graph output reads a cast; otherwise the
 * casts stay.  The program fills a copy after its weight was set.
 */
#include <stdio.h>
#include <string.h>

#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

enum { OPERANDS_MAX = 9 }; /* operands of an update before the copy: td_op_first_copy */

typedef struct {
    const td_node *made_by; /* the first cast; NULL: there is none, or the casts stay */
    bool is_fixed;          /* the casts stay */
    const td_node *update;  /* the one update that writes the weight */
} weight_copies;

typedef struct {
    weight_copies *of; /* [old values] */
    td_value *one;     /* f32 scalar */
} copies_state;

static const td_value *copied_weight(const td_node *n)
{
    bool is_copy = n->n_in && (n->op == &td_op_cast || n->op == &td_op_reorder);
    if (!is_copy || !td_value_is_param(n->in[0]))
        return NULL;
    bool is_narrowing =
        td_in_type(n, 0)->dtype == TD_DT_F32 && td_dtype_is_half(n->out[0]->type.dtype);
    return is_narrowing ? n->in[0] : NULL;
}

static void collect(const td_graph *g, copies_state *s)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (td_op_is_update(n->op) && n->n_in <= td_op_first_copy(n->op))
            s->of[n->in[0]->id].update = n;
        const td_value *w = copied_weight(n);
        if (w && !s->of[w->id].made_by)
            s->of[w->id].made_by = n;
        for (int k = 0; k < n->n_in; k++) /* a read after the update needs the old value */
            if ((w = copied_weight(n->in[k]->producer)) && s->of[w->id].update)
                s->of[w->id].is_fixed = true;
    }
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *w = copied_weight(g->outputs[i].value->producer);
        if (w)
            s->of[w->id].is_fixed = true;
    }
}

/* is there a kernel for an update that writes this copy? */
static bool has_kernel(const td_rewriter *rw, const weight_copies *c)
{
    td_value *in[OPERANDS_MAX + 1];
    td_probe p;
    const int copy = td_op_first_copy(c->update->op);
    for (int i = 0; i < copy; i++) /* inverse and finite are scalars like lr */
        in[i] = c->update->in[i < c->update->n_in ? i : 3];
    in[copy] = c->made_by->out[0];
    td_probe_init_with(&p, c->update, copy + 1, in);
    return rw->target && rw->target->supports(rw->target->ctx, &p.node);
}

static void drop_unsupported(const td_rewriter *rw, copies_state *s)
{
    for (int v = 0; v < rw->old->n_values; v++) {
        weight_copies *c = &s->of[v];
        if (c->made_by && (!c->update || c->is_fixed || !has_kernel(rw, c)))
            c->made_by = NULL;
    }
}

static td_status copies_begin(td_rewriter *rw)
{
    copies_state *s = TD_NEW(copies_state);
    rw->state = s;
    if (!s)
        return TD_ENOMEM;
    TD_TRY(TD_ALLOC(s->of, (size_t)rw->old->n_values + 1));
    collect(rw->old, s);
    drop_unsupported(rw, s);
    return TD_OK;
}

static void copies_end(td_rewriter *rw)
{
    copies_state *s = rw->state;
    if (s)
        td_free(s->of);
    td_free(s);
}

static void emit_first(td_rewriter *rw, const td_node *n)
{
    char name[320];
    td_param_attr attr = { .role = TD_ROLE_COPY, .scale = 1, .of = n->in[0]->name };
    snprintf(name, sizeof name, "copy.%s", n->in[0]->name);
    rw->map[n->out[0]->id] = td_emit_leaf(rw->b, &td_op_param, &attr, name, &n->out[0]->type);
    rw->n_changed++;
}

/* replaces another cast of the weight by the copy in that cast's layout */
static void emit_other(td_rewriter *rw, const td_node *n, const td_node *first)
{
    const td_type *y = &n->out[0]->type, *c = &first->out[0]->type;
    const td_reorder_attr attr = { .layout = y->layout };
    td_value *copy = td_rw_get(rw, first->out[0]);
    if (y->dtype != c->dtype)
        td_rw_copy(rw, n);
    else if (strcmp(y->layout, c->layout) == 0)
        rw->map[n->out[0]->id] = copy;
    else
        rw->map[n->out[0]->id] = td_emit(rw->b, &td_op_reorder, &attr, copy);
}

static void emit_update(td_rewriter *rw, copies_state *s, const td_node *n, td_value **in,
                        const weight_copies *c)
{
    td_constant_attr one = { .value = 1, .type = "f32[]" };
    td_value *all[OPERANDS_MAX + 1];
    const int copy = td_op_first_copy(n->op);
    memcpy(all, in, (size_t)n->n_in * sizeof *all);
    if (n->n_in < copy && !s->one)
        s->one = td_emit_n(rw->b, &td_op_constant, &one, 0, NULL, NULL);
    for (int i = n->n_in; i < copy; i++)
        all[i] = s->one;
    all[copy] = td_rw_get(rw, c->made_by->out[0]);
    td_emit_n(rw->b, n->op, n->attr, copy + 1, all, NULL);
}

static void copies_node(td_rewriter *rw, const td_node *n, td_value **in)
{
    copies_state *s = rw->state;
    const td_value *w = copied_weight(n);
    if (w && s->of[w->id].made_by == n)
        emit_first(rw, n);
    else if (w && s->of[w->id].made_by)
        emit_other(rw, n, s->of[w->id].made_by);
    else if (td_op_is_update(n->op) && s->of[n->in[0]->id].made_by &&
             s->of[n->in[0]->id].update == n)
        emit_update(rw, s, n, in, &s->of[n->in[0]->id]);
    else
        td_rw_copy_with(rw, n, in);
}

const td_pass td_pass_copies = {
    .name = "copies",
    .summary = "half copies of weights are written by the update",
    .counts = "copies kept",
    .node = copies_node,
    .begin = copies_begin,
    .end = copies_end,
};
