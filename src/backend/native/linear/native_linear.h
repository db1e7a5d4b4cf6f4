/*
 * backend/native/linear/native_linear.h -- fully connected layers of a few rows: the inner loops
 *
 *     y [N, K] = x [N, C] wT + bias      w [K, C]
 *
 * x, w and y are float32 or bfloat16, or only w is bfloat16; the bias is float32.  A sum is 16
 * chains over the channels, with x in bfloat16 of pairs of them, which are added together at the
 * end.
 */
#ifndef TD_BACKEND_NATIVE_LINEAR_NATIVE_LINEAR_H
#define TD_BACKEND_NATIVE_LINEAR_NATIVE_LINEAR_H

#include <stdint.h>

#include "ir/target.h"
#include "tandem/graph.h"

enum { TD_LINEAR_FILTERS = 4 /* computed together */ };

typedef struct {
    int64_t N, C, K;
    const void *x, *w;
    const float *bias; /* NULL: none */
    void *y;
} td_linear_few;

/* outputs [from, to) of all rows */
typedef void td_linear_loops(const td_linear_few *v, int64_t from, int64_t to);

/** NULL if this machine lacks the instructions. */
td_linear_loops *td_linear_loops_for(td_dtype x, td_dtype w);

/** The preferred layouts of linear_fused of a few rows; false for other nodes. */
bool td_native_linear_preferred_layout(const td_node *n, td_node_layouts *out);

#endif
