/*
 * detector_rules.c -- the table of detectors
 *
 *   SSD320    TensorFlow 1's object detection: ssd_resnet50_v1_fpn at 320 pixels
 *   SSD300    NVIDIA's DeepLearningExamples, PyTorch/Detection/SSD
 *   SSDLite   torchvision's ssdlite320_mobilenet_v3_large
 *   RetinaNet torchvision's retinanet_resnet50_fpn
 */
#include "boxes/detector_rules.h"

/* clang-format off */
static const td_detector_rules rows[] = {
    [TD_DETECTOR_SSD320] = {
        .name = "ssd320",
        .image_size = 320,
        .coder = TD_CODER_TF,
        .is_row_first = true,
        .centre = 10,
        .scale = 5,
        .equal_is_enough = true,
        .first_claims = true,
        .ground_truths = TD_GROUND_TRUTHS_MAX,
        .clip = TD_CLIP_AFTER,
        .nms = { .score_min = 1e-8, .iou = 0.6, .per_class = 100, .total = 100 },
    },
    [TD_DETECTOR_SSD300] = {
        .name = "ssd300",
        .image_size = 300,
        .coder = TD_CODER_NVIDIA,
        .centre = 0.1F,
        .scale = 0.2F,
        .has_areas = true,
        .skips_empty = true,
        .is_softmax = true,
        .equal_suppresses = true,
        .limits_candidates = true,
        .nms = { .score_min = 0.05, .iou = 0.5, .per_class = 200, .total = 200 },
    },
    [TD_DETECTOR_SSDLITE] = {
        .name = "ssdlite320_mobilenet_v3_large",
        .image_size = 320,
        .in_pixels = true,
        .coder = TD_CODER_TORCH,
        .centre = 10,
        .scale = 5,
        .equal_is_enough = true,
        .has_areas = true,
        .skips_empty = true,
        .drops_crowds = true,
        .is_softmax = true,
        .limits_candidates = true,
        .clip = TD_CLIP_BEFORE,
        .nms = { .score_min = 0.001, .iou = 0.55, .per_class = 300, .total = 300 },
    },
    [TD_DETECTOR_RETINANET] = {
        .name = "retinanet_resnet50_fpn",
        .image_size = 800,
        .in_pixels = true,
        .coder = TD_CODER_TORCH,
        .centre = 1,
        .scale = 1,
        .equal_is_enough = true,
        .ignored_from = 0.4F,
        .claims_ties = true,
        .has_areas = true,
        .skips_empty = true,
        .drops_crowds = true,
        .level_candidates = 1000,
        .clip = TD_CLIP_BEFORE,
        .nms = { .score_min = 0.05, .iou = 0.5, .per_class = 1000, .total = 300 },
    },
};
/* clang-format on */

const td_detector_rules *td_detector_rules_of(td_detector kind)
{
    const unsigned n = sizeof rows / sizeof *rows;
    return &rows[(unsigned)kind < n && rows[kind].name ? kind : TD_DETECTOR_SSD320];
}
