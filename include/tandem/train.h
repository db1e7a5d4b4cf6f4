/*
 * tandem/train.h -- the jobs: train, evaluate, classify, init, convert, benchmark, inspect
 *
 * A job is an options struct, a function that does it, and a result.  Every struct has a field
 * table (options/field.h) that holds names, defaults, ranges and help; the command line is nothing
 * but these tables.  Jobs never print: progress goes to the log, results to the result struct,
 * machine-readable records to the report file.
 *
 *     td_train_opts o;
 *     td_train_defaults(&o);
 *     o.data = "pictures";  o.model.arch = "resnet18";  o.epochs = 5;
 *     td_train_result r;
 *     TD_TRY(td_train(&o, &r));
 */
#ifndef TD_TRAIN_H
#define TD_TRAIN_H

#include "tandem/model.h"
#include "tandem/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where samples come from, shared by train, evaluate and benchmark. */
typedef struct {
    const char *data;  /* folder or .safetensors file */
    int data_backend;  /* td_data_backend */
    int interpolation; /* td_interpolation */
    int crop;          /* 0: by back end, else td_crop_rules + 1 */
    bool antialias, no_antialias;
    int normalization; /* td_normalization */
    int augmentation;  /* of training: 0 none, 1 autoaugment */
    int workers;       /* decoding threads; 0: chosen */
    int prefetch;      /* batches ahead */
    double max_bad;    /* share of the data set that may be undecodable */
    bool ignore_orientation;
    int decode;        /* of training pictures: 0 "exact", 1 "fast" */
    bool exact_decode; /* the same as decode 0 */

    /* detectors */
    const char *annotations;     /* COCO instances; NULL: where data sets have them */
    const char *val_annotations; /* of validation while training; NULL: the same */
    int label_ids;               /* 0 dense: categories in order of id, 1 .. K; 1 keep: the id */
    bool strict;                 /* a bad annotation is an error, not left out */
    bool color_jitter;           /* of training pictures; SSD300 has its own anyway */
} td_input_opts;

TD_API const struct td_field *td_input_fields(void);

/** From a detector's raw outputs to boxes, and how they are judged. */
typedef struct {
    double min_score;             /* a score has to be above; -1: the detector's own */
    double nms_iou;               /* overlap that suppresses; -1: likewise */
    int max_per_class, max_boxes; /* of a picture; 0: likewise */
    bool box_areas;               /* small, medium, large by the box, not by the outline */
    int sample_1_of_n;            /* judge every n-th picture only */
} td_boxes_opts;

TD_API const struct td_field *td_boxes_fields(void);

/** Those of them that say which boxes are found, without how they are judged. */
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

/**
 * Recipes by name, and options of the reference programs that stand for others of td_train_opts.
 * td_train_preset and td_train_settle turn them into those; the job itself reads none of them.
 */
typedef struct {
    const char *preset;       /* "resnet50/90", "resnet50/DGXA100/AMP/90"; NULL: none */
    const char *cfg_file;     /* table of recipes, YAML; NULL: the built-in one */
    const char *platform;     /* "DGXA100" */
    const char *mode;         /* "convergence", ..., or one of TensorFlow's main */
    double lr_init;           /* learning rate for 256 pictures; -1: not given */
    int num_iter, run_iter;   /* epochs or batches, in all and of this run; -1: not given */
    int iter_unit;            /* 0 epoch, 1 batch */
    int warmup_steps;         /* iterations that a benchmark leaves out */
    int benchmark_iterations; /* that a benchmark mode measures; -1: num_iter */
    bool cosine_lr;           /* the same as lr_schedule cosine */
    const char *to_predict;   /* picture for mode predict */
    const char *model_dir;    /* the workspace; of evaluation also where the checkpoint is */
    const char *pipeline_config_path;           /* TensorFlow's configuration of a detector */
    const char *hparams_overrides;              /* "name=value,...": other values of its fields */
    const char *named_workspace, *named_report; /* of the command's line and files; NULL: neither */
    char name[300];          /* made by td_train_preset: what was chosen, or "" */
    double rule_lr;          /* made by td_train_preset: by the rule of thumb, or 0 */
    int64_t preset_steps;    /* made by it: of a detector's configuration, or 0 */
    int64_t preset_lr_steps; /* likewise: of its learning rate */
    int preset_warmup;       /* likewise */
    bool keeps_report;       /* made by it: the recipe saves no checkpoints, but reports */
} td_launch_opts;

