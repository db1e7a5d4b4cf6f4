/*
 * gpu_tensor.c -- tensors of nodes as the plug-in describes them, and which nodes have such
 */
#include "backend/gpu/gpu.h"

const td_type *td_gpu_type(const td_node *n, int i)
{
    return i < n->n_in ? &n->in[i]->type : &n->out[i - n->n_in]->type;
}

td_status td_gpu_tensor_of(const td_type *t, void *data, td_gpu_tensor *out)
{
    td_blocking bl;
    int64_t step = 1;
    const int first = TD_GPU_RANK - t->rank;
    if (!td_type_blocking(t, &bl) || bl.n_blocks > 0 || bl.rank != t->rank)
        return td_error(TD_ENOKERNEL, "layout %s", t->layout);
    *out = (td_gpu_tensor){ .data = data, .dtype = t->dtype };
    for (int d = 0; d < first; d++)
        out->dim[d] = 1;
    for (int k = t->rank - 1; k >= 0; k--) {
        const int d = bl.order[k];
        out->dim[first + d] = t->dim[d];
        out->stride[first + d] = step;
        step *= t->dim[d];
    }
    return TD_OK;
}

td_gpu_tensor td_gpu_tensor_at(const td_prepared *p, int i, void *const *args)
{
    td_gpu_tensor t;
    TD_CHECK(td_gpu_tensor_of(td_gpu_type(p->node, i), args[i], &t) == TD_OK);
    return t;
}

td_gpu_tensor td_gpu_broadcast(td_gpu_tensor x, const td_gpu_tensor *like)
{
    for (int d = 0; d < TD_GPU_RANK; d++)
        if (x.dim[d] != like->dim[d]) {
            x.dim[d] = like->dim[d];
            x.stride[d] = 0;
        }
    return x;
}

td_gpu_tensor td_gpu_part(td_gpu_tensor x, int rank, int axis, int64_t start, int64_t size)
{
    const int d = TD_GPU_RANK - rank + axis;
    x.data = (char *)x.data + (size_t)(start * x.stride[d]) * td_dtype_bytes(x.dtype);
    x.dim[d] = size;
    return x;
}

static td_status check_tensor(const td_node *n, int i, td_dtype wanted)
{
    td_gpu_tensor unused;
    const td_type *t = td_gpu_type(n, i);
    if (wanted != TD_DT_NONE && t->dtype != wanted)
        return td_error(TD_ENOKERNEL, "tensor %d is %s", i, td_dtype_name(t->dtype));
    if (t->dtype == TD_DT_F64)
        return td_error(TD_ENOKERNEL, "tensor %d is f64", i);
    return td_gpu_tensor_of(t, NULL, &unused);
}

static td_status accepts(const td_node *n, bool is_alike)
{
    const td_dtype d = is_alike ? td_in_type(n, 0)->dtype : TD_DT_NONE;
    if (is_alike && !td_dtype_is_float(d))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(d));
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (!td_is_shape_only(n, i))
            TD_TRY(check_tensor(n, i, d));
    return TD_OK;
}

td_status td_gpu_accepts_alike(const td_node *n)
{
    return accepts(n, true);
}

td_status td_gpu_accepts_any(const td_node *n)
{
    return accepts(n, false);
}

td_status td_gpu_check_plain(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (!td_is_shape_only(n, i) && !td_type_is_plain(td_gpu_type(n, i)))
            return td_error(TD_ENOKERNEL, "layout %s", td_gpu_type(n, i)->layout);
    return TD_OK;
}
