/*
 * head.c -- finds and resizes the last layer of a graph
 */
#include "model/head.h"

#include "base/arena.h"
#include "ir/build.h"
#include "ops/ops.h"

static bool is_passed_over(const td_op *op)
{
    return op == &td_op_global_avg_pool || op == &td_op_relu;
}

/* is it a parameter with k rows and a single use? */
static bool is_own_param(const td_value *v, int64_t k)
{
    return td_value_is_param(v) && v->n_uses == 1 && v->type.rank > 0 && v->type.dim[0] == k;
}

static td_status no_head(const td_value *logits)
{
    return td_error(TD_ESHAPE,
                    "its logits have %lld classes and are not computed by a linear layer, or by "
                    "conv2d and global_avg_pool, with parameters used nowhere else",
                    (long long)logits->type.dim[1]);
}

td_status td_head_find(const td_graph *g, td_head *out)
{
    const td_value *logits = td_graph_output_value(g, "logits"), *v = logits;
    *out = (td_head){ NULL, NULL };
    if (!v || v->type.rank != 2)
        return td_error(TD_ESHAPE, "the graph has no output 'logits' of two dimensions");
    const int64_t k = v->type.dim[1];
    while (is_passed_over(v->producer->op))
        v = v->producer->in[0];
    const td_node *n = v->producer;
    const bool is_linear = n->op == &td_op_linear;
    if (!is_linear && n->op != &td_op_conv2d)
        return no_head(logits);
    const td_value *bias = is_linear && n->n_in > 2 ? n->in[2] : NULL;
    if (!is_own_param(n->in[1], k) || (bias && !is_own_param(bias, k)))
        return no_head(logits);
    *out = (td_head){ n->in[1], bias };
    return TD_OK;
}

static void copy_node(td_builder *b, const td_node *n, const td_head *head, int classes,
                      td_value **map)
{
    td_value *in[TD_IN_MAX], *out[TD_OUT_MAX] = { 0 };
    for (int i = 0; i < n->n_in; i++)
        in[i] = map[n->in[i]->id];
    if (n->op == &td_op_input || n->op == &td_op_param) {
        const td_value *v = n->out[0];
        td_type type = v->type;
        if (v == head->weight || v == head->bias)
            type.dim[0] = classes;
        map[v->id] = td_emit_leaf(b, n->op, n->attr, v->name, &type);
        return;
    }
    td_emit_n(b, n->op, n->attr, n->n_in, in, out);
    for (int i = 0; i < n->n_out; i++) {
        map[n->out[i]->id] = out[i];
        td_build_set_name(b, out[i], n->out[i]->name);
    }
}

td_status td_head_resize(const td_graph *g, int classes, td_graph **out)
{
    td_head head;
    *out = NULL;
    TD_TRY(td_head_find(g, &head));
    td_value **map = td_alloc((size_t)g->n_values + 1, sizeof *map);
    td_builder *b = map ? td_build_begin() : NULL;
    if (!b) {
        td_free(map);
        return TD_ENOMEM;
    }
    for (int i = 0; i < g->n_nodes && td_build_ok(b); i++)
        copy_node(b, g->nodes[i], &head, classes, map);
    for (int i = 0; i < g->n_outputs && td_build_ok(b); i++)
        td_output(b, g->outputs[i].name, map[g->outputs[i].value->id]);
    td_free(map);
    return td_build_end(b, out);
}
