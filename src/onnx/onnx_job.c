/*
 * onnx_job.c -- tandem convert WEIGHTS OUT.onnx
 *
 *     weights -> program -> ONNX model -> OUT.onnx.tmp.PID -> rename
 *                   |                            |
 *                   |        read back, checked, imported as a graph, compiled
 *                   +---- the same images ---- + : renamed only if the logits are equal
 *
 * A network whose nodes do not depend on the size of the images is written for any height and
 * width; the logits are then compared at a second size, too, which is not square.
 *
 * For a detector, deltas and logits are compared, then boxes and scores; the result of suppression
 * must be bit-equal to that of boxes/nms.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/paths.h"
#include "base/rng.h"
#include "boxes/decode.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/class_names.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "image/image.h"
#include "image/norm_text.h"
#include "inference/detect_data.h"
#include "inference/detector.h"
#include "inference/inputs.h"
#include "io/atomic.h"
#include "model/arch.h"
#include "onnx/onnx_detections.h"
#include "onnx/onnx_export.h"
#include "onnx/onnx_qdq.h"
#include "ops/ops.h"
#include "optim/training_graph.h"
#include "options/field.h"
#include "pass/amp.h"

#define CHECK_BATCH 2    /* images if the batch size is not fixed */
#define TOLERANCE   1e-4 /* relative to the largest logit: kernels add in different orders */

#define TOLERANCE_BEHIND 1e-6 /* the same arithmetic on the same numbers */

/* the second size: odd, and as different in height and width as the deepest maps need to differ */
#define MORE_ROWS    37
#define MORE_COLUMNS 139

static const char *const input_names[] = { "normalised", "float", "bytes", NULL };
static const char *const se_names[] = { "conv", "linear", NULL };

/* clang-format off */
static const td_field fields[] = {
    TD_INT    (td_onnx_opts, opset, 0, 0, TD_ONNX_OPSET_MAX,
               "ONNX opset version, 13 or later; 0: 13, or 17 for a network with layer norms"),
    TD_INT_AS (td_onnx_opts, batch_size, "batch-size", "b", 0, 0, 65536, NULL,
               "fixed batch size of the model; 0: dynamic"),
    TD_ENUM_AS(td_onnx_opts, input, "export-preprocessing", NULL, TD_ONNX_IN_NORMALISED,
               input_names,
               "model input; normalised: f32 [N,C,H,W], normalized as for the network; float: "
               "f32 [N,C,H,W], 0 to 255; bytes: u8 [N,H,W,C]; C: 3, or 1 of a gray network"),
    TD_ENUM   (td_onnx_opts, se_layers, TD_ONNX_SE_CONV, se_names,
               "export squeeze-and-excitation as 1x1 convolutions or as linear layers"),
    TD_BOOL   (td_onnx_opts, probabilities, false, "add a second output: softmax of the logits"),
    TD_BOOL   (td_onnx_opts, half_weights, false,
               "store filters and matrices in fp16; the model casts them to f32"),
    TD_BOOL   (td_onnx_opts, qdq, true,
               "write quantized weights as integers, with QuantizeLinear and DequantizeLinear "
               "around each convolution; otherwise as floats"),
    TD_BOOL   (td_onnx_opts, verify, true,
               "read the file back, run it and compare the outputs before OUT is replaced"),
    TD_BOOL   (td_onnx_opts, nms, true,
               "detectors: include non-maximum suppression; otherwise output all boxes and "
               "scores"),
    TD_REAL_AS(td_onnx_opts, boxes.min_score, "min_score", NULL, -1, -1, 1, NULL,
               "minimum score of a detection; -1: 1e-8 for ssd320, 0.05 for ssd300 and "
               "retinanet_resnet50_fpn, 0.001 for ssdlite320_mobilenet_v3_large"),
    TD_REAL_AS(td_onnx_opts, boxes.nms_iou, "nms_iou", NULL, -1, -1, 1, NULL,
               "IoU threshold of non-maximum suppression; -1: 0.6 for ssd320, 0.5 for ssd300 "
               "and retinanet_resnet50_fpn, 0.55 for ssdlite320_mobilenet_v3_large"),
    TD_INT_AS (td_onnx_opts, boxes.max_per_class, "max_per_class", NULL, 0, 0, TD_NMS_TOTAL_MAX,
               NULL,
               "maximum number of detections per class and image; 0: 100 for ssd320, 200 for "
               "ssd300, 300 for ssdlite320_mobilenet_v3_large, 1000 for "
               "retinanet_resnet50_fpn"),
    TD_INT_AS (td_onnx_opts, boxes.max_boxes, "max_boxes", NULL, 0, 0, TD_NMS_TOTAL_MAX, NULL,
               "maximum number of detections per image; 0: 100 for ssd320, 200 for ssd300, 300 " \
               "for ssdlite320_mobilenet_v3_large and retinanet_resnet50_fpn"),
    TD_END,
};
/* clang-format on */

