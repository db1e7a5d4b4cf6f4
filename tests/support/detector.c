/*
 * detector.c -- golden cases of the detectors
 */
#include "support/detector.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "ir/rewrite.h"
#include "ops/ops.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"

void td_detector_open(td_detector_case *c, const char *part, bool is_calm)
{
    *c = (td_detector_case){ .part = part, .is_calm = is_calm };
    c->is_tf = strcmp(part, "ssd320") == 0;
    c->batch = c->is_tf ? 2 : 4;
    c->side = c->is_tf ? 320 : 300;
    td_model_defaults(&c->model);
    c->model.arch = part;
    expect_ok(td_model_resolve(&c->model));
    c->variables = td_golden_json(part, "variables.json");
    const td_json *rows = td_json_get(c->variables, "list");
    for (size_t i = 0; i < td_json_count(rows); i++) {
        const td_json *row = td_json_at(rows, i);
        void *borrowed;
        memcpy(&borrowed, &row, sizeof borrowed);
        expect_ok(td_map_set(&c->by_name, td_golden_text(row, "name"), borrowed));
    }
}

void td_detector_close(td_detector_case *c)
{
    td_map_release(&c->by_name);
    td_json_free(c->variables);
    *c = (td_detector_case){ 0 };
}

const char *td_detector_file(const td_detector_case *c, const char *name, const char *ending)
{
    static char file[160];
    snprintf(file, sizeof file, "%s%s.%s", name, c->is_calm ? "_calm" : "", ending);
    return file;
}

/* --- names ------------------------------------------------------------------------------------ */

/* what a part of a layer is called: "weight" of a convolution is "weights" */
static const char *part_of(const char *part, bool is_norm)
{
    static const char *const of_norm[] = { "weight",      "gamma",          "bias",
                                           "beta",        "running_mean",   "moving_mean",
                                           "running_var", "moving_variance" };
    if (!is_norm)
        return strcmp(part, "weight") == 0 ? "weights" : "biases";
    for (int i = 0; i < 8; i += 2)
        if (strcmp(part, of_norm[i]) == 0)
            return of_norm[i + 1];
    fail_msg("no part of a norm: '%s'", part);
    return NULL;
}

#define NAME_BYTES 160
#define BACKBONE   "FeatureExtractor/resnet_v1_50"
#define PREDICTOR  "WeightSharedConvolutionalBoxPredictor"

static bool backbone_name(const char *name, char *to)
{
    int block, unit, k;
    char layer[16], part[16];
    if (sscanf(name, "backbone.layer%d.%d.%15[^0-9.]%d.%15[^.]", &block, &unit, layer, &k, part) ==
        5) {
        snprintf(to, NAME_BYTES, BACKBONE "/block%d/unit_%d/bottleneck_v1/conv%d/%s%s", block,
                 unit + 1, k, strcmp(layer, "bn") == 0 ? "BatchNorm/" : "",
                 part_of(part, strcmp(layer, "bn") == 0));
        return true;
    }
    if (sscanf(name, "backbone.layer%d.%d.downsample.%d.%15[^.]", &block, &unit, &k, part) == 4) {
        snprintf(to, NAME_BYTES, BACKBONE "/block%d/unit_%d/bottleneck_v1/shortcut/%s%s", block,
                 unit + 1, k ? "BatchNorm/" : "", part_of(part, k));
        return true;
    }
    if (sscanf(name, "backbone.%15[^0-9.]1.%15[^.]", layer, part) != 2)
        return false;
    snprintf(to, NAME_BYTES, BACKBONE "/conv1/%s%s", strcmp(layer, "bn") == 0 ? "BatchNorm/" : "",
             part_of(part, strcmp(layer, "bn") == 0));
    return true;
}

