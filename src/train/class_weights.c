/*
 * class_weights.c -- parses or computes the factors of the classes
 */
#include "train/class_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

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

td_status td_class_weights_new(const char *text, const td_dataset *ds, int classes, float **out)
{
    float *weights = td_alloc((size_t)classes, sizeof *weights);
    *out = NULL;
    if (!weights)
        return TD_ENOMEM;
    const td_status st = strcmp(text, "balanced") == 0 ? balance(ds, classes, weights)
                                                       : parse(text, classes, weights);
    if (st == TD_OK)
        *out = weights;
    else
        td_free(weights);
    return st == TD_OK ? st : td_error_context(st, "--class-weights");
}
