/*
 * program.c -- compile: passes, kernels, plan, slab; then a flat array of prepared calls
 *
 *     slab:  [ parameters and what follows from them | activations, scratch at planned offsets ]
 *
 * Nodes that depend on parameters alone, in a graph that changes none of them, are setup nodes:
 * they run once after a parameter was set (folded filters, reordered weights), the rest in every
 * run.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "pass/plan.h"
#include "rt/device.h"

typedef struct {
    td_prepared prepared;
    int n_args;
    int *value;  /* [n_in + n_out] value whose pointer an argument is */
    void **args; /* operands, results, scratch */
    const char *why;
    const char *text;
    double seconds;
} call;

struct td_program {
    td_device *dev;
    td_graph *graph;
    td_arena arena;
    td_plan plan;
    call *calls; /* [graph nodes]; leaves and aliases have no kernel */
    bool *is_setup;
    void **address; /* [graph values] */
    char *slab;
    size_t slab_bytes;
    bool needs_setup, is_profiled;
    int64_t n_runs;
    td_value **params; /* in order */
    int n_params;
};

/* --- compile ---------------------------------------------------------------------------------- */

/* setup nodes: all operands parameters or setup results, and the graph writes no parameter */
static void mark_setup(td_program *p)
{
    const td_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++)
        if (td_node_has_effect(g->nodes[i]))
            return;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        p->is_setup[i] = !n->op->is_leaf && n->n_in > 0;
        for (int k = 0; k < n->n_in; k++)
            if (!td_value_is_param(n->in[k]) && !p->is_setup[n->in[k]->producer->id])
                p->is_setup[i] = false;
    }
}

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
    call *c = &p->calls[n->id];
    const td_kernel *k = td_device_select(p->dev, n, &why);
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
    call *c = &p->calls[n->id];
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

static td_status list_params(td_program *p)
{
    p->params = td_arena_alloc(&p->arena, (size_t)p->graph->n_values + 1, sizeof *p->params);
    if (!p->params)
        return TD_ENOMEM;
    for (int v = 0; v < p->graph->n_values; v++)
        if (td_value_is_param(p->graph->values[v]))
            p->params[p->n_params++] = p->graph->values[v];
    return TD_OK;
}

static td_status build(td_program *p)
{
    const td_graph *g = p->graph;
    td_status st = TD_OK;
    size_t n_nodes = (size_t)g->n_nodes + 1;
    size_t *scratch = td_alloc(n_nodes, sizeof *scratch);
    p->calls = td_alloc(n_nodes, sizeof *p->calls);
    p->is_setup = td_alloc(n_nodes, sizeof *p->is_setup);
    p->address = td_alloc((size_t)g->n_values + 1, sizeof *p->address);
    if (!scratch || !p->calls || !p->is_setup || !p->address) {
        st = TD_ENOMEM;
        goto out;
    }
    mark_setup(p);
    for (int i = 0; i < g->n_nodes; i++)
        if (has_kernel(g->nodes[i]))
            TD_OUT(prepare_call(p, g->nodes[i], &scratch[i]));
    TD_OUT(td_plan_make(&p->plan, g, p->is_setup, scratch));
    TD_OUT(td_plan_check(&p->plan, g, p->is_setup));
    TD_OUT(take_slab(p));
    for (int i = 0; i < g->n_nodes; i++)
        TD_OUT(make_args(p, g->nodes[i]));
    TD_OUT(list_params(p));
    p->needs_setup = true;
out:
    td_free(scratch);
    return st;
}

td_status td_compile(const td_graph *g, td_device *dev, const td_compile_opts *opts,
                     td_program **out)
{
    td_status st = TD_OK;
    td_compile_opts none = { 0 };
    const td_compile_opts *o = opts ? opts : &none;
    td_pass_opts passes = {
        .skip = o->skip, .dump_after = o->dump_after, .dump = o->dump, .dump_ctx = o->dump_ctx
    };
    int64_t t0 = td_now_ns();

    *out = NULL;
    td_program *p = TD_NEW(td_program);
    if (!p)
        return TD_ENOMEM;
    p->dev = dev;
    TD_OUT(td_graph_verify(g));
    TD_OUT(td_pass_run_all(g, &dev->target, &passes, &p->graph));
    TD_OUT(build(p));
    td_log(TD_LOG_DEBUG, "program", "%d nodes, %.1f MB parameters, %.1f MB activations (%.0f ms)",
           p->graph->n_nodes, (double)p->plan.persistent_bytes / 1e6,
           (double)p->plan.transient_bytes / 1e6, (double)(td_now_ns() - t0) * 1e-6);
    *out = p;
    return TD_OK;
out:
    td_program_free(p);
    return st;
}

void td_program_free(td_program *p)
{
    if (!p)
        return;
    for (int i = 0; p->graph && p->calls && i < p->graph->n_nodes; i++) {
        td_prepared *prepared = &p->calls[i].prepared;
        if (prepared->kernel && prepared->kernel->release)
            prepared->kernel->release(prepared);
    }
    td_pages_free(p->slab, p->slab_bytes);
    td_plan_release(&p->plan);
    td_free(p->calls);
    td_free(p->is_setup);
    td_free(p->address);
    td_arena_release(&p->arena);
    td_graph_free(p->graph);
    td_free(p);
}

