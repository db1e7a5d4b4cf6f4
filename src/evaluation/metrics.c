/*
 * metrics.c -- counts correct predictions
 */
#include "evaluation/metrics.h"

#include <math.h>

static int rank_of(const float *row, int classes, int64_t label)
{
    int better = 0;
    if (!(row[label] == row[label]))
        return classes;
    for (int c = 0; c < classes; c++)
        better += row[c] > row[label] || (row[c] == row[label] && c < label);
    return better;
}

void td_count_batch(td_counts *c, const float *logits, const int64_t *labels, const float *losses,
                    int n, int classes, int k)
{
    for (int i = 0; i < n; i++) {
        c->n++;
        if (losses) {
            c->loss_sum += (double)losses[i];
            c->n_nonfinite += !isfinite(losses[i]);
        }
        if (labels[i] < 0 || labels[i] >= classes)
            continue;
        int rank = rank_of(logits + (int64_t)i * classes, classes, labels[i]);
        c->n_top1 += rank == 0;
        c->n_topk += rank < k;
    }
}

double td_percent(int64_t part, int64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

double td_mean_loss(const td_counts *c)
{
    return c->n ? c->loss_sum / (double)c->n : 0;
}
