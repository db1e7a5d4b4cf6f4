/*
 * evaluation/evaluation.h -- the state of an evaluation, and the steps common to both kinds
 *
 * evaluate.c is the verb and evaluates a classifier; detect_evaluate.c evaluates a detector, with
 * evaluate_draw.c for --draw.
 */
#ifndef TD_EVALUATION_EVALUATION_H
#define TD_EVALUATION_EVALUATION_H

#include "checkpoint/class_names.h"
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
    td_evaluate_opts o; /* a copy: model is completed from the file */
    td_tensors *weights;
    td_dataset *ds;
    td_loader *ld;
    td_device *dev;
    td_evaluator *evaluator;                   /* of a classifier ... */
    td_detector_evaluator *detector_evaluator; /* ... or of a detector */
    td_report *report;
    td_class_names names; /* of the outputs */
    td_comm *comm;        /* NULL: one rank */

    td_annotated_images *annotated; /* with --draw */
    td_transformer buffers;
    int64_t n_drawn;
} td_evaluation;

/** "val", or with --eval-training-data "train". */
const char *td_evaluation_split(const td_evaluation *e);

/** The device, and the precision that it gives. */
td_status td_evaluation_open_device(td_evaluation *e) TD_CHECKED;

/** Of fresh weights: TD_ESHAPE where the data have more classes than the network. */
td_status td_evaluation_count_classes(const td_evaluation *e) TD_CHECKED;

/** The weights of the file, or fresh ones where none is named; is_ema: its averages. */
td_status td_evaluation_load(const td_evaluation *e, bool is_ema, td_program *p) TD_CHECKED;

/** Can the files of results be written?  Rank 0 does.  The folder of --draw is made. */
td_status td_evaluation_check_outputs(const td_evaluation *e) TD_CHECKED;

/** r->n_bad: of all ranks. */
td_status td_evaluation_sum_bad(const td_evaluation *e, td_evaluate_result *r) TD_CHECKED;

/** The progress logger; the report must be open. */
td_progress td_evaluation_progress(const td_evaluation *e);

td_status td_evaluation_open_report(td_evaluation *e, td_program *program) TD_CHECKED;

/** The record of the whole; ema: of the averages, or NULL. */
td_status td_evaluation_write_report(td_evaluation *e, const td_eval_result *v,
                                     const td_eval_result *ema) TD_CHECKED;

/** Go on where the weights, which are a detector's, are open. */
td_status td_evaluation_of_detector(td_evaluation *e, td_evaluate_result *out) TD_CHECKED;

/** --draw: are there images, and would none of them be written over? */
td_status td_evaluation_open_drawn(td_evaluation *e) TD_CHECKED;

/** td_detector_evaluator_opts.each of a td_evaluation: one image of --draw. */
td_status td_evaluation_draw(void *ctx, int64_t sample, const td_detection *found,
                             int n) TD_CHECKED;
td_status td_evaluation_log_drawn(const td_evaluation *e) TD_CHECKED;
void td_evaluation_close_drawn(td_evaluation *e);

/** Evaluate --detections by --annotations, two files, without a network. */
td_status td_evaluation_of_files(const td_evaluate_opts *o, td_evaluate_result *out) TD_CHECKED;

#endif
