/*
 * program.c -- compile: passes, kernels, plan, slab; then a flat array of prepared calls
 *
 *     slab:  [ parameters and what follows from them | activations, scratch at planned offsets ]
 *
 * Nodes that depend on parameters alone, and on none that the graph changes, are setup nodes: they
 * run once after a parameter was set (folded filters, reordered weights; in training what is
 * frozen), the rest in every run.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "runtime/kernel_choice.h"
#include "runtime/program_parts.h"

/* --- compile ---------------------------------------------------------------------------------- */

static bool has_kernel(const td_node *n)
{
    return !n->op->is_leaf && !n->op->is_alias;
}

static td_status no_kernel(const td_node *n, const td_text *why)
{
    td_text text = { 0 };
    td_node_print(n, &text);
    td_status st = td_error(TD_ENOKERNEL, "no kernel for '%.400s' (%.400s)", td_text_get(&text),
                            why->len ? td_text_get(why) : "none knows the op");
    td_text_release(&text);
    return st;
}

static td_status keep_text(td_program *p, const td_text *t, const char **out)
{
    *out = td_text_status(t) == TD_OK ? td_arena_text(&p->arena, td_text_get(t)) : NULL;
    return *out ? TD_OK : TD_ENOMEM;
}

static td_status prepare_call(td_program *p, const td_node *n, size_t *scratch)
{
    td_status st = TD_OK;
    td_text why = { 0 }, text = { 0 };
    td_call_slot *c = &p->calls[n->id];
    const td_kernel *k;
    TD_OUT(td_device_choose(p->dev, n, &k, &why));
    if (!k) {
        st = no_kernel(n, &why);
        goto out;
    }
    c->prepared = (td_prepared){ .kernel = k, .node = n };
    if (k->prepare) {
        st = k->prepare(n, &c->prepared);
        if (st != TD_OK) {
            c->prepared.kernel = NULL;
            st = td_error_context(st, "%s for %s", k->name, td_node_label(n));
            goto out;
        }
    }
    *scratch = c->prepared.scratch_bytes;
    td_node_print(n, &text);
    TD_OUT(keep_text(p, &why, &c->why));
    TD_OUT(keep_text(p, &text, &c->text));
out:
    td_text_release(&why);
    td_text_release(&text);
    return st;
}

static td_status make_args(td_program *p, const td_node *n)
{
    td_call_slot *c = &p->calls[n->id];
    c->n_args = n->n_in + n->n_out;
    c->value = td_arena_alloc(&p->arena, (size_t)c->n_args + 1, sizeof *c->value);
    c->args = td_arena_alloc(&p->arena, (size_t)c->n_args + 1, sizeof *c->args);
    if (!c->value || !c->args)
        return TD_ENOMEM;
    for (int i = 0; i < n->n_in; i++)
        c->value[i] = n->in[i]->id;
    for (int i = 0; i < n->n_out; i++)
        c->value[n->n_in + i] = n->out[i]->id;
    int scratch = p->plan.scratch[n->id];
    c->args[c->n_args] = scratch < 0 ? NULL : p->slab + p->plan.buffers[scratch].offset;
    return TD_OK;
}

static td_status take_slab(td_program *p)
{
    p->slab_bytes = (size_t)(p->plan.persistent_bytes + p->plan.transient_bytes) + TD_HOST_ALIGN;
    p->slab = td_pages_alloc(p->slab_bytes);
    if (!p->slab)
        return td_error(TD_ENOMEM, "the plan needs %.1f MB and the system does not give them",
                        (double)p->slab_bytes / 1e6);
    for (int v = 0; v < p->graph->n_values; v++) {
        int b = p->plan.slots[v].buffer;
        if (b >= 0)
            p->address[v] = p->slab + p->plan.buffers[b].offset;
    }
    return TD_OK;
}

