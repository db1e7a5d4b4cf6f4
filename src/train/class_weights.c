/*
 * class_weights.c -- parses or computes the factors of the classes
 */
#include "train/class_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "data/dataset.h"

#define WEIGHT_MAX 1e6

static td_status balance(const td_dataset *ds, int classes, float *out)
{
    const int64_t n = td_dataset_count(ds);
    int n_used = 0;
    int64_t *counts = td_alloc((size_t)classes, sizeof *counts);
    if (!counts)
        return TD_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        const int64_t label = td_dataset_label(ds, i);
        if (label >= 0 && label < classes)
            n_used += counts[label]++ == 0;
    }
    for (int k = 0; k < classes; k++)
        out[k] = counts[k] ? (float)((double)n / ((double)n_used * (double)counts[k])) : 1;
    td_free(counts);
    return TD_OK;
}

static td_status parse(const char *text, int classes, float *out)
{
    int k = 0;
    for (const char *s = text;; s++) {
        char *end;
        const double w = strtod(s, &end);
        if (end == s || (*end && *end != ',') || !(w >= 0 && w <= WEIGHT_MAX))
            return td_error(TD_EUSAGE, "'%.20s' is no weight from 0 to 1e6", s);
        if (k == classes)
            return td_error(TD_EUSAGE, "more weights than the %d classes", classes);
        out[k++] = (float)w;
        s = end;
        if (!*s)
            break;
    }
    if (k < classes)
        return td_error(TD_EUSAGE, "%d weights, wanted one for each of %d classes", k, classes);
    return TD_OK;
}

static td_status balance_positives(const td_dataset *ds, int classes, float *out)
{
    const int64_t n = td_dataset_count(ds);
    td_status st = TD_OK;
    float *row = NULL;
    int64_t *counts = NULL;
    TD_OUT(TD_ALLOC(row, (size_t)classes));
    TD_OUT(TD_ALLOC(counts, (size_t)classes));
    for (int64_t i = 0; i < n; i++) {
        const int64_t label = ds->is_multi_label ? -1 : td_dataset_label(ds, i);
        if (label >= 0 && label < classes)
            counts[label]++;
        if (!ds->is_multi_label)
            continue;
        td_sample_targets(ds, i, row);
        for (int k = 0; k < classes; k++)
            counts[k] += row[k] > 0;
    }
    for (int k = 0; k < classes; k++)
        out[k] =
            counts[k] && counts[k] < n ? (float)((double)(n - counts[k]) / (double)counts[k]) : 1;
out:
    td_free(row);
    td_free(counts);
    return st;
}

static td_status parse_positives(const char *text, int classes, float *out)
{
    if (strchr(text, ','))
        return parse(text, classes, out);
    TD_TRY(parse(text, 1, out));
    for (int k = 1; k < classes; k++)
        out[k] = out[0];
    return TD_OK;
}

typedef struct {
    const char *option;
    td_status (*balance)(const td_dataset *ds, int classes, float *out);
    td_status (*parse)(const char *text, int classes, float *out);
} kind;

static td_status make(const kind *k, const char *text, const td_dataset *ds, int classes,
                      float **out)
{
    float *weights = td_alloc((size_t)classes, sizeof *weights);
    *out = NULL;
    if (!weights)
        return TD_ENOMEM;
    const td_status st = strcmp(text, "balanced") == 0 ? k->balance(ds, classes, weights)
                                                       : k->parse(text, classes, weights);
    if (st == TD_OK)
        *out = weights;
    else
        td_free(weights);
    return st == TD_OK ? st : td_error_context(st, "%s", k->option);
}

td_status td_class_weights_new(const char *text, const td_dataset *ds, int classes, float **out)
{
    return make(&(kind){ "--class-weights", balance, parse }, text, ds, classes, out);
}

td_status td_positive_weights_new(const char *text, const td_dataset *ds, int classes, float **out)
{
    return make(&(kind){ "--pos-weight", balance_positives, parse_positives }, text, ds, classes,
                out);
}
