/*
 * native_arith.c -- sums and products, relu, casts: each reads and writes memory once
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/common/native_planes.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

/* --- element by element: any layout, the same for all tensors --------------------------------- */

/* arguments of the loops over one flat tensor */
typedef struct {
    int64_t count, each; /* number of elements, bytes of each */
    td_native_pieces pieces;
    const td_native_simd *simd;
} flat;

static flat flat_of(const td_type *t)
{
    return (flat){ td_type_padded_count(t), (int64_t)td_dtype_bytes(t->dtype),
                   td_native_divide_tensor(t, td_threads()), td_native_simd_for(t->dtype, 16) };
}

static td_status run_add(const td_prepared *p, void *const *args)
{
    const flat f = flat_of(td_in_type(p->node, 0));
    const char *x = args[0], *y = args[1];
    char *z = args[2];
    const bool is_streamed = td_native_is_streamed(f.count * f.each) && z != x && z != y;
#pragma omp parallel for if (f.pieces.n > 1)
    for (int64_t i = 0; i < f.count; i += f.pieces.each)
        f.simd->add(td_native_piece_at(&f.pieces, i), x + i * f.each, y + i * f.each,
                    z + i * f.each, is_streamed);
    return TD_OK;
}

static td_status run_relu(const td_prepared *p, void *const *args)
{
    const flat f = flat_of(td_in_type(p->node, 0));
    const char *x = args[0];
    char *y = args[1];
    const bool is_streamed = td_native_is_streamed(f.count * f.each) && y != x;
#pragma omp parallel for if (f.pieces.n > 1)
    for (int64_t i = 0; i < f.count; i += f.pieces.each)
        f.simd->relu(td_native_piece_at(&f.pieces, i), x + i * f.each, y + i * f.each, is_streamed);
    return TD_OK;
}

static td_status run_relu_grad(const td_prepared *p, void *const *args)
{
    const flat f = flat_of(td_in_type(p->node, 0));
    const char *dy = args[0], *y = args[1];
    char *dx = args[2];
    const bool is_streamed = td_native_is_streamed(f.count * f.each) && dx != dy;
#pragma omp parallel for if (f.pieces.n > 1)
    for (int64_t i = 0; i < f.count; i += f.pieces.each)
        f.simd->relu_grad(td_native_piece_at(&f.pieces, i), dy + i * f.each, y + i * f.each,
                          dx + i * f.each, is_streamed);
    return TD_OK;
}

/* --- cast between float32 and the half types, in any layout ----------------------------------- */

static td_status accepts_cast(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    if (!(td_dtype_is_half(x->dtype) && y->dtype == TD_DT_F32) &&
        !(td_dtype_is_half(y->dtype) && x->dtype == TD_DT_F32))
        return td_error(TD_ENOKERNEL, "from %s to %s", td_dtype_name(x->dtype),
                        td_dtype_name(y->dtype));
    if (strcmp(x->layout, y->layout) != 0)
        return td_error(TD_ENOKERNEL, "the layouts differ");
    return TD_OK;
}

static td_status run_cast(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0), *y = &p->node->out[0]->type;
    const flat f = flat_of(td_dtype_is_half(x->dtype) ? x : y);
    const bool is_streamed = td_native_is_streamed(td_type_bytes(y));
#pragma omp parallel for if (f.pieces.n > 1)
    for (int64_t i = 0; i < f.count; i += f.pieces.each) {
        if (y->dtype == TD_DT_F32)
            f.simd->widen(td_native_piece_at(&f.pieces, i), (const uint16_t *)args[0] + i,
                          (float *)args[1] + i, is_streamed);
        else
            f.simd->narrow(td_native_piece_at(&f.pieces, i), (const float *)args[0] + i,
                           (uint16_t *)args[1] + i, is_streamed);
    }
    return TD_OK;
}

/* --- is every element finite? ----------------------------------------------------------------- */