static td_status add_copy(td_program *p, td_value *copy)
{
    const char *of = ((const td_param_attr *)copy->producer->attr)->of;
    td_value *source = of ? td_graph_find(p->graph, of) : NULL;
    td_text why = { 0 };
    td_status st = TD_OK;
    if (!source || !td_value_is_param(source) || !td_type_same_shape(&source->type, &copy->type))
        return td_error(TD_ESHAPE, "'%s' is no copy of a parameter '%s'", copy->name, of ? of : "");
    td_copy_slot *c = &p->copies[p->n_copies];
    c->in[0] = copy;
    c->in[1] = source;
    c->node = (td_node){ .op = &td_op_assign, .n_in = 2, .in = c->in };
    const td_kernel *k = td_device_select(p->dev, &c->node, &why);
    c->prepared = (td_prepared){ .kernel = k, .node = &c->node };
    if (!k)
        st = no_kernel(&c->node, &why);
    else if (k->prepare)
        st = k->prepare(&c->node, &c->prepared);
    td_text_release(&why);
    p->n_copies += k && st == TD_OK;
    return st;
}

static td_status list_params(td_program *p)
{
    p->params = td_arena_alloc(&p->arena, (size_t)p->graph->n_values + 1, sizeof *p->params);
    p->copies = td_arena_alloc(&p->arena, (size_t)p->graph->n_values + 1, sizeof *p->copies);
    if (!p->params || !p->copies)
        return TD_ENOMEM;
    for (int v = 0; v < p->graph->n_values; v++) {
        td_value *value = p->graph->values[v];
        if (!td_value_is_param(value))
            continue;
        if (((const td_param_attr *)value->producer->attr)->role == TD_ROLE_COPY)
            TD_TRY(add_copy(p, value));
        else
            p->params[p->n_params++] = value;
    }
    return TD_OK;
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
    td_plan_mark_setup(g, p->is_setup);
    for (int i = 0; i < g->n_nodes; i++)
        if (has_kernel(g->nodes[i]))
            TD_OUT(prepare_call(p, g->nodes[i], &scratch[i]));
    TD_OUT(td_plan_make(&p->plan, g, p->is_setup, scratch));
    TD_OUT(td_plan_check(&p->plan, g, p->is_setup));
out:
    td_free(scratch);
    return st;
}

void td_program_unplan(td_program *p)
{
    for (int i = 0; p->graph && p->calls && i < p->graph->n_nodes; i++) {
        td_prepared *prepared = &p->calls[i].prepared;
        if (prepared->kernel && prepared->kernel->release)
            prepared->kernel->release(prepared);
    }
    td_plan_release(&p->plan);
    td_free(p->calls);
    td_free(p->is_setup);
    td_arena_release(&p->arena);
    p->calls = NULL;
    p->is_setup = NULL;
}

int64_t td_program_planned_bytes(const td_program *p)
{
    return p->plan.persistent_bytes + p->plan.transient_bytes;
}

/* memory for the plan, and everything in it where it belongs */
static td_status place(td_program *p)
{
    p->address = td_alloc((size_t)p->graph->n_values + 1, sizeof *p->address);
    if (!p->address)
        return TD_ENOMEM;
    TD_TRY(take_slab(p));
    for (int i = 0; i < p->graph->n_nodes; i++)
        TD_TRY(make_args(p, p->graph->nodes[i]));
    TD_TRY(list_params(p));
    TD_TRY(td_collective_open(p->graph, p->dev->comm, &p->reduction));
    for (int i = 0; i < p->graph->n_nodes; i++)
        p->calls[i].prepared.reduction = p->reduction;
    p->needs_setup = true;
    return TD_OK;
}

static td_status settle_layouts(void *ctx, const td_graph *g, const char *skip)
{
    return td_tune_layouts(ctx, g, skip);
}

