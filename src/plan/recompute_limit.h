/*
 * plan/recompute_limit.h -- recomputes results in a training step to meet a memory limit
 *
 * The pass `recompute` (recompute.c) is part of every compilation and costs almost no time.  This
 * module recomputes more to meet a limit, and slows down the step.
 */
#ifndef TD_PLAN_RECOMPUTE_LIMIT_H
#define TD_PLAN_RECOMPUTE_LIMIT_H

#include "ir/op.h"

typedef struct {
    int n_results;       /* number of recomputed results */
    int64_t macs;        /* extra multiply-accumulates per run */
    int64_t alive_bytes; /* resulting peak, estimated from the graph and scratch_bytes */
} td_recomputed;

/**
 * Drop results that the backward pass reads again and recompute them before their first use there,
 * in order of the bytes saved per time, until at most `goal_bytes` are alive at once or nothing
 * helps (see report->alive_bytes).  Results are bit-equal.  `g` is the graph before pass recompute;
 * scratch_bytes[i] is the scratch size of node i's kernel, NULL: none.  *out is a new verified
 * graph.  TD_ENOMEM.
 */
td_status td_recompute_within(const td_graph *g, const size_t *scratch_bytes, int64_t goal_bytes,
                              td_graph **out, td_recomputed *report) TD_CHECKED;

#endif
