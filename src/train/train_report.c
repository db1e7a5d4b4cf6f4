/*
 * train_report.c -- what a training job says of its steps, epochs and end: log lines and records
 */
#include "train/train_report.h"

#include <stdio.h>

#include "base/log.h"

/* ", loss scale 32768", or nothing where there is none */
static const char *scale_text(const td_train_job *j, char *room, size_t n)
{
    *room = '\0';
    if (j->s.scaler.kind != TD_SCALER_NONE)
        snprintf(room, n, ", loss scale %g", (double)j->scale);
    return room;
}

td_status td_train_report_step(td_train_job *j, double loss, double data_s, double compute_s)
{
    char scale[48];
    double n = j->o.batch_size;
    int64_t step[2] = { j->s.epoch, j->s.iteration };
    if (j->s.iteration % j->o.print_freq)
        return TD_OK;
    td_log(TD_LOG_INFO, "train",
           "epoch %lld, iteration %lld/%lld: loss %.5f, lr %.5g, %.1f images/s%s",
           (long long)j->s.epoch, (long long)j->s.iteration,
           (long long)td_loader_batches(j->train_loader), loss, j->lr_exact,
           n / (data_s + compute_s), scale_text(j, scale, sizeof scale));
    td_report_begin(j->report, 2, step);
    td_report_add(j->report, "train.loss", loss);
    td_report_add(j->report, "train.compute_ips", n / compute_s);
    td_report_add(j->report, "train.total_ips", n / (data_s + compute_s));
    td_report_add(j->report, "train.data_time", data_s);
    td_report_add(j->report, "train.compute_time", compute_s);
    td_report_add(j->report, "train.lr", j->lr_exact);
    td_report_add(j->report, "train.grad_scale", (double)j->scale);
    return td_report_end(j->report);
}

td_status td_train_report_epoch(td_train_job *j, const td_verdict *v, const td_verdict *ema,
                                int64_t n_skipped)
{
    double batches = (double)j->epoch_batches, n = batches * j->o.batch_size;
    int64_t epoch = j->s.epoch - 1;
    j->out->images_per_s = n > 0 ? n / (j->data_s + j->compute_s) : 0;
    td_report_begin(j->report, 1, &epoch);
    td_report_add(j->report, "train.loss", j->s.last_train_loss);
    td_report_add(j->report, "train.compute_ips", n / j->compute_s);
    td_report_add(j->report, "train.total_ips", j->out->images_per_s);
    td_report_add(j->report, "train.data_time", j->data_s / batches);
    td_report_add(j->report, "train.compute_time", j->compute_s / batches);
    td_report_add(j->report, "train.lr", j->lr_exact);
    td_report_add(j->report, "train.grad_scale", j->scale_sum / batches);
    td_report_add(j->report, "train.skipped_steps", (double)n_skipped);
    if (v) {
        td_verdict_report(v, "val", j->o.topk, j->report);
        if (ema)
            td_verdict_report(ema, "val_ema", j->o.topk, j->report);
        td_log(TD_LOG_INFO, "train",
               "epoch %lld: loss %.4f, %.1f images/s; val top1 %.2f %%, top%d %.2f %%, loss %.4f",
               (long long)epoch, j->s.last_train_loss, j->out->images_per_s, j->s.last_top1,
               j->o.topk, j->s.last_topk, j->s.last_val_loss);
    } else {
        td_log(TD_LOG_INFO, "train", "epoch %lld: loss %.4f, %.1f images/s", (long long)epoch,
               j->s.last_train_loss, j->out->images_per_s);
    }
    return td_report_end(j->report);
}

td_status td_train_report_run(td_train_job *j)
{
    td_report_begin(j->report, 0, NULL);
    td_report_add(j->report, "train.loss", j->s.last_train_loss);
    td_report_add(j->report, "train.total_ips", j->out->images_per_s);
    td_report_add(j->report, "train.skipped_steps", (double)j->s.scaler.skipped);
    if (j->s.last_top1 >= 0) {
        td_report_add(j->report, "val.top1", j->s.best_top1);
        td_report_add(j->report, "val.loss", j->s.last_val_loss);
    }
    return td_report_end(j->report);
}
