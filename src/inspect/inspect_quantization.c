/*
 * inspect_quantization.c -- `tandem inspect quantization FILE`: the ranges and errors of each layer
 */
#include <string.h>

#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "inspect/inspect.h"

static void layer_json(const td_quantized_layer *l, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "weight", l->range.weight);
    td_text_add(out, ", \"is_wide\": %s", l->range.is_wide ? "true" : "false");
    td_json_add_text(out, "why", l->why);
    td_json_add(out, "input", (double)l->range.input);
    td_json_add(out, "output", (double)l->range.output);
    td_json_add(out, "input_db", l->input_db);
    td_json_add(out, "weights_db", l->weights_db);
    td_text_add(out, "}");
}

static void add_json(const td_quantization *q, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "method", q->method);
    td_json_add(out, "percentile", q->percentile);
    td_json_add(out, "images", (double)q->n_images);
    td_text_add(out, ", \"layers\": [");
    for (int i = 0; i < q->n; i++) {
        td_text_add(out, i ? ", " : "");
        layer_json(&q->layers[i], out);
    }
    td_text_add(out, "]}\n");
}

static void add_text(const td_quantization *q, td_text *out)
{
    td_text_add(out, "method    %s", q->method);
    td_text_add(out, strcmp(q->method, "percentile") == 0 ? " %g\n" : "\n", q->percentile);
    td_text_add(out, "images    %lld\n\n", (long long)q->n_images);
    td_text_add(out, "%-36s %9s %9s %9s %9s  %s\n", "layer", "input", "output", "input dB",
                "weight dB", "runs in");
    for (int i = 0; i < q->n; i++) {
        const td_quantized_layer *l = &q->layers[i];
        td_text_add(out, "%-36s %9.4g %9.4g %9.1f %9.1f  %s%s\n", l->range.weight,
                    (double)l->range.input, (double)l->range.output, l->input_db, l->weights_db,
                    l->range.is_wide ? "float32: " : "int8", l->range.is_wide ? l->why : "");
    }
}

td_status td_inspect_quantization(const td_inspection *q, td_text *out)
{
    td_tensors *t = NULL;
    td_quantization ranges = { 0 };
    td_status st = TD_OK;
    TD_TRY(td_weight_file_open(q->path, &t));
    TD_OUT(td_quantization_read(t, q->path, &ranges));
    if (!ranges.n)
        TD_OUT(td_error(TD_EFORMAT, "'%s' is not quantized: 'tandem quantize' does that", q->path));
    if (q->opts->json)
        add_json(&ranges, out);
    else
        add_text(&ranges, out);
out:
    td_quantization_release(&ranges);
    td_tensors_free(t);
    return st;
}
