/*
 * rewrite.c -- copies nodes from an old graph into a new one
 */
#include "ir/rewrite.h"

#include <ctype.h>
#include <string.h>

td_value *td_rw_get(const td_rewriter *rw, const td_value *old)
{
    return rw->map[old->id];
}

void td_rw_set(td_rewriter *rw, const td_value *old, td_value *new)
{
    rw->map[old->id] = new;
    bool is_number = old->name[strspn(old->name, "0123456789")] == '\0';
    if (!is_number && td_build_ok(rw->b) && !new->name[0])
        td_build_set_name(rw->b, new, old->name);
}

void td_rw_operands(const td_rewriter *rw, const td_node *n, td_value **in)
{
    for (int i = 0; i < n->n_in; i++)
        in[i] = td_rw_get(rw, n->in[i]);
}

void td_rw_copy(td_rewriter *rw, const td_node *n)
{
    td_value *in[TD_IN_MAX];
    td_rw_operands(rw, n, in);
    td_rw_copy_with(rw, n, in);
}

void td_rw_copy_all(td_rewriter *rw)
{
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++)
        td_rw_copy(rw, rw->old->nodes[i]);
}

void td_rw_copy_with(td_rewriter *rw, const td_node *n, td_value *const *in)
{
    if (n->op->is_leaf) {
        const td_value *v = n->out[0];
        rw->map[v->id] = td_emit_leaf(rw->b, n->op, n->attr, v->name, &v->type);
        return;
    }
    td_value *out[TD_OUT_MAX];
    td_emit_n(rw->b, n->op, n->attr, n->n_in, in, out);
    for (int i = 0; i < n->n_out; i++) {
        td_rw_set(rw, n->out[i], out[i]);
        if (n->op->layout == TD_LAYOUT_CHOOSES)
            td_build_set_layout(rw->b, out[i], n->out[i]->type.layout);
    }
}
