/*
 * evaluate.c -- tandem evaluate: evaluates a weight file on a data set
 */
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "comm/join.h"
#include "evaluation/confusion.h"
#include "evaluation/evaluation.h"
#include "evaluation/evaluator.h"
#include "evaluation/label_match.h"
#include "evaluation/outcomes.h"
#include "inference/detect_data.h"
#include "inference/inputs.h"
#include "io/safetensors.h"
#include "model/arch.h"
#include "model/own_graph.h"
#include "options/field.h"
#include "tandem/dataset.h"
#include "tandem/evaluate.h"
#include "tandem/loader.h"

typedef td_evaluation evaluation;

static void release(evaluation *e)
{
    td_evaluation_close_drawn(e);
    td_evaluator_free(e->evaluator);
    td_detector_evaluator_free(e->detector_evaluator);
    td_device_close(e->dev);
    td_loader_free(e->ld);
    td_dataset_free(e->ds);
    td_class_names_release(&e->names);
    td_tensors_free(e->weights);
    td_quantization_release(&e->quantization);
}

/* Without weights: an inference benchmark, as in the reference. */
static td_status open_fresh(const evaluation *e)
{
    if (e->o.use_ema || e->o.ema_too)
        return td_error(
            TD_EUSAGE,
            "--use-ema requires --resume or --pretrained-weights: fresh weights have no averages");
    td_log(TD_LOG_WARN, "evaluate",
           "neither --resume nor --pretrained-weights is given: using fresh weights, so speeds are "
           "valid, scores are not");
    return TD_OK;
}

static td_status open_weights(evaluation *e)
{
    td_model_onnx_weights(&e->o.model, &e->o.weights);
    if (!e->o.weights && !e->o.is_fresh)
        return td_error(TD_EUSAGE, "evaluate requires --weights FILE");
    if (!e->o.weights)
        return open_fresh(e);
    if (e->o.confusion && !e->o.per_class)
        return td_error(TD_EUSAGE, "--confusion requires --per-class");
    TD_TRY(td_weight_file_open_for(e->o.weights, e->o.use_ema, &e->o.model, &e->weights));
    e->may_have_one_label =
        !e->o.model.multi_label && td_tensors_meta(e->weights, TD_LAST_ACTIVATION_META);
    td_weight_metadata_apply(e->weights, td_model_is_default(&e->o.model), &e->o.model);
    TD_TRY(td_weight_metadata_check(e->weights, e->o.weights, &e->o.model));
    TD_TRY(td_weight_norm_apply(e->weights, e->o.weights, true, &e->o.model));
    return td_quantization_apply(e->weights, e->o.weights, &e->o.amp, &e->quantization);
}

static td_status match_labels(evaluation *e)
{
    const int n = e->o.model.num_classes;
    if (!e->weights) /* fresh weights have no class names */
        return td_evaluation_count_classes(e);
    TD_TRY(td_class_names_open(&(td_class_names_opts){ .weights = e->weights,
                                                       .path = e->o.weights,
                                                       .classes = e->o.classes,
                                                       .model = &e->o.model,
                                                       .n_outputs = n },
                               &e->names));
    return td_label_match_apply(&(td_label_match){ .weights = e->o.weights,
                                                   .names = &e->names,
                                                   .n_outputs = n,
                                                   .label_map = e->o.label_map,
                                                   .by_order = e->o.labels_by_order },
                                e->ds);
}

/* Check the options that depend on the number of labels. */
static td_status check_labels(const td_evaluate_opts *o)
{
    const char *const network = o->weights ? o->weights : o->model.arch;
    const char *unfit = o->confusion             ? "--confusion"
                        : o->label_smoothing > 0 ? "--label-smoothing"
                                                 : NULL;
    const td_field *threshold = td_field_find(td_evaluate_fields(), "threshold");
    const bool has_threshold = o->threshold > 0 && !td_field_is_default(threshold, o);
    TD_TRY(td_network_check_threshold(has_threshold, o->model.multi_label, network));
    if (!o->model.multi_label || !unfit)
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "%s requires one label for each image: '%s' is a multi-label network", unfit,
                    network);
}

