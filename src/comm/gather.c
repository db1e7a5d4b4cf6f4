/*
 * gather.c -- collects per-image results of all ranks on rank 0
 *
 * Two rounds.  In the first, rank 0 receives each image's sample and size, which determine the
 * positions; in the second it receives the bytes and stores them, rank by rank.
 */
#include "comm/gather.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* rank 0: what all ranks send */
typedef struct {
    td_gather_sample *images; /* [n], in order of arrival */
    size_t n, cap;
    size_t *at; /* [n] offset of each image's bytes */
    char *bytes;
    size_t n_bytes;
    size_t n_announced; /* total bytes announced */
    size_t n_placed;    /* images whose bytes have arrived */
} whole;

typedef struct {
    int64_t sample;
    size_t index;
} place;

td_status td_gather_begin(td_gather *s, int64_t sample)
{
    TD_TRY(td_reserve(&s->images, &s->cap, s->n + 1, sizeof *s->images));
    s->images[s->n++] = (td_gather_sample){ .sample = sample };
    return TD_OK;
}

td_status td_gather_put(td_gather *s, const void *bytes, size_t n)
{
    TD_TRY(td_reserve(&s->bytes, &s->cap_bytes, s->n_bytes + n, 1));
    if (n)
        memcpy(s->bytes + s->n_bytes, bytes, n);
    s->n_bytes += n;
    s->images[s->n - 1].n_bytes += (int64_t)n;
    return TD_OK;
}

void td_gather_clear(td_gather *s)
{
    s->n = s->n_bytes = 0;
}

void td_gather_release(td_gather *s)
{
    td_free(s->images);
    td_free(s->bytes);
    *s = (td_gather){ 0 };
}

/* adds the size of one more image, as announced by a rank */
static td_status add_size(whole *w, int rank, int64_t n_bytes)
{
    if (n_bytes < 0 || (uint64_t)n_bytes > SIZE_MAX / 2 - w->n_announced)
        return td_error(TD_EDEVICE,
                        "rank %d announced an image of %" PRId64 " bytes, which is invalid", rank,
                        n_bytes);
    w->n_announced += (size_t)n_bytes;
    return TD_OK;
}

static td_status take_images(void *ctx, int rank, const void *bytes, size_t n)
{
    whole *w = ctx;
    const size_t n_images = n / sizeof *w->images;
    if (n % sizeof *w->images)
        return td_error(TD_EDEVICE, "rank %d sent %zu bytes, wanted a multiple of %zu", rank, n,
                        sizeof *w->images);
    TD_TRY(td_reserve(&w->images, &w->cap, w->n + n_images, sizeof *w->images));
    if (n)
        memcpy(w->images + w->n, bytes, n_images * sizeof *w->images);
    for (size_t i = w->n; i < w->n + n_images; i++)
        TD_TRY(add_size(w, rank, w->images[i].n_bytes));
    w->n += n_images;
    return TD_OK;
}

static td_status take_bytes(void *ctx, int rank, const void *bytes, size_t n)
{
    whole *w = ctx;
    size_t from = 0;
    while (from < n && w->n_placed < w->n) {
        const size_t i = w->n_placed++, n_own = (size_t)w->images[i].n_bytes;
        if (n_own > n - from)
            break;
        if (n_own)
            memcpy(w->bytes + w->at[i], (const char *)bytes + from, n_own);
        from += n_own;
    }
    if (from != n)
        return td_error(TD_EDEVICE, "rank %d sent %zu bytes, wanted %zu as announced", rank, n,
                        from);
    return TD_OK;
}

/* if a sample occurs twice, the lower rank's comes first */
static int by_sample(const void *a, const void *b)
{
    const place *p = a, *q = b;
    return p->sample != q->sample ? (p->sample > q->sample) - (p->sample < q->sample)
                                  : (p->index > q->index) - (p->index < q->index);
}

/* computes the offset of each image's bytes; `sorted` receives the images in order */
static td_status lay_out(whole *w, td_gather_sample **sorted)
{
    td_status st = TD_OK;
    place *order = td_alloc(w->n + 1, sizeof *order);
    *sorted = td_alloc(w->n + 1, sizeof **sorted);
    w->at = td_alloc(w->n + 1, sizeof *w->at);
    TD_OUT(order && *sorted && w->at ? TD_OK : TD_ENOMEM);
    for (size_t i = 0; i < w->n; i++)
        order[i] = (place){ w->images[i].sample, i };
    qsort(order, w->n, sizeof *order, by_sample);
    for (size_t k = 0; k < w->n; k++) {
        (*sorted)[k] = w->images[order[k].index];
        w->at[order[k].index] = w->n_bytes;
        w->n_bytes += (size_t)(*sorted)[k].n_bytes;
    }
    w->bytes = td_alloc(w->n_bytes + 1, 1);
    st = w->bytes ? TD_OK : TD_ENOMEM;
out:
    td_free(order);
    return st;
}

td_status td_gather_run(td_gather *s, td_comm *c)
{
    whole w = { 0 };
    td_gather_sample *sorted = NULL;
    td_status st = TD_OK;
    if (td_comm_size(c) == 1)
        return TD_OK;
    TD_OUT(td_comm_collect(c, s->images, s->n * sizeof *s->images, take_images, &w));
    if (td_comm_rank(c) == 0)
        TD_OUT(lay_out(&w, &sorted));
    TD_OUT(td_comm_collect(c, s->bytes, s->n_bytes, take_bytes, &w));
    td_gather_clear(s);
    if (td_comm_rank(c) > 0)
        goto out;
    td_gather_release(s);
    *s = (td_gather){ sorted, w.n, w.n + 1, w.bytes, w.n_bytes, w.n_bytes + 1 };
    sorted = NULL;
    w.bytes = NULL;
out:
    td_free(sorted);
    td_free(w.images);
    td_free(w.at);
    td_free(w.bytes);
    return st;
}
