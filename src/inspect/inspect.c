/*
 * inspect.c -- `tandem inspect`: dispatches to the functions of inspect.h
 */
#include "inspect/inspect.h"

#include <string.h>

#include "base/log.h"
#include "base/paths.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "inference/inputs.h"
#include "model/own_graph.h"

static const struct {
    const char *name;
    bool wants_path, has_network;
    td_status (*run)(const td_inspection *q, td_text *out);
} things[] = {
    { "model", false, true, td_inspect_model },
    { "graph", false, true, td_inspect_graph },
    { "amp", false, true, td_inspect_amp },
    { "amp-stats", true, false, td_inspect_amp_stats },
    { "kernels", false, true, td_inspect_kernels },
    { "memory", false, true, td_inspect_memory },
    { "checkpoint", true, false, td_inspect_checkpoint },
    { "quantization", true, false, td_inspect_quantization },
    { "dataset", true, false, td_inspect_dataset },
    { "ops", false, false, td_inspect_ops },
    { "gpu", false, false, td_inspect_gpu },
    { "backends", false, false, td_inspect_backends },
};

#define N_THINGS ((int)(sizeof things / sizeof *things))

/* Add "model, graph, ..., ops or backends". */
static td_status name_things(td_text *out)
{
    for (int i = 0; i < N_THINGS; i++)
        td_text_add(out, "%s%s", i == 0 ? "" : i + 1 < N_THINGS ? ", " : " or ", things[i].name);
    return td_text_status(out);
}

static const char *nearest_thing(const char *name)
{
    const char *nearest = NULL;
    int best = strlen(name) < 6 ? 1 : (int)strlen(name) / 3;
    for (int i = 0; i < N_THINGS; i++) {
        const int distance = td_text_distance(name, things[i].name);
        if (distance <= best && (!nearest || distance < best)) {
            best = distance;
            nearest = things[i].name;
        }
    }
    return nearest;
}

/* A path in place of the thing: what inspects it; NULL: nothing. */
static const char *thing_of_path(const char *path)
{
    return td_path_is_folder(path) ? "dataset" : td_path_exists(path) ? "checkpoint" : NULL;
}

static td_status no_thing(const char *name)
{
    td_text all = { 0 };
    td_status st = name_things(&all);
    const char *near = name ? nearest_thing(name) : NULL;
    const char *thing = name && !near ? thing_of_path(name) : NULL;
    if (st == TD_OK && thing)
        st = td_error(TD_EUSAGE, "inspect requires a THING before '%s', did you mean '%s %s'?",
                      name, thing, name);
    else if (st == TD_OK && name)
        st = td_error(TD_EUSAGE, "cannot inspect '%s', wanted %s%s%s%s", name, td_text_get(&all),
                      near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    else if (st == TD_OK)
        st = td_error(TD_EUSAGE, "inspect requires a THING: %s", td_text_get(&all));
    td_text_release(&all);
    return st;
}

static td_status find_thing(const char *name, const char *path, int *out)
{
    for (*out = 0; name && *out < N_THINGS; ++*out) {
        if (strcmp(things[*out].name, name) != 0)
            continue;
        if (things[*out].wants_path && !path)
            return td_error(TD_EUSAGE, "inspect %s requires a PATH", name);
        if (!things[*out].wants_path && path)
            return td_error(TD_EUSAGE, "inspect %s: unexpected argument '%s'", name, path);
        return TD_OK;
    }
    return no_thing(name);
}

/* Open the weight file and apply its metadata to the network, as evaluate does. */
static td_status open_weights(const char *thing, bool has_network, td_inspect_opts *o,
                              td_tensors **out, td_quantization *quantization)
{
    td_model_opts *m = &o->model;
    if (has_network)
        td_model_onnx_weights(m, &o->weights);
    if (!o->weights)
        return TD_OK;
    if (!has_network)
        return td_error(TD_EUSAGE,
                        "inspect %s does not read a network: --weights requires model, graph, amp, "
                        "kernels or memory",
                        thing);
    TD_TRY(td_weight_file_open_for(o->weights, false, m, out));
    const bool is_default = td_model_is_default(m);
    td_weight_metadata_apply(*out, is_default, m);
    if (is_default && !m->model_text && !td_tensors_meta(*out, "tandem.arch"))
        return td_error(TD_EUSAGE, "'%s' does not name the network of its weights: give --arch",
                        o->weights);
    TD_TRY(td_weight_metadata_check(*out, o->weights, m));
    TD_TRY(o->training ? td_quantization_check_trainable(*out, o->weights)
                       : td_quantization_apply(*out, o->weights, &o->amp, quantization));
    return td_model_resolve(m);
}

td_status td_inspect(const char *thing, const td_inspect_opts *opts, const char *path, char **text)
{
    td_inspect_opts o = *opts;
    td_inspection q = { .opts = &o, .path = path };
    td_tensors *weights = NULL;
    td_quantization quantization = { 0 };
    td_text out = { 0 };
    int i;
    *text = NULL;
    TD_TRY(find_thing(thing, path, &i));
    if (opts->svg && things[i].run != td_inspect_amp_stats && things[i].run != td_inspect_memory)
        return td_error(TD_EUSAGE, "inspect %s has no drawing: --svg requires amp-stats or memory",
                        thing);
    if (opts->describe && (things[i].run != td_inspect_kernels || !opts->device.name ||
                           strcmp(opts->device.name, "cuda") != 0))
        return td_error(TD_EUSAGE, "--describe requires 'inspect kernels --device cuda'");
    if (opts->log)
        TD_TRY(td_log_configure(opts->log));
    td_status st = open_weights(thing, things[i].has_network, &o, &weights, &quantization);
    q.weights = weights;
    if (st == TD_OK)
        st = things[i].run(&q, &out);
    td_tensors_free(weights);
    td_quantization_release(&quantization);
    td_text_add(&out, "%s", ""); /* never NULL */
    return td_text_take(&out, st, text);
}
