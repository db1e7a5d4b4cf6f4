/*
 * train.c -- the training job
 *
 *     open     checkpoint or weights -> data sets -> program -> loaders      nothing is written yet
 *     epoch    step, step, step ... -> validate -> save
 *     close    final weights, report
 *
 * A signal ends the loop after the step that is running; the checkpoint then holds the place inside
 * the epoch.  Everything that decides the next step's bits is in td_run_state and the parameters.
 * train_open.c opens, train_report.c tells.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/os.h"
#include "checkpoint/weights.h"
#include "comm/join.h"
#include "model/arch.h"
#include "optim/training_graph.h"
#include "train/task.h"
#include "train/train_job.h"
#include "train/train_ranks.h"
#include "train/train_report.h"

typedef td_train_job job;

/* --- saving ----------------------------------------------------------------------------------- */

static td_weight_facts facts_of(const job *j)
{
    return (td_weight_facts){ .model = &j->o.model,
                              .num_classes = j->o.model.num_classes,
                              .n_names = td_dataset_backend(j->train_set) == TD_DATA_FOLDER
                                             ? td_dataset_classes(j->train_set)
                                             : 0,
                              .names = j->class_names,
                              .categories = j->categories,
                              .tracked = &j->tracked };
}

/* when it was that something could not be saved */
static td_status at_step(const job *j, td_status st)
{
    if (st != TD_ENUMERIC)
        return st;
    return td_error_context(st, "after step %lld", (long long)j->s.steps);
}

/* once more at the end, for runs that save nothing */
static td_status check_finite(const job *j)
{
    td_status st = TD_OK;
    td_tensors *t;
    TD_TRY(td_tensors_new(&t));
    TD_OUT(td_weights_save(j->program, TD_SAVE_EMA, j->s.batches_tracked, &j->tracked, t));
    TD_OUT(td_weights_check_finite(t, false));
out:
    td_tensors_free(t);
    return at_step(j, st);
}

static td_status save(job *j)
{
    td_weight_facts f = facts_of(j);
    if (!td_train_writes(j))
        return TD_OK;
    const int64_t begin_ns = td_now_ns();
    TD_TRY(td_bad_list_write(&j->bad, j->train_loader, j->val_loader));
    td_train_report_saving(j, j->path[TD_PATH_CHECKPOINT]);
    TD_TRY(at_step(j, td_checkpoint_save(j->path[TD_PATH_CHECKPOINT], j->program, &j->s, &f,
                                         td_text_get(&j->config))));
    snprintf(j->out->checkpoint, sizeof j->out->checkpoint, "%s", j->path[TD_PATH_CHECKPOINT]);
    td_trace_span(j->trace, "save the checkpoint", begin_ns);
    return TD_OK;
}

static td_status epoch_path(const job *j, int64_t epoch, char **out)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoint_%04lld.safetensors", (long long)epoch);
    *out = td_path_join(j->folder, name);
    return *out ? TD_OK : TD_ENOMEM;
}

enum { GATHER_TENTHS = -2, FIRST_EPOCHS = 10 };

/* --gather-checkpoints: N last epochs beside the last and the best, -1 all, -2 as in 2019 */
static td_status keep_epoch(job *j, int64_t epoch)
{
    char *now = NULL, *old = NULL;
    td_weight_facts f = facts_of(j);
    int keep = j->o.gather_checkpoints;
    td_status st = TD_OK;
    if (keep == 0 || !td_train_writes(j))
        return TD_OK;
    if (keep == GATHER_TENTHS && epoch >= FIRST_EPOCHS && epoch % FIRST_EPOCHS)
        return TD_OK;
    TD_OUT(epoch_path(j, epoch, &now));
    TD_OUT(at_step(j, td_checkpoint_save(now, j->program, &j->s, &f, td_text_get(&j->config))));
    if (keep > 0 && epoch >= keep) {
        TD_OUT(epoch_path(j, epoch - keep, &old));
        unlink(old);
    }
out:
    td_free(now);
    td_free(old);
    return st;
}

