/*
 * inspect_program.c -- shows the graph, the kernels and the memory of a compiled network
 *
 * All output describes the compiled program: the graph that runs, and its kernels.
 */
#include "inspect/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "base/log.h"
#include "base/paths.h"
#include "device/gpu_plugin.h"
#include "inspect/inspect_memory.h"
#include "io/atomic.h"
#include "ir/graph.h"
#include "model/arch.h"
#include "optim/memory_limit.h"
#include "optim/training_graph.h"
#include "runtime/device.h"
#include "tandem/program.h"
#include "tandem/train.h"

td_status td_inspect_build(const td_inspection *q, td_graph **out)
{
    const td_inspect_opts *o = q->opts;
    if (!o->training)
        return td_model_graph(&o->model, o->batch_size, false, out);
    td_train_opts t;
    td_train_defaults(&t);
    const td_step_opts step_opts = { .momentum = t.optimizer.momentum,
                                     .decay = t.optimizer.weight_decay };
    return td_training_graph(&o->model, o->batch_size, &step_opts, out);
}

static td_status describe_device(const char *path, td_device **out)
{
    char *json;
    size_t n;
    TD_TRY(td_file_read(path, TD_GPU_PROPERTIES_BYTES, &json, &n));
    td_status st = strlen(json) < n ? td_error(TD_EFORMAT, "it has a NUL byte")
                                    : td_device_describe(json, out);
    td_free(json);
    return st == TD_OK ? st : td_error_context(st, "--describe '%s'", path);
}

/* The list of kernels needs no GPU. */
static td_status open_device(const td_inspection *q, bool may_be_absent, td_device **out)
{
    const td_inspect_opts *o = q->opts;
    if (o->describe)
        return describe_device(o->describe, out);
    td_status st = td_device_open(o->device.name, out);
    if (st != TD_ENOTFOUND || !may_be_absent)
        return st;
    td_log(TD_LOG_WARN, "inspect", "%s; kernels are listed without cuDNN's engines",
           td_error_message());
    return td_device_describe(NULL, out);
}

typedef td_status show_program(const td_inspection *q, const td_program *p, td_text *out);

/* Compile the network and call `show` with the program. */
static td_status with_program(const td_inspection *q, bool may_be_absent, td_text *out,
                              show_program *show)
{
    td_graph *g = NULL;
    td_device *dev = NULL;
    td_program *p = NULL;
    td_amp_opts amp = q->opts->amp;
    td_status st;
    td_set_threads(q->opts->device.threads);
    TD_OUT(td_inspect_build(q, &g));
    TD_OUT(open_device(q, may_be_absent, &dev));
    TD_OUT(td_amp_resolve(&amp, dev));
    td_device_winograd(dev, q->opts->device.winograd);
    TD_OUT(td_device_tune(dev, q->opts->device.tune, q->opts->device.tune_cache));
    TD_OUT(td_compile(g, dev,
                      &(td_compile_opts){ .amp = &amp,
                                          .skip = q->opts->device.skip_passes,
                                          .memory_limit = q->opts->memory_limit },
                      &p));
    td_log_recomputed(p, q->opts->memory_limit, 0);
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

td_status td_inspect_graph(const td_inspection *q, td_text *out)
{
    td_graph *g;
    char *source;
    if (q->opts->training)
        return with_program(q, false, out, show_graph);
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

static void kernel_text(const td_node_report *r, bool has_scratch, td_text *out)
{
    td_text_add(out, "%-28s %-24s %s%s%s%s", r->label, r->op, *r->kernel ? r->kernel : "-",
                *r->impl ? " " : "", r->impl, r->is_setup ? " (once)" : "");
    if (has_scratch && r->scratch_bytes)
        td_text_add(out, ", %lld bytes of workspace", (long long)r->scratch_bytes);
    td_text_add(out, "\n");
    if (*r->why)
        td_text_add(out, "    refused: %s\n", r->why);
}

static td_status show_kernels(const td_inspection *q, const td_program *p, td_text *out)
{
    int n_without = 0;
    if (q->opts->json)
        td_text_add(out, "{\"nodes\": [");
    for (int i = 0, n = 0; i < td_program_node_count(p); i++) {
        td_node_report r = td_program_node(p, i);
        n_without += !*r.kernel && *r.why;
        if (!*r.kernel && !*r.why) /* inputs and parameters */
            continue;
        if (q->opts->json) {
            td_text_add(out, n++ ? ", {" : "{");
            kernel_json(&r, out);
        } else {
            kernel_text(&r, q->opts->describe, out);
        }
    }
    if (q->opts->json)
        td_text_add(out, "]}\n");
    if (n_without > 0)
        td_log(TD_LOG_WARN, "inspect", "%d nodes have no kernel on this device", n_without);
    return TD_OK;
}

td_status td_inspect_kernels(const td_inspection *q, td_text *out)
{
    return with_program(q, true, out, show_kernels);
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

/* Add the results recomputed because of a limit. */
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
    td_text_add(out, "%-18s %12d      recomputed\n", "recomputed_results", m->n_recomputed);
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
        { "releasable_bytes", "of them: read once, freed by serve, classify, detect and evaluate",
          m.releasable_bytes },
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

td_status td_inspect_memory(const td_inspection *q, td_text *out)
{
    const td_inspect_opts *o = q->opts;
    if (o->svg && o->model.model && td_path_is_same(o->svg, o->model.model))
        return td_error(TD_EUSAGE, "--svg: '%s' is the input file", o->svg);
    if (o->svg && o->weights && td_path_is_same(o->svg, o->weights))
        return td_error(TD_EUSAGE, "--svg: '%s' is the input file", o->svg);
    TD_TRY(td_output_check(o->svg));
    return with_program(q, false, out, show_memory);
}
