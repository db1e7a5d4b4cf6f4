/*
 * detect_evaluate.c -- evaluates a detector on a data set: COCO's metrics and results
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "checkpoint/class_list.h"
#include "coco/detections.h"
#include "evaluation/evaluate_boxes.h"
#include "evaluation/evaluation.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"
#include "model/arch.h"

typedef td_evaluation evaluation;

/* Read the class names of the weight file or of --classes FILE; the first belongs to label 1. */
static td_status read_names(evaluation *e, int n)
{
    td_class_names *names = &e->names;
    if (!e->o.classes)
        return td_classes_from_json(td_tensors_meta(e->weights, "tandem.classes"), e->o.weights,
                                    &names->n, &names->names);
    TD_TRY(td_class_names_read(e->o.classes, 1, names));
    return names->n == n ? TD_OK : td_class_names_differ(e->o.classes, names->n, e->o.weights, n);
}

static td_status match_classes(evaluation *e)
{
    const int n = e->o.model.num_classes, n_data = td_dataset_classes(e->ds);
    if (!e->weights)
        return td_evaluation_count_classes(e);
    TD_TRY(read_names(e, n));
    if (e->names.n && !e->o.labels_by_order)
        return td_boxes_use_classes(e->ds, e->names.n, (const char *const *)e->names.names, true);
    const bool are_numbered = e->o.labels_by_order || e->o.input.label_ids == TD_LABEL_IDS_KEEP;
    if (n_data > n || (n_data < n && !are_numbered))
        return td_error(TD_ESHAPE,
                        "'%s' has %d classes, the network of '%s' has %d%s; give their names with "
                        "--classes FILE, use the category ids with --label-ids keep, or the first "
                        "%d classes with --labels-by-order",
                        td_dataset_root(e->ds), n_data, e->o.weights, n,
                        e->names.n ? "" : " without names", n_data);
    if (e->o.labels_by_order)
        td_log(TD_LOG_INFO, "classes",
               "matching the %d classes of '%s' to those of the network in order", n_data,
               td_dataset_root(e->ds));
    return TD_OK;
}

static td_status open_data(evaluation *e)
{
    td_model_opts *m = &e->o.model;
    td_log_backend(&e->o.input);
    TD_TRY(td_boxes_open(&e->o.input, td_evaluation_split(e), m, 0, &e->ds));
    TD_TRY(td_resolve_image_size(e->ds, m));
    if (!m->num_classes)
        m->num_classes = td_dataset_classes(e->ds);
    TD_TRY(match_classes(e));
    td_loader_opts lo = td_boxes_loader_opts(&e->o.input, m, e->o.batch_size);
    lo.rank = td_comm_rank(e->comm);
    lo.world = td_comm_size(e->comm);
    lo.seed = e->o.seed < 0 ? 0 : (uint64_t)e->o.seed;
    TD_TRY(td_input_as_bytes(e->dev, &lo.as_bytes));
    return td_loader_new(e->ds, &lo, &e->ld);
}

static td_detector_evaluator_opts evaluator_opts(evaluation *e)
{
    return (td_detector_evaluator_opts){ .batch = e->o.batch_size,
                                         .max_batches = e->o.prof > 0 ? e->o.prof : -1,
                                         .boxes = &e->o.boxes,
                                         .norm = td_loader_pixel_norm(e->ld),
                                         .amp = &e->o.amp,
                                         .comm = e->comm,
                                         .skip_passes = e->o.device.skip_passes,
                                         .dump_after = e->o.device.dump_after,
                                         .planned_runs = td_evaluation_planned_runs(e),
                                         .print_freq = e->o.print_freq,
                                         .report = e->report,
                                         .each = e->annotated ? td_evaluation_draw : NULL,
                                         .ctx = e,
                                         .progress = td_evaluation_progress(e) };
}

static td_status open_evaluator(evaluation *e)
{
    const td_detector_evaluator_opts jo = evaluator_opts(e);
    TD_TRY(td_detector_evaluator_new(&e->o.model, e->dev, &jo, &e->detector_evaluator));
    TD_TRY(td_evaluation_load(e, e->o.use_ema || e->o.ema_too,
                              td_detector_evaluator_program(e->detector_evaluator)));
    if (!e->o.ema_too) /* nothing else is loaded */
        TD_TRY(td_program_release_params(td_detector_evaluator_program(e->detector_evaluator)));
    TD_TRY(td_evaluation_check_outputs(e));
    return td_evaluation_open_report(e, td_detector_evaluator_program(e->detector_evaluator));
}

/* --- results ---------------------------------------------------------------------------------- */

static td_status write_detections(const evaluation *e)
{
    td_status st = TD_OK;
    td_detections_file *f = NULL;
    size_t n;
    const td_coco_detection *found = td_detector_evaluator_found(e->detector_evaluator, &n);
    if (!e->o.detections || td_comm_rank(e->comm) > 0)
        return TD_OK;
    TD_OUT(td_detections_create(e->o.detections, &f));
    for (size_t i = 0; i < n; i++)
        TD_OUT(td_detections_add(f, &found[i]));
    TD_OUT(td_detections_commit(f));
out:
    td_detections_close(f);
    return st;
}

static void name_class(const evaluation *e, td_class_boxes *c)
{
    snprintf(c->name, sizeof c->name, "category %lld", (long long)c->category);
    for (int label = 1; label <= td_dataset_classes(e->ds); label++)
        if (td_dataset_category(e->ds, label) == c->category)
            snprintf(c->name, sizeof c->name, "%s", td_dataset_class_name(e->ds, label - 1));
}

static td_class_boxes class_of(const td_coco_class *c)
{
    return (td_class_boxes){ .category = c->category,
                             .n_ground_truths = c->n_ground_truths,
                             .ap = c->ap,
                             .ap50 = c->ap50,
                             .ar100 = c->ar100 };
}

