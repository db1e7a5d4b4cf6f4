/*
 * task_classify.c -- the task of classification: images and labels in, top-1 and top-k out
 */
#include <stdio.h>

#include "base/log.h"
#include "checkpoint/weights.h"
#include "data/dataset.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"
#include "model/arch.h"
#include "train/task.h"
#include "train/train_data.h"
#include "train/train_rate.h"
#include "train/train_report.h"

typedef td_train_job job;

/* --- data ------------------------------------------------------------------------------------- */

static void note_one_label(const job *j, const char *root)
{
    if (j->start.tensors && td_tensors_meta(j->start.tensors, "tandem.multi_label"))
        td_log(TD_LOG_INFO, "train",
               "'%s' has one label for each image: the network, whose weights are those of a "
               "multi-label one, becomes one for one label",
               root);
}

/* Several labels for an image: a network that remembers it, and the loss that it requires. */
static td_status choose_labels(job *j, int n_classes)
{
    const char *root = td_dataset_root(j->data.train_set);
    const td_train_opts *o = &j->o;
    const bool is_multi_label = td_dataset_is_multi_label(j->data.train_set);
    if (!is_multi_label && o->model.multi_label)
        return td_error(TD_EUSAGE,
                        "'%s' has one label for each image, the network is a multi-label "
                        "one",
                        root);
    if (!is_multi_label) {
        note_one_label(j, root);
        return TD_OK;
    }
    if (o->loss.type != TD_LOSS_BCE)
        return td_error(TD_EUSAGE,
                        "'%s' has several labels for an image, which requires --loss bce", root);
    if (o->loss.label_smoothing > 0)
        return td_error(TD_EUSAGE,
                        "--label-smoothing %g requires one label for each image: '%s' has "
                        "several",
                        o->loss.label_smoothing, root);
    if (o->model.num_classes != n_classes)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", root, n_classes,
                        o->model.num_classes);
    j->o.model.multi_label = j->s.is_multi_label = true;
    return TD_OK;
}

static td_status name_classes(job *j)
{
    td_dataset *d = j->data.train_set;
    int n = td_dataset_classes(d);
    td_model_opts *m = &j->o.model;
    if (j->o.start.resume && j->start.n_names && td_dataset_backend(d) == TD_DATA_FOLDER)
        TD_TRY(td_dataset_use_classes(d, j->start.n_names, (const char *const *)j->start.names,
                                      false));
    if (!m->num_classes)
        m->num_classes = td_model_default_classes(m, n);
    if (n > m->num_classes)
        return td_error(TD_ESHAPE, "'%s' has %d classes, the network %d", td_dataset_root(d), n,
                        m->num_classes);
    TD_TRY(choose_labels(j, n));
    return td_train_list_classes(j);
}

static td_status open_validation(job *j)
{
    td_train_opts *o = &j->o;
    if (!o->validation.is_enabled || o->input.data_backend == TD_DATA_TENSORS)
        return TD_OK;
    td_input_opts in = o->input;
    if (in.val_list) {
        td_input_use_val_list(&in);
    } else if (j->data.train_set->is_unsplit && !(in.val_split > 0)) {
        return td_train_validation_absent(
            td_error(TD_ENOTFOUND, "'%s' is not divided into splits, and no --val-list is given",
                     td_dataset_root(j->data.train_set)),
            true);
    }
    TD_TRY(
        td_train_validation_absent(td_open_part(&in, "val", &o->model, td_train_synthetic_images(j),
                                                j->s.seed, &j->data.val_set),
                                   true));
    if (td_dataset_backend(j->data.val_set) == TD_DATA_FOLDER)
        TD_TRY_MSG(td_dataset_use_classes(j->data.val_set, td_dataset_classes(j->data.train_set),
                                          j->data.class_names,
                                          td_dataset_is_multi_label(j->data.val_set)),
                   "train and val have different classes");
    td_loader_opts lo = td_loader_opts_of(&o->input, &o->model, td_train_eval_batch(o));
    lo.seed = j->s.seed;
    lo.rank = j->ranks.rank;
    lo.world = j->ranks.n;
    TD_TRY(td_input_as_bytes(j->dev, &lo.as_bytes));
    if (j->s.is_multi_label) {
        const size_t n = (size_t)td_dataset_classes(j->data.val_set);
        TD_TRY(TD_ALLOC(j->eval.class_ap, n));
        TD_TRY(TD_ALLOC(j->eval.labels, n));
    }
    return td_loader_new(j->data.val_set, &lo, &j->data.val_loader);
}

/*
 * Set the number of classes for a network from a graph file: its number of outputs, or the number
 * of class folders.
 */
static td_status choose_classes(job *j)
{
    td_model_opts *m = &j->o.model, own = *m;
    if ((!m->model && !m->model_text) || m->num_classes)
        return TD_OK;
    TD_TRY(td_model_resolve(&own));
    m->num_classes = own.num_classes;
    if (!j->data.train_set || td_dataset_backend(j->data.train_set) != TD_DATA_FOLDER)
        return TD_OK;
    m->num_classes = td_dataset_classes(j->data.train_set);
    if (m->num_classes != own.num_classes)
        td_log(TD_LOG_INFO, "train",
               "the network has %d classes: resizing its last layer to the %d classes of '%s'",
               own.num_classes, m->num_classes, td_dataset_root(j->data.train_set));
    return TD_OK;
}

