/*
 * ref_linear.c -- the matrix product all reference kernels share, and fully connected layers
 *
 * c is cut into tiles of 64 rows and 8 columns, one job each.  For 256 steps of k at a time, a job
 * copies its 8 columns of b side by side, and runs down its rows four or eight at a time with 4 x 8
 * or 8 x 8 sums in registers:
 *
 *            8 columns                     a [4 rows, k]  .  b [k, 8]  ->  sums [4, 8]
 *      k  +--+--+--+--+--+--+--+--+
 *         |  |  |  |  |  |  |  |  |        columns past the edge are zeros and are not written back
 *         +--+--+--+--+--+--+--+--+
 *
 * With AVX2 and AVX-512 the loop uses vectors, with separate multiplications and additions, so that
 * it gives the same bits as the plain loop.
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/half.h"
#include "base/isa.h"

#define MAX_ROWS      8
#define COLS          8
#define TILE_ROWS     64
#define WORTH_SHARING 100000 /* multiplications; with fewer a second thread costs time */
#define STEPS         256    /* 256 x 8 doubles of b: a third of an L1 cache */

/* c [rows <= 8, cols <= 8] += a [rows, k] b [k, 8]; rows past the edge repeat row 0 */
typedef struct {
    int64_t rows, cols, k;
    const double *row[MAX_ROWS]; /* rows of matrix a */
    int64_t a_col;
    const double *b;
    td_ref_matrix c;
} product;

typedef void add_function(const product *p);

static inline void add_sums(const product *p, const double sum[][COLS])
{
    for (int64_t i = 0; i < p->rows; i++) {
        double *c = p->c.data + i * p->c.row;
        if (p->c.col == 1 && p->cols == COLS)
            for (int64_t j = 0; j < COLS; j++)
                c[j] += sum[i][j];
        else
            for (int64_t j = 0; j < p->cols; j++)
                c[j * p->c.col] += sum[i][j];
    }
}

static void add_product(const product *p)
{
    enum { ROWS = 4 };
    double sum[ROWS][COLS] = { { 0 } };
    for (int64_t l = 0; l < p->k; l++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++)
                sum[i][j] += p->row[i][l * p->a_col] * p->b[l * COLS + j];
    add_sums(p, sum);
}

#if defined(__x86_64__)
/* add_product() with VECTOR, of which COLS columns need n.  Unrolled: the sums are in registers
   only then.  The same bits as those of add_product(). */
#define ADD_PRODUCT(name, isa, vector, n, n_rows)                                                  \
    __attribute__((target(isa))) static void name(const product *p)                                \
    {                                                                                              \
        const double *row[n_rows];                                                                 \
        vector sum[n_rows][n] = { { { 0 } } };                                                     \
        memcpy(row, p->row, sizeof row);                                                           \
        for (int64_t l = 0, at = 0; l < p->k; l++, at += p->a_col) {                               \
            const vector *b = (const vector *)(p->b + l * COLS);                                   \
            UNROLL for (int i = 0; i < n_rows; i++) UNROLL for (int j = 0; j < n; j++)             \
                sum[i][j] += row[i][at] * b[j];                                                    \
        }                                                                                          \
        double sums[n_rows][COLS];                                                                 \
        memcpy(sums, sum, sizeof sums);                                                            \
        add_sums(p, sums);                                                                         \
    }
#define UNROLL _Pragma("GCC unroll 8")

typedef double four __attribute__((vector_size(32), aligned(8), may_alias));
typedef double eight __attribute__((vector_size(64), aligned(8), may_alias));

ADD_PRODUCT(add_product_avx2, "avx2", four, 2, 4)
ADD_PRODUCT(add_product_avx512, "avx512f", eight, 1, 8)

/* the widest function that the process may use; eight rows are for more than four */
static add_function *choose(int64_t rows, int64_t *has)
{
    const bool is_wide = rows > 4 && td_isa_has(TD_ISA_AVX512);
    *has = is_wide ? 8 : 4;
    if (is_wide)
        return add_product_avx512;
    return td_isa_has(TD_ISA_AVX2) ? add_product_avx2 : add_product;
}
#else
static add_function *choose(int64_t rows, int64_t *has)
{
    (void)rows;
    *has = 4;
    return add_product;
}
#endif

/* to [steps, 8] = the columns of b from step `from` on; those past the edge are zeros */
static void copy_panel(int64_t cols, int64_t steps, td_ref_matrix b, double *to)
{
    if (cols < COLS)
        memset(to, 0, (size_t)(steps * COLS) * sizeof *to);
    for (int64_t l = 0; l < steps; l++, to += COLS, b.data += b.row)
        if (b.col == 1 && cols == COLS)
            memcpy(to, b.data, COLS * sizeof *to);
        else
            for (int64_t j = 0; j < cols; j++)
                to[j] = b.data[j * b.col];
}

static void add_tile(int64_t rows, int64_t cols, int64_t k, td_ref_matrix a, td_ref_matrix b,
                     td_ref_matrix c)
{
    double panel[STEPS * COLS];
    for (int64_t from = 0; from < k; from += STEPS) {
        product p = { .cols = cols, .k = k - from < STEPS ? k - from : STEPS, .b = panel };
        const td_ref_matrix bf = { b.data + from * b.row, b.row, b.col };
        copy_panel(cols, p.k, bf, panel);
        p.a_col = a.col;
        for (int64_t i = 0, each; i < rows; i += each) {
            add_function *const add = choose(rows - i, &each);
            p.rows = rows - i < each ? rows - i : each;
            for (int64_t r = 0; r < each; r++)
                p.row[r] = a.data + (i + (r < p.rows ? r : 0)) * a.row + from * a.col;
            p.c = (td_ref_matrix){ c.data + i * c.row, c.row, c.col };
            add(&p);
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
