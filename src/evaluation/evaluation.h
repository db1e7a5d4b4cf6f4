/*
 * evaluation/evaluation.h -- the state of an evaluation, and the steps common to classifiers and
 * detectors
 *
 * evaluate.c has td_evaluate and evaluates classifiers; detect_evaluate.c evaluates detectors, with
 * evaluate_draw.c for --draw.
 */
#ifndef TD_EVALUATION_EVALUATION_H
#define TD_EVALUATION_EVALUATION_H

#include "checkpoint/class_names.h"
#include "checkpoint/quantization.h"
#include "comm/comm.h"
#include "evaluation/detector_evaluator.h"
#include "evaluation/evaluator.h"
#include "inference/annotated_images.h"
#include "io/safetensors.h"
#include "loggers/run_logger.h"
#include "tandem/dataset.h"
#include "tandem/evaluate.h"
#include "tandem/loader.h"
#include "transforms/augment.h"

typedef struct {
    td_evaluate_opts o; /* a copy, in which the file's metadata complete `model` */
    td_tensors *weights;
    bool may_have_one_label;      /* a multi-label network only because it ends in a Sigmoid */
    td_quantization quantization; /* of the weights */
    td_dataset *ds;
    td_loader *ld;
    td_device *dev;
    td_evaluator *evaluator;                   /* for a classifier ... */
    td_detector_evaluator *detector_evaluator; /* ... or for a detector */
    td_report *report;
    td_class_names names; /* names of the outputs */
    td_comm *comm;        /* NULL: one rank */

    td_annotated_images *annotated; /* for --draw */
    td_transformer buffers;
    int64_t n_drawn;
} td_evaluation;

/** The data set's part to evaluate: "val", or with --eval-training-data "train". */
const char *td_evaluation_split(const td_evaluation *e);

/** Open the device and resolve the precision. */
td_status td_evaluation_open_device(td_evaluation *e) TD_CHECKED;

/** For fresh weights: TD_ESHAPE if the data have more classes than the network. */
td_status td_evaluation_count_classes(const td_evaluation *e) TD_CHECKED;

/** How often the network will run, for td_compile_opts; 0 with several ranks. */
int64_t td_evaluation_planned_runs(const td_evaluation *e);

/** Load the weights of the file, or its averages (is_ema); without a file, initialize them. */
td_status td_evaluation_load(const td_evaluation *e, bool is_ema, td_program *p) TD_CHECKED;

/** Check on rank 0 that the files of results can be written; create the folder of --draw. */
td_status td_evaluation_check_outputs(const td_evaluation *e) TD_CHECKED;

/** Set r->n_bad to the number of all ranks. */
td_status td_evaluation_sum_bad(const td_evaluation *e, td_evaluate_result *r) TD_CHECKED;

/** The progress of the evaluation; the report must be open. */
td_progress td_evaluation_progress(const td_evaluation *e);

td_status td_evaluation_open_report(td_evaluation *e, td_program *program) TD_CHECKED;

/** Write the record of the results; ema: results of the averages, or NULL. */
td_status td_evaluation_write_report(td_evaluation *e, const td_eval_result *v,
                                     const td_eval_result *ema) TD_CHECKED;

/** Evaluate a detector, after its weights were opened. */
td_status td_evaluation_run_detector(td_evaluation *e, td_evaluate_result *out) TD_CHECKED;

/** Open --draw: check that the data set has images and that no file would be overwritten. */
td_status td_evaluation_open_drawn(td_evaluation *e) TD_CHECKED;

/** td_detector_evaluator_opts.each for --draw: draw one image; `ctx` is the td_evaluation. */
td_status td_evaluation_draw(void *ctx, int64_t sample, const td_detection *found,
                             int n) TD_CHECKED;
td_status td_evaluation_log_drawn(const td_evaluation *e) TD_CHECKED;
void td_evaluation_close_drawn(td_evaluation *e);

/** Evaluate the file --detections against the file --annotations, without a network. */
td_status td_evaluation_run_files(const td_evaluate_opts *o, td_evaluate_result *out) TD_CHECKED;

#endif
