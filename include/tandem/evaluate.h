/*
 * tandem/evaluate.h -- evaluate weights on a data set
 */
#ifndef TD_EVALUATE_H
#define TD_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/amp.h"
#include "tandem/detection.h"
#include "tandem/device.h"
#include "tandem/input.h"
#include "tandem/model.h"
#include "tandem/report_opts.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Test-time augmentation of classifiers. */
typedef enum {
    TD_TTA_NONE,
    TD_TTA_HFLIP, /* mean logits of each image and its mirror image */
} td_tta;

typedef struct {
    td_model_opts model;
    td_input_opts input;
    td_amp_opts amp;
    int batch_size;
    const char
        *weights; /* weight file or checkpoint ("pretrained_weights", "resume" are aliases) */
    const char *classes;   /* file of the names of the outputs; NULL: those in the weight file */
    const char *label_map; /* classifiers: file that maps classes to outputs; NULL: none */
    bool labels_by_order;  /* class i of the data is class i of the network */
    const char *logits;    /* write raw outputs in input order */
    int topk;
    double label_smoothing;
    double threshold; /* multi-label: probability from which a class counts as predicted */
    td_tta tta;
    bool use_ema; /* use the averaged (EMA) weights of the file */
    int64_t seed;
    td_device_opts device;
    const char *require;
    td_boxes_opts boxes;     /* of a detector */
    const char *detections;  /* detectors: file for the detections, COCO results */
    const char *draw;        /* detectors: folder for images with boxes drawn on them; NULL: none */
    int64_t draw_limit;      /* number of images to draw; 0: all */
    double draw_min_score;   /* minimum score of drawn detections; -1: 0.3 */
    bool eval_training_data; /* evaluate the training split */
    const char *checkpoint_dir; /* td_evaluate_watch: the folder of a training */
    bool run_once;              /* evaluate only the current checkpoint */
    int poll_seconds;           /* seconds between checks for a new checkpoint */
    bool per_class;             /* count by class; with one label an image, confusion matrix */
    const char *confusion;      /* write the confusion matrix as CSV; with per_class */
    const char *log;
    int print_freq;        /* batches between two lines of progress */
    td_report_opts report; /* file NULL: evaluation.json in `workspace`, if that is set */
    int prof;              /* batches; -1: all */
    const char *workspace; /* folder of a relative report.file or evaluation.json; NULL: . */
    const char *model_dir; /* the same; its checkpoint is evaluated if no weights are given */
    const char *pipeline_config_path, *hparams_overrides; /* td_pipeline_options has read them */
    bool is_fresh; /* no weights are given: use random ones from `seed`, to measure speed */
    bool ema_too;  /* set by train --evaluate --use-ema: averages too (val_ema) */
} td_evaluate_opts;

TD_API const struct td_field *td_evaluate_fields(void);
TD_API void td_evaluate_defaults(td_evaluate_opts *opts);

/** Metrics of one class of a detector; -1: the data has no object of it. */
typedef struct {
    char name[64]; /* cut */
    int64_t category;
    int64_t n_ground_truths;
    double ap, ap50, ar100;
} td_class_boxes;

/** Scores of one class of a multi-label network; fractions, 0 where a quotient is undefined. */
typedef struct {
    int64_t n_images;    /* those that have the class */
    int64_t n_predicted; /* those for which it is predicted */
    int64_t n_right;     /* those of both */
    double ap, f1;
} td_label_scores;

typedef struct {
    int64_t n, n_top1, n_topk, n_bad; /* exact counts */
    double top1, topk, loss;          /* percent, percent, mean */
    double images_per_s, latency_ms;
    int topk_k;
    char arch[64]; /* the network's, or the graph file's name, cut */

    /* with ema_too: results of the averaged weights */
    bool has_ema;
    double ema_top1, ema_topk, ema_loss;

    /* multi-label; n_top1, n_topk, top1, topk, ema_top1 and ema_topk are then 0; fractions */
    bool is_multi_label;
    double map, micro_f1, macro_f1, threshold;
    double ema_map, ema_micro_f1;

    /* detectors; n_top1, n_topk and loss are then 0 */
    bool detects;
    double boxes[TD_BOX_METRICS];     /* 0 .. 1; -1: the data has no such object */
    double ema_boxes[TD_BOX_METRICS]; /* with ema_too */
    int64_t n_found;                  /* total number of detections */
    td_class_boxes *class_boxes;      /* with per_class: [n_class_boxes] */
    int n_class_boxes;

    /* with per_class; otherwise 0 and NULL */
    int n_classes;
    char **class_names;      /* [n_classes] */
    int64_t *confusion;      /* [n_classes, n_classes]: row's class predicted as column's */
    td_label_scores *labels; /* multi-label, in place of the matrix: [n_classes] */
    int rank;                /* this rank; all ranks have the same counts */
} td_evaluate_result;

/** Release the members that `per_class` adds; may be called after a failure, and twice. */
TD_API void td_evaluate_release(td_evaluate_result *r);

/**
 * Evaluate weights on a data set whose classes are matched to the network's outputs: by label_map,
 * in order with labels_by_order, by the outputs' names, or ILSVRC's folders and 1000 outputs by id.
 *   TD_ESHAPE   the numbers of classes differ and there is no mapping, or `classes` has a different
 *               number of names than the network has outputs
 *   TD_EFORMAT  the network does not have a class of the data
 */
TD_API TD_CHECKED td_status td_evaluate(const td_evaluate_opts *opts, td_evaluate_result *out);

/**
 * Evaluate the checkpoint in opts->checkpoint_dir and every later one, until the training has
 * finished all its epochs; `each` is called with every result. TD_EREQUIRED: the last result does
 * not satisfy `require`. TD_ESTOPPED: stopped by a signal.
 */
TD_API TD_CHECKED td_status td_evaluate_watch(const td_evaluate_opts *opts,
                                              td_status (*each)(void *ctx,
                                                                const td_evaluate_result *r),
                                              void *ctx);

#ifdef __cplusplus
}
#endif
#endif
