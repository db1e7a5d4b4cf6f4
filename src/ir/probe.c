/*
 * probe.c -- copies a node into a probe
 */
#include "ir/probe.h"

#include <string.h>

void td_probe_init_with(td_probe *p, const td_node *n, int n_in, td_value *const *in)
{
    p->node = *n;
    p->node.n_in = n_in;
    p->node.in = p->pointer;
    p->node.out = p->pointer + n_in;
    for (int i = 0; i < n_in + n->n_out; i++) {
        p->value[i] = i < n_in ? *in[i] : *n->out[i - n_in];
        p->pointer[i] = &p->value[i];
    }
}

void td_probe_init(td_probe *p, const td_node *n)
{
    td_probe_init_with(p, n, n->n_in, n->in);
}

void td_probe_set_layouts(td_probe *p, const td_node_layouts *l)
{
    for (int i = 0; i < p->node.n_in; i++)
        if (!td_is_shape_only(&p->node, i))
            memcpy(p->node.in[i]->type.layout, l->in[i], TD_LAYOUT_BYTES);
    for (int i = 0; i < p->node.n_out; i++)
        if (p->node.out[i]->type.rank == p->node.out[0]->type.rank)
            memcpy(p->node.out[i]->type.layout, l->out, TD_LAYOUT_BYTES);
}

bool td_probe_has_kernel(td_probe *p, const td_target *target)
{
    td_node_layouts preferred = { 0 };
    if (!target || target->supports(target->ctx, &p->node))
        return true;
    if (!target->preferred_layout(target->ctx, &p->node, &preferred))
        return false;
    td_probe_set_layouts(p, &preferred);
    return target->supports(target->ctx, &p->node);
}

bool td_probe_has_fast_kernel(td_probe *p, const td_target *target)
{
    td_node_layouts preferred = { 0 };
    if (!target)
        return false;
    if (!target->is_reference) {
        if (!target->preferred_layout(target->ctx, &p->node, &preferred))
            return false;
        td_probe_set_layouts(p, &preferred);
    }
    return target->supports(target->ctx, &p->node);
}
