/*
 * program_copies.c -- a program's inputs and outputs on a device with memory of its own
 *
 *     bound data --> staged ----------------> inputs --> kernels --> values --> outputs
 *          \--> a slot of the ring --> ahead --/
 *     host           host, for queued copies  device                           host
 *
 * All inputs are copied to `staged`, and from there in one queued copy; outputs are copied by
 * queued copies that the run's only wait ends.  What td_program_send_ahead was given goes through
 * the ring on the second queue while the run before computes; then it is copied within the device,
 * so that addresses in `inputs` never change.
 */
#include <string.h>

#include "runtime/program_parts.h"

/* bytes of n values of this type one after the other, such that the next one is aligned */
static size_t room_for(const td_value *v, int n)
{
    const size_t bytes = (size_t)n * (size_t)td_type_bytes(&v->type);
    return (bytes + TD_HOST_ALIGN - 1) / TD_HOST_ALIGN * TD_HOST_ALIGN;
}

static size_t room_of(const td_value *v)
{
    return room_for(v, 1);
}

/* --- memory ----------------------------------------------------------------------------------- */

static td_status allocate_inputs(td_program *p)
{
    const td_graph *g = p->graph;
    size_t at = 0;
    for (int v = 0; v < g->n_values; v++)
        p->inputs_bytes += td_value_is_input(g->values[v]) ? room_of(g->values[v]) : 0;
    if (p->inputs_bytes == 0)
        return TD_OK;
    p->inputs = p->memory->alloc(p->inputs_bytes);
    p->staged = p->inputs ? p->memory->host_alloc(p->inputs_bytes) : NULL;
    if (!p->staged)
        return td_error_context(TD_ENOMEM, "inputs");
    for (int v = 0; v < g->n_values; v++)
        if (td_value_is_input(g->values[v])) {
            p->address[v] = p->inputs + at;
            at += room_of(g->values[v]);
        }
    return TD_OK;
}

td_status td_program_allocate_outputs(td_program *p)
{
    const td_graph *g = p->graph;
    size_t at = 0;
    TD_TRY(TD_ALLOC(p->copied, (size_t)g->n_values + 1));
    for (int i = 0; i < g->n_outputs; i++)
        p->outputs_bytes += room_for(g->outputs[i].value, p->micro_batches);
    if (p->outputs_bytes == 0)
        return TD_OK;
    p->outputs = p->memory->host_alloc(p->outputs_bytes);
    if (!p->outputs)
        return td_error_context(TD_ENOMEM, "outputs");
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *v = g->outputs[i].value;
        if (p->copied[v->id])
            continue;
        p->copied[v->id] = p->outputs + at;
        at += room_for(v, p->micro_batches);
    }
    return TD_OK;
}

td_status td_program_allocate_copies(td_program *p)
{
    const size_t n = (size_t)p->graph->n_values + 1;
    TD_TRY(TD_ALLOC(p->bound, n));
    TD_TRY(TD_ALLOC(p->sent, n));
    TD_TRY(allocate_inputs(p));
    return td_program_allocate_outputs(p);
}

/* after p->slab: to free memory of the device waits for copies */
void td_program_free_copies(td_program *p)
{
    if (p->inputs)
        p->memory->free(p->inputs, p->inputs_bytes);
    if (p->ahead)
        p->memory->free(p->ahead, p->inputs_bytes);
    if (p->staged)
        p->memory->host_free(p->staged, p->inputs_bytes);
    for (int i = 0; i < TD_DEVICE_AHEAD; i++)
        if (p->ring[i])
            p->memory->host_free(p->ring[i], p->inputs_bytes);
    if (p->outputs)
        p->memory->host_free(p->outputs, p->outputs_bytes);
    td_free(p->bound);
    td_free(p->sent);
    td_free(p->copied);
}

/* --- inputs of this run ----------------------------------------------------------------------- */

static size_t offset_of(const td_program *p, const td_value *v)
{
    return (size_t)((char *)p->address[v->id] - p->inputs);
}

