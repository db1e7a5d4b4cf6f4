/*
 * outcomes.c -- collects predictions and writes the confusion record
 */
#include "evaluation/outcomes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/paths.h"
#include "base/stats.h"
#include "evaluation/confusion.h"

/* the bytes gathered for each image */
typedef struct {
    int32_t label, best;
    float probability; /* of `best`; 1 if correct, where it is unused */
} outcome;

typedef struct {
    int64_t sample;
    outcome o;
} mistake;

typedef struct {
    int64_t key; /* label * classes + best */
    int64_t count;
} pair;

/* --- collecting ------------------------------------------------------------------------------- */

/* Softmax of the largest logit; 0 if it is NaN. */
static float probability_of(const float *x, int n, int best)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i]))
            sum += exp((double)x[i] - (double)x[best]);
    const double p = 1 / sum;
    return isfinite(p) && p <= 1 ? (float)p : 0;
}

td_status td_outcomes_add(td_gather *s, const td_batch *b, const float *logits, int classes)
{
    for (int i = 0; i < b->n; i++) {
        const float *row = logits + (size_t)i * (size_t)classes;
        int best;
        if (b->labels[i] < 0 || b->labels[i] >= classes)
            continue;
        td_top_k(row, classes, 1, &best);
        const outcome o = { (int32_t)b->labels[i], best,
                            b->labels[i] == best ? 1 : probability_of(row, classes, best) };
        TD_TRY(td_gather_begin(s, b->samples[i]));
        TD_TRY(td_gather_put(s, &o, sizeof o));
    }
    return TD_OK;
}

/* --- counting --------------------------------------------------------------------------------- */

static int by_certainty(const void *a, const void *b)
{
    const mistake *p = a, *q = b;
    if (p->o.probability != q->o.probability)
        return p->o.probability > q->o.probability ? -1 : 1;
    return (p->sample > q->sample) - (p->sample < q->sample);
}

static int by_key(const void *a, const void *b)
{
    const pair *p = a, *q = b;
    return (p->key > q->key) - (p->key < q->key);
}

static int by_count(const void *a, const void *b)
{
    const pair *p = a, *q = b;
    return p->count != q->count ? (p->count < q->count) - (p->count > q->count) : by_key(a, b);
}

/* Get the outcome of image i.  Check it: other ranks may have sent anything. */
static td_status get(const td_gather *s, size_t i, const td_outcome_metadata *f, mistake *out)
{
    const int64_t sample = s->images[i].sample;
    if (s->images[i].n_bytes != (int64_t)sizeof out->o || s->n_bytes < (i + 1) * sizeof out->o ||
        sample < 0 || sample >= td_dataset_count(f->ds))
        return td_error(TD_EDEVICE, "a rank sent an invalid image outcome");
    memcpy(&out->o, s->bytes + i * sizeof out->o, sizeof out->o);
    out->sample = sample;
    if (out->o.label < 0 || out->o.label >= f->n_classes || out->o.best < 0 ||
        out->o.best >= f->n_classes || !(out->o.probability >= 0 && out->o.probability <= 1))
        return td_error(TD_EDEVICE,
                        "a rank sent an outcome with class %d, predicted %d, of %d classes",
                        out->o.label, out->o.best, f->n_classes);
    return TD_OK;
}

/* Fill wrong[*n] and, if not NULL, counts[classes, classes]. */
static td_status count(const td_gather *s, const td_outcome_metadata *f, int64_t *counts,
                       mistake *wrong, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < s->n; i++) {
        mistake m;
        TD_TRY(get(s, i, f, &m));
        if (counts)
            counts[(int64_t)m.o.label * f->n_classes + m.o.best]++;
        if (m.o.label != m.o.best)
            wrong[(*n)++] = m;
    }
    return TD_OK;
}

/* --- the record ------------------------------------------------------------------------------- */

static void add_name(td_text *t, const td_outcome_metadata *f, int i)
{
    char room[TD_CLASS_NUMBER];
    td_text_add(t, "\"");
    td_text_add_json(t, td_confusion_class_name(f->ds, f->names, i, room));
    td_text_add(t, "\"");
}

static void add_matrix(td_text *t, const td_outcome_metadata *f, const int64_t *counts)
{
    td_text_add(t, ", \"classes\": [");
    for (int i = 0; i < f->n_classes; i++) {
        td_text_add(t, i ? ", " : "");
        add_name(t, f, i);
    }
    td_text_add(t, "], \"counts\": [");
    for (int i = 0; i < f->n_classes; i++) {
        td_text_add(t, i ? ", [" : "[");
        for (int k = 0; k < f->n_classes; k++)
            td_text_add(t, k ? ", %lld" : "%lld", (long long)counts[(int64_t)i * f->n_classes + k]);
        td_text_add(t, "]");
    }
    td_text_add(t, "]");
}

