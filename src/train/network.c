/*
 * network.c -- from a model to the graphs that a job runs
 */
#include "train/network.h"

#include <stdio.h>
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"

bool td_is_undecayed(const char *name)
{
    return strstr(name, "bn") != NULL;
}

td_status td_model_image_size(const td_model_opts *opts, int *out)
{
    td_model_opts o = *opts;
    TD_TRY(td_model_resolve(&o)); /* the architecture's size, or the graph file's */
    *out = o.image_size;
    return TD_OK;
}

static bool is_trained(const td_value *v)
{
    return ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_WEIGHT;
}

static void add_update(td_builder *b, td_value *w, td_value *loss, td_value *lr,
                       const td_sgd_opts *sgd)
{
    char name[300];
    const td_type t = td_value_type(w);
    td_sgd_attr attr = { .momentum = sgd->momentum,
                         .decay = sgd->decay,
                         .nesterov = sgd->nesterov };
    if (!sgd->decays_norms && td_is_undecayed(td_value_name(w)))
        attr.decay = 0;
    snprintf(name, sizeof name, TD_MOMENTUM_PREFIX "%s", td_value_name(w));
    td_value *v = td_param(b, name, t.dtype, t.rank, t.dim, "role=momentum");
    td_emit(b, &td_op_sgd, &attr, w, v, td_gradient(b, loss, w), lr);
}

static void add_updates(td_builder *b, td_value *loss, td_value *lr, const td_sgd_opts *sgd)
{
    int n = td_build_param_count(b);
    for (int i = 0; i < n && td_build_ok(b); i++)
        if (is_trained(td_build_param(b, i)))
            add_update(b, td_build_param(b, i), loss, lr, sgd);
}

static td_value *image_input(td_builder *b, int batch, int size, td_dtype dtype)
{
    return td_input(b, "images", td_type_4d(dtype ? dtype : TD_DT_F32, batch, 3, size, size));
}

static td_value *targets(td_builder *b, int batch, td_value *logits, double smoothing)
{
    td_value *labels = td_input(b, "labels", td_type_1d(TD_DT_I64, batch));
    int classes = (int)logits->type.dim[logits->type.rank > 1];
    return td_cast(b, td_one_hot(b, labels, classes, smoothing), logits->type.dtype);
}

td_status td_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                            td_graph **out)
{
    int size;
    *out = NULL;
    TD_TRY(td_model_image_size(model, &size));

    td_builder *b = td_build_begin();
    td_value *images = image_input(b, batch, size, model->dtype);
    td_value *lr = td_input(b, "lr", td_type_scalar(model->dtype ? model->dtype : TD_DT_F32));
    td_value *logits = td_model_forward(b, model, images, true);
    if (td_build_ok(b)) {
        td_value *q = targets(b, batch, logits, sgd->smoothing);
        td_value *loss = td_mean(b, td_softmax_cross_entropy(b, logits, q));
        add_updates(b, loss, lr, sgd);
        td_output(b, "loss", loss);
        td_output(b, "logits", logits);
    }
    td_status st = td_build_end(b, out);
    return st == TD_OK ? st : td_error_context(st, "pictures of %d x %d", size, size);
}

td_status td_judging_graph(const td_model_opts *model, int batch, double smoothing, bool has_labels,
                           td_graph **out)
{
    int size;
    *out = NULL;
    TD_TRY(td_model_image_size(model, &size));

    td_builder *b = td_build_begin();
    td_value *images = image_input(b, batch, size, model->dtype);
    td_value *logits = td_model_forward(b, model, images, false);
    if (td_build_ok(b)) {
        if (has_labels)
            td_output(b, "losses",
                      td_softmax_cross_entropy(b, logits, targets(b, batch, logits, smoothing)));
        else
            td_output(b, "probabilities", td_softmax(b, logits));
        td_output(b, "logits", logits);
    }
    td_status st = td_build_end(b, out);
    return st == TD_OK ? st : td_error_context(st, "pictures of %d x %d", size, size);
}
