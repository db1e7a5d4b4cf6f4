/*
 * train_open.c -- open a training job, in phases: td_train_open lists them
 *
 * All options, data and files are checked here, before the first step and, where possible, before
 * anything is written.
 */
#include "train/train_open.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/signals.h"
#include "inference/inputs.h"
#include "io/atomic.h"
#include "model/arch.h"
#include "model/own_graph.h"
#include "pass/amp.h"
#include "recipes/preset.h"
#include "recipes/stored_options.h"
#include "runtime/device.h"
#include "train/class_weights.h"
#include "train/task.h"
#include "train/train_program.h"
#include "train/train_ranks.h"
#include "train/train_rate.h"
#include "train/train_report.h"
#include "train/train_restart.h"
#include "train/train_settings.h"
#include "train/train_start.h"
#include "train/workspace.h"
#include "transport/rank_env.h"

typedef td_train_job job;

/* --- settings and ranks ----------------------------------------------------------------------- */

static td_status open_settings(job *j)
{
    TD_TRY(td_log_configure(j->o.log));
    j->files.may_overwrite = j->o.output.overwrite;
    j->o.output.overwrite = false; /* applies to this run only: not saved with its options */
    td_train_log_preset(&j->o);
    return td_train_settings_check(&j->o);
}

static td_status open_ranks(job *j)
{
    td_signals_catch();
    TD_TRY(td_train_join(j));
    td_train_divide_batch(j);
    td_set_threads(j->o.device.threads ? j->o.device.threads : td_comm_threads(j->ranks.comm));
    return td_train_restart_open(j);
}

static void choose_seed(job *j)
{
    td_train_opts *o = &j->o;
    j->start.resumed_seed = j->s.seed;
    if (j->start.has_seed && o->batch.seed < 0)
        o->batch.seed = (int64_t)j->s.seed;
    if (o->batch.seed < 0) {
        o->batch.seed =
            (int64_t)(((uint64_t)td_wall_s() << 16 ^ (uint64_t)td_now_ns()) & 0xffffffff);
        j->start.is_seed_from_clock = true;
    }
    j->s.seed = (uint64_t)o->batch.seed;
}

/* The seed: the option's, else the checkpoint's, else one from the clock; the same on all ranks. */
static td_status open_seed(job *j)
{
    choose_seed(j);
    if (j->o.input.val_split > 0 && j->start.has_seed && j->s.seed != j->start.resumed_seed)
        return td_error(TD_EUSAGE,
                        "--seed %llu would choose other images for --val-split than the "
                        "checkpoint's %llu: leave it out",
                        (unsigned long long)j->s.seed, (unsigned long long)j->start.resumed_seed);
    return td_train_share_seed(j);
}

/* --- network and data ------------------------------------------------------------------------- */

/*
 * Validation and the saved files use one image size: --image-size, or without it the last size of
 * the schedule.
 */
static td_status open_sizes(job *j)
{
    td_train_opts *o = &j->o;
    const td_sizes *s = &j->data.sizes;
    TD_TRY(td_sizes_parse(o->batch.image_size_schedule, &j->data.sizes));
    if (s->n && (o->model.model || o->model.model_text))
        return td_error(TD_EUSAGE, "--image-size-schedule requires --arch: a network from a graph "
                                   "file has a fixed image size");
    if (s->n &&
        (o->input.data_backend == TD_DATA_TENSORS || o->input.data_backend == TD_DATA_SYNTHETIC))
        return td_error(TD_EUSAGE, "--image-size-schedule requires a folder of images: these data "
                                   "have a fixed image size");
    for (int i = s->n - 1; i >= 0 && s->epoch[i] >= o->length.epochs; i--)
        td_log(TD_LOG_WARN, "train",
               "image size %d begins at epoch %lld, the training has %d epochs", s->size[i],
               (long long)s->epoch[i], o->length.epochs);
    if (s->n && !o->model.image_size)
        o->model.image_size = s->size[s->n - 1];
    j->data.is_size_default = !o->model.image_size && !o->model.model && !o->model.model_text;
    return td_model_resolve_images(&o->model);
}

/*
 * Read the graph file once: every checkpoint stores the graph that is trained, even if the file
 * changes or disappears.
 */
static td_status read_own_graph(job *j)
{
    if (!j->o.model.model || j->o.model.model_text)
        return TD_OK;
    TD_TRY(td_model_file_text(&j->o.model, &j->files.graph_text));
    j->o.model.model_text = j->files.graph_text;
    return TD_OK;
}

static td_status open_network(job *j)
{
    TD_TRY(open_sizes(j));
    TD_TRY(read_own_graph(j));
    j->task = td_model_detector(&j->o.model) ? &td_task_detect : &td_task_classify;
    j->s.detects = j->task->detects;
    return j->task->check ? j->task->check(&j->o) : TD_OK;
}

