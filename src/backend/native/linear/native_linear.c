/*
 * native_linear.c -- fully connected layers of a few rows, as in inference of one image and in
 * squeeze-excite layers
 *
 * oneDNN copies the filters to another layout in every call, which pays for many rows.  Here every
 * filter is read once, in its own order.  Results have the same bits with any number of threads,
 * and a row's do not depend on the others.
 */
#include "backend/native/linear/native_linear.h"

#include "backend/native/common/native_kernel.h"
#include "tandem/program.h"

enum {
    ROWS_MAX = 8,
    PIECE = 16 << 10, /* products of a thread at least */
};

/* checks everything except layouts */
static td_status check(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (x->dim[0] > ROWS_MAX)
        return td_error(TD_ENOKERNEL, "more than %d rows", ROWS_MAX);
    if (n->op == &td_op_linear && ((const td_linear_attr *)n->attr)->tf32)
        return td_error(TD_ENOKERNEL, "factors are TF32");
    if (n->op == &td_op_linear_fused &&
        (((const td_linear_fused_attr *)n->attr)->gelu || n->n_in > 3))
        return td_error(TD_ENOKERNEL, "gelu or a residual");
    if (!td_linear_loops_for(x->dtype, td_in_type(n, 1)->dtype) ||
        (n->n_in > 2 && td_in_type(n, 2)->dtype != TD_DT_F32))
        return td_error(TD_ENOKERNEL, "no loops in %s for this machine", td_dtype_name(x->dtype));
    return TD_OK;
}

static td_status accepts(const td_node *n)
{
    TD_TRY(check(n));
    for (int i = 0; i < n->n_in; i++)
        if (!td_type_is_plain(td_in_type(n, i)))
            return td_error(TD_ENOKERNEL, "operand %d is not in plain order", i);
    return TD_OK;
}

/* plain order */
bool td_native_linear_preferred_layout(const td_node *n, td_node_layouts *out)
{
    if (n->op != &td_op_linear_fused || check(n) != TD_OK)
        return false;
    *out = (td_node_layouts){ 0 };
    return true;
}

/* filters of a piece: a multiple of those that are computed together */
static int64_t piece_of(const td_node *n, int threads)
{
    const int64_t K = td_in_type(n, 1)->dim[0], C = td_in_type(n, 1)->dim[1];
    const int64_t least = PIECE / (C * td_in_type(n, 0)->dim[0]) + 1;
    const int64_t each = (K + threads - 1) / threads, wanted = each > least ? each : least;
    return (wanted + TD_LINEAR_FILTERS - 1) / TD_LINEAR_FILTERS * TD_LINEAR_FILTERS;
}

static td_status run(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *w = td_in_type(n, 1);
    const td_linear_few v = { .N = td_in_type(n, 0)->dim[0],
                              .C = w->dim[1],
                              .K = w->dim[0],
                              .x = args[0],
                              .w = args[1],
                              .bias = n->n_in > 2 ? args[2] : NULL,
                              .y = args[n->n_in] };
    td_linear_loops *loops = td_linear_loops_for(td_in_type(n, 0)->dtype, w->dtype);
    const int64_t each = piece_of(n, td_threads());
#pragma omp parallel for schedule(static, 1) if (v.K > each)
    for (int64_t k = 0; k < v.K; k += each)
        loops(&v, k, k + each < v.K ? k + each : v.K);
    return TD_OK;
}

static td_work_share share(const td_node *n, int threads)
{
    const int64_t K = td_in_type(n, 1)->dim[0], each = piece_of(n, threads);
    return td_work_share_of((K + each - 1) / each, (double)(each * td_in_type(n, 0)->dim[0]),
                            threads);
}

const td_kernel td_native_linear = {
    .name = "native_linear", .op = &td_op_linear, .accepts = accepts, .run = run, .share = share
};

const td_kernel td_native_linear_fused = { .name = "native_linear_fused",
                                           .op = &td_op_linear_fused,
                                           .accepts = accepts,
                                           .run = run,
                                           .share = share };