const td_field *td_onnx_fields(void)
{
    return fields;
}

void td_onnx_defaults(td_onnx_opts *opts)
{
    *opts = (td_onnx_opts){ 0 };
    td_fields_default(fields, opts);
    td_model_defaults(&opts->model);
}

typedef struct {
    td_onnx_opts o;
    const char *out_path;
    td_tensors *weights;
    td_device *dev;
    td_graph *graph;
    td_program *program;
    td_quantization quantization;
    td_onnx_qdq qdq; /* of a quantized network; without a graph: not used */
    td_onnx *model;
    td_anchors *anchors; /* NULL for a classifier */
    td_nms_opts nms;
    int batch;
    td_graph *larger; /* `graph` or qdq.graph for larger images; NULL: the size is fixed */
    td_onnx_result *r;

    /* of the comparison */
    td_program *own;
    int n, height, width;
} job;

/* --- the output's name ------------------------------------------------------------------------ */

/* the base name of the weights, with the extension .onnx */
static td_status output_name(const char *weights, char *out, size_t room)
{
    static const char *const endings[] = { ".pth.tar", ".safetensors", ".pth", ".pt" };
    const char *base = td_path_base(weights), *dot = strrchr(base, '.');
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (td_text_ends(base, endings[i]) && strlen(base) > strlen(endings[i])) {
            n = strlen(base) - strlen(endings[i]);
            break;
        }
    if (n + sizeof ".onnx" > room)
        return td_error(TD_EARG, "the name '%.80s' is too long", base);
    snprintf(out, room, "%.*s.onnx", (int)n, base);
    return TD_OK;
}

/* --- the program ------------------------------------------------------------------------------ */

static td_status compile(job *j, const td_graph *g, const char *skip, td_program **out)
{
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    return td_compile(g, j->dev, &(td_compile_opts){ .amp = &float32, .skip = skip }, out);
}

/* checks that the options apply to the network and are compatible with each other */
static td_status check_options(const job *j, const char *weights)
{
    char room[TD_OPTION_NAME];
    const char *const limit = td_box_limit_set(&j->o.boxes, room);
    const td_network_option rows[] = { { false, j->o.probabilities, "--probabilities" },
                                       { true, limit != NULL, limit },
                                       { true, !j->o.nms, "--no-nms" } };
    TD_TRY(td_network_options_check(rows, sizeof rows / sizeof *rows, j->anchors, weights));
    if (limit && !j->o.nms)
        return td_error(TD_EUSAGE, "%s and --no-nms exclude each other: --no-nms keeps all boxes",
                        limit);
    return TD_OK;
}

static td_status open_detector(job *j)
{
    const td_model_opts *model = &j->o.model;
    const td_detector kind = td_model_detector(model);
    j->r->is_detector = kind != TD_DETECTOR_NONE;
    if (!j->r->is_detector)
        return TD_OK;
    j->nms = td_boxes_nms(&j->o.boxes, kind);
    return td_anchors_new(kind, model->image_size, &j->anchors);
}

/* counts the trained weights, and the operations for an image */
static void count(job *j)
{
    const td_graph *g = j->graph;
    for (int i = 0; i < g->n_values; i++) {
        const td_value *v = g->values[i];
        if (td_value_is_param(v) &&
            ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_WEIGHT)
            j->r->parameters += td_type_count(&v->type);
    }
    j->r->macs = td_graph_macs(g) / j->batch;
}

