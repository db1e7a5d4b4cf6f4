/*
 * runtime/quick_tune.h -- --tune quick: times the kernels of the costliest nodes within a budget
 *
 *     budget      at most 2 s for each device, and 3 % of the time that the program's planned runs
 *                 are estimated to take
 *     candidates  kernels that give the same bits as the device's own choice: the results are
 *                 compared, and a kernel with others is never chosen
 *
 * So results depend neither on the times, nor on what an earlier run has measured.  The times are
 * kept in the cache (tune_cache.h), under other keys than those of --tune full, whose kernels may
 * round differently.  What the budget does not suffice for is left to later runs.
 */
#ifndef TD_RUNTIME_QUICK_TUNE_H
#define TD_RUNTIME_QUICK_TUNE_H

#include "runtime/kernel.h"
#include "runtime/tune_cache.h"
#include "tandem/program.h"

#define TD_QUICK_NS_MAX 2000000000
#define TD_QUICK_SHARE  0.03

/** Place it zeroed, with the first three set. */
typedef struct {
    const td_device *dev; /* borrowed, like the cache */
    td_tune_cache *cache;
    int64_t (*now)(void); /* nanoseconds */
    int64_t spent_ns;     /* of TD_QUICK_NS_MAX */
} td_quick_tuner;

/**
 * Time the kernels of g's nodes that the cache does not know, the costliest first, for a program
 * that will run `runs` times; logs one line if it has timed any.  TD_ENOMEM, and the errors of
 * kernels.
 */
td_status td_quick_tune(td_quick_tuner *q, const td_graph *g, int64_t runs) TD_CHECKED;

/**
 * The fastest of `list` [count], kernels of `n`, the device's own choice first, of those known to
 * give the bits of that one; a gain below 3 % counts as none.  *out is NULL if not all are known.
 * `why`, unless NULL, gets the times: "measured: kernel 1.60 ms, ...".
 */
td_status td_quick_choose(const td_tune_cache *cache, const td_node *n,
                          const td_kernel *const *list, int count, const td_kernel **out,
                          td_text *why) TD_CHECKED;

#endif
