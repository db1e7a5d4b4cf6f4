/*
 * boxes/detector_rules.h -- what distinguishes the detectors: a row of a table for each
 *
 *     const td_detector_rules *r = td_detector_rules_of(TD_DETECTOR_SSD300);
 *     r->is_softmax
 *
 * anchors.h, decode.h, targets.h and nms.h describe what the members mean.
 */
#ifndef TD_BOXES_DETECTOR_RULES_H
#define TD_BOXES_DETECTOR_RULES_H

#include <stdbool.h>

#include "tandem/types.h"

#define TD_GROUND_TRUTHS_MAX 100 /* per image, for SSD320 */

/** The arithmetic of box deltas (decode.h). */
typedef enum { TD_CODER_TF, TD_CODER_NVIDIA, TD_CODER_TORCH } td_box_coder;

/** When boxes are clipped to the image: never, after suppression (empty ones are dropped), or
    before it. */
typedef enum { TD_CLIP_NEVER, TD_CLIP_AFTER, TD_CLIP_BEFORE } td_box_clip;

typedef struct {
    double score_min; /* exclusive */
    double iou;
    int per_class; /* 1 .. TD_NMS_TOTAL_MAX */
    int total;     /* 1 .. TD_NMS_TOTAL_MAX */
    bool worst_first;
} td_nms_opts;

typedef struct {
    const char *name;
    int image_size; /* by default */

    /* boxes */
    bool in_pixels; /* anchors are in pixels of the network's image, not in fractions */
    td_box_coder coder;
    bool is_row_first;   /* deltas y, x, h, w; otherwise x, y, w, h */
    float centre, scale; /* factors of the deltas of centre and size; TD_CODER_NVIDIA: inverse */

    /* matching */
    bool equal_is_enough; /* IoU of exactly the limit */
    bool first_claims;    /* the lower of two ground truths gets their anchor, or the later */
    float ignored_from;   /* IoU from which an anchor without an object is no background; 0: none */
    bool claims_ties;     /* a ground truth claims all anchors with the largest overlap, and each
                              of them gets its own best one */
    bool has_areas;       /* ground truths without height or width are skipped */
    int ground_truths;    /* used, of an image; 0: all */
    bool skips_empty;     /* training leaves out images without objects */
    bool drops_crowds;    /* training leaves out boxes of crowds, which are objects otherwise */

    /* scores and suppression */
    bool is_softmax;        /* scores by softmax, otherwise by sigmoid */
    bool equal_suppresses;  /* IoU of exactly the limit */
    int level_candidates;   /* the best of each level, of all classes; 0: all */
    bool limits_candidates; /* per_class counts candidates, not detections */
    td_box_clip clip;
    td_nms_opts nms; /* in evaluation */
} td_detector_rules;

/** The rules of a detector; those of SSD320 for TD_DETECTOR_NONE. */
const td_detector_rules *td_detector_rules_of(td_detector kind);

#endif
