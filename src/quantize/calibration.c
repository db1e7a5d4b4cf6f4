/*
 * calibration.c -- observes the inputs and results of a network's convolutions and linear layers
 *
 * The program is compiled for float32 without the later passes that change or fuse layers, so that
 * its layers are those that pass `quantize` sees, on every processor.  A value that is read several
 * times has one histogram.  A filter that several convolutions share gets the sum of their
 * histograms.
 */
#include "quantize/calibration.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/rng.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "ops/ops.h"
#include "optim/freeze.h"
#include "optim/training_graph.h"
#include "pass/quantize.h"
#include "quantize/histogram.h"
#include "runtime/program_view.h"

/* a convolution or linear layer of the program */
typedef struct {
    const td_node *node;
    const td_value *filter;
    const char *why; /* why it stays float32, or NULL */
    bool can;        /* it could be quantized */
} conv;

struct td_calibration {
    td_program *program;
    int batch;
    size_t row_floats; /* of an image */
    float *images;     /* [batch] for smaller batches */
    int n;
    conv *convs;       /* [n] in order of execution */
    bool *is_unsigned; /* by value of the program's graph */
    td_histogram **of; /* by value: NULL unless it is watched */
    td_map watched;    /* name of a value -> its histogram */
    td_arena arena;
    td_status status; /* of the observer */
    int64_t n_images;
};

/* --- which values are observed ---------------------------------------------------------------- */

static const td_graph *graph_of(const td_calibration *c)
{
    return td_program_view_of(c->program).graph;
}

/* A reshape or a view has no kernel and is never observed: its values are its operand's. */
static td_status watch(td_calibration *c, const td_value *v)
{
    const td_value *source = v;
    while (source->producer->op->is_alias)
        source = source->producer->in[0];
    td_histogram **h = &c->of[source->id];
    if (!*h) {
        *h = td_arena_alloc(&c->arena, 1, sizeof **h);
        if (!*h)
            return TD_ENOMEM;
        TD_TRY(td_map_set(&c->watched, source->name, *h));
    }
    c->of[v->id] = *h;
    return TD_OK;
}

static bool is_conv(const td_node *n)
{
    return n->op == &td_op_conv2d || n->op == &td_op_conv2d_fused || n->op == &td_op_linear;
}

static const char *reason(const td_node *n, bool is_first)
{
    if (n->op == &td_op_linear)
        return "linear layer";
    if (is_first)
        return "first convolution";
    return td_quantize_fits(n) ? NULL : "neither a norm nor a bias follows it";
}

/* after[v]: does the value depend on the result of a convolution? */
static td_status find_convs(td_calibration *c, bool *after)
{
    const td_graph *g = graph_of(c);
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const bool is_conv_here = is_conv(n);
        const td_value *filter = is_conv_here ? td_quantize_filter(n) : NULL;
        bool is_after = is_conv_here;
        for (int k = 0; k < n->n_in; k++)
            is_after |= after[n->in[k]->id];
        for (int k = 0; k < n->n_out; k++)
            after[n->out[k]->id] = is_after;
        if (!filter)
            continue;
        c->convs[c->n++] =
            (conv){ n, filter, reason(n, !after[n->in[0]->id]), td_quantize_fits(n) };
        TD_TRY(watch(c, n->in[0]));
        TD_TRY(watch(c, n->out[0]));
    }
    return TD_OK;
}

static td_status watch_all(td_calibration *c)
{
    const td_graph *g = graph_of(c);
    bool *after = NULL;
    td_status st = TD_OK;
    TD_OUT(TD_ALLOC(c->convs, (size_t)g->n_nodes + 1));
    TD_OUT(TD_ALLOC(c->is_unsigned, (size_t)g->n_values + 1));
    TD_OUT(TD_ALLOC(c->of, (size_t)g->n_values + 1));
    TD_OUT(TD_ALLOC(after, (size_t)g->n_values + 1));
    td_quantize_signs(g, c->is_unsigned);
    st = find_convs(c, after);
out:
    td_free(after);
    return st;
}

td_status td_calibration_new(const td_model_opts *model, td_device *dev, int batch,
                             td_calibration **out)
{
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    const td_compile_opts opts = { .amp = &float32, .skip = "winograd,linears,inverted_residual" };
    td_graph *g = NULL;
    td_status st = TD_OK;
    *out = NULL;
    td_calibration *c = TD_NEW(td_calibration);
    if (!c)
        return TD_ENOMEM;
    c->batch = batch;
    c->row_floats =
        (size_t)td_model_channels(model) * (size_t)model->image_size * (size_t)model->image_size;
    TD_OUT(td_alloc_to(&c->images, (size_t)batch, c->row_floats * sizeof(float)));
    TD_OUT(td_inference_graph(model, batch, NULL, &g));
    TD_OUT(td_compile(g, dev, &opts, &c->program));
    TD_OUT(watch_all(c));
    *out = c;
    c = NULL;
out:
    td_graph_free(g);
    td_calibration_free(c);
    return st;
}

