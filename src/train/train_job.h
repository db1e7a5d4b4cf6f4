/*
 * train/train_job.h -- the state of a training job
 *
 * Files of this room, each uses only those above it and td_task:
 *
 *     train_job.h, task.h                        the state; what classification and detection do
 *     train_rate, train_data, train_ranks        plan and learning rate; loaders; exchange of ranks
 *     workspace, train_settings, train_report    files; options; log lines and records
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
#include "tandem/data.h"

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

typedef struct {
    td_train_opts o; /* a copy; model and seed are completed */
    const td_task *task;
    td_run_state s;
    td_tensors *start;    /* checkpoint or weights to begin with */
    td_tracked tracked;   /* batches that norms have seen */
    bool is_arch_of_file; /* weights to begin with said which network they are of */
    bool has_seed;        /* the checkpoint to go on from has one, in `s` */
    td_dataset *train_set, *val_set;
    td_loader *train_loader, *val_loader;
    td_device *dev;
    td_program *program;
    td_sizes sizes;     /* of training pictures by epoch; n 0: one size */
    int size;           /* that `program` is for */
    int64_t step_limit; /* bytes that a program may take; 0: no limit */
    td_judge *judge;
    struct td_detect_judge *detect_judge; /* of a detector */
    int64_t *categories;                  /* of a detector: ids of its classes */
    double boxes[TD_BOX_METRICS];         /* of its last validation */
    double *class_ap;                     /* likewise, [classes]; -1: none; NULL: no detector */
    td_shares outcomes;                   /* of a classifier's last validation, on rank 0 ... */
    int64_t outcomes_epoch;               /* ... and its epoch */
    double positives;                     /* anchors with an object, a picture of this batch */
    td_report *report;
    td_run_sums sums; /* what is reported */
    td_progress progress;
    char progress_what[64];
    td_amp_stats *amp_stats;
    td_profile *profile; /* NULL without --prof */
    td_trace *trace;     /* NULL without --trace */
    td_lock *lock;
    char *folder;          /* the workspace */
    uint64_t resumed_seed; /* the checkpoint's; --seed may name another */
    bool is_seed_of_clock;
    bool is_folder_fresh; /* it is this run's own runs/ARCH-N */
    bool may_overwrite;   /* files of another run in it */
    char *path[TD_PATHS];
    td_bad_list bad;
    char *graph_text; /* of a checkpoint's own network */
    td_text config;
    int n_names;
    char **names;             /* of the file we began with */
    const char **class_names; /* of the data set, lent */
    td_lr_steps by_step;      /* what the detectors' rules of the learning rate go by */
    double lr_exact;          /* of this epoch */
    float lr;                 /* the same, bound to the program */
    float scale, inverse;     /* of the loss in the step that runs, bound too */
    int64_t acc;              /* batches of an optimiser step */
    float update;             /* bound: 1 on the last of them */
    float ema[4];             /* bound: ema_keep, ema_share, ema_before, ema_rest */
    td_mixup mixup;           /* batch 0: none */
    td_decay_groups groups;   /* which weights are decayed */
    char *frozen_then;        /* patterns of the run that it goes on from; NULL: none */
    td_freeze_counts frozen;  /* of this run */
    int64_t run_steps, run_epochs, epochs_without_best;
    int64_t run_skipped;      /* steps of this run that were skipped */
    int64_t run_batches;      /* as run_steps, skipped steps and all their batches included */
    double data_s, compute_s; /* of this epoch in this run */
    int64_t epoch_batches;    /* likewise */
    int64_t planned_steps;    /* where the training ends inside an epoch; 0: at an epoch's end */
    bool asks_environment;    /* where no option decides about loss scaling */
    bool is_over;
    td_comm *comm; /* NULL: one rank */
    int rank, n_ranks;
    bool is_stop_wanted; /* a signal came to some rank */
    int64_t n_bad_met;   /* of the training set by all ranks, when it was last looked at */
    double waited_s;     /* that the program had waited for others when it was last asked */
    td_train_result *out;
} td_train_job;

#endif
