/*
 * training_graph.c -- builds a model's training and inference graphs
 */
#include "optim/training_graph.h"

#include <string.h>

#include "boxes/anchors.h"
#include "ir/build.h"
#include "ops/ops.h"
#include "optim/freeze.h"

td_status td_model_resolve_images(td_model_opts *opts)
{
    td_model_opts o = *opts;
    TD_TRY(td_model_resolve(&o)); /* those of the architecture, or of the graph file */
    opts->image_size = o.image_size;
    opts->channels = o.channels;
    return TD_OK;
}

/* --- the training graph ----------------------------------------------------------------------- */

/* `model` is resolved */
static td_value *image_input(td_builder *b, int batch, const td_model_opts *model,
                             const td_norm *norm)
{
    const td_dtype to = model->dtype ? model->dtype : TD_DT_F32;
    const int size = model->image_size, channels = td_model_channels(model);
    if (!norm)
        return td_input(b, "images", td_type_4d(to, batch, channels, size, size));
    td_value *x = td_input(b, "images", td_type_4d(TD_DT_U8, batch, size, size, channels));
    return td_normalize(b, x, norm->mean, norm->std, to);
}

static td_value *targets(td_builder *b, int batch, td_value *logits, double smoothing,
                         bool is_multi_label)
{
    if (is_multi_label) {
        const int64_t dim[2] = { batch, logits->type.dim[logits->type.rank > 1] };
        return td_cast(b, td_input(b, "targets", td_type_of(TD_DT_F32, 2, dim)),
                       logits->type.dtype);
    }
    td_value *labels = td_input(b, "labels", td_type_1d(TD_DT_I64, batch));
    int classes = (int)logits->type.dim[logits->type.rank > 1];
    return td_cast(b, td_one_hot(b, labels, classes, smoothing), logits->type.dtype);
}

/* [K], of the type of the targets */
static td_value *class_weights(td_builder *b, const char *input, const td_value *q)
{
    td_value *w = td_input(b, input, td_type_1d(TD_DT_F32, q->type.dim[1]));
    return td_cast(b, w, q->type.dtype);
}

static td_value *binary_losses(td_builder *b, td_value *logits, td_value *q,
                               const td_step_opts *opts)
{
    const td_sigmoid_loss_attr a = { opts->is_binary ? opts->threshold : -1 };
    td_value *weights =
        opts->weighs_positives ? class_weights(b, TD_INPUT_POSITIVE_WEIGHTS, q) : NULL;
    return td_emit(b, &td_op_sigmoid_cross_entropy, &a, logits, q, weights);
}

static td_value *rate_input(td_builder *b, td_dtype dtype, const td_step_opts *opts)
{
    return td_input(b, "lr", opts->cycles_momentum ? td_type_1d(dtype, 2) : td_type_scalar(dtype));
}

static td_status plain_training_graph(const td_model_opts *model, int batch,
                                      const td_step_opts *opts, td_graph **out)
{
    td_builder *b = td_build_begin();
    const td_dtype dtype = model->dtype ? model->dtype : TD_DT_F32;
    td_value *images = image_input(b, batch, model, opts->norm);
    td_value *lambda = NULL, *partner = NULL, *share = NULL;
    td_value *lr = rate_input(b, dtype, opts);
    if (opts->mixes || opts->cuts)
        partner = td_input(b, TD_INPUT_PARTNER, td_type_1d(TD_DT_I64, batch));
    if (opts->mixes) {
        share = lambda = td_input(b, TD_INPUT_LAMBDA, td_type_1d(dtype, batch));
        images = td_emit(b, &td_op_mixup, NULL, images, lambda, partner);
    }
    if (opts->cuts) {
        td_value *box =
            td_input(b, TD_INPUT_BOX, td_type_of(TD_DT_I64, 2, (int64_t[]){ batch, 4 }));
        share = td_input(b, TD_INPUT_SHARE, td_type_1d(dtype, batch));
        images = td_emit(b, &td_op_cutmix, NULL, images, box, partner);
    }
    td_value *logits = td_model_forward(b, model, images, true);
    if (td_build_ok(b)) {
        td_value *q = targets(b, batch, logits, opts->smoothing, model->multi_label);
        if (share)
            q = td_emit(b, &td_op_mixup, NULL, q, share, partner);
        if (opts->weighs_classes)
            q = td_mul(b, q, class_weights(b, TD_INPUT_CLASS_WEIGHTS, q));
        td_value *losses = opts->is_binary || model->multi_label
                               ? binary_losses(b, logits, q, opts)
                               : td_softmax_cross_entropy(b, logits, q);
        td_value *loss = td_mean(b, losses);
        td_optimizer_emit(b, loss, lr, opts);
        td_output(b, "loss", loss);
        td_output(b, "logits", logits);
    }
    return td_build_end(b, out);
}

