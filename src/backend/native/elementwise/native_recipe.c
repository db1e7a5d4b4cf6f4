/*
 * native_recipe.c -- updates other than the optimizer's step: gradients accumulated over batches,
 * averages of weights, mixup; each passes over memory once, divided among the threads
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

#define LINE 16 /* floats in a cache line */

/* operands whose bits are set in `tensors` are f32 of one type; the others are f32 scalars */
static td_status check_operands(const td_node *n, unsigned tensors)
{
    const td_type *w = td_in_type(n, 0);
    if (w->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(w->dtype));
    for (int i = 0; i < n->n_in; i++) {
        const td_type *t = td_in_type(n, i);
        if (tensors >> i & 1 ? !td_type_equal(t, w)
                             : t->dtype != TD_DT_F32 || td_type_count(t) != 1)
            return td_error(TD_ENOKERNEL, "operand %d is not %s", i,
                            tensors >> i & 1 ? "f32 like operand 0" : "one f32");
    }
    return TD_OK;
}

static float number(const void *arg)
{
    return *(const float *)arg;
}

/* operands 0 and 1 are of one type */
static td_work_share share(const td_node *n, int threads)
{
    const td_native_pieces d = td_native_divide_tensor(td_in_type(n, 1), threads);
    return td_native_pieces_share(&d, threads);
}

/* --- accumulate(sum, g) -> s and carry(w, sum, s, last) --------------------------------------- */

static td_status accepts_accumulate(const td_node *n)
{
    if (!td_type_equal(td_in_type(n, 0), &n->out[0]->type))
        return td_error(TD_ENOKERNEL, "the result is not like operand 0");
    return check_operands(n, 3);
}

static td_status run_accumulate(const td_prepared *p, void *const *args)
{
    const td_native_pieces d = td_native_divide_tensor(td_in_type(p->node, 0), td_threads());
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, 16);
    const float *sum = args[0], *g = args[1];
    float *s = args[2];
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each)
        simd->add(td_native_piece_at(&d, i), sum + i, g + i, s + i, false);
    return TD_OK;
}

static td_status accepts_carry(const td_node *n)
{
    return check_operands(n, 7);
}

static td_status run_carry(const td_prepared *p, void *const *args)
{
    const td_native_pieces d = td_native_divide_tensor(td_in_type(p->node, 1), td_threads());
    const bool is_last = number(args[3]) != 0;
    float *sum = args[1];
    const float *s = args[2];
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each) {
        const size_t bytes = (size_t)td_native_piece_at(&d, i) * sizeof *sum;
        if (is_last)
            memset(sum + i, 0, bytes);
        else
            memcpy(sum + i, s + i, bytes);
    }
    return TD_OK;
}

/* --- ema(value, average, keep, share [, finite]) ---------------------------------------------- */

static td_status accepts_ema(const td_node *n)
{
    return check_operands(n, 3);
}

static td_status run_ema(const td_prepared *p, void *const *args)
{
    const td_native_pieces d = td_native_divide_tensor(td_in_type(p->node, 0), td_threads());
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, 16);
    const float keep = number(args[2]), share = number(args[3]), *value = args[0];
    float *average = args[1];
    if ((p->node->n_in > 4 && number(args[4]) == 0) || (keep == 1 && share == 0))
        return TD_OK;
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.count; i += d.each)
        simd->ema(td_native_piece_at(&d, i), keep, share, value + i, average + i);
    return TD_OK;
}

/* --- mixup(x, lambda, partner) -> y ----------------------------------------------------------- */

static td_status accepts_mixup(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (x->dtype != TD_DT_F32 || !td_type_is_plain(x))
        return td_error(TD_ENOKERNEL, "not float32 in plain order");
    return TD_OK;
}

/* the elements of every row in pieces; threads share the pieces of all rows */
static td_native_pieces divide_rows(const td_type *t, int threads, int64_t *rows)
{
    *rows = t->dim[0];
    const int64_t each = (threads + *rows - 1) / (*rows ? *rows : 1); /* threads for a row */
    return td_native_divide(*rows ? td_type_count(t) / *rows : 0, LINE, each > 1 ? (int)each : 1);
}

static td_work_share share_mixup(const td_node *n, int threads)
{
    int64_t rows;
    const td_native_pieces d = divide_rows(td_in_type(n, 0), threads, &rows);
    return td_work_share_of(rows * d.n, (double)d.count / (double)(d.n ? d.n : 1), threads);
}

static td_status run_mixup(const td_prepared *p, void *const *args)
{
    int64_t rows;
    const td_native_pieces d = divide_rows(td_in_type(p->node, 0), td_threads(), &rows);
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, 16);
    const float *x = args[0], *lambda = args[1];
    const int64_t *partner = args[2];
    float *y = args[3];
#pragma omp parallel for collapse(2) if (rows * d.count > TD_NATIVE_PIECE)
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < d.n; k++) {
            const int64_t other = partner[n] >= 0 && partner[n] < rows ? partner[n] : n;
            const int64_t i = k * d.each;
            simd->blend(td_native_piece_at(&d, i), lambda[n], x + n * d.count + i,
                        x + other * d.count + i, y + n * d.count + i);
        }
    return TD_OK;
}

/* --- cutmix(x, box, partner) -> y ------------------------------------------------------------- */

static int64_t within(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i > n ? n : i;
}

/* one channel of a sample: rows of the image, the box's columns from the partner */
static void cut_channel(const td_type *t, const int64_t *box, const float *x, const float *other,
                        float *y)
{
    const int64_t height = t->dim[2], width = t->dim[3];
    const int64_t left = within(box[0], width), right = within(box[2], width);
    memcpy(y, x, (size_t)(height * width) * sizeof *y);
    for (int64_t v = within(box[1], height); left < right && v < within(box[3], height); v++)
        memcpy(y + v * width + left, other + v * width + left, (size_t)(right - left) * sizeof *y);
}

static td_work_share share_cutmix(const td_node *n, int threads)
{
    const td_type *t = td_in_type(n, 0);
    return td_work_share_of(t->dim[0] * t->dim[1], (double)(t->dim[2] * t->dim[3]), threads);
}

static td_status run_cutmix(const td_prepared *p, void *const *args)
{
    const td_type *t = td_in_type(p->node, 0);
    const int64_t rows = t->dim[0], channels = t->dim[1], area = t->dim[2] * t->dim[3];
    const float *x = args[0];
    const int64_t *box = args[1], *partner = args[2];
    float *y = args[3];
#pragma omp parallel for if (rows * channels * area > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < rows * channels; i++) {
        const int64_t n = i / channels, c = i % channels;
        const int64_t other = partner[n] >= 0 && partner[n] < rows ? partner[n] : n;
        cut_channel(t, box + 4 * n, x + i * area, x + (other * channels + c) * area, y + i * area);
    }
    return TD_OK;
}

TD_NATIVE_KERNEL(accumulate, accepts_accumulate, NULL, run_accumulate, share);
TD_NATIVE_KERNEL(carry, accepts_carry, NULL, run_carry, share);
TD_NATIVE_KERNEL(ema, accepts_ema, NULL, run_ema, share);
TD_NATIVE_KERNEL(mixup, accepts_mixup, NULL, run_mixup, share_mixup);
TD_NATIVE_KERNEL(cutmix, accepts_mixup, NULL, run_cutmix, share_cutmix);
