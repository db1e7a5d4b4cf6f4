/*
 * train.c -- the training job
 *
 *     open     checkpoint or weights -> data sets -> program -> loaders        train_open.c
 *     step     bind -> run -> observe -> log
 *     epoch    step, step, step ... -> validate -> report -> save
 *     close    final weights, report
 *
 * A signal ends the loop after the current step; the checkpoint then holds the position in the
 * epoch.  td_run_state and the parameters determine the next step bit by bit.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/paths.h"
#include "comm/join.h"
#include "model/arch.h"
#include "optim/training_graph.h"
#include "optim/weight_average.h"
#include "runtime/device.h"
#include "train/task.h"
#include "train/train_open.h"
#include "train/train_program.h"
#include "train/train_ranks.h"
#include "train/train_rate.h"
#include "train/train_report.h"
#include "train/train_restart.h"
#include "train/train_save.h"
#include "train/workspace.h"

typedef td_train_job job;

/* --- one step --------------------------------------------------------------------------------- */

/* One batch and its results. */
typedef struct {
    int64_t begin_ns;
    double data_s;    /* time waited for the batch */
    double compute_s; /* from bind to the loss */
    double loss;      /* mean of all ranks */
    bool is_last;     /* last batch of an optimizer step */
    bool is_skipped;  /* last batch, and the gradients overflowed: the step was not applied */
} batch_step;

static td_status write_train_logits(const job *j)
{
    td_type type;
    td_tensors *t;
    const void *logits = td_program_output(j->program, "logits", &type);
    TD_TRY(td_tensors_new(&t));
    td_status st = td_tensors_add(t, "logits", type.dtype, type.rank, type.dim, logits);
    if (st == TD_OK)
        st = td_tensors_write(t, j->o.output.train_logits);
    td_tensors_free(t);
    return st;
}

/* Too many steps were skipped in a row: an error that names the first non-finite tensor. */
static td_status skips_failed(job *j)
{
    char where[300];
    const td_scaler *s = &j->s.scaler;
    TD_TRY(td_program_find_nonfinite(j->program, where, sizeof where));
    return td_error(
        TD_ENUMERIC,
        "epoch %lld, iteration %lld: %lld steps in a row were skipped, the last at loss scale %g, "
        "where %s was the first tensor that is not finite; none of them was saved",
        (long long)j->s.epoch, (long long)j->s.iteration, (long long)s->skipped_in_row,
        (double)j->inputs.scale, *where ? where : "nothing");
}

/* Log that the last step, which ended at iteration j->s.iteration, was skipped; check the limit. */
static td_status handle_skipped_step(job *j)
{
    const td_scaler *s = &j->s.scaler;
    long long epoch = j->s.epoch, iteration = j->s.iteration;
    if (j->o.loss_scaling.max_skips && s->skipped_in_row >= j->o.loss_scaling.max_skips)
        return skips_failed(j);
    if (s->kind == TD_SCALER_DYNAMIC && s->rule == TD_SCALER_APEX)
        td_log(TD_LOG_INFO, "train",
               "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to %.17g%s",
               s->scale, s->scale == floor(s->scale) ? ".0" : "");
    else
        td_log(TD_LOG_INFO, "train",
               "epoch %lld, iteration %lld: gradients overflow at loss scale %g, step skipped; the "
               "next loss scale is %g",
               epoch, iteration, (double)j->inputs.scale, s->scale);
    return TD_OK;
}

static td_status loss_failed(const job *j, double loss)
{
    return td_error(TD_ENUMERIC,
                    "epoch %lld, iteration %lld: the loss is %s; this step was not saved",
                    (long long)j->s.epoch, (long long)j->s.iteration + 1,
                    isnan(loss) ? "not a number" : "infinite");
}

/* Did the program apply the last step? */
static bool was_finite(const job *j)
{
    const float *finite = td_program_output(j->program, TD_OUTPUT_FINITE, NULL);
    return !finite || *finite > 0;
}

/* Is this the last batch of an optimizer step? */
static bool is_last_batch(const job *j)
{
    return j->s.step.done + 1 == j->plan.batches_per_step;
}

/* The factor of the weight averages for this batch. */
static double ema_factor(const job *j)
{
    const td_weight_average o = td_train_weight_average(j);
    const int64_t batches = td_loader_batches(j->data.train_loader);
    const td_weight_average_place at = { .batch = j->s.epoch * batches + j->s.iteration,
                                         .epoch = j->s.epoch,
                                         .step = j->s.iteration / j->plan.batches_per_step,
                                         .is_last = is_last_batch(j) };
    return td_weight_average_factor(&o, &at);
}