TD_API const struct td_field *td_launch_fields(void);

typedef struct {
    td_model_opts model;
    td_input_opts input;
    td_amp_opts amp;
    td_launch_opts launch;
    td_boxes_opts boxes; /* of a detector's validation */
    int batch_size;
    int eval_batch_size;      /* of validation; 0: batch_size */
    int optimizer_batch_size; /* -1: batch_size */
    int epochs, run_epochs;
    int64_t num_train_steps; /* optimiser steps planned in all, instead of epochs; -1: epochs */
    int64_t lr_total_steps;  /* ssd320: steps that its curve spans; -1: the whole training */
    int eval_count;          /* validations, spread evenly; 0: after every epoch */
    const char *evaluation;  /* "21,31,37": after these epochs only; NULL: as eval_count says */
    int64_t run_iters;       /* optimiser steps of this run; -1: no limit */
    int early_stopping_patience;
    double lr, end_lr;
    int lr_schedule; /* 0 step, 1 linear, 2 cosine, 3 exponential */
    int lr_rule; /* 0 pytorch: of the epoch; 1 tf: of the step, lr per 256 pictures; 2 ssd320: of
                        the step; 3 ssd300: of the step, lr per 32 pictures */
    double warmup_lr;      /* ssd320: where the warm-up begins; -1: 0.43332 of lr */
    const char *multistep; /* ssd300: "43,54", epochs from which on lr is a tenth of before */
    double lr_decay;       /* exponential: factor; 0: what makes 0.001 of the whole */
    int lr_decay_epochs;
    int warmup; /* epochs; of the detectors' rules steps, -1: the recipe's share of all */
    double label_smoothing, mixup;
    int mixup_mode;         /* 0 batch: one coefficient; 1 sample: one each, reversed partners */
    const char *mixup_file; /* coefficients and partners, for tests; NULL: drawn */
    int optimizer;          /* 0 sgd, 1 rmsprop */
    double rmsprop_alpha, rmsprop_eps;
    double use_ema;                  /* decay of averaged weights; -1: none */
    int shuffle;                     /* 0 permutation, 1 buffer */
    int sampler;                     /* 0 dealt, 1 padded: shares of the ranks */
    const char *image_size_schedule; /* "0:128,30:160": sizes of training by epoch */
    double momentum, weight_decay;
    bool bn_weight_decay, nesterov;
    bool reproducible;  /* of several ranks: batch by batch, the same bits on any number of them */
    const char *freeze; /* patterns of weights that are not trained, "conv1*,layer1.*" */
    bool freeze_bn;     /* and norms among them keep and use their running statistics */
    int decay_rule;     /* 0 code: names with "bn" are not decayed; 1 readme: no norm is */
    bool l2_loss;       /* report the decay's part of the loss */
    int print_freq;
    const char *resume;             /* checkpoint to go on from */
    const char *pretrained_weights; /* weights to begin with */
    bool fp16;                      /* the same as amp.precision "fp16" */
    double static_loss_scale;       /* fixed, or where dynamic scaling starts; -1: chosen */
    bool no_dynamic_loss_scale;     /* td_train_settle makes a static one of it, or 1 */
    bool dynamic_loss_scale;        /* also with `static_loss_scale` or without fp16 */
    int loss_scaler;             /* 0 auto, 1 tf, 2 pytorch, 3 apex, 4 nvidia; 1..4 are dynamic */
    int64_t loss_scale_interval; /* good steps that double the scale; 0: the scaler's own */
    int64_t max_skips;           /* skipped steps in a row that end the run; 0: no limit */
    int64_t memory_limit;        /* bytes of the process, at the price of time; 0: none */
    bool pretrained;             /* download weights: never done */
    int jit;                     /* 0 no, 1 script: accepted, every graph is compiled */
    const char *gpu_affinity;    /* processors of a rank, by name; of one rank nothing */
    const char *trt, *fused_se;  /* accepted, the passes decide */
    bool use_xla;                /* accepted, every graph is fused and compiled */
    int prof;                    /* iterations per loop, and a profile; -1: all, and none */
    bool json;                   /* the profile as JSON, not as text */
    int64_t seed;                /* -1: from the clock, and said */
    int gather_checkpoints;
    const char *raport_file; /* NULL: experiment_raport.json, or with no_checkpoints none */
    bool evaluate, training_only, no_checkpoints;
    const char *checkpoint_filename;
    const char *workspace; /* NULL: the folder of `resume`, or a new one, runs/ARCH-N */
    bool overwrite;        /* another run's files in the workspace may be replaced */
    int memory_format;     /* 0 nchw, 1 nhwc: accepted, the layout pass decides */
    int topk;
    const char *final_weights; /* written after the last step */
    bool final_state;          /* momentum buffers too */
    const char *train_logits;  /* logits of the run's first step */
    const char *amp_stats;     /* what tensors hold, a JSON line for every observed step */
    int64_t amp_stats_every;   /* steps from one observed step to the next; the first is one */
    const char *trace;         /* the last steps' kernels, for a viewer */
    int64_t checkpoint_every;  /* also save every so many steps; 0: at epoch ends only */
    const char *device;        /* "cpu" or "ref" */
    int threads;
    int tune;               /* td_tune_mode */
    const char *tune_cache; /* NULL: the default place */
    const char *skip_passes, *dump_after;
    const char *dump_dir;
    const char *require; /* "top1>=95" */
    const char *log;
    int log_format;          /* 0 plain, 1 dll: the reference's lines */
    bool raport_compat;      /* the reference's own arithmetic in the report */
    int raport_names;        /* 0 pytorch, 1 tf: its names of the results too */
    int raport_warmup;       /* steps whose times TensorFlow's names leave out; -1: 20 */
    const char *tensorboard; /* folder of event files */
    const char *csv, *csv_iterations;
} td_train_opts;

