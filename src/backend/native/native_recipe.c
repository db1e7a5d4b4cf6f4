/*
 * native_recipe.c -- updates other than the optimizer's step: gradients accumulated over batches,
 * averages of weights, mixup; each passes over memory once, divided among the threads
 */
#include <string.h>

#include "backend/native/native.h"

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

/* --- accumulate(sum, g) -> s and carry(w, sum, s, last) --------------------------------------- */

static td_status accepts_accumulate(const td_node *n)
{
    if (!td_type_equal(td_in_type(n, 0), &n->out[0]->type))
        return td_error(TD_ENOKERNEL, "the result is not like operand 0");
    return check_operands(n, 3);
}

static td_status run_accumulate(const td_prepared *p, void *const *args)
{
    const int64_t count = td_type_padded_count(td_in_type(p->node, 0));
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, 16);
    const float *sum = args[0], *g = args[1];
    float *s = args[2];
#pragma omp parallel for if (count > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < count; i += TD_NATIVE_PIECE)
        simd->add(td_native_piece(i, count), sum + i, g + i, s + i, false);
    return TD_OK;
}

static td_status accepts_carry(const td_node *n)
{
    return check_operands(n, 7);
}

static td_status run_carry(const td_prepared *p, void *const *args)
{
    const int64_t count = td_type_padded_count(td_in_type(p->node, 1));
    const bool is_last = number(args[3]) != 0;
    float *sum = args[1];
    const float *s = args[2];
#pragma omp parallel for if (count > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < count; i += TD_NATIVE_PIECE) {
        const size_t bytes = (size_t)td_native_piece(i, count) * sizeof *sum;
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
    const int64_t count = td_type_padded_count(td_in_type(p->node, 0));
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, 16);
    const float keep = number(args[2]), share = number(args[3]), *value = args[0];
    float *average = args[1];
    if (p->node->n_in > 4 && number(args[4]) == 0)
        return TD_OK;
#pragma omp parallel for if (count > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < count; i += TD_NATIVE_PIECE)
        simd->ema(td_native_piece(i, count), keep, share, value + i, average + i);
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

static td_status run_mixup(const td_prepared *p, void *const *args)
{
    const td_type *t = td_in_type(p->node, 0);
    const int64_t rows = t->dim[0], width = rows ? td_type_count(t) / rows : 0;
    const int64_t pieces = (width + TD_NATIVE_PIECE - 1) / TD_NATIVE_PIECE;
    const td_native_simd *simd = td_native_simd_for(TD_DT_F32, 16);
    const float *x = args[0], *lambda = args[1];
    const int64_t *partner = args[2];
    float *y = args[3];
#pragma omp parallel for collapse(2) if (rows * width > TD_NATIVE_PIECE)
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < pieces; k++) {
            const int64_t other = partner[n] >= 0 && partner[n] < rows ? partner[n] : n;
            const int64_t i = k * TD_NATIVE_PIECE;
            simd->blend(td_native_piece(i, width), lambda[n], x + n * width + i,
                        x + other * width + i, y + n * width + i);
        }
    return TD_OK;
}

#define RECIPE(op_)                                                                                \
    const td_kernel td_native_##op_ = {                                                            \
        .name = "native_" #op_, .op = &td_op_##op_, .accepts = accepts_##op_, .run = run_##op_     \
    }

RECIPE(accumulate);
RECIPE(carry);
RECIPE(ema);
RECIPE(mixup);
