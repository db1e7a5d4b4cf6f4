/*
 * report_metrics.c -- the table of metrics, with the reference logger's names and units
 */
#include "loggers/report_metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
enum { ANY, CLASSES, BOXES, BENCHMARKS, LABELS };

static const td_metric of_training[] = {
    { "loss",                 TD_UNIT_NULL, 5, 0, ANY },
    { "compute_ips",          "images/s",   2, 0, ANY },
    { "total_ips",            "images/s",   2, 0, ANY },
    { "data_time",            "s",          5, 1, ANY },
    { "compute_time",         "s",          5, 1, ANY },
    { "lr",                   NULL,        -1, 0, ANY },
    { "grad_scale",           TD_UNIT_NULL, -1, 0, ANY },
    { "skipped_steps",        NULL,         0, 1, ANY },
    { "loss_class",           TD_UNIT_NULL, 5, 0, BOXES },
    { "loss_box",             TD_UNIT_NULL, 5, 0, BOXES },
    { "positives",            NULL,         1, 0, BOXES },
    { "last_quarter_ips",     "images/s",   2, 1, BOXES },
    { "l2_loss",              TD_UNIT_NULL, 5, 0, ANY },
    { "total_loss",           TD_UNIT_NULL, 5, 0, ANY },
    { "grad_norm",            TD_UNIT_NULL, 5, 1, ANY },
};

static const td_metric of_validation[] = {
    { "top1",                  "%",          2, 0, CLASSES },
    { "top5",                  "%",          2, 0, CLASSES },
    { "mAP",                   NULL,         4, 0, LABELS },
    { "micro_f1",              NULL,         4, 0, LABELS },
    { "macro_f1",              NULL,         4, 1, LABELS },
    { "loss",                  TD_UNIT_NULL, 5, 0, CLASSES },
    { "compute_ips",           "images/s",   2, 0, ANY },
    { "total_ips",             "images/s",   2, 0, ANY },
    { "data_time",             "s",          5, 1, ANY },
    { "compute_latency",       "s",          5, 0, ANY },
    { "compute_time",          "s",          5, TD_METRIC_JSON_ONLY, ANY },
    { "compute_latency_at50",  "s",          5, 1, ANY },
    { "compute_latency_at90",  "s",          5, 1, ANY },
    { "compute_latency_at95",  "s",          5, 1, ANY },
    { "compute_latency_at99",  "s",          5, 1, ANY },
    { "compute_latency_at100", "s",          5, 1, ANY },
    { "AP",                   NULL,         4, 0, BOXES },
    { "AP50",                 NULL,         4, 0, BOXES },
    { "AP75",                 NULL,         4, 1, BOXES },
    { "APs",                  NULL,         4, 1, BOXES },
    { "APm",                  NULL,         4, 1, BOXES },
    { "APl",                  NULL,         4, 1, BOXES },
    { "AR1",                  NULL,         4, 1, BOXES },
    { "AR10",                 NULL,         4, 1, BOXES },
    { "AR100",                NULL,         4, 1, BOXES },
    { "ARs",                  NULL,         4, 1, BOXES },
    { "ARm",                  NULL,         4, 1, BOXES },
    { "ARl",                  NULL,         4, 1, BOXES },
};

static const td_metric of_tf[] = {
    { "imgs_per_sec",          "images/s",   2, 0, ANY },
    { "cross_entropy",         TD_UNIT_NULL, 5, 0, ANY },
    { "learning_rate",         NULL,        -1, 0, ANY },
    { "l2_loss",               TD_UNIT_NULL, 5, 0, ANY },
    { "total_loss",            TD_UNIT_NULL, 5, 0, ANY },
    { "train_throughput",      "images/s",   2, 0, ANY },
    { "top1_accuracy",         NULL,         5, 0, CLASSES },
    { "top5_accuracy",         NULL,         5, 0, CLASSES },
    { "eval_throughput",       "images/s",   2, 0, ANY },
    { "eval_latency_avg",      "ms",         3, 0, ANY },
    { "eval_latency_p90",      "ms",         3, 0, ANY },
    { "eval_latency_p95",      "ms",         3, 0, ANY },
    { "eval_latency_p99",      "ms",         3, 0, ANY },
    { "DetectionBoxes_Precision/mAP", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Precision/mAP@.50IOU", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Precision/mAP@.75IOU", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Precision/mAP (small)", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Precision/mAP (medium)", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Precision/mAP (large)", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Recall/AR@1", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Recall/AR@10", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Recall/AR@100", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Recall/AR@100 (small)", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Recall/AR@100 (medium)", NULL, 4, 0, BOXES },
    { "DetectionBoxes_Recall/AR@100 (large)", NULL, 4, 0, BOXES },
    { "total_ips",             "images/s",   2, 0, BENCHMARKS },
    { "infer_throughput",      "images/s",   2, 0, BENCHMARKS },
    { "eval_avg_latency",      "ms",         3, 0, BENCHMARKS },
    { "eval_90%_latency",      "ms",         3, 0, BENCHMARKS },
    { "eval_95%_latency",      "ms",         3, 0, BENCHMARKS },
    { "eval_99%_latency",      "ms",         3, 0, BENCHMARKS },
};