void td_calibration_free(td_calibration *c)
{
    if (!c)
        return;
    td_program_free(c->program);
    td_map_release(&c->watched);
    td_arena_release(&c->arena);
    td_free(c->images);
    td_free(c->convs);
    td_free(c->is_unsigned);
    td_free((void *)c->of);
    td_free(c);
}

td_program *td_calibration_program(td_calibration *c)
{
    return c->program;
}

/* --- observing -------------------------------------------------------------------------------- */

static void observe(void *ctx, const td_observation *o)
{
    td_calibration *c = ctx;
    td_histogram *h = td_map_get(&c->watched, o->name);
    if (!h || c->status != TD_OK || o->type.dtype != TD_DT_F32)
        return;
    const int64_t n = td_type_padded_count(&o->type);
    c->status = td_histogram_add(h, o->data, n, n - td_type_count(&o->type));
    if (c->status != TD_OK)
        c->status = td_error_context(c->status, "activation '%s' of %s", o->name, o->label);
}

td_status td_calibration_run(td_calibration *c, const float *images, int n)
{
    for (int i = 0; n < c->batch && i < c->batch; i++)
        memcpy(c->images + (size_t)i * c->row_floats, images + (size_t)(i % n) * c->row_floats,
               c->row_floats * sizeof(float));
    TD_TRY(td_program_bind(c->program, "images", n < c->batch ? c->images : images));
    td_program_observe(c->program, observe, c);
    td_status st = td_program_run(c->program);
    td_program_observe(c->program, NULL, NULL);
    c->n_images += n;
    return st == TD_OK ? c->status : st;
}

/* --- ranges ----------------------------------------------------------------------------------- */

static double range_of(const td_histogram *h, bool is_unsigned, const td_quantize_opts *o)
{
    return td_histogram_range(h, o->method, o->percentile, is_unsigned ? UINT8_MAX : TD_INT8_MAX);
}

/* rows of a weight, each with its own scale */
static double weights_db(const float *w, int64_t rows, int64_t each)
{
    double power = 0, error = 0;
    for (int64_t k = 0; k < rows; k++) {
        double most = 0;
        for (int64_t i = k * each; i < (k + 1) * each; i++)
            most = fmax(most, fabs((double)w[i]));
        const double scale = most > 0 ? most / TD_INT8_MAX : 1;
        for (int64_t i = k * each; i < (k + 1) * each; i++) {
            const double x = (double)w[i], gap = x - scale * rint(x / scale);
            power += x * x;
            error += gap * gap;
        }
    }
    return error > 0 ? 10 * log10(power / error) : 200;
}

static td_status measure_weight(const td_calibration *c, const td_value *filter, double *db)
{
    const td_type *t = &filter->type;
    const int64_t count = td_type_count(t);
    float *w;
    TD_TRY(TD_ALLOC(w, (size_t)count));
    td_status st = td_program_get(c->program, filter->name, w);
    if (st == TD_OK)
        *db = weights_db(w, t->dim[0], count / t->dim[0]);
    td_free(w);
    return st;
}

static bool is_named(const char *patterns, const char *weight)
{
    char label[256];
    snprintf(label, sizeof label, "%s", weight);
    char *end = strrchr(label, '.');
    if (end)
        *end = '\0';
    return td_is_frozen(patterns, weight) || td_is_frozen(patterns, label);
}

