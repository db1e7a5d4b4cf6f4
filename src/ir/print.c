/*
 * print.c -- prints graphs as text
 *
 *     %y:f32[64,256,56,56]@aBcd16b = conv2d %x, %w {pad=1}
 *     %a:f32[8,16,4,4], %m:f32[16], %v:f32[16] = batch_norm %x, %g, %b
 *     sgd %w, %v, %dw, %lr {momentum=0.9}
 *     output logits = %z
 */
#include <string.h>

#include "base/text.h"
#include "ir/graph.h"
#include "ir/op.h"

/* "%x", or "%\"a:b\"" for a name with other marks */
static void print_name(const char *name, td_text *out)
{
    td_text_add(out, td_name_is_bare(name) ? "%%%s" : "%%\"%s\"", name);
}

static void print_call(const td_node *n, td_text *out)
{
    td_text_add(out, "%s", n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        td_text_add(out, i ? ", " : " ");
        print_name(n->in[i]->name, out);
    }
    if (n->op->fields) {
        td_text attr = { 0 };
        td_fields_print(n->op->fields, n->attr, &attr);
        if (attr.len)
            td_text_add(out, " %s", td_text_get(&attr));
        if (td_text_status(&attr) != TD_OK)
            out->st = td_text_status(&attr);
        td_text_release(&attr);
    }
}

void td_node_print(const td_node *n, td_text *out)
{
    for (int i = 0; i < n->n_out; i++) {
        td_text_add(out, i ? ", " : "");
        print_name(n->out[i]->name, out);
        td_text_add(out, ":");
        td_type_print(&n->out[i]->type, out);
    }
    if (n->n_out)
        td_text_add(out, " = ");
    print_call(n, out);
}

td_status td_graph_print(const td_graph *g, char **out)
{
    td_text t = { 0 };
    *out = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        td_node_print(g->nodes[i], &t);
        td_text_add(&t, "\n");
    }
    for (int i = 0; i < g->n_outputs; i++) {
        td_text_add(&t, "output %s = ", g->outputs[i].name);
        print_name(g->outputs[i].value->name, &t);
        td_text_add(&t, "\n");
    }
    td_text_add(&t, "%s", "");
    return td_text_take(&t, TD_OK, out);
}
