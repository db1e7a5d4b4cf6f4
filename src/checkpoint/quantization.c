/*
 * quantization.c -- reads and writes the ranges of activations in a weight file
 */
#include "checkpoint/quantization.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "ops/ops.h"

#define META      TD_QUANTIZATION_META ": " /* before errors, as in those of base/json.h */
#define RANGE_MIN 1e-30
#define RANGE_MAX 1e30

/* --- reading ---------------------------------------------------------------------------------- */

static td_status read_range(const td_json *layer, const char *weight, const char *key, float *out)
{
    double x;
    TD_TRY(td_json_number(layer, key, &x));
    if (!(x >= RANGE_MIN && x <= RANGE_MAX))
        return td_error(TD_EFORMAT, META "'%.200s': %s is %g, wanted %g to %g", weight, key, x,
                        RANGE_MIN, RANGE_MAX);
    *out = (float)x;
    return TD_OK;
}

static td_status copy_text(td_quantization *q, const char *text, const char **out)
{
    *out = td_arena_text(&q->texts, text);
    return *out ? TD_OK : TD_ENOMEM;
}

static td_status read_layer(const td_tensors *t, const td_json *j, td_quantization *q,
                            td_quantized_layer *out)
{
    const char *weight, *why;
    TD_TRY(td_json_text(j, "weight", &weight));
    TD_TRY(td_json_text(j, "why", &why));
    const td_tensor *x = td_tensors_get(t, weight);
    if (!x || (x->rank != 4 && x->rank != 2))
        return td_error(TD_EFORMAT, META "the file has no filter or matrix '%.200s'", weight);
    TD_TRY(copy_text(q, weight, &out->range.weight));
    TD_TRY(copy_text(q, why, &out->why));
    TD_TRY(read_range(j, weight, "input", &out->range.input));
    TD_TRY(read_range(j, weight, "output", &out->range.output));
    TD_TRY(td_json_bool(j, "wide", &out->range.is_wide));
    TD_TRY(td_json_number(j, "input_db", &out->input_db));
    return td_json_number(j, "weights_db", &out->weights_db);
}

static td_status read_layers(const td_tensors *t, const td_json *layers, td_quantization *q)
{
    const size_t n = layers ? td_json_count(layers) : 0;
    td_map seen = { 0 };
    td_status st = TD_OK;
    if (!layers || td_json_kind_of(layers) != TD_JSON_ARRAY || n > td_tensors_count(t))
        return td_error(TD_EFORMAT, META "wanted layers, a list of at most %zu",
                        td_tensors_count(t));
    TD_TRY(TD_ALLOC(q->layers, n + 1));
    TD_TRY(TD_ALLOC(q->ranges, n + 1));
    for (size_t i = 0; i < n; i++) {
        TD_OUT(read_layer(t, td_json_at(layers, i), q, &q->layers[i]));
        const char *weight = q->layers[i].range.weight;
        if (td_map_has(&seen, weight))
            TD_OUT(td_error(TD_EFORMAT, META "'%.200s' is repeated", weight));
        TD_OUT(td_map_set(&seen, weight, q));
        q->ranges[q->n++] = q->layers[i].range;
    }
    q->table = (td_activation_ranges){ .n = q->n, .ranges = q->ranges };
out:
    td_map_release(&seen);
    return st;
}

static td_status read_document(const td_tensors *t, const td_json *doc, td_quantization *q)
{
    const char *method;
    TD_TRY(td_json_text(doc, "method", &method));
    TD_TRY(td_json_number(doc, "percentile", &q->percentile));
    TD_TRY(td_json_int(doc, "images", &q->n_images));
    snprintf(q->method, sizeof q->method, "%s", method);
    return read_layers(t, td_json_get(doc, "layers"), q);
}

td_status td_quantization_read(const td_tensors *t, const char *path, td_quantization *out)
{
    td_json *doc = NULL;
    const char *json = td_tensors_meta(t, TD_QUANTIZATION_META);
    *out = (td_quantization){ 0 };
    if (!json)
        return TD_OK;
    td_status st = td_json_parse(json, strlen(json), TD_QUANTIZATION_META, &doc);
    if (st == TD_OK)
        st = read_document(t, doc, out);
    td_json_free(doc);
    if (st == TD_OK)
        return TD_OK;
    return td_error_context(st == TD_ENOTFOUND ? TD_EFORMAT : st, "'%s'", path);
}

void td_quantization_release(td_quantization *q)
{
    td_arena_release(&q->texts);
    td_free(q->layers);
    td_free(q->ranges);
    *q = (td_quantization){ 0 };
}