/* quantized weights: the network in QDQ form */
static td_status quantize(job *j, const char *weights)
{
    TD_TRY(td_quantization_read(j->weights, weights, &j->quantization));
    if (!j->quantization.n || !j->o.qdq)
        return TD_OK;
    if (j->o.half_weights)
        return td_error(TD_EUSAGE,
                        "--half-weights and the quantized weights '%s' exclude each other; with "
                        "--no-qdq the network is written in floats",
                        weights);
    return td_onnx_qdq_init(j->graph, &j->quantization.table, j->program, j->dev, &j->qdq);
}

static td_status open_network(job *j, const char *weights)
{
    td_model_opts *model = &j->o.model;
    TD_TRY(td_weight_file_open_for(weights, j->o.use_ema, model, &j->weights));
    /* from a PyTorch file only the averages were read; our files have both */
    const bool is_ours = !td_tensors_meta(j->weights, "torch.container");
    td_weight_metadata_apply(j->weights, td_model_is_default(model), model);
    TD_TRY(td_weight_channels_check(j->weights, weights, model));
    TD_TRY(td_weight_norm_apply(j->weights, weights, true, model));
    TD_TRY(td_model_resolve_images(model));
    td_model_name(model, j->r->arch, sizeof j->r->arch);
    TD_TRY(open_detector(j));
    TD_TRY(check_options(j, weights));
    if (j->o.classes)
        TD_TRY(td_class_names_put(j->o.classes, weights, model, td_class_names_outputs(model),
                                  j->weights));
    j->batch = j->o.batch_size ? j->o.batch_size : CHECK_BATCH;
    TD_TRY(td_device_open("cpu", &j->dev));
    TD_TRY(td_inference_graph(model, j->batch, NULL, &j->graph));
    count(j);
    TD_TRY(compile(j, j->graph, NULL, &j->program));
    TD_TRY(td_weights_load(j->weights, weights,
                           &(td_load_opts){ .use_ema = j->o.use_ema && is_ours, .model = model },
                           j->program));
    return quantize(j, weights);
}

/* --- the model -------------------------------------------------------------------------------- */

static void add_channels(td_onnx *m, const char *key, int channels, const float values[3])
{
    char text[80];
    if (channels == 1)
        snprintf(text, sizeof text, "[%.9g]", (double)values[0]);
    else
        snprintf(text, sizeof text, "[%.9g, %.9g, %.9g]", (double)values[0], (double)values[1],
                 (double)values[2]);
    td_onnx_set_meta(m, key, text);
}

static void add_metadata(job *j)
{
    char text[TD_NORM_TEXT];
    td_onnx *m = j->model;
    static const char *const kept[] = { "tandem.classes",        "tandem.categories",
                                        "tandem.num_classes",    "tandem.se_form",
                                        "tandem.graph",          "tandem.multi_label",
                                        TD_LAST_ACTIVATION_META, TD_QUANTIZATION_META };
    const td_norm *norm = td_onnx_norm(&j->o.model);
    const int channels = td_model_channels(&j->o.model);
    td_onnx_set_meta(m, "tandem.arch", j->r->arch);
    if (j->anchors && !td_model_lacks(&j->o.model, "backbone"))
        td_onnx_set_meta(m, "tandem.backbone", j->o.model.backbone);
    if (j->o.model.variant == TD_VARIANT_TENSORFLOW)
        td_onnx_set_meta(m, "tandem.variant", td_variant_name(TD_VARIANT_TENSORFLOW));
    if (j->o.model.bn_epsilon >= 0 && !td_model_lacks(&j->o.model, "bn_epsilon")) {
        snprintf(text, sizeof text, "%.17g", j->o.model.bn_epsilon);
        td_onnx_set_meta(m, TD_EPSILON_META, text);
    }
    snprintf(text, sizeof text, "%d", j->o.model.image_size);
    td_onnx_set_meta(m, "tandem.image_size", text);
    if (channels == 1)
        td_onnx_set_meta(m, "tandem.channels", "1");
    td_onnx_set_meta(m, "tandem.input", input_names[j->o.input]);
    add_channels(m, "tandem.mean", channels, norm->mean);
    add_channels(m, "tandem.std", channels, norm->std);
    if (norm == &j->o.model.norm) {
        td_norm_print(norm->mean, channels, text);
        td_onnx_set_meta(m, TD_NORM_META_MEAN, text);
        td_norm_print(norm->std, channels, text);
        td_onnx_set_meta(m, TD_NORM_META_STD, text);
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept - !j->qdq.graph; i++)
        if (td_tensors_meta(j->weights, kept[i]))
            td_onnx_set_meta(m, kept[i], td_tensors_meta(j->weights, kept[i]));
}

