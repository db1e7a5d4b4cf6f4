/*
 * train_ranks.c -- exchanges between the ranks of a training job
 */
#include "train/train_ranks.h"

#include <inttypes.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/weights_ranks.h"
#include "comm/fingerprint.h"
#include "comm/join.h"
#include "data/bad_limit.h"
#include "data/dataset_digest.h"
#include "runtime/device.h"
#include "runtime/program_digest.h"
#include "runtime/program_view.h"
#include "transport/rank_env.h"

typedef td_train_job job;

/* --- opening ---------------------------------------------------------------------------------- */

td_status td_train_join(td_train_job *j)
{
    j->ranks.n = 1;
    TD_TRY(td_join("train",
                   &(td_join_opts){ j->o.log, j->o.compat.gpu_affinity, j->o.device.threads,
                                    j->o.allreduce, true },
                   &j->ranks.comm));
    j->ranks.rank = j->out->rank = td_comm_rank(j->ranks.comm);
    j->ranks.n = td_comm_size(j->ranks.comm);
    return TD_OK;
}

void td_train_divide_batch(td_train_job *j)
{
    const int n = td_ranks_sharing();
    if (n > 1)
        j->o.n_ranks = n;
    else if (j->ranks.n > 1)
        j->o.n_ranks = 0; /* a launcher decided */
    j->o.batch.size /= n;
}

td_train_opts td_train_undivided(const td_train_job *j)
{
    td_train_opts o = j->o;
    o.batch.size *= td_ranks_sharing();
    return o;
}

td_status td_train_share_seed(td_train_job *j)
{
    TD_TRY(td_comm_broadcast(j->ranks.comm, &j->o.batch.seed, sizeof j->o.batch.seed));
    j->s.seed = (uint64_t)j->o.batch.seed;
    return TD_OK;
}

td_status td_train_share_precision(td_train_job *j)
{
    return td_comm_broadcast(j->ranks.comm, &j->o.amp.precision, sizeof j->o.amp.precision);
}

/* --- one run ---------------------------------------------------------------------------------- */

/* Describe the run in lines; the error message shows the first one that differs. */
static td_status describe(const job *j, td_text *out)
{
    TD_TRY(td_describe_run(td_text_get(&j->files.config), out));
    TD_TRY(td_describe_data("training data", j->data.train_set, out));
    TD_TRY(td_describe_data("validation data", j->data.val_set, out));
    td_text_add(out, "place: epoch %" PRId64 " iteration %" PRId64 " step %" PRId64 "\n",
                j->s.epoch, j->s.iteration, j->s.steps);
    return td_describe_program("compiled step", j->program, out);
}

td_status td_train_agree(td_train_job *j)
{
    td_text text = { 0 };
    if (!j->ranks.comm)
        return TD_OK;
    td_status st = describe(j, &text);
    if (st == TD_OK)
        st = td_comm_agree(j->ranks.comm, "run", td_text_get(&text));
    td_text_release(&text);
    TD_TRY(st);
    TD_TRY(td_weights_broadcast(j->program, j->ranks.comm, false));
    return td_train_clear_sums_on_other_ranks(j);
}

bool td_train_writes(const td_train_job *j)
{
    return j->o.output.save_checkpoints && j->ranks.rank == 0;
}

/* --- step and epoch --------------------------------------------------------------------------- */

/* `n_bad`: bad images found by all ranks; an image found by two ranks counts twice. */
static td_status share_bad_limit(job *j, int64_t n_bad)
{
    if (n_bad == j->ranks.n_bad_last)
        return TD_OK;
    j->ranks.n_bad_last = n_bad;
    if (n_bad <= td_loader_bad_allowed(j->data.train_loader))
        return TD_OK;
    /* bad.list is written even when the run fails */
    TD_TRY(
        td_bad_list_gather(&j->files.bad, j->ranks.comm, j->data.train_loader, j->data.val_loader));
    return td_bad_limit_check(j->ranks.comm, j->data.train_loader);
}

td_status td_train_share_step(td_train_job *j, double *loss)
{
    const td_bad_image *bad;
    const int64_t n_bad = td_loader_bad(j->data.train_loader, &bad);
    double sums[3] = { *loss, td_signal_caught() ? 1 : 0, (double)n_bad };
    if (!j->ranks.comm)
        return TD_OK;
    TD_TRY(td_comm_sum_f64(j->ranks.comm, sums, 3));
    *loss = sums[0] / j->ranks.n;
    j->ranks.is_stop_wanted = sums[1] > 0;
    return share_bad_limit(j, (int64_t)sums[2]);
}