/* 1 - beta^t, t being the number of the step: one more than steps were applied. */
static float bias_rest(const job *j, double beta)
{
    return (float)(1 - pow(beta, (double)(j->s.steps + 1)));
}

/* Set the inputs of the program that are not data: loss scale, averages, dropout, mixup. */
static td_status set_scalars(job *j)
{
    const double m = ema_factor(j), before = j->s.step.ema_before;
    j->inputs.scale = td_scaler_scale(&j->s.scaler);
    j->inputs.inverse = td_scaler_inverse(&j->s.scaler);
    if (j->plan.batches_per_step * j->ranks.n > 1)
        j->inputs.inverse /= (float)(j->plan.batches_per_step * j->ranks.n);
    j->inputs.rest1 = bias_rest(j, td_train_momentum(j));
    j->inputs.rest2 = bias_rest(j, j->o.optimizer.adam_beta2);
    j->inputs.update = is_last_batch(j) ? 1 : 0;
    j->inputs.ema[0] = (float)m;
    j->inputs.ema[1] = (float)(1 - m);
    j->inputs.ema[2] = (float)before;
    j->inputs.ema[3] = (float)(1 - before);
    /* Each rank draws for a batch number of its own, as one rank that accumulates these batches
       does. */
    const int64_t batch = j->s.iteration * j->ranks.n + j->ranks.rank;
    j->inputs.random[0] = (int64_t)j->s.seed;
    j->inputs.random[1] = j->s.epoch;
    j->inputs.random[2] = batch * j->o.batch.size;
    if (j->data.mixup.batch == 0)
        return TD_OK;
    j->data.mixup.size = j->compiled.size;
    return td_mixup_draw(&j->data.mixup, j->s.epoch, batch,
                         j->s.epoch * td_loader_batches(j->data.train_loader) * j->ranks.n + batch);
}

/*
 * Count a batch.  Batches are counted even when their step is skipped, and the learning rate
 * follows them; steps and losses are counted only when the step is applied.  With loss scaling, the
 * norms have tracked a step's batches only after it was applied.
 */
static void count_step(job *j, const batch_step *b)
{
    td_step_state *st = &j->s.step;
    const bool is_sure = j->s.scaler.kind == TD_SCALER_NONE;
    if (j->o.optimizer.ema >= 0)
        st->ema_before *= ema_factor(j);
    j->s.iteration++;
    j->run.batches++;
    j->run.epoch_batches++;
    j->run.data_s += b->data_s;
    j->run.compute_s += b->compute_s;
    st->done++;
    st->in_epoch++;
    st->loss_sum += b->loss;
    const int64_t n = j->plan.batches_per_step;
    j->s.batches_tracked += is_sure ? 1 : b->is_last && !b->is_skipped ? n : 0;
    if (!b->is_last)
        return;
    if (b->is_skipped) {
        j->s.epoch_skipped += st->in_epoch;
        j->run.skipped++;
    } else {
        j->s.steps++;
        j->s.loss_sum += st->loss_sum;
        j->run.steps++;
    }
    *st = (td_step_state){ .n_batches = st->n_batches, .ema_before = 1 };
}

/* Bind the batch and the scalars to the program's inputs. */
static td_status bind(job *j, const td_batch *batch)
{
    if (batch->height != j->compiled.size || batch->width != j->compiled.size)
        return td_error(TD_ESHAPE, "the batch has images of %d x %d, the program expects %d x %d",
                        batch->width, batch->height, j->compiled.size, j->compiled.size);
    TD_TRY(set_scalars(j));
    return j->task->bind(j, batch);
}

static td_status run_program(job *j)
{
    const td_amp_place place = { j->run.batches + 1, j->s.epoch, j->s.iteration + 1,
                                 (double)j->inputs.scale };
    td_amp_stats_begin(j->observers.amp_stats, j->program, &place);
    td_status st = td_program_start(j->program);
    if (st == TD_OK)
        st = td_program_send_ahead(j->program, "images", td_loader_peek(j->data.train_loader));
    if (st == TD_OK)
        st = td_program_finish(j->program);
    return td_amp_stats_end(j->observers.amp_stats, j->program, st);
}

/* Note the norm of the step's gradients for the report. */
static void note_norm(job *j, bool is_last)
{
    const float *norm = td_program_output(j->program, TD_OUTPUT_NORM, NULL);
    if (norm && is_last)
        j->log.grad_norm = (double)*norm;
}

