/*
 * detector_step.c -- runs one pass of a detector from a weight file, to compare it
 *
 *     detector_step ARCH BACKBONE CLASSES WEIGHTS BATCH OUT
 *
 * WEIGHTS has all parameters; BATCH images f32[N,3,S,S], labels i64[N,A], targets f32[N,A,4].  OUT
 * gets deltas, scores, loss, loss_class, loss_box of the training form, grad.W of every weight,
 * stat.S of every running statistic behind that pass, and codes_eval, scores_eval, with the
 * statistics of WEIGHTS.  Float32 on "cpu".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "tandem/model.h"
#include "tandem/program.h"

typedef struct {
    td_model_opts model;
    int batch, n_params; /* of the network itself */
    td_tensors *weights, *in, *out;
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
    const bool is_ssd300 = strcmp(j->model.arch, "ssd300") == 0;
    td_value *of_class = is_ssd300 ? td_multibox_class_loss(b, scores, labels, NULL)
                                   : td_sigmoid_focal_loss(b, scores, labels, NULL);
    td_value *of_box =
        td_huber_box_loss(b, deltas, targets, labels, is_ssd300 ? "per_image=true" : NULL);
    td_output(b, "loss_class", of_class);
    td_output(b, "loss_box", of_box);
    return td_add(b, of_class, of_box);
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

/* compile, fill with the weights, bind the batch, run */
static td_status run(const job *j, const td_graph *g, bool has_targets, td_program **out)
{
    TD_TRY(td_compile(g, j->dev, &(td_compile_opts){ 0 }, out));
    for (int i = 0; i < td_program_param_count(*out); i++) {
        const char *name = td_program_param_name(*out, i);
        const td_tensor *w = td_tensors_get(j->weights, name);
        if (!w)
            return td_error(TD_EFORMAT, "no tensor '%s' among the weights", name);
        TD_TRY(td_program_set(*out, name, w->data));
    }
    static const char *const inputs[] = { "images", "labels", "targets" };
    for (int i = 0; i < (has_targets ? 3 : 1); i++) {
        const td_tensor *t = td_tensors_get(j->in, inputs[i]);
        if (!t)
            return td_error(TD_EFORMAT, "the batch has no '%s'", inputs[i]);
        TD_TRY(td_program_bind(*out, inputs[i], t->data));
    }
    return td_program_run(*out);
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

static td_status keep_params(const job *j, td_program *p)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type t = td_program_param_type(p, i);
        char to[160];
        void *data;
        if (is_statistic(name)) {
            snprintf(to, sizeof to, "stat.%s", name);
            TD_TRY(td_tensors_add_new(j->out, to, t.dtype, t.rank, t.dim, &data));
            TD_TRY(td_program_get(p, name, data));
        } else {
            snprintf(to, sizeof to, "grad.%s", name);
            TD_TRY(keep(j, p, to, to));
        }
    }
    return TD_OK;
}

static td_status work(job *j, char **argv)
{
    static const char *const outputs[] = { "codes", "scores", "loss", "loss_class", "loss_box" };
    td_status st = TD_OK;
    td_graph *g = NULL;
    td_program *p = NULL;
    TD_OUT(td_model_resolve(&j->model));
    TD_OUT(td_tensors_read(argv[4], &j->weights));
    TD_OUT(td_tensors_read(argv[5], &j->in));
    TD_OUT(td_tensors_new(&j->out));
    TD_OUT(td_device_open("cpu", &j->dev));
    const td_tensor *images = td_tensors_get(j->in, "images");
    j->batch = images ? (int)images->dim[0] : 1;
    TD_OUT(training_graph(j, &g));
    TD_OUT(run(j, g, true, &p));
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        TD_OUT(keep(j, p, outputs[i], outputs[i]));
    TD_OUT(keep_params(j, p));
    td_program_free(p);
    p = NULL;
    td_graph_free(g);
    g = NULL;
    TD_OUT(td_model_graph(&j->model, j->batch, false, &g));
    TD_OUT(run(j, g, false, &p));
    TD_OUT(keep(j, p, "codes", "codes_eval"));
    TD_OUT(keep(j, p, "scores", "scores_eval"));
    st = td_tensors_write(j->out, argv[6]);
out:
    td_program_free(p);
    td_graph_free(g);
    td_device_close(j->dev);
    td_tensors_free(j->weights);
    td_tensors_free(j->in);
    td_tensors_free(j->out);
    return st;
}

int main(int argc, char **argv)
{
    job j = { 0 };
    td_process_setup(argv);
    if (argc != 7) {
        fprintf(stderr, "usage: detector_step ARCH BACKBONE CLASSES WEIGHTS BATCH OUT\n");
        return 2;
    }
    td_model_defaults(&j.model);
    j.model.arch = argv[1];
    j.model.backbone = argv[2];
    j.model.num_classes = (int)strtol(argv[3], NULL, 10);
    if (work(&j, argv) == TD_OK)
        return 0;
    fprintf(stderr, "detector_step: %s\n", td_error_message());
    return 1;
}