static const td_graph *graph_of(const job *j)
{
    return j->qdq.graph ? j->qdq.graph : j->graph;
}

static td_program *program_of(const job *j)
{
    return j->qdq.graph ? j->qdq.program : j->program;
}

/* the opset of the options, or the first one that has the network's operators */
static td_status choose_opset(job *j)
{
    if (j->o.opset && j->o.opset < TD_ONNX_OPSET_MIN)
        return td_error(TD_EUSAGE, "--opset is %d, wanted %d to %d", j->o.opset, TD_ONNX_OPSET_MIN,
                        TD_ONNX_OPSET_MAX);
    j->r->opset = j->o.opset ? j->o.opset : TD_ONNX_OPSET_MIN;
    for (int i = 0; i < j->graph->n_nodes && !j->o.opset; i++)
        if (j->graph->nodes[i]->op == &td_op_layer_norm)
            j->r->opset = TD_ONNX_OPSET_LAYER_NORM;
    return TD_OK;
}

/* replaces the graph by its QDQ form */
static td_status make_quantized(const td_activation_ranges *ranges, td_graph **g)
{
    td_graph *quantized;
    TD_TRY(td_onnx_qdq_graph(*g, ranges, &quantized));
    td_graph_free(*g);
    *g = quantized;
    return TD_OK;
}

/* the network for images of another size, in QDQ form if the file has that */
static td_status sized_graph(const job *j, int batch, int more_rows, int more_columns,
                             td_graph **out)
{
    const int side = j->o.model.image_size;
    TD_TRY(
        td_inference_graph_sized(&j->o.model, batch, side + more_rows, side + more_columns, out));
    td_status st = j->qdq.graph ? make_quantized(&j->quantization.table, out) : TD_OK;
    if (st != TD_OK) {
        td_graph_free(*out);
        *out = NULL;
    }
    return st;
}

/* the images get the size of the network */
static void fix_size(job *j, const char *why)
{
    td_graph_free(j->larger);
    j->larger = NULL;
    j->r->image_size = j->o.model.image_size;
    snprintf(j->r->fixed_by, sizeof j->r->fixed_by, "%s", why);
}

/* leaves the size open if nodes, parameters and attributes are the same for other sizes */
static td_status choose_size(job *j, bool is_given)
{
    static const int more[][2] = { { 32, 64 }, { MORE_ROWS, MORE_COLUMNS } };
    char why[TD_ONNX_WHY] = "";
    if (is_given || j->anchors) {
        fix_size(j, is_given ? "" : "its anchors depend on the image size");
        return TD_OK;
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        td_graph_free(j->larger);
        const td_status st = sized_graph(j, j->batch, more[i][0], more[i][1], &j->larger);
        if (st == TD_ENOMEM)
            return st;
        if (st != TD_OK) {
            snprintf(why, sizeof why, "%s", td_error_message());
            td_error_clear();
        }
        if (st != TD_OK || !td_onnx_any_size(graph_of(j), j->larger, why)) {
            fix_size(j, why);
            return TD_OK;
        }
    }
    return TD_OK;
}

static td_status write_model(job *j)
{
    td_status st = TD_OK;
    td_graph *other = NULL;
    td_onnx_free(j->model);
    TD_TRY(td_onnx_new(&j->model));
    j->model->opset = j->r->opset;
    j->model->ir_version = td_onnx_ir_version(j->r->opset);
    j->model->producer = td_onnx_text(j->model, "tandem");
    j->model->producer_version = td_onnx_text(j->model, td_version());
    j->model->graph_name = td_onnx_text(j->model, j->r->arch);
    if (!j->o.batch_size)
        TD_OUT(td_inference_graph(&j->o.model, j->batch + 1, NULL, &other));
    if (other && j->qdq.graph)
        TD_OUT(make_quantized(&j->quantization.table, &other));
    TD_OUT(td_onnx_of_graph(graph_of(j), other, j->larger, program_of(j),
                            j->qdq.graph ? &j->qdq.integers : NULL, &j->o, j->model));
    if (j->anchors)
        TD_OUT(td_onnx_add_detections(j->model, j->anchors, j->o.nms ? &j->nms : NULL));
    add_metadata(j);
    j->r->n_nodes = (int)j->model->n_nodes;
out:
    td_graph_free(other);
    return st == TD_OK ? j->model->st : st;
}

