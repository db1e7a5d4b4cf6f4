/*
 * tandem/detection.h -- a detector's boxes: which are kept, and COCO's twelve metrics
 */
#ifndef TD_DETECTION_H
#define TD_DETECTION_H

#include <stdbool.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** From a detector's raw outputs to boxes, and how they are evaluated. */
typedef struct {
    double min_score;             /* a score has to be above; -1: the detector's own */
    double nms_iou;               /* overlap that suppresses; -1: likewise */
    int max_per_class, max_boxes; /* of an image; 0: likewise */
    bool box_areas;               /* small, medium, large by the box, not by the outline */
    int sample_1_of_n;            /* evaluate every n-th image only */
} td_boxes_opts;

TD_API const struct td_field *td_boxes_fields(void);

/** Those of them that say which boxes are found, without how they are evaluated. */
TD_API const struct td_field *td_box_limits_fields(void);

/** The twelve results of COCO's metric, in the order of its lines. */
typedef enum {
    TD_BOX_AP,
    TD_BOX_AP50,
    TD_BOX_AP75,
    TD_BOX_APS,
    TD_BOX_APM,
    TD_BOX_APL,
    TD_BOX_AR1,
    TD_BOX_AR10,
    TD_BOX_AR100,
    TD_BOX_ARS,
    TD_BOX_ARM,
    TD_BOX_ARL,
    TD_BOX_METRICS
} td_box_metric;

/** The twelve lines that COCO's own program prints (td_text_free). */
TD_API TD_CHECKED td_status td_box_metrics_text(const double boxes[TD_BOX_METRICS], char **text);

/** "AP", "AP50" ...; and what the TensorFlow program logs, "DetectionBoxes_Precision/mAP". */
TD_API const char *td_box_metric_name(int metric);
TD_API const char *td_box_metric_log_name(int metric);

#ifdef __cplusplus
}
#endif
#endif
