/*
 * train_report.c -- log lines and report records of a training job's steps, epochs and end
 *
 * The log lines have our format or, with --log-format dll, the reference's; the records are the
 * same.  The time that writing takes belongs to no step.
 */
#include "train/train_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "evaluation/outcomes.h"
#include "loggers/report_settings.h"
#include "loggers/throughput.h"
#include "optim/optimizer.h"
#include "train/task.h"

/* warm-up steps of the TensorFlow programs when they train */
enum { TF_WARM_STEPS = 20, TF_WARM_STEPS_OF_DETECTOR = 100 };

static bool is_plain(const td_train_job *j)
{
    return !td_report_has_text(j->log.report);
}

/*
 * Number of first steps, and first batches of a validation, excluded from times under TensorFlow's
 * names.
 */
static int n_warm(const td_train_job *j)
{
    if (j->o.report.warmup >= 0)
        return j->o.report.warmup;
    return j->s.detects ? TF_WARM_STEPS_OF_DETECTOR : TF_WARM_STEPS;
}

/* --- the beginning ---------------------------------------------------------------------------- */

static void log_decay_groups(td_train_job *j)
{
    td_report_log(j->log.report, " ! Weight decay NOT applied to BN parameters ");
    td_report_log(j->log.report, "%d", j->compiled.groups.n_undecayed);
    td_report_log(j->log.report, "%zu", j->compiled.groups.decayed.n);
}

/* The fixed messages of the reference, in its order. */
static void log_begin(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    const int64_t from = j->s.epoch;
    const int64_t to = o->length.run_epochs >= 0 && from + o->length.run_epochs < o->length.epochs
                           ? from + o->length.run_epochs
                           : o->length.epochs;
    td_report_log(j->log.report, "Using seed = %lld", (long long)o->batch.seed);
    if (o->start.resume) {
        td_report_log(j->log.report, "=> loading checkpoint '%s'", o->start.resume);
        td_report_log(j->log.report, "=> loaded checkpoint '%s' (epoch %lld)", o->start.resume,
                      (long long)from);
    }
    td_report_log(j->log.report, "BSM: %lld", (long long)j->plan.batches_per_step);
    if (!o->optimizer.decays_bn && td_report_has_text(j->log.report))
        log_decay_groups(j);
    td_report_log(j->log.report, "RUNNING EPOCHS FROM %lld TO %lld", (long long)from,
                  (long long)to);
}

static bool limits_norm(const td_train_opts *o)
{
    const td_optimizer_opts *p = &o->optimizer;
    return p->clip_norm > 0 || (p->type == TD_OPTIMIZER_LAMB && p->lamb_max_norm > 0);
}

td_status td_train_report_open(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    const int64_t batches = td_loader_batches(j->data.train_loader);
    const td_run_logger_opts ro = {
        .path = j->files.path[TD_PATH_REPORT],
        .to_log = o->report.log_format == TD_LOG_FORMAT_DLL,
        .tensorboard = o->metrics.tensorboard,
        .csv = o->metrics.csv,
        .csv_iterations = o->metrics.csv_iterations,
        .is_compat = o->report.is_compat,
        .has_tf_names = o->report.naming == TD_REPORT_NAMING_TF,
        .has_l2_loss = o->loss.reports_l2,
        .has_grad_norm = limits_norm(o),
        .detects = j->s.detects,
        .is_multi_label = j->s.is_multi_label,
        .topk = o->validation.topk,
        .n_classes = j->eval.class_ap ? td_dataset_classes(j->data.train_set) : 0,
        .classes = j->data.class_names,
        .is_continued = o->start.resume != NULL,
        .at = { j->s.epoch, j->s.iteration },
        .batches = o->profile.iterations > 0 && o->profile.iterations < batches
                       ? o->profile.iterations
                       : batches
    };
    const td_run_metadata metadata = { .job = "train",
                                       .amp = &o->amp,
                                       .program = j->program,
                                       .ranks = j->ranks.n,
                                       .train_images = td_dataset_count(j->data.train_set),
                                       .val_images =
                                           j->data.val_set ? td_dataset_count(j->data.val_set) : 0,
                                       .epoch_batches = batches,
                                       .begin_epoch = j->s.epoch };
    j->log.sums.skipped_seen = j->s.scaler.skipped;
    TD_TRY(td_report_open(&ro, &j->log.report));
    TD_TRY(td_report_settings(j->log.report, td_text_get(&j->files.config), &o->model, &metadata));
    log_begin(j);
    return TD_OK;
}

