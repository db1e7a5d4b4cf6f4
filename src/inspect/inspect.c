/*
 * inspect.c -- what exists and what was decided: networks, graphs, kernels, memory
 *
 * Everything is asked of the code that decides: the graph is the one that would run, the kernels
 * are those of the compiled program.
 */
#include "inspect/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "inference/inputs.h"
#include "inspect/inspect_memory.h"
#include "io/atomic.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "model/arch.h"
#include "ops/ops.h"
#include "optim/memory_limit.h"
#include "optim/training_graph.h"
#include "tandem/program.h"

enum { SOME_CLASSES = 20 /* that a line of text names */ };

/* --- model: a line a layer -------------------------------------------------------------------- */

typedef struct {
    const td_inspection *q;
    td_text *out;
    bool *is_counted; /* [values] parameters that an earlier layer has */
    int64_t parameters, macs;
    int tensors, n_layers;
} layers;

static bool is_trained(const td_value *v)
{
    return td_value_is_param(v) &&
           ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_WEIGHT;
}

static int64_t count_parameters(layers *l, const td_node *n)
{
    int64_t sum = 0;
    for (int i = 0; i < n->n_in; i++)
        if (is_trained(n->in[i]) && !l->is_counted[n->in[i]->id]) {
            l->is_counted[n->in[i]->id] = true;
            l->tensors++;
            sum += td_type_count(&n->in[i]->type);
        }
    return sum;
}

static void add_layer(layers *l, const td_node *n)
{
    int64_t parameters = count_parameters(l, n);
    int64_t macs = n->op->macs ? n->op->macs(n) : 0;
    td_text shape = { 0 };
    if (n->op->is_leaf || n->n_out == 0)
        return;
    l->parameters += parameters;
    l->macs += macs;
    if (l->q->opts->json) {
        td_text_add(l->out, l->n_layers++ ? ", {" : "{");
        td_json_add_text(l->out, "name", td_node_label(n));
        td_json_add_text(l->out, "op", n->op->name);
        td_type_print(&n->out[0]->type, &shape);
        td_json_add_text(l->out, "type", td_text_get(&shape));
        td_json_add(l->out, "parameters", (double)parameters);
        td_json_add(l->out, "macs", (double)macs);
        td_text_add(l->out, "}");
    } else if (parameters || macs) {
        td_type_print(&n->out[0]->type, &shape);
        td_text_add(l->out, "%-28s %-18s %-24s %12lld %14lld\n", td_node_label(n), n->op->name,
                    td_text_get(&shape), (long long)parameters, (long long)macs);
    }
    td_text_release(&shape);
}

/* of weights: "ssd320, backbone resnet18, 2 classes: circle, square" */
static td_status add_facts(const td_inspection *q, td_text *out)
{
    const td_model_opts *m = &q->opts->model;
    td_status st = TD_OK;
    char **names;
    int n;
    if (!q->weights)
        return TD_OK;
    TD_TRY(td_classes_from_json(td_tensors_meta(q->weights, "tandem.classes"), q->opts->weights, &n,
                                &names));
    if (q->opts->json) {
        td_json_add_text(out, "weights", q->opts->weights);
        if (td_model_detector(m))
            td_json_add_text(out, "backbone", m->backbone);
        td_json_add(out, "num_classes", m->num_classes);
        td_text_add(out, ", \"classes\": ");
        st = td_classes_to_json(n, (const char *const *)names, out);
    } else {
        if (td_model_detector(m))
            td_text_add(out, ", backbone %s", m->backbone);
        td_text_add(out, ", %d classes", m->num_classes);
        for (int i = 0; i < n && i <= SOME_CLASSES; i++)
            td_text_add(out, "%s%s", i ? ", " : ": ", i < SOME_CLASSES ? names[i] : "...");
    }
    td_classes_free(n, names);
    return st;
}