/* A Sigmoid at the end of a network does not tell whether an image has several labels; the data
   do. */
static void settle_labels(evaluation *e)
{
    if (!e->o.model.multi_label || !e->may_have_one_label || td_dataset_is_multi_label(e->ds))
        return;
    td_log(TD_LOG_INFO, "evaluate",
           "'%s' has one label for each image, so the largest of the network's outputs counts",
           td_dataset_root(e->ds));
    e->o.model.multi_label = false;
}

static td_status open_data(evaluation *e)
{
    td_log_backend(&e->o.input);
    if (e->o.input.val_split > 0 && e->o.seed < 0)
        return td_error(TD_EUSAGE, "--val-split requires --seed, that of the training");
    TD_TRY(td_open_part(&e->o.input, td_evaluation_split(e), &e->o.model, 0,
                        e->o.seed < 0 ? 0 : (uint64_t)e->o.seed, &e->ds));
    settle_labels(e);
    TD_TRY(check_labels(&e->o));
    TD_TRY(td_resolve_image_size(e->ds, &e->o.model));
    td_loader_opts lo = td_loader_opts_of(&e->o.input, &e->o.model, e->o.batch_size);
    lo.rank = td_comm_rank(e->comm);
    lo.world = td_comm_size(e->comm);
    lo.seed = e->o.seed < 0 ? 0 : (uint64_t)e->o.seed;
    TD_TRY(td_input_as_bytes(e->dev, &lo.as_bytes));
    if (!e->o.model.num_classes)
        e->o.model.num_classes = td_dataset_classes(e->ds);
    TD_TRY(match_labels(e));
    return td_loader_new(e->ds, &lo, &e->ld);
}

static td_evaluator_opts evaluator_opts(const evaluation *e)
{
    return (td_evaluator_opts){ .batch = e->o.batch_size,
                                .topk = e->o.topk,
                                .max_batches = e->o.prof > 0 ? e->o.prof : -1,
                                .smoothing = e->o.label_smoothing,
                                .threshold = e->o.threshold,
                                .mirrors = e->o.tta == TD_TTA_HFLIP,
                                .norm = td_loader_pixel_norm(e->ld),
                                .amp = &e->o.amp,
                                .comm = e->comm,
                                .skip_passes = e->o.device.skip_passes,
                                .dump_after = e->o.device.dump_after,
                                .planned_runs = td_evaluation_planned_runs(e),
                                .print_freq = e->o.print_freq,
                                .report = e->report,
                                .logits = e->o.logits,
                                .progress = td_evaluation_progress(e) };
}

/* Evaluate the data once; the results must be finite. */
static td_status run_evaluator(evaluation *e, const td_evaluator_opts *jo, td_eval_result *v)
{
    TD_TRY(td_evaluator_run(e->evaluator, e->ld, jo, v));
    if (v->was_stopped)
        return td_error(TD_ESTOPPED, "interrupted by a signal after %lld images",
                        (long long)v->counts.n);
    if (v->counts.n_nonfinite)
        return td_error(TD_EARG,
                        "%lld of %lld images have a loss that is not a finite number (%s): the "
                        "weights diverged, or logits exceed the range of the half type",
                        (long long)v->counts.n_nonfinite, (long long)v->counts.n,
                        td_amp_precision_name(&e->o.amp));
    return TD_OK;
}

/*
 * Evaluate the averages after the weights; copies the weights' times, because the evaluator reuses
 * its memory.
 */
