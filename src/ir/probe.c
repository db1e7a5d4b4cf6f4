/*
 * probe.c -- copies a node into a probe
 */
#include "ir/probe.h"

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