/*
 * Freeze norms and guard statistics as options require.  Takes ownership of `plain`; `st` is the
 * status of building it.
 */
static td_status finish_training_graph(td_status st, int size, const td_step_opts *opts,
                                       td_graph *plain, td_graph **out)
{
    if (st == TD_OK && opts->freezes_norms) {
        td_graph *all = plain;
        st = td_freeze_norms(all, opts->frozen, &plain);
        td_graph_free(all);
    }
    if (st == TD_OK && opts->is_scaled) {
        st = td_optimizer_guard_statistics(plain, opts, out);
        td_graph_free(plain);
    } else {
        *out = plain;
    }
    return st == TD_OK ? st : td_error_context(st, "images of %d x %d", size, size);
}

/* --- detectors -------------------------------------------------------------------------------- */

td_value *td_detector_loss(td_builder *b, td_detector detector, td_value *deltas, td_value *scores,
                           td_value *targets, td_value *labels)
{
    td_value *of_class, *of_box;
    if (detector == TD_DETECTOR_SSD300) {
        of_class = td_multibox_class_loss(b, scores, labels, NULL);
        of_box = td_huber_box_loss(b, deltas, targets, labels, "per_image=true");
    } else if (detector == TD_DETECTOR_SSDLITE) {
        const td_scale_attr deltas_of_box = { 4 }; /* torchvision's divisor is the boxes alone */
        of_class = td_multibox_class_loss(b, scores, labels, "whole_batch=true");
        of_box = td_emit(b, &td_op_scale, &deltas_of_box,
                         td_huber_box_loss(b, deltas, targets, labels, NULL));
    } else if (detector == TD_DETECTOR_RETINANET) {
        of_class = td_sigmoid_focal_loss(b, scores, labels, "per_image=true");
        of_box = td_huber_box_loss(b, deltas, targets, labels, "per_image=true, delta=0");
    } else {
        of_class = td_sigmoid_focal_loss(b, scores, labels, NULL);
        of_box = td_huber_box_loss(b, deltas, targets, labels, NULL);
    }
    td_output(b, "loss_class", of_class);
    td_output(b, "loss_box", of_box);
    return td_add(b, of_class, of_box);
}

static td_status plain_detector_graph(const td_model_opts *model, int batch,
                                      const td_step_opts *opts, td_graph **out)
{
    td_builder *b = td_build_begin();
    td_step_opts kernels = *opts;
    td_value *images = image_input(b, batch, model, opts->norm), *deltas, *scores;
    td_value *lr = rate_input(b, model->dtype ? model->dtype : TD_DT_F32, opts);
    td_detector_forward(b, model, images, true, &deltas, &scores);
    if (td_build_ok(b)) {
        const int64_t rows[3] = { batch, deltas->type.dim[1], 4 };
        td_value *labels = td_input(b, "labels", td_type_of(TD_DT_I64, 2, rows));
        td_value *boxes = td_input(b, "targets", td_type_of(deltas->type.dtype, 3, rows));
        const td_detector kind = td_model_detector(model);
        td_value *loss = td_detector_loss(b, kind, deltas, scores, boxes, labels);
        if (kind == TD_DETECTOR_SSD320 || kind == TD_DETECTOR_SSD300) /* torchvision: all */
            kernels.decay_rule = TD_DECAY_KERNELS;
        if (td_build_ok(b))
            td_optimizer_emit(b, loss, lr, &kernels);
        td_output(b, "loss", loss);
    }
    return td_build_end(b, out);
}

