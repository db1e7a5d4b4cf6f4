/*
 * train_rate.c -- the length of a training, its validations, the learning rate of each step, the
 *                 averages of weights
 *
 * The length is given in epochs or in optimizer steps; a length in steps may end the last epoch
 * early.  SSD320's learning rate has its own length, --lr-total-steps; the training may be shorter.
 */
#include "train/train_rate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "recipes/train_options.h"

typedef td_train_job job;

#define SSD320_WARM_SHARE 0.08    /* share of all steps: 8000 of 100000, 2000 of 25000, ... */
#define SSD320_WARM_BEGIN 0.43332 /* share of the peak learning rate */
#define SSD300_DROPS      "43,54"
#define SSD300_BATCH      32    /* batch size for which --lr is given */
#define TORCH_WARM_STEPS  1000  /* at most; less than an epoch */
#define TORCH_WARM_BEGIN  0.001 /* share of the peak learning rate */

/* Optimizer steps in so many epochs. */
static int64_t steps_of(const job *j, int64_t epochs)
{
    return epochs * td_loader_batches(j->data.train_loader) / j->plan.batches_per_step;
}

static int64_t step_now(const job *j)
{
    return (j->s.epoch * td_loader_batches(j->data.train_loader) + j->s.iteration) /
           j->plan.batches_per_step;
}

/* --- length ----------------------------------------------------------------------------------- */

/* `steps`: length of the whole training */
static td_status plan_ssd320(job *j, int64_t steps)
{
    const td_train_opts *o = &j->o;
    td_lr_steps *p = &j->plan.by_step;
    p->steps = o->lr.total_steps > 0 ? o->lr.total_steps : steps;
    if (o->lr.warmup < 0)
        p->warmup = (int64_t)floor(SSD320_WARM_SHARE * (double)p->steps);
    if (p->warmup >= p->steps)
        return td_error(TD_EUSAGE, "--warmup: %lld steps of warm-up do not fit into %lld",
                        (long long)p->warmup, (long long)p->steps);
    if (p->steps < steps)
        td_log(TD_LOG_WARN, "train", "the learning rate is 0 after step %lld of %lld",
               (long long)p->steps, (long long)steps);
    p->begin = o->lr.warmup_start >= 0 ? o->lr.warmup_start : SSD320_WARM_BEGIN * o->lr.peak;
    return TD_OK;
}

/* the warm-up ends within the first epoch */
static void plan_torchvision(job *j)
{
    const td_lr_opts *lr = &j->o.lr;
    td_lr_steps *p = &j->plan.by_step;
    const int64_t most = steps_of(j, 1) - 1;
    if (lr->warmup < 0)
        p->warmup = most < 0 ? 0 : most < TORCH_WARM_STEPS ? most : TORCH_WARM_STEPS;
    p->begin = lr->warmup_start >= 0 ? lr->warmup_start : TORCH_WARM_BEGIN * lr->peak;
}

static td_status plan_rate(job *j, int64_t steps)
{
    const td_train_opts *o = &j->o;
    td_lr_steps *p = &j->plan.by_step;
    const bool is_ssd320 = o->lr.rule == TD_LR_RULE_SSD320;
    *p = (td_lr_steps){ .lr = o->lr.peak, .steps = steps, .warmup = o->lr.warmup };
    if (!is_ssd320 && o->lr.rule != TD_LR_RULE_SSD300) {
        if (o->lr.multistep)
            TD_TRY_MSG(td_lr_drops_parse(o->lr.multistep, &p->drops), "--multistep");
        if (o->lr.rule == TD_LR_RULE_TORCHVISION)
            plan_torchvision(j);
        return TD_OK;
    }
    if (is_ssd320)
        return plan_ssd320(j, steps);
    if (o->lr.warmup < 0)
        p->warmup = 0;
    p->lr =
        o->lr.peak * (double)(o->batch.size * j->plan.batches_per_step * j->ranks.n) / SSD300_BATCH;
    TD_TRY_MSG(td_lr_drops_parse(o->lr.multistep ? o->lr.multistep : SSD300_DROPS, &p->drops),
               "--multistep");
    return TD_OK;
}

td_status td_train_plan(td_train_job *j)
{
    td_train_opts *o = &j->o;
    const int64_t batches = td_loader_batches(j->data.train_loader);
    td_lr_drops epochs;
    if (o->validation.epochs)
        TD_TRY_MSG(td_lr_drops_parse(o->validation.epochs, &epochs), "--evaluation");
    j->plan.planned_steps = o->length.num_steps > 0 ? o->length.num_steps : 0;
    if (j->plan.planned_steps) {
        const int64_t all =
            (j->plan.planned_steps * j->plan.batches_per_step + batches - 1) / batches;
        if (all > 1000000)
            return td_error(TD_EUSAGE,
                            "--num-train-steps: %lld steps are %lld epochs, wanted at most 1000000",
                            (long long)j->plan.planned_steps, (long long)all);
        o->length.epochs = (int)all;
    }
    return plan_rate(j,
                     j->plan.planned_steps ? j->plan.planned_steps : steps_of(j, o->length.epochs));
}