/* the layer of convolution i and of the later ones with the same filter */
static td_status make_layer(const td_calibration *c, int i, const td_quantize_opts *o,
                            td_quantization *q)
{
    td_quantized_layer *l = &q->layers[q->n];
    const conv *first = &c->convs[i];
    const char *why = first->why;
    bool is_in_unsigned = true, is_out_unsigned = true, can = true;
    td_histogram *in = td_arena_alloc(&q->texts, 2, sizeof *in), *out = in + 1;
    if (!in)
        return TD_ENOMEM;
    for (int k = i; k < c->n; k++) {
        const td_node *n = c->convs[k].node;
        if (strcmp(c->convs[k].filter->name, first->filter->name) != 0)
            continue;
        td_histogram_merge(in, c->of[n->in[0]->id]);
        td_histogram_merge(out, c->of[n->out[0]->id]);
        is_in_unsigned = is_in_unsigned && c->is_unsigned[n->in[0]->id];
        is_out_unsigned = is_out_unsigned && c->is_unsigned[n->out[0]->id];
        why = why ? why : c->convs[k].why;
        can = can && c->convs[k].can;
    }
    if (can && is_named(o->quantize_also, first->filter->name))
        why = NULL;
    if (!why && is_named(o->keep_wide, first->filter->name))
        why = "--keep-wide";
    const double input = range_of(in, is_in_unsigned, o);
    l->range = (td_activation_range){ .weight = td_arena_text(&q->texts, first->filter->name),
                                      .input = (float)input,
                                      .output = (float)range_of(out, is_out_unsigned, o),
                                      .is_wide = why != NULL };
    l->why = why ? why : "quantized";
    l->input_db = td_histogram_snr_db(in, input, is_in_unsigned ? UINT8_MAX : TD_INT8_MAX);
    TD_TRY(measure_weight(c, first->filter, &l->weights_db));
    q->ranges[q->n++] = l->range;
    return l->range.weight ? TD_OK : TD_ENOMEM;
}

static bool is_done(const td_quantization *q, const td_value *filter)
{
    for (int i = 0; i < q->n; i++)
        if (strcmp(q->ranges[i].weight, filter->name) == 0)
            return true;
    return false;
}

/* each pattern must match */
static td_status check_patterns(const td_calibration *c, const char *option, const char *patterns)
{
    char one[256];
    for (const char *s = patterns; s && *s;) {
        const size_t n = strcspn(s, ",");
        bool is_used = false;
        snprintf(one, sizeof one, "%.*s", (int)n, s);
        for (int i = 0; i < c->n; i++)
            is_used = is_used || is_named(one, c->convs[i].filter->name);
        if (!is_used)
            return td_error(TD_EUSAGE, "%s: '%s' matches no convolution or linear layer", option,
                            one);
        s += n + (s[n] == ',');
    }
    return TD_OK;
}

td_status td_calibration_finish(const td_calibration *c, const td_quantize_opts *o,
                                td_quantization *out)
{
    static const char *const methods[] = { "mse", "percentile", "max" };
    *out = (td_quantization){ .percentile = o->percentile, .n_images = c->n_images };
    snprintf(out->method, sizeof out->method, "%s", methods[o->method]);
    TD_TRY(check_patterns(c, "--keep-wide", o->keep_wide));
    TD_TRY(check_patterns(c, "--quantize-also", o->quantize_also));
    TD_TRY(TD_ALLOC(out->layers, (size_t)c->n + 1));
    TD_TRY(TD_ALLOC(out->ranges, (size_t)c->n + 1));
    for (int i = 0; i < c->n; i++)
        if (!is_done(out, c->convs[i].filter))
            TD_TRY(make_layer(c, i, o, out));
    out->table = (td_activation_ranges){ .n = out->n, .ranges = out->ranges };
    return TD_OK;
}

/* --- random images ---------------------------------------------------------------------------- */

static td_status run_random(td_calibration *c)
{
    td_status st;
    float *images;
    td_rng r = td_rng_make(1, TD_RNG_SYNTH, 0, 0);
    TD_TRY(TD_ALLOC(images, c->row_floats));
    for (size_t i = 0; i < c->row_floats; i++)
        images[i] = (float)td_rng_normal(&r);
    st = td_calibration_run(c, images, 1);
    td_free(images);
    return st;
}

/* The initial weights, in a set of their own. */
static td_status init_weights(td_program *p, td_tensors **out)
{
    TD_TRY(td_program_init(p, 1));
    TD_TRY(td_tensors_new(out));
    return td_weights_save(p, 0, 0, NULL, *out);
}

td_status td_calibrate_random(const td_model_opts *model, td_device *dev, const td_tensors *weights,
                              const char *path, td_tensors **fresh, td_quantization *out)
{
    const td_quantize_opts o = { .method = TD_RANGE_MAX };
    td_calibration *c = NULL;
    td_status st = TD_OK;
    *fresh = NULL;
    *out = (td_quantization){ 0 };
    TD_OUT(td_calibration_new(model, dev, 1, &c));
    TD_OUT(weights ? td_weights_load(weights, path, &(td_load_opts){ .model = model },
                                     td_calibration_program(c))
                   : init_weights(td_calibration_program(c), fresh));
    TD_OUT(run_random(c));
    st = td_calibration_finish(c, &o, out);
out:
    td_calibration_free(c);
    if (st != TD_OK) {
        td_tensors_free(*fresh);
        *fresh = NULL;
    }
    return st;
}
