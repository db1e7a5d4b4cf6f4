/*
 * detector_step.c -- runs one pass of a detector from a weight file, to compare it
 *
 *     detector_step ARCH BACKBONE CLASSES WEIGHTS BATCH OUT [STEPS LR MOMENTUM DECAY]
 *
 * WEIGHTS has all parameters; BATCH images f32[N,3,S,S] and either labels i64[N,A] and targets
 * f32[N,A,4], or objects, which are matched to the anchors: boxes f32[N,M,4] (ymin, xmin, ymax,
 * xmax, fractions of the image) and classes i64[N,M], 0 for none.
 *
 * OUT gets deltas, scores, loss, loss_class, loss_box of the training form, grad.W of every weight,
 * stat.S of every running statistic behind that pass, and codes_eval, scores_eval, with the
 * statistics of WEIGHTS; the labels and targets of objects; what is found in evaluation,
 * found.boxes f32[N,K,4], found.scores f32[N,K] and found.labels i64[N,K], 0 for none.  After
 * STEPS updates by SGD with that batch: after.W of every parameter.  Float32 on "cpu".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "boxes/nms.h"
#include "boxes/targets.h"
#include "io/safetensors.h"
#include "optim/training_graph.h"
#include "tandem/model.h"
#include "tandem/program.h"

typedef struct {
    td_model_opts model;
    td_detector kind;
    int batch, steps;
    float lr;
    double momentum, decay;
    td_tensors *weights, *in, *out;
    const int64_t *labels;
    const float *targets;
    td_anchors *anchors;
    td_device *dev;
} job;

static bool is_statistic(const char *name)
{
    return td_text_ends(name, ".running_mean") || td_text_ends(name, ".running_var");
}

static td_value *loss_of(td_builder *b, const job *j, td_value *deltas, td_value *scores)
{
    const td_type t = td_value_type(deltas);
    td_value *labels = td_input(b, "labels", td_type_of(TD_DT_I64, 2, t.dim));
    td_value *targets = td_input(b, "targets", t);
    return td_detector_loss(b, j->kind, deltas, scores, targets, labels);
}

static td_status training_graph(const job *j, td_graph **out)
{
    td_builder *b = td_build_begin();
    td_value *deltas, *scores;
    const int side = j->model.image_size;
    td_value *images =
        td_input(b, "images", td_type_of(TD_DT_F32, 4, (int64_t[]){ j->batch, 3, side, side }));
    td_detector_forward(b, &j->model, images, true, &deltas, &scores);
    const int n = td_build_param_count(b);
    td_value *loss = n ? loss_of(b, j, deltas, scores) : NULL;
    if (loss) {
        td_output(b, "codes", deltas);
        td_output(b, "scores", scores);
        td_output(b, "loss", loss);
    }
    for (int i = 0; i < n; i++) {
        char name[160];
        td_value *w = td_build_param(b, i);
        if (!w || is_statistic(td_value_name(w)))
            continue;
        snprintf(name, sizeof name, "grad.%s", td_value_name(w));
        td_output(b, name, td_gradient(b, loss, w));
    }
    return td_build_end(b, out);
}

/* compile, fill with the weights, bind the batch */
static td_status prepare(const job *j, const td_graph *g, bool has_targets, td_program **out)
{
    TD_TRY(td_compile(g, j->dev, &(td_compile_opts){ 0 }, out));
    TD_TRY(td_program_init(*out, 1));
    for (int i = 0; i < td_program_param_count(*out); i++) {
        const char *name = td_program_param_name(*out, i);
        const td_tensor *w = td_tensors_get(j->weights, name);
        if (w)
            TD_TRY(td_program_set(*out, name, w->data));
        else if (!td_text_starts(name, "momentum."))
            return td_error(TD_EFORMAT, "no tensor '%s' among the weights", name);
    }
    if (has_targets) {
        TD_TRY(td_program_bind(*out, "labels", j->labels));
        TD_TRY(td_program_bind(*out, "targets", j->targets));
    }
    return td_program_bind(*out, "images", td_tensors_get(j->in, "images")->data);
}

static td_status keep(const job *j, td_program *p, const char *output, const char *name)
{
    td_type t;
    void *to;
    const void *from = td_program_output(p, output, &t);
    TD_TRY(td_tensors_add_new(j->out, name, t.dtype, t.rank, t.dim, &to));
    memcpy(to, from, (size_t)td_type_count(&t) * sizeof(float));
    return TD_OK;
}