void td_train_report_saving(td_train_job *j, const char *path)
{
    td_report_log(j->log.report, "SAVING %s", path);
}

/* --- the terminal ----------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void td_train_progress_begin(td_train_job *j)
{
    const td_train_opts *o = &j->o;
    td_progress *p = &j->log.progress;
    int64_t epochs = o->length.epochs - j->s.epoch - 1; /* epochs after this one */
    int64_t whole = td_loader_batches(j->data.train_loader), left = INT64_MAX;
    if (o->profile.iterations > 0)
        whole = least(whole, o->profile.iterations);
    if (o->length.run_epochs >= 0)
        epochs = least(epochs, o->length.run_epochs - j->run.epochs - 1);
    if (o->length.run_steps >= 0)
        left = (o->length.run_steps - j->run.steps) * j->plan.batches_per_step - j->s.step.done;
    const int64_t here = least(whole, j->s.iteration + least(left, whole));
    snprintf(j->log.progress_what, sizeof j->log.progress_what, "epoch %lld, iteration",
             (long long)j->s.epoch);
    *p = (td_progress){ .module = j->ranks.rank == 0 ? "train" : NULL,
                        .what = j->log.progress_what,
                        .batches_before = j->s.iteration,
                        .comm = j->ranks.comm,
                        .ticker = j->log.ticker };
    td_progress_begin(p, j->data.train_loader, here);
    p->batches_after = epochs > 0 ? least(epochs * whole, left - (here - j->s.iteration)) : 0;
}

td_status td_train_ticker_start(td_train_job *j)
{
    if (j->ranks.rank > 0 || j->o.report.log_format != TD_LOG_FORMAT_PLAIN)
        return TD_OK;
    return td_ticker_start("train", &j->log.ticker);
}

void td_train_note_work(const td_train_job *j, td_work_kind kind)
{
    const td_train_counts *run = &j->run;
    td_ticker_set(j->log.ticker,
                  &(td_work){ .kind = kind,
                              .epoch = j->s.epoch,
                              .at = j->s.iteration + 1,
                              .n = j->log.progress.n_batches,
                              .n_images = run->epoch_batches * j->o.batch.size * j->ranks.n,
                              .seconds = run->data_s + run->compute_s });
}

void td_train_note_validation(const td_train_job *j)
{
    int64_t n = td_loader_batches(j->data.val_loader);
    if (j->o.profile.iterations > 0)
        n = least(n, j->o.profile.iterations);
    td_ticker_set(j->log.ticker,
                  &(td_work){ .kind = TD_WORK_VALIDATION, .epoch = j->s.epoch, .n = n });
}

td_progress td_train_progress_validation(const td_train_job *j, const char *prefix,
                                         char what[TD_TRAIN_WHAT])
{
    snprintf(what, TD_TRAIN_WHAT, "epoch %lld, validation%s", (long long)j->s.epoch,
             *prefix ? " of the averages" : "");
    return (td_progress){ .module = td_report_has_text(j->log.report) ? NULL : "train",
                          .what = what,
                          .every = j->o.metrics.print_freq,
                          .min_interval_s = 10, /* a short validation logs no progress */
                          .comm = j->ranks.comm,
                          .ticker = j->log.ticker };
}

/* --- a step ----------------------------------------------------------------------------------- */

/* ", loss scale 32768", or "" without loss scaling */
static const char *scale_text(const td_train_job *j, char *room, size_t n)
{
    *room = '\0';
    if (j->s.scaler.kind != TD_SCALER_NONE)
        snprintf(room, n, ", loss scale %g", (double)j->inputs.scale);
    return room;
}

/* ", gradient norm 1.25" of the last step, or "" */
static const char *norm_text(const td_train_job *j, char *room, size_t n)
{
    *room = '\0';
    if (isfinite(j->log.grad_norm))
        snprintf(room, n, ", gradient norm %.5g", j->log.grad_norm);
    return room;
}

/* The loss as the reference logs it: divided by the number of batches per step. */
static double logged_loss(const td_train_job *j, double loss)
{
    const td_train_opts *o = &j->o;
    return o->report.is_compat ? loss / (double)j->plan.batches_per_step : loss;
}

