/*
 * train_restart.c -- position and length of a run that the launcher starts again
 */
#include "train/train_restart.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"

typedef td_train_job job;

/*
 * The images per optimizer step of the first start, on this number of ranks.  Without them the
 * steps, the learning rate and the order of the images would be others.
 */
static td_status keep_step_images(job *j)
{
    const int64_t batch = j->o.batch.size, first = batch * j->restart.ranks,
                  now = batch * j->ranks.n, of = j->o.batch.step_size;
    const int64_t images = of > 0 ? of / first * first : first;
    if (j->ranks.n == j->restart.ranks || images == 0)
        return TD_OK;
    if (images % now)
        return td_error(TD_EUSAGE,
                        "the run began with %lld images per step on %d ranks, which %d ranks with "
                        "--batch-size %d cannot divide",
                        (long long)images, j->restart.ranks, j->ranks.n, j->o.batch.size);
    if (images > 1 << 24)
        return td_error(TD_EUSAGE, "%lld images per step, wanted at most %d", (long long)images,
                        1 << 24);
    j->o.batch.step_size = (int)images;
    return TD_OK;
}

td_status td_train_restart_open(td_train_job *j)
{
    TD_TRY(td_restart_here(&j->restart));
    if (j->restart.ranks == 0)
        return TD_OK;
    j->files.may_overwrite = j->files.may_overwrite || j->restart.folder; /* the run's own */
    return keep_step_images(j);
}

/* what is left of `limit` after `done`; -1: no limit */
static int64_t left_of(int64_t limit, int64_t done)
{
    return limit < 0 ? limit : limit > done ? limit - done : 0;
}

void td_train_restart_shorten(td_train_job *j)
{
    td_restart *r = &j->restart;
    if (r->first_steps < 0 || r->first_epochs < 0) {
        r->first_steps = j->s.steps;
        r->first_epochs = j->s.epoch;
    }
    j->o.length.run_steps = left_of(j->o.length.run_steps, j->s.steps - r->first_steps);
    j->o.length.run_epochs = (int)left_of(j->o.length.run_epochs, j->s.epoch - r->first_epochs);
}

void td_train_restart_record(const td_train_job *j, bool is_saved)
{
    if (j->ranks.rank > 0 || !td_restart_is_possible())
        return;
    const char *checkpoint = is_saved                ? j->files.path[TD_PATH_CHECKPOINT]
                             : j->restart.checkpoint ? j->restart.checkpoint
                                                     : "";
    td_restart_record *r = TD_NEW(td_restart_record);
    td_status st = r ? TD_OK : TD_ENOMEM;
    if (st == TD_OK && (strlen(checkpoint) >= PATH_MAX || strlen(j->files.folder) >= PATH_MAX))
        st = td_error(TD_EIO, "a path of more than %d bytes", PATH_MAX - 1);
    if (st == TD_OK) {
        *r = (td_restart_record){ .batch = j->o.batch.size,
                                  .images = j->plan.batches_per_step * j->o.batch.size * j->ranks.n,
                                  .steps = j->s.steps,
                                  .first_steps = j->restart.first_steps,
                                  .first_epochs = j->restart.first_epochs,
                                  .is_fresh = j->files.is_folder_fresh };
        snprintf(r->folder, sizeof r->folder, "%s", j->files.folder);
        snprintf(r->checkpoint, sizeof r->checkpoint, "%s", checkpoint);
        st = td_restart_write(r);
    }
    td_free(r);
    if (st != TD_OK) {
        td_log(TD_LOG_WARN, "train", "the run cannot be restarted from here: %s",
               td_error_message());
        td_error_clear();
    }
}

void td_train_restart_note_stop(const td_train_job *j)
{
    if (j->out->was_stopped && j->ranks.rank == 0)
        td_restart_report(TD_RESTART_STOP);
}
