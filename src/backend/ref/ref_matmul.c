/*
 * ref_matmul.c -- products of batches of matrices, and attention
 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"

/* the offset of the matrix of t that takes part in matrix `at` of y */
static int64_t matrix_at(const td_type *t, const td_type *y, int64_t at)
{
    int64_t offset = 0, step = t->dim[t->rank - 2] * t->dim[t->rank - 1];
    for (int d = y->rank - 3; d >= 0; d--) {
        const int k = d - (y->rank - t->rank);
        const int64_t i = at % y->dim[d];
        at /= y->dim[d];
        if (k < 0)
            continue;
        offset += t->dim[k] == 1 ? 0 : i * step;
        step *= t->dim[k];
    }
    return offset;
}

static td_ref_matrix matrix(double *data, const td_type *t, bool is_transposed)
{
    const int64_t columns = t->dim[t->rank - 1];
    return (td_ref_matrix){ data, is_transposed ? 1 : columns, is_transposed ? columns : 1 };
}

static void matmul(const td_node *n, void *const *a)
{
    const td_matmul_attr *at = n->attr;
    const td_matmul_sizes s = td_matmul_sizes_of(n);
    const td_type *x = td_in_type(n, 0), *y = td_in_type(n, 1), *z = &n->out[0]->type;
    const double *bias = n->n_in > 2 ? a[2] : NULL;
    double *to = a[n->n_in];
    const int64_t count = td_type_count(z);
    for (int64_t i = 0; i < count; i++)
        to[i] = bias ? bias[i % s.n] : 0;
    for (int64_t i = 0; i < count / (s.m * s.n); i++)
        td_ref_multiply(s.m, s.n, s.k,
                        matrix((double *)a[0] + matrix_at(x, z, i), x, at->transpose_a),
                        matrix((double *)a[1] + matrix_at(y, z, i), y, at->transpose_b),
                        (td_ref_matrix){ to + i * s.m * s.n, s.n, 1 });
}

/* softmax of each of `rows` rows of x, times `scale` */
static void softmax_rows(int64_t rows, double scale, double *x)
{
    for (int64_t i = 0; i < rows; i++) {
        double *row = x + i * rows, most = scale * row[0], sum = 0;
        for (int64_t k = 1; k < rows; k++)
            most = fmax(most, scale * row[k]);
        for (int64_t k = 0; k < rows; k++)
            sum += row[k] = exp(scale * row[k] - most);
        for (int64_t k = 0; k < rows; k++)
            row[k] /= sum;
    }
}

static void attention(const td_node *n, void *const *a)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    const double scale = ((const td_attention_attr *)n->attr)->scale;
    double *share = a[2];
    memset(a[1], 0, (size_t)(s.N * s.T * s.E) * sizeof(double));
    for (int64_t i = 0; i < s.N * s.heads; i++) {
        double *q = (double *)a[0] + i / s.heads * s.T * 3 * s.E + i % s.heads * s.D;
        double *y = (double *)a[1] + i / s.heads * s.T * s.E + i % s.heads * s.D;
        memset(share, 0, (size_t)(s.T * s.T) * sizeof *share);
        td_ref_multiply(s.T, s.T, s.D, (td_ref_matrix){ q, 3 * s.E, 1 },
                        (td_ref_matrix){ q + s.E, 1, 3 * s.E }, (td_ref_matrix){ share, s.T, 1 });
        softmax_rows(s.T, scale, share);
        td_ref_multiply(s.T, s.D, s.T, (td_ref_matrix){ share, s.T, 1 },
                        (td_ref_matrix){ q + 2 * s.E, 3 * s.E, 1 }, (td_ref_matrix){ y, s.E, 1 });
    }
}

static int64_t attention_work(const td_node *n)
{
    const td_attention_sizes s = td_attention_sizes_of(n);
    return s.T * s.T;
}

const td_ref_kernel td_ref_attention = TD_REF_WORK(attention, attention, attention_work);
const td_ref_kernel td_ref_matmul = TD_REF(matmul, matmul);
