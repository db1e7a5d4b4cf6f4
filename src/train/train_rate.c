/*
 * train_rate.c -- the learning rate of a job's next step, by the rule that its options name
 */
#include "train/schedule.h"
#include "train/train_job.h"

typedef td_train_job job;

static td_lr_opts by_epoch(const td_train_opts *o)
{
    return (td_lr_opts){ .schedule = (td_lr_schedule)o->lr_schedule,
                         .lr = o->lr,
                         .end_lr = o->end_lr,
                         .warmup = o->warmup,
                         .epochs = o->epochs,
                         .decay = o->lr_decay,
                         .decay_epochs = o->lr_decay_epochs };
}

static double rate(const job *j)
{
    const td_lr_opts lr = by_epoch(&j->o);
    const int64_t batches = td_loader_batches(j->train_loader);
    const int64_t step = (j->s.epoch * batches + j->s.iteration) / j->acc;
    switch ((td_lr_rule)j->o.lr_rule) {
    case TD_LR_RULE_TF:
        return td_lr_at_step(&lr, step, (double)batches / (double)j->acc, j->o.batch_size * j->acc);
    case TD_LR_RULE_SSD320:
        return td_lr_ssd320(&j->by_step, step);
    case TD_LR_RULE_SSD300:
        return td_lr_ssd300(&j->by_step, step, j->s.epoch);
    case TD_LR_RULE_PYTORCH:
        break;
    }
    return td_lr_at(&lr, (int)j->s.epoch);
}

void td_train_set_rate(td_train_job *j)
{
    j->lr_exact = rate(j);
    j->lr = (float)j->lr_exact;
}