/* --- one step --------------------------------------------------------------------------------- */

static td_status write_train_logits(const job *j)
{
    td_type type;
    td_tensors *t;
    const void *logits = td_program_output(j->program, "logits", &type);
    TD_TRY(td_tensors_new(&t));
    td_status st = td_tensors_add(t, "logits", type.dtype, type.rank, type.dim, logits);
    if (st == TD_OK)
        st = td_tensors_write(t, j->o.train_logits);
    td_tensors_free(t);
    return st;
}

/* so many steps in a row that there is no hope: where does it begin? */
static td_status skips_failed(job *j)
{
    char where[300];
    const td_scaler *s = &j->s.scaler;
    TD_TRY(td_program_find_nonfinite(j->program, where, sizeof where));
    return td_error(
        TD_ENUMERIC,
        "epoch %lld, iteration %lld: %lld steps in a row were skipped, the last at loss "
        "scale %g, where %s is the first that is not finite; nothing of them was saved",
        (long long)j->s.epoch, (long long)j->s.iteration, (long long)s->in_row, (double)j->scale,
        *where ? where : "nothing");
}

/* the step that is over at iteration j->s.iteration changed nothing: say so, and count */
static td_status after_skip(job *j)
{
    const td_scaler *s = &j->s.scaler;
    long long epoch = j->s.epoch, iteration = j->s.iteration;
    if (j->o.max_skips && s->in_row >= j->o.max_skips)
        return skips_failed(j);
    if (s->kind == TD_SCALER_DYNAMIC && s->set == TD_SCALER_APEX)
        td_log(TD_LOG_INFO, "train",
               "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to %.17g%s",
               s->scale, s->scale == floor(s->scale) ? ".0" : "");
    else
        td_log(TD_LOG_INFO, "train",
               "epoch %lld, iteration %lld: gradients overflow at loss scale %g, step skipped; the "
               "next one has %g",
               epoch, iteration, (double)j->scale, s->scale);
    return TD_OK;
}

static td_status loss_failed(const job *j, double loss)
{
    return td_error(TD_ENUMERIC,
                    "epoch %lld, iteration %lld: the loss is %s; nothing of this step was saved",
                    (long long)j->s.epoch, (long long)j->s.iteration + 1,
                    isnan(loss) ? "not a number" : "infinite");
}

/* did the program apply the step it ran? */
static bool was_finite(const job *j)
{
    const float *finite = td_program_output(j->program, TD_OUTPUT_FINITE, NULL);
    return !finite || *finite > 0;
}

/* the last batch of an optimiser step? */
static bool is_last_batch(const job *j)
{
    return j->s.step.done + 1 == j->acc;
}

/* of the averages after this batch: mu, but less at the beginning */
static double ema_factor(const job *j)
{
    const double t = (double)(j->s.epoch * td_loader_batches(j->train_loader) + j->s.iteration);
    const double ramp = (1 + t) / (10 + t);
    return j->o.use_ema < ramp ? j->o.use_ema : ramp;
}

/* what the program is told about this batch beside pictures and labels */
static td_status tell_batch(job *j)
{
    const double m = ema_factor(j), before = j->s.step.ema_before;
    j->scale = td_scaler_scale(&j->s.scaler);
    j->inverse = td_scaler_inverse(&j->s.scaler);
    if (j->acc * j->n_ranks > 1)
        j->inverse /= (float)(j->acc * j->n_ranks);
    j->update = is_last_batch(j) ? 1 : 0;
    j->ema[0] = (float)m;
    j->ema[1] = (float)(1 - m);
    j->ema[2] = (float)before;
    j->ema[3] = (float)(1 - before);
    if (j->mixup.batch == 0)
        return TD_OK;
    /* a batch of its own for every rank, as one rank has that accumulates them */
    const int64_t batch = j->s.iteration * j->n_ranks + j->rank;
    return td_mixup_draw(&j->mixup, j->s.epoch, batch,
                         j->s.epoch * td_loader_batches(j->train_loader) * j->n_ranks + batch);
}