/* --- run -------------------------------------------------------------------------------------- */

static td_status run_call(td_program *p, int i)
{
    call *c = &p->calls[i];
    if (!c->prepared.kernel)
        return TD_OK;
    for (int k = 0; k < c->n_args; k++)
        c->args[k] = p->address[c->value[k]];
    if (!p->is_profiled)
        return c->prepared.kernel->run(&c->prepared, c->args);
    int64_t t0 = td_now_ns();
    td_status st = c->prepared.kernel->run(&c->prepared, c->args);
    c->seconds += (double)(td_now_ns() - t0) * 1e-9;
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

static td_status run_setup(td_program *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        td_status st = p->is_setup[i] ? run_call(p, i) : TD_OK;
        if (st != TD_OK)
            return failed(p, i, st);
    }
    p->needs_setup = false;
    return TD_OK;
}

td_status td_program_run(td_program *p)
{
    TD_TRY(follow_inputs(p));
    if (p->needs_setup)
        TD_TRY(run_setup(p));
    for (int i = 0; i < p->graph->n_nodes; i++) {
        td_status st = p->is_setup[i] ? TD_OK : run_call(p, i);
        if (st != TD_OK)
            return failed(p, i, st);
    }
    p->n_runs++;
    return TD_OK;
}

td_status td_program_time(td_program *p, int i, int runs, double *best_s)
{
    call *c = &p->calls[i];
    *best_s = 0;
    if (!c->prepared.kernel || p->graph->nodes[i]->op->writes)
        return TD_OK;
    for (int r = 0; r < runs; r++) {
        int64_t t0 = td_now_ns();
        td_status st = run_call(p, i);
        double seconds = (double)(td_now_ns() - t0) * 1e-9;
        if (st != TD_OK)
            return failed(p, i, st);
        if (r == 0 || seconds < *best_s)
            *best_s = seconds;
    }
    return TD_OK;
}

/* --- data in and out -------------------------------------------------------------------------- */

td_status td_program_bind(td_program *p, const char *input, const void *data)
{
    td_value *v = td_graph_find(p->graph, input);
    if (!v || !td_value_is_input(v))
        return td_error(TD_ENOTFOUND, "the program has no input '%s'", input);
    if (!data)
        return td_error(TD_EARG, "input '%s': no data", input);
    memcpy(&p->address[v->id], &data, sizeof data);
    return TD_OK;
}

const void *td_program_output(const td_program *p, const char *name, td_type *type)
{
    const td_value *v = td_graph_output_value(p->graph, name);
    if (v && type)
        *type = v->type;
    return v ? p->address[v->id] : NULL;
}

int td_program_param_count(const td_program *p)
{
    return p->n_params;
}

const char *td_program_param_name(const td_program *p, int i)
{
    return i >= 0 && i < p->n_params ? p->params[i]->name : NULL;
}

td_type td_program_param_type(const td_program *p, int i)
{
    return i >= 0 && i < p->n_params ? td_type_plain(&p->params[i]->type) : (td_type){ 0 };
}

const char *td_program_param_role(const td_program *p, int i)
{
    static const char *const names[] = { "weight", "stat", "momentum" };
    const td_param_attr *a = i >= 0 && i < p->n_params ? p->params[i]->producer->attr : NULL;
    return a ? names[a->role] : NULL;
}

static td_status find_param(const td_program *p, const char *name, td_value **out)
{
    td_value *v = td_graph_find(p->graph, name);
    if (!v || !td_value_is_param(v))
        return td_error(TD_ENOTFOUND, "the program has no parameter '%s'", name);
    *out = v;
    return TD_OK;
}

/* where index i of dimension d lies: an element's offset is the sum over its dimensions */
static int64_t part_offset(const td_blocking *bl, const td_type *t, int d, int64_t i)
{
    int64_t at[TD_RANK_MAX] = { 0 };
    at[d] = i;
    return td_blocking_offset(bl, t, at);
}

static void copy_elements(char *to, const char *from, size_t each)
{
    if (each == 4)
        memcpy(to, from, 4);
    else if (each == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, each);
}

/* offsets of all indices of every dimension, one behind the other */
static td_status offset_table(const td_type *t, int64_t **table, int64_t *part[TD_RANK_MAX])
{
    td_blocking bl;
    int64_t n = 0;
    TD_CHECK(td_type_blocking(t, &bl));
    for (int d = 0; d < t->rank; d++)
        n += t->dim[d];
    *table = td_alloc((size_t)n, sizeof **table);
    if (!*table)
        return TD_ENOMEM;
    int64_t *next = *table;
    for (int d = 0; d < t->rank; d++) {
        part[d] = next;
        for (int64_t i = 0; i < t->dim[d]; i++)
            *next++ = part_offset(&bl, t, d, i);
    }
    return TD_OK;
}