static td_status evaluator_averages(evaluation *e, td_eval_result *v, double **latency,
                                    td_eval_result *ema)
{
    td_evaluator_opts jo = evaluator_opts(e);
    const size_t n = (size_t)v->n_batches;
    jo.prefix = "val_ema";
    jo.progress.what = "averages, batch";
    jo.logits = NULL;
    *latency = td_copy_array(v->latency, n, sizeof **latency);
    if (!*latency)
        return TD_ENOMEM;
    v->latency = *latency;
    TD_TRY(td_weights_load(e->weights, e->o.weights,
                           &(td_load_opts){ .use_ema = true, .model = &e->o.model },
                           td_evaluator_program(e->evaluator)));
    TD_TRY(td_program_release_params(td_evaluator_program(e->evaluator)));
    TD_TRY(td_loader_start_epoch(e->ld, 0));
    return run_evaluator(e, &jo, ema);
}

static void note(const evaluation *e, const td_eval_result *v, const td_eval_result *ema,
                 td_evaluate_result *r)
{
    r->n = v->counts.n;
    r->n_top1 = v->counts.n_top1;
    r->n_topk = v->counts.n_topk;
    r->top1 = td_percent(r->n_top1, r->n);
    r->topk = td_percent(r->n_topk, r->n);
    r->loss = td_mean_loss(&v->counts);
    r->images_per_s = v->seconds > 0 ? (double)r->n / v->seconds : 0;
    r->latency_ms = v->n_batches ? v->compute_s / (double)v->n_batches * 1e3 : 0;
    r->topk_k = e->o.topk;
    td_model_name(&e->o.model, r->arch, sizeof r->arch);
    r->is_multi_label = v->is_multi_label;
    r->map = v->multi.map;
    r->micro_f1 = v->multi.micro_f1;
    r->macro_f1 = v->multi.macro_f1;
    r->threshold = e->o.threshold;
    r->has_ema = ema != NULL;
    if (!ema)
        return;
    const td_counts *c = &ema->counts;
    r->ema_top1 = td_percent(c->n_top1, c->n);
    r->ema_topk = td_percent(c->n_topk, c->n);
    r->ema_map = ema->multi.map;
    r->ema_micro_f1 = ema->multi.micro_f1;
    r->ema_loss = td_mean_loss(c);
}

static td_status open_evaluator(evaluation *e)
{
    const td_evaluator_opts jo = evaluator_opts(e);
    TD_TRY(td_evaluator_new(&e->o.model, e->dev, &jo, &e->evaluator));
    if (e->o.ema_too) /* fail now rather than after a long evaluation */
        TD_TRY(td_weights_check(e->weights, e->o.weights,
                                &(td_load_opts){ .use_ema = true, .model = &e->o.model },
                                td_evaluator_program(e->evaluator)));
    TD_TRY(td_evaluation_load(e, e->o.use_ema, td_evaluator_program(e->evaluator)));
    if (!e->o.ema_too) /* nothing else is loaded */
        TD_TRY(td_program_release_params(td_evaluator_program(e->evaluator)));
    TD_TRY(td_evaluation_check_outputs(e));
    return td_evaluation_open_report(e, td_evaluator_program(e->evaluator));
}

/* Sum over ranks what the evaluator does not sum. */
static td_status sum_rest(evaluation *e, td_evaluate_result *r)
{
    const int classes = e->o.model.num_classes;
    TD_TRY(td_evaluation_sum_bad(e, r));
    for (int k = 0; r->confusion && k < classes; k++)
        TD_TRY(td_comm_sum_i64(e->comm, r->confusion + (size_t)k * (size_t)classes, classes));
    return TD_OK;
}

static td_status report_outcomes(const evaluation *e, const td_gather *outcomes)
{
    const td_outcome_metadata f = { .ds = e->ds,
                                    .folder = e->o.input.data,
                                    .names = &e->names,
                                    .n_classes = e->o.model.num_classes,
                                    .epoch = -1 };
    return td_outcomes_report(outcomes, &f, e->report);
}

