/*
 * data/sampler.h -- chooses the samples of batch i of epoch e on rank r
 *
 *   permutation    epoch's order   0 1 2 3 4 5 6 7 8 9 ...        batch of 2, world of 2
 *                  batch 0         rank 0: 0 1    rank 1: 2 3
 *                  batch 1         rank 0: 4 5    rank 1: 6 7
 *
 *   so W ranks with batches of B read the same samples as one rank with batches of W*B, each once.
 *
 *   padded         PyTorch's DistributedSampler: the order wraps around until all ranks have the
 *                  same number; rank r gets r, r + W, r + 2 W, ...
 *
 *   buffer         DALI's reader: a list in a fixed random order is divided into W ranges; in epoch
 *                  e rank r reads range (r + e) mod W in order through a buffer of 1024 samples,
 *                  from which it draws one at random and replaces it by the next.  In evaluation
 *                  rank r reads range r, in order, without a buffer.
 *
 *   repeats        a permutation's sample is taken several times in a row, which ends up in the
 *                  same batch; an epoch has n places still, so it has n / repeats samples.  Source:
 *                  Hoffer et al. 2019; torchvision's RASampler, whose copies go to several ranks
 *
 *   balanced       each place of the epoch has a class, all equally probable, and a sample of this
 *                  class, drawn with replacement: PyTorch's WeightedRandomSampler with 1 / (samples
 *                  of the class) as weights.  Ranks share the places as those of a permutation.
 *
 * The order is a function of (seed, epoch, rank), so that a run can resume at any batch.
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
    bool shuffles;          /* a new order every epoch */
    bool drops_last;        /* omit the last batch if it is smaller */
    int repeats;            /* times that a permutation has each sample; 0 means 1 */
    const int64_t *classes; /* balanced: [n] class of each sample, 0 or more; for the call of
                               td_sampler_init, which sets it to NULL; with a permutation, or
                               padded, that is shuffled and not repeated.  NULL: not balanced */
    uint64_t seed;
    int64_t epoch;                /* the epoch of `order`; -1: none yet */
    int64_t *order;               /* [n]; NULL without shuffling; buffer: [share], this rank's */
    int64_t *list;                /* buffer: [n], divided into ranges; NULL: 0, 1, 2, ... */
    struct td_class_lists *lists; /* balanced; NULL: not */
} td_sampler;

/** Prepare a sampler whose settings, above, the caller has set.  TD_ENOMEM. */
TD_CHECKED td_status td_sampler_init(td_sampler *s);
void td_sampler_release(td_sampler *s);

/** Number of batches per epoch, the same for all ranks. */
int64_t td_sampler_batches(const td_sampler *s);

/** Write the samples of a batch to rows [batch]; returns how many there are, 0 .. batch. */
int td_sampler_rows(td_sampler *s, int64_t epoch, int64_t index, int64_t *rows);

/** Which of its sample's copies is in row `row` of a batch, counted from 0. */
int td_sampler_copy(const td_sampler *s, int64_t index, int row);

#endif