static void add_names(td_text *t, const td_outcome_metadata *f, int label, int best)
{
    td_text_add(t, "\"actual\": ");
    add_name(t, f, label);
    td_text_add(t, ", \"predicted\": ");
    add_name(t, f, best);
}

static td_status add_pairs(td_text *t, const td_outcome_metadata *f, const mistake *wrong, size_t n)
{
    size_t n_pairs = 0;
    pair *pairs = td_alloc(n + 1, sizeof *pairs);
    if (!pairs)
        return TD_ENOMEM;
    for (size_t i = 0; i < n; i++)
        pairs[i] = (pair){ (int64_t)wrong[i].o.label * f->n_classes + wrong[i].o.best, 1 };
    qsort(pairs, n, sizeof *pairs, by_key);
    for (size_t i = 0; i < n; i++)
        if (n_pairs && pairs[n_pairs - 1].key == pairs[i].key)
            pairs[n_pairs - 1].count++;
        else
            pairs[n_pairs++] = pairs[i];
    qsort(pairs, n_pairs, sizeof *pairs, by_count);
    td_text_add(t, ", \"pairs\": [");
    for (size_t i = 0; i < n_pairs && i < TD_CONFUSION_PAIRS; i++) {
        td_text_add(t, i ? ", {" : "{");
        add_names(t, f, (int)(pairs[i].key / f->n_classes), (int)(pairs[i].key % f->n_classes));
        td_text_add(t, ", \"count\": %lld}", (long long)pairs[i].count);
    }
    td_text_add(t, "]");
    td_free(pairs);
    return TD_OK;
}

/* `path` relative to `folder`, or NULL if it is not inside. */
static const char *below(const char *path, const char *folder)
{
    size_t n = folder ? strlen(folder) : 0;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    return n && strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static const char *path_of(const td_outcome_metadata *f, int64_t sample)
{
    const char *path = td_dataset_path(f->ds, sample);
    if (!path)
        return "";
    const char *rest = below(path, f->folder);
    if (!rest)
        rest = below(path, td_dataset_root(f->ds));
    return rest ? rest : *path == '/' ? td_path_base(path) : path;
}

static void add_mistakes(td_text *t, const td_outcome_metadata *f, const mistake *wrong, size_t n)
{
    td_text_add(t, ", \"mistakes\": [");
    for (size_t i = 0; i < n && i < TD_CONFUSION_MISTAKES; i++) {
        td_text_add(t, i ? ", {" : "{");
        td_json_add_text(t, "path", path_of(f, wrong[i].sample));
        td_text_add(t, ", \"sample\": %lld, ", (long long)wrong[i].sample);
        add_names(t, f, wrong[i].o.label, wrong[i].o.best);
        td_text_add(t, ", \"probability\": %.6g}", (double)wrong[i].o.probability);
    }
    td_text_add(t, "]");
}

td_status td_outcomes_report(const td_gather *s, const td_outcome_metadata *f, td_report *r)
{
    td_status st = TD_OK;
    td_text t = { 0 };
    size_t n;
    if (!r || s->n == 0)
        return TD_OK;
    const bool has_matrix = f->n_classes <= TD_CONFUSION_CLASSES;
    const size_t k = has_matrix ? (size_t)f->n_classes : 0;
    mistake *wrong = td_alloc(s->n, sizeof *wrong);
    int64_t *counts = has_matrix ? td_alloc(k * k, sizeof *counts) : NULL;
    if (!wrong || (has_matrix && !counts))
        TD_OUT(TD_ENOMEM);
    TD_OUT(count(s, f, counts, wrong, &n));
    qsort(wrong, n, sizeof *wrong, by_certainty);
    td_text_add(&t, "\"images\": %zu, \"wrong\": %zu", s->n, n);
    if (has_matrix)
        add_matrix(&t, f, counts);
    else
        TD_OUT(add_pairs(&t, f, wrong, n));
    add_mistakes(&t, f, wrong, n);
    TD_OUT(td_text_status(&t));
    st = td_report_record(r, TD_CONFUSION_RECORD, f->epoch, td_text_get(&t));
out:
    td_text_release(&t);
    td_free(counts);
    td_free(wrong);
    return st;
}