static bool pyramid_name(const char *name, char *to)
{
    int level;
    char what[16], layer[16], part[16];
    if (sscanf(name, "fpn.lateral%d.%15[^.]", &level, part) == 2) {
        snprintf(to, NAME_BYTES, BACKBONE "/fpn/projection_%d/%s", level - 2, part_of(part, false));
        return true;
    }
    if (sscanf(name, "fpn.%15[^0-9]%d.%15[^.].%15s", what, &level, layer, part) != 4)
        return false;
    const bool is_norm = strcmp(layer, "bn") == 0, is_smooth = strcmp(what, "smooth") == 0;
    snprintf(to, NAME_BYTES, BACKBONE "/fpn/%s%d/%s%s",
             is_smooth ? "smoothing_" : "bottom_up_block", is_smooth ? level - 2 : level - 1,
             is_norm ? "BatchNorm/" : "", part_of(part, is_norm));
    return true;
}

static bool head_name(const char *name, char *to)
{
    int k, level;
    char what[16], part[16];
    if (sscanf(name, "heads.%15[^_.]_tower.%d.bn%d.%15s", what, &k, &level, part) == 4)
        snprintf(to, NAME_BYTES, PREDICTOR "/%sPredictionTower/conv2d_%d/BatchNorm/feature_%d/%s",
                 strcmp(what, "box") == 0 ? "Box" : "Class", k, level - 3, part_of(part, true));
    else if (sscanf(name, "heads.%15[^_.]_tower.%d.conv.%15s", what, &k, part) == 3)
        snprintf(to, NAME_BYTES, PREDICTOR "/%sPredictionTower/conv2d_%d/%s",
                 strcmp(what, "box") == 0 ? "Box" : "Class", k, part_of(part, false));
    else if (sscanf(name, "heads.%15[^_.].%15s", what, part) == 2)
        snprintf(to, NAME_BYTES, PREDICTOR "/%sPredictor/%s",
                 strcmp(what, "box") == 0 ? "Box" : "Class", part_of(part, false));
    else
        return false;
    return true;
}

const char *td_detector_name(const td_detector_case *c, const char *name, char *to)
{
    if (!c->is_tf)
        snprintf(to, NAME_BYTES, "%s", name);
    else if (!backbone_name(name, to) && !pyramid_name(name, to) && !head_name(name, to))
        fail_msg("no golden name of '%s'", name);
    return to;
}

/* --- the fill --------------------------------------------------------------------------------- */

/* element i of a tensor of that kind; n_in: taps times channels of a filter */
static double fill_value(const td_detector_case *c, const char *kind, double u, int64_t n_in)
{
    const double s = 2 * u - 1;
    if (strcmp(kind, "kernel") == 0)
        return s * sqrt(6.0 / (double)n_in);
    if (strcmp(kind, "kernel_quarter") == 0)
        return s * sqrt(6.0 / (double)n_in) * 0.25;
    if (strcmp(kind, "bias") == 0 || strcmp(kind, "mean") == 0)
        return 0.2 * s;
    if (strcmp(kind, "class_bias") == 0)
        return -4.6 + 0.2 * s;
    if (strcmp(kind, "gamma") == 0)
        return c->is_calm ? 0.15 + 0.3 * u : 0.5 + u;
    if (strcmp(kind, "beta") == 0)
        return c->is_calm ? 3 + 0.2 * s : 0.2 * s;
    if (strcmp(kind, "variance") == 0)
        return 0.5 + u;
    fail_msg("no fill '%s'", kind);
    return 0;
}

/* element i of a golden tensor in our order: the golden [R, S, C, K] is our [K, C, R, S] */
static int64_t filter_place(const td_type *t, int64_t i)
{
    const int64_t K = t->dim[0], C = t->dim[1], taps = t->dim[2] * t->dim[3];
    return (i % K * C + i / K % C) * taps + i / K / C;
}

static void check_shape(const td_detector_case *c, const td_json *row, const td_type *t)
{
    static const int of_filter[4] = { 2, 3, 1, 0 };
    const td_json *shape = td_json_get(row, "shape");
    assert_int_equal(td_json_count(shape), t->rank);
    for (int i = 0; i < t->rank; i++) {
        int64_t n;
        expect_ok(td_json_as_int(td_json_at(shape, (size_t)i), &n));
        assert_int_equal(n, t->dim[c->is_tf && t->rank == 4 ? of_filter[i] : i]);
    }
}

