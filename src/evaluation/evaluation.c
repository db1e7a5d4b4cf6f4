/*
 * evaluation.c -- steps common to evaluations of classifiers and detectors
 */
#include "evaluation/evaluation.h"

#include "base/arena.h"
#include "base/paths.h"
#include "checkpoint/weights.h"
#include "comm/fingerprint.h"
#include "data/dataset_digest.h"
#include "evaluation/evaluator.h"
#include "evaluation/report_sums.h"
#include "io/atomic.h"
#include "loggers/report_settings.h"
#include "options/field.h"
#include "runtime/program_digest.h"
#include "tandem/dataset.h"
#include "tandem/detection.h"
#include "tandem/evaluate.h"
#include "tandem/input.h"
#include "tandem/loader.h"

const char *td_evaluation_split(const td_evaluation *e)
{
    return e->o.eval_training_data ? "train" : "val";
}

td_status td_evaluation_count_classes(const td_evaluation *e)
{
    const int n = e->o.model.num_classes, n_data = td_dataset_classes(e->ds);
    return n_data <= n ? TD_OK
                       : td_error(TD_ESHAPE, "'%s' has %d classes, the network %d",
                                  td_dataset_root(e->ds), n_data, n);
}

td_status td_evaluation_open_device(td_evaluation *e)
{
    TD_TRY(td_device_open(e->o.device.name, &e->dev));
    TD_TRY(td_amp_resolve(&e->o.amp, e->dev));
    td_device_winograd(e->dev, e->o.device.winograd);
    return td_device_tune(e->dev, e->o.device.tune, e->o.device.tune_cache);
}

int64_t td_evaluation_planned_runs(const td_evaluation *e)
{
    const int64_t all = td_loader_batches(e->ld) * (e->o.ema_too ? 2 : 1);
    if (e->comm) /* ranks would disturb each other's timing */
        return 0;
    return e->o.prof > 0 && e->o.prof < all ? e->o.prof : all;
}

td_status td_evaluation_load(const td_evaluation *e, bool is_ema, td_program *p)
{
    if (!e->weights)
        return td_program_init(p, e->o.seed < 0 ? 0 : (uint64_t)e->o.seed);
    return td_weights_load(e->weights, e->o.weights,
                           &(td_load_opts){ .use_ema = is_ema, .model = &e->o.model }, p);
}

td_status td_evaluation_check_outputs(const td_evaluation *e)
{
    if (td_comm_rank(e->comm) > 0)
        return TD_OK;
    TD_TRY(td_output_check(e->o.logits));
    TD_TRY(td_output_check(e->o.confusion));
    TD_TRY(td_output_check(e->o.detections));
    return e->o.draw ? td_make_folder(e->o.draw) : TD_OK;
}

td_status td_evaluation_sum_bad(const td_evaluation *e, td_evaluate_result *r)
{
    const td_bad_image *bad;
    r->n_bad = td_loader_bad(e->ld, &bad);
    return td_comm_sum_i64(e->comm, &r->n_bad, 1);
}

/* --- the report ------------------------------------------------------------------------------- */

/* default of the TensorFlow program's --warmup_steps */
enum { TF_WARM_BATCHES = 50 };

static td_status agree(td_evaluation *e, const char *config, const td_program *program)
{
    td_text text = { 0 };
    td_status st = TD_OK;
    if (!e->comm)
        return TD_OK;
    TD_OUT(td_describe_run(config, &text));
    TD_OUT(td_describe_data("data", e->ds, &text));
    if (e->weights)
        TD_OUT(td_describe_file("weights", e->o.weights, &text));
    TD_OUT(td_describe_program("compiled network", program, &text));
    st = td_comm_agree(e->comm, "run", td_text_get(&text));
out:
    td_text_release(&text);
    return st;
}

/* The path of the report; the default name, with --workspace, is not used by a training. */
static td_status name_report(const td_evaluation *e, char **path)
{
    const char *file = e->o.report.file ? e->o.report.file : "evaluation.json";
    if (!e->o.report.file && !e->o.workspace)
        return TD_OK;
    if (e->o.workspace)
        TD_TRY(td_make_folder(e->o.workspace));
    *path = td_path_join(e->o.workspace ? e->o.workspace : "", file);
    return *path ? TD_OK : TD_ENOMEM;
}

td_status td_evaluation_open_report(td_evaluation *e, td_program *program)
{
    td_status st = TD_OK;
    td_text config = { 0 };
    char *path = NULL;
    const td_field_group groups[] = { { "Network", td_model_fields(), &e->o.model },
                                      { "Data", td_input_fields(), &e->o.input },
                                      { "Precision", td_amp_fields(), &e->o.amp },
                                      { "Detection", td_boxes_fields(), &e->o.boxes },
                                      { "Evaluation", td_evaluate_fields(), &e->o },
                                      { NULL, NULL, NULL } };
    const bool is_mine = td_comm_rank(e->comm) == 0;
    if (is_mine)
        TD_OUT(name_report(e, &path));
    const td_run_logger_opts ro = { .path = path,
                                    .to_log =
                                        is_mine && e->o.report.log_format == TD_LOG_FORMAT_DLL,
                                    .is_compat = e->o.report.is_compat,
                                    .has_tf_names = e->o.report.naming == TD_REPORT_NAMING_TF,
                                    .detects = e->detector_evaluator != NULL,
                                    .is_multi_label = e->o.model.multi_label,
                                    .topk = e->o.topk };
    const td_run_metadata metadata = { .job = "evaluate",
                                       .amp = &e->o.amp,
                                       .program = program,
                                       .val_images = td_dataset_count(e->ds) };
    TD_OUT(td_settings_json(groups, &config));
    TD_OUT(agree(e, td_text_get(&config), program));
    TD_OUT(td_report_open(&ro, &e->report));
    TD_OUT(td_report_settings(e->report, td_text_get(&config), &e->o.model, &metadata));
out:
    td_text_release(&config);
    td_free(path);
    return st;
}

td_status td_evaluation_write_report(td_evaluation *e, const td_eval_result *v,
                                     const td_eval_result *ema)
{
    const int n_warm = e->o.report.warmup >= 0 ? e->o.report.warmup : TF_WARM_BATCHES;
    td_report_begin(e->report, 0, NULL);
    td_eval_result_report(v, "val", e->o.topk, e->report);
    if (ema)
        td_eval_result_report(ema, "val_ema", e->o.topk, e->report);
    if (td_report_has_tf_names(e->report))
        TD_TRY(td_tf_eval_report(v, e->o.topk, n_warm, e->report));
    TD_TRY(td_report_end(e->report));
    td_report_log(e->report, "Experiment ended");
    return TD_OK;
}

td_progress td_evaluation_progress(const td_evaluation *e)
{
    return (td_progress){ .module = td_report_has_text(e->report) ? NULL : "evaluate",
                          .what = "batch",
                          .every = e->o.print_freq,
                          .comm = e->comm };
}
