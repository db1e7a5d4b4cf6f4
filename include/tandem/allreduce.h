/*
 * tandem/allreduce.h -- how several ranks add their gradients
 */
#ifndef TD_ALLREDUCE_H
#define TD_ALLREDUCE_H

#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Who adds. */
typedef enum {
    TD_ALLREDUCE_EXACT, /* the ranks, in rank order: the same bits from every transport */
    TD_ALLREDUCE_FAST   /* MPI, or NCCL on GPUs, in its own order; with neither: as EXACT */
} td_allreduce_mode;

/** What TD_ALLREDUCE_FAST sends for each number. */
typedef enum { TD_WIRE_FLOAT32, TD_WIRE_BF16, TD_WIRE_FP16 } td_wire_dtype;

typedef struct {
    td_allreduce_mode mode;
    td_wire_dtype dtype;
    int64_t check_every; /* FAST: optimizer steps between comparisons of the ranks' weights */
} td_allreduce_opts;

#ifdef __cplusplus
}
#endif
#endif
