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

/* clang-format off */
static const td_field evaluate_fields[] = {
    TD_INT_AS (td_evaluate_opts, batch_size, "batch_size", "b", 64, 1, 1 << 20, NULL,
               "images in a batch"),
    TD_WEIGHTS_ROW(td_evaluate_opts),
    TD_CLASSES_ROW(td_evaluate_opts, "those in the weights"),
    TD_TEXT   (td_evaluate_opts, label_map, NULL, "FILE",
               "class of the data -> output: lines 'folder 7' or JSON; else by name"),
    TD_BOOL   (td_evaluate_opts, labels_by_order, false,
               "class i of the data is output i, whatever their names and numbers"),
    TD_TEXT   (td_evaluate_opts, logits, NULL, "FILE",
               "raw outputs in input order, a .safetensors"),
    TD_INT    (td_evaluate_opts, topk, TD_EVALUATOR_TOPK, 1, 1000000,
               "second accuracy: the label is among the k best"),
    TD_REAL   (td_evaluate_opts, label_smoothing, 0, 0, 1, "of the loss"),
    TD_BOOL_AS(td_evaluate_opts, use_ema, "use-ema", "ema", false, "the file's averaged weights"),
    TD_LONG   (td_evaluate_opts, seed, -1, -1, 9e15, "of synthetic data; -1: 0"),
    TD_TEXT   (td_evaluate_opts, require, NULL, "METRIC>=X",
               "exit 4 when the result is below, 'top1>=95'"),
    TD_TEXT   (td_evaluate_opts, raport_file, NULL, "FILE", "JSON lines of the run"),
    TD_REPORT_ROWS(td_evaluate_opts),
    TD_INT_AS (td_evaluate_opts, print_freq, "print_freq", "p", 10, 1, 1000000000, NULL,
               "batches between two lines of progress, or records"),
    TD_INT    (td_evaluate_opts, prof, -1, -1, 1000000000, "batches to judge; -1: all"),
    TD_BOOL   (td_evaluate_opts, per_class, false,
               "accuracy of every class, and what was taken for what"),
    TD_TEXT   (td_evaluate_opts, confusion, NULL, "FILE",
               "with --per-class: what was taken for what, as CSV"),
    TD_DEVICE_ROWS(td_evaluate_opts),
    TD_PASS_ROWS(td_evaluate_opts),
    TD_LOG_ROW(td_evaluate_opts),
    TD_TITLE_BEHIND("What is judged"),
    TD_TEXT   (td_evaluate_opts, detections, NULL, "FILE",
               "detectors: what was found, as COCO's results"),
    TD_TEXT   (td_evaluate_opts, draw, NULL, "FOLDER",
               "detectors: the images go here with what was found, and dashed what is annotated"),
    TD_LONG   (td_evaluate_opts, draw_limit, 0, 0, TD_MANY,
               "with --draw: the first so many images; 0: all"),
    TD_REAL   (td_evaluate_opts, draw_min_score, -1, -1, 1,
               "with --draw: boxes with a score above; -1: 0.3, whatever is judged"),
    TD_BOOL   (td_evaluate_opts, eval_training_data, false, "judge the training split"),
    TD_TEXT   (td_evaluate_opts, checkpoint_dir, NULL, "FOLDER",
               "of a training: judge its checkpoint, and every new one until the last"),
    TD_BOOL   (td_evaluate_opts, run_once, false, "with --checkpoint-dir: only the one of now"),
    TD_INT    (td_evaluate_opts, poll_seconds, 180, 1, 1000000,
               "with --checkpoint-dir: between two looks for a new one"),
    TD_TITLE_BEHIND("Names of the reference programs"),
    TD_TEXT_AS(td_evaluate_opts, workspace, "workspace", "results_dir|save", NULL, "FOLDER",
               "where --raport-file goes; alone, evaluation.json there"),
    TD_TEXT   (td_evaluate_opts, model_dir, NULL, "FOLDER",
               "--workspace; without weights, the checkpoint that is there is judged"),
    TD_PIPELINE_ROWS(td_evaluate_opts),
    TD_ALIAS  ("data_dir", "data"),
    TD_ALIAS  ("log_filename", "raport-file"),
    TD_ALIAS  ("json_summary", "raport-file"),
    TD_ALIAS  ("eval_batch_size", "batch-size"),
    TD_ALIAS  ("num_workers", "workers"),
    TD_ACCEPTED("allow_xla", NULL, "every graph is fused and compiled"),
    TD_ACCEPTED("sample_1_of_n_eval_on_train_examples", "N", "--sample-1-of-n is for both"),
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