/*
 * What a step that was applied moves on; batches, and with them the learning rate, go on anyway.
 * The norms of a step that may yet be dropped have seen nothing.
 */
static void count_step(job *j, double loss, bool is_skipped)
{
    td_step_state *st = &j->s.step;
    const bool is_last = is_last_batch(j), is_sure = j->s.scaler.kind == TD_SCALER_NONE;
    st->ema_before *= ema_factor(j);
    j->s.iteration++;
    j->run_batches++;
    j->epoch_batches++;
    st->done++;
    st->in_epoch++;
    st->loss_sum += loss;
    j->s.batches_tracked += is_sure ? 1 : is_last && !is_skipped ? j->acc : 0;
    if (!is_last)
        return;
    if (is_skipped) {
        j->s.epoch_skipped += st->in_epoch;
        j->run_skipped++;
    } else {
        j->s.steps++;
        j->s.loss_sum += st->loss_sum;
        j->run_steps++;
    }
    *st = (td_step_state){ .of = st->of, .ema_before = 1 };
}

/* `is_applied`: it was the last batch of an optimiser step, which was not skipped */
static td_status step(job *j, const td_batch *b, double data_s, bool *is_applied)
{
    int64_t t0 = td_now_ns();
    if (b->height != j->size || b->width != j->size)
        return td_error(TD_ESHAPE, "a batch of %d x %d, the program is for %d x %d", b->width,
                        b->height, j->size, j->size);
    TD_TRY(tell_batch(j));
    const bool is_last = is_last_batch(j);
    TD_TRY(j->task->bind(j, b));
    const int64_t n = j->run_batches + 1;
    const td_amp_place place = { n, j->s.epoch, j->s.iteration + 1, (double)j->scale };
    td_amp_stats_begin(j->amp_stats, j->program, &place);
    TD_TRY(td_amp_stats_end(j->amp_stats, j->program, td_program_run(j->program)));
    td_profile_step(j->profile, data_s);
    double loss = (double)*(const float *)td_program_output(j->program, "loss", NULL);
    TD_TRY(td_train_share_step(j, &loss));
    loss = isnan(loss) ? (double)NAN : loss; /* one without a sign */
    if (!isfinite(loss) && j->s.scaler.kind == TD_SCALER_NONE)
        return loss_failed(j, loss);
    if (j->run_batches == 0 && j->o.train_logits)
        TD_TRY(write_train_logits(j));
    double compute_s = (double)(td_now_ns() - t0) * 1e-9;
    const bool is_skipped = is_last && td_scaler_step(&j->s.scaler, was_finite(j));
    *is_applied = is_last && !is_skipped;
    td_trace_step(j->trace, &(td_trace_place){ .step = n,
                                               .epoch = j->s.epoch,
                                               .iteration = j->s.iteration + 1,
                                               .begin_ns = t0,
                                               .end_ns = td_now_ns(),
                                               .wait_ns = (int64_t)(data_s * 1e9),
                                               .decode_s = b->decode_s,
                                               .loss = loss });
    count_step(j, loss, is_skipped);
    j->data_s += data_s;
    j->compute_s += compute_s;
    if (is_skipped)
        TD_TRY(after_skip(j));
    return td_train_report_step(j, loss, data_s, compute_s);
}

/* --- one epoch -------------------------------------------------------------------------------- */

td_status td_train_l2_loss(td_train_job *j, double *out)
{
    double sum = 0;
    for (int i = 0; i < td_program_param_count(j->program); i++) {
        const char *name = td_program_param_name(j->program, i);
        const td_type t = td_program_param_type(j->program, i);
        if (!td_map_has(&j->groups.decayed, name))
            continue;
        const int64_t n = td_type_count(&t);
        float *w = td_alloc((size_t)n, sizeof *w);
        if (!w)
            return TD_ENOMEM;
        const td_status st = td_program_get(j->program, name, w);
        for (int64_t k = 0; st == TD_OK && k < n; k++)
            sum += (double)w[k] * (double)w[k];
        td_free(w);
        TD_TRY(st);
    }
    *out = 0.5 * j->o.weight_decay * sum;
    return TD_OK;
}