TD_API const struct td_field *td_train_fields(void);
TD_API void td_train_defaults(td_train_opts *opts);

/** opts->amp, with --fp16 taken in. */
TD_API td_amp_opts td_train_amp(const td_train_opts *opts);

/* The tables of `opts` with their titles, for td_options_...: room for 7. */
struct td_field_group;
TD_API void td_train_groups(td_train_opts *opts, struct td_field_group *groups);

/**
 * Set what the preset says that opts->launch, opts->model.model and opts->amp name; nothing when
 * none is named.  `groups` are td_train_groups(opts).  TD_EUSAGE: no such preset (the message lists
 * what exists); TD_EFORMAT, TD_ELIMIT: the table, with the line.
 */
struct td_arena;
TD_API TD_CHECKED td_status td_train_preset(td_train_opts *opts,
                                            const struct td_field_group *groups,
                                            struct td_arena *arena);

/**
 * Set what a detector's pipeline.config says of the network and the data, for jobs that do not
 * train; `overrides` NULL: none.  Texts are the arena's.  TD_EUSAGE, TD_EFORMAT, TD_ELIMIT, TD_EIO:
 * the file, or a field of it.
 */
TD_API TD_CHECKED td_status td_pipeline_options(const char *path, const char *overrides,
                                                td_model_opts *model, td_input_opts *input,
                                                td_boxes_opts *boxes, struct td_arena *arena);

/**
 * An evaluation, prediction or inference benchmark without --resume and --pretrained-weights takes
 * the checkpoint of the folder that --model-dir names, or with --mode evaluate --workspace, if it
 * is there: opts->resume, a text of the arena.  TD_ENOTFOUND: --model-dir has none.
 */
TD_API TD_CHECKED td_status td_train_find_checkpoint(td_train_opts *opts, struct td_arena *arena);

/** The list of presets, for people (td_text_free); `cfg_file` NULL: the built-in ones. */
TD_API TD_CHECKED td_status td_train_presets(const char *cfg_file, char **text);

