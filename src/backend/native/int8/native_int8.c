/*
 * native_int8.c -- quantize, dequantize, quantize_weights and shift_int8
 *
 * The first two work on tensors in any layout, padding included: zeros stay zeros.  shift_int8
 * copies rows of pixels: of one channel, of a block of channels or of all.
 */
#include "backend/native/int8/native_int8.h"

#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
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

/* --- shift_int8 ------------------------------------------------------------------------------- */

/* the bytes of a pixel: consecutive channels; 0: another layout */
static int64_t pixel_bytes(const td_type *t)
{
    const int64_t bytes = td_type_is_plain(t)                 ? 1
                          : strcmp(t->layout, "acdb") == 0    ? t->dim[1]
                          : strcmp(t->layout, "aBcd8b") == 0  ? 8
                          : strcmp(t->layout, "aBcd16b") == 0 ? 16
                                                              : 0;
    return bytes && t->dim[1] % bytes == 0 ? bytes : 0;
}

static td_status accepts_shift(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    if (strcmp(x->layout, y->layout) != 0)
        return td_error(TD_ENOKERNEL, "the layouts differ");
    if (!pixel_bytes(x))
        return td_error(TD_ENOKERNEL, "layout is %s, %lld channels", x->layout,
                        (long long)x->dim[1]);
    return TD_OK;
}

/* row h of a result, h counted from the first row of the plane x; from -pad on */
static void shift_row(const td_node *n, int64_t h, const int8_t *x, uint8_t *y)
{
    const int64_t pad = ((const td_shift_int8_attr *)n->attr)->pad;
    const td_type *in = td_in_type(n, 0);
    const int64_t pixel = pixel_bytes(in), width = in->dim[3] * pixel;
    const int64_t all = n->out[0]->type.dim[3] * pixel, left = pad * pixel;
    if (h < 0 || h >= in->dim[2]) {
        memset(y, TD_INT8_ZERO, (size_t)all);
        return;
    }
    memset(y, TD_INT8_ZERO, (size_t)left);
    simd()->shift(width, x + h * width, y + left);
    memset(y + left + width, TD_INT8_ZERO, (size_t)(all - left - width));
}

static td_status run_shift(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    const int64_t pad = ((const td_shift_int8_attr *)n->attr)->pad;
    const int64_t pixel = pixel_bytes(x), rows = y->dim[0] * y->dim[1] / pixel * y->dim[2];
#pragma omp parallel for
    for (int64_t i = 0; i < rows; i++) {
        const int64_t plane = i / y->dim[2] * x->dim[2] * x->dim[3] * pixel;
        shift_row(n, i % y->dim[2] - pad, (const int8_t *)args[0] + plane,
                  (uint8_t *)args[1] + i * y->dim[3] * pixel);
    }
    return TD_OK;
}

static td_work_share share_shift(const td_node *n, int threads)
{
    const td_type *y = &n->out[0]->type;
    const int64_t pixel = pixel_bytes(y);
    return td_work_share_of(y->dim[0] * y->dim[1] / pixel * y->dim[2], (double)(y->dim[3] * pixel),
                            threads);
}

TD_NATIVE_KERNEL(quantize, accepts_flat, NULL, run_quantize, share_flat);
TD_NATIVE_KERNEL(dequantize, accepts_flat, NULL, run_dequantize, share_flat);
TD_NATIVE_KERNEL(quantize_weights, accepts_plain, NULL, run_weights, share_weights);
TD_NATIVE_KERNEL(shift_int8, accepts_shift, NULL, run_shift, share_shift);
