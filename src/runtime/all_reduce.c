/*
 * all_reduce.c -- the kernels of collective nodes, which run on the host
 *
 *     all_reduce_begin   copies its operand into the bucket; the bucket's last part starts the sum
 *     all_reduce_end     waits for the bucket; copies its part of the sum to the result
 */
#include "runtime/all_reduce.h"

#include <string.h>

#include "base/arena.h"
#include "ops/ops.h"

td_status td_collective_is_wanted(const td_prepared *p, int i, void *const *args, bool *out)
{
    const td_all_reduce_attr *a = p->node->attr;
    float update = 1;
    if (!a->always && i < p->node->n_in) {
        if (p->update)
            memcpy(&update, *p->update, sizeof update);
        else
            TD_TRY(p->memory->copy_out(&update, args[i], sizeof update));
    }
    *out = update != 0;
    return TD_OK;
}

static int64_t floats_of(const td_node *n)
{
    return td_type_bytes(td_in_type(n, 0)) / (int64_t)sizeof(float);
}

static td_status run_begin(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_all_reduce_attr *a = n->attr;
    const size_t bytes = (size_t)floats_of(n) * sizeof(float);
    float *own = td_reduction_own(p->reduction, a->bucket);
    bool sums;
    TD_TRY(td_collective_is_wanted(p, 1, args, &sums));
    if (!sums)
        return TD_OK;
    TD_TRY(p->memory->copy_out(own + a->at, args[0], bytes));
    if (n->n_in > 2)
        TD_TRY(p->memory->copy_out(td_reduction_start(p->reduction, a->bucket) + a->at, args[2],
                                   bytes));
    if (a->is_last)
        td_reduction_begin(p->reduction, a->bucket);
    return TD_OK;
}

static td_status run_end(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_all_reduce_attr *a = n->attr;
    const float *sum;
    bool sums;
    TD_TRY(td_collective_is_wanted(p, 2, args, &sums));
    if (!sums)
        return TD_OK;
    TD_TRY(td_reduction_wait(p->reduction, a->bucket, &sum));
    return p->memory->copy_in(args[n->n_in], sum + a->at, (size_t)floats_of(n) * sizeof(float));
}

static td_status accepts(const td_node *n)
{
    (void)n;
    return TD_OK;
}

static const td_kernel begin_kernel = {
    .name = "ranks_begin",
    .op = &td_op_all_reduce_begin,
    .is_host = true,
    .accepts = accepts,
    .run = run_begin,
};

static const td_kernel end_kernel = {
    .name = "ranks_end",
    .op = &td_op_all_reduce_end,
    .is_host = true,
    .accepts = accepts,
    .run = run_end,
};

const td_kernel *td_collective_select(const td_node *n)
{
    return n->op == begin_kernel.op ? &begin_kernel : n->op == end_kernel.op ? &end_kernel : NULL;
}

/* --- buckets ---------------------------------------------------------------------------------- */

int64_t td_collective_bytes(const td_graph *g, const td_comm *c)
{
    enum { COPIES = 3 };
    bool starts;
    const int64_t floats = td_collective_floats(g, &starts);
    return c ? floats * (int64_t)sizeof(float) * (COPIES + starts) : 0;
}

td_status td_collective_open(const td_graph *g, td_comm *c, td_reduction **out)
{
    int n_buckets;
    int64_t *floats;
    bool starts;
    *out = NULL;
    TD_TRY(td_collective_buckets(g, &floats, &n_buckets));
    if (n_buckets == 0)
        return TD_OK;
    (void)td_collective_floats(g, &starts);
    td_status st = td_reduction_new(c, n_buckets, floats, starts, out);
    td_free(floats);
    return st;
}
