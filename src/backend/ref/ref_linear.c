/*
 * ref_linear.c -- the matrix product all reference kernels share, and fully connected layers
 *
 * c is cut into tiles of 64 rows and 8 columns, one job each.  For 256 steps of k at a time, a job
 * copies its 8 columns of b side by side, and runs down its rows four at a time with 4 x 8 sums in
 * registers:
 *
 *            8 columns                     a [4 rows, k]  .  b [k, 8]  ->  sums [4, 8]
 *      k  +--+--+--+--+--+--+--+--+
 *         |  |  |  |  |  |  |  |  |        columns past the edge are zeros and are not written back
 *         +--+--+--+--+--+--+--+--+
 *
 * With AVX2 the loop uses vectors, with separate multiplications and additions, so that it gives
 * the same bits as the plain loop.
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/half.h"
#include "base/isa.h"

#define ROWS          4
#define COLS          8
#define TILE_ROWS     64
#define WORTH_SHARING 100000 /* multiplications; with fewer a second thread costs time */
#define STEPS         256    /* 256 x 8 doubles of b: a third of an L1 cache */

/* c [rows <= 4, cols <= 8] += a [rows, k] b [k, 8] */
static void add_product(int64_t rows, int64_t cols, int64_t k, const td_ref_matrix *a,
                        const double *b, double *c, int64_t c_row, int64_t c_col)
{
    double sum[ROWS][COLS] = { { 0 } };
    const double *row[ROWS];
    for (int i = 0; i < ROWS; i++)
        row[i] = a->data + (i < rows ? i : 0) * a->row;
    for (int64_t l = 0; l < k; l++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                sum[i][j] += row[i][l * a->col] * b[l * COLS + j];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            c[i * c_row + j * c_col] += sum[i][j];
}

#if defined(__x86_64__)
#define HAS_AVX2() td_isa_has(TD_ISA_AVX2)

typedef double four __attribute__((vector_size(32), aligned(8), may_alias));

/* the same bits; the loop above compiles to code that is three times slower, because its sums do
   not fit into SSE2's registers */
__attribute__((target("avx2"))) static void add_product_avx2(int64_t rows, int64_t cols, int64_t k,
                                                             const td_ref_matrix *a,
                                                             const double *b, double *c,
                                                             int64_t c_row, int64_t c_col)
{
    four left[ROWS] = { { 0 } }, right[ROWS] = { { 0 } };
    const double *row[ROWS];
    for (int i = 0; i < ROWS; i++)
        row[i] = a->data + (i < rows ? i : 0) * a->row;
    for (int64_t l = 0; l < k; l++) {
        const four b_left = *(const four *)(b + l * COLS);
        const four b_right = *(const four *)(b + l * COLS + COLS / 2);
        for (int i = 0; i < ROWS; i++) {
            left[i] += row[i][l * a->col] * b_left;
            right[i] += row[i][l * a->col] * b_right;
        }
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            c[i * c_row + j * c_col] += j < COLS / 2 ? left[i][j] : right[i][j - COLS / 2];
}
#else
#define HAS_AVX2()       false
#define add_product_avx2 add_product
#endif

static void add_tile(int64_t rows, int64_t cols, int64_t k, td_ref_matrix a, td_ref_matrix b,
                     td_ref_matrix c)
{
    double panel[STEPS * COLS] = { 0 };
    const bool is_avx2 = HAS_AVX2();
    for (int64_t from = 0; from < k; from += STEPS) {
        const int64_t steps = k - from < STEPS ? k - from : STEPS;
        for (int64_t l = 0; l < steps; l++)
            for (int64_t j = 0; j < cols; j++)
                panel[l * COLS + j] = b.data[(from + l) * b.row + j * b.col];
        for (int64_t i = 0; i < rows; i += ROWS) {
            const td_ref_matrix part = { a.data + i * a.row + from * a.col, a.row, a.col };
            (is_avx2 ? add_product_avx2 : add_product)(rows - i < ROWS ? rows - i : ROWS, cols,
                                                       steps, &part, panel, c.data + i * c.row,
                                                       c.row, c.col);
        }
    }
}

void td_ref_multiply(int64_t m, int64_t n, int64_t k, td_ref_matrix a, td_ref_matrix b,
                     td_ref_matrix c)
{
#pragma omp parallel for collapse(2) if (m * n * k > WORTH_SHARING)
    for (int64_t i = 0; i < m; i += TILE_ROWS)
        for (int64_t j = 0; j < n; j += COLS) {
            td_ref_matrix ai = { a.data + i * a.row, a.row, a.col };
            td_ref_matrix bj = { b.data + j * b.col, b.row, b.col };
            td_ref_matrix cij = { c.data + i * c.row + j * c.col, c.row, c.col };
            add_tile(m - i < TILE_ROWS ? m - i : TILE_ROWS, n - j < COLS ? n - j : COLS, k, ai, bj,
                     cij);
        }
}

/* --- TF32 ------------------------------------------------------------------------------------- */

int64_t td_ref_factors_work(const td_node *n)
{
    return td_is_tf32(n) ? td_type_count(td_in_type(n, 0)) + td_type_count(td_in_type(n, 1)) : 0;
}

void td_ref_round_factors(const td_node *n, void *const *a, int64_t at, void **out)
{
    const int n_tensors = n->n_in + n->n_out;
    memcpy(out, a, (size_t)(n_tensors + 1) * sizeof *out);
    for (int i = 0; i < 2 && td_is_tf32(n); i++) {
        const double *from = a[i];
        double *to = (double *)a[n_tensors] + at;
        const int64_t count = td_type_count(td_in_type(n, i));
        for (int64_t k = 0; k < count; k++)
            to[k] = (double)td_f32_round_tf32((float)from[k]);
        out[i] = to;
        at += count;
    }
}

/* --- fully connected layers ------------------------------------------------------------------- */

static void linear(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    td_ref_round_factors(n, given, 0, a);
    const int64_t N = td_in_type(n, 0)->dim[0], C = td_in_type(n, 0)->dim[1];
    const int64_t K = td_in_type(n, 1)->dim[0];
    const double *bias = n->n_in > 2 ? a[2] : NULL;
    double *x = a[0], *w = a[1], *y = a[n->n_in];
    for (int64_t i = 0; i < N * K; i++)
        y[i] = bias ? bias[i % K] : 0;
    td_ref_multiply(N, K, C, (td_ref_matrix){ x, C, 1 }, (td_ref_matrix){ w, 1, C },
                    (td_ref_matrix){ y, K, 1 });
}

static void linear_fused(const td_node *n, void *const *a)
{
    const int64_t count = td_type_count(&n->out[0]->type);
    const double *residual = n->n_in > 3 ? a[3] : NULL;
    double *y = a[n->n_in];
    linear(n, a);
    for (int64_t i = 0; ((const td_linear_fused_attr *)n->attr)->gelu && i < count; i++)
        y[i] *= (1 + erf(y[i] / sqrt(2))) / 2;
    for (int64_t i = 0; residual && i < count; i++)
        y[i] += residual[i];
}

static void linear_grad_x(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    td_ref_round_factors(n, given, 0, a);
    const int64_t N = td_in_type(n, 0)->dim[0], K = td_in_type(n, 0)->dim[1];
    const int64_t C = td_in_type(n, 1)->dim[1];
    double *dy = a[0], *w = a[1], *dx = a[2];
    memset(dx, 0, (size_t)(N * C) * sizeof *dx);
    td_ref_multiply(N, C, K, (td_ref_matrix){ dy, K, 1 }, (td_ref_matrix){ w, C, 1 },
                    (td_ref_matrix){ dx, C, 1 });
}

static void linear_grad_w(const td_node *n, void *const *given)
{
    void *a[TD_IN_MAX + TD_OUT_MAX + 1];
    td_ref_round_factors(n, given, 0, a);
    const int64_t N = td_in_type(n, 0)->dim[0], K = td_in_type(n, 0)->dim[1];
    const int64_t C = td_in_type(n, 1)->dim[1];
    double *dy = a[0], *x = a[1], *dw = a[2];
    memset(dw, 0, (size_t)(K * C) * sizeof *dw);
    td_ref_multiply(K, C, N, (td_ref_matrix){ dy, 1, K }, (td_ref_matrix){ x, C, 1 },
                    (td_ref_matrix){ dw, C, 1 });
}

const td_ref_kernel td_ref_linear = TD_REF_WORK(linear, linear, td_ref_factors_work);
const td_ref_kernel td_ref_linear_fused = TD_REF(linear_fused, linear_fused);
const td_ref_kernel td_ref_linear_grad_x =
    TD_REF_WORK(linear_grad_x, linear_grad_x, td_ref_factors_work);
const td_ref_kernel td_ref_linear_grad_w =
    TD_REF_WORK(linear_grad_w, linear_grad_w, td_ref_factors_work);