float *td_detector_fill(const td_detector_case *c, const char *name, const td_type *t)
{
    char golden[NAME_BYTES];
    const td_json *row = td_map_get(&c->by_name, td_detector_name(c, name, golden));
    if (!row)
        fail_msg("no golden variable '%s' for '%s'", golden, name);
    check_shape(c, row, t);
    const char *kind = td_golden_text(row, "fill");
    const uint64_t seed = td_fill_seed(td_fill_prefix(), golden);
    const int64_t n = td_type_count(t);
    float *out = td_alloc((size_t)n, sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        const int64_t to = c->is_tf && t->rank == 4 ? filter_place(t, i) : i;
        out[to] = (float)fill_value(c, kind, td_fill_u(seed, i), n / t->dim[0]);
    }
    return out;
}

void td_detector_fill_all(const td_detector_case *c, td_program *p)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type t = td_program_param_type(p, i);
        float *values = strcmp(td_program_param_role(p, i), "momentum") == 0
                            ? td_alloc((size_t)td_type_count(&t), sizeof *values)
                            : td_detector_fill(c, name, &t);
        assert_non_null(values);
        expect_ok(td_program_set(p, name, values));
        td_free(values);
    }
}

float *td_detector_images(const td_detector_case *c, const char *name)
{
    static const float mean[3] = { 123.68f, 116.779f, 103.939f };
    const int64_t area = (int64_t)c->side * c->side, n = c->batch * 3 * area;
    const uint64_t seed = td_fill_seed(td_fill_prefix(), name);
    float *out = td_alloc((size_t)n, sizeof *out);
    assert_non_null(out);
    for (int64_t i = 0; i < n; i++) {
        const double s = 2 * td_fill_u(seed, i) - 1;
        const int64_t pixel = i / 3 % area, channel = i % 3, image = i / 3 / area;
        if (c->is_tf)
            out[(image * 3 + channel) * area + pixel] = (float)(127.5 + 127.5 * s) - mean[channel];
        else
            out[i] = (float)(2 * s);
    }
    return out;
}

/* --- a graph that shows everything ------------------------------------------------------------ */

typedef struct {
    const td_detector_case *c;
    td_rewriter rw;
    int n_relu6, n_pools, n_units, n_biases, n_maps;
} observer;

static void show(observer *o, const td_value *v, const char *format, ...) TD_PRINTF(3, 4);

static void show(observer *o, const td_value *v, const char *format, ...)
{
    char name[NAME_BYTES + 16];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    td_output(o->rw.b, name, td_rw_get(&o->rw, v));
}

/* the number of the last residual unit so far: of its block, from 1 */
static void show_unit(observer *o, const td_value *v)
{
    static const int blocks[4] = { 3, 4, 6, 3 };
    int block = 0, unit = o->n_units++;
    while (unit >= blocks[block])
        unit -= blocks[block++];
    if (o->c->is_tf)
        show(o, v, "block%d_unit%d", block + 1, unit + 1);
    else if (unit == blocks[block] - 1)
        show(o, v, "stage_conv%d_x", block + 2);
}

/* the map that a convolution of the heads reads */
static void show_map(observer *o, const td_node *conv)
{
    char first[32];
    if (o->c->is_tf)
        snprintf(first, sizeof first, "heads.box_tower.0.conv.weight");
    else
        snprintf(first, sizeof first, "loc.%d.weight", o->n_maps);
    if (strcmp(conv->in[1]->name, first) != 0)
        return;
    if (o->c->is_tf)
        show(o, conv->in[0], "feature_map_level%d", 3 + o->n_maps++);
    else
        show(o, conv->in[0], "feature_map_%d", o->n_maps++);
}

