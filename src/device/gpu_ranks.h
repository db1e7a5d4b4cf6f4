/*
 * device/gpu_ranks.h -- sums over ranks by their GPUs
 *
 * Where every rank has a GPU of its own and the plug-in's library (NCCL), a device joins its rank
 * to a group, and sums of gradients stay in the memory of the GPUs:
 *
 *     td_gpus_join(comm, false, &is_joined)         each device (runtime/device.h)
 *     td_gpu_sums_open(graph, comm, &sums)          each program
 *         copies to td_gpu_sums_part               \
 *         td_gpu_sums_begin ... td_gpu_sums_wait    > in each run: backend/gpu/gpu_all_reduce.c
 *         copies from td_gpu_sums_part             /
 *     td_gpus_leave(with_others)                    before the comm is closed
 *
 * The exact sums have the bits of comm/reduction.h; with --allreduce fast the library adds in its
 * own order, also in a half type.
 */
#ifndef TD_DEVICE_GPU_RANKS_H
#define TD_DEVICE_GPU_RANKS_H

#include "comm/comm.h"
#include "ir/graph.h"
#include "tandem/types.h"

/**
 * Join this rank's GPU to those of all others; every rank calls it.  Where it is not possible on
 * every rank, *out is false, with a warning: exact sums on the host have the same bits.
 * TD_ENOTFOUND: then if it `must` be, or with --allreduce fast.  TD_EDEVICE.
 */
TD_CHECKED td_status td_gpus_join(td_comm *c, bool must, bool *out);

/** Leave: with all others, or at once, ending their sums.  A failure is logged. */
void td_gpus_leave(bool with_others);

/** The buckets of a program's sums in the GPU's memory. */
typedef struct td_gpu_sums td_gpu_sums;

/** Make the buckets of a graph; *out is NULL if there are none.  `c` outlives them. */
TD_CHECKED td_status td_gpu_sums_open(const td_graph *g, const td_comm *c, td_gpu_sums **out);

/** Make n >= 1 buckets, of floats[i] numbers each, zeros; `starts`: with starts. */
TD_CHECKED td_status td_gpu_sums_new(const td_comm *c, int n, const int64_t *floats, bool starts,
                                     td_gpu_sums **out);
void td_gpu_sums_free(td_gpu_sums *s); /* NULL is fine */

/** An upper limit of their bytes; `g` may be before or after pass buckets. */
int64_t td_gpu_sums_bytes(const td_graph *g, const td_comm *c);

/** The type in which numbers are sent: that of the buckets. */
td_dtype td_gpu_sums_dtype(const td_gpu_sums *s);

/** Where number `at` of a bucket is, and that of its start, which is float32. */
void *td_gpu_sums_part(const td_gpu_sums *s, int bucket, int64_t at);
void *td_gpu_sums_start(const td_gpu_sums *s, int bucket, int64_t at);

/** The bucket is complete: add; and what is queued from now on follows the sum. */
TD_CHECKED td_status td_gpu_sums_begin(td_gpu_sums *s, int bucket);
TD_CHECKED td_status td_gpu_sums_wait(td_gpu_sums *s, int bucket);

/** With `skips` begin and wait do nothing, until it is called with false: for measurements. */
void td_gpu_sums_skip(td_gpu_sums *s, bool skips);

#endif