/* Read the results of the program: the mean loss of all ranks, and whether the step was applied. */
static td_status read_result(job *j, batch_step *b)
{
    double loss = (double)*(const float *)td_program_output(j->program, "loss", NULL);
    TD_TRY(td_train_share_step(j, &loss));
    b->loss = isnan(loss) ? (double)NAN : loss; /* a NaN without a sign */
    if (!isfinite(b->loss) && j->s.scaler.kind == TD_SCALER_NONE)
        return loss_failed(j, b->loss);
    b->compute_s = (double)(td_now_ns() - b->begin_ns) * 1e-9;
    note_norm(j, b->is_last);
    b->is_skipped = b->is_last && td_scaler_step(&j->s.scaler, was_finite(j));
    return b->is_last ? td_train_compare_weights(j) : TD_OK;
}

/* Record the last run of the program for --prof, --trace and --train-logits. */
static td_status observe(job *j, const td_batch *batch, const batch_step *b)
{
    td_profile_step(j->observers.profile, b->data_s);
    td_trace_step(j->observers.trace, &(td_trace_place){ .step = j->run.batches + 1,
                                                         .epoch = j->s.epoch,
                                                         .iteration = j->s.iteration + 1,
                                                         .begin_ns = b->begin_ns,
                                                         .end_ns = td_now_ns(),
                                                         .wait_ns = (int64_t)(b->data_s * 1e9),
                                                         .decode_s = batch->decode_s,
                                                         .loss = b->loss });
    return j->run.batches == 0 && j->o.output.train_logits ? write_train_logits(j) : TD_OK;
}

static td_status log_step(job *j, const batch_step *b)
{
    if (b->is_skipped)
        TD_TRY(handle_skipped_step(j));
    return td_train_report_step(j, b->loss, b->data_s, b->compute_s);
}

/* `is_applied`: this was the last batch of an optimizer step, and the step was not skipped. */
static td_status step(job *j, const td_batch *batch, double data_s, bool *is_applied)
{
    batch_step b = { .begin_ns = td_now_ns(), .data_s = data_s, .is_last = is_last_batch(j) };
    TD_TRY(bind(j, batch));
    TD_TRY(run_program(j));
    TD_TRY(read_result(j, &b));
    TD_TRY(observe(j, batch, &b));
    count_step(j, &b);
    *is_applied = b.is_last && !b.is_skipped;
    return log_step(j, &b);
}

/* --- one epoch -------------------------------------------------------------------------------- */

static bool wants_to_stop(job *j)
{
    if (td_train_may_stop(j)) {
        j->out->was_stopped = true;
        j->run.is_over = true;
    }
    if (j->o.length.run_steps >= 0 && j->run.steps >= j->o.length.run_steps)
        j->run.is_over = true;
    return j->run.is_over;
}

static td_status train_batches(job *j, bool *is_whole)
{
    const td_batch *b;
    bool is_applied;
    int64_t cap = j->o.profile.iterations > 0 ? j->o.profile.iterations : INT64_MAX;
    while (!wants_to_stop(j)) {
        if (j->s.iteration >= cap || td_train_is_finished(j)) {
            *is_whole = true;
            break;
        }
        int64_t t0 = td_now_ns();
        td_train_note_work(j, TD_WORK_DATA);
        td_status st = td_loader_next(j->data.train_loader, &b);
        if (st == TD_EEND) {
            *is_whole = true;
            break;
        }
        TD_TRY(st);
        td_train_set_rate(j);
        td_train_note_work(j, TD_WORK_STEP);
        TD_TRY(step(j, b, (double)(td_now_ns() - t0) * 1e-9, &is_applied));
        td_progress_step(&j->log.progress, j->run.epoch_batches,
                         j->run.epoch_batches * j->o.batch.size);
        if (is_applied && j->o.output.checkpoint_every &&
            j->s.steps % j->o.output.checkpoint_every == 0)
            TD_TRY(td_train_save(j));
    }
    return TD_OK;
}

static td_status train_epoch(job *j, bool *is_whole)
{
    TD_TRY(td_train_program_resize(j));
    td_train_set_rate(j);
    j->run.data_s = j->run.compute_s = 0;
    j->run.epoch_batches = 0;
    *is_whole = false;
    td_train_progress_begin(j);
    const td_status st = train_batches(j, is_whole);
    td_progress_end(&j->log.progress);
    td_train_note_work(j, TD_WORK_NONE);
    return st;
}

