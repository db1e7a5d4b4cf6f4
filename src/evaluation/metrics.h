/*
 * evaluation/metrics.h -- exact counts of correct predictions
 */
#ifndef TD_EVALUATION_METRICS_H
#define TD_EVALUATION_METRICS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t n, n_top1, n_topk;
    int64_t n_nonfinite; /* samples whose loss is not finite */
    double loss_sum;     /* sum over the samples */
} td_counts;

/**
 * Count a batch: logits [n, classes], labels [n], losses [n] or NULL.  A label is among the k best
 * if fewer than k classes are better; of equal logits, that of the lower class is better, as in
 * torch.topk with a stable order.  NaN is worse than any other logit.
 */
void td_count_batch(td_counts *c, const float *logits, const int64_t *labels, const float *losses,
                    int n, int classes, int k);

double td_percent(int64_t part, int64_t whole);
double td_mean_loss(const td_counts *c); /* 0 without images */

#endif
