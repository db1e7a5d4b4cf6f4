/*
 * inference/detector.h -- runs a detector: images in, boxes out
 *
 *     td_detector_runner *f;
 *     TD_TRY(td_detector_runner_new(&model, dev, &opts, &f));
 *     TD_TRY(td_weights_load(..., td_detector_runner_program(f)));
 *     TD_TRY(td_detector_runner_run(f, images, n, &nms));          n images, at most the batch
 *     td_detector_runner_found(f, i, &n_found)                     boxes of image i, best first
 *
 * The network runs on all threads; then each thread post-processes complete images.
 */
#ifndef TD_INFERENCE_DETECTOR_H
#define TD_INFERENCE_DETECTOR_H

#include "boxes/nms.h"
#include "image/image.h"
#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/model.h"
#include "tandem/program.h"

typedef struct td_detector_runner td_detector_runner;

typedef struct {
    int batch;
    const td_norm *norm;    /* images are pixels, normalized by this; NULL: floats */
    const td_amp_opts *amp; /* resolved */
    const char *skip_passes, *dump_after;
    int64_t planned_runs; /* as td_compile_opts */
    bool is_whole;        /* as td_inference_opts */
} td_detector_runner_opts;

/** The settings of post-processing for these options. */
td_nms_opts td_boxes_nms(const td_boxes_opts *o, td_detector kind);

/** The same for showing boxes: the default of score_min is 0.3. */
td_nms_opts td_boxes_nms_display(const td_boxes_opts *o, td_detector kind);

/** Compile.  `model`'s classes and image size must be resolved. */
td_status td_detector_runner_new(const td_model_opts *model, td_device *dev,
                                 const td_detector_runner_opts *opts,
                                 td_detector_runner **out) TD_CHECKED;
void td_detector_runner_free(td_detector_runner *f);

/** The program, for setting weights. */
td_program *td_detector_runner_program(td_detector_runner *f);
const td_anchors *td_detector_runner_anchors(const td_detector_runner *f);

/** Run on images f32[n, 3, S, S], or with opts.norm u8[n, S, S, 3]; 1 <= n <= the batch. */
td_status td_detector_runner_run(td_detector_runner *f, const void *images, int n,
                                 const td_nms_opts *nms) TD_CHECKED;

/** Seconds of post-processing in the last run. */
double td_detector_runner_boxes_s(const td_detector_runner *f);

/** Detections of image i of the last run; valid until the next. */
const td_detection *td_detector_runner_found(const td_detector_runner *f, int i, int *n);

#endif