bool td_train_is_finished(const td_train_job *j)
{
    return j->plan.planned_steps && step_now(j) >= j->plan.planned_steps;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* epochs that this run still begins or continues */
static int64_t epochs_left(const job *j)
{
    const int64_t left = j->o.length.epochs - j->s.epoch, of_run = j->o.length.run_epochs;
    return of_run >= 0 ? least(left, of_run - j->run.epochs) : left;
}

int64_t td_train_batches_left(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    int64_t left = epochs_left(j) * td_loader_batches(j->data.train_loader) - j->s.iteration;
    if (o->profile.iterations > 0)
        left = least(left, epochs_left(j) * o->profile.iterations);
    if (o->length.run_steps >= 0)
        left = least(left, (o->length.run_steps - j->run.steps) * j->plan.batches_per_step);
    if (j->plan.planned_steps)
        left = least(left, (j->plan.planned_steps - step_now(j)) * j->plan.batches_per_step);
    return left > 0 ? left : 0;
}

/* --- validations ------------------------------------------------------------------------------ */

int td_train_eval_batch(const td_train_opts *o)
{
    return o->validation.batch_size ? o->validation.batch_size : o->batch.size;
}

int64_t td_train_eval_batches_left(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    int64_t batches = td_loader_batches(j->data.val_loader), n = epochs_left(j);
    if (o->profile.iterations > 0)
        batches = least(batches, o->profile.iterations);
    if (o->validation.count > 0)
        n = least(n, o->validation.count);
    return batches * (n > 1 ? n : 1);
}

bool td_train_is_validation_due(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    const int64_t epoch = j->s.epoch, n = o->length.epochs;
    td_lr_drops at = { 0 };
    if (!j->data.val_loader)
        return false;
    if (epoch + 1 >= n || (!o->validation.epochs && !o->validation.count))
        return true;
    if (o->validation.count)
        return (epoch + 1) * o->validation.count / n > epoch * o->validation.count / n;
    if (td_lr_drops_parse(o->validation.epochs, &at) != TD_OK) /* td_train_plan parsed it */
        td_error_clear();
    for (int i = 0; i < at.n; i++)
        if (at.epochs[i] == epoch)
            return true;
    return false;
}

/* --- learning rate ---------------------------------------------------------------------------- */

static td_lr_curve by_epoch(const job *j)
{
    const td_lr_opts *lr = &j->o.lr;
    return (td_lr_curve){ .schedule = lr->schedule,
                          .lr = lr->peak,
                          .end_lr = lr->end,
                          .warmup = lr->warmup,
                          .warmup_form = lr->warmup_form,
                          .warms_from = lr->warmup_start >= 0,
                          .warmup_start = lr->warmup_start,
                          .epochs = j->o.length.epochs,
                          .counts_warmup = !lr->decays_after_warmup,
                          .drops = lr->multistep ? &j->plan.by_step.drops : NULL,
                          .decay = lr->decay,
                          .decay_epochs = lr->decay_epochs,
                          .power = lr->power };
}

static td_lr_cycle cycle_of(const job *j)
{
    const td_lr_opts *lr = &j->o.lr;
    return (td_lr_cycle){ .lr = lr->peak,
                          .start = lr->cycle_start,
                          .div = lr->cycle_div,
                          .end_div = lr->cycle_end_div,
                          .form = lr->cycle_form,
                          .steps = j->plan.by_step.steps };
}

double td_train_momentum(const td_train_job *j)
{
    const td_lr_opts *lr = &j->o.lr;
    const td_optimizer_opts *o = &j->o.optimizer;
    const td_lr_cycle cycle = cycle_of(j);
    if (td_train_cycles_momentum(&j->o))
        return td_momentum_one_cycle(&cycle, lr->base_momentum, lr->max_momentum, step_now(j));
    return td_optimizer_is_adam(o->type) ? o->adam_beta1 : o->momentum;
}

static double rate(const job *j)
{
    td_lr_curve lr = by_epoch(j);
    const int64_t batches = td_loader_batches(j->data.train_loader);
    const int64_t step = step_now(j);
    switch (j->o.lr.rule) {
    case TD_LR_RULE_TF:
        return td_lr_at_step(&lr, step, (double)batches / (double)j->plan.batches_per_step,
                             j->o.batch.size * j->plan.batches_per_step * j->ranks.n);
    case TD_LR_RULE_SSD320:
        return td_lr_ssd320(&j->plan.by_step, step);
    case TD_LR_RULE_SSD300:
        return td_lr_ssd300(&j->plan.by_step, step, j->s.epoch);
    case TD_LR_RULE_TORCHVISION:
        lr.warmup = 0;
        return td_lr_torchvision(&j->plan.by_step, &lr, step, (int)j->s.epoch);
    case TD_LR_RULE_PYTORCH:
        break;
    }
    const td_lr_cycle cycle = cycle_of(j);
    return lr.schedule == TD_LR_ONE_CYCLE ? td_lr_one_cycle(&cycle, step)
                                          : td_lr_at(&lr, (int)j->s.epoch);
}

void td_train_set_rate(td_train_job *j)
{
    j->plan.lr_exact = rate(j);
    j->inputs.lr[0] = (float)j->plan.lr_exact;
    j->inputs.lr[1] = (float)td_train_momentum(j);
}

/* --- averages of weights ---------------------------------------------------------------------- */

td_weight_average td_train_weight_average(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    return (td_weight_average){ .rule = o->optimizer.ema_rule,
                                .decay = o->optimizer.ema,
                                .every = o->optimizer.ema_steps,
                                .warmup = o->lr.warmup,
                                .epochs = o->length.epochs,
                                .step_images = (double)(o->batch.size * j->plan.batches_per_step *
                                                        j->ranks.n) };
}
