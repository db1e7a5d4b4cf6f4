/*
 * sampler.c -- the order of samples, a function of (seed, epoch, rank)
 */
#include "data/sampler.h"

#include "base/arena.h"
#include "base/rng.h"

enum { PLACES = 1024 };

/* seed of the list, which is the same for all runs and ranks; an arbitrary constant */
static const uint64_t list_seed = 524287;

td_status td_sampler_init(td_sampler *s)
{
    s->epoch = -1;
    s->order = s->list = NULL;
    if (!s->shuffles)
        return TD_OK;
    TD_TRY(TD_ALLOC(s->order, (size_t)s->n));
    if (s->order_kind != TD_ORDER_BUFFER)
        return TD_OK;
    TD_TRY(TD_ALLOC(s->list, (size_t)s->n));
    td_rng r = td_rng_make(list_seed, TD_RNG_SHUFFLE, 0, 0);
    td_rng_permute(&r, s->list, s->n);
    return TD_OK;
}

void td_sampler_release(td_sampler *s)
{
    td_free(s->order);
    td_free(s->list);
    s->order = s->list = NULL;
}

/* --- ranges ----------------------------------------------------------------------------------- */

/* The start of range i: N i / W, without overflow. */
static int64_t range_begin(const td_sampler *s, int64_t i)
{
    return s->n / s->world * i + s->n % s->world * i / s->world;
}

/* Lengths of the longest and of the shortest range. */
static int64_t range_longest(const td_sampler *s)
{
    return (s->n + s->world - 1) / s->world;
}

static int64_t range_shortest(const td_sampler *s)
{
    return s->n / s->world;
}

/* Pass the range of this epoch through the buffer to s->order. */
static void fill_order(td_sampler *s, int64_t epoch)
{
    int64_t places[PLACES];
    int64_t which = (s->rank + epoch % s->world) % s->world;
    int64_t at = range_begin(s, which), end = range_begin(s, which + 1), n = 0, out = 0;
    td_rng r = td_rng_make(s->seed, TD_RNG_SHUFFLE, (uint64_t)epoch, 1 + (uint64_t)s->rank);
    while (at < end && n < PLACES)
        places[n++] = s->list[at++];
    while (n > 0) {
        uint64_t k = td_rng_below(&r, (uint64_t)n);
        s->order[out++] = places[k];
        places[k] = at < end ? s->list[at++] : places[--n];
    }
}

static int range_rows(td_sampler *s, int64_t epoch, int64_t index, int64_t *rows)
{
    int64_t which = s->shuffles ? (s->rank + epoch % s->world) % s->world : s->rank;
    int64_t begin = range_begin(s, which), share = range_begin(s, which + 1) - begin;
    int n = 0;
    for (int64_t i = index * s->batch; i < share && n < s->batch; i++)
        rows[n++] = s->order ? s->order[i] : begin + i;
    return n;
}

/* --- permutation and padded ------------------------------------------------------------------- */

static int padded_rows(const td_sampler *s, int64_t index, int64_t *rows)
{
    int64_t share = range_longest(s);
    int n = 0;
    for (int64_t i = index * s->batch; i < share && n < s->batch; i++) {
        int64_t place = (i * s->world + s->rank) % s->n;
        rows[n++] = s->order ? s->order[place] : place;
    }
    return n;
}

/* 1 unless a permutation of training samples is repeated */
static int repeats_of(const td_sampler *s)
{
    return s->order && s->order_kind == TD_ORDER_PERMUTATION && s->repeats > 1 ? s->repeats : 1;
}

static int64_t dealt_place(const td_sampler *s, int64_t index)
{
    return (index * s->world + s->rank) * s->batch;
}

static int dealt_rows(const td_sampler *s, int64_t index, int64_t *rows)
{
    const int repeats = repeats_of(s);
    int n = 0;
    for (int64_t i = dealt_place(s, index); i < s->n && n < s->batch; i++)
        rows[n++] = s->order ? s->order[i / repeats] : i;
    return n;
}

int td_sampler_copy(const td_sampler *s, int64_t index, int row)
{
    return (int)((dealt_place(s, index) + row) % repeats_of(s));
}

/* --- by kind ---------------------------------------------------------------------------------- */

int64_t td_sampler_batches(const td_sampler *s)
{
    int64_t step = s->batch, n = range_longest(s);
    if (s->order_kind == TD_ORDER_PERMUTATION) {
        step *= s->world;
        n = s->n;
    } else if (s->order_kind == TD_ORDER_BUFFER && s->drops_last) {
        n = range_shortest(s); /* so that every rank has full batches in every epoch */
    }
    return s->drops_last ? n / step : (n + step - 1) / step;
}

static void make_order(td_sampler *s, int64_t epoch)
{
    if (!s->order || s->epoch == epoch)
        return;
    s->epoch = epoch;
    if (s->order_kind == TD_ORDER_BUFFER) {
        fill_order(s, epoch);
        return;
    }
    td_rng r = td_rng_make(s->seed, TD_RNG_SHUFFLE, (uint64_t)epoch, 0);
    td_rng_permute(&r, s->order, s->n);
}

int td_sampler_rows(td_sampler *s, int64_t epoch, int64_t index, int64_t *rows)
{
    make_order(s, epoch);
    return s->order_kind == TD_ORDER_BUFFER   ? range_rows(s, epoch, index, rows)
           : s->order_kind == TD_ORDER_PADDED ? padded_rows(s, index, rows)
                                              : dealt_rows(s, index, rows);
}
