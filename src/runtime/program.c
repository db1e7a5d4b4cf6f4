/*
 * program.c -- runs a compiled program, and reports on it
 *
 * A run walks a flat array of prepared calls.  Setup nodes (program_new.c) run once after
 * parameters are set, all other nodes in every run.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ops/ops.h"
#include "runtime/program_parts.h"

/* --- run -------------------------------------------------------------------------------------- */

static td_status run_kernel(const td_program *p, const td_call_slot *c)
{
    const td_kernel *k = c->prepared.kernel;
    if (!k->is_host)
        return k->run(&c->prepared, c->args);
    p->memory->end_kernels();
    td_status st = k->run(&c->prepared, c->args);
    p->memory->begin_kernels();
    return st;
}

/* node i by itself, or the call of several nodes that begins with it */
static td_status start_call(td_program *p, int i, bool is_multi)
{
    td_call_slot *c = &p->calls[i];
    if (is_multi)
        return td_program_run_multi(p, i);
    for (int k = 0; k < c->n_args; k++)
        c->args[k] = p->address[c->value[k]];
    return run_kernel(p, c);
}

static td_status run_call(td_program *p, int i, bool is_multi)
{
    td_call_slot *c = &p->calls[i];
    if (!c->prepared.kernel)
        return TD_OK;
    if (!p->is_profiled)
        return start_call(p, i, is_multi);
    c->span.begin_ns = td_now_ns();
    td_status st = start_call(p, i, is_multi);
    if (st == TD_OK)
        st = p->memory->sync();
    c->span.end_ns = td_now_ns();
    const double seconds = (double)(c->span.end_ns - c->span.begin_ns) * 1e-9;
    c->run_s += seconds;
    c->seconds += seconds;
    return st;
}

/* the call of nodes [i, end) */
static td_status failed(const td_program *p, int i, int end, td_status st)
{
    if (end - i > 1)
        return td_error_context(st, "%s and %d more nodes (%s)", td_node_label(p->graph->nodes[i]),
                                end - i - 1, p->calls[i].prepared.kernel->name);
    return td_error_context(st, "%s (%s)", td_node_label(p->graph->nodes[i]),
                            p->calls[i].prepared.kernel->name);
}

void td_program_follow_views(td_program *p)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op->is_alias && p->plan.slots[n->out[0]->id].buffer < 0)
            p->address[n->out[0]->id] = p->address[n->in[0]->id];
    }
}

/* inputs may have been bound to other memory */
static td_status follow_inputs(td_program *p)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op->is_leaf && td_value_is_input(n->out[0]) && !p->address[n->out[0]->id])
            return td_error(TD_EARG, "input '%s' was never bound", n->out[0]->name);
    }
    td_program_follow_views(p);
    return p->memory->is_host ? TD_OK : td_program_copy_inputs(p);
}

/* fills the half copies of weights, after parameters were set and before any node runs */
static td_status fill_copies(td_program *p)
{
    td_status st = TD_OK;
    size_t room = 1;
    for (int i = 0; i < p->n_copies; i++)
        if (p->copies[i].prepared.scratch_bytes > room)
            room = p->copies[i].prepared.scratch_bytes;
    void *scratch = p->n_copies ? p->memory->alloc(room) : NULL;
    if (p->n_copies && !scratch)
        return TD_ENOMEM;
    for (int i = 0; st == TD_OK && i < p->n_copies; i++) {
        const td_copy_slot *c = &p->copies[i];
        void *args[3] = { p->address[c->in[0]->id], p->address[c->in[1]->id], scratch };
        st = c->prepared.kernel->run(&c->prepared, args);
        if (st != TD_OK)
            st = td_error_context(st, "%s (%s)", c->in[0]->name, c->prepared.kernel->name);
    }
    if (scratch)
        p->memory->free(scratch, room);
    return st;
}

static td_status run_setup_node(td_program *p, int i)
{
    const td_status st = run_call(p, i, false);
    if (st != TD_OK)
        return failed(p, i, i + 1, st);
    td_program_note_computed(p, p->graph->nodes[i]);
    return TD_OK;
}