static td_status evaluate(job *j, const char *prefix, td_eval_result *v)
{
    const int64_t begin_ns = td_now_ns();
    td_train_note_validation(j);
    TD_TRY(j->task->evaluate(j, prefix, v));
    TD_TRY(td_train_share_stop(j, &v->was_stopped));
    td_train_note_work(j, TD_WORK_NONE);
    td_trace_span(j->observers.trace, *prefix ? "validate the averages" : "validate", begin_ns);
    return TD_OK;
}

/* Mean loss of the epoch's applied steps; NaN if all were skipped. */
static double mean_loss(const td_run_state *s)
{
    const int64_t n = s->iteration - s->epoch_skipped - s->step.in_epoch;
    return n ? s->loss_sum / (double)n : s->iteration ? (double)NAN : 0;
}

/* If a step continues in the next epoch, count its batches so far in this one. */
static void count_unfinished(td_run_state *s)
{
    if (isfinite(s->step.loss_sum))
        s->loss_sum += s->step.loss_sum;
    else
        s->epoch_skipped += s->step.in_epoch;
    s->step.loss_sum = 0;
    s->step.in_epoch = 0;
}

static void warn_nonfinite(int64_t epoch, const char *whose, const td_eval_result *v)
{
    if (v->counts.n_nonfinite)
        td_log(TD_LOG_WARN, "train",
               "epoch %lld: the validation loss%s is not finite for %lld of %lld images; these "
               "weights are not saved as the best",
               (long long)epoch, whose, (long long)v->counts.n_nonfinite, (long long)v->counts.n);
}

/* An interrupted validation has no result; the job's last one is that of an earlier epoch. */
static void discard_validation(job *j)
{
    td_gather_clear(&j->eval.outcomes);
    td_log(TD_LOG_INFO, "train",
           "epoch %lld: the validation was interrupted, its metrics are discarded",
           (long long)j->s.epoch);
}

/* The validation of an epoch. */
typedef struct {
    bool is_due, is_best, has_averages;
    td_eval_result trained, averages;
} validation;

static td_status validate(job *j, validation *v)
{
    v->has_averages = j->o.optimizer.ema >= 0;
    TD_TRY(evaluate(j, "", &v->trained));
    if (v->has_averages && !v->trained.was_stopped) {
        TD_TRY(evaluate(j, TD_EMA_PREFIX, &v->averages));
        v->trained.was_stopped = v->averages.was_stopped;
    }
    if (v->trained.was_stopped) {
        discard_validation(j);
        return TD_OK;
    }
    j->task->keep_scores(j, &v->trained);
    warn_nonfinite(j->s.epoch, "", &v->trained); /* such weights are never the best */
    if (v->has_averages)
        warn_nonfinite(j->s.epoch, " of the averages", &v->averages);
    v->is_best = !v->trained.counts.n_nonfinite && j->s.last > j->s.best;
    j->s.n_without_best = v->is_best ? 0 : j->s.n_without_best + 1;
    return TD_OK;
}

/* Combine the statistics of all ranks and compute the mean loss of the epoch. */
static td_status sum_epoch(job *j)
{
    TD_TRY(td_train_log_stragglers(j));
    TD_TRY(td_train_share_sums(j));
    TD_TRY(td_train_share_statistics(j));
    count_unfinished(&j->s);
    j->s.last_train_loss = mean_loss(&j->s);
    return TD_OK;
}

/* Move on to the next epoch; files saved from here on hold its number. */
static void count_epoch(job *j, bool is_best)
{
    if (is_best) {
        j->s.best = j->s.last;
        memcpy(j->s.best_boxes, j->eval.boxes, sizeof j->s.best_boxes);
        j->s.best_epoch = j->s.epoch;
    }
    j->s.epoch++;
    j->s.iteration = 0;
    j->s.loss_sum = 0;
    j->s.epoch_skipped = 0;
}

/* The checkpoint is written last: if it exists, the other files of the epoch do too. */
static td_status save_epoch(job *j, int64_t epoch, bool is_best)
{
    if (is_best)
        TD_TRY(td_train_save_best(j));
    TD_TRY(td_train_save_epoch(j, epoch));
    return td_train_save(j);
}

