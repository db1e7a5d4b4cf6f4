/*
 * evaluation/detector_evaluator.h -- one pass of a detector over a data set: detections and COCO's
 * metrics
 *
 * The detector's evaluator.h: evaluate and the validation of a training share it.
 */
#ifndef TD_EVALUATION_DETECTOR_EVALUATOR_H
#define TD_EVALUATION_DETECTOR_EVALUATOR_H

#include "coco/coco_metrics.h"
#include "evaluation/evaluator.h"
#include "inference/detector.h"

typedef struct td_detector_evaluator td_detector_evaluator;

typedef struct {
    int batch;
    int64_t max_batches; /* -1: all */
    const td_boxes_opts *boxes;
    const td_amp_opts *amp; /* resolved */
    td_comm *comm;          /* whose loaders share the set; NULL: one rank */
    const char *skip_passes, *dump_after;
    td_report *report;  /* records every print_freq batches, or NULL */
    const char *prefix; /* of their metrics: "val" (NULL) or "val_ema" */
    int print_freq;
    int64_t step[2]; /* epoch, iteration of the records */
    td_status (*each)(void *ctx, int64_t sample, const td_detection *found,
                      int n); /* of every image, what was found; its time counts nowhere */
    void *ctx;
    td_progress progress; /* logs the progress; not begun */
} td_detector_evaluator_opts;

/** Compile the evaluation program.  `model`'s classes and image size must be resolved. */
td_status td_detector_evaluator_new(const td_model_opts *model, td_device *dev,
                                    const td_detector_evaluator_opts *opts,
                                    td_detector_evaluator **out) TD_CHECKED;
void td_detector_evaluator_free(td_detector_evaluator *j);

/** The program, for setting weights. */
td_program *td_detector_evaluator_program(td_detector_evaluator *j);

/**
 * Evaluate everything `ld`, a loader over `ds`, lends in one epoch.  out->boxes are the metrics;
 * images that cannot be read count neither as found nor as missed.  Of several ranks, rank 0 gets
 * what all have found and evaluates it, as one rank would; counts and metrics are then everybody's.
 *   TD_EFORMAT   more bad images than may be, on all ranks together
 *   TD_ENUMERIC  the network gives boxes that are no finite numbers
 */
td_status td_detector_evaluator_run(td_detector_evaluator *j, const td_dataset *ds, td_loader *ld,
                                    const td_detector_evaluator_opts *opts,
                                    td_eval_result *out) TD_CHECKED;

/**
 * Of the last run: metrics with those of each class, and the detections; valid until the next.  On
 * ranks but 0 empty.
 */
const td_coco_metrics *td_detector_evaluator_metrics(const td_detector_evaluator *j);
const td_coco_detection *td_detector_evaluator_found(const td_detector_evaluator *j, size_t *n);

#endif