/** What may stand after --preset, separated by spaces, as far as a list goes (td_text_free). */
TD_API TD_CHECKED td_status td_train_preset_names(char **text);

/** The built-in table, to begin a --cfg_file with. */
TD_API const char *td_train_preset_yaml(void);

/**
 * After everything was read: options that stand for others set those (--num-iter sets --epochs),
 * and a --model that was a preset's is no file.  TD_EUSAGE: contradictions.
 */
TD_API TD_CHECKED td_status td_train_settle(td_train_opts *opts);

/**
 * The configuration as YAML, which --config reads back (td_text_free).  It is that of the run from
 * its start: of a training, what it was resumed from is left out.
 */
TD_API TD_CHECKED td_status td_train_config_yaml(const td_train_opts *opts, char **yaml);

typedef struct {
    int64_t epoch;          /* next epoch */
    int64_t steps, skipped; /* optimiser steps in all; besides, those that loss scaling skipped */
    double loss_scale;      /* of the next step; 1 without loss scaling */
    double train_loss, val_loss; /* of the last epoch, true means; NaN: all steps were skipped */
    double top1, topk;           /* percent, last validation; -1: none was made */
    int rank;                    /* of the run's ranks; files are rank 0's */
    double best_top1;
    bool detects;                 /* and then these count, not top1 and topk: */
    double boxes[TD_BOX_METRICS]; /* last validation, 0 .. 1; -1: none, or nothing to find */
    double best_ap;
    double images_per_s;       /* training, waiting included, last epoch */
    double last_quarter_ips;   /* of a detector: mean of the last quarter of its lines' speeds */
    int n_lines, n_lines_kept; /* all and those; 0: not a line was whole, and the mean is NaN */
    bool was_stopped;          /* by a signal, after saving */
    char checkpoint[512];      /* path written last, or "" */
    char arch[64];             /* the network's, or the graph file's name, cut */
    char *profile; /* with opts->prof: where the steps' time went (td_text_free); or NULL */
} td_train_result;

/**
 * td_train begins with it.  TD_EUSAGE: an option of the reference programs that is not there yet,
 * or out of range; TD_EARG: --fp16 and --amp.
 */
TD_API TD_CHECKED td_status td_train_check(const td_train_opts *opts);

/** TD_EUSAGE, TD_EARG: options of one command line that contradict each other. */
TD_API TD_CHECKED td_status td_train_check_line(const td_train_opts *opts);

/**
 * Train.  TD_ESTOPPED is never returned: a signal saves and sets was_stopped.  TD_EREQUIRED:
 * finished, but below `require`.  out->profile is NULL after every other failure.
 */
TD_API TD_CHECKED td_status td_train(const td_train_opts *opts, td_train_result *out);

/**
 * The options a checkpoint was made with, as one flat JSON object (td_text_free): what --resume
 * goes on with where the command line says nothing.  Left out are those that belong to one run
 * only (resume, run_iters, prof, ...), and every option that names a file or folder: a checkpoint
 * decides neither what is read nor what is written.  TD_EFORMAT: not a checkpoint, or it has an
 * option that no checkpoint has.
 */
TD_API TD_CHECKED td_status td_train_stored_options(const char *checkpoint, char **json);

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
    const char *device;
    int threads;
    int tune;               /* td_tune_mode */
    const char *tune_cache; /* NULL: the default place */
    const char *skip_passes, *dump_after;
    const char *require;
    const char *raport_file;
    td_boxes_opts boxes;     /* of a detector */
    const char *detections;  /* of a detector: what it found goes into this file, COCO's results */
    const char *draw;        /* of a detector: pictures with boxes drawn on them go here; NULL */
    int64_t draw_limit;      /* of the first so many; 0: of all */
    double draw_min_score;   /* what was found with a score above; -1: 0.3 */
    bool eval_training_data; /* judge the training split */
    const char *checkpoint_dir; /* td_evaluate_watch: the folder of a training */
    bool run_once;              /* its checkpoint as it is now, not every new one */
    int poll_seconds;           /* between two looks for another */
    bool per_class;             /* count by class, and what was taken for what */
    const char *confusion;      /* that table as CSV goes into this file; with per_class */
    const char *log;
    int print_freq, log_format; /* as td_train_opts, as the next three */
    bool raport_compat;
    int raport_names, raport_warmup;
    int prof;              /* batches; -1: all */
    const char *workspace; /* where a relative raport_file is, or evaluation.json; NULL: here */
    const char
        *model_dir; /* the same, and the checkpoint there is judged where no other is named */
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
    int64_t n_truths;
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
    int64_t *confusion; /* [n_classes, n_classes]: pictures of a row's class taken for a column's */
    int rank;           /* of the ranks, which all have the same counts */
} td_evaluate_result;

