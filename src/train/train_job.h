/*
 * train/train_job.h -- the state of a training job
 *
 * Files of this room; each uses only those above it and td_task:
 *
 *     train_job.h, task.h                        the state; the interface of the two tasks
 *     train_rate, train_data, train_ranks        learning rate; loaders; exchanges between ranks
 *     workspace, train_settings, train_report    files; options; log lines and records
 *     train_restart                              the position of a run that is started again
 *     train_start, train_program, train_save     parameters: from a file, in the program, to a file
 *     task_classify, task_detect                 the two tasks
 *     train_open                                 opens all of these, in phases
 *     train                                      runs the steps and epochs
 */
#ifndef TD_TRAIN_TRAIN_JOB_H
#define TD_TRAIN_TRAIN_JOB_H

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "comm/comm.h"
#include "data/bad_list.h"
#include "data/sizes.h"
#include "evaluation/evaluator.h"
#include "evaluation/report_sums.h"
#include "io/lock.h"
#include "loggers/progress.h"
#include "loggers/run_logger.h"
#include "optim/freeze.h"
#include "optim/lr_schedule.h"
#include "optim/mixup.h"
#include "optim/training_graph.h"
#include "profiler/amp_stats.h"
#include "profiler/profile.h"
#include "profiler/trace.h"
#include "tandem/dataset.h"
#include "tandem/detection.h"
#include "tandem/loader.h"
#include "tandem/train.h"
#include "transport/restart.h"

/* Defaults of --checkpoint-filename and --raport-file. */
#define TD_CHECKPOINT_NAME "checkpoint.safetensors"

/* Files in the workspace. */
enum {
    TD_PATH_CHECKPOINT,
    TD_PATH_BEST,
    TD_PATH_REPORT,
    TD_PATH_BAD,
    TD_PATH_LOCK,
    TD_PATH_CONFIG,
    TD_PATHS
};

struct td_task;
typedef struct td_task td_task; /* train/task.h */

/* The checkpoint or weights from which the job starts: train_start.c. */
typedef struct {
    td_tensors *tensors;     /* of the file; NULL after they were loaded */
    bool is_arch_from_file;  /* the file named the network, not --arch */
    bool has_seed;           /* the checkpoint has a seed */
    bool is_seed_from_clock; /* the seed is from the clock: no --seed, none in the checkpoint */
    uint64_t resumed_seed;   /* the checkpoint's; --seed may override it */
    char *frozen_before;     /* --freeze of the resumed run; NULL: none */
    int n_names;
    char **names; /* [n_names] classes in the file */
} td_train_start;

/* Data sets and loaders, opened by the task's open_data. */
typedef struct {
    td_dataset *train_set, *val_set;
    td_loader *train_loader, *val_loader;
    const char **class_names; /* [classes of train_set], borrowed from it */
    int64_t *categories;      /* [classes] of a detector: category ids */
    bool is_size_default;     /* nothing but the architecture has set the image size */
    td_sizes sizes;           /* sizes of training images by epoch; n 0: one size */
    float *class_weights;     /* [model.num_classes]; NULL: all 1 */
    float *positive_weights;  /* likewise */
    td_mixup mixup;           /* batch 0: neither mixup nor cutmix */
} td_train_data;

/* Length and learning rate, planned by train_rate.c. */
typedef struct {
    td_lr_steps by_step;      /* rates by step, drops, number of steps */
    double lr_exact;          /* learning rate of the next step */
    int64_t planned_steps;    /* length in steps; 0: in whole epochs */
    int64_t batches_per_step; /* batches per optimizer step */
    bool uses_environment;    /* the environment decides about loss scaling if no option does */
} td_train_schedule;

/* The compiled step, see train_program.c. */
typedef struct {
    int size;               /* side of its input images, pixels */
    int64_t step_limit;     /* bytes that a program may use; 0: no limit */
    td_decay_groups groups; /* which weights are decayed */
    td_freeze_counts frozen;
} td_train_compiled;

