/*
 * onnx_nms.c -- ONNX's NonMaxSuppression, class by class: sorts the boxes and compares each with
 * the kept boxes
 *
 * Of equal scores, the one with the lower box index comes first, as in ONNX Runtime.
 */
#include "onnx/onnx_nms.h"

#include <math.h>
#include <stdlib.h>

#include "base/arena.h"

typedef struct {
    float score;
    int64_t at;
} candidate;

static int by_score(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* a, b: two opposite corners [2, 2], in any order */
static float overlap(const float *a, const float *b)
{
    float common = 1, area[2] = { 1, 1 };
    for (int d = 0; d < 2; d++) {
        const float low_a = fminf(a[d], a[d + 2]), high_a = fmaxf(a[d], a[d + 2]);
        const float low_b = fminf(b[d], b[d + 2]), high_b = fmaxf(b[d], b[d + 2]);
        const float side = fminf(high_a, high_b) - fmaxf(low_a, low_b);
        common *= side > 0 ? side : 0;
        area[0] *= high_a - low_a;
        area[1] *= high_b - low_b;
    }
    return common > 0 ? common / ((area[0] + area[1]) - common) : 0;
}

static td_status add_selection(td_onnx_selection *s, int64_t image, int64_t label, int64_t box)
{
    TD_TRY(td_reserve(&s->at, &s->cap, 3 * (s->n + 1), sizeof *s->at));
    int64_t *row = s->at + 3 * s->n++;
    row[0] = image;
    row[1] = label;
    row[2] = box;
    return TD_OK;
}

typedef struct {
    const float *boxes, *scores; /* boxes of an image [A, 4], scores of a class [A] */
    int64_t n, image, label;
    td_onnx_nms_limits limits;
} suppression;

static td_status suppress(const suppression *u, candidate *c, td_onnx_selection *s)
{
    size_t n = 0, first = s->n;
    for (int64_t i = 0; i < u->n; i++)
        if (u->scores[i] > u->limits.score_min)
            c[n++] = (candidate){ u->scores[i], i };
    qsort(c, n, sizeof *c, by_score);
    for (size_t i = 0; i < n && (int64_t)(s->n - first) < u->limits.most; i++) {
        bool is_free = true;
        for (size_t k = first; k < s->n && is_free; k++)
            is_free =
                !(overlap(u->boxes + 4 * s->at[3 * k + 2], u->boxes + 4 * c[i].at) > u->limits.iou);
        if (is_free)
            TD_TRY(add_selection(s, u->image, u->label, c[i].at));
    }
    return TD_OK;
}

td_status td_onnx_nms(const td_onnx_array *boxes, const td_onnx_array *scores,
                      const td_onnx_nms_limits *limits, td_onnx_selection *s)
{
    td_status st = TD_OK;
    suppression u = { .n = boxes->dim[1], .limits = *limits };
    candidate *c = td_alloc((size_t)u.n + 1, sizeof *c);
    if (!c)
        return TD_ENOMEM;
    for (u.image = 0; u.image < scores->dim[0] && st == TD_OK; u.image++)
        for (u.label = 0; u.label < scores->dim[1] && st == TD_OK; u.label++) {
            u.boxes = boxes->f + u.image * u.n * 4;
            u.scores = scores->f + (u.image * scores->dim[1] + u.label) * u.n;
            st = suppress(&u, c, s);
        }
    td_free(c);
    return st;
}
