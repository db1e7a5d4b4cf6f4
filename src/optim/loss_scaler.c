/*
 * loss_scaler.c -- adapts the loss scale from step to step
 *
 *                    tf       pytorch   apex      nvidia
 *     start          2^15     2^16      2^16      --static-loss-scale, or 1
 *     grows after    2000     2000      2000      100        good steps in a row, by 2
 *     at overflow    S / 2    S / 2     S / 2     S / 2
 *     never below    1        -         -         -
 *     never above    -        -         2^24      -
 *
 * "-": only the limits of the type: S stays between 2^-126 and 2^127, where both S and 1/S are
 * normal float32 numbers.  tf is the default.  An overflow and a growth both restart the count of
 * good steps, even if a limit prevents the growth.
 *
 * A static scale never changes, but steps that overflow are skipped.  TensorFlow's wrapper with a
 * fixed scale applies them, which destroys the weights; skipping costs only one step.
 *
 * Sources: TensorFlow DynamicLossScale, torch.amp.GradScaler, apex.amp.scaler; nvidia: main.py of
 * DeepLearningExamples' classifiers, a GradScaler with another interval.
 */
#include "optim/loss_scaler.h"

#include <float.h>
#include <string.h>

#include "amp/amp_env.h"

typedef struct {
    double start;
    int64_t interval;
    double floor, ceiling;
} numbers;

/* clang-format off */
static const numbers rules[] = {
    [TD_SCALER_TF]      = { 32768, 2000, 1,       FLT_MAX },
    [TD_SCALER_PYTORCH] = { 65536, 2000, FLT_MIN, FLT_MAX },
    [TD_SCALER_APEX]    = { 65536, 2000, FLT_MIN, 16777216 },
    [TD_SCALER_NVIDIA]  = { 1,     100,  FLT_MIN, FLT_MAX },
};
/* clang-format on */

void td_scaler_begin(td_scaler *s, td_scaler_kind kind, td_scaler_rule rule, double start,
                     int64_t interval)
{
    const double own = kind == TD_SCALER_DYNAMIC ? rules[rule].start : 1;
    *s = (td_scaler){ .kind = kind,
                      .rule = rule,
                      .interval = interval > 0 ? interval : rules[rule].interval,
                      .scale = start > 0 && kind != TD_SCALER_NONE ? start : own };
}

/*
 * TensorFlow's environment variable for loss scaling; td_amp_resolve has refused a malformed one.
 */
static td_amp_switch environment_sets(void)
{
    td_amp_env e;
    return td_amp_env_read(NULL, NULL, &e) == TD_OK ? e.loss_scaling : TD_AMP_UNSET;
}

static td_scaler_rule rule_of(td_loss_scaler scaler)
{
    static const td_scaler_rule rules_of[] = {
        [TD_LOSS_SCALER_AUTO] = TD_SCALER_TF,         [TD_LOSS_SCALER_TF] = TD_SCALER_TF,
        [TD_LOSS_SCALER_PYTORCH] = TD_SCALER_PYTORCH, [TD_LOSS_SCALER_APEX] = TD_SCALER_APEX,
        [TD_LOSS_SCALER_NVIDIA] = TD_SCALER_NVIDIA,
    };
    return rules_of[scaler];
}

void td_scaler_choose(const td_train_opts *o, td_dtype half, bool uses_environment, td_scaler *out)
{
    const bool is_given = o->loss_scaling.scale > 0;
    const double start = is_given ? o->loss_scaling.scale : 0;
    const td_scaler_rule rule = rule_of(o->loss_scaling.scaler);
    td_scaler_kind kind = half == TD_DT_F16 ? TD_SCALER_DYNAMIC : TD_SCALER_NONE;
    const td_amp_switch requested = uses_environment ? environment_sets() : TD_AMP_UNSET;
    if (requested == TD_AMP_OFF)
        kind = TD_SCALER_NONE;
    else if (requested == TD_AMP_ON && half != TD_DT_BF16) /* bf16 does not need it */
        kind = TD_SCALER_DYNAMIC;
    if (is_given)
        kind = o->loss_scaling.scale > 1 ? TD_SCALER_STATIC : TD_SCALER_NONE;
    if (o->loss_scaling.is_dynamic || o->loss_scaling.scaler != TD_LOSS_SCALER_AUTO)
        kind = TD_SCALER_DYNAMIC;
    td_scaler_begin(out, kind, rule, start, o->loss_scaling.interval);
}

void td_scaler_resume(td_scaler *s, const td_scaler *saved)
{
    s->skipped = saved->skipped;
    s->skipped_in_row = saved->skipped_in_row;
    if (s->kind != TD_SCALER_DYNAMIC || saved->kind != TD_SCALER_DYNAMIC)
        return;
    s->scale = saved->scale;
    s->good_steps = saved->good_steps;
}

static void grow(td_scaler *s)
{
    const double twice = 2 * s->scale, ceiling = rules[s->rule].ceiling;
    s->good_steps = 0;
    if (twice <= (double)FLT_MAX)
        s->scale = twice < ceiling ? twice : ceiling;
}

static void back_off(td_scaler *s)
{
    const double half = s->scale / 2, floor = rules[s->rule].floor;
    s->good_steps = 0;
    if (s->scale > floor)
        s->scale = half > floor ? half : floor;
}

bool td_scaler_step(td_scaler *s, bool finite)
{
    if (s->kind == TD_SCALER_NONE)
        return false;
    if (!finite) {
        s->skipped++;
        s->skipped_in_row++;
        if (s->kind == TD_SCALER_DYNAMIC)
            back_off(s);
        return true;
    }
    s->skipped_in_row = 0;
    if (s->kind == TD_SCALER_DYNAMIC && ++s->good_steps >= s->interval)
        grow(s);
    return false;
}

float td_scaler_scale(const td_scaler *s)
{
    return (float)s->scale;
}

float td_scaler_inverse(const td_scaler *s)
{
    return (float)(1 / s->scale);
}

const char *td_scaler_kind_name(td_scaler_kind kind)
{
    static const char *const names[] = { "none", "static", "dynamic" };
    return names[kind];
}
