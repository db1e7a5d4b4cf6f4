/*
 * optim/lr_schedule.h -- the learning rate of an epoch, or of a step
 */
#ifndef TD_OPTIM_LR_SCHEDULE_H
#define TD_OPTIM_LR_SCHEDULE_H

#include <stdint.h>

#include "base/status.h"
#include "tandem/train_opts.h"

enum { TD_LR_DROPS_MAX = 32 };

typedef struct {
    td_lr_schedule schedule;
    double lr, end_lr; /* peak; end of the cosine */
    int warmup;        /* epochs */
    int epochs;        /* planned total, even if this run trains fewer */
    double decay;      /* exponential: factor; 0: such that the total is 0.001 */
    int decay_epochs;  /* exponential: epochs between two decays; 0: 1 */
} td_lr_curve;

/**
 * Learning rate of epoch e, counted from 0.  It depends on the epoch only.
 *
 *   e < warmup   lr (e + 1) / warmup
 *   step         lr 0.1^(number of {30, 60, 80} <= e)
 *   linear       lr (1 - (e - warmup) / (epochs - warmup))
 *   cosine       end + (lr - end) (1 + cos(pi (e - warmup) / (epochs - warmup))) / 2
 *   exponential  lr decay^floor((e - warmup) / decay_epochs)
 *                decay 0 means 0.001^(1 / floor((epochs - warmup) / decay_epochs))
 *
 * Source: NVIDIA DeepLearningExamples, ConvNets, lr policies.
 */
double td_lr_at(const td_lr_curve *o, int epoch);

/**
 * Learning rate of optimizer step t, counted from 0, by the rule of the TensorFlow programs; S is
 * the number of steps per epoch.  The base is lr batch / 256.
 *
 *   t < floor(S warmup)   base t / floor(S warmup): the first step has 0
 *   step                  base 0.1^(number of floor(S {30, 60, 80, 90}) < t)
 *   cosine                base (1 + cos(pi min(t, T) / T)) / 2, T = S epochs: counted from step 0,
 *                         not from the end of the warm-up
 *
 * Other schedules do not exist in this rule; they are treated as cosine.  Source: the same,
 * TensorFlow/Classification.
 */
double td_lr_at_step(const td_lr_curve *o, int64_t t, double steps_per_epoch, int64_t batch);

/* Parameters of the detectors' rules: in optimizer steps; SSD300's drops in epochs. */
typedef struct {
    double lr;      /* peak */
    double begin;   /* ssd320: initial rate of the warm-up; ssd300: 0 */
    int64_t warmup; /* steps */
    int64_t steps;  /* ssd320: planned total */
    int n_drops;    /* ssd300: epochs at which the rate drops to a tenth, ascending */
    int64_t drops[TD_LR_DROPS_MAX];
} td_lr_steps;

/**
 * Learning rate of optimizer step t, counted from 0, by the rule of SSD320: cosine after a linear
 * warm-up, 0 from the last step on.
 *
 *   t < W      begin + (lr - begin) t / W
 *   otherwise  lr (1 + cos(pi (t - W) / (T - W))) / 2
 *
 * Source: TensorFlow's object detection API, cosine_decay_with_warmup.
 */
double td_lr_ssd320(const td_lr_steps *o, int64_t t);

/**
 * The same by the rule of SSD300: lr t / W during the warm-up, so that the first update only
 * changes momentum buffers; then lr 0.1^(number of drops <= epoch).
 */
double td_lr_ssd300(const td_lr_steps *o, int64_t t, int64_t epoch);

/** Parse ascending epochs, "43,54".  TD_EUSAGE: anything else, or more than TD_LR_DROPS_MAX. */
td_status td_lr_drops_parse(const char *text, td_lr_steps *o) TD_CHECKED;

#endif