static td_status evaluate(evaluation *e, td_evaluate_result *r)
{
    td_status st = TD_OK;
    td_gather outcomes = { 0 };
    const bool has_report = e->o.report.file || e->o.workspace; /* the same on all ranks */
    td_eval_result v, ema;
    double *latency = NULL;
    TD_TRY(open_evaluator(e));
    td_evaluator_opts jo = evaluator_opts(e);
    jo.confusion = r->confusion;
    jo.labels = r->labels;
    jo.outcomes =
        has_report && !e->o.report.is_compat && !e->o.model.multi_label ? &outcomes : NULL;
    TD_OUT(run_evaluator(e, &jo, &v));
    if (e->o.ema_too)
        TD_OUT(evaluator_averages(e, &v, &latency, &ema));
    TD_OUT(sum_rest(e, r));
    note(e, &v, e->o.ema_too ? &ema : NULL, r);
    TD_OUT(report_outcomes(e, &outcomes));
    TD_OUT(td_evaluation_write_report(e, &v, e->o.ema_too ? &ema : NULL));
    if (e->o.confusion && r->rank == 0)
        TD_OUT(td_confusion_write(r, e->o.confusion));
    td_scores s = { .n = r->n,
                    .top1 = r->top1,
                    .topk = r->topk,
                    .loss = r->loss,
                    .multi = v.is_multi_label ? &v.multi : NULL };
    st = td_require(e->o.require, &s, e->o.topk);
out:
    td_gather_release(&outcomes);
    td_free(latency);
    return st;
}

/* Check that the options apply to the network. */
static td_status check_options(const td_evaluate_opts *o)
{
    const char *const network = o->weights ? o->weights : o->model.arch;
    const bool is_detector = td_model_detector(&o->model) != TD_DETECTOR_NONE;
    const td_network_option rows[] = { { true, o->detections != NULL, "--detections" },
                                       { true, o->draw != NULL, "--draw" },
                                       { false, o->logits != NULL, "--logits" },
                                       { false, o->tta != TD_TTA_NONE, "--tta" },
                                       { false, o->confusion != NULL, "--confusion" },
                                       { false, o->label_map != NULL, "--label-map" },
                                       { false, o->label_smoothing > 0, "--label-smoothing" } };
    TD_TRY(td_network_options_check(rows, sizeof rows / sizeof *rows, is_detector, network));
    if (!is_detector) {
        TD_TRY(td_boxes_refuse(&o->model, &o->input, &o->boxes, network));
        return td_require_check(o->require, o->topk);
    }
    TD_TRY(td_boxes_check_input(&o->input, network));
    return o->require ? td_boxes_require_check(o->require) : TD_OK;
}

td_status td_evaluate(const td_evaluate_opts *opts, td_evaluate_result *out)
{
    td_status st = TD_OK;
    evaluation e = { .o = *opts };
    *out = (td_evaluate_result){ 0 };
    TD_OUT(td_log_configure(opts->log));
    td_signals_catch();
    if (!opts->weights && opts->detections) {
        st = td_evaluation_run_files(opts, out);
        goto out;
    }
    TD_OUT(td_join("evaluate", &(td_join_opts){ .log = opts->log, .threads = opts->device.threads },
                   &e.comm));
    out->rank = td_comm_rank(e.comm);
    td_set_threads(opts->device.threads ? opts->device.threads : td_comm_threads(e.comm));
    TD_OUT(open_weights(&e));
    TD_OUT(check_options(&e.o));
    TD_OUT(td_evaluation_open_device(&e)); /* it decides what the loader gives */
    if (td_model_detector(&e.o.model)) {
        st = td_evaluation_run_detector(&e, out);
        goto out;
    }
    TD_OUT(open_data(&e));
    if (e.o.per_class)
        TD_OUT((e.o.model.multi_label ? td_label_scores_new : td_confusion_new)(
            out, e.o.model.num_classes, e.ds, &e.names));
    TD_OUT(evaluate(&e, out));
out:
    td_leave(e.comm, st == TD_EREQUIRED ? TD_OK : st);
    td_status closed = td_report_close(e.report);
    release(&e);
    if (st != TD_OK && st != TD_EREQUIRED)
        td_evaluate_release(out);
    return st != TD_OK ? st : closed;
}
