/*
 * onnx_job.c -- tandem convert WEIGHTS OUT.onnx
 *
 *     weights -> program -> ONNX model -> OUT.onnx.tmp.PID -> rename
 *                   |                            |
 *                   |        read back, checked, made a graph of our own again, compiled
 *                   +---- the same pictures ---- + : the same logits, or nothing is renamed
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/field.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "image/image.h"
#include "pass/amp.h"
#include "train/checkpoint.h"
#include "train/inputs.h"
#include "train/network.h"
#include "train/onnx_export.h"
#include "train/weight_file.h"
#include "train/weights.h"

#define CHECK_BATCH 2    /* pictures of a file whose batch is open */
#define TOLERANCE   1e-4 /* of the largest logit: kernels and their order of sums differ, no more */

static const char *const input_names[] = { "normalised", "float", "bytes", NULL };
static const char *const se_names[] = { "conv", "linear", NULL };

/* clang-format off */
static const td_field fields[] = {
    TD_INT    (td_onnx_opts, opset, 13, TD_ONNX_OPSET_MIN, TD_ONNX_OPSET_MAX,
               "version of ONNX's operators"),
    TD_INT_AS (td_onnx_opts, batch_size, "batch-size", "b", 0, 0, 65536, NULL,
               "pictures a run; 0: any number"),
    TD_ENUM_AS(td_onnx_opts, input, "export-preprocessing", NULL, 0, input_names,
               "what comes in: f32 [N,3,H,W] as the network wants it; the same as 0..255; or u8 "
               "[N,H,W,3]"),
    TD_ENUM   (td_onnx_opts, se_layers, 0, se_names,
               "squeeze-and-excitation as 1x1 convolutions or linear layers"),
    TD_BOOL   (td_onnx_opts, probabilities, false, "a second output, softmax of the logits"),
    TD_BOOL   (td_onnx_opts, half_weights, false,
               "filters and matrices as fp16, cast to f32 when they are read"),
    TD_BOOL   (td_onnx_opts, verify, true,
               "read the file back, run it and compare before it is put in place"),
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
    td_onnx *model;
    int batch;
    td_onnx_result *r;
} job;

/* --- the output's name ------------------------------------------------------------------------ */

/* the base name, its ending replaced by .onnx */
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

static td_status open_network(job *j, const char *weights)
{
    td_model_opts *model = &j->o.model;
    TD_TRY(td_weight_file_open_as(weights, j->o.use_ema, &j->weights));
    /* of PyTorch's file the averages were read instead, ours has both */
    const bool is_ours = !td_tensors_meta(j->weights, "torch.container");
    td_weight_facts_apply(j->weights, td_model_is_default(model), model);
    if (td_model_detector(model))
        return td_error(TD_EUNSUPPORTED,
                        "'%s': %s is a detector, and ONNX files are of classifiers", weights,
                        model->arch);
    TD_TRY(td_model_image_size(model, &model->image_size));
    td_model_name(model, j->r->arch, sizeof j->r->arch);
    j->batch = j->o.batch_size ? j->o.batch_size : CHECK_BATCH;
    TD_TRY(td_device_open("cpu", &j->dev));
    TD_TRY(td_judging_graph(model, j->batch, 0, false, &j->graph));
    TD_TRY(compile(j, j->graph, NULL, &j->program));
    return td_weights_load(j->weights, weights,
                           &(td_load_opts){ .use_ema = j->o.use_ema && is_ours, .model = model },
                           j->program);
}

/* --- the model -------------------------------------------------------------------------------- */

static void add_channels(td_onnx *m, const char *key, const float values[3])
{
    char text[80];
    snprintf(text, sizeof text, "[%.9g, %.9g, %.9g]", (double)values[0], (double)values[1],
             (double)values[2]);
    td_onnx_set_meta(m, key, text);
}

static void add_facts(job *j)
{
    char text[32];
    td_onnx *m = j->model;
    const char *classes = td_tensors_meta(j->weights, "tandem.classes");
    td_onnx_set_meta(m, "tandem.arch", j->r->arch);
    if (j->o.model.variant == TD_VARIANT_TENSORFLOW)
        td_onnx_set_meta(m, "tandem.variant", td_variant_name(TD_VARIANT_TENSORFLOW));
    snprintf(text, sizeof text, "%d", j->o.model.image_size);
    td_onnx_set_meta(m, "tandem.image_size", text);
    td_onnx_set_meta(m, "tandem.input", input_names[j->o.input]);
    add_channels(m, "tandem.mean", td_image_mean);
    add_channels(m, "tandem.std", td_image_std);
    if (classes)
        td_onnx_set_meta(m, "tandem.classes", classes);
}

