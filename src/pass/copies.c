/*
 * copies.c -- half copies of weights are written by the update, not by a cast in the next step
 *
 *     %c = cast %w                 (or reorder %w {dtype}: another layout too)      ->
 *     ... conv2d %x, %c                 %c = param {role=copy, of=w}
 *     sgd %w, %v, %g, %lr               ... conv2d %x, %c
 *                                       sgd %w, %v, %g, %lr, 1, 1, %c
 *
 * Only where some kernel writes them and nobody reads the cast after the update or outside: else
 * the cast stays.  The program fills a copy when its weight was set.
 */
#include <stdio.h>
#include <string.h>

#include "ir/probe.h"
#include "ops/ops.h"
#include "pass/pass.h"

#define COPIES_MAX 2
#define OPERANDS   6 /* of sgd before the copies */

typedef struct {
    const td_node *made_by[COPIES_MAX]; /* the casts */
    int n;
    const td_node *update; /* the one sgd that writes the weight */
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
        if (n->op == &td_op_sgd && n->n_in <= OPERANDS)
            s->of[n->in[0]->id].update = n;
        const td_value *w = copied_weight(n);
        if (w) { /* a third one makes it too many */
            weight_copies *c = &s->of[w->id];
            if (c->n < COPIES_MAX)
                c->made_by[c->n] = n;
            c->n++;
        }
        for (int k = 0; k < n->n_in; k++) /* read when the update was: the old value is wanted */
            if ((w = copied_weight(n->in[k]->producer)) && s->of[w->id].update)
                s->of[w->id].n = COPIES_MAX + 1;
    }
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *w = copied_weight(g->outputs[i].value->producer);
        if (w)
            s->of[w->id].n = COPIES_MAX + 1;
    }
}

/* is there a kernel for the update with these copies? */
static bool has_kernel(const td_rewriter *rw, const weight_copies *c)
{
    td_value *in[OPERANDS + COPIES_MAX];
    td_probe p;
    for (int i = 0; i < OPERANDS; i++) /* inverse and finite are scalars as lr is */
        in[i] = c->update->in[i < c->update->n_in ? i : 3];
    for (int i = 0; i < c->n; i++)
        in[OPERANDS + i] = c->made_by[i]->out[0];
    td_probe_init_with(&p, c->update, OPERANDS + c->n, in);
    return rw->target && rw->target->supports(rw->target->ctx, &p.node);
}

static void drop_unsupported(const td_rewriter *rw, copies_state *s)
{
    for (int v = 0; v < rw->old->n_values; v++)
        if (!s->of[v].update || s->of[v].n > COPIES_MAX || !s->of[v].n ||
            !has_kernel(rw, &s->of[v]))
            s->of[v].n = 0;
}

static td_status copies_begin(td_rewriter *rw)
{
    copies_state *s = TD_NEW(copies_state);
    rw->state = s;
    if (!s)
        return TD_ENOMEM;
    s->of = td_alloc((size_t)rw->old->n_values + 1, sizeof *s->of);
    if (!s->of)
        return TD_ENOMEM;
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

static void emit_copy(td_rewriter *rw, const td_node *n, const weight_copies *c)
{
    char name[320];
    int which = c->made_by[0] == n ? 1 : 2;
    td_param_attr attr = { .role = TD_ROLE_COPY, .scale = 1, .of = n->in[0]->name };
    snprintf(name, sizeof name, "copy%d.%s", which, n->in[0]->name);
    rw->map[n->out[0]->id] = td_emit_leaf(rw->b, &td_op_param, &attr, name, &n->out[0]->type);
    rw->n_changed++;
}

static void emit_update(td_rewriter *rw, copies_state *s, const td_node *n, td_value **in,
                        const weight_copies *c)
{
    td_constant_attr one = { .value = 1, .type = "f32[]" };
    td_value *all[OPERANDS + COPIES_MAX];
    memcpy(all, in, (size_t)n->n_in * sizeof *all);
    if (n->n_in < OPERANDS && !s->one)
        s->one = td_emit_n(rw->b, &td_op_constant, &one, 0, NULL, NULL);
    for (int i = n->n_in; i < OPERANDS; i++)
        all[i] = s->one;
    for (int i = 0; i < c->n; i++)
        all[OPERANDS + i] = td_rw_get(rw, c->made_by[i]->out[0]);
    td_emit_n(rw->b, n->op, n->attr, OPERANDS + c->n, all, NULL);
}

static void copies_node(td_rewriter *rw, const td_node *n, td_value **in)
{
    copies_state *s = rw->state;
    const td_value *w = copied_weight(n);
    if (w && s->of[w->id].n)
        emit_copy(rw, n, &s->of[w->id]);
    else if (n->op == &td_op_sgd && s->of[n->in[0]->id].n && s->of[n->in[0]->id].update == n)
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
