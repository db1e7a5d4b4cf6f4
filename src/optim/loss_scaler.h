/*
 * optim/loss_scaler.h -- loss scaling: the factor by which the loss is multiplied, and its
 * adaptation
 *
 *     scale S -> gradients of S * loss -> all finite?  yes: update with 1/S     no: skip the step
 *                                              S grows after `interval` yes in a row; S falls
 *
 *     td_scaler s;
 *     td_scaler_begin(&s, TD_SCALER_DYNAMIC, TD_SCALER_TF, 0, 0);
 *     ... run a step at td_scaler_scale(&s) and td_scaler_inverse(&s) ...
 *     if (td_scaler_step(&s, finite)) ... skipped ...
 *
 * A state machine independent of graph and program; its whole state is in the struct, and it cannot
 * fail.
 */
#ifndef TD_OPTIM_LOSS_SCALER_H
#define TD_OPTIM_LOSS_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/train.h"

typedef enum { TD_SCALER_NONE, TD_SCALER_STATIC, TD_SCALER_DYNAMIC } td_scaler_kind;

/* The rules of dynamic scaling; loss_scaler.c has their numbers. */
typedef enum { TD_SCALER_TF, TD_SCALER_PYTORCH, TD_SCALER_APEX, TD_SCALER_NVIDIA } td_scaler_rule;

typedef struct {
    td_scaler_kind kind;
    td_scaler_rule rule;
    int64_t interval;       /* good steps in a row that double the scale */
    double scale;           /* S of the next step */
    int64_t good_steps;     /* good steps in a row since the scale last changed */
    int64_t skipped;        /* in total */
    int64_t skipped_in_row; /* skipped steps since the last good one */
} td_scaler;

/** Begin.  start 0: the rule's value, or 1 for a static scale; interval 0: the rule's value. */
void td_scaler_begin(td_scaler *s, td_scaler_kind kind, td_scaler_rule rule, double start,
                     int64_t interval);

/**
 * Choose by the options of a run: --static-loss-scale, --loss-scaler or --dynamic-loss-scale if
 * given; otherwise, with `uses_environment`, by TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING, whose
 * value 1 has no effect for bf16; otherwise dynamic for `half` f16 and none for bf16 and float32.
 */
void td_scaler_choose(const td_train_opts *o, td_dtype half, bool uses_environment, td_scaler *out);

/**
 * Resume from `saved`, read from a checkpoint: take its counts, and its scale if both are dynamic.
 */
void td_scaler_resume(td_scaler *s, const td_scaler *saved);

/** Count a step; `finite`: its loss and gradients are finite.  Returns whether it was skipped. */
bool td_scaler_step(td_scaler *s, bool finite);

/** S and 1 / S of the next step, computed in double and rounded once. */
float td_scaler_scale(const td_scaler *s);
float td_scaler_inverse(const td_scaler *s);

/** "none", "static", "dynamic". */
const char *td_scaler_kind_name(td_scaler_kind kind);

#endif