static td_status make_model(job *j)
{
    td_status st = TD_OK;
    td_graph *other = NULL;
    TD_TRY(td_onnx_new(&j->model));
    j->model->opset = j->o.opset;
    j->model->ir_version = td_onnx_ir_version(j->o.opset);
    j->model->producer = td_onnx_text(j->model, "tandem");
    j->model->producer_version = td_onnx_text(j->model, td_version());
    j->model->graph_name = td_onnx_text(j->model, j->r->arch);
    if (!j->o.batch_size)
        TD_OUT(td_judging_graph(&j->o.model, j->batch + 1, 0, false, &other));
    TD_OUT(td_onnx_of_graph(j->graph, other, j->program, &j->o, j->model));
    add_facts(j);
    j->r->n_nodes = (int)j->model->n_nodes;
out:
    td_graph_free(other);
    return st == TD_OK ? j->model->st : st;
}

/* --- the proof -------------------------------------------------------------------------------- */

/* Pictures as the file wants them, and as the program does, each in its own way. */
typedef struct {
    void *raw;
    float *plain, *prepared; /* [batch, 3, H, W] */
} pictures;

static void fill(const job *j, pictures *p)
{
    td_rng rng = td_rng_make(1, TD_RNG_SYNTH, 0, 0);
    int64_t side = j->o.model.image_size, plane = side * side;
    for (int64_t i = 0; i < j->batch * 3 * plane; i++) {
        int64_t c = i / plane % 3;
        if (j->o.input == TD_ONNX_IN_NORMALISED) {
            p->plain[i] = ((float *)p->raw)[i] = (float)td_rng_normal(&rng);
            continue;
        }
        uint8_t byte = (uint8_t)td_rng_below(&rng, 256);
        p->plain[i] = ((float)byte - td_image_mean[c]) / td_image_std[c];
        if (j->o.input == TD_ONNX_IN_FLOAT)
            ((float *)p->raw)[i] = byte;
        else
            ((uint8_t *)p->raw)[(i / (3 * plane) * plane + i % plane) * 3 + c] = byte;
    }
}

static td_status compare(const job *j, const char *output, const td_program *back)
{
    td_type type, other;
    double most = 0, largest = 0;
    const float *a = td_program_output(j->program, output, &type);
    const float *b = td_program_output(back, output, &other);
    if (!a || !b || !td_type_same_shape(&type, &other))
        return td_error(TD_EFORMAT, "the file has another output '%s'", output);
    for (int64_t i = 0; i < td_type_count(&type); i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return td_error(TD_ENUMERIC, "the network's %s are not all finite numbers", output);
        most = d > most ? d : most;
        largest = fabs((double)a[i]) > largest ? fabs((double)a[i]) : largest;
    }
    double relative = largest > 0 ? most / largest : most;
    if (strcmp(output, "logits") == 0)
        j->r->difference = relative;
    if (relative > TOLERANCE)
        return td_error(TD_EFORMAT, "the file's %s differ by %.2g of the largest, wanted %.2g",
                        output, relative, TOLERANCE);
    return TD_OK;
}

static td_status run_both(job *j, const td_onnx_graph *g, td_program *back, pictures *p)
{
    fill(j, p);
    TD_TRY(td_onnx_prepare(g, p->raw, p->prepared));
    TD_TRY(td_program_bind(j->program, "images", p->plain));
    TD_TRY(td_program_bind(back, "images", p->prepared));
    TD_TRY(td_program_run(j->program));
    TD_TRY(td_program_run(back));
    TD_TRY(compare(j, "logits", back));
    return j->o.probabilities ? compare(j, "probabilities", back) : TD_OK;
}

static td_status verify_model(job *j, const td_onnx *m)
{
    td_status st = TD_OK;
    td_onnx_graph g = { 0 };
    td_program *back = NULL;
    pictures p = { 0 };
    size_t side = (size_t)j->o.model.image_size, n = (size_t)j->batch * 3 * side * side;
    p.raw = td_alloc(n, sizeof(float));
    p.plain = td_alloc(n, sizeof(float));
    p.prepared = td_alloc(n, sizeof(float));
    if (!p.raw || !p.plain || !p.prepared)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_graph_of_onnx(m, "the file read back", j->batch, &g));
    TD_OUT(compile(j, g.graph, "fold,fuse,winograd", &back));
    TD_OUT(td_onnx_set_weights(&g, back));
    TD_OUT(run_both(j, &g, back, &p));
    j->r->was_verified = true;
out:
    td_program_free(back);
    td_onnx_graph_release(&g);
    td_free(p.raw);
    td_free(p.plain);
    td_free(p.prepared);
    return st;
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
    TD_OUT(make_model(&j));
    TD_OUT(td_onnx_write(j.model, j.out_path, j.o.verify ? verify : NULL, &j));
    if (stat(j.out_path, &file) == 0)
        out->bytes = file.st_size;
out:
    td_onnx_free(j.model);
    td_program_free(j.program);
    td_graph_free(j.graph);
    td_device_close(j.dev);
    td_tensors_free(j.weights);
    return st;
}
