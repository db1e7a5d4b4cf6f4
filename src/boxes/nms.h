/*
 * boxes/nms.h -- non-maximum suppression: turns a detector's raw outputs into detections
 *
 *     td_nms *m;
 *     TD_TRY(td_nms_new(anchors, 91, &m));                      one per thread
 *     td_nms_opts opts = td_nms_defaults(anchors->kind);
 *     td_detection found[TD_NMS_TOTAL_MAX];
 *     TD_TRY(td_nms_run(m, &opts, deltas, logits, found, &n));   per image
 *     td_nms_free(m);
 *
 *                    SSD320                                   SSD300, SSDLite
 *   score            sigmoid of columns 1 ..                  softmax over all, columns 1 ..
 *   candidates       score > score_min                        the same, a class's best `per_class`
 *   suppressed       by a better box of its class, IoU > iou  SSD300: IoU not below iou
 *   per class        at most `per_class` survive              all that survive
 *   result           clipped to the image, empty boxes        the best `total`
 *                    dropped, the best `total`
 *   order            score falling; equal scores: lower class, then lower anchor (all)
 *
 * RetinaNet is as SSD320, but only the best 1000 candidates of each level count, and boxes are
 * clipped first and not dropped.
 *
 * Suppression compares boxes before they are clipped; SSDLite's and RetinaNet's are clipped first.
 * SSD300's reference returns its list in reverse, worst first; worst_first does that here.
 * A NaN in the deltas or in a logit drops that box, or that row.
 */
#ifndef TD_BOXES_NMS_H
#define TD_BOXES_NMS_H

#include "boxes/anchors.h"
#include "boxes/detector_rules.h"

#define TD_NMS_TOTAL_MAX 1000

typedef struct {
    td_rect box;
    float score;
    int label;  /* 1 .. K */
    int anchor; /* anchor index of the prediction */
} td_detection;

/** The values that the references use in evaluation. */
td_nms_opts td_nms_defaults(td_detector kind);

/** The working memory of one thread; it grows as necessary. */
typedef struct td_nms td_nms;

/** `anchors` is borrowed until td_nms_free; n_columns = classes + 1.  TD_EARG, TD_ENOMEM. */
TD_CHECKED td_status td_nms_new(const td_anchors *anchors, int n_columns, td_nms **out);
void td_nms_free(td_nms *m);

/**
 * deltas [A, 4] and logits [A, n_columns] of one image -> found [opts->total], *n of them.
 * TD_EARG for options out of range, TD_ENOMEM.
 */
TD_CHECKED td_status td_nms_run(td_nms *m, const td_nms_opts *opts, const float *deltas,
                                const float *logits, td_detection *found, int *n);

/**
 * Like td_nms_run, from boxes [A], in fractions of the image, and scores [A, n_columns] instead of
 * deltas and logits; column 0 is ignored.
 */
TD_CHECKED td_status td_nms_run_scores(td_nms *m, const td_nms_opts *opts, const td_rect *boxes,
                                       const float *scores, td_detection *found, int *n);

#endif