static bool wants_to_stop(job *j)
{
    if (td_train_may_stop(j)) {
        j->out->was_stopped = true;
        j->is_over = true;
    }
    if (j->o.run_iters >= 0 && j->run_steps >= j->o.run_iters)
        j->is_over = true;
    return j->is_over;
}

static td_status train_batches(job *j, bool *is_whole)
{
    const td_batch *b;
    bool is_applied;
    int64_t cap = j->o.prof > 0 ? j->o.prof : INT64_MAX;
    while (!wants_to_stop(j)) {
        if (j->s.iteration >= cap || td_train_is_through(j)) {
            *is_whole = true;
            break;
        }
        int64_t t0 = td_now_ns();
        td_status st = td_loader_next(j->train_loader, &b);
        if (st == TD_EEND) {
            *is_whole = true;
            break;
        }
        TD_TRY(st);
        td_train_set_rate(j);
        TD_TRY(step(j, b, (double)(td_now_ns() - t0) * 1e-9, &is_applied));
        td_progress_step(&j->progress, j->epoch_batches, j->epoch_batches * j->o.batch_size);
        if (is_applied && j->o.checkpoint_every && j->s.steps % j->o.checkpoint_every == 0)
            TD_TRY(save(j));
    }
    return TD_OK;
}

static td_status train_epoch(job *j, bool *is_whole)
{
    TD_TRY(td_train_program_fit(j));
    td_train_set_rate(j);
    j->data_s = j->compute_s = 0;
    j->epoch_batches = 0;
    *is_whole = false;
    td_train_progress_begin(j);
    const td_status st = train_batches(j, is_whole);
    td_progress_end(&j->progress);
    return st;
}

static td_status judge(job *j, const char *prefix, td_verdict *v)
{
    const int64_t begin_ns = td_now_ns();
    TD_TRY(j->task->judge(j, prefix, v));
    TD_TRY(td_train_share_stop(j, &v->was_stopped));
    td_trace_span(j->trace, *prefix ? "validate the averages" : "validate", begin_ns);
    return TD_OK;
}

static td_status validate(job *j, td_verdict *v, td_verdict *ema)
{
    TD_TRY(judge(j, "", v));
    if (j->o.use_ema >= 0 && !v->was_stopped) {
        TD_TRY(judge(j, TD_EMA_PREFIX, ema));
        v->was_stopped = ema->was_stopped;
    }
    return TD_OK;
}

/* over the steps of the epoch that were applied; not a number where all were skipped */
static double mean_loss(const td_run_state *s)
{
    const int64_t n = s->iteration - s->epoch_skipped - s->step.in_epoch;
    return n ? s->loss_sum / (double)n : s->iteration ? (double)NAN : 0;
}

/* a step that goes on in the next epoch: its batches so far count in this one */
static void count_unfinished(td_run_state *s)
{
    if (isfinite(s->step.loss_sum))
        s->loss_sum += s->step.loss_sum;
    else
        s->epoch_skipped += s->step.in_epoch;
    s->step.loss_sum = 0;
    s->step.in_epoch = 0;
}

static void warn_nonfinite(int64_t epoch, const char *whose, const td_verdict *v)
{
    if (v->counts.n_nonfinite)
        td_log(TD_LOG_WARN, "train",
               "epoch %lld: the validation loss%s is not finite for %lld of %lld images; these "
               "weights are not taken as the best",
               (long long)epoch, whose, (long long)v->counts.n_nonfinite, (long long)v->counts.n);
}