/* runs the setup nodes whose results no program that shares them has computed */
static td_status run_setup(td_program *p)
{
    td_status st = TD_OK;
    bool *is_needed = NULL;
    if (!td_program_needs_setup(p))
        return TD_OK;
    TD_TRY(TD_ALLOC(is_needed, (size_t)p->graph->n_nodes + 1));
    td_program_mark_needed(p, is_needed);
    td_program_use_all_lanes(p);
    for (int i = 0; i < p->graph->n_nodes && st == TD_OK; i++)
        if (is_needed[i])
            st = run_setup_node(p, i);
    (void)td_program_use_lane(p);
    TD_OUT(st);
    TD_OUT(fill_copies(p));
    p->changes_at = p->constants->n_changes;
out:
    td_free(is_needed);
    return st;
}

static td_status set_up(td_program *p)
{
    p->memory->begin_kernels();
    const td_status st = run_setup(p);
    p->memory->end_kernels();
    return st;
}

td_status td_program_release_params(td_program *p)
{
    if (p->dev->is_absent)
        return td_error(TD_EUNSUPPORTED, "the GPU is not here: programs for it cannot run");
    const int threads = td_program_use_lane(p);
    const td_status st = set_up(p);
    td_program_leave_lane(p, threads);
    TD_TRY(st);
    TD_TRY(p->memory->sync());
    for (int i = 1; i < p->n_lanes; i++)
        TD_TRY(td_program_release_params(p->lanes[i].program));
    td_program_release_sources(p);
    return TD_OK;
}

/* lends a result to the observer; a copy of it, if the device has memory of its own */
static td_status show_result(const td_program *p, const td_node *n, const td_value *v)
{
    const size_t bytes = (size_t)td_type_bytes(&v->type);
    void *copy = p->memory->is_host ? NULL : td_alloc(bytes, 1);
    td_status st = TD_OK;
    if (!p->memory->is_host)
        st = copy ? p->memory->copy_out(copy, p->address[v->id], bytes) : TD_ENOMEM;
    if (st == TD_OK) {
        td_observation o = { .name = v->name,
                             .label = td_node_label(n),
                             .op = n->op->name,
                             .type = v->type,
                             .data = copy ? copy : p->address[v->id],
                             .bytes = (int64_t)bytes };
        p->memory->end_kernels(); /* an observer is not one */
        p->observe(p->observe_ctx, &o);
        p->memory->begin_kernels();
    }
    td_free(copy);
    return st;
}

static td_status show_results(const td_program *p, const td_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        TD_TRY(show_result(p, n, n->out[i]));
    return TD_OK;
}

static td_status show_leaves(const td_program *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        const td_node *n = p->graph->nodes[i];
        if (n->op->is_leaf && p->address[n->out[0]->id]) /* not released */
            TD_TRY(show_results(p, n));
    }
    return TD_OK;
}

td_status td_program_run_nodes(td_program *p, int first, int end)
{
    for (int i = first, next; i < end; i = next) {
        const bool is_multi = p->calls[i].multi && !p->observe;
        next = is_multi ? td_program_call_end(p, i) : i + 1;
        td_status st = p->is_setup[i] ? TD_OK : run_call(p, i, is_multi);
        if (st != TD_OK)
            return failed(p, i, next, st);
        if (p->observe && p->calls[i].prepared.kernel)
            TD_TRY(show_results(p, p->graph->nodes[i]));
    }
    return TD_OK;
}

static td_status run_all(td_program *p)
{
    TD_TRY(run_setup(p));
    if (p->observe)
        TD_TRY(show_leaves(p));
    if (td_program_captures(p))
        return td_program_run_segments(p);
    p->n_plain_runs++;
    return td_program_run_nodes(p, 0, p->graph->n_nodes);
}

static td_status run_batch(td_program *p)
{
    TD_TRY(follow_inputs(p));
    if (p->is_profiled)
        TD_TRY(p->memory->sync()); /* the time of queued copies of inputs is no kernel's */
    p->memory->begin_kernels();
    const td_status st = run_all(p);
    p->memory->end_kernels();
    return st;
}

static td_status run_micro_batches(td_program *p)
{
    for (int k = 0; k < p->micro_batches; k++) {
        td_program_take_rows(p, p, k);
        TD_TRY(run_batch(p));
        td_program_keep_rows(p, p, k);
    }
    return TD_OK;
}

static td_status run_lanes(td_program *p)
{
    for (int i = 0; i < p->n_lanes; i++) /* those after the first find it done */
        TD_TRY(set_up(p->lanes[i].program));
    return td_program_run_lanes(p, run_batch);
}