static void add_step(td_train_job *j, double loss, double data_s, double compute_s)
{
    td_run_sums *s = &j->log.sums;
    const bool is_skipped = j->s.scaler.skipped != s->skipped_seen;
    td_step_metadata f = { .loss = is_skipped ? (double)NAN : logged_loss(j, loss),
                           .scale = (double)j->inputs.scale,
                           .n_images = j->o.batch.size * j->ranks.n,
                           .data_s = data_s + (j->o.report.is_compat ? s->log_s : 0),
                           .compute_s = compute_s,
                           .parts = { (double)NAN, (double)NAN, (double)NAN } };
    if (j->task->note_step)
        j->task->note_step(j, &f);
    s->skipped_seen = j->s.scaler.skipped;
    s->log_s = 0;
    td_step_sums_add(&s->window, &f);
    td_step_sums_add(&s->epoch, &f);
    td_step_sums_add(&s->run, &f);
    if (s->run.n > n_warm(j))
        td_step_sums_add(&s->warm, &f);
}

td_status td_train_report_step(td_train_job *j, double loss, double data_s, double compute_s)
{
    char scale[48], norm[48], loss_word[TD_REAL_WORD];
    td_step_sums *w = &j->log.sums.window;
    int64_t step[2] = { j->s.epoch, j->s.iteration };
    add_step(j, loss, data_s, compute_s);
    if (j->s.iteration % j->o.metrics.print_freq)
        return TD_OK;
    const int64_t t0 = td_now_ns();
    const double mean = td_step_sums_loss(w);
    double l2 = 0;
    if (j->s.detects && w->n == j->o.metrics.print_freq) /* the line covers all its iterations */
        TD_TRY(td_run_sums_add_line(&j->log.sums, td_step_sums_rate(w, j->o.report.is_compat)));
    if (j->o.loss.reports_l2)
        TD_TRY(td_l2_loss(j->program, &j->compiled.groups, j->o.optimizer.weight_decay, &l2));
    if (is_plain(j))
        td_log(TD_LOG_INFO, "train",
               "epoch %lld, iteration %lld/%lld: loss %s, lr %.5g, %.1f images/s%s%s",
               (long long)j->s.epoch, (long long)j->s.iteration,
               (long long)td_loader_batches(j->data.train_loader), td_real_word(mean, 5, loss_word),
               j->plan.lr_exact, td_step_sums_rate(w, j->o.report.is_compat),
               scale_text(j, scale, sizeof scale), norm_text(j, norm, sizeof norm));
    td_ticker_note_line(j->log.ticker);
    td_report_begin(j->log.report, 2, step);
    td_step_sums_report(w, mean, j->plan.lr_exact, j->log.report);
    if (isfinite(j->log.grad_norm))
        td_report_add(j->log.report, "train.grad_norm", j->log.grad_norm);
    if (j->o.loss.reports_l2) {
        td_report_add(j->log.report, "train.l2_loss", l2);
        td_report_add(j->log.report, "train.total_loss", mean + l2);
        if (td_report_has_tf_names(j->log.report)) {
            td_report_add(j->log.report, "l2_loss", l2);
            td_report_add(j->log.report, "total_loss", mean + l2);
        }
    }
    td_status st = td_report_end(j->log.report);
    *w = (td_step_sums){ 0 };
    j->log.sums.log_s = (double)(td_now_ns() - t0) * 1e-9;
    return st;
}

/* --- an epoch --------------------------------------------------------------------------------- */

/* `v`, `ema`: the validations of the trained and of the averaged weights; NULL: none */
static void log_epoch(const td_train_job *j, int64_t epoch, const td_eval_result *v,
                      const td_eval_result *ema)
{
    char scores[160] = "", averages[160] = "", loss[TD_REAL_WORD];
    if (!is_plain(j))
        return;
    if (v)
        j->task->format_scores(j, v, scores, sizeof scores);
    if (ema)
        j->task->format_scores(j, ema, averages, sizeof averages);
    td_log(TD_LOG_INFO, "train", "epoch %lld: loss %s, %.1f images/s%s%s%s%s", (long long)epoch,
           td_real_word(j->s.last_train_loss, 4, loss), j->out->images_per_s, v ? "; val " : "",
           scores, ema ? "; val of the averages " : "", averages);
    td_ticker_note_line(j->log.ticker);
}

static void note_loss(td_run_sums *s, double loss, bool is_compat)
{
    if (s->n_epochs++ == 0 || isnan(s->loss))
        s->loss = loss;
    else
        s->loss = is_compat ? fmax(s->loss, loss) : fmin(s->loss, loss);
}

