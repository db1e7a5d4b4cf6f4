/*
 * inference/detect_data.h -- a detector's data sets and scores, shared by its jobs
 */
#ifndef TD_INFERENCE_DETECT_DATA_H
#define TD_INFERENCE_DETECT_DATA_H

#include "tandem/dataset.h"
#include "tandem/detection.h"
#include "tandem/input.h"
#include "tandem/loader.h"
#include "tandem/model.h"

/** td_open_split with boxes, using the annotations that `in` names.  n_images: synthetic only. */
td_status td_boxes_open(const td_input_opts *in, const char *split, const td_model_opts *model,
                        int64_t n_images, td_dataset **out) TD_CHECKED;

td_loader_opts td_boxes_loader_opts(const td_input_opts *in, const td_model_opts *model, int batch);

/**
 * Number the classes as in `names`, if the data set has names and does not keep its category ids;
 * otherwise check that it has at most n classes.
 */
td_status td_boxes_use_classes(td_dataset *ds, int n, const char *const *names,
                               bool allow_subset) TD_CHECKED;

/** Before a training: warn of classes without any box.  TD_ENOMEM. */
td_status td_boxes_warn_unseen(const td_dataset *ds) TD_CHECKED;

/** Set *out [td_dataset_classes] to the category ids of classes 1, 2, ... (td_free). */
td_status td_boxes_categories(const td_dataset *ds, int64_t **out) TD_CHECKED;

/** The same from a weight file's JSON array; NULL: none.  TD_EFORMAT names `path`. */
td_status td_boxes_categories_from_json(const char *json, const char *path, int *n,
                                        int64_t **out) TD_CHECKED;

/** An option that only one kind of network supports; `name` is for messages: "--draw". */
typedef struct {
    bool needs_detector; /* otherwise it needs a classifier */
    bool is_set;
    const char *name;
} td_network_option;

/** TD_EUSAGE: an option is set that requires the other kind; `network`: its name or weight file. */
td_status td_network_options_check(const td_network_option *rows, size_t n, bool is_detector,
                                   const char *network) TD_CHECKED;

/** --threshold is for networks with several labels for an image.  TD_EUSAGE: it is of another. */
td_status td_network_check_threshold(bool is_given, bool is_multi_label,
                                     const char *network) TD_CHECKED;

/** The first option of td_box_limits_fields that is set, "--max-boxes", in `room`; NULL: none. */
#define TD_OPTION_NAME 64
const char *td_box_limit_set(const td_boxes_opts *boxes, char room[TD_OPTION_NAME]);

/** TD_EUSAGE: an option for detectors was set, but `network` is a classifier. */
td_status td_boxes_refuse(const td_model_opts *model, const td_input_opts *in,
                          const td_boxes_opts *boxes, const char *network) TD_CHECKED;

/** TD_EUSAGE: an option for images was set that the detector `network` does not read. */
td_status td_boxes_check_input(const td_input_opts *in, const char *network) TD_CHECKED;

/**
 * Check a rule, "AP50>=0.9", on COCO's twelve metrics.  TD_EUSAGE: malformed; TD_EREQUIRED: not
 * met.
 */
td_status td_boxes_require_check(const char *rule) TD_CHECKED;
td_status td_boxes_require(const char *rule, const double boxes[TD_BOX_METRICS]) TD_CHECKED;

#endif
