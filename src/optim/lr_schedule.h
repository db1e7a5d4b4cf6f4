/*
 * optim/lr_schedule.h -- the learning rate of an epoch, or of a step
 */
#ifndef TD_OPTIM_LR_SCHEDULE_H
#define TD_OPTIM_LR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tandem/train_opts.h"

enum { TD_LR_DROPS_MAX = 32 };

typedef struct {
    int n;
    int64_t epochs[TD_LR_DROPS_MAX]; /* ascending */
} td_lr_drops;

typedef struct {
    td_lr_schedule schedule;
    double lr, end_lr; /* peak; end of the cosine and of the polynomial */
    int warmup;        /* epochs */
    bool warms_from;   /* from the rate warmup_start, in a form; otherwise from lr / warmup */
    td_warmup warmup_form;
    double warmup_start;
    int epochs;               /* planned total, even if this run trains fewer */
    bool counts_warmup;       /* linear, cosine, polynomial: counted from epoch 0, as timm does, not
                                 from the end of the warm-up */
    const td_lr_drops *drops; /* step; NULL: 30, 60, 80 */
    double decay;     /* exponential: factor; 0: such that the total is 0.001; step: 0: 0.1 */
    int decay_epochs; /* exponential: epochs between two decays; 0: 1 */
    double power;     /* polynomial */
} td_lr_curve;

/**
 * Learning rate of epoch e, counted from 0.  It depends on the epoch only.
 *
 *   e < warmup   lr (e + 1) / warmup
 *                from a rate w: w + (lr - w) e / warmup; constant: w
 *   step         lr decay^(number of drops <= e)
 *   linear       lr (1 - (e - warmup) / (epochs - warmup))
 *   cosine       end + (lr - end) (1 + cos(pi (e - warmup) / (epochs - warmup))) / 2
 *   exponential  lr decay^floor((e - warmup) / decay_epochs)
 *                decay 0 means 0.001^(1 / floor((epochs - warmup) / decay_epochs))
 *   polynomial   end + (lr - end) (1 - (e - warmup) / (epochs - warmup))^power
 *
 * With counts_warmup linear, cosine and polynomial have e / epochs in place of
 * (e - warmup) / (epochs - warmup).
 *
 * One cycle is no function of the epoch: td_lr_one_cycle.  Source: NVIDIA DeepLearningExamples,
 * ConvNets, lr policies; warm-ups from a rate, drops and the polynomial are PyTorch's LinearLR,
 * ConstantLR, MultiStepLR and PolynomialLR.
 */
double td_lr_at(const td_lr_curve *o, int epoch);

typedef struct {
    double lr;           /* peak */
    double start;        /* share of the steps in which the rate rises, 0 to 1 */
    double div, end_div; /* the first rate is lr / div, the last one lr / div / end_div */
    td_anneal form;
    int64_t steps; /* planned total */
} td_lr_cycle;

/**
 * Learning rate of optimizer step t, counted from 0: from lr / div to lr in step start * steps - 1,
 * then to lr / div / end_div in the last step.  Source: Smith and Topin 2018; the steps are
 * those of PyTorch's OneCycleLR.
 */
double td_lr_one_cycle(const td_lr_cycle *o, int64_t t);

/** Momentum of step t: from `most` to `base` while the rate rises, and back while it falls. */
double td_momentum_one_cycle(const td_lr_cycle *o, double base, double most, int64_t t);

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
    double lr;         /* peak */
    double begin;      /* initial rate of the warm-up; ssd300: 0 */
    int64_t warmup;    /* steps */
    int64_t steps;     /* ssd320: planned total */
    td_lr_drops drops; /* ssd300: epochs at which the rate drops to a tenth */
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

/**
 * The same by the rule of torchvision's detectors: begin + (lr - begin) t / W during the warm-up,
 * PyTorch's LinearLR, then `curve`, which has no warm-up of its own.
 */
double td_lr_torchvision(const td_lr_steps *o, const td_lr_curve *curve, int64_t t, int epoch);

/** Parse ascending epochs, "43,54".  TD_EUSAGE: anything else, or more than TD_LR_DROPS_MAX. */
td_status td_lr_drops_parse(const char *text, td_lr_drops *o) TD_CHECKED;

#endif