/* The averages' scores of the last validation of this run, for its result. */
static void keep_averages(const td_eval_result *v, td_train_result *out)
{
    out->has_ema = true;
    if (v->is_multi_label) {
        out->ema_map = v->multi.map;
        out->ema_micro_f1 = v->multi.micro_f1;
    } else {
        out->ema_top1 = td_percent(v->counts.n_top1, v->counts.n);
        out->ema_topk = td_percent(v->counts.n_topk, v->counts.n);
    }
    out->ema_loss = td_mean_loss(&v->counts);
    memcpy(out->ema_boxes, v->boxes, sizeof out->ema_boxes);
}

static td_status end_epoch(job *j)
{
    const int64_t epoch = j->s.epoch;
    validation v = { .is_due = td_train_is_validation_due(j) };
    TD_TRY(sum_epoch(j));
    const int64_t n_skipped =
        (j->s.epoch_skipped + j->plan.batches_per_step - 1) / j->plan.batches_per_step;
    if (v.is_due)
        TD_TRY(validate(j, &v));
    if (v.trained.was_stopped) { /* the resumed run validates again: this epoch is not finished */
        j->run.is_over = j->out->was_stopped = true;
        return td_train_save(j);
    }
    TD_TRY(
        td_bad_list_gather(&j->files.bad, j->ranks.comm, j->data.train_loader, j->data.val_loader));
    count_epoch(j, v.is_best);
    if (v.has_averages)
        keep_averages(&v.averages, j->out);
    TD_TRY(td_train_report_epoch(j, v.is_due ? &v.trained : NULL,
                                 v.has_averages ? &v.averages : NULL, n_skipped));
    TD_TRY(save_epoch(j, epoch, v.is_best));
    return td_loader_start_epoch(j->data.train_loader, j->s.epoch);
}

static bool is_training_over(job *j)
{
    const td_train_opts *o = &j->o;
    if (o->validation.patience > 0 && j->s.n_without_best >= o->validation.patience) {
        td_log(TD_LOG_INFO, "train", "no new best in %d validations: stopping early",
               o->validation.patience);
        return true;
    }
    return j->run.is_over || j->s.epoch >= o->length.epochs ||
           (o->length.run_epochs >= 0 && j->run.epochs >= o->length.run_epochs);
}

/* A step limit or a signal ended the run inside the epoch: save the position. */
static td_status save_inside_epoch(job *j)
{
    const double seconds = j->run.data_s + j->run.compute_s;
    if (j->s.iteration) /* 0: the previous epoch's loss stays */
        j->s.last_train_loss = mean_loss(&j->s);
    if (seconds > 0)
        j->out->images_per_s =
            (double)j->run.epoch_batches * j->o.batch.size * j->ranks.n / seconds;
    return td_train_save(j);
}

static td_status run_epochs(job *j)
{
    bool is_whole;
    while (!is_training_over(j)) {
        TD_TRY(train_epoch(j, &is_whole));
        if (!is_whole)
            return save_inside_epoch(j);
        TD_TRY(end_epoch(j));
        j->run.epochs++;
    }
    return TD_OK;
}

/* Write bad.list even when the run fails, as it does with too many bad images. */
static td_status run_and_list(job *j)
{
    td_status st = run_epochs(j);
    if (j->ranks.rank > 0)
        return st;
    if (st == TD_OK)
        return td_bad_list_write(&j->files.bad, j->data.train_loader, j->data.val_loader);
    char *message = td_copy_text(td_error_message());
    if (td_bad_list_write(&j->files.bad, j->data.train_loader, j->data.val_loader) != TD_OK)
        td_log(TD_LOG_WARN, "train", "%s", td_error_message());
    else if (j->files.bad.n_written > 0)
        td_log(TD_LOG_WARN, "train", "the bad images are listed in '%s'", j->files.bad.path);
    st = td_error_set(st, message ? message : td_status_text(st));
    td_free(message);
    return st;
}

/*
 * Runs after everything that reads the program's results.  After a signal the bound, which takes
 * long to measure, is omitted.
 */
static td_status show_profile(job *j)
{
    double bound_s;
    td_text out = { 0 };
    if (!j->observers.profile)
        return TD_OK;
    if (td_profile_steps(j->observers.profile) > 0 && !j->out->was_stopped) {
        td_status st = td_profile_bound(j->program, j->observers.profile, &bound_s);
        if (st != TD_OK && st != TD_ESTOPPED)
            return st;
    }
    if (j->o.profile.as_json)
        td_profile_json(j->observers.profile, &out);
    else
        td_profile_text(j->observers.profile, &out);
    return td_text_take(&out, TD_OK, &j->out->profile);
}

