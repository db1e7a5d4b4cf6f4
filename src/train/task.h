/*
 * train/task.h -- the task of a training job: all that differs between classification and detection
 *
 * The job (train.c) is one loop: batches, steps, validations, checkpoints.  A task opens the data
 * sets, binds a batch's arrays to the program and evaluates the weights.  A task is defined in
 * task_classify.c or task_detect.c, and train_open.c chooses one.
 */
#ifndef TD_TRAIN_TASK_H
#define TD_TRAIN_TASK_H

#include "train/train_job.h"

struct td_task {
    const char *metric; /* by which the best weights are chosen */
    bool detects;       /* scores: AP and AP50, fractions; if false: top-1 and top-k, percent */

    /* Check the options of this task; may be NULL. */
    td_status (*check)(const td_train_opts *o);

    /* Open the data sets and loaders, list the classes, resolve the model's classes and size. */
    td_status (*open_data)(td_train_job *j);

    /* Bind the batch's arrays to the program's inputs. */
    td_status (*bind)(td_train_job *j, const td_batch *b);

    /* After a step: store the program's outputs other than the loss in `f`; may be NULL. */
    void (*note_step)(const td_train_job *j, td_step_metadata *f);

    /* One pass over the validation set; `prefix`: "" for the trained weights, "ema." for the
       averaged ones.  Changes none of the job's results: the pass may have been interrupted. */
    td_status (*evaluate)(td_train_job *j, const char *prefix, td_eval_result *v);

    /* Make a complete evaluation of the trained weights the job's last validation. */
    void (*keep_scores)(td_train_job *j, const td_eval_result *v);

    /* "top1 81.25 %, top5 97.00 %, loss 0.7": a validation's part of the log line of an epoch. */
    void (*format_scores)(const td_train_job *j, const td_eval_result *v, char *out, size_t n);

    /* Check the last validation against --require.  TD_EUSAGE, TD_EREQUIRED. */
    td_status (*require)(const td_train_job *j, const char *rule);

    void (*release)(td_train_job *j); /* may be NULL */
};

extern const td_task td_task_classify;
extern const td_task td_task_detect;

#endif