/* a whole epoch lies behind us: judge it, note the best, save */
static td_status end_epoch(job *j)
{
    td_verdict v, ema;
    td_weight_facts f = facts_of(j);
    int64_t epoch = j->s.epoch;
    const bool is_judged = td_train_is_due(j);
    bool is_best = false;
    TD_TRY(td_train_say_stragglers(j));
    TD_TRY(td_train_share_sums(j));
    TD_TRY(td_train_share_statistics(j));
    count_unfinished(&j->s);
    const int64_t n_skipped = (j->s.epoch_skipped + j->acc - 1) / j->acc;
    j->s.last_train_loss = mean_loss(&j->s);
    if (is_judged) {
        TD_TRY(validate(j, &v, &ema));
        if (v.was_stopped) { /* judge again after resuming: this epoch is not over */
            j->is_over = j->out->was_stopped = true;
            return save(j);
        }
        warn_nonfinite(epoch, "", &v); /* and never the best */
        if (j->o.use_ema >= 0)
            warn_nonfinite(epoch, " of the averages", &ema);
        is_best = !v.counts.n_nonfinite && j->s.last > j->s.best;
        j->epochs_without_best = is_best ? 0 : j->epochs_without_best + 1;
    }
    TD_TRY(td_train_share_bad(j));
    j->s.epoch++;
    j->s.iteration = 0;
    j->s.loss_sum = 0;
    j->s.epoch_skipped = 0;
    if (is_best) {
        j->s.best = j->s.last;
        j->s.best_epoch = epoch;
    }
    TD_TRY(td_train_report_epoch(j, is_judged ? &v : NULL,
                                 is_judged && j->o.use_ema >= 0 ? &ema : NULL, n_skipped));
    /* the checkpoint last: it says that the others are there */
    if (is_best && td_train_writes(j))
        TD_TRY(at_step(j, td_weight_file_save(j->path[TD_PATH_BEST], j->program, TD_SAVE_EMA,
                                              j->s.batches_tracked, &f)));
    TD_TRY(keep_epoch(j, epoch));
    TD_TRY(save(j));
    return td_loader_start_epoch(j->train_loader, j->s.epoch);
}

static bool runs_out(job *j)
{
    const td_train_opts *o = &j->o;
    if (o->early_stopping_patience > 0 && j->epochs_without_best >= o->early_stopping_patience) {
        td_log(TD_LOG_INFO, "train", "no new best for %d epochs: stopping early",
               o->early_stopping_patience);
        return true;
    }
    return j->is_over || j->s.epoch >= o->epochs ||
           (o->run_epochs >= 0 && j->run_epochs >= o->run_epochs);
}

static td_status run(job *j)
{
    bool is_whole;
    while (!runs_out(j)) {
        TD_TRY(train_epoch(j, &is_whole));
        if (!is_whole) {
            /* a step limit or a signal inside the epoch: keep the place */
            if (j->s.iteration) /* else that of the epoch before */
                j->s.last_train_loss = mean_loss(&j->s);
            double seconds = j->data_s + j->compute_s;
            if (seconds > 0)
                j->out->images_per_s =
                    (double)j->epoch_batches * j->o.batch_size * j->n_ranks / seconds;
            return save(j);
        }
        TD_TRY(end_epoch(j));
        j->run_epochs++;
    }
    return TD_OK;
}

/* bad.list is there whatever ended the run, most of all when it was too many bad pictures */
static td_status run_and_list(job *j)
{
    td_status st = run(j);
    if (j->rank > 0)
        return st;
    if (st == TD_OK)
        return td_bad_list_write(&j->bad, j->train_loader, j->val_loader);
    char *message = td_copy_text(td_error_message());
    if (td_bad_list_write(&j->bad, j->train_loader, j->val_loader) != TD_OK)
        td_log(TD_LOG_WARN, "train", "%s", td_error_message());
    st = td_error_set(st, message ? message : td_status_text(st));
    td_free(message);
    return st;
}