/*
 * Loss scaling skips a few steps until it has found its scale.  A run that skipped more than one
 * step in four logs a warning; a run that applied fewer than one in ten is an error.
 */
static td_status check_skips(const job *j)
{
    const long long skipped = j->run.skipped, of = skipped + j->run.steps;
    if (skipped > 0 && skipped == of && !j->out->was_stopped)
        return td_error(
            TD_EARG, "all %lld steps were skipped: the gradients are not finite at loss scale %g",
            skipped, (double)j->inputs.scale);
    if (10 * (of - skipped) < of && !j->out->was_stopped)
        return td_error(TD_ENUMERIC,
                        "loss scaling skipped %lld of %lld steps, the last loss scale is %g: fewer "
                        "than one step in ten was applied",
                        skipped, of, (double)j->inputs.scale);
    if (4 * skipped > of)
        td_log(TD_LOG_WARN, "train", "loss scaling skipped %lld of %lld steps of this run", skipped,
               of);
    return TD_OK;
}

static void fill_result(const job *j, td_train_result *out)
{
    out->epoch = j->s.epoch;
    td_model_name(&j->o.model, out->arch, sizeof out->arch);
    out->steps = j->s.steps;
    out->skipped = j->s.scaler.skipped;
    out->loss_scale = j->s.scaler.scale;
    out->train_loss = j->s.last_train_loss;
    out->val_loss = j->s.last_val_loss;
    out->detects = j->s.detects;
    if (td_train_writes(j) && j->s.best >= 0 && td_path_is_file(j->files.path[TD_PATH_BEST]))
        snprintf(out->best, sizeof out->best, "%s", j->files.path[TD_PATH_BEST]);
    if (j->s.detects) {
        memcpy(out->boxes, j->eval.boxes, sizeof j->eval.boxes);
        out->best_ap = j->s.best;
    } else if (j->s.is_multi_label) {
        const bool has_none = j->s.last < 0;
        out->is_multi_label = true;
        out->map = has_none ? -1 : j->s.last / 100;
        out->micro_f1 = has_none ? -1 : j->s.last_second / 100;
        out->macro_f1 = has_none ? -1 : j->eval.multi.macro_f1;
        out->best_map = j->s.best < 0 ? -1 : j->s.best / 100;
    } else {
        out->top1 = j->s.last;
        out->topk = j->s.last_second;
        out->best_top1 = j->s.best;
    }
}

static td_status check_required(const job *j)
{
    if (!j->o.validation.require || j->out->was_stopped)
        return TD_OK;
    if (j->s.last < 0)
        return td_error(TD_EREQUIRED, "no epoch was finished and validated, %s was required",
                        j->o.validation.require);
    return j->task->require(j, j->o.validation.require);
}

static td_status finish(job *j)
{
    TD_TRY(td_train_save_final(j));
    fill_result(j, j->out);
    TD_TRY(td_train_report_run(j));
    TD_TRY(show_profile(j));
    TD_TRY(check_skips(j));
    td_train_restart_note_stop(j);
    return check_required(j);
}

td_status td_train(const td_train_opts *opts, td_train_result *out)
{
    td_status st = TD_OK;
    job j = { .o = *opts, .out = out, .log.grad_norm = (double)NAN };
    *out = (td_train_result){ .top1 = -1,
                              .topk = -1,
                              .best_top1 = -1,
                              .map = -1,
                              .micro_f1 = -1,
                              .macro_f1 = -1,
                              .best_map = -1,
                              .loss_scale = 1 };
    TD_OUT(td_train_open(&j));
    td_train_note_work(&j, TD_WORK_NONE);
    td_ticker_restart(j.log.ticker); /* the settings have been logged */
    TD_OUT(run_and_list(&j));
    TD_OUT(finish(&j));
out:
    st = td_trace_close(j.observers.trace, st);
    td_device_leave(j.dev, st == TD_EREQUIRED ? TD_OK : st);
    td_leave(j.ranks.comm, st == TD_EREQUIRED ? TD_OK : st);
    td_status closed = td_report_close(j.log.report);
    td_status stats_closed = td_amp_stats_close(j.observers.amp_stats);
    st = st != TD_OK ? st : closed != TD_OK ? closed : stats_closed;
    if (st != TD_OK)
        td_workspace_discard(&j);
    td_train_release(&j);
    if (st != TD_OK && st != TD_EREQUIRED) {
        td_text_free(out->profile);
        out->profile = NULL;
    }
    return st;
}
