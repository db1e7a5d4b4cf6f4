/*
 * program_constants.c -- where a program's parameters and setup results are, and which are current
 *
 *     set      parameters, setup results that every run reads      shared with earlier programs
 *     slab     activations, results that only the setup reads, scratch, at planned offsets
 *
 * The plan gives each persistent buffer an offset; here it gets memory: that of an equal value of
 * the set, else a part of this program's block, or an allocation of its own if it can be released.
 */
#include "ops/ops.h"
#include "runtime/program_parts.h"
#include "tandem/program.h"

enum { OWN_BYTES = 1 << 16 }; /* smaller parameters are not released: they share pages */

static bool is_constant(const td_program *p, const td_value *v)
{
    return td_value_is_param(v) || p->is_setup[v->producer->id];
}

static bool is_persistent(const td_program *p, const td_value *v)
{
    const int b = p->plan.slots[v->id].buffer;
    return b >= 0 && p->plan.buffers[b].is_persistent;
}

/* does `v` itself, not as a reshape of another value, have memory of the set? */
static bool is_kept(const td_program *p, const td_value *v)
{
    return td_value_root(v) == v && is_constant(p, v) && is_persistent(p, v);
}

/* --- equal values ----------------------------------------------------------------------------- */

static void print_key(const td_program *p, const td_value *v, td_text *out)
{
    const td_node *n = v->producer;
    if (td_value_is_param(v)) {
        td_text_add(out, "%%%s:", v->name);
    } else {
        td_text_add(out, "%s ", n->op->name);
        if (n->op->fields)
            td_fields_print(n->op->fields, n->attr, out);
        for (int i = 0; i < n->n_in; i++)
            td_text_add(out, " #%d", p->constant[n->in[i]->id]->number);
        td_text_add(out, " -> %d:", v->index);
    }
    td_type_print(&v->type, out);
}

static td_status find_constants(td_program *p)
{
    td_status st = TD_OK;
    td_text key = { 0 };
    for (int i = 0; i < p->graph->n_nodes; i++)
        for (int k = 0; k < p->graph->nodes[i]->n_out; k++) {
            const td_value *v = p->graph->nodes[i]->out[k];
            if (!is_constant(p, v))
                continue;
            key.len = 0;
            print_key(p, v, &key);
            TD_OUT(td_text_status(&key));
            TD_OUT(td_constants_find(p->constants, td_text_get(&key), &p->constant[v->id]));
        }
out:
    td_text_release(&key);
    return st;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* marks the buffers that runs read, not only the setup */
static void mark_read(td_program *p)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; !p->is_setup[i] && k < g->nodes[i]->n_in; k++) {
            const int b = p->plan.slots[g->nodes[i]->in[k]->id].buffer;
            if (b >= 0 && !td_is_shape_only(g->nodes[i], k))
                p->is_read[b] = true;
        }
    for (int i = 0; i < g->n_outputs; i++)
        if (p->plan.slots[g->outputs[i].value->id].buffer >= 0)
            p->is_read[p->plan.slots[g->outputs[i].value->id].buffer] = true;
}

/* takes memory of the set, or allocates a parameter that can be released; adds to *block otherwise
   the bytes that this value needs */
static td_status claim(td_program *p, const td_value *v, size_t *block)
{
    const int i = p->plan.slots[v->id].buffer;
    const size_t bytes = (size_t)p->plan.buffers[i].bytes;
    td_constant *k = p->constant[v->id];
    const bool may_go = td_value_is_param(v) && !p->is_read[i];
    if (k->p) {
        p->shared_bytes += (int64_t)bytes;
        k->n_claims++;
    } else if (may_go && bytes >= OWN_BYTES) {
        TD_TRY(td_constant_allocate(p->constants, k, bytes + TD_HOST_ALIGN));
    } else {
        *block += bytes;
        return TD_OK;
    }
    p->claims[v->id] = k->bytes > 0;
    return TD_OK;
}

/* each thread its share of every tensor that is new: first_touch.c */
static void touch_share(const td_program *p, const bool *is_new, int t, int threads)
{
    for (int v = 0; v < p->graph->n_values; v++)
        if (is_new[v])
            td_touch_share(p->constant[v]->p,
                           (size_t)p->plan.buffers[p->plan.slots[v].buffer].bytes, t, threads);
}

static void touch_new(const td_program *p, const bool *is_new)
{
    const int threads = td_threads();
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < threads; t++)
        touch_share(p, is_new, t, threads);
}

static td_status place_new(td_program *p, bool *is_new)
{
    size_t bytes = 0;
    for (int v = 0; v < p->graph->n_values; v++)
        is_new[v] = is_kept(p, p->graph->values[v]) && !p->constant[v]->p;
    for (int v = 0; v < p->graph->n_values; v++)
        if (is_kept(p, p->graph->values[v]))
            TD_TRY(claim(p, p->graph->values[v], &bytes));
    char *at = bytes ? td_constants_block(p->constants, bytes + TD_HOST_ALIGN) : NULL;
    if (bytes && !at)
        return TD_ENOMEM;
    for (int v = 0; v < p->graph->n_values; v++) {
        if (!is_kept(p, p->graph->values[v]) || p->constant[v]->p)
            continue;
        p->constant[v]->p = at;
        at += p->plan.buffers[p->plan.slots[v].buffer].bytes;
    }
    return TD_OK;
}

