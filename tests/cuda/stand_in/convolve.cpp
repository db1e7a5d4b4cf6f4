/*
 * convolve.cpp -- convolutions of an image's group as products of matrices
 *
 *   cols [pq, rsc]    what each result reads, 0 outside of the image
 *
 *   FORWARD           y [pq, filters] += cols [pq, rsc] w^T [rsc, filters]
 *   DATA_GRADIENT     cols [pq, rsc] += y [pq, filters] w [filters, rsc]; then added to x
 *   FILTER_GRADIENT   w [filters, rsc] += y^T [filters, pq] cols [pq, rsc]
 *
 * Rows of all matrices are padded with zeros to whole vectors.
 */
#include "convolve.h"

#include <algorithm>

#include "elements.h"

namespace
{

using namespace stand_in;

enum { LANES = 16, TOGETHER = 4 }; /* 16: a vector of AVX-512, and a line of the caches */

struct matrix {
    int64_t rows, columns, step; /* of columns, those used; step: from row to row */
    std::vector<float> memory;
    float *v; /* aligned to LANES elements */

    matrix(int64_t n_rows, int64_t n_columns)
        : rows(n_rows), columns(n_columns), step((n_columns + LANES - 1) / LANES * LANES),
          memory(static_cast<size_t>(rows * step + LANES))
    {
        const auto at = reinterpret_cast<uintptr_t>(memory.data()) / sizeof(float);
        v = memory.data() + (LANES - at % LANES) % LANES;
    }

    matrix(const matrix &) = delete;
    matrix &operator=(const matrix &) = delete;

    float *row(int64_t i) const
    {
        return v + i * step;
    }
};

/* a factor, or its transpose */
struct factor {
    const float *v;
    int64_t row, column; /* steps */
};

struct range {
    int64_t from, end;
};

/* to rows i of a product, what rows k of the right factor contribute */
FAST void add_rows(const factor &left, matrix &right, range is, range ks, matrix &to)
{
    const int64_t n = to.step / LANES * LANES; /* no rest */
    for (int64_t i = is.from; i < is.end; i++) {
        const float *by = left.v + i * left.row + ks.from * left.column;
        float *__restrict sum = to.row(i);
        int64_t k = ks.from;
        for (; k + TOGETHER <= ks.end; k += TOGETHER, by += TOGETHER * left.column) {
            const float b0 = by[0], b1 = by[left.column], b2 = by[2 * left.column],
                        b3 = by[3 * left.column];
            const float *__restrict r0 = right.row(k), *__restrict r1 = r0 + n,
                                    *__restrict r2 = r1 + n, *__restrict r3 = r2 + n;
            for (int64_t j = 0; j < n; j++)
                sum[j] += (b0 * r0[j] + b1 * r1[j]) + (b2 * r2[j] + b3 * r3[j]);
        }
        for (; k < ks.end; k++, by += left.column) {
            const float *__restrict r = right.row(k);
            for (int64_t j = 0; j < n; j++)
                sum[j] += *by * r[j];
        }
    }
}

/* to += left right; few rows at a time, which remain in the caches */
void add_product(const factor &left, matrix &right, matrix &to)
{
    const int64_t tall = 64, wide = 16;
    for (int64_t i = 0; i < to.rows; i += tall)
        for (int64_t k = 0; k < right.rows; k += wide)
            add_rows(left, right, { i, std::min(i + tall, to.rows) },
                     { k, std::min(k + wide, right.rows) }, to);
}

factor plain(const matrix &m)
{
    return { m.v, m.step, 1 };
}

factor transposed(const matrix &m)
{
    return { m.v, 1, m.step };
}

/* copies between rows of cols and the channels of a group that begin at x; back, they are added */
template <typename F> void for_windows(const sizes &z, float *x, matrix &cols, F copy)
{
    for (int64_t i = 0; i < cols.rows; i++)
        for (int64_t rs = 0; rs < z.r * z.s; rs++) {
            const int64_t h = i / z.q * z.stride[0] - z.before[0] + rs / z.s * z.dilation[0];
            const int64_t w = i % z.q * z.stride[1] - z.before[1] + rs % z.s * z.dilation[1];
            if (h >= 0 && h < z.h && w >= 0 && w < z.w)
                copy(cols.row(i) + rs * z.c, x + (h * z.w + w) * z.groups * z.c);
        }
}

/* between rows of m and arrays `step` apart */
template <typename F> void for_rows(matrix &m, float *p, int64_t step, F f)
{
    for (int64_t i = 0; i < m.rows; i++)
        for (int64_t j = 0; j < m.columns; j++)
            f(m.row(i)[j], p[i * step + j]);
}

/* group g of an image; w is all of the filters, and has the group's in rows */
void convolve_group(kind what, const sizes &z, float *x, float *w, float *y)
{
    const int64_t rsc = z.r * z.s * z.c, c = z.c;
    matrix cols(z.p * z.q, rsc), filters(z.filters, rsc), results(z.p * z.q, z.filters);
    const auto load = [](float &of_matrix, float &of_array) { of_matrix = of_array; };
    const auto store = [](float &of_matrix, float &of_array) { of_array = of_matrix; };
    for_rows(filters, w, rsc, load);
    for_rows(results, y, z.groups * z.filters, load);
    if (what != DATA_GRADIENT)
        for_windows(z, x, cols, [c](float *to, float *from) { std::copy(from, from + c, to); });

    if (what == FORWARD) {
        matrix turned(rsc, z.filters);
        for (int64_t k = 0; k < rsc; k++)
            for (int64_t f = 0; f < z.filters; f++)
                turned.row(k)[f] = filters.row(f)[k];
        add_product(plain(cols), turned, results);
        for_rows(results, y, z.groups * z.filters, store);
    } else if (what == FILTER_GRADIENT) {
        add_product(transposed(results), cols, filters);
        for_rows(filters, w, rsc, store);
    } else {
        add_product(plain(results), filters, cols);
        for_windows(z, x, cols, [c](float *from, float *to) {
            for (int64_t i = 0; i < c; i++)
                to[i] += from[i];
        });
    }
}

} // namespace

void stand_in::convolve(kind what, const sizes &z, float *x, float *w, float *y)
{
    for (int64_t n = 0; n < z.n; n++)
        for (int64_t g = 0; g < z.groups; g++)
            convolve_group(what, z, x + n * z.h * z.w * z.groups * z.c + g * z.c,
                           w + g * z.filters * z.r * z.s * z.c,
                           y + n * z.p * z.q * z.groups * z.filters + g * z.filters);
}
