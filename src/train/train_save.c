/*
 * train_save.c -- writes weights and checkpoints of a training job
 */
#include "train/train_save.h"

#include <stdio.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/paths.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_file.h"
#include "checkpoint/weights.h"
#include "train/train_ranks.h"
#include "train/train_report.h"
#include "train/train_restart.h"

typedef td_train_job job;

static td_weight_metadata metadata_of(const job *j)
{
    return (td_weight_metadata){ .model = &j->o.model,
                                 .num_classes = j->o.model.num_classes,
                                 .n_names = td_dataset_backend(j->data.train_set) == TD_DATA_FOLDER
                                                ? td_dataset_classes(j->data.train_set)
                                                : 0,
                                 .names = j->data.class_names,
                                 .categories = j->data.categories,
                                 .tracked = &j->tracked };
}

/* Add the step to the message about parameters that cannot be saved. */
static td_status at_step(const job *j, td_status st)
{
    if (st != TD_ENUMERIC)
        return st;
    return td_error_context(st, "after step %lld", (long long)j->s.steps);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

td_status td_train_save(td_train_job *j)
{
    td_weight_metadata f = metadata_of(j);
    if (!td_train_writes(j))
        return TD_OK;
    const int64_t begin_ns = td_now_ns();
    TD_TRY(td_bad_list_write(&j->files.bad, j->data.train_loader, j->data.val_loader));
    td_train_report_saving(j, j->files.path[TD_PATH_CHECKPOINT]);
    TD_TRY(at_step(j, td_checkpoint_save(j->files.path[TD_PATH_CHECKPOINT], j->program, &j->s, &f,
                                         td_text_get(&j->files.config))));
    snprintf(j->out->checkpoint, sizeof j->out->checkpoint, "%s",
             j->files.path[TD_PATH_CHECKPOINT]);
    td_train_restart_record(j, true);
    td_trace_span(j->observers.trace, "save the checkpoint", begin_ns);
    return TD_OK;
}

static td_status epoch_path(const job *j, int64_t epoch, char **out)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoint_%04lld.safetensors", (long long)epoch);
    *out = td_path_join(j->files.folder, name);
    return *out ? TD_OK : TD_ENOMEM;
}

enum { FIRST_EPOCHS = 10 };

/*
 * --gather-checkpoints: the last N epochs, TD_KEEP_ALL, or TD_KEEP_TENTHS as the 2019 reference
 * does.
 */
td_status td_train_save_epoch(td_train_job *j, int64_t epoch)
{
    char *now = NULL, *old = NULL;
    td_weight_metadata f = metadata_of(j);
    int keep = j->o.output.keep_checkpoints;
    td_status st = TD_OK;
    if (keep == 0 || !td_train_writes(j))
        return TD_OK;
    if (keep == TD_KEEP_TENTHS && epoch >= FIRST_EPOCHS && epoch % FIRST_EPOCHS)
        return TD_OK;
    TD_OUT(epoch_path(j, epoch, &now));
    TD_OUT(
        at_step(j, td_checkpoint_save(now, j->program, &j->s, &f, td_text_get(&j->files.config))));
    if (keep > 0 && epoch >= keep) {
        TD_OUT(epoch_path(j, epoch - keep, &old));
        unlink(old);
    }
out:
    td_free(now);
    td_free(old);
    return st;
}

/* --- weights ---------------------------------------------------------------------------------- */

static td_status save_weights(const job *j, const char *path, unsigned what)
{
    const td_weight_metadata f = metadata_of(j);
    return at_step(j, td_weight_file_save(path, j->program, what, j->s.batches_tracked, &f));
}

td_status td_train_save_best(td_train_job *j)
{
    return td_train_writes(j) ? save_weights(j, j->files.path[TD_PATH_BEST], TD_SAVE_EMA) : TD_OK;
}

/* At the end of a run that saves nothing. */
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

td_status td_train_save_final(td_train_job *j)
{
    if (j->o.output.final_weights && !j->out->was_stopped)
        TD_TRY(save_weights(j, j->o.output.final_weights,
                            j->o.output.final_state ? TD_SAVE_STATE | TD_SAVE_EMA : 0));
    return j->ranks.rank == 0 && !td_train_writes(j) ? check_finite(j) : TD_OK;
}