td_status td_compile(const td_graph *g, td_device *dev, const td_compile_opts *opts,
                     td_program **out)
{
    td_status st = TD_OK;
    td_compile_opts none = { 0 };
    const td_compile_opts *o = opts ? opts : &none;
    td_amp_opts amp = { 0 };
    td_pass_opts passes = { .amp = o->amp ? o->amp : &amp,
                            .skip = o->skip,
                            .dump_after = o->dump_after,
                            .dump = o->dump,
                            .dump_ctx = o->dump_ctx };
    const int64_t t0 = td_now_ns(), n_failed = td_alloc_failed_count();
    td_graph *full = NULL; /* before pass recompute */

    if (o->memory_limit > 0)
        passes.before_recompute = &full;
    if (dev->tuner)
        passes.before_layout = settle_layouts, passes.before_layout_ctx = dev->tuner;
    *out = NULL;
    if (!o->amp)
        TD_TRY(td_amp_resolve(&amp, dev));
    td_program *p = TD_NEW(td_program);
    if (!p)
        return TD_ENOMEM;
    p->dev = dev;
    TD_OUT(td_graph_verify(g));
    TD_OUT(td_pass_run_all(g, &dev->target, &passes, &p->graph));
    TD_OUT(td_program_plan(p));
    if (o->memory_limit > 0 && td_program_planned_bytes(p) > o->memory_limit)
        TD_OUT(td_program_fit(p, full, o));
    TD_OUT(place(p));
    if (td_alloc_failed_count() != n_failed) /* a layout or kernel may have been refused for it */
        TD_OUT(td_error(TD_ENOMEM, "out of memory while kernels were chosen"));
    if (dev->tuner)
        td_tune_save(dev->tuner);
    td_log(TD_LOG_DEBUG, "program", "%d nodes, %.1f MB parameters, %.1f MB activations (%.0f ms)",
           p->graph->n_nodes, (double)p->plan.persistent_bytes / 1e6,
           (double)p->plan.transient_bytes / 1e6, (double)(td_now_ns() - t0) * 1e-6);
    *out = p;
out:
    td_graph_free(full);
    if (st != TD_OK)
        td_program_free(p);
    return st;
}

void td_program_free(td_program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_copies; i++)
        if (p->copies[i].prepared.kernel->release)
            p->copies[i].prepared.kernel->release(&p->copies[i].prepared);
    td_reduction_free(p->reduction);
    td_pages_free(p->slab, p->slab_bytes);
    td_program_unplan(p);
    td_free(p->address);
    td_graph_free(p->graph);
    td_free(p);
}

double td_program_waited_s(const td_program *p)
{
    return p->reduction ? td_reduction_waited_s(p->reduction) : 0;
}

/* --- run -------------------------------------------------------------------------------------- */

static td_status run_call(td_program *p, int i)
{
    td_call_slot *c = &p->calls[i];
    if (!c->prepared.kernel)
        return TD_OK;
    for (int k = 0; k < c->n_args; k++)
        c->args[k] = p->address[c->value[k]];
    if (!p->is_profiled)
        return c->prepared.kernel->run(&c->prepared, c->args);
    c->span.begin_ns = td_now_ns();
    td_status st = c->prepared.kernel->run(&c->prepared, c->args);
    c->span.end_ns = td_now_ns();
    c->seconds += (double)(c->span.end_ns - c->span.begin_ns) * 1e-9;
    return st;
}

static td_status failed(const td_program *p, int i, td_status st)
{
    return td_error_context(st, "%s (%s)", td_node_label(p->graph->nodes[i]),
                            p->calls[i].prepared.kernel->name);
}

/* inputs may have been bound since, and reshapes of them must look at the same memory */
static td_status follow_inputs(td_program *p)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op->is_leaf && td_value_is_input(n->out[0]) && !p->address[n->out[0]->id])
            return td_error(TD_EARG, "input '%s' was never bound", n->out[0]->name);
        if (n->op->is_alias && p->plan.slots[n->out[0]->id].buffer < 0)
            p->address[n->out[0]->id] = p->address[n->in[0]->id];
    }
    return TD_OK;
}

/* after parameters were set, and before anything else runs */
static td_status fill_copies(td_program *p)
{
    td_status st = TD_OK;
    size_t room = 1;
    for (int i = 0; i < p->n_copies; i++)
        if (p->copies[i].prepared.scratch_bytes > room)
            room = p->copies[i].prepared.scratch_bytes;
    void *scratch = p->n_copies ? td_alloc(room, 1) : NULL;
    if (p->n_copies && !scratch)
        return TD_ENOMEM;
    for (int i = 0; st == TD_OK && i < p->n_copies; i++) {
        const td_copy_slot *c = &p->copies[i];
        void *args[3] = { p->address[c->in[0]->id], p->address[c->in[1]->id], scratch };
        st = c->prepared.kernel->run(&c->prepared, args);
        if (st != TD_OK)
            st = td_error_context(st, "%s (%s)", c->in[0]->name, c->prepared.kernel->name);
    }
    td_free(scratch);
    return st;
}