td_status td_train_compare_weights(td_train_job *j)
{
    const int64_t every = j->o.allreduce.check_every;
    const bool is_fast =
        td_comm_allreduce(j->ranks.comm)->mode == TD_ALLREDUCE_FAST || td_device_adds_fast(j->dev);
    if (!is_fast || every == 0 || (j->s.steps + 1) % every != 0)
        return TD_OK;
    TD_TRY_MSG(td_weights_compare(j->program, j->ranks.comm), "step %" PRId64, j->s.steps + 1);
    return TD_OK;
}

td_status td_train_share_stop(td_train_job *j, bool *was_stopped)
{
    int64_t n = *was_stopped;
    TD_TRY(td_comm_sum_i64(j->ranks.comm, &n, 1));
    *was_stopped = n > 0;
    return TD_OK;
}

bool td_train_may_stop(const td_train_job *j)
{
    /* inside a step the ranks have different gradient sums, and a checkpoint holds only one */
    return j->ranks.comm ? j->ranks.is_stop_wanted && j->s.step.done == 0 : td_signal_caught() != 0;
}

td_status td_train_share_statistics(td_train_job *j)
{
    return td_weights_broadcast(j->program, j->ranks.comm, true);
}

static bool has_own_sums(const job *j)
{
    return j->ranks.comm && j->plan.batches_per_step > 1 && j->s.step.done > 0 &&
           !j->o.batch.is_reproducible;
}

td_status td_train_share_sums(td_train_job *j)
{
    return has_own_sums(j) ? td_weights_gather_sums(j->program, j->ranks.comm) : TD_OK;
}

td_status td_train_clear_sums_on_other_ranks(td_train_job *j)
{
    return has_own_sums(j) && j->ranks.rank > 0 ? td_weights_clear_sums(j->program) : TD_OK;
}

/* --- going on with other ranks ---------------------------------------------------------------- */

td_status td_train_convert_position(td_train_job *j, const char *path, int64_t batch)
{
    const int64_t then = batch * j->s.ranks, now = (int64_t)j->o.batch.size * j->ranks.n;
    const int64_t samples = j->s.iteration * then;
    const bool is_dealt =
        j->o.batch.shuffle == TD_SHUFFLE_PERMUTATION && j->o.batch.sampler == TD_SAMPLER_DEALT;
    if (is_dealt && then == now)
        return TD_OK;
    if (!is_dealt || j->s.step.done || samples % now)
        return td_error(TD_EARG,
                        "'%s' was saved inside an epoch, after %" PRId64 " batches of %" PRId64
                        " on %" PRId64
                        " ranks: it cannot continue with %d ranks and --batch-size %d",
                        path, j->s.iteration, batch, j->s.ranks, j->ranks.n, j->o.batch.size);
    const int64_t iteration = samples / now;
    if (j->s.iteration) /* loss_sum adds one mean per batch */
        j->s.loss_sum *= (double)iteration / (double)j->s.iteration;
    j->s.iteration = iteration;
    return TD_OK;
}

/* --- waiting ---------------------------------------------------------------------------------- */

td_status td_train_log_stragglers(td_train_job *j)
{
    const double min_share = 0.1, min_seconds = 1; /* of the epoch; less is not logged */
    double own = td_program_waited_s(j->program) - j->ranks.waited_s;
    double *all = j->ranks.comm ? td_alloc((size_t)j->ranks.n, sizeof *all) : NULL;
    int least = 0;
    double most = 0;
    if (!j->ranks.comm)
        return TD_OK;
    if (!all)
        return TD_ENOMEM;
    j->ranks.waited_s += own;
    td_status st = td_comm_gather(j->ranks.comm, &own, sizeof own, all);
    for (int r = 0; st == TD_OK && r < j->ranks.n; r++) {
        least = all[r] < all[least] ? r : least;
        most = all[r] > most ? all[r] : most;
    }
    const double late = st == TD_OK ? most - all[least] : 0;
    if (late > min_seconds && late > min_share * (j->run.data_s + j->run.compute_s))
        td_log(TD_LOG_INFO, "train", "%s is slow: other ranks waited %.1f s of %.1f s for it",
               td_comm_name(j->ranks.comm, least), late, j->run.data_s + j->run.compute_s);
    td_free(all);
    return st;
}