/* an observer sees one result after the other */
static td_status run_rows(td_program *p)
{
    const int threads = td_program_use_lane(p);
    const td_status st = p->n_lanes > 1 && !p->observe ? run_lanes(p) : run_micro_batches(p);
    td_program_leave_lane(p, threads);
    return st;
}

td_status td_program_start(td_program *p)
{
    if (p->dev->is_absent)
        return td_error(TD_EUNSUPPORTED, "the GPU is not here: programs for it cannot run");
    if (p->is_running)
        TD_TRY(td_program_finish(p));
    p->span = (td_span){ 0 };
    p->begin_ns = p->is_profiled && !p->observe ? td_now_ns() : 0;
    p->is_running = true;
    for (int i = 0; i < p->graph->n_nodes && p->is_profiled; i++)
        p->calls[i].run_s = 0;
    if (p->micro_batches > 1)
        TD_TRY(run_rows(p));
    else
        TD_TRY(run_batch(p));
    if (!p->memory->is_host)
        TD_TRY(td_program_copy_outputs(p));
    p->n_runs++;
    return TD_OK;
}

td_status td_program_finish(td_program *p)
{
    p->is_running = false;
    TD_TRY(p->memory->sync()); /* the caller may change inputs and take the time */
    if (p->begin_ns)
        p->span = (td_span){ p->begin_ns, td_now_ns() };
    return TD_OK;
}

td_status td_program_run(td_program *p)
{
    TD_TRY(td_program_start(p));
    return td_program_finish(p);
}

void td_program_observe(td_program *p, void (*each)(void *ctx, const td_observation *o), void *ctx)
{
    p->observe = each;
    p->observe_ctx = ctx;
}

typedef struct {
    char *text;
    size_t room;
} first_bad;

/* not all exponent bits set */
static bool is_finite_at(td_dtype d, const void *data, int64_t i)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (d) {
    case TD_DT_F64:
        memcpy(&u64, (const char *)data + i * 8, 8);
        return (~u64 & UINT64_C(0x7ff0000000000000)) != 0;
    case TD_DT_F32:
        memcpy(&u32, (const char *)data + i * 4, 4);
        return (~u32 & 0x7f800000u) != 0;
    default:
        memcpy(&u16, (const char *)data + i * 2, 2);
        return (~u16 & (d == TD_DT_BF16 ? 0x7f80u : 0x7c00u)) != 0;
    }
}

static bool has_nonfinite(const td_observation *o)
{
    const td_dtype d = o->type.dtype;
    const int64_t n = td_dtype_is_float(d) ? o->bytes / (int64_t)td_dtype_bytes(d) : 0;
    for (int64_t i = 0; i < n; i++)
        if (!is_finite_at(d, o->data, i))
            return true;
    return false;
}

static void note_first_bad(void *ctx, const td_observation *o)
{
    const first_bad *f = ctx;
    if (f->text[0] || !has_nonfinite(o))
        return;
    snprintf(f->text, f->room, "'%%%s' of %s (%s)", o->name, o->op, o->label);
}

td_status td_program_find_nonfinite(td_program *p, char *text, size_t room)
{
    first_bad f = { text, room };
    text[0] = '\0';
    td_program_observe(p, note_first_bad, &f);
    td_status st = td_program_run(p);
    td_program_observe(p, NULL, NULL);
    return st;
}

td_status td_program_time(td_program *p, int i, int runs, double *best_s)
{
    td_call_slot *c = &p->calls[i];
    td_status st = TD_OK;
    const bool is_profiled = p->is_profiled;
    *best_s = 0;
    if (!c->prepared.kernel || td_node_has_effect(p->graph->nodes[i]) ||
        (p->is_setup[i] && p->released_bytes))
        return TD_OK;
    p->is_profiled = false; /* these runs are not profiled */
    const int threads = td_program_use_lane(p);
    if (p->is_setup[i])
        td_program_use_all_lanes(p);
    p->memory->begin_kernels();
    for (int r = 0; r < runs && st == TD_OK; r++) {
        int64_t t0 = td_now_ns();
        st = run_call(p, i, false);
        if (st == TD_OK)
            st = p->memory->sync();
        double seconds = (double)(td_now_ns() - t0) * 1e-9;
        if (r == 0 || seconds < *best_s)
            *best_s = seconds;
    }
    *best_s *= td_program_lane_batches(p);
    p->memory->end_kernels();
    td_program_leave_lane(p, threads);
    p->is_profiled = is_profiled;
    return st == TD_OK ? st : failed(p, i, i + 1, st);
}

