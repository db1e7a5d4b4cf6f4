/*
 * pass/recompute_limit.h -- a training step in less memory: results worked out twice, by cost
 *
 * The pass `recompute` (recompute.c) is part of every compilation and all but free.  This goes
 * further where a limit asks for it, and costs time.
 */
#ifndef TD_PASS_RECOMPUTE_LIMIT_H
#define TD_PASS_RECOMPUTE_LIMIT_H

#include "ir/op.h"

typedef struct {
    int n_results;       /* that are worked out twice */
    int64_t macs;        /* of that, in one run */
    int64_t alive_bytes; /* most alive at once then, as reckoned from the graph and scratch_bytes */
} td_recomputed;

/**
 * Drop results that the backward half reads again and work them out once more before their first
 * use there, those that save most bytes for their time first, until no more than `goal_bytes` are
 * alive at once or nothing helps any more (report->alive_bytes tells).  The numbers that come out
 * are the same, to the bit.  `g` is the graph before pass recompute; scratch_bytes[i] is what node
 * i's kernel asks for, NULL: nothing.  *out is a new verified graph.  TD_ENOMEM.
 */
td_status td_recompute_within(const td_graph *g, const size_t *scratch_bytes, int64_t goal_bytes,
                              td_graph **out, td_recomputed *report) TD_CHECKED;

#endif
