/*
 * runtime/micro_batch.h -- inference on a batch a few images at a time, so that what one layer
 * writes is still in the cache when the next one reads it
 *
 *     images [N, ...]  | n | n | n | n |   the same program runs N / n times
 *     logits [N, ...]  | n | n | n | n |
 *
 * A network whose weights are small and whose activations are large gains: memory is then read and
 * written for images, weights and logits only.  Threads compute one micro-batch together, or each
 * its own at the same time (program_lanes.c).
 */
#ifndef TD_RUNTIME_MICRO_BATCH_H
#define TD_RUNTIME_MICRO_BATCH_H

#include "ir/graph.h"

/**
 * How many images to compute at a time of `share` images, which are all or a part of a batch, if a
 * program for `g` is compiled for so many: a divisor of `share`; `share` itself, unless all of this
 * holds:
 *
 *     dimension 0 of every input and output of `g` is the batch
 *     the operands and results of each convolution and matrix product fit into `cache_bytes`
 *     there are at least `least` images
 *     reading the weights again and again costs at most half of what is saved
 */
int td_micro_batch(const td_graph *g, int batch, int share, int64_t cache_bytes, int least);

/* micro-batches of `rows`, so many of them at the same time */
typedef struct {
    int rows, lanes;
} td_batch_division;

/**
 * td_micro_batch of the whole batch, and an image for each thread, for the first of several caches,
 * smallest first, for which it is less than the batch.
 *
 * Where weights are few beside the activations and each of up to 8 threads has some images, each
 * thread computes an even share of the batch by itself, so that what it writes stays in the caches
 * of its core: then there are `threads` lanes, and what fits is that of one of them.
 */
td_batch_division td_micro_batch_of(const td_graph *g, int batch, const int64_t *cache_bytes,
                                    int n_caches, int threads);

#endif
