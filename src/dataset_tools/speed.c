/*
 * speed.c -- measures the speed of the input pipeline, without a network
 *
 * A round reads batches for a fixed time.  The first fills caches and buffers and is not counted.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/stats.h"
#include "data/parallel.h"

enum { ROUNDS = 10, ROUNDS_MAX = 10000, BATCH = 32 };

static const double default_round_s = 0.5;

static td_status run_round(td_loader *ld, double round_s, double *rate, int64_t *n_images)
{
    int64_t start_ns = td_now_ns(), n = 0;
    double elapsed_s = 0;
    while (elapsed_s < round_s) {
        const td_batch *b;
        td_status st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            continue;
        TD_TRY(st);
        n += b->n;
        elapsed_s = (double)(td_now_ns() - start_ns) * 1e-9;
    }
    *rate = (double)n / elapsed_s;
    *n_images += n;
    return TD_OK;
}

static void summarise(double *rates, int n, td_data_speed *out)
{
    out->median = td_median(rates, n); /* sorts `rates` */
    out->min = rates[0];
    out->max = rates[n - 1];
}

td_status td_data_benchmark(const td_dataset *ds, const td_loader_opts *opts, int rounds,
                            double round_s, td_data_speed *out)
{
    *out = (td_data_speed){ 0 };
    rounds = rounds ? rounds : ROUNDS;
    round_s = round_s == 0 ? default_round_s : round_s;
    if (rounds < 1 || rounds > ROUNDS_MAX || !(round_s > 0 && round_s < 3600))
        return td_error(TD_EARG, "%d rounds of %g s, wanted 1 .. %d rounds of at most an hour",
                        rounds, round_s, ROUNDS_MAX);
    td_loader_opts o = *opts;
    o.is_training = true;
    if (o.batch_size == 0)
        o.batch_size = ds->n < BATCH ? (int)ds->n : BATCH;
    TD_TRY(td_threads_wanted(o.workers, &o.workers));

    td_loader *ld = NULL;
    int64_t n_unused = 0;
    td_data_speed speed = { .threads = o.workers };
    double *rates = td_alloc((size_t)rounds, sizeof *rates);
    if (!rates)
        return TD_ENOMEM;
    td_status st;
    TD_OUT(td_loader_new(ds, &o, &ld));
    TD_OUT(run_round(ld, round_s, &rates[0], &n_unused));
    for (int i = 0; i < rounds; i++)
        TD_OUT(run_round(ld, round_s, &rates[i], &speed.n_images));
    summarise(rates, rounds, &speed);
    *out = speed;
out:
    td_loader_free(ld);
    td_free(rates);
    return st;
}