static void show_statistics(observer *o, const td_node *norm)
{
    const double n = (double)(td_type_count(td_in_type(norm, 0)) / td_in_type(norm, 0)->dim[1]);
    const td_scale_attr corrected = { .by = n / (n - 1) };
    char name[NAME_BYTES];
    show(o, norm->out[1], "mean.%s", norm->in[1]->name);
    snprintf(name, sizeof name, "variance.%s", norm->in[1]->name);
    td_output(o->rw.b, name,
              td_emit(o->rw.b, &td_op_scale, &corrected, td_rw_get(&o->rw, norm->out[2])));
}

static void observe(observer *o, const td_node *n)
{
    if (n->op == &td_op_relu6 && o->n_relu6++ == 0)
        show(o, n->out[0], "stem_conv_bn_relu6");
    else if (n->op == &td_op_max_pool2d && o->n_pools++ == 0 && o->c->is_tf)
        show(o, n->out[0], "stem_pool");
    else if (n->op == &td_op_relu && n->in[0]->producer->op == &td_op_add)
        show_unit(o, n->out[0]);
    else if (n->op == &td_op_bias_add)
        show(o, n->out[0], "projection_%d", 3 - o->n_biases++);
    else if (n->op == &td_op_conv2d)
        show_map(o, n);
    else if (n->op == &td_op_batch_norm)
        show_statistics(o, n);
}

td_graph *td_detector_observed(const td_detector_case *c, bool is_training)
{
    td_graph *plain, *out;
    expect_ok(td_model_graph(&c->model, c->batch, is_training, &plain));
    observer o = { .c = c, .rw = { .old = plain, .b = td_build_begin() } };
    o.rw.map = td_alloc((size_t)plain->n_values + 1, sizeof *o.rw.map);
    assert_non_null(o.rw.map);
    for (int i = 0; i < plain->n_nodes; i++)
        td_rw_copy(&o.rw, plain->nodes[i]);
    for (int i = 0; i < plain->n_nodes; i++)
        observe(&o, plain->nodes[i]);
    show(&o, td_graph_output_value(plain, "codes"), c->is_tf ? "box_encodings" : "loc");
    show(&o, td_graph_output_value(plain, "scores"), c->is_tf ? "class_predictions" : "conf");
    td_free(o.rw.map);
    expect_ok(td_build_end(o.rw.b, &out));
    td_graph_free(plain);
    return out;
}

/* --- comparing -------------------------------------------------------------------------------- */

/* heads of SSD300 are golden as [N, columns, A] */
double *td_detector_ordered(const td_detector_case *c, const td_type *t, const float *values)
{
    const int64_t n = td_type_count(t);
    double *out = td_alloc((size_t)n, sizeof *out);
    assert_non_null(out);
    int64_t C = 1, area = 1; /* [N, area, C] from [N, C, area], or the other way round */
    if (c->is_tf && t->rank == 4) {
        C = t->dim[1];
        area = t->dim[2] * t->dim[3];
    } else if (!c->is_tf && t->rank == 3) {
        C = t->dim[1];
        area = t->dim[2];
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t image = i / (C * area), at = i / area % C, pixel = i % area;
        out[(image * area + pixel) * C + at] = (double)values[i];
    }
    return out;
}

static double norm_of(const double *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

double td_detector_norm_error(const td_json *summary, const double *values, int64_t n)
{
    const double l2 = td_golden_number(summary, "l2");
    return fabs(norm_of(values, n) - l2) / fmax(l2, 1e-30);
}

double td_detector_error(const td_json *summary, const double *values, int64_t n)
{
    const td_json *samples = td_json_get(summary, "samples");
    double scale = td_golden_number(summary, "l2") / sqrt((double)n), largest = 0;
    for (size_t k = 0; k < td_json_count(samples); k++) {
        double v;
        expect_ok(td_json_as_number(td_json_at(samples, k), &v));
        scale = fmax(scale, fabs(v));
        largest = fmax(largest, fabs(v - values[td_golden_sample((int64_t)k, n)]));
    }
    return fmax(td_detector_norm_error(summary, values, n), largest / fmax(scale, 1e-30));
}