static td_status add_model(layers *l, const td_graph *g, const char *name, int batch)
{
    bool json = l->q->opts->json;
    if (json) {
        td_text_add(l->out, "{");
        td_json_add_text(l->out, "arch", name);
        TD_TRY(add_facts(l->q, l->out));
        td_json_add(l->out, "batch_size", batch);
        td_text_add(l->out, ", \"layers\": [");
    } else {
        td_text_add(l->out, "%s", name);
        TD_TRY(add_facts(l->q, l->out));
        td_text_add(l->out, "\n\n%-28s %-18s %-24s %12s %14s\n", "layer", "op", "result",
                    "parameters", "MACs");
    }
    for (int i = 0; i < g->n_nodes; i++)
        add_layer(l, g->nodes[i]);
    if (json) {
        td_text_add(l->out, "]");
        td_json_add(l->out, "parameters", (double)l->parameters);
        td_json_add(l->out, "trainable_tensors", l->tensors);
        td_json_add(l->out, "macs", (double)l->macs);
        td_text_add(l->out, "}\n");
    } else {
        td_text_add(l->out, "\n%lld parameters in %d tensors, %.3f GMAC for %d picture%s\n",
                    (long long)l->parameters, l->tensors, (double)l->macs / 1e9, batch,
                    batch == 1 ? "" : "s");
    }
    return TD_OK;
}

static td_status inspect_model(const td_inspection *q, td_text *out)
{
    td_graph *g;
    char name[200];
    layers l = { .q = q, .out = out };
    td_status st = TD_ENOMEM;
    TD_TRY(td_model_graph(&q->opts->model, q->opts->batch_size, false, &g));
    td_model_name(&q->opts->model, name, sizeof name);
    l.is_counted = td_alloc((size_t)g->n_values + 1, sizeof *l.is_counted);
    if (l.is_counted)
        st = add_model(&l, g, name, q->opts->batch_size);
    td_free(l.is_counted);
    td_graph_free(g);
    return st;
}

/* --- programs --------------------------------------------------------------------------------- */

/* the forward graph, or with --training the whole step before any pass */
td_status td_inspect_build(const td_inspection *q, td_graph **out)
{
    const td_inspect_opts *o = q->opts;
    if (!o->training)
        return td_model_graph(&o->model, o->batch_size, false, out);
    td_train_opts t;
    td_train_defaults(&t);
    const td_sgd_opts sgd = { .momentum = t.momentum, .decay = t.weight_decay };
    return td_training_graph(&o->model, o->batch_size, &sgd, out);
}

/* compile it and hand the program to `show` */
static td_status with_program(const td_inspection *q, td_text *out,
                              td_status (*show)(const td_inspection *, const td_program *,
                                                td_text *))
{
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_amp_opts amp = q->opts->amp;
    td_status st;
    td_set_threads(q->opts->threads);
    TD_OUT(td_inspect_build(q, &g));
    TD_OUT(td_device_open(q->opts->device, &dev));
    TD_OUT(td_amp_resolve(&amp, dev));
    TD_OUT(td_device_tune(dev, (td_tune_mode)q->opts->tune, q->opts->tune_cache));
    TD_OUT(td_compile(g, dev,
                      &(td_compile_opts){ .amp = &amp,
                                          .skip = q->opts->skip_passes,
                                          .memory_limit = q->opts->memory_limit },
                      &p));
    td_log_recomputed(p);
    st = show(q, p, out);
out:
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return st;
}

static void add_source(const td_inspection *q, char *source, td_text *out)
{
    if (q->opts->json) {
        td_text_add(out, "{");
        td_json_add_text(out, "graph", source);
        td_text_add(out, "}\n");
    } else {
        td_text_add(out, "%s", source);
    }
    td_text_free(source);
}

static td_status show_graph(const td_inspection *q, const td_program *p, td_text *out)
{
    char *source;
    TD_TRY(td_program_print(p, &source));
    add_source(q, source, out);
    return TD_OK;
}

static td_status inspect_graph(const td_inspection *q, td_text *out)
{
    td_graph *g;
    char *source;
    if (q->opts->training)
        return with_program(q, out, show_graph);
    TD_TRY(td_inspect_build(q, &g));
    td_status st = td_graph_print(g, &source);
    if (st == TD_OK)
        add_source(q, source, out);
    td_graph_free(g);
    return st;
}

static void kernel_json(const td_node_report *r, td_text *out)
{
    td_json_add_text(out, "name", r->label);
    td_json_add_text(out, "op", r->op);
    td_json_add_text(out, "kernel", r->kernel);
    td_json_add_text(out, "implementation", r->impl);
    td_json_add_text(out, "refused", r->why);
    td_json_add_text(out, "node", r->text);
    td_json_add(out, "scratch_bytes", (double)r->scratch_bytes);
    td_json_add(out, "macs", (double)r->macs);
    td_text_add(out, ", \"is_setup\": %s}", r->is_setup ? "true" : "false");
}

