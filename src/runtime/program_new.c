/*
 * program_new.c -- builds a program from a graph: passes, kernels, plan, slab
 *
 *     constants:  parameters, results of setup nodes (program_constants.c)
 *     slab:       activations, scratch at planned offsets
 *
 * Nodes that depend on parameters alone, and on none that the graph changes, are setup nodes
 * (td_plan_mark_setup): folded filters, reordered weights; in training, nodes that depend on frozen
 * weights only.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "runtime/kernel_choice.h"
#include "runtime/process.h"
#include "runtime/program_parts.h"

static char *in_slab(const td_program *p, int buffer)
{
    return p->activations->p + (p->plan.buffers[buffer].offset - p->plan.persistent_bytes);
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
    c->args[c->n_args] = scratch < 0 ? NULL : in_slab(p, scratch);
    return TD_OK;
}

/* the slab: that of `with`, unless that is NULL or too small */
static td_status place_activations(td_program *p, td_program *with)
{
    const size_t bytes = (size_t)p->plan.transient_bytes + TD_HOST_ALIGN;
    p->shares_activations = with && with->activations->bytes >= bytes;
    p->activations =
        p->shares_activations ? with->activations : td_activations_new(p->memory, bytes);
    if (!p->activations)
        return TD_ENOMEM;
    p->activations->n_programs += p->shares_activations;
    for (int v = 0; v < p->graph->n_values; v++) {
        const int b = p->plan.slots[v].buffer;
        if (b >= 0 && !p->plan.buffers[b].is_persistent)
            p->address[v] = in_slab(p, b);
    }
    return TD_OK;
}

static td_status does_not_fit(const td_program *p, td_status st)
{
    if (st == TD_ENOMEM && p->memory == &td_gpu_memory)
        return td_error_context(st, "the program does not fit (a smaller batch or image size, or "
                                    "half precision, needs less)");
    if (st == TD_ENOMEM)
        return td_error(st, "cannot allocate the %.1f MB that the program needs",
                        (double)td_program_planned_bytes(p) / 1e6);
    return st;
}

static td_status allocate(td_program *p, const td_compile_opts *o)
{
    td_status st = td_program_place_constants(p, o->share);
    if (st == TD_OK)
        st = place_activations(p, o->own_activations ? NULL : o->share);
    return does_not_fit(p, st);
}