static td_status make_model(job *j)
{
    TD_TRY(choose_opset(j));
    const td_status st = write_model(j);
    if (st != TD_EUNSUPPORTED || !j->larger)
        return st;
    fix_size(j, td_error_message()); /* if not for the size, the same error comes again */
    td_error_clear();
    return write_model(j);
}

/* --- verification ----------------------------------------------------------------------------- */

/* The same images in the formats of the file and of the program. */
typedef struct {
    void *raw;
    float *plain, *prepared; /* [batch, C, H, W] */
} images;

static void fill(const job *j, images *p)
{
    td_rng rng = td_rng_make(1, TD_RNG_SYNTH, 0, 0);
    const td_norm *norm = td_onnx_norm(&j->o.model);
    const int64_t plane = (int64_t)j->height * j->width, channels = td_model_channels(&j->o.model);
    for (int64_t i = 0; i < j->n * channels * plane; i++) {
        int64_t c = i / plane % channels;
        if (j->o.input == TD_ONNX_IN_NORMALISED) {
            float x = (float)td_rng_normal(&rng) * td_image_std[c] / norm->std[c];
            p->plain[i] = ((float *)p->raw)[i] = x;
            continue;
        }
        uint8_t byte = (uint8_t)td_rng_below(&rng, 256);
        p->plain[i] = ((float)byte - norm->mean[c]) / norm->std[c];
        if (j->o.input == TD_ONNX_IN_FLOAT)
            ((float *)p->raw)[i] = byte;
        else
            ((uint8_t *)p->raw)[(i / (channels * plane) * plane + i % plane) * channels + c] = byte;
    }
}

/* compares the network's numbers with the file's; *relative: the largest difference, divided by the
   largest number */
static td_status compare(const char *name, const float *a, const float *b, int64_t n, double most,
                         double *relative)
{
    double largest = 0, apart = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return td_error(TD_ENUMERIC, "the network's %s are not all finite", name);
        apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)a[i]));
    }
    *relative = largest > 0 ? apart / largest : apart;
    if (*relative > most)
        return td_error(TD_EFORMAT,
                        "the file's %s differ by %.2g of the largest value, wanted at most %.2g",
                        name, *relative, most);
    return TD_OK;
}

/* compares an output of the network with output `name` of the file */
static td_status compare_output(const job *j, const char *output, const td_program *back,
                                const char *name)
{
    td_type type, other;
    double relative;
    const float *a = td_program_output(j->own, output, &type);
    const float *b = td_program_output(back, name, &other);
    if (!a || !b || !td_type_same_shape(&type, &other))
        return td_error(TD_EFORMAT, "the file has an unexpected output '%s'", name);
    TD_TRY(compare(name, a, b, td_type_count(&type), TOLERANCE, &relative));
    if (strcmp(name, "probabilities") != 0)
        j->r->difference = fmax(j->r->difference, relative);
    return TD_OK;
}

static td_status run_both(job *j, const td_onnx_graph *g, td_program *back, images *p)
{
    fill(j, p);
    TD_TRY(td_onnx_prepare(g, p->raw, p->prepared));
    TD_TRY(td_program_bind(j->own, "images", p->plain));
    TD_TRY(td_program_bind(back, "images", p->prepared));
    TD_TRY(td_program_run(j->own));
    return td_program_run(back);
}

/* --- detectors -------------------------------------------------------------------------------- */

