/*
 * sampler.c -- the order of samples, a function of (seed, epoch, rank)
 */
#include "data/sampler.h"

#include <string.h>

#include "base/arena.h"
#include "base/rng.h"

enum { PLACES = 1024 };

/* seed of the list, which is the same for all runs and ranks; an arbitrary constant */
static const uint64_t list_seed = 524287;

/* The samples of each class that has any. */
typedef struct td_class_lists {
    int64_t n_classes;
    int64_t *first;   /* [n_classes + 1] */
    int64_t *samples; /* [n], by class */
    int *copies;      /* [n] how often the sample of each place occurs before it in this epoch */
    int *n_drawn;     /* [n] how often each sample has been drawn */
} class_lists;

static void free_lists(class_lists *l)
{
    if (!l)
        return;
    td_free(l->first);
    td_free(l->samples);
    td_free(l->copies);
    td_free(l->n_drawn);
    td_free(l);
}

/* first[k]: the number of samples of lower classes, for classes 0 .. n - 1 */
static void sort_by_class(class_lists *l, const int64_t *classes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        l->first[classes[i] + 1]++;
    for (int64_t k = 0; k < l->n_classes; k++)
        l->first[k + 1] += l->first[k];
    for (int64_t i = 0; i < n; i++)
        l->samples[l->first[classes[i]]++] = i;
    for (int64_t k = l->n_classes; k > 0; k--)
        l->first[k] = l->first[k - 1];
    l->first[0] = 0;
}

/* Leave out classes without samples. */
static void drop_empty(class_lists *l)
{
    int64_t n = 0;
    for (int64_t k = 0; k < l->n_classes; k++)
        if (l->first[k + 1] > l->first[k])
            l->first[n++] = l->first[k];
    l->first[n] = l->first[l->n_classes];
    l->n_classes = n;
}

static td_status make_lists(td_sampler *s, const int64_t *classes)
{
    int64_t n_classes = 0;
    for (int64_t i = 0; i < s->n; i++)
        n_classes = classes[i] >= n_classes ? classes[i] + 1 : n_classes;
    class_lists *l = s->lists = TD_NEW(class_lists);
    if (!l)
        return TD_ENOMEM;
    l->n_classes = n_classes;
    TD_TRY(TD_ALLOC(l->first, (size_t)n_classes + 1));
    TD_TRY(TD_ALLOC(l->samples, (size_t)s->n));
    TD_TRY(TD_ALLOC(l->copies, (size_t)s->n));
    TD_TRY(TD_ALLOC(l->n_drawn, (size_t)s->n));
    sort_by_class(l, classes, s->n);
    drop_empty(l);
    return TD_OK;
}

td_status td_sampler_init(td_sampler *s)
{
    const int64_t *classes = s->classes;
    s->epoch = -1;
    s->order = s->list = NULL;
    s->lists = NULL;
    s->classes = NULL;
    if (!s->shuffles)
        return TD_OK;
    TD_TRY(TD_ALLOC(s->order, (size_t)s->n));
    if (classes)
        return make_lists(s, classes);
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
    free_lists(s->lists);
    s->order = s->list = NULL;
    s->lists = NULL;
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

/* --- balanced --------------------------------------------------------------------------------- */

static void draw_order(td_sampler *s, int64_t epoch)
{
    class_lists *l = s->lists;
    td_rng r = td_rng_make(s->seed, TD_RNG_BALANCE, (uint64_t)epoch, 0);
    memset(l->n_drawn, 0, (size_t)s->n * sizeof *l->n_drawn);
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t k = (int64_t)td_rng_below(&r, (uint64_t)l->n_classes);
        const int64_t first = l->first[k], count = l->first[k + 1] - first;
        s->order[i] = l->samples[first + (int64_t)td_rng_below(&r, (uint64_t)count)];
        l->copies[i] = l->n_drawn[s->order[i]]++;
    }
}

/* --- buffer ----------------------------------------------------------------------------------- */

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

/* The place in the order of a row of a batch. */
static int64_t place_of(const td_sampler *s, int64_t index, int row)
{
    if (s->order_kind == TD_ORDER_PADDED)
        return ((index * s->batch + row) * s->world + s->rank) % s->n;
    return dealt_place(s, index) + row;
}

int td_sampler_copy(const td_sampler *s, int64_t index, int row)
{
    if (s->lists)
        return s->lists->copies[place_of(s, index, row)];
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
    if (s->lists) {
        draw_order(s, epoch);
        return;
    }
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