static td_status accepts_finite(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (!td_native_knows(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    if (n->n_in > 1 && td_in_type(n, 1)->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "operand 1 is %s", td_dtype_name(td_in_type(n, 1)->dtype));
    return TD_OK;
}

static td_status run_finite(const td_prepared *p, void *const *args)
{
    const flat f = flat_of(td_in_type(p->node, 0));
    const char *x = args[0];
    float *y = args[p->node->n_in];
    const bool was_finite = p->node->n_in < 2 || *(const float *)args[1] != 0;
    atomic_bool is_finite = was_finite;
#pragma omp parallel for if (f.pieces.n > 1)
    for (int64_t i = 0; i < f.count; i += f.pieces.each)
        if (atomic_load_explicit(&is_finite, memory_order_relaxed) &&
            !f.simd->all_finite(td_native_piece_at(&f.pieces, i), x + i * f.each))
            atomic_store_explicit(&is_finite, false, memory_order_relaxed);
    *y = is_finite ? 1 : 0;
    return TD_OK;
}

/* --- limits of gradients ---------------------------------------------------------------------- */

/* pieces that do not depend on the number of threads */
static td_native_pieces divide_squares(const td_node *n)
{
    return td_native_divide_tensor(td_in_type(n, 0), 1);
}

/* operands from 1 on, and the result, are one f32 each */
static td_status check_scalars(const td_node *n)
{
    for (int i = 1; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != TD_DT_F32)
            return td_error(TD_ENOKERNEL, "operand %d is %s", i,
                            td_dtype_name(td_in_type(n, i)->dtype));
    return TD_OK;
}

static td_status accepts_grad_norm(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (!td_native_knows(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    return check_scalars(n);
}

static td_status prepare_grad_norm(const td_node *n, td_prepared *out)
{
    out->scratch_bytes = (size_t)divide_squares(n).n * sizeof(double);
    return TD_OK;
}

static td_status run_grad_norm(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const flat f = flat_of(td_in_type(n, 0));
    const td_native_pieces d = divide_squares(n);
    const float by = *(const float *)args[1];
    const char *x = args[0];
    double *sums = args[n->n_in + 1];
    double sum = n->n_in > 2 ? (double)*(const float *)args[2] : 0;
    sum *= sum;
#pragma omp parallel for if (d.n > 1)
    for (int64_t i = 0; i < d.n; i++)
        sums[i] = f.simd->squares(td_native_piece_at(&d, i * d.each), by, x + i * d.each * f.each);
    for (int64_t i = 0; i < d.n; i++)
        sum += sums[i];
    *(float *)args[n->n_in] = (float)sqrt(sum);
    return TD_OK;
}

static td_status accepts_limit_grad(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (!td_type_equal(x, &n->out[0]->type) || x->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "operand and result are not f32 in one layout");
    return check_scalars(n);
}

static td_status run_limit_grad(const td_prepared *p, void *const *args)
{
    const flat f = flat_of(td_in_type(p->node, 0));
    const float limit = (float)((const td_limit_grad_attr *)p->node->attr)->limit;
    const float by = *(const float *)args[1], *x = args[0];
    float *y = args[2];
#pragma omp parallel for if (f.pieces.n > 1)
    for (int64_t i = 0; i < f.count; i += f.pieces.each)
        f.simd->limit_grad(td_native_piece_at(&f.pieces, i), by, limit, x + i, y + i);
    return TD_OK;
}

/* --- an image times a gate per channel (squeeze-excite) -------------------------------------- */

/* `gate` is [N, C, 1, 1] */
static td_status check_gate(const td_type *x, const td_type *gate)
{
    if (gate->rank != 4 || gate->dim[0] != x->dim[0] || gate->dim[1] != x->dim[1] ||
        gate->dim[2] != 1 || gate->dim[3] != 1)
        return td_error(TD_ENOKERNEL, "no gate per channel");
    return TD_OK;
}

static td_status accepts_gate(const td_node *n)
{
    TD_TRY(td_native_accepts_padded(n, td_in_type(n, 0)));
    return check_gate(td_in_type(n, 0), td_in_type(n, 1));
}

static td_status run_gate(const td_prepared *p, void *const *args)
{
    td_native_shape s;
    TD_TRY(td_native_padded_shape_of(td_in_type(p->node, 0), &s));
    s.plane.is_streamed = td_native_is_plane_streamed(&s) && args[2] != args[0];
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
    const td_native_planes d = td_native_planes_of(&s, TD_NATIVE_GRAIN, td_threads());
#pragma omp parallel for schedule(static, 1)
    for (int t = 0; t < d.threads; t++)
        for (td_native_span k = td_native_span_first(&d, t); td_native_span_next(&d, &k);) {
            const td_native_part q = td_native_part_of(&s, &k);
            td_native_room room;
            simd->mul(&q.plane, (const char *)args[0] + q.at * s.each,
                      td_native_block_at(&s, td_in_type(p->node, 1), args[1], q.n, q.cb, &room),
                      (char *)args[2] + q.at * s.each);
        }
    return TD_OK;
}

static td_work_share share_gate(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_padded_shape_of(td_in_type(n, 0), &s) == TD_OK);
    return td_native_shape_share(&s, TD_NATIVE_GRAIN, threads);
}

static td_status accepts_gate_grad(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    TD_TRY(td_native_accepts_padded(n, x));
    if (!td_type_equal(x, td_in_type(n, 1)))
        return td_error(TD_ENOKERNEL, "operands 0 and 1 differ in type or layout");
    return check_gate(x, td_in_type(n, 2));
}

static td_status run_gate_grad(const td_prepared *p, void *const *args)
{
    td_native_shape s;
    TD_TRY(td_native_padded_shape_of(td_in_type(p->node, 0), &s));
    const td_native_simd *simd = td_native_simd_for(s.dtype, s.lanes);
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < s.N; n++)
        for (int64_t cb = 0; cb < s.CB; cb++) {
            td_native_room sums;
            simd->dot(&s.plane, td_native_plane_at(&s, args[0], n, cb),
                      td_native_plane_at(&s, args[1], n, cb), &sums);
            td_native_block_put(&s, &p->node->out[0]->type, args[3], n, cb, &sums);
        }
    return TD_OK;
}

static td_work_share share_gate_grad(const td_node *n, int threads)
{
    td_native_shape s;
    TD_CHECK(td_native_padded_shape_of(td_in_type(n, 0), &s) == TD_OK);
    return td_work_share_of(s.N * s.CB, (double)(s.plane.n_pixels * s.lanes), threads);
}

/* --- rows times one number each: folding a norm into filters ---------------------------------- */

static td_status accepts_rows(const td_node *n)
{
    const td_type *x = td_in_type(n, 0), *y = td_in_type(n, 1);
    if (x->dtype != TD_DT_F32 || y->dtype != TD_DT_F32 || !td_type_is_plain(x) ||
        !td_type_is_plain(y))
        return td_error(TD_ENOKERNEL, "not float32 in plain order");
    if (x->rank < 2 || y->rank != x->rank || y->dim[0] != x->dim[0] ||
        td_type_count(y) != y->dim[0])
        return td_error(TD_ENOKERNEL, "not one number per row");
    return TD_OK;
}

static td_status run_rows(const td_prepared *p, void *const *args)
{
    const td_type *x = td_in_type(p->node, 0);
    const int64_t rows = x->dim[0], width = rows ? td_type_count(x) / rows : 0;
    const float *from = args[0], *scale = args[1];
    float *to = args[2];
#pragma omp parallel for if (rows * width > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < rows; i++) {
        const float s = scale[i];
#pragma omp simd
        for (int64_t k = 0; k < width; k++)
            to[i * width + k] = from[i * width + k] * s;
    }
    return TD_OK;
}

TD_NATIVE_KERNEL(add, td_native_accepts_flat, NULL, run_add, td_native_share_flat);
TD_NATIVE_KERNEL(relu, td_native_accepts_flat, NULL, run_relu, td_native_share_flat);
TD_NATIVE_KERNEL(relu_grad, td_native_accepts_flat, NULL, run_relu_grad, td_native_share_flat);
TD_NATIVE_KERNEL(cast, accepts_cast, NULL, run_cast, td_native_share_flat);
TD_NATIVE_KERNEL(all_finite, accepts_finite, NULL, run_finite, td_native_share_flat);
TD_NATIVE_KERNEL(grad_norm, accepts_grad_norm, prepare_grad_norm, run_grad_norm,
                 td_native_share_flat);
TD_NATIVE_KERNEL(limit_grad, accepts_limit_grad, NULL, run_limit_grad, td_native_share_flat);
TD_NATIVE_KERNEL(mul, accepts_gate, NULL, run_gate, share_gate);
TD_NATIVE_KERNEL(mul_reduce, accepts_gate_grad, NULL, run_gate_grad, share_gate_grad);

const td_kernel td_native_mul_rows = {
    .name = "native_mul_rows", .op = &td_op_mul, .accepts = accepts_rows, .run = run_rows
};
