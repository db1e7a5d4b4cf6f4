/*
 * tandem/detection.h -- options of detection, and COCO's twelve metrics
 */
#ifndef TD_DETECTION_H
#define TD_DETECTION_H

#include <stdbool.h>

#include "tandem/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of non-maximum suppression and of the evaluation of boxes. */
typedef struct {
    td_given given;
    double min_score;             /* minimum score; -1: the detector's default */
    double nms_iou;               /* IoU threshold of non-maximum suppression; -1: likewise */
    int max_per_class, max_boxes; /* limits per image; 0: likewise */
    bool box_areas;    /* small, medium, large by the area of the box, not of the outline */
    int sample_1_of_n; /* evaluate only every n-th image */
} td_boxes_opts;

TD_API const struct td_field *td_boxes_fields(void);

/** The options of non-maximum suppression only. */
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

/**
 * "AP", "AP50" ...; and the name in the TensorFlow program's log, "DetectionBoxes_Precision/mAP".
 */
TD_API const char *td_box_metric_name(td_box_metric metric);
TD_API const char *td_box_metric_log_name(td_box_metric metric);

#ifdef __cplusplus
}
#endif
#endif