/* the inputs in [from, to) of `inputs`, which are staged */
static td_status copy_staged(td_program *p, size_t from, size_t to)
{
    return from == to ? TD_OK : p->memory->queue_in(p->inputs + from, p->staged + from, to - from);
}

static td_status copy_input(td_program *p, const td_value *v, size_t *first)
{
    const size_t at = offset_of(p, v);
    const void *data = p->bound[v->id];
    if (!data)
        return td_error(TD_EARG, "input '%s' was never bound", v->name);
    if (p->sent[v->id] != data) {
        memcpy(p->staged + at, data, (size_t)td_type_bytes(&v->type));
        return TD_OK;
    }
    TD_TRY(copy_staged(p, *first, at));
    *first = at + room_of(v);
    return p->memory->take_ahead(p->slot, p->inputs + at, p->ahead + at,
                                 (size_t)td_type_bytes(&v->type));
}

td_status td_program_copy_inputs(td_program *p)
{
    const td_graph *g = p->graph;
    size_t first = 0; /* of the staged inputs that are not yet copied */
    for (int v = 0; v < g->n_values; v++)
        if (td_value_is_input(g->values[v]))
            TD_TRY(copy_input(p, g->values[v], &first));
    memset(p->sent, 0, (size_t)g->n_values * sizeof *p->sent);
    p->sends = false;
    return copy_staged(p, first, p->inputs_bytes);
}

/* --- inputs of the next run ------------------------------------------------------------------- */

/* new memory is cleared on the first queue, which the second one does not follow */
static td_status allocate_ahead(td_program *p)
{
    if (p->ahead)
        return TD_OK;
    p->ahead = p->memory->alloc(p->inputs_bytes);
    if (!p->ahead)
        return td_error_context(TD_ENOMEM, "inputs of the next run");
    return p->memory->sync();
}

/* the first input of a run takes the next slot of the ring */
static td_status take_slot(td_program *p)
{
    const int next = (p->slot + 1) % TD_DEVICE_AHEAD;
    if (p->sends)
        return TD_OK;
    TD_TRY(allocate_ahead(p));
    if (!p->ring[next] && !(p->ring[next] = p->memory->host_alloc(p->inputs_bytes)))
        return td_error_context(TD_ENOMEM, "inputs of the next run");
    TD_TRY(p->memory->wait_ahead(next));
    p->slot = next;
    p->sends = true;
    return TD_OK;
}

td_status td_program_send_ahead(td_program *p, const char *input, const void *data)
{
    const td_value *v = td_graph_find(p->graph, input);
    if (!v || !td_value_is_input(v))
        return td_error(TD_ENOTFOUND, "the program has no input '%s'", input);
    if (p->memory->is_host || !data || p->sent[v->id])
        return TD_OK;
    const size_t at = offset_of(p, v), n = (size_t)td_type_bytes(&v->type);
    TD_TRY(take_slot(p));
    memcpy(p->ring[p->slot] + at, data, n);
    TD_TRY(p->memory->send_ahead(p->slot, p->ahead + at, p->ring[p->slot] + at, n));
    p->sent[v->id] = data;
    return TD_OK;
}

/* --- outputs ---------------------------------------------------------------------------------- */

void td_program_skip_output(td_program *p, const char *name)
{
    const td_value *v = td_graph_output_value(p->graph, name);
    if (v && !p->memory->is_host)
        p->copied[v->id] = NULL;
}

td_status td_program_copy_outputs(td_program *p)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_outputs; i++) {
        const td_value *v = g->outputs[i].value;
        td_status st = TD_OK;
        if (p->copied[v->id])
            st = p->memory->queue_out(p->copied[v->id], p->address[v->id],
                                      (size_t)td_type_bytes(&v->type));
        if (st != TD_OK)
            return td_error_context(st, "output '%s'", g->outputs[i].name);
    }
    return TD_OK;
}
