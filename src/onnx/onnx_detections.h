/*
 * onnx/onnx_detections.h -- a detector's post-processing as nodes of an ONNX model
 *
 *     td_onnx_of_graph(...)                      outputs codes [N, A, 4], logits [N, A, C + 1]
 *     td_onnx_add_detections(m, anchors, nms)    replaces them by the outputs below
 *
 *   nms NULL   boxes   f32 [N, A, 4]   ymin, xmin, ymax, xmax, relative to the image; not clipped
 *              scores  f32 [N, A, C]   column k is that of class k + 1
 *   otherwise  detection_boxes   f32 [N, K, 4]   as above; SSD320's are clipped to the image
 *              detection_scores  f32 [N, K]      decreasing
 *              detection_classes i64 [N, K]      1 .. C
 *              num_detections    i64 [N]         later rows are 0
 *
 * K is nms->total, or the number of all candidates if that is smaller.  The detections equal those
 * of boxes/nms.h, in the same order.
 */
#ifndef TD_ONNX_ONNX_DETECTIONS_H
#define TD_ONNX_ONNX_DETECTIONS_H

#include "boxes/nms.h"
#include "onnx_file/onnx.h"

/** Names of the outputs. */
#define TD_ONNX_BOXES             "boxes"
#define TD_ONNX_SCORES            "scores"
#define TD_ONNX_DETECTION_BOXES   "detection_boxes"
#define TD_ONNX_DETECTION_SCORES  "detection_scores"
#define TD_ONNX_DETECTION_CLASSES "detection_classes"
#define TD_ONNX_NUM_DETECTIONS    "num_detections"

/**
 * Append the nodes; failures are recorded in m->st, too.  nms->worst_first is ignored.
 * TD_EUNSUPPORTED: an overlap limit that ONNX's NonMaxSuppression cannot express.
 */
td_status td_onnx_add_detections(td_onnx *m, const td_anchors *anchors,
                                 const td_nms_opts *nms) TD_CHECKED;

#endif
