/*
 * nms_pool.c -- non-maximum suppression of several images on several threads
 */
#include "inference/nms_pool.h"

#include <string.h>

#include "base/arena.h"
#include "data/parallel.h"

struct td_nms_pool {
    const td_anchors *anchors;
    int columns, n_threads;
    td_nms **nms; /* [n_threads] */
};

td_status td_nms_pool_new(const td_anchors *anchors, int columns, int n_threads, td_nms_pool **out)
{
    td_status st = TD_OK;
    *out = NULL;
    td_nms_pool *s = TD_NEW(td_nms_pool);
    if (!s)
        return TD_ENOMEM;
    *s = (td_nms_pool){ .anchors = anchors, .columns = columns, .n_threads = n_threads };
    s->nms = td_alloc((size_t)n_threads, sizeof(td_nms *));
    if (!s->nms)
        TD_OUT(TD_ENOMEM);
    for (int i = 0; i < n_threads; i++)
        TD_OUT(td_nms_new(anchors, columns, &s->nms[i]));
    *out = s;
    s = NULL;
out:
    td_nms_pool_free(s);
    return st;
}

void td_nms_pool_free(td_nms_pool *s)
{
    if (!s)
        return;
    for (int i = 0; s->nms && i < s->n_threads; i++)
        td_nms_free(s->nms[i]);
    td_free(s->nms);
    td_free(s);
}

typedef struct {
    td_nms_pool *s;
    const float *deltas, *scores;
    td_nms_pool_row *rows;
} batch;

/* Are all values finite?  Infinity and NaN have all exponent bits set. */
static bool are_finite(const float *x, size_t n)
{
    const uint32_t ones = UINT32_C(0x7f800000);
    uint32_t n_bad = 0, bits;
    for (size_t i = 0; i < n; i++) {
        memcpy(&bits, &x[i], sizeof bits);
        n_bad += (bits & ones) == ones;
    }
    return n_bad == 0;
}

static td_status find_one(void *ctx, int worker, int64_t i)
{
    const batch *b = ctx;
    td_nms_pool *s = b->s;
    td_nms_pool_row *row = &b->rows[i];
    const size_t a = (size_t)s->anchors->n, n_scores = a * (size_t)s->columns;
    const float *deltas = b->deltas + (size_t)i * a * 4, *scores = b->scores + (size_t)i * n_scores;
    if (row->wants_finite)
        row->is_finite = are_finite(deltas, 4 * a) && are_finite(scores, n_scores);
    return td_nms_run(s->nms[worker], row->opts, deltas, scores, row->found, &row->n_found);
}

td_status td_nms_pool_run(td_nms_pool *s, const float *deltas, const float *scores, int n,
                          td_nms_pool_row *rows)
{
    batch b = { .s = s, .deltas = deltas, .scores = scores, .rows = rows };
    return n == 1 ? find_one(&b, 0, 0) : td_parallel(n, s->n_threads, find_one, &b);
}
