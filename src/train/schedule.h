/*
 * train/schedule.h -- the learning rate of an epoch
 */
#ifndef TD_TRAIN_SCHEDULE_H
#define TD_TRAIN_SCHEDULE_H

typedef enum { TD_LR_STEP, TD_LR_LINEAR, TD_LR_COSINE } td_lr_schedule;

typedef struct {
    td_lr_schedule schedule;
    double lr, end_lr; /* peak; end of the cosine */
    int warmup;        /* epochs */
    int epochs;        /* planned total, whatever this run does of it */
} td_lr_opts;

/**
 * Learning rate of epoch e, counted from 0.  It depends on the epoch only.
 *
 *   e < warmup   lr (e + 1) / warmup
 *   step         lr 0.1^(number of {30, 60, 80} <= e)
 *   linear       lr (1 - (e - warmup) / (epochs - warmup))
 *   cosine       end + (lr - end) (1 + cos(pi (e - warmup) / (epochs - warmup))) / 2
 *
 * Source: NVIDIA DeepLearningExamples, ConvNets, lr policies.
 */
double td_lr_at(const td_lr_opts *o, int epoch);

#endif