/** Release what `per_class` adds; fine after a failure, and twice. */
TD_API void td_evaluate_release(td_evaluate_result *r);

/**
 * Judge weights on a data set whose classes are matched to the network's outputs: by label_map, in
 * order with labels_by_order, by the outputs' names, or ILSVRC's folders and 1000 outputs by id.
 *   TD_ESHAPE   the numbers of classes differ and nothing says which is which, or `classes` has
 *               another number of names than the network has outputs
 *   TD_EFORMAT  a class of the data that is none of the network's
 */
TD_API TD_CHECKED td_status td_evaluate(const td_evaluate_opts *opts, td_evaluate_result *out);

/**
 * Judge the checkpoint in opts->checkpoint_dir, and then every one that takes its place, until one
 * that has done all epochs its training planned; `each` sees every result.  TD_EREQUIRED: the last
 * is below `require`.  TD_ESTOPPED: a signal came.
 */
TD_API TD_CHECKED td_status td_evaluate_watch(const td_evaluate_opts *opts,
                                              td_status (*each)(void *ctx,
                                                                const td_evaluate_result *r),
                                              void *ctx);

typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    const char *weights;
    const char *classes; /* file of the classes' names; NULL: the weight file's, or ImageNet's */
    bool use_ema;        /* the file's averaged weights */
    int interpolation;
    bool ignore_orientation;
    int topk;
    int batch_size;    /* at most; 0: 8 */
    int workers;       /* decoding threads; 0: chosen */
    bool json_lines;   /* how the command shows results */
    const char *image; /* one more file of the command's, as the reference spells it */
    const char *device;
    int threads;
    int tune;               /* td_tune_mode */
    const char *tune_cache; /* NULL: the default place */
    const char *log;
} td_classify_opts;

TD_API const struct td_field *td_classify_fields(void);
TD_API void td_classify_defaults(td_classify_opts *opts);

typedef struct {
    const char *path;
    td_status st;        /* of this picture: TD_ENOTFOUND no such file, TD_EFORMAT no image, ... */
    const char *message; /* when st is not TD_OK */
    int n;               /* entries below */
    int label[10];
    const char *name[10]; /* class names, "class 17" when there is none */
    double probability[10];
} td_prediction;

/**
 * Call `each` for every file in order; a folder stands for the pictures below it, by folder, then
 * by name.  A bad picture is reported through it and does not end the job; a failure that `each`
 * returns does.
 */
TD_API TD_CHECKED td_status td_classify(const td_classify_opts *opts, int n_files,
                                        const char *const *files,
                                        td_status (*each)(void *ctx, const td_prediction *p),
                                        void *ctx);

/** td_detect: options, and what it finds. */
typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    td_boxes_opts boxes; /* min_score -1: 0.3 */
    const char *weights;
    bool use_ema; /* the file's averaged weights */
    bool ignore_orientation;
    const char *only;    /* "RBC,WBC": boxes of these classes alone; NULL: of all */
    const char *classes; /* file of the classes' names; NULL: the weight file's, or COCO's */
    const char *draw;    /* folder for the pictures with their boxes; NULL: none */
    int batch_size;      /* at most; 0: 8 */
    int workers;         /* decoding threads; 0: chosen */
    const char *device;
    int threads;
    int tune;               /* td_tune_mode */
    const char *tune_cache; /* NULL: the default place */
    const char *log;
} td_detect_opts;

