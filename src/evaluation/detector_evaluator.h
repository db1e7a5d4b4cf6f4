/*
 * evaluation/detector_evaluator.h -- one pass of a detector over a data set: detections and COCO's
 * metrics
 *
 * The counterpart of evaluator.h for detectors, used by evaluate and by the validation of a
 * training.
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
    const td_norm *norm;    /* of the loader, if it gives pixels (td_loader_pixel_norm); or NULL */
    const td_amp_opts *amp; /* resolved */
    td_comm *comm;          /* ranks whose loaders share the data set; NULL: one rank */
    const char *skip_passes, *dump_after;
    int64_t planned_runs; /* as td_compile_opts */
    td_report *report;    /* records every print_freq batches, or NULL */
    const char *prefix;   /* prefix of the metrics: "val" (NULL) or "val_ema" */
    int print_freq;
    int64_t step[2]; /* epoch and iteration in the records */
    td_status (*each)(void *ctx, int64_t sample, const td_detection *found,
                      int n); /* called with each image's detections; its time is not counted */
    void *ctx;
    td_progress progress; /* logs the progress; not yet begun */
} td_detector_evaluator_opts;

/** Compile the evaluation program.  `model`'s classes and image size must be resolved. */
td_status td_detector_evaluator_new(const td_model_opts *model, td_device *dev,
                                    const td_detector_evaluator_opts *opts,
                                    td_detector_evaluator **out) TD_CHECKED;
void td_detector_evaluator_free(td_detector_evaluator *e);

/** The program, for setting weights. */
td_program *td_detector_evaluator_program(td_detector_evaluator *e);

/**
 * Evaluate one epoch of `ld`, a loader of `ds`.  out->boxes are the metrics; images that cannot be
 * read are ignored.  With several ranks, rank 0 gathers the detections of all and evaluates them,
 * as one rank would; all ranks get the counts and metrics.
 *   TD_EFORMAT   more bad images than allowed, on all ranks together
 *   TD_ENUMERIC  the network outputs boxes that are not finite
 */
td_status td_detector_evaluator_run(td_detector_evaluator *e, const td_dataset *ds, td_loader *ld,
                                    const td_detector_evaluator_opts *opts,
                                    td_eval_result *out) TD_CHECKED;

/**
 * Of the last run: metrics including those of each class, and the detections; valid until the next
 * run.  Empty on ranks other than 0.
 */
const td_coco_metrics *td_detector_evaluator_metrics(const td_detector_evaluator *e);
const td_coco_detection *td_detector_evaluator_found(const td_detector_evaluator *e, size_t *n);

#endif
