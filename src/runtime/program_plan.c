/*
 * program_plan.c -- chooses a kernel for every node of a program's graph, and plans its memory
 */
#include "base/log.h"
#include "runtime/kernel_choice.h"
#include "runtime/program_parts.h"

td_status td_program_no_kernel(const td_node *n, const td_text *why)
{
    td_text text = { 0 };
    td_node_print(n, &text);
    td_status st = td_error(TD_ENOKERNEL, "no kernel for '%.400s' (%.400s)", td_text_get(&text),
                            why->len ? td_text_get(why) : "no kernel implements this op");
    td_text_release(&text);
    return st;
}

static td_status keep_text(td_program *p, const td_text *t, const char **out)
{
    *out = td_text_status(t) == TD_OK ? td_arena_text(&p->arena, td_text_get(t)) : NULL;
    return *out ? TD_OK : TD_ENOMEM;
}

/* "a: reason; cudnn_conv2d: reason"; TD_OK on a device that is not here, where nothing runs */
static td_status refuse(const td_program *p, const td_node *n, const td_kernel *k, td_status st,
                        td_text *why)
{
    if (!p->dev->is_absent || st == TD_ENOMEM)
        return k ? td_error_context(st, "%s for %s", k->name, td_node_label(n))
                 : td_program_no_kernel(n, why);
    if (k)
        td_text_add(why, "%s%s: %s", why->len ? "; " : "", k->name, td_error_message());
    else if (!why->len)
        td_text_add(why, "no kernel implements this op");
    return TD_OK;
}

static td_status prepare_call(td_program *p, const td_node *n, size_t *scratch)
{
    td_status st = TD_OK;
    td_text why = { 0 }, text = { 0 };
    td_call_slot *c = &p->calls[n->id];
    const td_kernel *k;
    if (p->is_setup[n->id])
        td_program_use_all_lanes(p);
    TD_OUT(td_device_choose(p->dev, n, &k, &why));
    c->prepared = (td_prepared){ .kernel = k, .node = n, .memory = p->memory };
    st = !k ? TD_ENOKERNEL : k->prepare ? k->prepare(n, &c->prepared) : TD_OK;
    if (st != TD_OK) {
        c->prepared = (td_prepared){ .node = n };
        TD_OUT(refuse(p, n, k, st, &why));
    }
    *scratch = c->prepared.scratch_bytes;
    td_node_print(n, &text);
    TD_OUT(keep_text(p, &why, &c->why));
    TD_OUT(keep_text(p, &text, &c->text));
out:
    (void)td_program_use_lane(p);
    td_text_release(&why);
    td_text_release(&text);
    return st;
}

td_status td_program_plan(td_program *p)
{
    const td_graph *g = p->graph;
    td_status st = TD_OK;
    size_t n_nodes = (size_t)g->n_nodes + 1;
    size_t *scratch = td_alloc(n_nodes, sizeof *scratch);
    p->calls = td_alloc(n_nodes, sizeof *p->calls);
    p->is_setup = td_alloc(n_nodes, sizeof *p->is_setup);
    if (!scratch || !p->calls || !p->is_setup) {
        st = TD_ENOMEM;
        goto out;
    }
    p->writes_params = !td_plan_mark_setup(g, p->is_setup);
    for (int i = 0; i < g->n_nodes; i++)
        if (td_node_has_kernel(g->nodes[i]))
            TD_OUT(prepare_call(p, g->nodes[i], &scratch[i]));
    TD_OUT(td_program_find_multi(p));
    TD_OUT(td_plan_make(&p->plan, g, p->is_setup, p->call_of, scratch));
    TD_OUT(td_plan_check(&p->plan, g, p->is_setup, p->call_of));
out:
    td_free(scratch);
    return st;
}

void td_program_unplan(td_program *p)
{
    td_program_free_multi(p);
    for (int i = 0; p->graph && p->calls && i < p->graph->n_nodes; i++) {
        td_prepared *prepared = &p->calls[i].prepared;
        if (prepared->kernel && prepared->kernel->release)
            prepared->kernel->release(prepared);
    }
    td_plan_release(&p->plan);
    td_free(p->calls);
    td_free(p->is_setup);
    td_free(p->call_of);
    td_arena_release(&p->arena);
    p->calls = NULL;
    p->is_setup = NULL;
    p->call_of = NULL;
}

int64_t td_program_planned_bytes(const td_program *p)
{
    return p->plan.persistent_bytes + p->plan.transient_bytes;
}