static void kernel_text(const td_node_report *r, td_text *out)
{
    td_text_add(out, "%-28s %-24s %s%s%s%s\n", r->label, r->op, *r->kernel ? r->kernel : "-",
                *r->impl ? " " : "", r->impl, r->is_setup ? " (once)" : "");
    if (*r->why)
        td_text_add(out, "    refused: %s\n", r->why);
}

static td_status show_kernels(const td_inspection *q, const td_program *p, td_text *out)
{
    if (q->opts->json)
        td_text_add(out, "{\"nodes\": [");
    for (int i = 0, n = 0; i < td_program_node_count(p); i++) {
        td_node_report r = td_program_node(p, i);
        if (!*r.kernel) /* inputs, parameters: nothing runs */
            continue;
        if (q->opts->json) {
            td_text_add(out, n++ ? ", {" : "{");
            kernel_json(&r, out);
        } else {
            kernel_text(&r, out);
        }
    }
    if (q->opts->json)
        td_text_add(out, "]}\n");
    return TD_OK;
}

static td_status inspect_kernels(const td_inspection *q, td_text *out)
{
    return with_program(q, out, show_kernels);
}

static td_status write_plan(const td_inspection *q, const td_program *p)
{
    const td_inspect_opts *o = q->opts;
    char model[200], what[256];
    td_text svg = { 0 };
    if (!o->svg)
        return TD_OK;
    td_model_name(&o->model, model, sizeof model);
    snprintf(what, sizeof what, "%s, %s, batch %d", model, o->training ? "training" : "inference",
             o->batch_size);
    td_status st = td_memory_draw(p, what, &svg);
    if (st == TD_OK)
        st = td_atomic_save(o->svg, svg.data, svg.len);
    td_text_release(&svg);
    return st;
}

/* what a limit changed */
static void add_recomputed(const td_inspection *q, const td_memory_report *m, td_text *out)
{
    if (!m->n_recomputed)
        return;
    if (q->opts->json) {
        td_json_add(out, "unlimited_bytes", (double)m->unlimited_bytes);
        td_json_add(out, "recomputed_results", m->n_recomputed);
        td_json_add(out, "recomputed_macs", (double)m->recomputed_macs);
        return;
    }
    td_text_add(out, "%-18s %12.2f MB   parameters and activations without the limit\n",
                "unlimited_bytes", (double)m->unlimited_bytes / 1e6);
    td_text_add(out, "%-18s %12d      worked out twice\n", "recomputed_results", m->n_recomputed);
    td_text_add(out, "%-18s %12.3f GMAC of that\n", "recomputed_macs",
                (double)m->recomputed_macs / 1e9);
}

