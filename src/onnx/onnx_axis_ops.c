/*
 * onnx_axis_ops.c -- ops that cut tensors along axes, or change their dimensions, and ops on their
 * last dimensions, as ONNX
 *
 *     slice    Slice                          transpose    Transpose
 *     matmul   Transpose, MatMul, Add         layer_norm   LayerNormalization
 *     broadcast_to   Expand                  gather       Gather
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

void td_writer_gather(td_onnx_writer *e, const td_node *n, const char *op)
{
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "axis", ((const td_gather_attr *)n->attr)->axis);
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

/* 1 keeps a dimension of x, which may be open */
void td_writer_expand(td_onnx_writer *e, const td_node *n, const char *op)
{
    int64_t dim[TD_RANK_MAX];
    const td_value *x = n->in[0], *y = n->out[0];
    const td_onnx_value type = td_writer_shape(e, y);
    bool is_open = false;
    for (int i = 0; i < y->type.rank; i++) {
        const int k = i - (y->type.rank - x->type.rank);
        dim[i] = k >= 0 && td_writer_same_dim(e, x, k, y, i) ? 1 : y->type.dim[i];
        is_open = is_open || (dim[i] != 1 && td_writer_is_open(e, y, i));
    }
    const char *in = td_writer_operand(e, n, 0);
    const char *shape =
        is_open ? td_writer_shape_of(e, n, y) : td_writer_ints(e, n, "/shape", y->type.rank, dim);
    td_writer_result(e, n, TD_WRITER_ADD(e, op, n, &type, in, shape));
}

/* operand i with its last two dimensions exchanged, if `is_transposed` */
static const char *factor(td_onnx_writer *e, const td_node *n, int i, bool is_transposed)
{
    const int rank = td_in_type(n, i)->rank;
    const char *x = td_writer_operand(e, n, i);
    td_onnx_value type = td_writer_shape(e, n->in[i]);
    int64_t perm[TD_RANK_MAX];
    if (!is_transposed)
        return x;
    for (int d = 0; d < rank; d++)
        perm[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    const td_onnx_value from = type;
    type.dim[rank - 2] = from.dim[rank - 1];
    type.dim[rank - 1] = from.dim[rank - 2];
    x = TD_WRITER_ADD(e, "Transpose", n, &type, x);
    td_onnx_attr_ints(e->m, "perm", rank, perm);
    return x;
}

void td_writer_matmul(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_matmul_attr *a = n->attr;
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    const char *v = TD_WRITER_ADD(e, op, n, &y, factor(e, n, 0, a->transpose_a),
                                  factor(e, n, 1, a->transpose_b));
    if (n->n_in > 2)
        v = TD_WRITER_ADD(e, "Add", n, &y, v, td_writer_operand(e, n, 2));
    td_writer_result(e, n, v);
}

void td_writer_layer_norm(td_onnx_writer *e, const td_node *n, const char *op)
{
    const td_type *x = td_in_type(n, 0), *gamma = td_in_type(n, 1);
    if (n->out[1]->n_uses || n->out[2]->n_uses)
        td_writer_stop(e, td_error(TD_EUNSUPPORTED, "the statistics of %s are used", n->op->name));
    if (e->m->opset < TD_ONNX_OPSET_LAYER_NORM)
        td_writer_stop(e, td_error(TD_EUNSUPPORTED, "%s ('%%%s') requires --opset %d or later",
                                   n->op->name, n->out[0]->name, TD_ONNX_OPSET_LAYER_NORM));
    td_writer_same(e, n, op);
    td_onnx_attr_int(e->m, "axis", x->rank - gamma->rank);
    td_onnx_attr_float(e->m, "epsilon", (float)((const td_layer_norm_attr *)n->attr)->eps);
}
