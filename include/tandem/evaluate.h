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

typedef struct {
    td_model_opts model;
    td_input_opts input;
    td_amp_opts amp;
    int batch_size;
    const char
        *weights; /* weight file or checkpoint ("pretrained_weights", "resume" are aliases) */
    const char *classes;   /* file of the outputs' names; NULL: the weight file's */
    const char *label_map; /* of a classifier: file that says which output a class is; NULL: none */
    bool labels_by_order;  /* class i of the data is class i of the network */
    const char *logits;    /* write raw outputs in input order */
    int topk;
    double label_smoothing;
    bool use_ema; /* the file's averaged weights */
    int64_t seed;
    td_device_opts device;
    const char *require;
    td_boxes_opts boxes;     /* of a detector */
    const char *detections;  /* of a detector: what it found goes into this file, COCO's results */
    const char *draw;        /* of a detector: images with boxes drawn on them go here; NULL */
    int64_t draw_limit;      /* of the first so many; 0: of all */
    double draw_min_score;   /* what was found with a score above; -1: 0.3 */
    bool eval_training_data; /* evaluate the training split */
    const char *checkpoint_dir; /* td_evaluate_watch: the folder of a training */
    bool run_once;              /* its checkpoint as it is now, not every new one */
    int poll_seconds;           /* between two looks for another */
    bool per_class;             /* count by class, and what was taken for what */
    const char *confusion;      /* that table as CSV goes into this file; with per_class */
    const char *log;
    int print_freq;        /* batches between two lines of progress */
    td_report_opts report; /* file NULL: evaluation.json in `workspace`, none without that */
    int prof;              /* batches; -1: all */
    const char *workspace; /* where a relative report.file is, or evaluation.json; NULL: here */
    const char
        *model_dir; /* the same, and the checkpoint there is evaluated where no other is named */
    const char *pipeline_config_path, *hparams_overrides; /* td_pipeline_options has read them */
    bool is_fresh; /* no weights are named: fresh ones, drawn from `seed`, for speeds */
    bool ema_too;  /* made by train --evaluate --use-ema: the averages after the weights, val_ema */
} td_evaluate_opts;

TD_API const struct td_field *td_evaluate_fields(void);
TD_API void td_evaluate_defaults(td_evaluate_opts *opts);

/** How well a detector finds one class; -1: there is none of it. */
typedef struct {
    char name[64]; /* cut */
    int64_t category;
    int64_t n_ground_truths;
    double ap, ap50, ar100;
} td_class_boxes;

typedef struct {
    int64_t n, n_top1, n_topk, n_bad; /* exact counts */
    double top1, topk, loss;          /* percent, percent, mean */
    double images_per_s, latency_ms;
    int topk_k;
    char arch[64]; /* the network's, or the graph file's name, cut */

    /* with ema_too, of the averages */
    bool has_ema;
    double ema_top1, ema_topk, ema_loss;

    /* of a detector, and then n_top1, n_topk and loss are 0 */
    bool detects;
    double boxes[TD_BOX_METRICS];     /* 0 .. 1; -1: nothing to find */
    double ema_boxes[TD_BOX_METRICS]; /* with ema_too */
    int64_t n_found;                  /* boxes in all */
    td_class_boxes *class_boxes;      /* with per_class: [n_class_boxes] */
    int n_class_boxes;

    /* with per_class, else 0 and NULL */
    int n_classes;
    char **class_names; /* [n_classes] */
    int64_t *confusion; /* [n_classes, n_classes]: images of a row's class taken for a column's */
    int rank;           /* of the ranks, which all have the same counts */
} td_evaluate_result;

/** Release what `per_class` adds; fine after a failure, and twice. */
TD_API void td_evaluate_release(td_evaluate_result *r);

/**
 * Evaluate weights on a data set whose classes are matched to the network's outputs: by label_map,
 * in order with labels_by_order, by the outputs' names, or ILSVRC's folders and 1000 outputs by id.
 *   TD_ESHAPE   the numbers of classes differ and nothing says which is which, or `classes` has
 *               another number of names than the network has outputs
 *   TD_EFORMAT  a class of the data that is none of the network's
 */
TD_API TD_CHECKED td_status td_evaluate(const td_evaluate_opts *opts, td_evaluate_result *out);

/**
 * Evaluate the checkpoint in opts->checkpoint_dir, and then every one that takes its place, until
 * one that has done all epochs its training planned; `each` sees every result.  TD_EREQUIRED: the
 * last is below `require`.  TD_ESTOPPED: a signal came.
 */
TD_API TD_CHECKED td_status td_evaluate_watch(const td_evaluate_opts *opts,
                                              td_status (*each)(void *ctx,
                                                                const td_evaluate_result *r),
                                              void *ctx);

#ifdef __cplusplus
}
#endif
#endif