TD_API const struct td_field *td_detect_fields(void);
TD_API void td_detect_defaults(td_detect_opts *opts);

typedef struct {
    int label; /* class, 1 .. K */
    int64_t
        category; /* its id in the annotations that were learned; the label where none is known */
    const char *name; /* "class 17" when the weight file has no names */
    double score;
    double x, y, width, height; /* pixels of the upright picture */
} td_found_box;

typedef struct {
    const char *path;
    td_status st;        /* of this picture: TD_ENOTFOUND no such file, TD_EFORMAT no image, ... */
    const char *message; /* when st is not TD_OK */
    int width, height;   /* of the upright picture */
    int n;
    const td_found_box *boxes; /* [n], best first */
    const char *drawn;         /* the picture with its boxes, or NULL */
    int n_classes;             /* that the weight file names: all that may be found; 0: unknown */
    const char *const *class_names; /* [n_classes] */
    const int64_t *categories;      /* [n_classes] */
} td_found;

/**
 * Call `each` for every file in order, as td_classify does.  TD_EUSAGE: the weights are of no
 * detector.
 */
TD_API TD_CHECKED td_status td_detect(const td_detect_opts *opts, int n_files,
                                      const char *const *files,
                                      td_status (*each)(void *ctx, const td_found *f), void *ctx);

/** COCO's lists of what was found, for JSON: categories, and detections of many pictures. */
typedef struct td_found_lists td_found_lists;
TD_API TD_CHECKED td_status td_found_lists_new(td_found_lists **out);
TD_API void td_found_lists_free(td_found_lists *l);

/** Add a picture's boxes under this id.  TD_ENOMEM. */
TD_API TD_CHECKED td_status td_found_lists_add(td_found_lists *l, const td_found *f,
                                               int64_t image_id);

/** The text "categories": [...], "detections": [...] (td_text_free). */
TD_API TD_CHECKED td_status td_found_lists_text(const td_found_lists *l, char **text);

/** Fresh weights: arch, num_classes, seed -> file.  `classes` may be NULL. */
TD_API TD_CHECKED td_status td_init_weights(const td_model_opts *model, uint64_t seed,
                                            const char *out_path);

/** What td_convert writes: as the ending of the output's name says, or one of the others. */
typedef enum { TD_CONVERT_BY_ENDING, TD_CONVERT_SAFETENSORS, TD_CONVERT_PTH } td_convert_format;

typedef struct {
    bool ema;   /* the averaged weights */
    int names;  /* of tensors in a .pth: 0 by the file's kind, 1 torchvision's, 2 main.py's */
    int format; /* td_convert_format; no row of its own: convert's --to */
    const char *classes; /* file of the classes' names to put in; NULL: those that IN has */
    bool overwrite;      /* a file of the output's name is replaced; else it is TD_EARG */
    const char *log;
} td_convert_opts;

/** What a checkpoint says of itself; -1 where it does not. */
typedef struct {
    int64_t n_tensors; /* that were written */
    int64_t epoch;
    double best_top1; /* percent */
} td_convert_result;

TD_API const struct td_field *td_convert_fields(void);

/**
 * Checkpoint or weight file, of ours or of PyTorch's, as its content says -> weights: momentum and
 * the state of training are left out.  Tensors keep their bits; those of PyTorch's files get the
 * names that we write.  The ending of `out_path` chooses its format: .safetensors, or .pth, .pt and
 * .pth.tar for PyTorch's.  A checkpoint of ours becomes one that PyTorch's program resumes, with
 * momentum buffers, epoch and averages, unless opts->ema asks for weights alone.
 */
TD_API TD_CHECKED td_status td_convert(const char *in_path, const char *out_path,
                                       const td_convert_opts *opts, td_convert_result *result);