/* after all that reads the program's results; a signal leaves the bound out, which takes long */
static td_status show_profile(job *j)
{
    double bound_s;
    td_text out = { 0 };
    if (!j->profile)
        return TD_OK;
    if (td_profile_steps(j->profile) > 0 && !j->out->was_stopped) {
        td_status st = td_profile_bound(j->program, j->profile, &bound_s);
        if (st != TD_OK && st != TD_ESTOPPED)
            return st;
    }
    if (j->o.json)
        td_profile_json(j->profile, &out);
    else
        td_profile_text(j->profile, &out);
    return td_text_take(&out, TD_OK, &j->out->profile);
}

/*
 * Loss scaling skips a few steps while it looks for its scale.  A run that skipped more than one in
 * four says so; one that applied fewer than one in ten has trained nothing to speak of: an error.
 */
static td_status check_skips(const job *j)
{
    const long long skipped = j->run_skipped, of = skipped + j->run_steps;
    if (skipped > 0 && skipped == of && !j->out->was_stopped)
        return td_error(TD_EARG,
                        "every one of %lld steps was skipped: at loss scale %g nothing is "
                        "finite",
                        skipped, (double)j->scale);
    if (10 * (of - skipped) < of && !j->out->was_stopped)
        return td_error(TD_ENUMERIC,
                        "loss scaling skipped %lld of %lld steps, the last loss scale is %g: fewer "
                        "than one step in ten was applied",
                        skipped, of, (double)j->scale);
    if (4 * skipped > of)
        td_log(TD_LOG_WARN, "train", "loss scaling skipped %lld of %lld steps of this run", skipped,
               of);
    return TD_OK;
}

static td_status finish(job *j)
{
    td_weight_facts f = facts_of(j);
    if (j->o.final_weights && !j->out->was_stopped)
        TD_TRY(at_step(j, td_weight_file_save(j->o.final_weights, j->program,
                                              j->o.final_state ? TD_SAVE_STATE | TD_SAVE_EMA : 0,
                                              j->s.batches_tracked, &f)));
    if (j->rank == 0 && !td_train_writes(j))
        TD_TRY(check_finite(j));
    j->out->epoch = j->s.epoch;
    td_model_name(&j->o.model, j->out->arch, sizeof j->out->arch);
    j->out->steps = j->s.steps;
    j->out->skipped = j->s.scaler.skipped;
    j->out->loss_scale = j->s.scaler.scale;
    j->out->train_loss = j->s.last_train_loss;
    j->out->val_loss = j->s.last_val_loss;
    j->out->detects = j->s.detects;
    if (j->s.detects) {
        memcpy(j->out->boxes, j->boxes, sizeof j->boxes);
        j->out->best_ap = j->s.best;
    } else {
        j->out->top1 = j->s.last;
        j->out->topk = j->s.last_second;
        j->out->best_top1 = j->s.best;
    }
    TD_TRY(td_train_report_run(j));
    TD_TRY(show_profile(j));
    TD_TRY(check_skips(j));
    if (!j->o.require || j->out->was_stopped)
        return TD_OK;
    if (j->s.last < 0)
        return td_error(TD_EREQUIRED, "no epoch was finished and validated, %s was required",
                        j->o.require);
    return j->task->require(j, j->o.require);
}

td_status td_train(const td_train_opts *opts, td_train_result *out)
{
    td_status st = TD_OK;
    job j = { .o = *opts, .out = out };
    *out = (td_train_result){ .top1 = -1, .topk = -1, .best_top1 = -1, .loss_scale = 1 };
    TD_OUT(td_train_open(&j));
    TD_OUT(run_and_list(&j));
    TD_OUT(finish(&j));
out:
    st = td_trace_close(j.trace, st);
    td_part(j.comm, st == TD_EREQUIRED ? TD_OK : st);
    td_status closed = td_report_close(j.report);
    td_status stats_closed = td_amp_stats_close(j.amp_stats);
    td_train_release(&j);
    st = st != TD_OK ? st : closed != TD_OK ? closed : stats_closed;
    if (st != TD_OK && st != TD_EREQUIRED) {
        td_text_free(out->profile);
        out->profile = NULL;
    }
    return st;
}
