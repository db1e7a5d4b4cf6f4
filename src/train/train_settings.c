/*
 * train_settings.c -- checks and logs the settings of a training job
 */
#include "train/train_settings.h"

#include <stdio.h>

#include "base/log.h"
#include "base/machine.h"
#include "model/arch.h"
#include "optim/memory_limit.h"
#include "pass/amp.h"
#include "recipes/train_options.h"
#include "runtime/device.h"
#include "train/train_program.h"
#include "train/train_rate.h"

typedef td_train_job job;

td_status td_train_settings_check(const td_train_opts *o)
{
    TD_TRY(td_train_check_training(o));
    const bool counts_epochs = o->lr.rule == TD_LR_RULE_PYTORCH || o->lr.rule == TD_LR_RULE_TF;
    if (counts_epochs && o->lr.warmup > o->length.epochs) /* a preset's short benchmark */
        td_log(TD_LOG_WARN, "train",
               "all %d epochs are part of the %d warm-up epochs: the learning rate stays below its "
               "peak",
               o->length.epochs, o->lr.warmup);
    return TD_OK;
}

/* --- logged ----------------------------------------------------------------------------------- */

static void log_seed(const job *j)
{
    if (j->start.is_seed_from_clock)
        td_log(TD_LOG_INFO, "train", "seed %lld, from the clock", (long long)j->o.batch.seed);
    if (j->start.has_seed && j->s.seed != j->start.resumed_seed)
        td_log(TD_LOG_WARN, "train",
               "seed %llu differs from the checkpoint's %llu: the results will differ",
               (unsigned long long)j->s.seed, (unsigned long long)j->start.resumed_seed);
}

static void log_groups(const job *j)
{
    const size_t n = j->compiled.groups.decayed.n;
    if (j->o.optimizer.type != TD_OPTIMIZER_SGD && j->o.optimizer.nesterov)
        td_log(TD_LOG_WARN, "train", "ignoring --nesterov, which only sgd supports");
    if (td_report_has_text(j->log.report)) /* which already contains them */
        return;
    if (j->o.batch.step_size >= 0)
        td_log(TD_LOG_INFO, "train",
               "batch size multiplier %lld: the weights are updated every %lld batches",
               (long long)j->plan.batches_per_step, (long long)j->plan.batches_per_step);
    if (j->o.optimizer.weight_decay <= 0)
        return;
    if (j->o.optimizer.decays_bn)
        td_log(TD_LOG_INFO, "train", "weight decay applies to all %zu parameters", n);
    else
        td_log(TD_LOG_INFO, "train",
               "weight decay applies to %zu parameters, not to %d parameters of batch norm%s", n,
               j->compiled.groups.n_undecayed, j->s.detects ? " and biases" : "");
}

/* The reference uses the share (e + 1) / warmup of the learning rate in epoch e. */
static void log_warmup(const job *j)
{
    if (j->o.lr.warmup == 1 && j->o.lr.rule == TD_LR_RULE_PYTORCH && j->o.lr.warmup_start < 0)
        td_log(TD_LOG_INFO, "train",
               "--warmup 1 has no effect: epoch e of W warm-up epochs uses (e + 1) / W of the "
               "learning rate, so use --warmup 2 or more");
}

static void log_frozen(const job *j)
{
    const td_freeze_counts *f = &j->compiled.frozen;
    if (f->n)
        td_log(TD_LOG_INFO, "train", "frozen: %d of %d weights, %lld of %lld values", f->n, f->of,
               (long long)f->n_values, (long long)f->of_values);
    if (f->n_norms)
        td_log(TD_LOG_INFO, "train", "frozen: the running statistics of %d batch norms",
               f->n_norms);
    if (f->n && !j->o.start.resume && !j->o.start.pretrained_weights)
        td_log(TD_LOG_WARN, "train",
               "--freeze without --pretrained-weights: frozen weights keep their random initial "
               "values");
}

static void log_precision(const job *j)
{
    static const char *const sets[] = { "tf", "pytorch", "apex", "nvidia" };
    const td_scaler *s = &j->s.scaler;
    const td_dtype half = td_amp_dtype(&j->o.amp);
    if (half != TD_DT_F32)
        td_log(TD_LOG_INFO, "train", "mixed precision with %s", td_amp_precision_name(&j->o.amp));
    if (s->kind == TD_SCALER_STATIC)
        td_log(TD_LOG_INFO, "train", "fixed loss scale %g", s->scale);
    else if (s->kind == TD_SCALER_DYNAMIC)
        td_log(TD_LOG_INFO, "train",
               "dynamic loss scale %g (rule %s), doubled after %lld good steps", s->scale,
               sets[s->rule], (long long)s->interval);
    else if (half == TD_DT_F16)
        td_log(TD_LOG_WARN, "train",
               "f16 without loss scaling: gradients below 3e-8 become zero; use "
               "--static-loss-scale 128 or --dynamic-loss-scale");
}

static void log_averages(const td_train_job *j)
{
    const td_weight_average a = td_train_weight_average(j);
    if (a.decay < 0 || a.rule != TD_EMA_TORCHVISION)
        return;
    td_log(TD_LOG_INFO, "train",
           "averages of the weights: every %d steps with a decay of %.7g, %g adjusted to %g images "
           "of a step and %d epochs",
           a.every, td_weight_average_decay(&a), a.decay, a.step_images, a.epochs);
}

/* of use to write the weights that a training begins with */
static void log_nothing(const td_train_opts *o)
{
    if (o->length.run_steps == 0 || o->length.run_epochs == 0)
        td_log(TD_LOG_WARN, "train", "--run-%s 0: nothing is trained in this run",
               o->length.run_steps == 0 ? "iters" : "epochs");
}

void td_train_settings_log(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    char name[256];
    td_model_name(&o->model, name, sizeof name);
    td_memory_report m = td_program_memory(j->program);
    td_log(TD_LOG_INFO, "train", "%s, %d classes, %lld images of %d x %d, batch %d, %d threads",
           name, o->model.num_classes, (long long)td_dataset_count(j->data.train_set),
           o->model.image_size, o->model.image_size, o->batch.size, td_threads());
    if (j->start.is_arch_from_file)
        td_log(TD_LOG_INFO, "train", "using the network stored in '%s' (--arch not given)",
               o->start.pretrained_weights);
    td_log(TD_LOG_INFO, "train", "parameters and momentum %.1f MB, activations %.1f MB",
           (double)m.param_bytes / 1e6, (double)m.activation_bytes / 1e6);
    if (j->ranks.rank == 0 && j->dev->memory != &td_gpu_memory)
        td_memory_warn(td_train_planned_bytes(j), td_comm_local_size(j->ranks.comm),
                       td_memory_available_bytes());
    log_seed(j);
    log_precision(j);
    log_groups(j);
    log_warmup(j);
    log_averages(j);
    log_frozen(j);
    log_nothing(o);
    td_log(TD_LOG_DEBUG, "train", "settings %s", td_text_get(&j->files.config));
    if (o->start.resume)
        td_log(TD_LOG_INFO, "train", "resumed '%s' at epoch %lld, iteration %lld", o->start.resume,
               (long long)j->s.epoch, (long long)j->s.iteration);
}