/* copy between a parameter's own layout and plain order */
static td_status copy_param(const td_value *v, char *inside, char *plain, bool to_plain)
{
    const td_type *t = &v->type;
    size_t each = td_dtype_bytes(t->dtype);
    int64_t n = td_type_count(t), at[TD_RANK_MAX] = { 0 }, *table, *part[TD_RANK_MAX];

    if (td_type_is_plain(t)) {
        memcpy(to_plain ? plain : inside, to_plain ? inside : plain, (size_t)n * each);
        return TD_OK;
    }
    TD_TRY(offset_table(t, &table, part));
    int last = t->rank - 1;
    for (int64_t i = 0; i < n; i += t->dim[last]) {
        int64_t row = 0;
        for (int d = 0; d < last; d++)
            row += part[d][at[d]];
        for (int64_t k = 0; k < t->dim[last]; k++) {
            char *here = inside + (size_t)(row + part[last][k]) * each;
            char *there = plain + (size_t)(i + k) * each;
            copy_elements(to_plain ? there : here, to_plain ? here : there, each);
        }
        for (int d = last - 1; d >= 0 && ++at[d] == t->dim[d]; d--)
            at[d] = 0;
    }
    td_free(table);
    return TD_OK;
}

td_status td_program_get(td_program *p, const char *param, void *data)
{
    td_value *v;
    TD_TRY(find_param(p, param, &v));
    return copy_param(v, p->address[v->id], data, true);
}

td_status td_program_set(td_program *p, const char *param, const void *data)
{
    td_value *v;
    char *from;
    TD_TRY(find_param(p, param, &v));
    memcpy(&from, &data, sizeof from);
    p->needs_setup = true;
    return copy_param(v, p->address[v->id], from, false);
}

/* --- initial values --------------------------------------------------------------------------- */

/* elements of one stream of random numbers: parts are drawn in parallel, the bits stay the same */
#define INIT_PART 65536

static double draw(td_rng *r, const td_param_attr *a)
{
    switch ((td_init)a->init) {
    case TD_INIT_NORMAL:
        return a->scale * td_rng_normal(r);
    case TD_INIT_UNIFORM:
        return a->scale * (2 * td_rng_uniform(r) - 1);
    case TD_INIT_ONES:
        return 1;
    case TD_INIT_ZEROS:
        break;
    }
    return 0;
}

/* elements from .. to - 1; float64 begins with the same numbers as float32 */
static void draw_part(const td_value *v, uint64_t seed, int64_t from, int64_t to, char *plain)
{
    bool is_wide = v->type.dtype == TD_DT_F64;
    td_rng r = td_rng_make(seed, TD_RNG_INIT, td_hash_text(v->name), (uint64_t)(from / INIT_PART));
    for (int64_t i = from; i < to; i++) {
        float x = (float)draw(&r, v->producer->attr);
        double wide = x;
        if (is_wide)
            memcpy(plain + i * 8, &wide, 8);
        else
            memcpy(plain + i * 4, &x, 4);
    }
}

static td_status init_param(td_program *p, const td_value *v, uint64_t seed)
{
    int64_t n = td_type_count(&v->type);
    if (v->type.dtype != TD_DT_F32 && v->type.dtype != TD_DT_F64)
        return td_error(TD_EUNSUPPORTED, "init of '%s': dtype %s", v->name,
                        td_dtype_name(v->type.dtype));
    if (((const td_param_attr *)v->producer->attr)->init == TD_INIT_ZEROS) {
        memset(p->address[v->id], 0, (size_t)td_type_bytes(&v->type));
        return TD_OK;
    }
    char *plain = td_alloc((size_t)n, td_dtype_bytes(v->type.dtype));
    if (!plain)
        return TD_ENOMEM;
#pragma omp parallel for if (n > INIT_PART)
    for (int64_t i = 0; i < n; i += INIT_PART)
        draw_part(v, seed, i, i + INIT_PART < n ? i + INIT_PART : n, plain);
    td_status st = copy_param(v, p->address[v->id], plain, false);
    td_free(plain);
    return st;
}

td_status td_program_init(td_program *p, uint64_t seed)
{
    for (int i = 0; i < p->n_params; i++)
        TD_TRY(init_param(p, p->params[i], seed));
    p->needs_setup = true;
    return TD_OK;
}

/* --- looking inside --------------------------------------------------------------------------- */

int td_program_node_count(const td_program *p)
{
    return p->graph->n_nodes;
}

td_node_report td_program_node(const td_program *p, int i)
{
    const td_node *n = p->graph->nodes[i];
    const call *c = &p->calls[i];
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
    return r;
}

void td_program_profile(td_program *p, bool on)
{
    p->is_profiled = on;
    p->n_runs = 0;
    for (int i = 0; i < p->graph->n_nodes; i++)
        p->calls[i].seconds = 0;
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
                               .scratch_bytes = p->plan.largest_scratch_bytes };
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