/** How a network becomes an ONNX file; td_onnx_defaults first. */
typedef struct {
    td_model_opts model; /* what the weight file does not say itself */
    int opset;           /* 13 .. 21 */
    int batch_size;      /* pictures a run; 0: left open, "N" */
    int input;           /* of `images`: 0 normalised, 1 f32 0 .. 255, 2 u8 [N, H, W, 3] */
    int se_layers;       /* squeeze-and-excitation: 0 1x1 convolutions, 1 linear layers */
    bool probabilities;  /* a second output: softmax of logits */
    bool half_weights;   /* filters and matrices as fp16, cast to f32 before use */
    bool verify;         /* read the file back, run it, compare, before it is put in place */
    bool nms;            /* of a detector: the best boxes; else all boxes and scores */
    td_boxes_opts boxes; /* of a detector: which are the best */
    bool use_ema;        /* the averaged weights; no row of its own: convert's --ema */
    const char *classes; /* td_convert_opts', likewise */
    bool overwrite;      /* likewise */
} td_onnx_opts;

TD_API const struct td_field *td_onnx_fields(void); /* without `model` */
TD_API void td_onnx_defaults(td_onnx_opts *opts);

typedef struct {
    char output[512]; /* the file written */
    char arch[64];
    int n_nodes;
    int64_t bytes;
    int64_t parameters; /* that are trained */
    int64_t macs;       /* multiplications with an addition for one picture */
    bool is_detector;
    bool was_verified;
    double difference; /* largest of the logits read back, over the largest logit; or that of a
                          detector's codes over the largest code */
} td_onnx_result;

/**
 * Weights -> ONNX file: input `images`, output `logits`; of a detector `detection_boxes`,
 * `detection_scores`, `detection_classes`, `num_detections`, or `boxes` and `scores` of all anchors
 * (docs/formats.md).  out_path NULL: the weights' base name with its ending replaced by .onnx,
 * here.
 *
 *   TD_EUSAGE        options of the other kind of network
 *   TD_EUNSUPPORTED  an op that ONNX has no counterpart of, by name
 *   TD_ELIMIT        more than 2 GiB
 *   TD_EFORMAT       the file read back is not the network; out_path is as it was
 *   and what reading weights, compiling and writing can say
 */
TD_API TD_CHECKED td_status td_onnx_export(const char *weights, const char *out_path,
                                           const td_onnx_opts *opts, td_onnx_result *out);

typedef struct {
    int mode; /* 0 training, 1 inference, 2 data, 3 op, 4 allreduce */
    td_model_opts model;
    td_input_opts input;
    td_amp_opts amp;
    int batch_size;
    const char *batch_sizes; /* "1,2,4": all of these, one after the other; NULL: batch_size */
    const char *nproc;       /* likewise, "1,2": ranks, started as td_ranks_run does; NULL: one */
    const char *precisions;  /* likewise, "fp32,bf16"; NULL: as amp says */
    int iters, warmup;
    int iter_unit; /* 0 batch: what iters and warmup count */
    bool walkthrough, largest_batch;
    int64_t memory_limit; /* bytes of the process; 0: none, or for largest_batch the machine's */
    bool as_table;        /* of walkthrough, largest_batch and lists: a table, not JSON */
    int threads;
    int tune;               /* td_tune_mode */
    const char *tune_cache; /* NULL: the default place */
    const char *device;
    const char *lines;          /* op mode: file of problem lines */
    const char *filter;         /* op mode: glob on op names */
    bool bound;                 /* measure bound_images_per_s too */
    bool kernels;               /* per-node times in the result */
    const char *weights;        /* inference: these, in place of fresh ones */
    const char *checkpoint_dir; /* inference: the checkpoint of a training in this folder */
    const char *workspace;      /* where a relative raport_file is; alone, "benchmark.json" there */
    const char *raport_file;    /* a record every print_freq iterations, and of all; NULL: none */
    int print_freq, log_format; /* as td_train_opts, as the next two */
    bool raport_compat;
    int raport_names;
    const char *pipeline_config_path, *hparams_overrides; /* td_pipeline_options has read them */
    const char *trace; /* the last iterations' kernels, for a viewer */
    int prof;          /* iterations to measure, with a profile; -1: iters, and none */
    char **profile; /* its tables go here as text (td_text_free); NULL: as JSON into the result */
    const char *skip_passes;
    const char *log;
} td_benchmark_opts;

