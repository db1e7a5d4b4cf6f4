/*
 * native_int8_conv.c -- what the convolutions of 8-bit integers share: conditions, the division
 * among threads, scales in steps of the result
 */
#include "backend/native/int8/native_int8_conv.h"

#include <math.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"

td_status td_native_int8_check_forms(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    if (td_in_type(n, 0)->dtype != TD_DT_U8)
        return td_error(TD_ENOKERNEL, "the input is %s, wanted u8",
                        td_dtype_name(td_in_type(n, 0)->dtype));
    if (a->act != TD_CONV_LINEAR)
        return td_error(TD_ENOKERNEL, "%s follows", td_conv_act_names[a->act]);
    return TD_OK;
}

static td_status check_types(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_dtype y = n->out[0]->type.dtype;
    TD_TRY(td_native_int8_check_forms(n));
    if (a->relu && (a->relu6 || y == TD_DT_S8))
        return td_error(TD_ENOKERNEL, "the result is %s%s", td_dtype_name(y),
                        a->relu ? " after relu or relu6" : "");
    return TD_OK;
}

td_status td_native_int8_check(const td_node *n, bool has_loops)
{
    const td_type *w = td_in_type(n, 1);
    TD_TRY(check_types(n));
    if (w->dim[0] % TD_INT8_CHANNELS || w->dim[1] % 4)
        return td_error(TD_ENOKERNEL, "%lld channels to %lld, wanted multiples of 4 and %d",
                        (long long)w->dim[1], (long long)w->dim[0], TD_INT8_CHANNELS);
    if (!has_loops)
        return td_error(TD_ENOKERNEL, "the processor has no AVX-512 VNNI");
    return td_native_check_no_amx();
}

static const td_node_layouts layouts = { .in = { "acdb", "AcdB64a4b", "", "", "acdb" },
                                         .out = "acdb" };

td_status td_native_int8_accepts(const td_node *n, td_int8_check *check)
{
    TD_TRY(check(n));
    return td_native_check_layouts(n, &layouts);
}

bool td_native_int8_preferred_layout(const td_node *n, td_int8_check *check, td_node_layouts *out)
{
    if (n->op != &td_op_conv2d_int8 || check(n) != TD_OK)
        return false;
    *out = layouts;
    return true;
}

td_native_grid td_native_int8_divide(const td_node *n, int64_t tiles, double cycles, int threads)
{
    const td_type *w = td_in_type(n, 1);
    const td_native_grid_bytes bytes = { (double)td_type_bytes(td_in_type(n, 0)),
                                         (double)td_type_bytes(w),
                                         (double)td_type_bytes(&n->out[0]->type) };
    return td_native_grid_divide_by_time(tiles, w->dim[0] / TD_INT8_CHANNELS, cycles, &bytes,
                                         threads);
}

size_t td_native_int8_scratch(const td_node *n, const td_native_grid *d)
{
    return (size_t)(d->tile_parts * d->block_parts) * 2 * (size_t)n->out[0]->type.dim[1] *
           sizeof(float);
}

double td_native_int8_step(const td_node *n)
{
    const bool is_float = n->out[0]->type.dtype == TD_DT_F32;
    return is_float ? 1 : ((const td_conv_int8_attr *)n->attr)->y_scale;
}

/* the largest sum of products, and the residual in steps of y */
static float largest_sum(const td_node *n)
{
    const td_type *w = td_in_type(n, 1);
    return (float)UINT8_MAX * 128 * (float)(w->dim[1] * w->dim[2] * w->dim[3]);
}

static float largest_residual(const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    return n->n_in > 4 ? UINT8_MAX * (float)(a->residual_scale / a->y_scale) : 0;
}

td_int8_scales td_native_int8_scales(const td_node *n, void *const *args, int64_t from, int64_t to,
                                     float *scale)
{
    const td_conv_int8_attr *a = n->attr;
    const int64_t K = n->out[0]->type.dim[1];
    const double step = td_native_int8_step(n);
    const float by = (float)(a->x_scale / step), bias_by = (float)(1 / step);
    const float sum = largest_sum(n), room = 0x1p30f - largest_residual(n);
    const float *s = args[2], *b = args[3];
    float *bias = scale + K;
    int n_beyond = 0;
#pragma omp simd reduction(+ : n_beyond)
    for (int64_t k = from; k < to; k++) {
        scale[k] = s[k] * by;
        bias[k] = b[k] * bias_by;
        n_beyond += !(fabsf(scale[k]) * sum + fabsf(bias[k]) < room); /* or NaN */
    }
    return (td_int8_scales){ scale, bias, n_beyond == 0 };
}

void td_native_int8_run(const td_prepared *p, void *const *args, const td_native_grid *d,
                        td_int8_run_part *run_part)
{
    const int threads = d->tile_parts * d->block_parts;
    const td_node *n = p->node;
    float *scratch = args[n->n_in + 1];
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const td_native_cell part = td_native_grid_cell(d, t);
        const td_int8_scales scales = td_native_int8_scales(
            n, args, part.block_from * TD_INT8_CHANNELS, part.block_to * TD_INT8_CHANNELS,
            scratch + t * 2 * n->out[0]->type.dim[1]);
        run_part(p, args, &part, &scales);
    }
}
