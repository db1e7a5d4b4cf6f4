/*
 * coco/coco_metrics.h -- COCO's twelve numbers for boxes: how good are detections?
 *
 *     td_coco_metrics m;
 *     TD_TRY(td_coco_metrics_compute(truth, n_truth, detections, n_detections, NULL, &m));
 *     ... m.value[TD_COCO_AP50] ...                   0 .. 1, -1 where nothing could be found
 *     td_coco_metrics_release(&m);
 *
 * Equal to pycocotools (COCOeval with iouType "bbox") on the same annotations and detections, but
 * for one thing: there a match with an annotation whose id is 0 counts as a miss.  Ids are not
 * asked for here.
 *
 * An image is what shares an id: one with ground truths and no detections, or the reverse, counts;
 * one with neither changes nothing and need not be named.
 */
#ifndef TD_COCO_COCO_METRICS_H
#define TD_COCO_COCO_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/** An object that is there.  Among those of an image and a class, order decides ties. */
typedef struct {
    int64_t image, category; /* ids, any numbers */
    double box[4];           /* x, y, width, height in pixels of the image */
    double area;             /* in pixels; decides whether it is small, medium or large */
    bool is_crowd;           /* finding it is neither right nor wrong, and may happen often */
} td_coco_ground_truth;

/** One that was found.  Among equal scores the lower image comes first, then the earlier. */
typedef struct {
    int64_t image, category;
    double box[4];
    double score;
} td_coco_detection;

/** All zero is a valid default. */
typedef struct {
    bool box_areas; /* a ground truth's area is its box's, as in TensorFlow's SSD320 evaluation */
    /*
     * Categories that count; ground truths and detections of others do not.  0: those of the ground
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
    TD_COCO_APM, /* from there up to 96 x 96 */
    TD_COCO_APL,
    TD_COCO_AR1, /* recall with one detection an image and class, mean over IoU and classes */
    TD_COCO_AR10,
    TD_COCO_AR100,
    TD_COCO_ARS,
    TD_COCO_ARM,
    TD_COCO_ARL,
    TD_COCO_VALUES
} td_coco_value;

/** A category's own numbers; -1 where it has no ground truth that counts. */
typedef struct {
    int64_t category;
    int64_t n_ground_truths; /* without crowds */
    double ap, ap50, ar100;
} td_coco_class;

typedef struct {
    double value[TD_COCO_VALUES]; /* 0 .. 1; -1: no class has ground truths of this kind */
    size_t n_classes;
    td_coco_class *classes; /* [n_classes], by id */
} td_coco_metrics;

/**
 * Compute.  `opts` NULL: the defaults.  Time is about that of sorting the detections.
 *
 *   TD_ENUMERIC  a box, area or score is no finite number, or beyond 1e15 either way
 *   TD_ENOMEM
 *
 * On failure *out is empty; releasing it is fine.
 */
TD_CHECKED td_status td_coco_metrics_compute(const td_coco_ground_truth *ground_truths,
                                             size_t n_ground_truths,
                                             const td_coco_detection *detections,
                                             size_t n_detections, const td_coco_metrics_opts *opts,
                                             td_coco_metrics *out);

void td_coco_metrics_release(td_coco_metrics *m);

/** "AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl". */
const char *td_coco_key(int v);

/** What TensorFlow's evaluation logs it as, "DetectionBoxes_Precision/mAP". */
const char *td_coco_log_name(int v);

/** The twelve lines pycocotools prints, each with its line's end. */
void td_coco_metrics_print(const double value[TD_COCO_VALUES], td_text *out);

#endif
