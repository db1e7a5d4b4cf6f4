/*
 * detect_opts.c -- options that all jobs of a detector share
 */
#include <stdio.h>
#include <string.h>

#include "boxes/nms.h"
#include "coco/coco_metrics.h"
#include "inference/detect_data.h"
#include "options/field.h"
#include "options/rows.h"
#include "pass/amp.h"
#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/inference.h"
#include "tandem/input.h"
#include "tandem/model.h"

/* clang-format off */
/* options of post-processing */
#define LIMIT_ROWS \
    TD_REAL   (td_boxes_opts, min_score, -1, -1, 1, \
               "minimum score of a detection; -1: 0.3 for detect and serve, otherwise 1e-8 " \
               "for ssd320, 0.05 for ssd300 and retinanet_resnet50_fpn, 0.001 for " \
               "ssdlite320_mobilenet_v3_large"), \
    TD_REAL   (td_boxes_opts, nms_iou, -1, -1, 1, \
               "IoU threshold of non-maximum suppression; -1: 0.6 for ssd320, 0.5 for ssd300 " \
               "and retinanet_resnet50_fpn, 0.55 for ssdlite320_mobilenet_v3_large"), \
    TD_INT    (td_boxes_opts, max_per_class, 0, 0, TD_NMS_TOTAL_MAX, \
               "maximum number of detections per class and image; 0: 100 for ssd320, 200 for " \
               "ssd300, 300 for ssdlite320_mobilenet_v3_large, 1000 for " \
               "retinanet_resnet50_fpn"), \
    TD_INT    (td_boxes_opts, max_boxes, 0, 0, TD_NMS_TOTAL_MAX, \
               "maximum number of detections per image; 0: 100 for ssd320, 200 for ssd300, 300 " \
               "for ssdlite320_mobilenet_v3_large and retinanet_resnet50_fpn")

static const td_field limits_fields[] = {
    LIMIT_ROWS,
    TD_END,
};
static const td_field boxes_fields[] = {
    TD_GIVEN  (td_boxes_opts, given),
    TD_TITLE_SECONDARY_RENAMED("Detections", "boxes_that_are_found"),
    LIMIT_ROWS,
    TD_BOOL   (td_boxes_opts, box_areas, false,
               "classify objects as small, medium or large by the area of the box, not of the "
               "segmentation"),
    TD_INT_AS (td_boxes_opts, sample_1_of_n, "sample_1_of_n_eval_examples", "sample-1-of-n", 1, 1,
               1000000000, NULL, "evaluate only every N-th image"),
    TD_END,
};

static const td_field detect_fields[] = {
    TD_TEXT_AS(td_detect_opts, weights, "weights",
               "w|pretrained-weights|pretrained-from-file|resume", NULL, "FILE",
               "weight file or checkpoint of a detector"),
    TD_BOOL_AS(td_detect_opts, use_ema, "use-ema", "ema", false,
               "use the averaged (EMA) weights of the file"),
    TD_BOOL_AS(td_detect_opts, stored_orientation, "ignore_orientation", NULL, false,
               "ignore the EXIF orientation of images"),
    TD_CLASSES_ROW(td_detect_opts, "those in the weights"),
    TD_TEXT   (td_detect_opts, only, NULL, "LIST",
               "show only these classes, by name or category id: 'cat,dog'"),
    TD_TEXT   (td_detect_opts, draw, NULL, "FOLDER",
               "write the images with boxes and class names drawn on them to this folder"),
    TD_INT_AS (td_detect_opts, batch_size, "batch_size", "b", 8, 1, 4096, NULL,
               "largest batch size"),
    TD_INT_AS (td_detect_opts, workers, "workers", "j", 0, 0, 1024, NULL,
               "number of decoding threads; 0: automatic"),
    TD_DEVICE_ROWS(td_detect_opts),
    TD_LOG_ROW(td_detect_opts),
    TD_END,
};
/* clang-format on */

const td_field *td_detect_fields(void)
{
    return detect_fields;
}