static td_status open_train_set(job *j)
{
    td_train_opts *o = &j->o;
    const td_data_backend backend = o->input.data_backend;
    if (backend == TD_DATA_SYNTHETIC || backend == TD_DATA_TENSORS)
        TD_TRY(choose_classes(j));
    TD_TRY(td_open_part(&o->input, "train", &o->model, td_train_synthetic_images(j), j->s.seed,
                        &j->data.train_set));
    return choose_classes(j);
}

static td_status open_data(job *j)
{
    td_train_opts *o = &j->o;
    TD_TRY(open_train_set(j));
    TD_TRY(td_resolve_image_size(j->data.train_set, &o->model));
    td_train_note_enlarged(j);
    TD_TRY(name_classes(j));
    td_loader_opts lo = td_loader_opts_of(&o->input, &o->model, o->batch.size);
    TD_TRY(td_train_loader_opts(j, &lo));
    TD_TRY(td_loader_new(j->data.train_set, &lo, &j->data.train_loader));
    return open_validation(j);
}

/* --- steps ------------------------------------------------------------------------------------ */

static td_status bind(job *j, const td_batch *b)
{
    TD_TRY(td_train_bind_images(j, b));
    return j->s.is_multi_label ? td_program_bind(j->program, "targets", b->targets)
                               : td_program_bind(j->program, "labels", b->labels);
}

/* --- validation ------------------------------------------------------------------------------- */

/* With mixup or cutmix, the validation loss is without label smoothing, as in the reference. */
static td_evaluator_opts evaluator_opts(const job *j)
{
    const td_train_opts *o = &j->o;
    return (td_evaluator_opts){
        .batch = td_train_eval_batch(o),
        .topk = o->validation.topk,
        .max_batches = o->profile.iterations > 0 ? o->profile.iterations : -1,
        .smoothing = o->loss.mixup > 0 || o->loss.cutmix > 0 ? 0 : o->loss.label_smoothing,
        .norm = td_loader_pixel_norm(j->data.val_loader),
        .amp = &o->amp,
        .comm = j->ranks.comm,
        .skip_passes = o->device.skip_passes,
        .planned_runs = td_train_eval_batches_left(j),
        .report = j->log.report,
        .print_freq = o->metrics.print_freq,
        .step = { j->s.epoch, j->s.iteration }
    };
}

static td_status evaluate(job *j, const char *prefix, td_eval_result *v)
{
    char what[TD_TRAIN_WHAT];
    td_evaluator_opts jo = evaluator_opts(j);
    jo.prefix = *prefix ? "val_ema" : "val";
    jo.progress = td_train_progress_validation(j, prefix, what);
    jo.outcomes =
        *prefix || j->o.report.is_compat || j->s.is_multi_label ? NULL : &j->eval.outcomes;
    jo.labels = *prefix ? NULL : j->eval.labels;
    if (!j->eval.evaluator)
        TD_TRY(td_evaluator_new(&j->o.model, j->dev, &jo, &j->eval.evaluator));
    TD_TRY(td_weights_copy(j->program, prefix, td_evaluator_program(j->eval.evaluator)));
    TD_TRY(td_loader_start_epoch(j->data.val_loader, 0));
    return td_evaluator_run(j->eval.evaluator, j->data.val_loader, &jo, v);
}

static void keep_scores(job *j, const td_eval_result *v)
{
    j->eval.outcomes_epoch = j->s.epoch;
    j->s.last_val_loss = td_mean_loss(&v->counts);
    if (v->is_multi_label) {
        j->eval.multi = v->multi;
        for (int i = 0; i < td_dataset_classes(j->data.val_set); i++)
            j->eval.class_ap[i] = j->eval.labels[i].n_images ? j->eval.labels[i].ap : -1;
        j->s.last = 100 * v->multi.map;
        j->s.last_second = 100 * v->multi.micro_f1;
        return;
    }
    j->s.last = td_percent(v->counts.n_top1, v->counts.n);
    j->s.last_second = td_percent(v->counts.n_topk, v->counts.n);
}

static void format_scores(const job *j, const td_eval_result *v, char *out, size_t n)
{
    char loss[TD_REAL_WORD];
    const td_counts *c = &v->counts;
    if (v->is_multi_label) {
        snprintf(out, n, "mAP %.4f, micro F1 %.4f, macro F1 %.4f, loss %s", v->multi.map,
                 v->multi.micro_f1, v->multi.macro_f1, td_real_word(td_mean_loss(c), 4, loss));
        return;
    }
    snprintf(out, n, "top1 %.2f %%, top%d %.2f %%, loss %s", td_percent(c->n_top1, c->n),
             j->o.validation.topk, td_percent(c->n_topk, c->n),
             td_real_word(td_mean_loss(c), 4, loss));
}

static td_status require(const job *j, const char *rule)
{
    const td_scores s = { .n = td_dataset_count(j->data.val_set),
                          .top1 = j->s.last,
                          .topk = j->s.last_second,
                          .loss = j->s.last_val_loss,
                          .multi = j->s.is_multi_label ? &j->eval.multi : NULL };
    return td_require(rule, &s, j->o.validation.topk);
}

static td_status check(const td_train_opts *o)
{
    char network[200];
    td_model_name(&o->model, network, sizeof network);
    TD_TRY(td_boxes_refuse(&o->model, &o->input, &o->boxes, network));
    return td_require_check(o->validation.require, o->validation.topk);
}

static void release(job *j)
{
    td_free(j->eval.class_ap);
    td_free(j->eval.labels);
}

const td_task td_task_classify = { .metric = "top1",
                                   .check = check,
                                   .open_data = open_data,
                                   .bind = bind,
                                   .evaluate = evaluate,
                                   .keep_scores = keep_scores,
                                   .format_scores = format_scores,
                                   .require = require,
                                   .release = release };
