/*
 * ref_matmul.c -- products of batches of matrices
 */
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

const td_ref_kernel td_ref_matmul = TD_REF(matmul, matmul);
