/*
 * sampler.c -- see sampler.h; the order of an epoch depends on (seed, epoch) alone
 */
#include "data/sampler.h"

#include "base/arena.h"
#include "base/rng.h"

td_status td_sampler_init(td_sampler *s)
{
    s->epoch = -1;
    s->order = NULL;
    if (!s->shuffles)
        return TD_OK;
    s->order = td_alloc((size_t)s->n, sizeof *s->order);
    return s->order ? TD_OK : TD_ENOMEM;
}

void td_sampler_release(td_sampler *s)
{
    td_free(s->order);
    s->order = NULL;
}

int64_t td_sampler_batches(const td_sampler *s)
{
    int64_t step = (int64_t)s->batch * s->world;
    return s->drops ? s->n / step : (s->n + step - 1) / step;
}

int td_sampler_rows(td_sampler *s, int64_t epoch, int64_t index, int64_t *rows)
{
    if (s->order && s->epoch != epoch) {
        td_rng r = td_rng_make(s->seed, TD_RNG_SHUFFLE, (uint64_t)epoch, 0);
        td_rng_permute(&r, s->order, s->n);
        s->epoch = epoch;
    }
    int64_t first = (index * s->world + s->rank) * s->batch;
    int n = 0;
    for (int64_t i = first; i < s->n && n < s->batch; i++)
        rows[n++] = s->order ? s->order[i] : i;
    return n;
}