/* logits [N, A, C + 1] -> scores [N, A, C] */
static void scores_of(const job *j, const float *logits, int64_t n, int n_columns, float *scores)
{
    const bool is_softmax = td_detector_rules_of(j->anchors->kind)->is_softmax;
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * n_columns;
        double sum = 0, most = (double)x[0];
        for (int c = 1; c < n_columns; c++)
            most = fmax(most, (double)x[c]);
        for (int c = 0; c < n_columns; c++)
            sum += exp((double)x[c] - most);
        for (int c = 1; c < n_columns; c++)
            *scores++ =
                (float)(is_softmax ? exp((double)x[c] - most) / sum : 1 / (1 + exp(-(double)x[c])));
    }
}

/* the value of that name, of that type; NULL and an error if missing */
static const td_onnx_array *value_of(const td_onnx_eval *e, const char *name, td_dtype d, int rank)
{
    const td_onnx_array *a = td_onnx_eval_get(e, name);
    if (a && a->dtype == d && a->rank == rank)
        return a;
    (void)!td_error(TD_EFORMAT, "the file has no '%s' with the written name, type and shape", name);
    return NULL;
}

/* compares the file's boxes and scores with those that we compute from its deltas and logits */
static td_status compare_boxes(const job *j, const td_program *back, const td_onnx_eval *e)
{
    td_status st = TD_OK;
    double relative;
    td_type type;
    const td_onnx_array *boxes = value_of(e, TD_ONNX_BOXES, TD_DT_F32, 3);
    const td_onnx_array *scores = value_of(e, TD_ONNX_SCORES, TD_DT_F32, 3);
    const float *deltas = td_program_output(back, "codes", NULL);
    const float *logits = td_program_output(back, "logits", &type);
    const int n_columns = (int)type.dim[2];
    const int64_t a = j->anchors->n, rows = j->batch * a;
    if (!boxes || !scores)
        return TD_EFORMAT;
    td_rect *own = td_alloc((size_t)rows, sizeof *own);
    float *own_scores = td_alloc((size_t)rows * (size_t)n_columns, sizeof *own_scores);
    if (!own || !own_scores)
        TD_OUT(TD_ENOMEM);
    for (int64_t i = 0; i < j->batch; i++)
        td_boxes_decode(j->anchors, deltas + i * a * 4, own + i * a);
    scores_of(j, logits, rows, n_columns, own_scores);
    TD_OUT(compare(TD_ONNX_BOXES, &own->ymin, boxes->f, rows * 4, TOLERANCE_BEHIND, &relative));
    TD_OUT(compare(TD_ONNX_SCORES, own_scores, scores->f, rows * (n_columns - 1), TOLERANCE_BEHIND,
                   &relative));
out:
    td_free(own);
    td_free(own_scores);
    return st;
}

typedef struct {
    const td_onnx_array *boxes, *scores, *found, *score, *label, *n;
} detections;

static td_status get_detections(const td_onnx_eval *e, detections *d)
{
    d->boxes = value_of(e, TD_ONNX_BOXES, TD_DT_F32, 3);
    d->scores = value_of(e, TD_ONNX_SCORES, TD_DT_F32, 3);
    d->found = value_of(e, TD_ONNX_DETECTION_BOXES, TD_DT_F32, 3);
    d->score = value_of(e, TD_ONNX_DETECTION_SCORES, TD_DT_F32, 2);
    d->label = value_of(e, TD_ONNX_DETECTION_CLASSES, TD_DT_I64, 2);
    d->n = value_of(e, TD_ONNX_NUM_DETECTIONS, TD_DT_I64, 1);
    const bool is_there = d->boxes && d->scores && d->found && d->score && d->label && d->n;
    return is_there ? TD_OK : TD_EFORMAT;
}

/* are the file's detections for image i bit-equal to `own`? */
static bool same_detections(const detections *d, int i, const td_detection *own, int n)
{
    const int64_t k = d->score->dim[1];
    bool same = d->n->i[i] == n && n <= k;
    for (int r = 0; same && r < n; r++) {
        const int64_t at = i * k + r;
        same = d->label->i[at] == own[r].label &&
               memcmp(&d->score->f[at], &own[r].score, sizeof(float)) == 0 &&
               memcmp(&d->found->f[4 * at], &own[r].box, sizeof own[r].box) == 0;
    }
    for (int64_t r = n; same && r < k; r++)
        same = d->label->i[i * k + r] == 0 && d->score->f[i * k + r] <= 0;
    return same;
}