static td_status open_data(job *j)
{
    td_log_backend(&j->o.input);
    return j->task->open_data(j);
}

/* --- device and schedule ---------------------------------------------------------------------- */

/*
 * The chosen precision replaces the request to choose, in the saved options too: a resumed run must
 * not measure again and choose another one.
 */
static td_status choose_precision(job *j)
{
    j->o.amp = td_train_amp(&j->o);
    j->o.compat.fp16 = false;
    j->plan.uses_environment = !td_amp_is_off(&j->o.amp) || j->o.start.resume;
    TD_TRY(td_amp_resolve(&j->o.amp, j->dev));
    TD_TRY(td_train_share_precision(j));
    j->o.amp.amp = false; /* the resolved precision is saved, not this request */
    if (j->ranks.comm && j->o.device.tune == TD_TUNE_FULL) {
        td_log(TD_LOG_WARN, "train",
               "--tune full requires one rank: run it once with one rank to fill the cache, then "
               "use --tune cached");
        j->o.device.tune = TD_TUNE_CACHED;
    }
    TD_TRY(td_device_join(j->dev, j->ranks.comm));
    return td_device_tune(j->dev, j->o.device.tune, j->o.device.tune_cache);
}

/* The loss scale: the options', or for a resumed run the checkpoint's. */
static void choose_scaler(job *j)
{
    const td_scaler saved = j->s.scaler;
    const bool is_resolved = j->o.start.resume && saved.kind == TD_SCALER_NONE;
    const td_dtype half = td_amp_dtype(&j->o.amp);
    td_scaler_choose(&j->o, half, j->plan.uses_environment && !is_resolved, &j->s.scaler);
    if (j->o.start.resume)
        td_scaler_resume(&j->s.scaler, &saved);
    if (j->o.loss_scaling.interval > 0 && j->s.scaler.kind != TD_SCALER_DYNAMIC)
        td_log(TD_LOG_WARN, "train",
               "the loss scale is fixed: --loss-scale-interval has no effect");
}

/* Set the number of batches per optimizer step. */
static td_status plan_accumulation(job *j)
{
    const int64_t n = (int64_t)j->o.batch.size * j->ranks.n, of = j->o.batch.step_size;
    j->plan.batches_per_step = of > 0 ? of / n : 1;
    j->s.step.n_batches = j->plan.batches_per_step;
    j->s.ranks = j->ranks.n;
    if (of < 0)
        return TD_OK;
    if (of < n)
        return td_error(TD_EUSAGE,
                        "--optimizer-batch-size: %lld is less than one batch on all ranks, %d x %d",
                        (long long)of, j->ranks.n, j->o.batch.size);
    if (of % n)
        td_log(TD_LOG_WARN, "train",
               "--optimizer-batch-size %lld is not a multiple of the batch of %lld: a step has "
               "%lld images",
               (long long)of, (long long)n, (long long)(j->plan.batches_per_step * n));
    return TD_OK;
}

static td_status open_mixup(job *j)
{
    if (j->o.loss.mixup <= 0 && j->o.loss.cutmix <= 0)
        return TD_OK;
    j->data.mixup = (td_mixup){ .mode = j->o.loss.mixup_mode,
                                .alpha = j->o.loss.mixup,
                                .cut_alpha = j->o.loss.cutmix,
                                .cut_chance = j->o.loss.switch_prob,
                                .batch = j->o.batch.size,
                                .seed = j->s.seed };
    return td_mixup_open(&j->data.mixup, j->o.loss.mixup_file);
}

/* Open all that defines a step: loss scale, number of batches, learning rate, mixup. */
static td_status open_schedule(job *j)
{
    choose_scaler(j);
    TD_TRY(plan_accumulation(j));
    TD_TRY(td_train_plan(j));
    if (j->o.loss.class_weights)
        TD_TRY(td_class_weights_new(j->o.loss.class_weights, j->data.train_set,
                                    j->o.model.num_classes, &j->data.class_weights));
    if (j->o.loss.positive_weights)
        TD_TRY(td_positive_weights_new(j->o.loss.positive_weights, j->data.train_set,
                                       j->o.model.num_classes, &j->data.positive_weights));
    return open_mixup(j);
}

/* --- files and observers ---------------------------------------------------------------------- */

/* Check that all ranks run the same training; they start from rank 0's parameters. */
static td_status open_agreement(job *j)
{
    const td_train_opts whole = td_train_undivided(j);
    TD_TRY(td_train_options_json(&whole, &j->files.config));
    return td_train_agree(j);
}

