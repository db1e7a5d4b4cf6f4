/*
 * own_arith.c -- sums and products, relu, and the optimiser's step: one stream over memory each
 */
#include <string.h>

#include "backend/own/own.h"

#define PIECE                                                                                      \
    16384 /* elements of one job: long enough to stream, short enough to share out evenly */

/* --- element by element: any one layout ------------------------------------------------------- */

static int64_t padded_count(const td_type *t)
{
    return td_type_bytes(t) / (int64_t)td_dtype_bytes(t->dtype);
}

/* all tensors are f32 of one type */
static td_status accepts_flat(const td_node *n)
{
    const td_type *t = td_in_type(n, 0);
    if (t->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(t->dtype));
    for (int i = 0; i < n->n_in + n->n_out; i++)
        if (!td_type_equal(i < n->n_in ? td_in_type(n, i) : &n->out[i - n->n_in]->type, t))
            return td_error(TD_ENOKERNEL, "tensors 0 and %d are not alike", i);
    return TD_OK;
}

static int64_t piece(int64_t from, int64_t count)
{
    return count - from < PIECE ? count - from : PIECE;
}

static td_status run_add(const td_prepared *p, void *const *args)
{
    const float *x = args[0], *y = args[1];
    float *z = args[2];
    const int64_t count = padded_count(td_in_type(p->node, 0));
    const bool is_streamed = td_own_is_streamed(count * 4) && z != x && z != y;
    const td_own_simd *simd = td_own_simd_for(16);
#pragma omp parallel for if (count > PIECE)
    for (int64_t i = 0; i < count; i += PIECE)
        simd->add(piece(i, count), x + i, y + i, z + i, is_streamed);
    return TD_OK;
}

static td_status run_relu(const td_prepared *p, void *const *args)
{
    const float *x = args[0];
    float *y = args[1];
    const int64_t count = padded_count(td_in_type(p->node, 0));
    const bool is_streamed = td_own_is_streamed(count * 4) && y != x;
    const td_own_simd *simd = td_own_simd_for(16);
#pragma omp parallel for if (count > PIECE)
    for (int64_t i = 0; i < count; i += PIECE)
        simd->relu(piece(i, count), x + i, y + i, is_streamed);
    return TD_OK;
}

static td_status run_relu_grad(const td_prepared *p, void *const *args)
{
    const float *dy = args[0], *y = args[1];
    float *dx = args[2];
    const int64_t count = padded_count(td_in_type(p->node, 0));
    const bool is_streamed = td_own_is_streamed(count * 4) && dx != dy;
    const td_own_simd *simd = td_own_simd_for(16);
#pragma omp parallel for if (count > PIECE)
    for (int64_t i = 0; i < count; i += PIECE)
        simd->relu_grad(piece(i, count), dy + i, y + i, dx + i, is_streamed);
    return TD_OK;
}

/* w, v and g alike; lr one number */
static td_status accepts_sgd(const td_node *n)
{
    const td_type *w = td_in_type(n, 0);
    for (int i = 0; i < 3; i++)
        if (!td_type_equal(td_in_type(n, i), w) || w->dtype != TD_DT_F32)
            return td_error(TD_ENOKERNEL, "operand %d is not f32 like operand 0", i);
    if (td_in_type(n, 3)->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "the learning rate is not f32");
    return TD_OK;
}

static td_status run_sgd(const td_prepared *p, void *const *args)
{
    const td_sgd_attr *at = p->node->attr;
    const td_own_step a = { at->momentum, at->decay, *(const float *)args[3], at->nesterov };
    float *w = args[0], *v = args[1];
    const float *g = args[2];
    const int64_t count = padded_count(td_in_type(p->node, 0));
    const td_own_simd *simd = td_own_simd_for(16);
#pragma omp parallel for if (count > PIECE)
    for (int64_t i = 0; i < count; i += PIECE)
        simd->sgd(piece(i, count), &a, w + i, v + i, g + i);
    return TD_OK;
}

/* --- a picture times a gate per channel (squeeze-excite) -------------------------------------- */

/* `gate` is [N, C, 1, 1], which lies as [N, C] in every layout that fills its lanes */
static td_status check_gate(const td_type *x, const td_type *gate)
{
    if (gate->rank != 4 || gate->dim[0] != x->dim[0] || gate->dim[1] != x->dim[1] ||
        gate->dim[2] != 1 || gate->dim[3] != 1)
        return td_error(TD_ENOKERNEL, "no gate per channel");
    return TD_OK;
}

static td_status accepts_gate(const td_node *n)
{
    TD_TRY(td_own_accepts(n, td_in_type(n, 0)));
    return check_gate(td_in_type(n, 0), td_in_type(n, 1));
}

static td_status run_gate(const td_prepared *p, void *const *args)
{
    const float *x = args[0], *gate = args[1];
    float *y = args[2];
    td_own_shape s;
    TD_TRY(td_own_shape_of(td_in_type(p->node, 0), &s));
    s.plane.is_streamed = td_own_is_streamed(s.N * s.image_floats * 4) && y != x;
    const td_own_simd *simd = td_own_simd_for(s.lanes);
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t cb = 0; cb < s.CB; cb++) {
            const int64_t at = td_own_offset(&s, n, cb);
            simd->mul(&s.plane, x + at, gate + n * s.C + cb * s.lanes, y + at);
        }
    return TD_OK;
}

static td_status accepts_gate_grad(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    TD_TRY(td_own_accepts(n, x));
    if (!td_type_equal(x, td_in_type(n, 1)))
        return td_error(TD_ENOKERNEL, "operands 0 and 1 are not alike");
    return check_gate(x, td_in_type(n, 2));
}

static td_status run_gate_grad(const td_prepared *p, void *const *args)
{
    const float *x = args[0], *y = args[1];
    float *z = args[3];
    td_own_shape s;
    TD_TRY(td_own_shape_of(td_in_type(p->node, 0), &s));
    const td_own_simd *simd = td_own_simd_for(s.lanes);
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t cb = 0; cb < s.CB; cb++) {
            const int64_t at = td_own_offset(&s, n, cb);
            simd->dot(&s.plane, x + at, y + at, z + n * s.C + cb * s.lanes);
        }
    return TD_OK;
}

#define ARITH(op_, accepts_, run_)                                                                 \
    const td_kernel td_own_##op_ = {                                                               \
        .name = "own_" #op_, .op = &td_op_##op_, .accepts = accepts_, .run = run_                  \
    }

ARITH(add, accepts_flat, run_add);
ARITH(relu, accepts_flat, run_relu);
ARITH(relu_grad, accepts_flat, run_relu_grad);
ARITH(sgd, accepts_sgd, run_sgd);
ARITH(mul, accepts_gate, run_gate);
ARITH(mul_reduce, accepts_gate_grad, run_gate_grad);