/* By SSD300's rule a box with zero or infinite area suppresses others like it, which
   NonMaxSuppression does not do.  Untrained weights give such boxes */
static bool is_comparable(const job *j, const td_rect *boxes)
{
    bool is_valid = true;
    for (int r = 0; r < j->anchors->n && is_valid; r++)
        is_valid = td_rect_area(boxes[r]) > 0 && isfinite(td_rect_area(boxes[r]));
    return is_valid || !td_detector_rules_of(j->anchors->kind)->equal_suppresses;
}

static td_status compare_image(const job *j, td_nms *nms, const detections *d, int i,
                               float *columns, td_detection *own)
{
    const int64_t a = j->anchors->n, classes = d->scores->dim[2];
    const td_rect *boxes = (const td_rect *)(const void *)d->boxes->f + i * a;
    int n;
    if (!is_comparable(j, boxes)) {
        td_log(TD_LOG_WARN, "convert", "image %d has boxes of zero area, which are not compared",
               i);
        return TD_OK;
    }
    for (int64_t r = 0; r < a; r++) /* column 0 is the background */
        memcpy(columns + r * (classes + 1) + 1, d->scores->f + (i * a + r) * classes,
               (size_t)classes * sizeof *columns);
    TD_TRY(td_nms_run_scores(nms, &j->nms, boxes, columns, own, &n));
    return same_detections(d, i, own, n)
               ? TD_OK
               : td_error(TD_EFORMAT,
                          "the file's detections for image %d differ from the network's", i);
}

/* compares the file's detections with those that we select from its boxes and scores */
static td_status compare_detections(const job *j, const td_onnx_eval *e)
{
    td_status st = TD_OK;
    td_nms *nms = NULL;
    float *columns = NULL;
    td_detection *own = NULL;
    detections d;
    TD_OUT(get_detections(e, &d));
    const int n_columns = (int)d.scores->dim[2] + 1;
    columns = td_alloc((size_t)j->anchors->n * (size_t)n_columns, sizeof *columns);
    own = td_alloc(TD_NMS_TOTAL_MAX, sizeof *own);
    if (!columns || !own)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_nms_new(j->anchors, n_columns, &nms));
    for (int i = 0; i < j->batch; i++)
        TD_OUT(compare_image(j, nms, &d, i, columns, own));
out:
    td_nms_free(nms);
    td_free(columns);
    td_free(own);
    return st;
}

/* --- classifiers and detectors ---------------------------------------------------------------- */

static td_status compare_all(job *j, const td_onnx_graph *g, const td_program *back)
{
    td_onnx_eval *e;
    if (!j->anchors) {
        TD_TRY(compare_output(j, "logits", back, "logits"));
        return j->o.probabilities ? compare_output(j, "probabilities", back, "probabilities")
                                  : TD_OK;
    }
    TD_TRY(compare_output(j, "codes", back, "codes"));
    TD_TRY(compare_output(j, "scores", back, "logits"));
    TD_TRY(td_onnx_finish(g, "the file read back", back, &e));
    td_status st = compare_boxes(j, back, e);
    if (st == TD_OK && j->o.nms)
        st = compare_detections(j, e);
    td_onnx_eval_free(e);
    return st;
}

/* compares the model with j->own */
static td_status verify_size(job *j, const td_onnx *m)
{
    static const char *const heads[] = { "codes", "logits", NULL };
    td_status st = TD_OK;
    td_onnx_graph g = { 0 };
    td_program *back = NULL;
    images p = { 0 };
    const size_t n = (size_t)j->n * (size_t)td_model_channels(&j->o.model) * (size_t)j->height *
                     (size_t)j->width;
    p.raw = td_alloc(n, sizeof(float));
    p.plain = td_alloc(n, sizeof(float));
    p.prepared = td_alloc(n, sizeof(float));
    if (!p.raw || !p.plain || !p.prepared)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_graph_of_onnx(m, "the file read back",
                            &(td_onnx_import_opts){ .batch = j->n,
                                                    .height = j->height,
                                                    .width = j->width,
                                                    .also = j->anchors ? heads : NULL,
                                                    .is_after = td_onnx_eval_knows },
                            &g));
    TD_OUT(compile(j, g.graph, TD_ONNX_SKIP, &back));
    TD_OUT(td_onnx_set_weights(&g, back));
    TD_OUT(run_both(j, &g, back, &p));
    TD_OUT(compare_all(j, &g, back));
    j->r->was_verified = true;