/* SSD300's names of benchmark results */
static const td_metric of_ssd300[] = {
    { "avg_img/sec",           "images/s",   2, 0, BENCHMARKS },
    { "med_img/sec",           "images/s",   2, 0, BENCHMARKS },
    { "min_img/sec",           "images/s",   2, 0, BENCHMARKS },
    { "max_img/sec",           "images/s",   2, 0, BENCHMARKS },
};

static const td_metric of_class = { TD_METRIC_CLASS, NULL, 4, 2, BOXES };

static const struct {
    const char *prefix;
    const td_metric *rows;
    size_t n;
} groups[] = {
    { "train.",   of_training,   sizeof of_training / sizeof *of_training },
    { "val.",     of_validation, sizeof of_validation / sizeof *of_validation },
    { "val_ema.", of_validation, sizeof of_validation / sizeof *of_validation },
    { "",         of_ssd300,     sizeof of_ssd300 / sizeof *of_ssd300 },
    { "",         of_tf,         sizeof of_tf / sizeof *of_tf },
};
/* clang-format on */

enum { N_GROUPS = sizeof groups / sizeof *groups, TF_GROUP = N_GROUPS - 1 };

/* A row "top5..." matches "top17...", any K, if the rest is equal. */
static bool is_name(const char *row, const char *name)
{
    const size_t digits = td_text_starts(name, "top") ? strspn(name + 3, "0123456789") : 0;
    if (strcmp(row, name) == 0)
        return true;
    return digits > 0 && td_text_starts(row, "top5") && strcmp(row + 4, name + 3 + digits) == 0;
}

const td_metric *td_metric_find(const char *name)
{
    for (int g = 0; g < N_GROUPS; g++)
        for (size_t i = 0; td_text_starts(name, groups[g].prefix) && i < groups[g].n; i++)
            if (is_name(groups[g].rows[i].name, name + strlen(groups[g].prefix)))
                return &groups[g].rows[i];
    return td_text_starts(name, TD_METRIC_CLASS) ? &of_class : NULL;
}

static bool is_of_decay(const char *row)
{
    return strcmp(row, "l2_loss") == 0 || strcmp(row, "total_loss") == 0;
}

static bool is_chosen(const td_metric_choice *c, int group, const td_metric *m)
{
    if (group == TF_GROUP && !c->has_tf_names)
        return false;
    if (is_of_decay(m->name) && !c->has_l2_loss)
        return false;
    if (strcmp(m->name, "grad_norm") == 0 && !c->has_grad_norm)
        return false;
    if (td_text_starts(m->name, "top5") && c->topk == 1)
        return false;
    if (m->job_kind == BENCHMARKS)
        return c->is_benchmark;
    if (m->job_kind == LABELS)
        return c->is_multi_label;
    if (c->is_multi_label && td_text_starts(m->name, "top"))
        return false;
    return m->job_kind == ANY || (m->job_kind == BOXES) == c->detects;
}

td_status td_metric_each(const td_metric_choice *c,
                         td_status (*each)(void *ctx, const char *name, const td_metric *m),
                         void *ctx)
{
    for (int g = 0; g < N_GROUPS; g++)
        for (size_t i = 0; i < groups[g].n; i++) {
            const td_metric *m = &groups[g].rows[i];
            char name[64];
            if (!is_chosen(c, g, m))
                continue;
            if (td_text_starts(m->name, "top5"))
                snprintf(name, sizeof name, "%stop%d%s", groups[g].prefix, c->topk, m->name + 4);
            else
                snprintf(name, sizeof name, "%s%s", groups[g].prefix, m->name);
            TD_TRY(each(ctx, name, m));
        }
    return TD_OK;
}

void td_metric_add_real(td_text *out, double x)
{
    char digits[40];
    if (!isfinite(x)) {
        td_text_add(out, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    if (x == floor(x) && fabs(x) < 1e16) {
        td_text_add(out, "%.1f", x);
        return;
    }
    for (int n = 1; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, x);
        if (strtod(digits, NULL) == x)
            break;
    }
    td_text_add(out, "%s", digits);
}

void td_metric_add_value(td_text *out, const td_metric *m, double x)
{
    if (!isfinite(x))
        td_text_add(out, "None");
    else if (m && m->decimals >= 0)
        td_text_add(out, "%.*f", m->decimals, x);
    else
        td_metric_add_real(out, x);
}
