/*
 * native_int8.c -- quantize, dequantize and quantize_weights
 *
 * The first two work on tensors in any layout, padding included: zeros stay zeros.
 */
#include "backend/native/native_int8.h"

#include <string.h>

#include "backend/native/native.h"
#include "tandem/program.h"

static const td_native_int8_simd *simd(void)
{
    return td_native_int8_simd_at(0);
}

static td_status accepts_flat(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const td_type *wide = n->op == &td_op_quantize ? x : y;
    if (wide->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(wide->dtype));
    if (strcmp(x->layout, y->layout) != 0)
        return td_error(TD_ENOKERNEL, "the layouts differ");
    return TD_OK;
}

static td_status run_quantize(const td_prepared *p, void *const *args)
{
    const td_type *y = &p->node->out[0]->type;
    const float scale = (float)((const td_quantize_attr *)p->node->attr)->scale;
    const float *x = args[0];
    const td_native_pieces d = td_native_divide_tensor(y, td_threads());
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each)
        if (y->dtype == TD_DT_U8)
            simd()->to_u8(td_native_piece_at(&d, i), x + i, scale, (uint8_t *)args[1] + i);
        else
            simd()->to_s8(td_native_piece_at(&d, i), x + i, scale, (int8_t *)args[1] + i);
    return TD_OK;
}

static td_status run_dequantize(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    const float scale = (float)((const td_quantize_attr *)p->node->attr)->scale;
    float *y = args[1];
    const td_native_pieces d = td_native_divide_tensor(x, td_threads());
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each)
        if (x->dtype == TD_DT_U8)
            simd()->from_u8(td_native_piece_at(&d, i), (const uint8_t *)args[0] + i, scale, y + i);
        else
            simd()->from_s8(td_native_piece_at(&d, i), (const int8_t *)args[0] + i, scale, y + i);
    return TD_OK;
}

static td_work_share share_flat(const td_node *n, int threads)
{
    const td_native_pieces d = td_native_divide_tensor(td_in_type(n, 0), threads);
    return td_native_pieces_share(&d, threads);
}

static td_status accepts_plain(const td_node *n)
{
    if (!td_type_is_plain(td_in_type(n, 0)))
        return td_error(TD_ENOKERNEL, "the filter has layout %s", td_in_type(n, 0)->layout);
    return TD_OK;
}

static td_status run_weights(const td_prepared *p, void *const *args)
{
    const td_type *t = td_in_type(p->node, 0);
    const int64_t each = t->dim[1] * t->dim[2] * t->dim[3];
    const float *w = args[0];
    int8_t *q = args[1];
    float *scale = args[2];
    const float most = (float)((const td_quantize_weights_attr *)p->node->attr)->most;
#pragma omp parallel for
    for (int64_t k = 0; k < t->dim[0]; k++) {
        scale[k] = simd()->largest(each, w + k * each) / most;
        if (!(scale[k] > 0))
            scale[k] = 1;
        simd()->to_s8(each, w + k * each, scale[k], q + k * each);
    }
    return TD_OK;
}

static td_work_share share_weights(const td_node *n, int threads)
{
    const td_type *t = td_in_type(n, 0);
    return td_work_share_of(t->dim[0], (double)(t->dim[1] * t->dim[2] * t->dim[3]), threads);
}

TD_NATIVE_KERNEL(quantize, accepts_flat, NULL, run_quantize, share_flat);
TD_NATIVE_KERNEL(dequantize, accepts_flat, NULL, run_dequantize, share_flat);
TD_NATIVE_KERNEL(quantize_weights, accepts_plain, NULL, run_weights, share_weights);