TD_API const struct td_field *td_benchmark_fields(void);
TD_API void td_benchmark_defaults(td_benchmark_opts *opts);

/** Run it; *json is one JSON object, or with as_table a table (td_text_free). */
TD_API TD_CHECKED td_status td_benchmark(const td_benchmark_opts *opts, char **json);

typedef struct {
    td_model_opts model;
    td_amp_opts amp;
    int batch_size;
    bool training;
    int64_t memory_limit; /* bytes for the program; 0: none */
    const char *device;
    int threads;
    int tune;               /* td_tune_mode */
    const char *tune_cache; /* NULL: the default place */
    const char *skip_passes;
    const char *svg;     /* amp-stats, memory: also drawn, into this file */
    const char *weights; /* whose network it is, with its backbone; NULL: as options say */
    bool json;
    const char *log;
} td_inspect_opts;

TD_API const struct td_field *td_inspect_fields(void);
TD_API void td_inspect_defaults(td_inspect_opts *opts);

/**
 * THING: model graph amp amp-stats kernels memory checkpoint dataset ops backends; path: a file.
 * TD_EUSAGE, with the list of things: `thing` is another name, or NULL.
 */
TD_API TD_CHECKED td_status td_inspect(const char *thing, const td_inspect_opts *opts,
                                       const char *path, char **text);

typedef struct {
    const char *output; /* file, replaced whole or not at all; NULL: *text */
    int format;         /* 0 auto, 1 html, 2 text, 3 markdown, 4 csv, 5 json */
    bool json;          /* the same as format json */
    const char *title;  /* of the page; NULL: made from the runs */
    const char
        *images; /* folder of the data, whose images of mistakes the page shows; NULL: none */
    const char *log;
} td_run_report_opts;

TD_API const struct td_field *td_run_report_fields(void);
TD_API void td_run_report_defaults(td_run_report_opts *opts);

/**
 * What runs came to; paths: workspaces or report files.  *text (td_text_free) is NULL where it went
 * to a file.  TD_EFORMAT: one is no report; a last line that is cut off is only warned of.
 */
TD_API TD_CHECKED td_status td_run_report(const td_run_report_opts *opts, int n,
                                          const char *const *paths, char **text);

/** How `tandem launch` starts ranks. */
typedef struct {
    int nproc;               /* on this machine */
    int result_fd;           /* where rank 0's standard output goes; 0: to this process's own */
    int nnodes, node_rank;   /* machines, and which of them this is */
    const char *master_addr; /* where rank 0 listens; of one machine: NULL */
    int master_port;         /* 0: of one machine chosen, else 29500 */
    int cpu_affinity;    /* 0: shares of the cores where there are enough, else td_affinity + 1 */
    const char *log_dir; /* a file for every rank but 0; NULL: none */
    const char *hosts, *hostfile; /* "a,b" or "a:2,b:2"; or a file of them; NULL: this machine */
    const char *ssh, *remote_program; /* how the others are reached, and `tandem` there */
    const char *log;
} td_ranks_opts;

TD_API const struct td_field *td_ranks_fields(void);

/**
 * Start this program `nproc` times with `args` as its line, and wait for all.  One that fails ends
 * the others; signals are handed on.  *code: 0, or what the first that failed ended with, 128 +
 * signal where it was killed; then the log says which.
 *   TD_EUSAGE  an option contradicts another
 *   TD_EARG    fewer cores than ranks that want their own
 *   TD_EIO     no process, no file
 */
TD_API TD_CHECKED td_status td_ranks_run(const td_ranks_opts *opts, int n_args,
                                         const char *const *args, int *code);

/**
 * Log a command's own warnings, `lines` each ended by a newline, as messages of `module`; `spec` is
 * the value of --log, or NULL.  Of several ranks only 0 logs.  TD_EUSAGE: `spec` is malformed.
 */
TD_API TD_CHECKED td_status td_command_warn(const char *spec, const char *module,
                                            const char *lines);

/** What this machine offers, as text or JSON (td_text_free). */
TD_API TD_CHECKED td_status td_doctor(bool json, char **text);

#ifdef __cplusplus
}
#endif
#endif
