/*
 * onnx_axis_ops.c -- ops that cut tensors along axes, or change their dimensions, as ONNX
 *
 *     slice   Slice            transpose   Transpose            broadcast_to   Expand
 */
#include "onnx/onnx_write.h"
#include "ops/ops.h"

void td_writer_slice(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_slice_attr *a = n->attr;
    const int64_t end = a->start + (a->size - 1) * a->step + 1, axis = a->axis;
    const char *in[5] = { td_writer_operand(e, n, 0), td_writer_ints(e, n, "/starts", 1, &a->start),
                          td_writer_ints(e, n, "/ends", 1, &end),
                          td_writer_ints(e, n, "/axes", 1, &axis) };
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    if (a->step > 1)
        in[4] = td_writer_ints(e, n, "/steps", 1, &a->step);
    td_writer_result(e, n, td_writer_add(e, op, n, &y, in[4] ? 5 : 4, in));
}

void td_writer_transpose(td_onnx_writer *e, const td_node *n, const char *op)
{
    int perm[TD_RANK_MAX];
    int64_t wide[TD_RANK_MAX];
    const int rank = td_in_type(n, 0)->rank;
    TD_CHECK(td_transpose_perm(n, perm));
    for (int i = 0; i < rank; i++)
        wide[i] = perm[i];
    td_writer_same(e, n, op);
    td_onnx_attr_ints(e->m, "perm", rank, wide);
}

/* 1 keeps a dimension of x, which may be the batch */
void td_writer_expand(td_onnx_writer *e, const td_node *n, const char *op)
{
    int64_t dim[TD_RANK_MAX];
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_onnx_value type = td_writer_shape(e, n->out[0]);
    for (int i = 0; i < y->rank; i++) {
        const int k = i - (y->rank - x->rank);
        dim[i] = k >= 0 && x->dim[k] == y->dim[i] ? 1 : y->dim[i];
        if (dim[i] != 1 && type.dim[i].value < 0)
            td_writer_stop(e, td_error(TD_EUNSUPPORTED,
                                       "broadcast_to '%%%s' depends on the batch size: fix it with "
                                       "--batch-size",
                                       n->out[0]->name));
    }
    td_writer_result(e, n,
                     TD_WRITER_ADD(e, op, n, &type, td_writer_operand(e, n, 0),
                                   td_writer_ints(e, n, "/shape", y->rank, dim)));
}