td_status td_quantization_apply(const td_tensors *t, const char *path, td_amp_opts *amp,
                                td_quantization *out)
{
    TD_TRY(td_quantization_read(t, path, out));
    const bool has_precision =
        amp->precision != TD_PRECISION_DEFAULT || amp->amp || amp->force_float32;
    if (!out->n && amp->precision == TD_PRECISION_INT8)
        return td_error(TD_EUSAGE,
                        "--precision int8: '%s' has no ranges of activations; 'tandem quantize' "
                        "writes a file that has them",
                        path);
    if (out->n && !has_precision)
        amp->precision = TD_PRECISION_INT8;
    if (amp->precision == TD_PRECISION_INT8)
        amp->ranges = &out->table;
    return TD_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void add_number(td_text *j, const char *key, double x)
{
    td_text_add(j, ", \"%s\": %.9g", key, x);
}

static void add_layer(td_text *j, const td_quantized_layer *l)
{
    td_text_add(j, "{\"weight\": \"");
    td_text_add_json(j, l->range.weight);
    td_text_add(j, "\"");
    add_number(j, "input", (double)l->range.input);
    add_number(j, "output", (double)l->range.output);
    td_text_add(j, ", \"wide\": %s, \"why\": \"", l->range.is_wide ? "true" : "false");
    td_text_add_json(j, l->why);
    td_text_add(j, "\"");
    add_number(j, "input_db", l->input_db);
    add_number(j, "weights_db", l->weights_db);
    td_text_add(j, "}");
}

td_status td_quantization_store(const td_quantization *q, td_tensors *t)
{
    td_text j = { 0 };
    td_text_add(&j, "{\"method\": \"%s\"", q->method);
    add_number(&j, "percentile", q->percentile);
    td_text_add(&j, ", \"images\": %lld, \"layers\": [", (long long)q->n_images);
    for (int i = 0; i < q->n; i++) {
        td_text_add(&j, i ? ", " : "");
        add_layer(&j, &q->layers[i]);
    }
    td_text_add(&j, "]}");
    td_status st = td_text_status(&j);
    if (st == TD_OK)
        st = td_tensors_set_meta(t, TD_QUANTIZATION_META, td_text_get(&j));
    td_text_release(&j);
    return st;
}

/* --- integers --------------------------------------------------------------------------------- */

static bool is_narrow(const td_quantization *q, const char *name)
{
    for (int i = 0; i < q->n; i++)
        if (strcmp(q->ranges[i].weight, name) == 0)
            return !q->ranges[i].is_wide;
    return false;
}

static td_status add_scale_name(td_text *out, const char *name)
{
    td_text_add(out, "%s" TD_SCALE_SUFFIX, name);
    return td_text_status(out);
}

/* the rows of filter `x` as integers, with a scale for each */
static td_status add_quantized(const td_tensor *x, td_tensors *out)
{
    const float *w = x->data;
    const int64_t rows = x->dim[0], each = (int64_t)(x->n_bytes / sizeof *w) / rows;
    void *integers, *scales;
    td_text name = { 0 };
    td_status st = add_scale_name(&name, x->name);
    if (st == TD_OK)
        st = td_tensors_add_new(out, x->name, TD_DT_S8, x->rank, x->dim, &integers);
    if (st == TD_OK)
        st = td_tensors_add_new(out, td_text_get(&name), TD_DT_F32, 1, &rows, &scales);
    td_text_release(&name);
    TD_TRY(st);
    int8_t *q = integers;
    float *scale = scales;
    for (int64_t k = 0; k < rows; k++) {
        float most = 0;
        for (int64_t i = k * each; i < (k + 1) * each; i++)
            most = fmaxf(most, fabsf(w[i]));
        scale[k] = most / TD_INT8_MAX > 0 ? most / TD_INT8_MAX : 1;
        for (int64_t i = k * each; i < (k + 1) * each; i++)
            q[i] = (int8_t)rintf(fminf(fmaxf(w[i] / scale[k], -TD_INT8_MAX), TD_INT8_MAX));
    }
    return TD_OK;
}

td_status td_quantization_add_tensors(const td_quantization *q, const td_tensors *wide,
                                      td_tensors *out)
{
    for (size_t i = 0; i < td_tensors_count(wide); i++) {
        const td_tensor *x = td_tensors_at(wide, i);
        if (x->dtype == TD_DT_F32 && is_narrow(q, x->name))
            TD_TRY(add_quantized(x, out));
        else
            TD_TRY(td_tensors_add(out, x->name, x->dtype, x->rank, x->dim, x->data));
    }
    return TD_OK;
}

td_status td_quantization_check_trainable(const td_tensors *t, const char *path)
{
    if (!td_tensors_meta(t, TD_QUANTIZATION_META))
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "'%s' has 8-bit weights, for inference only: train from the file that 'tandem "
                    "quantize' read",
                    path);
}