/* --- reports ---------------------------------------------------------------------------------- */

double td_program_waited_s(const td_program *p)
{
    return p->reduction ? td_reduction_waited_s(p->reduction) : 0;
}

void td_program_skip_sums(td_program *p, bool skips)
{
    if (p->reduction)
        td_reduction_skip(p->reduction, skips);
    if (p->sums)
        td_gpu_sums_skip(p->sums, skips);
}

td_program_view td_program_view_of(const td_program *p)
{
    return (td_program_view){ .graph = p->graph, .plan = &p->plan, .is_setup = p->is_setup };
}

int td_program_node_count(const td_program *p)
{
    return p->graph->n_nodes;
}

static bool is_read_before(const td_node *n, int i)
{
    for (int k = 0; k < i; k++)
        if (n->in[k] == n->in[i])
            return true;
    return false;
}

/* an update also reads what it writes, except the half copies of weights */
static void count_traffic(const td_node *n, td_node_report *r)
{
    if (!td_node_has_kernel(n))
        return;
    for (int i = 0; i < n->n_in; i++) {
        const td_value *v = n->in[i];
        const bool is_written = n->op->writes >> i & 1;
        const bool is_copy = is_written && td_value_is_param(v) &&
                             ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_COPY;
        if (!td_is_shape_only(n, i) && !is_copy && !is_read_before(n, i))
            r->bytes_read += td_type_bytes(&v->type);
        if (is_written)
            r->bytes_written += td_type_bytes(&v->type);
    }
    for (int i = 0; i < n->n_out; i++)
        r->bytes_written += td_type_bytes(&n->out[i]->type);
}

td_node_report td_program_node(const td_program *p, int i)
{
    const td_node *n = p->graph->nodes[i];
    const td_call_slot *c = &p->calls[i];
    td_node_report r = { .label = td_node_label(n),
                         .op = n->op->name,
                         .kernel = "",
                         .impl = "",
                         .text = c->text ? c->text : "",
                         .why = c->why ? c->why : "",
                         .seconds = c->seconds,
                         .is_setup = p->is_setup[i] };
    if (c->prepared.kernel) {
        r.kernel = c->prepared.kernel->name;
        r.impl = c->prepared.impl;
        r.scratch_bytes = (int64_t)c->prepared.scratch_bytes;
    }
    r.macs = n->op->macs ? p->micro_batches * n->op->macs(n) : 0;
    r.n_together = p->call_of[i] == i ? td_program_call_end(p, i) - i : 0;
    for (int k = i; k < i + r.n_together; k++)
        count_traffic(p->graph->nodes[k], &r);
    r.bytes_read *= p->micro_batches;
    r.bytes_written *= p->micro_batches;
    return r;
}

void td_program_profile(td_program *p, bool on)
{
    p->is_profiled = on;
    p->n_runs = 0;
    p->span = (td_span){ 0 };
    for (int i = 0; i < p->graph->n_nodes; i++) {
        p->calls[i].seconds = p->calls[i].run_s = 0;
        p->calls[i].span = (td_span){ 0 };
    }
}

double td_program_run_s(const td_program *p, int i)
{
    return p->calls[i].run_s;
}

td_span td_program_span(const td_program *p, int i)
{
    return i < 0 ? p->span : p->calls[i].span;
}

int64_t td_program_run_count(const td_program *p)
{
    return p->n_runs;
}

td_memory_report td_program_memory(const td_program *p)
{
    return (td_memory_report){ .param_bytes = p->plan.persistent_bytes,
                               .activation_bytes = p->n_lanes * p->plan.transient_bytes,
                               .unplanned_bytes = p->n_lanes * p->plan.unplanned_bytes,
                               .peak_live_bytes = p->n_lanes * p->plan.peak_live_bytes,
                               .scratch_bytes = p->plan.largest_scratch_bytes,
                               .releasable_bytes = td_program_releasable_bytes(p),
                               .shared_bytes = p->shared_bytes,
                               .shares_activations = p->shares_activations,
                               .released_bytes = p->released_bytes,
                               .held_bytes = p->constants ? p->constants->held_bytes : 0,
                               .n_recomputed = p->recomputed.n_results,
                               .recomputed_macs = p->recomputed.macs,
                               .unlimited_bytes = p->unlimited_bytes };
}

td_status td_program_print(const td_program *p, char **out)
{
    return td_graph_print(p->graph, out);
}