void td_detect_defaults(td_detect_opts *opts)
{
    *opts = (td_detect_opts){ 0 };
    td_model_defaults(&opts->model);
    td_amp_defaults(&opts->amp);
    td_fields_default(boxes_fields, &opts->boxes);
    td_fields_default(detect_fields, opts);
}

const td_field *td_boxes_fields(void)
{
    return boxes_fields;
}

const td_field *td_box_limits_fields(void)
{
    return limits_fields;
}

/* Options that only detectors read, and options that they do not read. */
static const char *const of_boxes[] = { "annotations", "val_annotations", "label_ids", "strict",
                                        "backbone",    "bn_decay",        NULL };
/* clang-format off */
static const char *const of_classes[] = {
    "interpolation", "train_interpolation", "crop",         "antialias",      "no-antialias",
    "normalization", "val_split",           "augmentation", "auto_augment",   "aa",
    "ra_ops",        "ra_magnitude",        "augment_bins", "random_erase",   "jitter_strength",
    "decode",        "exact_decode",        "label_offset", "list_delimiter", "list_outside",
    NULL
};
/* clang-format on */

static bool is_one_of(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names;
}

static td_status refuse(const char *name, bool needs_detector, const char *network)
{
    return td_error(TD_EUSAGE, "%s requires a %s, '%s' is a %s", name,
                    needs_detector ? "detector" : "classifier", network,
                    needs_detector ? "classifier" : "detector");
}

/* The name of an option on the command line: "--max-boxes" for max_boxes. */
static const char *option_name(const td_field *f, char room[TD_OPTION_NAME])
{
    snprintf(room, TD_OPTION_NAME, "--%s", f->name);
    for (char *p = room; *p; p++)
        *p = *p == '_' ? '-' : *p;
    return room;
}

td_status td_network_options_check(const td_network_option *rows, size_t n, bool is_detector,
                                   const char *network)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].is_set && rows[i].needs_detector != is_detector)
            return refuse(rows[i].name, rows[i].needs_detector, network);
    return TD_OK;
}

const char *td_box_limit_set(const td_boxes_opts *boxes, char room[TD_OPTION_NAME])
{
    for (const td_field *f = limits_fields; f->kind != TD_KIND_END; f++)
        if (!td_field_is_default(f, boxes))
            return option_name(f, room);
    return NULL;
}

td_status td_boxes_refuse(const td_model_opts *model, const td_input_opts *in,
                          const td_boxes_opts *boxes, const char *network)
{
    char name[TD_OPTION_NAME];
    const td_field_group groups[] = { { NULL, td_model_fields(), (void *)(uintptr_t)model },
                                      { NULL, td_input_fields(), (void *)(uintptr_t)in },
                                      { NULL, boxes_fields, (void *)(uintptr_t)boxes } };
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const td_field *f = groups[i].fields; groups[i].base && f->kind != TD_KIND_END; f++)
            if ((i == 2 || is_one_of(of_boxes, f->name)) &&
                td_field_is_given(groups[i].fields, f, groups[i].base))
                return refuse(option_name(f, name), true, network);
    return TD_OK;
}

td_status td_boxes_check_input(const td_input_opts *in, const char *network)
{
    char name[TD_OPTION_NAME];
    for (const td_field *f = td_input_fields(); f->kind != TD_KIND_END; f++)
        if (is_one_of(of_classes, f->name) && td_field_is_given(td_input_fields(), f, in))
            return refuse(option_name(f, name), false, network);
    return TD_OK;
}

td_status td_box_metrics_text(const double boxes[TD_BOX_METRICS], char **text)
{
    td_text out = { 0 };
    td_coco_metrics_print(boxes, &out);
    return td_text_take(&out, TD_OK, text);
}

const char *td_box_metric_name(td_box_metric metric)
{
    return td_coco_key((int)metric);
}

const char *td_box_metric_log_name(td_box_metric metric)
{
    return td_coco_log_name((int)metric);
}

td_status td_network_check_threshold(bool is_given, bool is_multi_label, const char *network)
{
    if (!is_given || is_multi_label)
        return TD_OK;
    return td_error(TD_EUSAGE, "--threshold requires a multi-label network: '%s' is none", network);
}
