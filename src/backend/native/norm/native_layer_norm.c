/*
 * native_layer_norm.c -- plain rows: layer normalisation and softmax
 *
 * Half types are widened to float32 a row at a time.  Sums over rows are float32 within a group of
 * GROUP rows and float64 over the groups, in order, whatever the number of threads:
 *
 *     scratch   [groups][vectors][width]
 */
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "backend/native/detection/native_detection.h"
#include "backend/native/elementwise/native_act_bf16.h"
#include "backend/native/elementwise/native_channels.h"
#include "backend/native/simd/native_rows.h"
#include "backend/native/simd/native_simd.h"
#include "tandem/program.h"

#define GROUP     64
#define WIDTH_MAX 2048 /* of half rows: their floats are on the stack */

/* the dtype of a tensor's rows as float32 and back */
typedef struct {
    td_dtype dtype;
    int64_t width;
    size_t bytes; /* of a row */
    const td_native_simd *simd;
} rows_of;

static rows_of rows_like(const td_type *t, int64_t width)
{
    return (rows_of){ t->dtype, width, (size_t)width * td_dtype_bytes(t->dtype),
                      td_native_simd_for(t->dtype, 16) };
}

/* row i as float32: in place, or in `room` */
static const float *read_row(const rows_of *r, const void *x, int64_t i, float *room)
{
    const char *from = (const char *)x + (size_t)i * r->bytes;
    if (r->dtype == TD_DT_F32)
        return (const float *)(const void *)from;
    r->simd->widen(r->width, from, room, false);
    return room;
}

/* where row i is to be written, and its end */
static float *write_row(const rows_of *r, void *y, int64_t i, float *room)
{
    return r->dtype == TD_DT_F32 ? (float *)y + i * r->width : room;
}

static void end_row(const rows_of *r, const float *row, void *y, int64_t i)
{
    if (r->dtype != TD_DT_F32)
        r->simd->narrow(r->width, row, (char *)y + (size_t)i * r->bytes, false);
}

static td_status accepts_rows(const td_node *n, const td_type *x, int64_t width)
{
    if (!td_native_knows(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    if (x->dtype != TD_DT_F32 && width > WIDTH_MAX)
        return td_error(TD_ENOKERNEL, "half rows of more than %d elements", WIDTH_MAX);
    for (int i = 0; i < n->n_in; i++)
        if (!td_type_is_plain(td_in_type(n, i)) && !td_is_shape_only(n, i))
            return td_error(TD_ENOKERNEL, "operand %d is not in plain order", i);
    return TD_OK;
}

/* --- layer normalisation ---------------------------------------------------------------------- */

static td_layer_norm_sizes sizes_of(const td_node *n)
{
    const int x = n->op == &td_op_layer_norm_grad;
    return td_layer_norm_sizes_of(td_in_type(n, x), td_in_type(n, x + 1));
}

static td_status accepts_norm(const td_node *n)
{
    for (int i = 1; i < n->n_in; i++)
        if ((n->op->wide_in >> i & 1) && td_in_type(n, i)->dtype != TD_DT_F32)
            return td_error(TD_ENOKERNEL, "operand %d is %s", i,
                            td_dtype_name(td_in_type(n, i)->dtype));
    return accepts_rows(n, td_in_type(n, 0), sizes_of(n).width);
}

static td_status run_norm(const td_prepared *p, void *const *args)
{
    const td_layer_norm_sizes s = sizes_of(p->node);
    const float eps = (float)((const td_layer_norm_attr *)p->node->attr)->eps;
    const rows_of r = rows_like(td_in_type(p->node, 0), s.width);
    const td_native_rows *loops = td_native_rows_here();
    float *mean = args[4], *scale = args[5];
#pragma omp parallel for if (s.rows * s.width > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < s.rows; i++) {
        float room[2][WIDTH_MAX];
        float *y = write_row(&r, args[3], i, room[1]);
        loops->norm(s.width, read_row(&r, args[0], i, room[0]), args[1], args[2], eps, y, &mean[i],
                    &scale[i]);
        end_row(&r, y, args[3], i);
    }
    return TD_OK;
}

static int64_t groups_of(int64_t rows)
{
    return (rows + GROUP - 1) / GROUP;
}

static td_status prepare_norm_grad(const td_node *n, td_prepared *out)
{
    const td_layer_norm_sizes s = sizes_of(n);
    out->scratch_bytes = (size_t)(groups_of(s.rows) * 2 * s.width) * sizeof(float);
    return TD_OK;
}

static td_status run_norm_grad(const td_prepared *p, void *const *args)
{
    const td_layer_norm_sizes s = sizes_of(p->node);
    const rows_of r = rows_like(td_in_type(p->node, 0), s.width);
    const td_native_rows *loops = td_native_rows_here();
    const float *mean = args[3], *scale = args[4];
    float *parts = args[8];
    const int64_t groups = groups_of(s.rows);
#pragma omp parallel for if (s.rows * s.width > TD_NATIVE_PIECE)
    for (int64_t g = 0; g < groups; g++) {
        float room[3][WIDTH_MAX], *dgamma = parts + g * 2 * s.width, *dbeta = dgamma + s.width;
        memset(dgamma, 0, (size_t)(2 * s.width) * sizeof *dgamma);
        for (int64_t i = g * GROUP; i < s.rows && i < (g + 1) * GROUP; i++) {
            float *dx = write_row(&r, args[5], i, room[2]);
            loops->norm_grad(s.width, read_row(&r, args[0], i, room[0]),
                             read_row(&r, args[1], i, room[1]), args[2], mean[i], scale[i], dx,
                             dgamma, dbeta);
            end_row(&r, dx, args[5], i);
        }
    }
    td_native_add_groups(groups, 2 * s.width, s.width, parts, args[6]);
    td_native_add_groups(groups, 2 * s.width, s.width, parts + s.width, args[7]);
    return TD_OK;
}

/* --- softmax ---------------------------------------------------------------------------------- */

static int64_t width_of(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    return x->dim[x->rank - 1];
}

static td_status accepts_softmax(const td_node *n)
{
    return accepts_rows(n, td_in_type(n, 0), width_of(n));
}

/* NULL: rows are widened */
static const td_native_softmax_loops *bf16_loops(const td_node *n)
{
    return td_in_type(n, 0)->dtype == TD_DT_BF16 ? td_native_softmax_bf16() : NULL;
}

static td_status run_softmax(const td_prepared *p, void *const *args)
{
    const int64_t width = width_of(p->node);
    const int64_t count = td_type_count(td_in_type(p->node, 0));
    const rows_of r = rows_like(td_in_type(p->node, 0), width);
    const td_native_detection_simd *loops = td_native_detection_simd_at(0);
    const td_native_softmax_loops *bf16 = bf16_loops(p->node);
#pragma omp parallel for if (count > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < count / width; i++) {
        float room[2][WIDTH_MAX];
        if (bf16) {
            bf16->function(width, (const uint16_t *)args[0] + i * width,
                           (uint16_t *)args[1] + i * width, room[0]);
            continue;
        }
        const float *x = read_row(&r, args[0], i, room[0]);
        float *y = write_row(&r, args[1], i, room[1]);
        loops->softmax_row(width, x, y);
        end_row(&r, y, args[1], i);
    }
    return TD_OK;
}

