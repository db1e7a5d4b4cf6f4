/*
 * onnx/onnx_nms.h -- ONNX's operator NonMaxSuppression, for the evaluation of nodes (onnx_eval.h)
 */
#ifndef TD_ONNX_ONNX_NMS_H
#define TD_ONNX_ONNX_NMS_H

#include "onnx/onnx_eval.h"

typedef struct {
    int64_t most;         /* maximum boxes per class and image */
    float iou, score_min; /* a larger overlap suppresses; scores must be larger */
} td_onnx_nms_limits;

typedef struct {
    int64_t *at; /* [n, 3]: image, class, box; call td_free, also after a failure */
    size_t n, cap;
} td_onnx_selection;

/** boxes f32 [N, A, 4], two corners each; scores f32 [N, C, A].  TD_ENOMEM. */
td_status td_onnx_nms(const td_onnx_array *boxes, const td_onnx_array *scores,
                      const td_onnx_nms_limits *limits, td_onnx_selection *s) TD_CHECKED;

#endif