static td_status add_copy(td_program *p, td_value *copy)
{
    const char *of = ((const td_param_attr *)copy->producer->attr)->of;
    td_value *source = of ? td_graph_find(p->graph, of) : NULL;
    td_text why = { 0 };
    td_status st = TD_OK;
    if (!source || !td_value_is_param(source) || !td_type_same_shape(&source->type, &copy->type))
        return td_error(TD_ESHAPE, "'%s' is not a copy of a parameter '%s'", copy->name,
                        of ? of : "");
    td_copy_slot *c = &p->copies[p->n_copies];
    c->in[0] = copy;
    c->in[1] = source;
    c->node = (td_node){ .op = &td_op_assign, .n_in = 2, .in = c->in };
    const td_kernel *k = td_device_select(p->dev, &c->node, &why);
    c->prepared = (td_prepared){ .kernel = k, .node = &c->node };
    if (!k)
        st = td_program_no_kernel(&c->node, &why);
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

/* where the input `update` of a collective node is bound; NULL: nowhere, or it is in args */
static const void *const *update_of(const td_program *p, const td_node *n)
{
    const int i = n->op == &td_op_all_reduce_begin ? 1 : 2;
    if (p->memory->is_host || i >= n->n_in || !td_value_is_input(n->in[i]))
        return NULL;
    return &p->bound[n->in[i]->id];
}

static td_status open_sums(td_program *p)
{
    td_device *dev = p->dev;
    TD_TRY(dev->adds_over_ranks ? td_gpu_sums_open(p->graph, dev->comm, &p->sums)
                                : td_collective_open(p->graph, dev->comm, &p->reduction));
    for (int i = 0; i < p->graph->n_nodes; i++) {
        td_prepared *call = &p->calls[i].prepared;
        if (!p->graph->nodes[i]->op->is_collective)
            continue;
        call->reduction = p->reduction;
        call->sums = p->sums;
        call->update = update_of(p, p->graph->nodes[i]);
    }
    return TD_OK;
}

/* allocates all memory, or shares that of o->share, and sets all addresses in it */
static td_status set_up_memory(td_program *p, const td_compile_opts *o)
{
    TD_TRY(TD_ALLOC(p->address, (size_t)p->graph->n_values + 1));
    TD_TRY(allocate(p, o));
    if (!p->memory->is_host)
        TD_TRY(td_program_allocate_copies(p));
    else if (p->micro_batches > 1)
        TD_TRY(td_program_allocate_rows(p));
    for (int i = 0; i < p->graph->n_nodes; i++)
        TD_TRY(make_args(p, p->graph->nodes[i]));
    td_program_follow_views(p);
    TD_TRY(td_program_prepare_multi(p));
    TD_TRY(list_params(p));
    return open_sums(p);
}

static td_status resolve_layouts(void *ctx, const td_graph *g, const char *skip)
{
    return td_tune_layouts(ctx, g, skip);
}

/* of the graph, by the first lane */
static int64_t planned_runs(const td_program *p, const td_compile_opts *o)
{
    const int each = td_program_lane_batches(p);
    return o->planned_runs > INT64_MAX / each ? o->planned_runs : o->planned_runs * each;
}

/* the programs of other lanes than the first, which is p itself and complete */
static td_status add_lanes(td_program *p, const td_graph *g, const td_compile_opts *o)
{
    td_compile_opts of_lane = *o;
    of_lane.share = p;
    of_lane.own_activations = true;
    of_lane.planned_runs = 0;
    of_lane.micro_batches = of_lane.lanes = 0;
    of_lane.dump_after = NULL;
    TD_TRY(TD_ALLOC(p->lanes, (size_t)p->n_lanes));
    p->lanes[0].program = p;
    for (int i = 1; i < p->n_lanes; i++)
        TD_TRY(td_program_new(g, p->dev, &of_lane, &p->lanes[i].program));
    return TD_OK;
}

static void free_lanes(td_program *p)
{
    for (int i = 1; p->lanes && i < p->n_lanes; i++)
        td_program_free(p->lanes[i].program);
    td_free(p->lanes);
}

static td_status new_program(const td_graph *g, td_device *dev, const td_compile_opts *o,
                             td_program **out)
{
    td_status st = TD_OK;
    td_pass_opts passes = { .amp = o->amp,
                            .skip = o->skip,
                            .dump_after = o->dump_after,
                            .dump = o->dump,
                            .dump_ctx = o->dump_ctx };
    const int64_t t0 = td_now_ns(), n_failed = td_alloc_failed_count();
    td_graph *full = NULL; /* before pass recompute */

    td_threads_keep_limit();
    if (o->memory_limit > 0)
        passes.before_recompute = &full;
    if (dev->tuner)
        passes.before_layout = resolve_layouts, passes.before_layout_ctx = dev->tuner;
    *out = NULL;
    td_program *p = TD_NEW(td_program);
    if (!p)
        return TD_ENOMEM;
    p->dev = dev;
    p->memory = dev->memory;
    p->micro_batches = o->micro_batches > 1 ? o->micro_batches : 1;
    p->n_lanes = o->lanes > 1 ? o->lanes : 1;
    if (p->micro_batches > 1 && !p->memory->is_host)
        TD_OUT(td_error(TD_EARG, "device %s computes no micro-batches", dev->name));
    if (p->micro_batches % p->n_lanes != 0)
        TD_OUT(td_error(TD_EARG, "%d micro-batches cannot be divided among %d threads",
                        p->micro_batches, p->n_lanes));
    TD_OUT(td_graph_verify(g));
    TD_OUT(td_pass_run_all(g, &dev->target, &passes, &p->graph));
    if (dev->tuner && !o->memory_limit) /* timing needs memory */
        TD_OUT(td_tune_kernels(dev->tuner, p->graph, planned_runs(p, o)));
    TD_OUT(td_program_plan(p));
    if (o->memory_limit > 0 && td_program_planned_bytes(p) > o->memory_limit)
        TD_OUT(td_program_fit(p, full, o));
    if (!dev->is_absent)
        TD_OUT(set_up_memory(p, o));
    if (p->n_lanes > 1)
        TD_OUT(add_lanes(p, g, o));
    if (td_alloc_failed_count() != n_failed) /* perhaps refused because of it */
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

td_status td_program_new(const td_graph *g, td_device *dev, const td_compile_opts *o,
                         td_program **out)
{
    const int threads = td_threads();
    if (o->lanes > 1)
        td_threads_divide(o->lanes);
    const td_status st = new_program(g, dev, o, out);
    if (o->lanes > 1)
        td_threads_use(threads);
    return st;
}

void td_program_free(td_program *p)
{
    if (!p)
        return;
    free_lanes(p);
    for (int i = 0; i < p->n_copies; i++)
        if (p->copies[i].prepared.kernel->release)
            p->copies[i].prepared.kernel->release(&p->copies[i].prepared);
    td_program_free_segments(p);
    td_reduction_free(p->reduction);
    td_gpu_sums_free(p->sums);
    td_activations_leave(p->activations);
    td_program_free_constants(p);
    td_program_free_copies(p);
    td_program_unplan(p);
    td_free(p->address);
    td_graph_free(p->graph);
    td_free(p);
}