td_status td_train_report_epoch(td_train_job *j, const td_eval_result *v, const td_eval_result *ema,
                                int64_t n_skipped)
{
    td_run_sums *s = &j->log.sums;
    const bool is_compat = j->o.report.is_compat;
    const int64_t epoch = j->s.epoch - 1;
    const double loss = logged_loss(j, j->s.last_train_loss);
    j->out->images_per_s = s->epoch.n ? td_step_sums_rate(&s->epoch, is_compat) : 0;
    note_loss(s, loss, is_compat);
    td_report_begin(j->log.report, 1, &epoch);
    td_step_sums_report(&s->epoch, loss, j->plan.lr_exact, j->log.report);
    td_report_add(j->log.report, "train.skipped_steps", (double)n_skipped);
    if (v) {
        td_eval_result_report(v, "val", j->o.validation.topk, j->log.report);
        for (int i = 0; j->eval.class_ap && i < td_dataset_classes(j->data.train_set); i++)
            if (j->eval.class_ap[i] >= 0)
                td_report_add_class(j->log.report, i, j->eval.class_ap[i]);
        TD_TRY(td_val_sums_add(&s->val, v, is_compat));
    }
    if (ema) {
        td_eval_result_report(ema, "val_ema", j->o.validation.topk, j->log.report);
        TD_TRY(td_val_sums_add(&s->val_ema, ema, is_compat));
    }
    if (v && td_report_has_tf_names(j->log.report))
        TD_TRY(td_tf_eval_report(v, j->o.validation.topk, n_warm(j), j->log.report));
    s->window = s->epoch = (td_step_sums){ 0 };
    log_epoch(j, epoch, v, ema);
    return td_report_end(j->log.report);
}

/* --- the run ---------------------------------------------------------------------------------- */

/*
 * The final record under TensorFlow's names: throughput without the first steps, and the last
 * validation.
 */
static td_status report_tf(td_train_job *j)
{
    const td_run_sums *s = &j->log.sums;
    td_eval_result v = s->val.all;
    td_report_add(j->log.report, "train_throughput",
                  td_step_sums_rate(&s->warm, j->o.report.is_compat));
    if (v.n_batches == 0)
        return TD_OK;
    v.latency = s->val.latency;
    v.counts = s->val.last;
    memcpy(v.boxes, s->val.last_boxes, sizeof v.boxes);
    return td_tf_eval_report(&v, j->o.validation.topk, n_warm(j), j->log.report);
}

/* The result of the reference's training benchmark; the reference does not put it in its report. */
static void report_last_quarter(td_train_job *j)
{
    const td_last_quarter q = td_last_quarter_of(j->log.sums.line_rates, (int)j->log.sums.n_lines);
    if (!j->s.detects)
        return;
    j->out->last_quarter_ips = q.mean;
    j->out->n_lines = q.n;
    j->out->n_lines_kept = q.n_kept;
    if (!j->o.report.is_compat)
        td_report_add(j->log.report, "train.last_quarter_ips", q.mean);
}

/* Report the confusion matrix of a classifier's last validation, on rank 0. */
static td_status report_outcomes(td_train_job *j)
{
    const td_outcome_metadata f = { .ds = j->data.val_set,
                                    .folder = j->o.input.data,
                                    .n_classes = j->o.model.num_classes,
                                    .epoch = j->eval.outcomes_epoch };
    return td_outcomes_report(&j->eval.outcomes, &f, j->log.report);
}

td_status td_train_report_run(td_train_job *j)
{
    td_run_sums *s = &j->log.sums;
    const double so_far = s->n_epochs ? s->loss : td_step_sums_loss(&s->run);
    if (j->out->images_per_s <= 0 && s->run.n)
        j->out->images_per_s = td_step_sums_rate(&s->run, j->o.report.is_compat);
    td_val_sums_raise(&s->val, j->s.best, j->s.best_boxes);
    if (j->out->was_stopped)
        td_report_log(j->log.report, "Received SIGTERM");
    TD_TRY(report_outcomes(j));
    td_report_begin(j->log.report, 0, NULL);
    td_step_sums_report(&s->run, so_far, j->plan.lr_exact, j->log.report);
    td_report_add(j->log.report, "train.skipped_steps", (double)j->s.scaler.skipped);
    report_last_quarter(j);
    TD_TRY(td_val_sums_report(&s->val, "val", j->o.validation.topk, j->log.report));
    TD_TRY(td_val_sums_report(&s->val_ema, "val_ema", j->o.validation.topk, j->log.report));
    if (td_report_has_tf_names(j->log.report))
        TD_TRY(report_tf(j));
    TD_TRY(td_report_end(j->log.report));
    td_report_log(j->log.report, "Experiment ended");
    return TD_OK;
}