static td_status keep_param(const job *j, td_program *p, int i, const char *before)
{
    const char *name = td_program_param_name(p, i);
    const td_type t = td_program_param_type(p, i);
    char to[160];
    void *data;
    snprintf(to, sizeof to, "%s%s", before, name);
    TD_TRY(td_tensors_add_new(j->out, to, t.dtype, t.rank, t.dim, &data));
    return td_program_get(p, name, data);
}

static td_status keep_params(const job *j, td_program *p)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        char to[160];
        snprintf(to, sizeof to, "grad.%s", name);
        TD_TRY(is_statistic(name) ? keep_param(j, p, i, "stat.") : keep(j, p, to, to));
    }
    return TD_OK;
}

/* --- objects ---------------------------------------------------------------------------------- */

/* labels and targets are those of the batch, or made of its objects */
static td_status take_targets(job *j)
{
    const td_tensor *labels = td_tensors_get(j->in, "labels"),
                    *targets = td_tensors_get(j->in, "targets"),
                    *boxes = td_tensors_get(j->in, "boxes"),
                    *classes = td_tensors_get(j->in, "classes");
    if (labels && targets) {
        j->labels = labels->data;
        j->targets = targets->data;
        return TD_OK;
    }
    if (!boxes || !classes)
        return td_error(TD_EFORMAT, "the batch has neither labels and targets nor objects");
    const int64_t n = j->anchors->n, m = boxes->dim[1], dim[3] = { j->batch, n, 4 };
    void *to_labels, *to_targets, *scratch = td_alloc(1, td_targets_scratch_bytes(j->anchors));
    td_ground_truth *truths = td_alloc((size_t)m + 1, sizeof *truths);
    td_status st = scratch && truths ? TD_OK : TD_ENOMEM;
    TD_OUT(st);
    TD_OUT(td_tensors_add_new(j->out, "labels", TD_DT_I64, 2, dim, &to_labels));
    TD_OUT(td_tensors_add_new(j->out, "targets", TD_DT_F32, 3, dim, &to_targets));
    for (int64_t i = 0; i < j->batch; i++) {
        int k = 0;
        for (int64_t a = i * m; a < (i + 1) * m; a++) {
            truths[k].label = ((const int64_t *)classes->data)[a];
            memcpy(&truths[k].box, (const float *)boxes->data + 4 * a, sizeof truths[k].box);
            k += truths[k].label > 0;
        }
        (void)td_targets_assign(j->anchors, truths, k, scratch, (int64_t *)to_labels + i * n,
                                (float *)to_targets + i * n * 4);
    }
    j->labels = to_labels;
    j->targets = to_targets;
out:
    td_free(scratch);
    td_free(truths);
    return st;
}

static td_status find(const job *j, td_program *p)
{
    td_type t;
    td_status st = TD_OK;
    td_nms *nms = NULL;
    const td_nms_opts opts = td_nms_defaults(j->kind);
    const float *deltas = td_program_output(p, "codes", NULL);
    const float *scores = td_program_output(p, "scores", &t);
    const int64_t dim[3] = { j->batch, opts.total, 4 };
    void *to_boxes, *to_scores, *to_labels;
    td_detection found[TD_NMS_TOTAL_MAX];
    TD_OUT(td_tensors_add_new(j->out, "found.boxes", TD_DT_F32, 3, dim, &to_boxes));
    TD_OUT(td_tensors_add_new(j->out, "found.scores", TD_DT_F32, 2, dim, &to_scores));
    TD_OUT(td_tensors_add_new(j->out, "found.labels", TD_DT_I64, 2, dim, &to_labels));
    memset(to_labels, 0, (size_t)(j->batch * opts.total) * sizeof(int64_t));
    TD_OUT(td_nms_new(j->anchors, (int)t.dim[2], &nms));
    for (int64_t i = 0; i < j->batch; i++) {
        int n;
        TD_OUT(td_nms_run(nms, &opts, deltas + i * t.dim[1] * 4, scores + i * t.dim[1] * t.dim[2],
                          found, &n));
        for (int64_t k = 0; k < n; k++) {
            const int64_t at = i * opts.total + k;
            memcpy((float *)to_boxes + 4 * at, &found[k].box, sizeof found[k].box);
            ((float *)to_scores)[at] = found[k].score;
            ((int64_t *)to_labels)[at] = found[k].label;
        }
    }
out:
    td_nms_free(nms);
    return st;
}

