/*
 * cmd_quantize.c -- tandem quantize WEIGHTS DATA -o OUT
 */
#include "cli/evaluation.h"
#include "tandem/evaluate.h"
#include "tandem/quantize.h"

typedef struct {
    td_quantize_opts quantize;
    bool compare;
} options;

/* clang-format off */
static const td_field fields[] = {
    TD_BOOL(options, compare, false,
            "evaluate the float32 and the quantized weights on the validation split of DATA"),
    TD_END,
};
/* clang-format on */

static void groups(void *opts, td_field_group *out)
{
    options *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->quantize.model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->quantize.input };
    out[2] = (td_field_group){ "Quantization", td_quantize_fields(), &o->quantize };
    out[3] = (td_field_group){ "Comparison", fields, o };
}

/* --- comparison ------------------------------------------------------------------------------- */

/* a score of the weights, and what it is */
typedef struct {
    const char *name;
    double wide, quantized;
} comparison;

static td_status score(const td_quantize_opts *o, const char *weights, td_precision precision,
                       bool use_ema, comparison *c, double *out)
{
    td_evaluate_opts e;
    td_evaluate_result r;
    td_evaluate_defaults(&e);
    e.model = o->model;
    e.input = o->input;
    e.device = o->device;
    e.batch_size = o->batch_size;
    e.log = o->log ? o->log : "warn";
    e.weights = weights;
    e.use_ema = use_ema;
    e.amp.precision = precision;
    TD_TRY(td_evaluate(&e, &r));
    c->name = r.detects ? "AP" : "top1";
    *out = r.detects ? r.boxes[TD_BOX_AP] : r.top1;
    td_evaluate_release(&r);
    return TD_OK;
}

/* --- the result ------------------------------------------------------------------------------- */

static void add_json(const td_quantize_opts *o, const td_quantize_result *r, const comparison *c,
                     td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "output", o->output);
    td_json_add(out, "images", (double)r->n_images);
    td_json_add(out, "n_layers", r->n_layers);
    td_json_add(out, "quantized", r->n_quantized);
    td_json_add(out, "bytes", (double)r->bytes);
    if (c->name) {
        td_json_add_text(out, "score", c->name);
        td_json_add(out, "float32", c->wide);
        td_json_add(out, "int8", c->quantized);
    }
    td_text_add(out, ", \"layers\": [");
    for (int i = 0; i < r->n_layers; i++) {
        const td_quantize_layer *l = &r->layers[i];
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "weight", l->weight);
        td_json_add_text(out, "why", l->why);
        td_text_add(out, ", \"is_wide\": %s", l->is_wide ? "true" : "false");
        td_json_add(out, "input", l->input);
        td_json_add(out, "output", l->output);
        td_json_add(out, "input_db", l->input_db);
        td_json_add(out, "weights_db", l->weights_db);
        td_text_add(out, "}");
    }
    td_text_add(out, "]}\n");
}

static void add_text(const td_quantize_opts *o, const td_quantize_result *r, const comparison *c,
                     td_text *out)
{
    td_text_add(out, "%-36s %9s %9s %9s %9s  %s\n", "layer", "input", "output", "input dB",
                "weight dB", "runs in");
    for (int i = 0; i < r->n_layers; i++) {
        const td_quantize_layer *l = &r->layers[i];
        td_text_add(out, "%-36s %9.4g %9.4g %9.1f %9.1f  %s%s\n", l->weight, l->input, l->output,
                    l->input_db, l->weights_db, l->is_wide ? "float32: " : "int8",
                    l->is_wide ? l->why : "");
    }
    td_text_add(out, "%d of %d layers quantized, %lld images observed\n", r->n_quantized,
                r->n_layers, (long long)r->n_images);
    if (c->name)
        td_text_add(out, "%-13s float32 %.4f, int8 %.4f\n", c->name, c->wide, c->quantized);
    td_text_add(out, "%s, %.1f MB\n", o->output, (double)r->bytes / 1e6);
}

static td_status run(const td_call *call)
{
    options *o = call->opts;
    td_quantize_opts *q = &o->quantize;
    const td_call data = { .n_args = call->n_args - 1, .args = call->args + 1 };
    td_quantize_result r;
    comparison c = { 0 };
    if (call->n_args < 1)
        return td_error(TD_EUSAGE, "WEIGHTS is missing: give the weight file as an argument");
    q->weights = call->args[0];
    TD_TRY(td_cli_data(&q->input, &data));
    if (o->compare) /* before anything is written: the output may replace these weights */
        TD_TRY(score(q, q->weights, TD_PRECISION_FP32, q->use_ema, &c, &c.wide));
    TD_TRY(td_quantize(q, &r));
    const td_status st =
        o->compare ? score(q, q->output, TD_PRECISION_INT8, false, &c, &c.quantized) : TD_OK;
    if (st == TD_OK && call->json)
        add_json(q, &r, &c, call->out);
    else if (st == TD_OK)
        add_text(q, &r, &c, call->out);
    td_quantize_release(&r);
    return st;
}

const td_verb td_verb_quantize = {
    .name = "quantize",
    .arguments = "WEIGHTS DATA",
    .summary = "convert weights to 8-bit integers for fast inference",
    .about =
        "Runs the network of WEIGHTS in float32 on images of DATA, chooses a range for the\n"
        "input and the result of each layer, and writes a weight file with 8-bit weights\n"
        "(a scale for each filter) and these ranges. evaluate, classify, detect, serve and\n"
        "benchmark run it in int8; --precision fp32 runs it in float32. It cannot be trained.\n\n"
        "The first convolution, linear layers and the last convolutions of detectors stay\n"
        "float32; --quantize-also quantizes the first two, too. Fast kernels require a processor\n"
        "with VNNI or AMX; on other processors weights are rounded to 7 bits, with a warning.",
    .examples = "tandem quantize model_best.safetensors flowers -o int8.safetensors\n"
                "tandem quantize w.safetensors flowers -o int8.safetensors --compare\n"
                "tandem quantize w.safetensors coco -o int8.safetensors --method percentile \\\n"
                "    --keep-wide 'backbone.layer1.*'",
    .n_args_max = 2,
    .data_at = 1,
    .has_json = true,
    .opts_bytes = sizeof(options),
    .groups = groups,
    .run = run,
};