static td_status allocate(td_program *p)
{
    bool *is_new = td_alloc((size_t)p->graph->n_values + 1, sizeof *is_new);
    td_status st = is_new ? place_new(p, is_new) : TD_ENOMEM;
    if (st == TD_OK && p->memory->is_host && p->writes_params && td_threads() > 1)
        touch_new(p, is_new);
    td_free(is_new);
    return st;
}

static td_status check_shares(const td_program *p, const td_program *with)
{
    if (with->dev != p->dev)
        return td_error(TD_EARG, "programs of different devices cannot share memory");
    if (p->writes_params || with->writes_params)
        return td_error(TD_EARG, "a program that changes its parameters cannot share them");
    if (with->constants->is_released)
        return td_error(TD_EARG, "cannot share parameters that were released");
    return TD_OK;
}

static td_status join_constants(td_program *p, td_program *with)
{
    if (with) {
        TD_TRY(check_shares(p, with));
        p->constants = with->constants;
        p->constants->n_programs++;
        return TD_OK;
    }
    p->constants = td_constants_new(p->memory);
    return p->constants ? TD_OK : TD_ENOMEM;
}

td_status td_program_place_constants(td_program *p, td_program *with)
{
    const size_t n_values = (size_t)p->graph->n_values + 1;
    TD_TRY(join_constants(p, with));
    TD_TRY(TD_ALLOC(p->constant, n_values));
    TD_TRY(TD_ALLOC(p->claims, n_values));
    TD_TRY(TD_ALLOC(p->is_read, (size_t)p->plan.n_buffers + 1));
    TD_TRY(find_constants(p));
    mark_read(p);
    TD_TRY(allocate(p));
    for (int v = 0; v < p->graph->n_values; v++)
        if (is_persistent(p, p->graph->values[v]))
            p->address[v] = p->constant[td_value_root(p->graph->values[v])->id]->p;
    return TD_OK;
}

void td_program_free_constants(td_program *p)
{
    for (int v = 0; p->claims && v < p->graph->n_values; v++)
        if (p->claims[v])
            td_constant_release(p->constants, p->constant[v]);
    td_constants_leave(p->constants);
    td_free(p->constant);
    td_free(p->claims);
    td_free(p->is_read);
}

/* --- the setup -------------------------------------------------------------------------------- */

static bool is_current(const td_program *p, const td_value *v)
{
    const td_value *root = td_value_root(v);
    return td_value_is_param(root) ||
           (is_kept(p, root) && p->constant[root->id]->changes_at == p->constants->n_changes);
}

/* is a result missing that runs read? */
static bool lacks_result(const td_program *p, const td_node *n)
{
    for (int k = 0; k < n->n_out; k++)
        if (is_kept(p, n->out[k]) && !is_current(p, n->out[k]))
            return true;
    return false;
}

void td_program_mark_needed(const td_program *p, bool *is_needed)
{
    for (int i = p->graph->n_nodes - 1; i >= 0; i--) {
        const td_node *n = p->graph->nodes[i];
        is_needed[i] = p->is_setup[i] && (is_needed[i] || lacks_result(p, n));
        for (int k = 0; is_needed[i] && k < n->n_in; k++)
            if (!td_is_shape_only(n, k) && !is_current(p, n->in[k]))
                is_needed[n->in[k]->producer->id] = true;
    }
}

void td_program_note_computed(td_program *p, const td_node *n)
{
    for (int k = 0; k < n->n_out; k++)
        if (is_kept(p, n->out[k]))
            p->constant[n->out[k]->id]->changes_at = p->constants->n_changes;
}

bool td_program_needs_setup(const td_program *p)
{
    return p->changes_at != p->constants->n_changes;
}

/* --- releasing -------------------------------------------------------------------------------- */

static bool is_source(const td_program *p, int v)
{
    return p->claims[v] && !p->is_read[p->plan.slots[v].buffer];
}

int64_t td_program_releasable_bytes(const td_program *p)
{
    int64_t bytes = 0;
    for (int v = 0; p->claims && v < p->graph->n_values; v++)
        bytes += is_source(p, v) ? p->plan.buffers[p->plan.slots[v].buffer].bytes : 0;
    return bytes;
}

void td_program_release_sources(td_program *p)
{
    p->constants->is_released = true;
    for (int v = 0; v < p->graph->n_values; v++)
        if (is_source(p, td_value_root(p->graph->values[v])->id))
            p->address[v] = NULL;
    p->released_bytes += td_program_releasable_bytes(p);
    for (int v = 0; v < p->graph->n_values; v++)
        if (is_source(p, v)) {
            td_constant_release(p->constants, p->constant[v]);
            p->claims[v] = false;
        }
}
