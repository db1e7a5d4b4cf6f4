/*
 * task_detect.c -- the task of detection: images with annotations in, COCO's metrics out
 *
 * The loader's workers compute the target of each anchor, so a step reads three arrays: the images,
 * the anchors' classes and their box deltas.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "evaluation/detector_evaluator.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"
#include "train/task.h"
#include "train/train_data.h"
#include "train/train_rate.h"
#include "train/train_report.h"

typedef td_train_job job;

/* --- data ------------------------------------------------------------------------------------- */

static td_status name_classes(job *j)
{
    td_dataset *d = j->data.train_set;
    td_model_opts *m = &j->o.model;
    const int n = td_dataset_classes(d);
    if (j->o.start.resume && j->start.n_names)
        TD_TRY(
            td_boxes_use_classes(d, j->start.n_names, (const char *const *)j->start.names, false));
    if (!m->num_classes)
        m->num_classes = n;
    if (n > m->num_classes)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", td_dataset_root(d), n,
                        m->num_classes);
    TD_TRY(td_train_list_classes(j));
    return td_boxes_categories(d, &j->data.categories);
}

static td_status open_validation(job *j)
{
    td_train_opts *o = &j->o;
    td_input_opts in = o->input;
    if (!o->validation.is_enabled || in.data_backend == TD_DATA_TENSORS ||
        in.data_backend == TD_DATA_SYNTHETIC)
        return TD_OK;
    in.annotations = in.val_annotations;
    if (in.val_list) {
        td_input_use_val_list(&in);
    } else if (j->data.train_set->is_unsplit) {
        return td_train_validation_absent(
            td_error(TD_ENOTFOUND, "'%s' is not divided into splits, and no --val-list is given",
                     td_dataset_root(j->data.train_set)),
            false);
    }
    TD_TRY(td_train_validation_absent(td_boxes_open(&in, "val", &o->model, 0, &j->data.val_set),
                                      false));
    TD_TRY_MSG(td_boxes_use_classes(j->data.val_set, td_dataset_classes(j->data.train_set),
                                    j->data.class_names, true),
               "train and val have different classes");
    td_loader_opts lo = td_boxes_loader_opts(&in, &o->model, td_train_eval_batch(o));
    lo.seed = j->s.seed;
    lo.rank = j->ranks.rank;
    lo.world = j->ranks.n;
    TD_TRY(td_input_as_bytes(j->dev, &lo.as_bytes));
    j->eval.class_ap =
        td_alloc((size_t)td_dataset_classes(j->data.train_set) + 1, sizeof *j->eval.class_ap);
    if (!j->eval.class_ap)
        return TD_ENOMEM;
    return td_loader_new(j->data.val_set, &lo, &j->data.val_loader);
}

static td_status open_data(job *j)
{
    td_train_opts *o = &j->o;
    TD_TRY(td_boxes_open(&o->input, "train", &o->model, td_train_synthetic_images(j),
                         &j->data.train_set));
    TD_TRY(td_resolve_image_size(j->data.train_set, &o->model));
    TD_TRY(name_classes(j));
    if (td_dataset_backend(j->data.train_set) == TD_DATA_FOLDER)
        TD_TRY(td_boxes_warn_unseen(j->data.train_set));
    td_loader_opts lo = td_boxes_loader_opts(&o->input, &o->model, o->batch.size);
    TD_TRY(td_train_loader_opts(j, &lo));
    TD_TRY(td_loader_new(j->data.train_set, &lo, &j->data.train_loader));
    return open_validation(j);
}

/* --- steps ------------------------------------------------------------------------------------ */

static td_status bind(job *j, const td_batch *b)
{
    const size_t n = (size_t)b->n * (size_t)b->n_anchors;
    int64_t positives = 0;
    if (!b->anchor_labels || !b->anchor_targets)
        return td_error(TD_EFORMAT, "'%s' has no boxes to train with",
                        td_dataset_root(j->data.train_set));
    for (size_t i = 0; i < n; i++)
        positives += b->anchor_labels[i] > 0;
    j->log.positives = (double)positives / b->n;
    TD_TRY(td_train_bind_images(j, b));
    TD_TRY(td_program_bind(j->program, "labels", b->anchor_labels));
    return td_program_bind(j->program, "targets", b->anchor_targets);
}

static double output(const job *j, const char *name)
{
    const float *x = td_program_output(j->program, name, NULL);
    return x ? (double)*x : (double)NAN;
}

static void note_step(const job *j, td_step_metadata *f)
{
    f->parts[TD_PART_CLASS] = output(j, "loss_class");
    f->parts[TD_PART_BOX] = output(j, "loss_box");
    f->parts[TD_PART_POSITIVES] = j->log.positives;
}

