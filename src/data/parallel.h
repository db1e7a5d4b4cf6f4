/*
 * data/parallel.h -- parallel loops over items
 */
#ifndef TD_DATA_PARALLEL_H
#define TD_DATA_PARALLEL_H

#include "data/bad_images.h"
#include "data/dataset.h"
#include "transforms/augment.h"

/** Do item `i` with the buffers of `worker` (0 .. threads - 1). */
typedef td_status td_item_fn(void *ctx, int worker, int64_t i);

/**
 * Call fn once for every item 0 .. n - 1 on up to `threads` threads and wait for all.  After a
 * failure no new items are begun; the failure of the lowest item is returned, with its message.
 */
TD_CHECKED td_status td_parallel(int64_t n, int threads, td_item_fn *fn, void *ctx);

/** Set *out to `threads`, or to the number of CPUs if it is 0; TD_EARG outside 0 .. 1024. */
TD_CHECKED td_status td_threads_wanted(int threads, int *out);

#endif