/* Scalar inputs; the program is bound to these variables. */
typedef struct {
    float lr[2];          /* and the momentum of one cycle */
    float scale, inverse; /* scale of the loss */
    float rest1, rest2;   /* bias correction: 1 - beta1^t, 1 - beta2^t in step t */
    float update;         /* 1 on the last batch of an optimizer step, else 0 */
    float ema[4];         /* ema_keep, ema_share, ema_before, ema_rest */
    int64_t random[3];    /* TD_INPUT_RANDOM: seed, epoch, number of the batch's first sample */
} td_train_inputs;

/* Results of validation. */
typedef struct {
    td_evaluator *evaluator;
    struct td_detector_evaluator *detector_evaluator; /* of a detector */
    double boxes[TD_BOX_METRICS];                     /* of a detector's last validation */
    double *class_ap;        /* [classes], likewise, and of several labels; -1: not evaluated; NULL:
                                neither of both */
    td_multi_scores multi;   /* of a multi-label classifier's last validation */
    td_label_scores *labels; /* [classes], likewise; NULL: one label for each image */
    td_gather outcomes;      /* of a classifier's last validation, on rank 0 ... */
    int64_t outcomes_epoch;  /* ... and its epoch */
} td_train_evaluation;

/* Log lines and records, see train_report.c. */
typedef struct {
    td_report *report;
    td_run_sums sums;
    td_progress progress;
    td_ticker *ticker; /* logs the work of a long silence; NULL: none */
    char progress_what[64];
    double grad_norm; /* of the last step, before it is limited; NaN: none was computed */
    double positives; /* anchors with an object, per image of this batch */
} td_train_log;

/* Observers of the program's runs; each may be NULL. */
typedef struct {
    td_amp_stats *amp_stats;
    td_profile *profile; /* --prof */
    td_trace *trace;
} td_train_observers;

/* The workspace and its files, see workspace.c. */
typedef struct {
    td_lock *lock;
    char *folder;
    bool is_folder_fresh; /* it is this run's own runs/ARCH-N */
    bool is_folder_new;   /* this process has created it */
    bool may_overwrite;   /* may replace files of another run in the folder */
    char *path[TD_PATHS];
    td_bad_list bad;
    char *graph_text; /* the network's, from a graph file or a checkpoint; NULL: none */
    td_text config;   /* all resolved options, JSON */
} td_train_files;

/* This rank and its connections, see train_ranks.c. */
typedef struct {
    td_comm *comm; /* NULL: one rank */
    int rank, n;
    bool is_stop_wanted; /* some rank received a signal */
    int64_t n_bad_last;  /* bad images of the training set on all ranks at the last exchange */
    double waited_s;     /* seconds that the program had waited for other ranks at the last check */
} td_train_ranks;

/* Counts of this run, without those of the run it continues. */
typedef struct {
    int64_t steps, epochs;
    int64_t skipped;          /* optimizer steps */
    int64_t batches;          /* including those of skipped steps */
    double data_s, compute_s; /* of this epoch */
    int64_t epoch_batches;    /* likewise */
    bool is_over;
} td_train_counts;

typedef struct {
    td_train_opts o; /* a copy, in which model and seed are resolved */
    const td_task *task;
    td_run_state s;     /* state stored in a checkpoint */
    td_tracked tracked; /* number of batches that each norm has tracked */
    td_device *dev;
    td_program *program;
    td_train_start start;
    td_train_data data;
    td_train_schedule plan;
    td_train_compiled compiled;
    td_train_inputs inputs;
    td_train_evaluation eval;
    td_train_log log;
    td_train_observers observers;
    td_train_files files;
    td_train_ranks ranks;
    td_train_counts run;
    td_restart restart; /* the start by a launcher that restarts; train_restart.h */
    td_train_result *out;
} td_train_job;

#endif
