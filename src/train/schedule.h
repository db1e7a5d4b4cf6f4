/*
 * train/schedule.h -- the learning rate of an epoch, or of a step
 */
#ifndef TD_TRAIN_SCHEDULE_H
#define TD_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum { TD_LR_STEP, TD_LR_LINEAR, TD_LR_COSINE, TD_LR_EXPONENTIAL } td_lr_schedule;

/* Whose rule: a function of the epoch, or of the optimiser step. */
typedef enum { TD_LR_RULE_PYTORCH, TD_LR_RULE_TF } td_lr_rule;

typedef struct {
    td_lr_schedule schedule;
    double lr, end_lr; /* peak; end of the cosine */
    int warmup;        /* epochs */
    int epochs;        /* planned total, whatever this run does of it */
    double decay;      /* exponential: factor; 0: what makes 0.001 of the whole */
    int decay_epochs;  /* exponential: epochs from one factor to the next; 0: 1 */
} td_lr_opts;

/**
 * Learning rate of epoch e, counted from 0.  It depends on the epoch only.
 *
 *   e < warmup   lr (e + 1) / warmup
 *   step         lr 0.1^(number of {30, 60, 80} <= e)
 *   linear       lr (1 - (e - warmup) / (epochs - warmup))
 *   cosine       end + (lr - end) (1 + cos(pi (e - warmup) / (epochs - warmup))) / 2
 *   exponential  lr decay^floor((e - warmup) / decay_epochs)
 *                where decay is not given, 0.001^(1 / floor((epochs - warmup) / decay_epochs))
 *
 * Source: NVIDIA DeepLearningExamples, ConvNets, lr policies.
 */
double td_lr_at(const td_lr_opts *o, int epoch);

/**
 * Learning rate of optimiser step t, counted from 0, by the rule of the TensorFlow programs; S is
 * the steps of an epoch.  The base is lr batch / 256.
 *
 *   t < floor(S warmup)   base t / floor(S warmup): the first step has 0
 *   step                  base 0.1^(number of floor(S {30, 60, 80, 90}) < t)
 *   cosine                base (1 + cos(pi min(t, T) / T)) / 2, T = S epochs: counted from step 0,
 *                         not from the end of the warm-up
 *
 * Other schedules have no such form: as cosine.  Source: the same, TensorFlow/Classification.
 */
double td_lr_at_step(const td_lr_opts *o, int64_t t, double steps_per_epoch, int64_t batch);

#endif