/* Clear the paths and formats of all output that only rank 0 writes. */
static void disable_outputs(job *j)
{
    td_train_opts *o = &j->o;
    td_free(j->files.path[TD_PATH_REPORT]);
    j->files.path[TD_PATH_REPORT] = NULL;
    o->output.final_weights = o->output.train_logits = o->profile.amp_stats = o->profile.trace =
        NULL;
    o->metrics.tensorboard = o->metrics.csv = o->metrics.csv_iterations = NULL;
    o->report.log_format = TD_LOG_FORMAT_PLAIN;
}

static td_status open_files(job *j)
{
    const td_train_opts *o = &j->o;
    if (j->ranks.rank > 0)
        disable_outputs(j);
    TD_TRY(td_workspace_open(j));
    TD_TRY(td_output_check(o->output.final_weights));
    TD_TRY(td_output_check(o->output.train_logits));
    if (td_train_writes(j))
        TD_TRY(td_output_check(j->files.path[TD_PATH_CHECKPOINT]));
    return j->ranks.rank == 0 ? td_bad_list_open(&j->files.bad, j->files.path[TD_PATH_BAD],
                                                 o->start.resume != NULL)
                              : TD_OK;
}

static td_status open_report(job *j)
{
    TD_TRY(td_train_report_open(j));
    if (td_train_writes(j) && j->s.epoch < j->o.length.epochs) /* not at the end */
        TD_TRY(td_workspace_write_config(j));
    return TD_OK;
}

static td_status open_observers(job *j)
{
    const td_train_opts *o = &j->o;
    char model[200], what[256];
    td_model_name(&o->model, model, sizeof model);
    snprintf(what, sizeof what, "train %s", model);
    TD_TRY(td_amp_stats_open(o->profile.amp_stats, o->profile.amp_stats_every,
                             td_amp_precision_name(&o->amp), j->program, &j->observers.amp_stats));
    if (o->profile.iterations > 0)
        TD_TRY(td_profile_new(j->program, true, &j->observers.profile));
    return td_trace_open(o->profile.trace, what, j->program, &j->observers.trace);
}

/* --- the phases ------------------------------------------------------------------------------- */

td_status td_train_open(td_train_job *j)
{
    TD_TRY(open_settings(j));
    TD_TRY(open_ranks(j));
    TD_TRY(td_train_ticker_start(j));
    td_train_note_work(j, TD_WORK_OPEN);
    TD_TRY(td_train_start_open(j)); /* checkpoint or weights: they decide the network */
    TD_TRY(td_workspace_name(j));
    TD_TRY(open_seed(j));
    TD_TRY(open_network(j));
    TD_TRY(td_device_open(j->o.device.name, &j->dev)); /* it decides what loaders give */
    td_device_winograd(j->dev, j->o.device.winograd);
    if (j->o.batch.is_reproducible)
        td_device_reproducible(j->dev);
    TD_TRY(open_data(j));
    TD_TRY(choose_precision(j));
    TD_TRY(open_schedule(j));
    TD_TRY(td_train_program_open(j));
    TD_TRY(td_train_start_load(j)); /* weights into the program */
    TD_TRY(open_agreement(j));
    TD_TRY(open_files(j)); /* from here on files are written */
    TD_TRY(open_report(j));
    td_train_restart_shorten(j);
    td_train_restart_record(j, false);
    TD_TRY(open_observers(j));
    td_train_settings_log(j);
    return TD_OK;
}

void td_train_release(td_train_job *j)
{
    td_ticker_stop(j->log.ticker);
    if (j->task && j->task->release)
        j->task->release(j);
    td_lock_close(j->files.lock);
    td_mixup_close(&j->data.mixup);
    td_free(j->data.class_weights);
    td_free(j->data.positive_weights);
    td_map_release(&j->compiled.groups.decayed);
    td_tracked_release(&j->tracked);
    td_evaluator_free(j->eval.evaluator);
    td_profile_free(j->observers.profile);
    td_program_free(j->program);
    td_device_close(j->dev);
    td_loader_free(j->data.train_loader);
    td_loader_free(j->data.val_loader);
    td_dataset_free(j->data.train_set);
    td_dataset_free(j->data.val_set);
    td_texts_free(j->start.names, (size_t)j->start.n_names);
    td_tensors_free(j->start.tensors);
    for (int i = 0; i < TD_PATHS; i++)
        td_free(j->files.path[i]);
    td_free(j->files.folder);
    td_bad_list_release(&j->files.bad);
    td_run_sums_release(&j->log.sums);
    td_gather_release(&j->eval.outcomes);
    td_free(j->files.graph_text);
    td_free(j->start.frozen_before);
    td_free(j->data.class_names);
    td_text_release(&j->files.config);
}