/* --- passes ----------------------------------------------------------------------------------- */

static td_status train_once(const job *j)
{
    static const char *const outputs[] = { "codes", "scores", "loss", "loss_class", "loss_box" };
    td_graph *g = NULL;
    td_program *p = NULL;
    td_status st = training_graph(j, &g);
    TD_OUT(st);
    TD_OUT(prepare(j, g, true, &p));
    TD_OUT(td_program_run(p));
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        TD_OUT(keep(j, p, outputs[i], outputs[i]));
    TD_OUT(keep_params(j, p));
out:
    td_program_free(p);
    td_graph_free(g);
    return st;
}

static td_status evaluate(const job *j)
{
    td_graph *g = NULL;
    td_program *p = NULL;
    td_status st = td_model_graph(&j->model, j->batch, false, &g);
    TD_OUT(st);
    TD_OUT(prepare(j, g, false, &p));
    TD_OUT(td_program_run(p));
    TD_OUT(keep(j, p, "codes", "codes_eval"));
    TD_OUT(keep(j, p, "scores", "scores_eval"));
    TD_OUT(find(j, p));
out:
    td_program_free(p);
    td_graph_free(g);
    return st;
}

/* the job's own training graph */
static td_status train_steps(const job *j)
{
    const td_step_opts opts = { .momentum = j->momentum, .decay = j->decay };
    td_graph *g = NULL;
    td_program *p = NULL;
    td_status st = td_detector_training_graph(&j->model, j->batch, &opts, &g);
    TD_OUT(st);
    TD_OUT(prepare(j, g, true, &p));
    TD_OUT(td_program_bind(p, "lr", &j->lr));
    for (int i = 0; i < j->steps; i++)
        TD_OUT(td_program_run(p));
    for (int i = 0; i < td_program_param_count(p); i++)
        TD_OUT(keep_param(j, p, i, "after."));
out:
    td_program_free(p);
    td_graph_free(g);
    return st;
}

static td_status work(job *j, char **argv)
{
    td_status st = td_tensors_read(argv[4], &j->weights);
    TD_OUT(st);
    TD_OUT(td_tensors_read(argv[5], &j->in));
    TD_OUT(td_tensors_new(&j->out));
    const td_tensor *images = td_tensors_get(j->in, "images");
    if (!images || images->rank != 4)
        TD_OUT(td_error(TD_EFORMAT, "the batch has no images"));
    j->batch = (int)images->dim[0];
    j->model.image_size = (int)images->dim[2];
    TD_OUT(td_model_resolve(&j->model));
    j->kind = td_model_detector(&j->model);
    TD_OUT(td_anchors_new(j->kind, j->model.image_size, &j->anchors));
    TD_OUT(td_device_open("cpu", &j->dev));
    TD_OUT(take_targets(j));
    TD_OUT(train_once(j));
    TD_OUT(evaluate(j));
    if (j->steps)
        TD_OUT(train_steps(j));
    st = td_tensors_write(j->out, argv[6]);
out:
    td_device_close(j->dev);
    td_anchors_free(j->anchors);
    td_tensors_free(j->weights);
    td_tensors_free(j->in);
    td_tensors_free(j->out);
    return st;
}

int main(int argc, char **argv)
{
    job j = { 0 };
    td_process_setup(argv);
    if (argc != 7 && argc != 11) {
        fprintf(stderr, "usage: detector_step ARCH BACKBONE CLASSES WEIGHTS BATCH OUT "
                        "[STEPS LR MOMENTUM DECAY]\n");
        return 2;
    }
    td_model_defaults(&j.model);
    j.model.arch = argv[1];
    j.model.backbone = argv[2];
    j.model.num_classes = (int)strtol(argv[3], NULL, 10);
    if (argc == 11) {
        j.steps = (int)strtol(argv[7], NULL, 10);
        j.lr = strtof(argv[8], NULL);
        j.momentum = strtod(argv[9], NULL);
        j.decay = strtod(argv[10], NULL);
    }
    if (work(&j, argv) == TD_OK)
        return 0;
    fprintf(stderr, "detector_step: %s\n", td_error_message());
    return 1;
}
