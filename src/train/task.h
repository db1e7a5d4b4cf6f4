/*
 * train/task.h -- the task of a training job: the part in which classification and detection differ
 *
 * The job (train.c) is one loop: batches, steps, validations, checkpoints.  A task opens the data
 * sets, binds a batch's arrays to the program and evaluates the weights.  A task is defined in
 * task_classify.c or task_detect.c, and train_open.c chooses one.
 */
#ifndef TD_TRAIN_TASK_H
#define TD_TRAIN_TASK_H

#include "train/train_job.h"

struct td_task {
    const char *metric; /* what the best weights are chosen by */
    bool detects;       /* scores are AP and AP50, fractions; else top-1 and top-k, percent */

    /* What the options must not say; may be NULL. */
    td_status (*check)(const td_train_opts *o);

    /* The data sets, the loaders, the classes' names; the model's classes and size are resolved. */
    td_status (*open_data)(td_train_job *j);

    /* The batch's arrays to the program's inputs. */
    td_status (*bind)(td_train_job *j, const td_batch *b);

    /* After a step: what its program says beside the loss, into `f`; may be NULL. */
    void (*note_step)(const td_train_job *j, td_step_metadata *f);

    /* One pass over the validation set with the weights of `prefix`: "" the trained, "ema." the
       averaged ones. */
    td_status (*evaluate)(td_train_job *j, const char *prefix, td_eval_result *v);

    /* "top1 81.25 %, top5 97.00 %, loss 0.7": the last validation in the line of an epoch. */
    void (*format_scores)(const td_train_job *j, char *out, size_t n);

    /* --require against the last validation.  TD_EUSAGE, TD_EREQUIRED. */
    td_status (*require)(const td_train_job *j, const char *rule);

    void (*release)(td_train_job *j); /* may be NULL */
};

extern const td_task td_task_classify;
extern const td_task td_task_detect;

#endif
