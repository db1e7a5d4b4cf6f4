/*
 * nms_pick.c -- picks the largest values: a threshold from a sample, one pass, and a correction
 *
 *   sample   every 64th run of 64 numbers: its quantile is where to begin
 *   sample   every 64th run of 64 numbers: its quantile is the initial threshold `least`
 *   pass     64 numbers at a time are compared with `least`; usually none of them is as large
 *   full     if far too many were picked, the smallest are dropped and `least` is raised
 *
 * `least` never decreases during a pass, so that every skipped value is below the final one: the
 * result
 */
#include "boxes/nms_pick.h"

#include <string.h>

#include "base/arena.h"
#include "base/half.h"

#define RUN         64 /* numbers compared at a time: four cache lines */
#define SAMPLE_STEP 64 /* runs */
#define SPARE       8  /* capacity as a multiple of `wanted` before a cut */

/* --- comparing -------------------------------------------------------------------------------- */

/* The first run at or after `from` with a number >= least, or `end`; steps by whole runs. */
static inline __attribute__((always_inline)) size_t next_body(const float *x, size_t from,
                                                              size_t end, float least)
{
    for (; from < end; from += RUN) {
        int found = 0;
        for (int i = 0; i < RUN; i++)
            found |= x[from + (size_t)i] >= least;
        if (found)
            break;
    }
    return from;
}

static size_t next_plain(const float *x, size_t from, size_t end, float least)
{
    return next_body(x, from, end, least);
}

#if defined(__x86_64__)
#define TARGET(isa) __attribute__((target(isa)))

TARGET("avx512f,avx512bw,avx512dq,avx512vl")
static size_t next_avx512(const float *x, size_t from, size_t end, float least)
{
    return next_body(x, from, end, least);
}

TARGET("avx2")
static size_t next_avx2(const float *x, size_t from, size_t end, float least)
{
    return next_body(x, from, end, least);
}
#endif

typedef size_t (*next_function)(const float *x, size_t from, size_t end, float least);

static next_function next_for_this_machine(void)
{
#if defined(__x86_64__)
    const char *best = td_half_simd_at(0)->name;
    if (strcmp(best, "avx512") == 0)
        return next_avx512;
    if (strcmp(best, "avx2") == 0)
        return next_avx2;
#endif
    return next_plain;
}

/* --- cutting down ----------------------------------------------------------------------------- */

static void swap(td_pick *a, td_pick *b)
{
    const td_pick t = *a;
    *a = *b;
    *b = t;
}

static float median_of_three(float a, float b, float c)
{
    if ((a <= b) == (b <= c))
        return b;
    return (a <= c) == (c <= b) ? c : a;
}

/*
 * Hoare's selection: the k-th largest value, k from 0.  [lo, hi] converges to it; every round moves
 * larger values before it and smaller ones after it, and equal ones to both sides, so that ties do
 * not slow it down.
 */
static float select_value(td_pick *v, size_t n, size_t k)
{
    size_t lo = 0, hi = n - 1;
    while (lo < hi) {
        const float pivot = median_of_three(v[lo].value, v[lo + (hi - lo) / 2].value, v[hi].value);
        size_t i = lo, j = hi;
        while (i <= j) {
            while (v[i].value > pivot)
                i++;
            while (v[j].value < pivot)
                j--;
            if (i > j)
                break;
            swap(&v[i++], &v[j]);
            if (j-- == 0)
                break;
        }
        if (j != SIZE_MAX && k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            return pivot;
    }
    return v[k].value;
}

/* keeps the `wanted` largest and values equal to the smallest of them */
static void cut(td_picks *p, size_t wanted)
{
    size_t n = 0;
    p->least = select_value(p->at, p->n, wanted - 1);
    for (size_t i = 0; i < p->n; i++)
        if (p->at[i].value >= p->least)
            p->at[n++] = p->at[i];
    p->n = n;
    p->is_all = false;
}

/* --- the pass --------------------------------------------------------------------------------- */

/* Makes room for another run.  If a cut drops too few because of ties, the limit is doubled. */
static td_status make_room(td_picks *p, size_t wanted)
{
    if (p->n + RUN > p->limit && p->n > wanted) {
        cut(p, wanted);
        p->limit = 2 * p->n > p->limit ? 2 * p->n : p->limit;
    }
    return td_reserve(&p->at, &p->cap, p->n + RUN, sizeof *p->at);
}

static void start(td_picks *p, size_t wanted)
{
    p->n = 0;
    p->limit = SPARE * wanted > 4 * RUN ? SPARE * wanted : 4 * RUN;
}

static void pick(td_picks *p, const float *x, size_t from, size_t n)
{
    for (size_t i = from; i < from + n; i++) {
        p->at[p->n] = (td_pick){ x[i], (uint32_t)i };
        p->n += x[i] >= p->least;
    }
}

/* sets `least` from a sample, not below the floor */
static td_status guess(td_picks *p, const float *x, size_t n, size_t wanted)
{
    const float floor = p->least;
    const size_t runs = n / RUN, share = wanted / SAMPLE_STEP;
    if (runs < 2 * SAMPLE_STEP || share == 0)
        return TD_OK;
    start(p, share);
    for (size_t run = 0; run < runs; run += SAMPLE_STEP) {
        TD_TRY(make_room(p, share));
        pick(p, x, run * RUN, RUN);
    }
    if (p->n > share) {
        cut(p, share);
        p->is_all = p->least == floor;
    }
    return TD_OK;
}

td_status td_picks_take(td_picks *p, const float *x, size_t n, float floor, size_t wanted)
{
    const next_function next = next_for_this_machine();
    const size_t end = n / RUN * RUN;

    p->least = floor;
    p->is_all = true;
    TD_TRY(guess(p, x, n, wanted));
    start(p, wanted);
    for (size_t i = 0; (i = next(x, i, end, p->least)) < end; i += RUN) {
        TD_TRY(make_room(p, wanted));
        pick(p, x, i, RUN);
    }
    TD_TRY(make_room(p, wanted));
    pick(p, x, end, n - end);
    return TD_OK;
}

void td_picks_release(td_picks *p)
{
    td_free(p->at);
    *p = (td_picks){ 0 };
}
