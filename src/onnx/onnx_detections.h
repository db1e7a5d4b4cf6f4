/*
 * onnx/onnx_detections.h -- a detector's post-processing as nodes of an ONNX model
 *
 *     td_onnx_of_graph(...)                      outputs deltas [N, A, 4], logits [N, A, C + 1]
 *     td_onnx_add_detections(m, anchors, nms)    outputs as below instead
 *
 *   nms NULL   boxes   f32 [N, A, 4]   ymin, xmin, ymax, xmax, shares of the image; not clipped
 *              scores  f32 [N, A, C]   column k is that of class k + 1
 *   otherwise  detection_boxes   f32 [N, K, 4]   as above, SSD320's clipped to the image
 *              detection_scores  f32 [N, K]      falling
 *              detection_classes i64 [N, K]      1 .. C
 *              num_detections    i64 [N]         the following rows are 0
 *
 * K is nms->total, or all that there are if those are fewer.  The detections are those of
 * boxes/nms.h: the same ones, in the same order.
 */
#ifndef TD_ONNX_ONNX_DETECTIONS_H
#define TD_ONNX_ONNX_DETECTIONS_H

#include "boxes/nms.h"
#include "onnx/onnx.h"

/** Names of the results. */
#define TD_ONNX_BOXES             "boxes"
#define TD_ONNX_SCORES            "scores"
#define TD_ONNX_DETECTION_BOXES   "detection_boxes"
#define TD_ONNX_DETECTION_SCORES  "detection_scores"
#define TD_ONNX_DETECTION_CLASSES "detection_classes"
#define TD_ONNX_NUM_DETECTIONS    "num_detections"

/**
 * Append the nodes; failures stick to m, as of all that is added.  nms->worst_first is not for
 * files.  TD_EUNSUPPORTED: an overlap that ONNX's NonMaxSuppression cannot have.
 */
td_status td_onnx_add_detections(td_onnx *m, const td_anchors *anchors,
                                 const td_nms_opts *nms) TD_CHECKED;

#endif
