/*
 * reduce_operators.c -- ONNX operators that reduce dimensions: sums, means, extremes, norms
 *
 * An extreme over n elements is a tree of max or min of two halves, so it has their gradients and
 * kernels.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <string.h>

#include "onnx_import/importer.h"

/* the sum over some dimensions, which are 1 then; `like` has the result's shape */
static td_value *sum_over(td_importer *im, td_value *x, const bool *is_axis)
{
    td_value *like = x;
    const td_type t = td_value_type(x);
    for (int d = 0; d < t.rank; d++) {
        const td_slice_attr a = { .axis = d, .size = 1, .step = 1 };
        if (is_axis[d] && t.dim[d] > 1)
            like = td_emit(im->b, &td_op_slice, &a, like);
    }
    return like == x ? x : td_emit(im->b, &td_op_sum_to, NULL, x, like);
}

static td_value *part(td_importer *im, td_value *x, int axis, int64_t start, int64_t size)
{
    const td_slice_attr a = { axis, start, size, 1 };
    return td_emit(im->b, &td_op_slice, &a, x);
}

/* the largest or smallest along an axis: of both halves, and of the middle one again if there is */
static td_value *extreme_along(td_importer *im, td_value *x, int axis, bool is_max)
{
    while (td_build_ok(im->b) && td_value_type(x).dim[axis] > 1) {
        const int64_t size = td_value_type(x).dim[axis], half = (size + 1) / 2;
        x = td_emit(im->b, is_max ? &td_op_max : &td_op_min, NULL, part(im, x, axis, 0, half),
                    part(im, x, axis, size - half, half));
    }
    return x;
}

static td_value *extreme_over(td_importer *im, td_value *x, const bool *is_axis, bool is_max)
{
    const int rank = td_value_type(x).rank;
    for (int d = 0; d < rank && td_build_ok(im->b); d++)
        if (is_axis[d])
            x = extreme_along(im, x, d, is_max);
    return x;
}

static td_value *scaled(td_importer *im, td_value *x, double by)
{
    const td_scale_attr a = { by };
    return td_emit(im->b, &td_op_scale, &a, x);
}

static td_value *one(td_importer *im, const td_op *op, td_value *x)
{
    return td_emit(im->b, op, NULL, x);
}

/* log of the sum of exponentials, of numbers that are at most 0 */
static td_value *log_sum_exp(td_importer *im, td_value *x, const bool *is_axis)
{
    td_value *most = extreme_over(im, x, is_axis, true);
    td_value *below = td_emit(im->b, &td_op_sub, NULL, x, most);
    return td_add(im->b, most,
                  one(im, &td_op_log, sum_over(im, one(im, &td_op_exp, below), is_axis)));
}

/* the reduction with dimensions that are 1, or without them if td_op_global_avg_pool does it */
static td_value *reduced(td_importer *im, td_value *x, const bool *is_axis, int64_t count)
{
    const char *op = im->node->op;
    const td_type t = td_value_type(x);
    const bool is_images = t.rank == 4 && !is_axis[0] && !is_axis[1] && is_axis[2] && is_axis[3];
    if (strcmp(op, "ReduceMax") == 0 || strcmp(op, "ReduceMin") == 0)
        return extreme_over(im, x, is_axis, strcmp(op, "ReduceMax") == 0);
    if (strcmp(op, "ReduceLogSumExp") == 0)
        return log_sum_exp(im, x, is_axis);
    if (strcmp(op, "ReduceMean") == 0) {
        if (is_images)
            return td_global_avg_pool(im->b, x);
        x = sum_over(im, x, is_axis);
        return count > 1 ? scaled(im, x, 1 / (double)count) : x;
    }
    if (strcmp(op, "ReduceL1") == 0)
        x = one(im, &td_op_abs, x);
    if (strcmp(op, "ReduceL2") == 0 || strcmp(op, "ReduceSumSquare") == 0)
        x = td_mul(im->b, x, x);
    x = sum_over(im, x, is_axis);
    if (strcmp(op, "ReduceL2") == 0)
        x = one(im, &td_op_sqrt, x);
    if (strcmp(op, "ReduceLogSum") == 0)
        x = one(im, &td_op_log, x);
    return x;
}

/* over dimensions of a model; without axes over all */
static td_status reduce_axes(td_importer *im, td_value *x, td_value **y)
{
    const td_type t = td_value_type(x);
    bool is_axis[TD_RANK_MAX];
    int64_t keep, noop, count = 1, dim[TD_RANK_MAX];
    int n, rank = 0;
    TD_TRY(td_import_axes(im, 1, t.rank, &n, is_axis));
    TD_TRY(td_import_attr_int(im, "keepdims", 1, &keep));
    TD_TRY(td_import_attr_int(im, "noop_with_empty_axes", 0, &noop));
    for (int d = 0; d < t.rank; d++) {
        is_axis[d] = is_axis[d] || (n < 1 && !noop);
        count *= is_axis[d] ? t.dim[d] : 1;
        if (keep || !is_axis[d])
            dim[rank++] = is_axis[d] ? 1 : t.dim[d];
    }
    *y = reduced(im, x, is_axis, count);
    if (td_build_ok(im->b) && td_value_type(*y).rank != rank)
        *y = td_import_reshaped(im, *y, rank, dim);
    return TD_OK;
}

td_status td_import_reduce(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t keep;
    if (im->o->is_model) {
        TD_TRY(td_import_value_at(im, 0, &x));
        return reduce_axes(im, x, y);
    }
    TD_TRY(td_import_attr_int(im, "keepdims", 1, &keep));
    if (keep) { /* sum_to, which the exporter writes with axes */
        TD_TRY(td_import_value_at(im, 0, &x));
        return reduce_axes(im, x, y);
    }
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    *y = strcmp(im->node->op, "ReduceSum") == 0 ? td_sum(im->b, x) : td_mean(im->b, x);
    return TD_OK;
}

/* --- of images -------------------------------------------------------------------------------- */

td_status td_import_global_max(td_importer *im, td_value *x, td_value **y)
{
    const td_type t = td_value_type(x);
    if (t.rank != 4)
        return td_import_refuse(im, "images that have not four dimensions");
    x = td_reshape(im->b, x, 3, (int64_t[]){ t.dim[0], t.dim[1], t.dim[2] * t.dim[3] });
    x = extreme_along(im, x, 2, true);
    *y = td_reshape(im->b, x, 4, (int64_t[]){ t.dim[0], t.dim[1], 1, 1 });
    return TD_OK;
}

td_status td_import_global_max_pool(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    return td_import_global_max(im, x, y);
}

/* x - log of the sum of exponentials */
td_status td_import_log_softmax(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t axis;
    bool is_axis[TD_RANK_MAX] = { false };
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    const int rank = td_value_type(x).rank;
    TD_TRY(td_import_softmax_axis(im, rank, &axis));
    is_axis[axis] = true;
    *y = td_emit(im->b, &td_op_sub, NULL, x, log_sum_exp(im, x, is_axis));
    return TD_OK;
}