/* --- validation ------------------------------------------------------------------------------- */

/* Store each class's AP; only rank 0 has metrics and reports them. */
static void note_classes(job *j)
{
    const td_coco_metrics *m = td_detector_evaluator_metrics(j->eval.detector_evaluator);
    for (int label = 1; label <= td_dataset_classes(j->data.train_set); label++) {
        const bool is_evaluated = label <= td_dataset_classes(j->data.val_set);
        const int64_t category = is_evaluated ? td_dataset_category(j->data.val_set, label) : -1;
        j->eval.class_ap[label - 1] = -1;
        for (size_t i = 0; category >= 0 && i < m->n_classes; i++)
            if (m->classes[i].category == category)
                j->eval.class_ap[label - 1] = m->classes[i].ap;
    }
}

static td_status evaluate(job *j, const char *prefix, td_eval_result *v)
{
    const td_train_opts *o = &j->o;
    char what[TD_TRAIN_WHAT];
    const td_detector_evaluator_opts jo = {
        .batch = td_train_eval_batch(o),
        .max_batches = o->profile.iterations > 0 ? o->profile.iterations : -1,
        .boxes = &o->boxes,
        .norm = td_loader_pixel_norm(j->data.val_loader),
        .amp = &o->amp,
        .comm = j->ranks.comm,
        .skip_passes = o->device.skip_passes,
        .planned_runs = td_train_eval_batches_left(j),
        .report = j->log.report,
        .prefix = *prefix ? "val_ema" : "val",
        .print_freq = o->metrics.print_freq,
        .step = { j->s.epoch, j->s.iteration },
        .progress = td_train_progress_validation(j, prefix, what)
    };
    if (!j->eval.detector_evaluator)
        TD_TRY(td_detector_evaluator_new(&o->model, j->dev, &jo, &j->eval.detector_evaluator));
    TD_TRY(td_weights_copy(j->program, prefix,
                           td_detector_evaluator_program(j->eval.detector_evaluator)));
    TD_TRY(td_loader_start_epoch(j->data.val_loader, 0));
    TD_TRY(td_detector_evaluator_run(j->eval.detector_evaluator, j->data.val_set,
                                     j->data.val_loader, &jo, v));
    if (!*prefix)
        note_classes(j);
    return TD_OK;
}

static void keep_scores(job *j, const td_eval_result *v)
{
    memcpy(j->eval.boxes, v->boxes, sizeof j->eval.boxes);
    j->s.last = v->boxes[TD_BOX_AP];
    j->s.last_second = v->boxes[TD_BOX_AP50];
}

static void format_scores(const job *j, const td_eval_result *v, char *out, size_t n)
{
    (void)j;
    snprintf(out, n, "AP %.4f, AP50 %.4f, AP75 %.4f, AR100 %.4f", v->boxes[TD_BOX_AP],
             v->boxes[TD_BOX_AP50], v->boxes[TD_BOX_AP75], v->boxes[TD_BOX_AR100]);
}

static td_status require(const job *j, const char *rule)
{
    return td_boxes_require(rule, j->eval.boxes);
}

static td_status check(const td_train_opts *o)
{
    const td_network_option rows[] = {
        { false, o->loss.mixup > 0, "--mixup" },
        { false, o->loss.cutmix > 0, "--cutmix" },
        { false, o->loss.label_smoothing > 0, "--label-smoothing" },
        { false, o->batch.repeats > 1, "--aug-repeats" },
        { false, o->batch.balanced, "--balanced-sampling" },
        { false, o->loss.class_weights != NULL, "--class-weights" },
        { false, o->loss.positive_weights != NULL, "--pos-weight" },
        { false, o->loss.type != TD_LOSS_CROSS_ENTROPY, "--loss" },
        { false, o->output.train_logits != NULL, "--train-logits" },
        { false, o->batch.image_size_schedule != NULL, "--image-size-schedule" },
    };
    TD_TRY(td_network_options_check(rows, sizeof rows / sizeof *rows, true, o->model.arch));
    TD_TRY(td_boxes_check_input(&o->input, o->model.arch));
    return o->validation.require ? td_boxes_require_check(o->validation.require) : TD_OK;
}

static void release(job *j)
{
    td_detector_evaluator_free(j->eval.detector_evaluator);
    td_free(j->eval.class_ap);
    td_free(j->data.categories);
}

const td_task td_task_detect = { .metric = "AP",
                                 .detects = true,
                                 .check = check,
                                 .open_data = open_data,
                                 .bind = bind,
                                 .note_step = note_step,
                                 .evaluate = evaluate,
                                 .keep_scores = keep_scores,
                                 .format_scores = format_scores,
                                 .require = require,
                                 .release = release };
