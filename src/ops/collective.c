/*
 * all_reduce(x [, update [, start]]) {always} -> y      y = start + x of rank 0 + x of rank 1 + ...
 *
 *   x, y     one shape, float32     a gradient, or a sum of them
 *   update   scalar                 if it is 0 nothing is exchanged, and y is undefined
 *   start    x's shape              the same on all ranks; omitted: 0
 *
 * With `always` it runs whatever `update` is.  The sum is computed in rank order and rounded after
 * each addition, so that ranks with one batch each give the same result as one rank that
 * accumulates those batches.
 *
 * Pass `buckets` splits it into two ops, so that the nodes between them run during the exchange:
 *
 * all_reduce_begin(x [, update [, start]]) {bucket, at, is_last, always} -> sent    a token, f32[]
 * all_reduce_end(x, sent [, update]) {bucket, at, always} -> y                      x: type only
 *
 * `x` is stored in the bucket from index `at`, in its own layout, padding included; the bucket is
 * sent when its last part is stored.  runtime/all_reduce.c executes them.
 * Source: Li et al. 2020, PyTorch Distributed (buckets in the order in which gradients are
 * computed).
 */
#include "ops/ops.h"

#include "base/arena.h"

/* clang-format off */
static const td_field reduce_fields[] = {
    TD_BOOL(td_all_reduce_attr, always, false, "whatever the value of `update`"),
    TD_END,
};

static const td_field part_fields[] = {
    TD_INT (td_all_reduce_attr, bucket, 0, 0, 1000000, "number of the bucket"),
    TD_LONG(td_all_reduce_attr, at, 0, 0, 9e15, "where the part begins in it, in numbers"),
    TD_BOOL(td_all_reduce_attr, is_last, false, "the bucket is full"),
    TD_BOOL(td_all_reduce_attr, always, false, "whatever the value of `update`"),
    TD_END,
};
/* clang-format on */

static td_status check_float(const td_node *n)
{
    if (td_in_type(n, 0)->dtype != TD_DT_F32)
        return td_error(TD_ESHAPE, "%s: ranks exchange f32, found %s", n->op->name,
                        td_dtype_name(td_in_type(n, 0)->dtype));
    return TD_OK;
}

static td_status check_rest(const td_node *n)
{
    TD_TRY(check_float(n));
    if (n->n_in > 1 && td_type_count(td_in_type(n, 1)) != 1)
        return td_error(TD_ESHAPE, "%s: operand 1 is not a scalar", n->op->name);
    if (n->n_in > 2 && (!td_type_same_shape(td_in_type(n, 0), td_in_type(n, 2)) ||
                        td_in_type(n, 2)->dtype != TD_DT_F32))
        return td_error(TD_ESHAPE, "%s: operand 2 does not have the type of operand 0",
                        n->op->name);
    return TD_OK;
}

static td_status reduce_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_rest(n));
    *y = *td_in_type(n, 0);
    return TD_OK;
}

static td_status begin_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_rest(n));
    *y = td_type_scalar(TD_DT_F32);
    return TD_OK;
}

static td_status end_infer(const td_node *n, td_type *y)
{
    TD_TRY(check_float(n));
    for (int i = 1; i < n->n_in; i++)
        if (td_type_count(td_in_type(n, i)) != 1)
            return td_error(TD_ESHAPE, "%s: operand %d is not a scalar", n->op->name, i);
    *y = *td_in_type(n, 0);
    return TD_OK;
}

const td_op td_op_all_reduce = {
    .name = "all_reduce",
    .summary = "sum over all ranks",
    .n_in = 1,
    .n_in_max = 3,
    .n_out = 1,
    .fields = reduce_fields,
    .attr_bytes = sizeof(td_all_reduce_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .infer = reduce_infer,
};

const td_op td_op_all_reduce_begin = {
    .name = "all_reduce_begin",
    .summary = "a part of a bucket that is summed over all ranks",
    .n_in = 1,
    .n_in_max = 3,
    .n_out = 1,
    .fields = part_fields,
    .attr_bytes = sizeof(td_all_reduce_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .is_collective = true,
    .infer = begin_infer,
};

const td_op td_op_all_reduce_end = {
    .name = "all_reduce_end",
    .summary = "wait for a bucket, and take a part of its sum",
    .n_in = 2,
    .n_in_max = 3,
    .n_out = 1,
    .fields = part_fields,
    .attr_bytes = sizeof(td_all_reduce_attr),
    .layout = TD_LAYOUT_FOLLOWS,
    .shape_only = 1u,
    .is_collective = true,
    .infer = end_infer,
};

/* --- the buckets of a graph ------------------------------------------------------------------- */

static int64_t floats_of(const td_node *n)
{
    return td_type_bytes(td_in_type(n, 0)) / (int64_t)sizeof(float);
}

int64_t td_collective_floats(const td_graph *g, bool *starts)
{
    enum { LINE = 16 }; /* the layout of reduction.c */
    int64_t floats = 0;
    *starts = false;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (n->op != &td_op_all_reduce && n->op != &td_op_all_reduce_begin)
            continue;
        floats += (floats_of(n) + LINE - 1) / LINE * LINE;
        *starts = *starts || n->n_in > 2;
    }
    return floats;
}

td_status td_collective_buckets(const td_graph *g, int64_t **floats, int *n_buckets)
{
    *floats = NULL;
    *n_buckets = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const td_all_reduce_attr *a = n->attr;
        if (n->op == &td_op_all_reduce_begin && a->bucket >= *n_buckets)
            *n_buckets = a->bucket + 1;
    }
    if (*n_buckets == 0)
        return TD_OK;
    TD_TRY(TD_ALLOC(*floats, (size_t)*n_buckets));
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        const td_all_reduce_attr *a = n->attr;
        if (n->op == &td_op_all_reduce_begin && a->at + floats_of(n) > (*floats)[a->bucket])
            (*floats)[a->bucket] = a->at + floats_of(n);
    }
    return TD_OK;
}
