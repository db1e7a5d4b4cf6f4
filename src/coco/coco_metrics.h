/*
 * coco/coco_metrics.h -- COCO's twelve metrics for boxes
 *
 *     td_coco_metrics m;
 *     TD_TRY(td_coco_metrics_compute(ground_truths, n_gt, detections, n_detections, NULL, &m));
 *     ... m.value[TD_COCO_AP50] ...                   0 .. 1, -1 without ground truths
 *     td_coco_metrics_release(&m);
 *
 * Equal to pycocotools (COCOeval with iouType "bbox") on the same annotations and detections, with
 * one exception: pycocotools counts a match with an annotation of id 0 as a miss.  Ids of
 * annotations are not used here.
 *
 * Images are identified by id: an image with ground truths and no detections, or the reverse,
 * counts; an image with neither changes nothing and need not be named.
 */
#ifndef TD_COCO_COCO_METRICS_H
#define TD_COCO_COCO_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/** A ground truth.  Within an image and a class, the order decides ties. */
typedef struct {
    int64_t image, category; /* ids, any numbers */
    double box[4];           /* x, y, width, height in pixels of the image */
    double area;             /* in pixels; decides whether it is small, medium or large */
    bool is_crowd;           /* a match is neither true nor false; it may have several */
} td_coco_ground_truth;

/** A detection.  Among equal scores the lower image comes first, then the earlier. */
typedef struct {
    int64_t image, category;
    double box[4];
    double score;
} td_coco_detection;

/** Zero-initialise for the defaults. */
typedef struct {
    bool box_areas; /* ground truths have their box's area, as in TensorFlow's SSD320 evaluation */
    /*
     * Categories that count; others are ignored.  0: those of the ground
     * truths.
     */
    const int64_t *categories;
    size_t n_categories;
} td_coco_metrics_opts;

typedef enum {
    TD_COCO_AP,   /* mean over IoU 0.50, 0.55, .. 0.95, classes and 101 recalls */
    TD_COCO_AP50, /* at IoU 0.50 */
    TD_COCO_AP75,
    TD_COCO_APS, /* areas up to 32 x 32 */
    TD_COCO_APM, /* areas from 32 x 32 up to 96 x 96 */
    TD_COCO_APL,
    TD_COCO_AR1, /* recall with one detection per image and class, mean over IoU and classes */
    TD_COCO_AR10,
    TD_COCO_AR100,
    TD_COCO_ARS,
    TD_COCO_ARM,
    TD_COCO_ARL,
    TD_COCO_VALUES
} td_coco_value;

/** The metrics of a category; -1 without ground truths that count. */
typedef struct {
    int64_t category;
    int64_t n_ground_truths; /* without crowds */
    double ap, ap50, ar100;
} td_coco_class;

typedef struct {
    double value[TD_COCO_VALUES]; /* 0 .. 1; -1: no ground truths of this kind */
    size_t n_classes;
    td_coco_class *classes; /* [n_classes], by id */
} td_coco_metrics;

/**
 * Compute.  `opts` NULL: the defaults.  Time is about that of sorting the detections.
 *
 *   TD_ENUMERIC  a box, area or score is not a finite number, or beyond 1e15 either way
 *   TD_ENOMEM
 *
 * On failure *out is empty and may be released.
 */
TD_CHECKED td_status td_coco_metrics_compute(const td_coco_ground_truth *ground_truths,
                                             size_t n_ground_truths,
                                             const td_coco_detection *detections,
                                             size_t n_detections, const td_coco_metrics_opts *opts,
                                             td_coco_metrics *out);

void td_coco_metrics_release(td_coco_metrics *m);

/** "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl". */
const char *td_coco_key(int v);

/** Its name in TensorFlow's evaluation log, "DetectionBoxes_Precision/mAP". */
const char *td_coco_log_name(int v);

/** The twelve lines pycocotools prints, each with its line's end. */
void td_coco_metrics_print(const double value[TD_COCO_VALUES], td_text *out);

#endif
