/*
 * data/sampler.h -- chooses the samples of batch i of epoch e on rank r
 *
 *   permutation    epoch's order   0 1 2 3 4 5 6 7 8 9 ...        batch of 2, world of 2
 *                  batch 0         rank 0: 0 1    rank 1: 2 3
 *                  batch 1         rank 0: 4 5    rank 1: 6 7
 *
 *   so W ranks of B see the same samples as one rank of W*B, each once.
 *
 *   padded         PyTorch's DistributedSampler: the order wraps around until every rank has
 *                  equally many; rank r takes r, r + W, r + 2 W, ...
 *
 *   buffer         DALI's reader: a list in an order of its own that never changes is cut into W
 *                  ranges; in epoch e rank r reads range (r + e) mod W front to back through 1024
 *                  places, of which one is drawn at a time and filled again.  In evaluation rank r
 *                  reads range r, in plain order.
 *
 * All of it is a function of (seed, epoch, rank), so that a run can resume anywhere.
 */
#ifndef TD_DATA_SAMPLER_H
#define TD_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tandem/loader.h"

typedef struct {
    int64_t n; /* samples */
    int batch; /* rows of one rank's batch */
    int rank, world;
    td_order order_kind;
    bool shuffles; /* a new order every epoch */
    bool drops;    /* leave out the last short batch */
    uint64_t seed;
    int64_t epoch; /* the epoch of `order`; -1: none yet */
    int64_t
        *order;    /* [n]; NULL when it does not shuffle; of buffer: this rank's, `share` of them */
    int64_t *list; /* buffer: [n], what the ranges are cut from; NULL: 0, 1, 2, ... */
} td_sampler;

/** Take the settings above from the caller and prepare.  TD_ENOMEM. */
TD_CHECKED td_status td_sampler_init(td_sampler *s);
void td_sampler_release(td_sampler *s);

/** Batches of an epoch, the same for all ranks. */
int64_t td_sampler_batches(const td_sampler *s);

/** Write the samples of a batch to rows [batch]; returns how many there are, 0 .. batch. */
int td_sampler_rows(td_sampler *s, int64_t epoch, int64_t index, int64_t *rows);

#endif
