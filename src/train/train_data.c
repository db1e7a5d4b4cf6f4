/*
 * train_data.c -- class names and loader options of both tasks
 */
#include "train/train_data.h"

#include "base/arena.h"
#include "base/text.h"

int64_t td_train_synthetic_images(const td_train_job *j)
{
    const td_train_opts *o = &j->o;
    int64_t batches = o->profile.iterations > 0 ? o->profile.iterations
                      : o->length.run_steps > 0 ? o->length.run_steps
                                                : 100;
    const int n = j->restart.ranks ? j->restart.ranks : j->ranks.n; /* as many after a restart */
    return batches * o->batch.size * n;
}

td_status td_train_list_classes(td_train_job *j)
{
    const int n = td_dataset_classes(j->data.train_set);
    TD_TRY(TD_ALLOC(j->data.class_names, (size_t)n + 1));
    for (int i = 0; i < n; i++)
        j->data.class_names[i] = td_dataset_class_name(j->data.train_set, i);
    return TD_OK;
}

td_status td_train_validation_absent(td_status st)
{
    if (st != TD_ENOTFOUND)
        return st;
    char *message = td_copy_text(td_error_message());
    if (!message)
        return TD_ENOMEM;
    st = td_error(st, "%s; --training-only trains without validation", message);
    td_free(message);
    return st;
}

void td_train_loader_opts(const td_train_job *j, td_loader_opts *lo)
{
    const td_train_opts *o = &j->o;
    lo->is_training = true;
    lo->seed = j->s.seed;
    lo->rank = j->ranks.rank;
    lo->world = j->ranks.n;
    lo->image_sizes = o->batch.image_size_schedule;
    lo->start_epoch = j->s.epoch;
    lo->start_batch = j->s.iteration;
    lo->order = o->batch.shuffle == TD_SHUFFLE_BUFFER   ? TD_ORDER_BUFFER
                : o->batch.sampler == TD_SAMPLER_PADDED ? TD_ORDER_PADDED
                                                        : TD_ORDER_PERMUTATION;
}
