/*
 * evaluation/evaluate_boxes.h -- evaluates a file of detections against a file of annotations
 *
 * Needs neither network nor images; the metrics equal those of pycocotools for the same files.
 */
#ifndef TD_EVALUATION_EVALUATE_BOXES_H
#define TD_EVALUATION_EVALUATE_BOXES_H

#include "coco/coco_metrics.h"

/** All zero is empty. */
typedef struct {
    td_coco_metrics metrics; /* metrics.classes: every category of the annotations */
    char **names;            /* [metrics.n_classes] names of the categories */
    int64_t n_images, n_ground_truths, n_detections;
} td_boxes_eval;

/**
 * Compare.  Annotations of unknown images or categories and detections of unknown categories are
 * ignored; a warning gives their number.  On failure *out is empty.
 *
 *   TD_ENOTFOUND, TD_EIO, TD_EFORMAT, TD_ELIMIT  as td_coco_read and td_detections_read
 *   TD_EFORMAT   a detection names an image that is not in the annotations
 *   TD_ENUMERIC  a number is larger than 1e15
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_boxes_compare(const char *annotations, const char *detections,
                                      bool box_areas, td_boxes_eval *out);

void td_boxes_eval_release(td_boxes_eval *v);

#endif
