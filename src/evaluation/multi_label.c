/*
 * multi_label.c -- see multi_label.h
 *
 * The average precision of a class is sum_i (R_i - R_(i-1)) P_i over its distinct logits, from the
 * largest: P_i is the precision and R_i the recall of the images with at least this logit.
 */
#include "evaluation/multi_label.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"

typedef struct {
    float logit;
    bool is_positive;
} scored;

/* the largest first; NaN last */
static int by_logit(const void *a, const void *b)
{
    const float x = ((const scored *)a)->logit, y = ((const scored *)b)->logit;
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x < y) - (x > y);
}

static double average_precision(const scored *s, int64_t n, int64_t n_positive)
{
    int64_t found = 0;
    double sum = 0;
    for (int64_t first = 0, end; n_positive && first < n; first = end) {
        const int64_t before = found;
        for (end = first; end < n && by_logit(&s[first], &s[end]) == 0; end++)
            found += s[end].is_positive;
        sum += (double)(found - before) / (double)n_positive * ((double)found / (double)end);
    }
    return sum;
}

/* 2 tp / (2 tp + fp + fn); 0 where nothing is predicted and nothing is there */
static double f1(int64_t tp, int64_t predicted, int64_t positive)
{
    return predicted + positive ? 2.0 * (double)tp / (double)(predicted + positive) : 0;
}

td_status td_multi_scores_compute(const float *logits, const uint8_t *targets, int64_t n, int k,
                                  double threshold, td_label_scores *classes, td_multi_scores *out)
{
    int64_t tp_all = 0, predicted_all = 0, positive_all = 0;
    scored *s;
    *out = (td_multi_scores){ 0 };
    TD_TRY(TD_ALLOC(s, (size_t)n + 1));
    for (int c = 0; c < k; c++) {
        int64_t tp = 0, predicted = 0, positive = 0;
        for (int64_t i = 0; i < n; i++) {
            const float x = logits[i * k + c];
            const bool is_positive = targets[i * k + c] != 0;
            const bool is_predicted = 1 / (1 + exp(-(double)x)) >= threshold;
            s[i] = (scored){ x, is_positive };
            positive += is_positive;
            predicted += is_predicted;
            tp += is_positive && is_predicted;
        }
        qsort(s, (size_t)n, sizeof *s, by_logit);
        const td_label_scores one = { positive, predicted, tp, average_precision(s, n, positive),
                                      f1(tp, predicted, positive) };
        if (classes)
            classes[c] = one;
        out->map += one.ap / k;
        out->macro_f1 += one.f1 / k;
        out->n_absent += positive == 0;
        tp_all += tp;
        predicted_all += predicted;
        positive_all += positive;
    }
    out->micro_f1 = f1(tp_all, predicted_all, positive_all);
    td_free(s);
    return TD_OK;
}