static td_status run_setup(td_program *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        td_status st = p->is_setup[i] ? run_call(p, i) : TD_OK;
        if (st != TD_OK)
            return failed(p, i, st);
    }
    TD_TRY(fill_copies(p));
    p->needs_setup = false;
    return TD_OK;
}

static void show_results(const td_program *p, const td_node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        const td_value *v = n->out[i];
        td_observation o = { .name = v->name,
                             .label = td_node_label(n),
                             .op = n->op->name,
                             .type = v->type,
                             .data = p->address[v->id],
                             .bytes = td_type_bytes(&v->type) };
        p->observe(p->observe_ctx, &o);
    }
}

static void show_leaves(const td_program *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++)
        if (p->graph->nodes[i]->op->is_leaf)
            show_results(p, p->graph->nodes[i]);
}

td_status td_program_run(td_program *p)
{
    const int64_t begin_ns = p->is_profiled && !p->observe ? td_now_ns() : 0;
    p->span = (td_span){ 0 };
    TD_TRY(follow_inputs(p));
    if (p->needs_setup)
        TD_TRY(run_setup(p));
    if (p->observe)
        show_leaves(p);
    for (int i = 0; i < p->graph->n_nodes; i++) {
        td_status st = p->is_setup[i] ? TD_OK : run_call(p, i);
        if (st != TD_OK)
            return failed(p, i, st);
        if (p->observe && p->calls[i].prepared.kernel)
            show_results(p, p->graph->nodes[i]);
    }
    p->n_runs++;
    if (begin_ns)
        p->span = (td_span){ begin_ns, td_now_ns() };
    return TD_OK;
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
    if (!c->prepared.kernel || td_node_has_effect(p->graph->nodes[i]))
        return TD_OK;
    p->is_profiled = false; /* these runs are in no profile */
    for (int r = 0; r < runs && st == TD_OK; r++) {
        int64_t t0 = td_now_ns();
        st = run_call(p, i);
        double seconds = (double)(td_now_ns() - t0) * 1e-9;
        if (r == 0 || seconds < *best_s)
            *best_s = seconds;
    }
    p->is_profiled = is_profiled;
    return st == TD_OK ? st : failed(p, i, st);
}

/* --- looking inside --------------------------------------------------------------------------- */

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

/* an update reads what it writes, but for the half copies of weights */
static void count_traffic(const td_node *n, td_node_report *r)
{
    if (!has_kernel(n))
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
    r.macs = n->op->macs ? n->op->macs(n) : 0;
    count_traffic(n, &r);
    return r;
}

void td_program_profile(td_program *p, bool on)
{
    p->is_profiled = on;
    p->n_runs = 0;
    p->span = (td_span){ 0 };
    for (int i = 0; i < p->graph->n_nodes; i++) {
        p->calls[i].seconds = 0;
        p->calls[i].span = (td_span){ 0 };
    }
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
                               .activation_bytes = p->plan.transient_bytes,
                               .unplanned_bytes = p->plan.unplanned_bytes,
                               .peak_live_bytes = p->plan.peak_live_bytes,
                               .scratch_bytes = p->plan.largest_scratch_bytes,
                               .n_recomputed = p->recomputed.n_results,
                               .recomputed_macs = p->recomputed.macs,
                               .unlimited_bytes = p->unlimited_bytes };
}

td_status td_program_print(const td_program *p, char **out)
{
    return td_graph_print(p->graph, out);
}

const char *td_pass_name_at(int i, const char **summary)
{
    const td_pass *pass = td_pass_at(i);
    if (pass && summary)
        *summary = pass->summary;
    return pass ? pass->name : NULL;
}
