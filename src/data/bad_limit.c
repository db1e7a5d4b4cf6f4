/*
 * bad_limit.c -- checks --max-bad over all ranks
 */
#include "data/bad_limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/text.h"

enum { FIRST_BYTES = 480 };

typedef struct {
    int64_t *samples;
    size_t n, cap;
} met;

static int by_number(const void *a, const void *b)
{
    const int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;
    return (p > q) - (p < q);
}

static td_status add_samples(void *ctx, int rank, const void *bytes, size_t n)
{
    met *m = ctx;
    const int64_t *samples = bytes;
    if (n % sizeof *samples)
        return td_error(TD_EDEVICE, "rank %d sent %zu bytes, wanted a multiple of %zu", rank, n,
                        sizeof *samples);
    TD_TRY(td_reserve(&m->samples, &m->cap, m->n + n / sizeof *samples, sizeof *m->samples));
    for (size_t i = 0; i < n / sizeof *samples; i++)
        m->samples[m->n++] = samples[i];
    return TD_OK;
}

/* Count the bad images found by any rank. */
static td_status count_all(td_comm *c, const td_loader *ld, int64_t *n_all)
{
    const td_bad_image *bad;
    const size_t n = (size_t)td_loader_bad(ld, &bad);
    met m = { 0 };
    int64_t *own = td_alloc(n + 1, sizeof *own);
    td_status st = own ? TD_OK : TD_ENOMEM;
    TD_OUT(st);
    for (size_t i = 0; i < n; i++)
        own[i] = bad[i].sample;
    TD_OUT(td_comm_collect(c, own, n * sizeof *own, add_samples, &m));
    if (m.n)
        qsort(m.samples, m.n, sizeof *m.samples, by_number);
    *n_all = 0;
    for (size_t i = 0; i < m.n; i++)
        *n_all += i == 0 || m.samples[i] != m.samples[i - 1];
    st = td_comm_broadcast(c, n_all, sizeof *n_all);
out:
    td_free(m.samples);
    td_free(own);
    return st;
}

static td_status too_many(td_comm *c, const td_loader *ld, int64_t n)
{
    const td_bad_image *bad;
    const td_dataset *ds = td_loader_dataset(ld);
    char first[FIRST_BYTES] = "", *all = td_alloc((size_t)td_comm_size(c), FIRST_BYTES);
    int r = 0;
    if (!all)
        return TD_ENOMEM;
    if (td_loader_bad(ld, &bad) > 0)
        snprintf(first, sizeof first, "'%s': %s", bad[0].path, bad[0].reason);
    td_status st = td_comm_gather(c, first, FIRST_BYTES, all);
    while (st == TD_OK && r + 1 < td_comm_size(c) && !all[(size_t)r * FIRST_BYTES])
        r++;
    all[(size_t)(r + 1) * FIRST_BYTES - 1] = '\0';
    td_text_make_printable(all + (size_t)r * FIRST_BYTES);
    if (st == TD_OK)
        st = td_error(TD_EFORMAT,
                      "'%s': %" PRId64 " of %" PRId64
                      " images cannot be used (all ranks together), more than --max-bad %g allows "
                      "(%" PRId64 "); the first of %s is %s",
                      td_dataset_root(ds), n, td_dataset_count(ds), td_loader_bad_share(ld),
                      td_loader_bad_allowed(ld), td_comm_name(c, r), all + (size_t)r * FIRST_BYTES);
    td_free(all);
    return st;
}

td_status td_bad_limit_check(td_comm *c, const td_loader *ld)
{
    const td_bad_image *bad;
    int64_t n = td_loader_bad(ld, &bad);
    if (!c)
        return TD_OK;
    TD_TRY(td_comm_sum_i64(c, &n, 1));
    if (n <= td_loader_bad_allowed(ld)) /* an upper bound: counts duplicates */
        return TD_OK;
    TD_TRY(count_all(c, ld, &n));
    return n > td_loader_bad_allowed(ld) ? too_many(c, ld, n) : TD_OK;
}
