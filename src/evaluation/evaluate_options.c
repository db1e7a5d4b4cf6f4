/*
 * evaluate_options.c -- the options of `tandem evaluate`
 */
#include "evaluation/evaluator.h"
#include "options/field.h"
#include "options/rows.h"
#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/evaluate.h"
#include "tandem/input.h"
#include "tandem/model.h"

static const char *const ttas[] = { "none", "hflip", NULL };

/* clang-format off */
static const td_field evaluate_fields[] = {
    TD_INT_AS (td_evaluate_opts, batch_size, "batch_size", "b", 64, 1, 1 << 20, NULL,
               "batch size"),
    TD_WEIGHTS_ROW(td_evaluate_opts),
    TD_CLASSES_ROW(td_evaluate_opts, "those in the weights"),
    TD_TEXT   (td_evaluate_opts, label_map, NULL, "FILE",
               "map from class folders to network outputs: lines such as 'folder 7', or JSON; "
               "default: by name"),
    TD_BOOL   (td_evaluate_opts, labels_by_order, false,
               "map class i of the data to output i, regardless of names"),
    TD_TEXT   (td_evaluate_opts, logits, NULL, "FILE",
               "write the logits in input order to a .safetensors file"),
    TD_INT    (td_evaluate_opts, topk, TD_EVALUATOR_TOPK, 1, 1000000,
               "k of the top-k accuracy that is reported next to top-1"),
    TD_REAL   (td_evaluate_opts, label_smoothing, 0, 0, 1, "label smoothing of the loss"),
    TD_REAL   (td_evaluate_opts, threshold, 0.5, 0.000001, 1,
               "multi-label: probability from which a class counts as predicted, for F1 scores"),
    TD_ENUM   (td_evaluate_opts, tta, TD_TTA_NONE, ttas,
               "test-time augmentation; hflip: mean logits of each image and its mirror image"),
    TD_BOOL_AS(td_evaluate_opts, use_ema, "use-ema", "ema", false,
               "use the averaged (EMA) weights of the file"),
    TD_LONG   (td_evaluate_opts, seed, -1, -1, 9e15,
               "random seed of synthetic data, and of --val-split; -1: 0"),
    TD_TEXT   (td_evaluate_opts, require, NULL, "METRIC>=X",
               "exit with code 4 if the result does not satisfy this, for example 'top1>=95'"),
    TD_TEXT_AS(td_evaluate_opts, report.file, "raport_file", NULL, NULL, "FILE",
               "report of the run in JSON lines; spelled as in the reference programs"),
    TD_REPORT_ROWS(td_evaluate_opts),
    TD_INT_AS (td_evaluate_opts, print_freq, "print_freq", "p", 10, 1, 1000000000, NULL,
               "batches between progress lines or report records"),
    TD_INT    (td_evaluate_opts, prof, -1, -1, 1000000000,
               "number of batches to evaluate; -1: all"),
    TD_BOOL   (td_evaluate_opts, per_class, false,
               "print the accuracy of every class and the confusions; multi-label: AP and F1 of "
               "every class"),
    TD_TEXT   (td_evaluate_opts, confusion, NULL, "FILE",
               "with --per-class: write the confusion matrix as CSV"),
    TD_DEVICE_ROWS(td_evaluate_opts),
    TD_PASS_ROWS(td_evaluate_opts),
    TD_LOG_ROW(td_evaluate_opts),
    TD_TITLE_SECONDARY_RENAMED("What to evaluate", "what_is_judged"),
    TD_TEXT   (td_evaluate_opts, detections, NULL, "FILE",
               "detectors: write the detections in COCO's results format"),
    TD_TEXT   (td_evaluate_opts, draw, NULL, "FOLDER",
               "detectors: write the images with detections (solid) and ground truth (dashed) "
               "to this folder"),
    TD_LONG   (td_evaluate_opts, draw_limit, 0, 0, TD_MANY,
               "with --draw: only the first N images; 0: all"),
    TD_REAL   (td_evaluate_opts, draw_min_score, -1, -1, 1,
               "with --draw: minimum score of drawn detections; -1: 0.3"),
    TD_BOOL   (td_evaluate_opts, eval_training_data, false, "evaluate the training split"),
    TD_TEXT   (td_evaluate_opts, checkpoint_dir, NULL, "FOLDER",
               "workspace of a running training: evaluate its checkpoint and every later one"),
    TD_BOOL   (td_evaluate_opts, run_once, false,
               "with --checkpoint-dir: evaluate only the current checkpoint"),
    TD_INT    (td_evaluate_opts, poll_seconds, 180, 1, 1000000,
               "with --checkpoint-dir: seconds between checks for a new checkpoint"),
    TD_TITLE_SECONDARY_RENAMED("Options of the reference programs",
                               "names_of_the_reference_programs"),
    TD_TEXT_AS(td_evaluate_opts, workspace, "workspace", "results_dir|save", NULL, "FOLDER",
               "folder of --raport-file; without --raport-file: write evaluation.json to it"),
    TD_TEXT   (td_evaluate_opts, model_dir, NULL, "FOLDER",
               "same as --workspace; without weights, evaluate the checkpoint in it"),
    TD_PIPELINE_ROWS(td_evaluate_opts),
    TD_ALIAS  ("data_dir", "data"),
    TD_ALIAS  ("log_filename", "raport-file"),
    TD_ALIAS  ("json_summary", "raport-file"),
    TD_ALIAS  ("eval_batch_size", "batch-size"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ACCEPTED("allow_xla", NULL, "every graph is compiled and fused"),
    TD_ACCEPTED("sample_1_of_n_eval_on_train_examples", "N", "--sample-1-of-n applies to both"),
    TD_LOGGING_ROWS,
    TD_END,
};
/* clang-format on */

const td_field *td_evaluate_fields(void)
{
    return evaluate_fields;
}

void td_evaluate_defaults(td_evaluate_opts *opts)
{
    *opts = (td_evaluate_opts){ 0 };
    td_model_defaults(&opts->model);
    td_fields_default(td_input_fields(), &opts->input);
    td_amp_defaults(&opts->amp);
    td_fields_default(td_boxes_fields(), &opts->boxes);
    td_fields_default(evaluate_fields, opts);
}