td_status td_detector_training_graph(const td_model_opts *model, int batch,
                                     const td_step_opts *opts, td_graph **out)
{
    td_model_opts m = *model;
    td_graph *plain = NULL;
    *out = NULL;
    TD_TRY(td_model_resolve_images(&m));
    const td_status st = plain_detector_graph(&m, batch, opts, &plain);
    return finish_training_graph(st, m.image_size, opts, plain, out);
}

/* --- classifier or detector ------------------------------------------------------------------- */

td_status td_training_graph(const td_model_opts *model, int batch, const td_step_opts *opts,
                            td_graph **out)
{
    td_model_opts m = *model;
    td_graph *plain = NULL;
    *out = NULL;
    if (td_model_detector(model))
        return td_detector_training_graph(model, batch, opts, out);
    TD_TRY(td_model_resolve_images(&m));
    const td_status st = plain_training_graph(&m, batch, opts, &plain);
    return finish_training_graph(st, m.image_size, opts, plain, out);
}

/* --- the inference graph ---------------------------------------------------------------------- */

static td_status detector_graph(const td_model_opts *model, int batch, const td_norm *norm,
                                td_graph **out)
{
    td_model_opts m = *model;
    td_value *deltas, *scores;
    if (!norm)
        return td_model_graph(model, batch, false, out);
    TD_TRY(td_model_resolve_images(&m));
    td_builder *b = td_build_begin();
    td_value *images = image_input(b, batch, &m, norm);
    td_detector_forward(b, &m, images, false, &deltas, &scores);
    td_output(b, "codes", deltas);
    td_output(b, "scores", scores);
    return td_build_end(b, out);
}

static td_value *probabilities(td_builder *b, const td_model_opts *model, td_value *logits)
{
    return model->multi_label ? td_sigmoid(b, logits) : td_softmax(b, logits);
}

static td_status inference_graph(const td_model_opts *model, int batch, double smoothing,
                                 bool has_labels, const td_norm *norm, td_graph **out)
{
    td_model_opts m = *model;
    *out = NULL;
    if (td_model_detector(model))
        return detector_graph(model, batch, norm, out);
    TD_TRY(td_model_resolve_images(&m));
    const int size = m.image_size;
    td_builder *b = td_build_begin();
    td_value *images = image_input(b, batch, &m, norm);
    td_value *logits = td_model_forward(b, &m, images, false);
    if (td_build_ok(b)) {
        if (has_labels) {
            td_value *q = targets(b, batch, logits, smoothing, m.multi_label);
            td_output(b, "losses",
                      m.multi_label ? td_sigmoid_cross_entropy(b, logits, q, -1)
                                    : td_softmax_cross_entropy(b, logits, q));
        } else {
            td_output(b, "probabilities", probabilities(b, &m, logits));
        }
        td_output(b, "logits", logits);
    }
    td_status st = td_build_end(b, out);
    return st == TD_OK ? st : td_error_context(st, "images of %d x %d", size, size);
}

td_status td_inference_graph_sized(const td_model_opts *model, int batch, int height, int width,
                                   td_graph **out)
{
    td_model_opts m = *model;
    *out = NULL;
    TD_TRY(td_model_resolve_images(&m));
    td_builder *b = td_build_begin();
    const td_type type =
        td_type_4d(m.dtype ? m.dtype : TD_DT_F32, batch, td_model_channels(&m), height, width);
    td_value *images = td_input(b, "images", type);
    td_value *logits = td_model_forward(b, model, images, false);
    if (td_build_ok(b)) {
        td_output(b, "probabilities", probabilities(b, &m, logits));
        td_output(b, "logits", logits);
    }
    const td_status st = td_build_end(b, out);
    return st == TD_OK ? st : td_error_context(st, "images of %d x %d", height, width);
}

td_status td_inference_graph(const td_model_opts *model, int batch, const td_norm *norm,
                             td_graph **out)
{
    return inference_graph(model, batch, 0, false, norm, out);
}

td_status td_evaluation_graph(const td_model_opts *model, int batch, double smoothing,
                              const td_norm *norm, td_graph **out)
{
    return inference_graph(model, batch, smoothing, true, norm, out);
}