static td_status show_memory(const td_inspection *q, const td_program *p, td_text *out)
{
    td_memory_report m = td_program_memory(p);
    const struct {
        const char *name, *meaning;
        int64_t bytes;
    } rows[] = {
        { "param_bytes", "parameters, statistics, momentum", m.param_bytes },
        { "activation_bytes", "everything between them, as planned", m.activation_bytes },
        { "unplanned_bytes", "the same without sharing memory", m.unplanned_bytes },
        { "peak_live_bytes", "alive at once: no plan can be smaller", m.peak_live_bytes },
        { "scratch_bytes", "largest scratch of a kernel", m.scratch_bytes },
    };
    td_text_add(out, q->opts->json ? "{" : "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (q->opts->json)
            td_json_add(out, rows[i].name, (double)rows[i].bytes);
        else
            td_text_add(out, "%-18s %12.2f MB   %s\n", rows[i].name, (double)rows[i].bytes / 1e6,
                        rows[i].meaning);
    add_recomputed(q, &m, out);
    td_text_add(out, q->opts->json ? "}\n" : "");
    return write_plan(q, p);
}

static td_status inspect_memory(const td_inspection *q, td_text *out)
{
    const td_inspect_opts *o = q->opts;
    if (o->svg && o->model.model && td_path_is_same(o->svg, o->model.model))
        return td_error(TD_EUSAGE, "--svg: '%s' is the file that is read", o->svg);
    if (o->svg && o->weights && td_path_is_same(o->svg, o->weights))
        return td_error(TD_EUSAGE, "--svg: '%s' is the file that is read", o->svg);
    TD_TRY(td_output_check(o->svg));
    return with_program(q, out, show_memory);
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool wants_path, has_network;
    td_status (*run)(const td_inspection *q, td_text *out);
} things[] = {
    { "model", false, true, inspect_model },
    { "graph", false, true, inspect_graph },
    { "amp", false, true, td_inspect_amp },
    { "amp-stats", true, false, td_inspect_amp_stats },
    { "kernels", false, true, inspect_kernels },
    { "memory", false, true, inspect_memory },
    { "checkpoint", true, false, td_inspect_checkpoint },
    { "dataset", true, false, td_inspect_dataset },
    { "ops", false, false, td_inspect_ops },
    { "backends", false, false, td_inspect_backends },
};

#define N_THINGS ((int)(sizeof things / sizeof *things))

/* "model, graph, ..., ops or backends" */
static td_status name_things(td_text *out)
{
    for (int i = 0; i < N_THINGS; i++)
        td_text_add(out, "%s%s", i == 0 ? "" : i + 1 < N_THINGS ? ", " : " or ", things[i].name);
    return td_text_status(out);
}

static td_status no_thing(const char *name)
{
    td_text all = { 0 };
    td_status st = name_things(&all);
    if (st == TD_OK && name)
        st = td_error(TD_EUSAGE, "there is no thing '%s' to inspect, wanted %s", name,
                      td_text_get(&all));
    else if (st == TD_OK)
        st = td_error(TD_EUSAGE, "inspect wants THING: %s", td_text_get(&all));
    td_text_release(&all);
    return st;
}

static td_status find_thing(const char *name, const char *path, int *out)
{
    for (*out = 0; name && *out < N_THINGS; ++*out) {
        if (strcmp(things[*out].name, name) != 0)
            continue;
        if (things[*out].wants_path && !path)
            return td_error(TD_EUSAGE, "inspect %s wants a PATH", name);
        if (!things[*out].wants_path && path)
            return td_error(TD_EUSAGE, "inspect %s does not know what to do with '%s'", name, path);
        return TD_OK;
    }
    return no_thing(name);
}

/* what the file says of its network, as evaluate takes it */
static td_status open_weights(const char *thing, bool has_network, td_inspect_opts *o,
                              td_tensors **out)
{
    td_model_opts *m = &o->model;
    if (!o->weights)
        return TD_OK;
    if (!has_network)
        return td_error(TD_EUSAGE,
                        "inspect %s looks at no network, --weights is of model, graph, "
                        "amp, kernels and memory",
                        thing);
    TD_TRY(td_weight_file_open(o->weights, out));
    const bool is_default = td_model_is_default(m);
    td_weight_facts_apply(*out, is_default, m);
    if (is_default && !m->model_text && !td_tensors_meta(*out, "tandem.arch"))
        return td_error(TD_EUSAGE, "'%s' does not say what network its weights are of: --arch does",
                        o->weights);
    TD_TRY(td_weight_facts_check(*out, o->weights, m));
    return td_model_resolve(m);
}

td_status td_inspect(const char *thing, const td_inspect_opts *opts, const char *path, char **text)
{
    td_inspect_opts o = *opts;
    td_inspection q = { .opts = &o, .path = path };
    td_tensors *weights = NULL;
    td_text out = { 0 };
    int i;
    *text = NULL;
    TD_TRY(find_thing(thing, path, &i));
    if (opts->svg && things[i].run != td_inspect_amp_stats && things[i].run != inspect_memory)
        return td_error(TD_EUSAGE, "inspect %s draws nothing, --svg is for amp-stats and memory",
                        thing);
    if (opts->log)
        TD_TRY(td_log_configure(opts->log));
    td_status st = open_weights(thing, things[i].has_network, &o, &weights);
    q.weights = weights;
    if (st == TD_OK)
        st = things[i].run(&q, &out);
    td_tensors_free(weights);
    td_text_add(&out, "%s", ""); /* never NULL */
    return td_text_take(&out, st, text);
}