static td_status keep_classes(const td_coco_metrics *m, td_evaluate_result *r)
{
    TD_TRY(TD_ALLOC(r->class_boxes, m->n_classes + 1));
    for (size_t i = 0; i < m->n_classes; i++)
        r->class_boxes[i] = class_of(&m->classes[i]);
    r->n_class_boxes = (int)m->n_classes;
    return TD_OK;
}

static td_status note_classes(const evaluation *e, td_evaluate_result *r)
{
    if (!e->o.per_class)
        return TD_OK;
    TD_TRY(keep_classes(td_detector_evaluator_metrics(e->detector_evaluator), r));
    for (int i = 0; i < r->n_class_boxes; i++)
        name_class(e, &r->class_boxes[i]);
    return TD_OK;
}

static td_status note(const evaluation *e, const td_eval_result *v, td_evaluate_result *r)
{
    size_t n_found;
    td_detector_evaluator_found(e->detector_evaluator, &n_found);
    r->detects = true;
    r->n = v->n_evaluated;
    r->n_found = (int64_t)n_found;
    memcpy(r->boxes, v->boxes, sizeof r->boxes);
    r->images_per_s = v->seconds > 0 ? (double)v->counts.n / v->seconds : 0;
    r->latency_ms = v->n_batches ? v->compute_s / (double)v->n_batches * 1e3 : 0;
    td_model_name(&e->o.model, r->arch, sizeof r->arch);
    return note_classes(e, r);
}

/* Evaluate the averages first, if requested, so that the evaluator keeps the weights' results. */
static td_status evaluator_averages(evaluation *e, td_eval_result *ema)
{
    td_detector_evaluator_opts jo = evaluator_opts(e);
    jo.prefix = "val_ema";
    jo.each = NULL;
    jo.progress.what = "averages, batch";
    TD_TRY(td_detector_evaluator_run(e->detector_evaluator, e->ds, e->ld, &jo, ema));
    TD_TRY(td_evaluation_load(e, false, td_detector_evaluator_program(e->detector_evaluator)));
    TD_TRY(td_program_release_params(td_detector_evaluator_program(e->detector_evaluator)));
    return td_loader_start_epoch(e->ld, 0);
}

td_status td_evaluation_run_detector(td_evaluation *e, td_evaluate_result *out)
{
    td_eval_result v, ema;
    TD_TRY(open_data(e));
    TD_TRY(td_evaluation_open_drawn(e));
    TD_TRY(open_evaluator(e));
    const td_detector_evaluator_opts jo = evaluator_opts(e);
    if (e->o.ema_too)
        TD_TRY(evaluator_averages(e, &ema));
    TD_TRY(td_detector_evaluator_run(e->detector_evaluator, e->ds, e->ld, &jo, &v));
    if (v.was_stopped)
        return td_error(TD_ESTOPPED, "interrupted by a signal after %lld images",
                        (long long)v.counts.n);
    TD_TRY(td_evaluation_sum_bad(e, out));
    TD_TRY(note(e, &v, out));
    out->has_ema = e->o.ema_too;
    if (out->has_ema)
        memcpy(out->ema_boxes, ema.boxes, sizeof ema.boxes);
    TD_TRY(td_evaluation_write_report(e, &v, out->has_ema ? &ema : NULL));
    TD_TRY(write_detections(e));
    TD_TRY(td_evaluation_log_drawn(e));
    return e->o.require ? td_boxes_require(e->o.require, out->boxes) : TD_OK;
}

/* --- two files -------------------------------------------------------------------------------- */

static td_status note_files(const td_evaluate_opts *o, const td_boxes_eval *v,
                            td_evaluate_result *r)
{
    const td_coco_metrics *m = &v->metrics;
    r->detects = true;
    r->n = v->n_images;
    r->n_found = v->n_detections;
    memcpy(r->boxes, m->value, sizeof r->boxes);
    if (!o->per_class)
        return TD_OK;
    TD_TRY(keep_classes(m, r));
    for (int i = 0; i < r->n_class_boxes; i++)
        snprintf(r->class_boxes[i].name, sizeof r->class_boxes[i].name, "%s", v->names[i]);
    return TD_OK;
}

static td_status check_files(const td_evaluate_opts *o)
{
    const struct {
        bool is_set;
        const char *what;
    } rows[] = { { o->logits != NULL, "--logits" },
                 { o->confusion != NULL, "--confusion" },
                 { o->report.file != NULL, "--raport-file" },
                 { o->draw != NULL, "--draw" },
                 { o->use_ema, "--use-ema" },
                 { o->classes != NULL, "--classes" },
                 { o->label_map != NULL, "--label-map" },
                 { o->labels_by_order, "--labels-by-order" },
                 { o->prof > 0, "--prof" },
                 { o->boxes.sample_1_of_n > 1, "--sample-1-of-n" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is_set)
            return td_error(TD_EUSAGE,
                            "%s requires --weights; --detections without --weights is scored "
                            "against --annotations only",
                            rows[i].what);
    if (!o->input.annotations)
        return td_error(TD_EUSAGE,
                        "--detections FILE without --weights requires --annotations FILE");
    return o->require ? td_boxes_require_check(o->require) : TD_OK;
}

td_status td_evaluation_run_files(const td_evaluate_opts *o, td_evaluate_result *out)
{
    td_boxes_eval v;
    TD_TRY(check_files(o));
    TD_TRY(td_boxes_compare(o->input.annotations, o->detections, o->boxes.box_areas, &v));
    td_status st = note_files(o, &v, out);
    td_boxes_eval_release(&v);
    return st == TD_OK && o->require ? td_boxes_require(o->require, out->boxes) : st;
}