out:
    td_program_free(back);
    td_onnx_graph_release(&g);
    td_free(p.raw);
    td_free(p.plain);
    td_free(p.prepared);
    return st;
}

/* the parameters of the network's program as those of another program of it */
static td_status copy_params(const job *j, const td_graph *g, td_program *to)
{
    td_status st = TD_OK;
    for (int i = 0; i < g->n_values && st == TD_OK; i++) {
        const td_value *v = g->values[i];
        if (!td_value_is_param(v))
            continue;
        void *data = td_alloc((size_t)td_type_count(&v->type), td_dtype_bytes(v->type.dtype));
        st = data ? td_program_get(program_of(j), v->name, data) : TD_ENOMEM;
        if (st == TD_OK)
            st = td_program_set(to, v->name, data);
        td_free(data);
    }
    return st;
}

/* the same for images of the second size */
static td_status verify_larger(job *j, const td_onnx *m)
{
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_program *p = NULL;
    j->n = j->o.batch_size ? j->o.batch_size : 1;
    j->height = j->o.model.image_size + MORE_ROWS;
    j->width = j->o.model.image_size + MORE_COLUMNS;
    TD_OUT(sized_graph(j, j->n, MORE_ROWS, MORE_COLUMNS, &g));
    TD_OUT(compile(j, g, j->qdq.graph ? TD_ONNX_SKIP : NULL, &p));
    TD_OUT(copy_params(j, g, p));
    j->own = p;
    st = verify_size(j, m);
    if (st != TD_OK)
        TD_OUT(td_error_context(st, "images of %d x %d", j->height, j->width));
out:
    td_program_free(p);
    td_graph_free(g);
    return st;
}

static td_status verify_model(job *j, const td_onnx *m)
{
    j->own = program_of(j);
    j->n = j->batch;
    j->height = j->width = j->o.model.image_size;
    TD_TRY(verify_size(j, m));
    return j->larger ? verify_larger(j, m) : TD_OK;
}

static td_status verify(void *ctx, const char *written)
{
    td_onnx *m = NULL;
    td_status st = td_onnx_read(written, &m);
    if (st == TD_OK)
        st = verify_model(ctx, m);
    td_onnx_free(m);
    return st == TD_OK ? st : td_error_context(st, "'%s' was not written", ((job *)ctx)->out_path);
}

/* --- the job ---------------------------------------------------------------------------------- */

td_status td_onnx_export(const char *weights, const char *out_path, const td_onnx_opts *opts,
                         td_onnx_result *out)
{
    td_status st = TD_OK;
    struct stat file;
    job j = { .o = *opts, .out_path = out_path, .r = out };
    *out = (td_onnx_result){ 0 };
    if (!out_path) {
        TD_OUT(output_name(weights, out->output, sizeof out->output));
        j.out_path = out->output;
    } else if (strlen(out_path) < sizeof out->output) {
        memcpy(out->output, out_path, strlen(out_path) + 1);
    }
    TD_OUT(td_output_check(j.out_path));
    TD_OUT(open_network(&j, weights));
    TD_OUT(td_output_check_new(j.out_path, j.o.overwrite)); /* after the checks of the options */
    TD_OUT(choose_size(&j, opts->model.image_size > 0));
    TD_OUT(make_model(&j));
    TD_OUT(td_onnx_write(j.model, j.out_path, j.o.verify ? verify : NULL, &j));
    if (stat(j.out_path, &file) == 0)
        out->bytes = file.st_size;
out:
    td_onnx_free(j.model);
    td_onnx_qdq_release(&j.qdq);
    td_quantization_release(&j.quantization);
    td_program_free(j.program);
    td_graph_free(j.larger);
    td_graph_free(j.graph);
    td_anchors_free(j.anchors);
    td_device_close(j.dev);
    td_tensors_free(j.weights);
    return st;
}