static td_status run_softmax_grad(const td_prepared *p, void *const *args)
{
    const int64_t width = width_of(p->node);
    const int64_t count = td_type_count(td_in_type(p->node, 0));
    const rows_of r = rows_like(td_in_type(p->node, 0), width);
    const td_native_rows *loops = td_native_rows_here();
    const td_native_softmax_loops *bf16 = bf16_loops(p->node);
#pragma omp parallel for if (count > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < count / width; i++) {
        float room[3][WIDTH_MAX];
        if (bf16) {
            bf16->gradient(width, (const uint16_t *)args[0] + i * width,
                           (const uint16_t *)args[1] + i * width, (uint16_t *)args[2] + i * width);
            continue;
        }
        float *dx = write_row(&r, args[2], i, room[2]);
        loops->softmax_grad(width, read_row(&r, args[0], i, room[0]),
                            read_row(&r, args[1], i, room[1]), dx);
        end_row(&r, dx, args[2], i);
    }
    return TD_OK;
}

/* --- division --------------------------------------------------------------------------------- */

static td_work_share share_norm(const td_node *n, int threads)
{
    const td_layer_norm_sizes s = sizes_of(n);
    return td_work_share_of(s.rows, (double)s.width, threads);
}

static td_work_share share_norm_grad(const td_node *n, int threads)
{
    const td_layer_norm_sizes s = sizes_of(n);
    return td_work_share_of(groups_of(s.rows), (double)(GROUP * s.width), threads);
}

static td_work_share share_softmax(const td_node *n, int threads)
{
    const int64_t width = width_of(n);
    return td_work_share_of(td_type_count(td_in_type(n, 0)) / width, (double)width, threads);
}

TD_NATIVE_KERNEL(layer_norm, accepts_norm, NULL, run_norm, share_norm);
TD_NATIVE_KERNEL(layer_norm_grad, accepts_norm, prepare_norm_grad, run_norm_grad, share_norm_grad);
TD_NATIVE_KERNEL(softmax, accepts_softmax, NULL, run_softmax, share_softmax);
TD_NATIVE_KERNEL(softmax_grad, accepts_softmax, NULL, run_softmax_grad, share_softmax);
