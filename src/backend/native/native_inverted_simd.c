/*
 * native_inverted_simd.c -- the inner loops of inverted residual blocks, for AVX2
 */
#include "backend/native/native_inverted.h"

#include <string.h>

#include "backend/native/native.h"
#include "backend/native/native_block_act.h"
#include "backend/native/native_block_product.h"

#define LANES TD_INVERTED_LANES
#define BLOCK TD_INVERTED_BLOCK
#define DEPTH TD_INVERTED_DEPTH

static int64_t rows_of_e(const td_inverted *v, int64_t rows)
{
    return (rows - 1) * v->stride + v->side;
}

static int64_t size_of_e(const td_inverted *v, int64_t rows)
{
    return rows_of_e(v, rows) * v->columns * BLOCK;
}

static int64_t size_of_d(const td_inverted *v, int64_t rows)
{
    return v->has_projection ? rows * v->Q * DEPTH : 0;
}

/* e, d, and the place in e of every pixel of x */
int64_t td_inverted_scratch(const td_inverted *v, int64_t rows)
{
    return size_of_e(v, rows) + size_of_d(v, rows) + rows_of_e(v, rows) * v->W;
}

#if defined(__x86_64__)
enum { WINDOWS = 4 };

/* --- the expansion ---------------------------------------------------------------------------- */

typedef struct {
    const td_inverted *v;
    int64_t n;          /* pixels */
    const float *x;     /* [n, C] */
    const float *w, *b; /* filter and bias of the channels computed */
    const int32_t *at;  /* [n] places in e */
    float *e;
} expansion;

INLINE void expand_tile(int T, int V, const expansion *s, int64_t i)
{
    const td_inverted *v = s->v;
    const td_block_limits limits = td_block_limits_of(v->act);
    __m256 sum[TD_BLOCK_SUMS];
#pragma GCC unroll 12
    for (int k = 0; k < T * V; k++)
        sum[k] = _mm256_loadu_ps(s->b + k % V * LANES);
    td_block_multiply(T, V, v->C, s->x + i * v->C, v->C, s->w, v->C * LANES, sum);
#pragma GCC unroll 12
    for (int k = 0; k < T * V; k++)
        _mm256_storeu_ps(s->e + s->at[i + k / V] + k % V * LANES, td_block_clip(&limits, sum[k]));
    if (td_block_has_curve(v->act))
        for (int k = 0; k < T * V; k++)
            td_block_curve(v->act, s->e + s->at[i + k / V] + k % V * LANES);
}

/* the last tile overlaps the one before it */
INLINE void expand_pixels(int V, const expansion *s)
{
    const int64_t n = s->n;
    if (n >= 6)
        for (int64_t i = 0; i < n; i += 6)
            expand_tile(6, V, s, i + 6 <= n ? i : n - 6);
    else
        for (int64_t i = 0; i < n; i++)
            expand_tile(1, V, s, i);
}

/* without an expansion: channels of x from `from` on */
INLINE void copy_pixels(int V, const expansion *s, int64_t from)
{
    for (int64_t i = 0; i < s->n; i++)
#pragma GCC unroll 2
        for (int k = 0; k < V; k++)
            _mm256_storeu_ps(s->e + s->at[i] + k * LANES,
                             _mm256_loadu_ps(s->x + i * s->v->C + from + k * LANES));
}

/* fills e with channels [m, m + n), n at most BLOCK */
static TARGET void expand(expansion *s, const td_inverted_in *in, int64_t m, int64_t n)
{
    if (s->v->has_expansion) {
        s->w = in->w1 + m * s->v->C;
        s->b = in->b1 + m;
        if (n > LANES)
            expand_pixels(2, s);
        else
            expand_pixels(1, s);
    } else if (n > LANES) {
        copy_pixels(2, s, m);
    } else {
        copy_pixels(1, s, m);
    }
}

/* --- the depthwise convolution ---------------------------------------------------------------- */

typedef struct {
    const td_inverted *v;
    int64_t rows;       /* rows of d */
    const float *e;     /* one vector of each pixel */
    const float *w, *b; /* filter and bias of the channels computed */
    float *d;
    int64_t next; /* floats from a result to the next */
    float *sums;  /* NULL, or the sum of each row of d, M floats apart */
} filtering;

/* T results from column q of row p on */
INLINE void filter_tile(int T, int side, int stride, const filtering *f, int64_t p, int64_t q)
{
    const int64_t row = f->v->columns * BLOCK;
    const float *e = f->e + p * stride * row + q * stride * BLOCK;
    float *d = f->d + (p * f->v->Q + q) * f->next;
    const td_block_limits limits = td_block_limits_of(f->v->act);
    __m256 sum[WINDOWS];
#pragma GCC unroll 4
    for (int i = 0; i < T; i++)
        sum[i] = _mm256_loadu_ps(f->b);
#pragma GCC unroll 5
    for (int r = 0; r < side; r++, e += row) {
        __m256 x[(WINDOWS - 1) * 2 + 5];
#pragma GCC unroll 11
        for (int i = 0; i < (T - 1) * stride + side; i++)
            x[i] = _mm256_loadu_ps(e + i * BLOCK);
#pragma GCC unroll 5
        for (int t = 0; t < side; t++) {
            const __m256 w = _mm256_loadu_ps(f->w + (r * side + t) * LANES);
#pragma GCC unroll 4
            for (int i = 0; i < T; i++)
                sum[i] = _mm256_fmadd_ps(w, x[i * stride + t], sum[i]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < T; i++)
        _mm256_storeu_ps(d + i * f->next, td_block_clip(&limits, sum[i]));
}

/* row p of d, after its tiles */
INLINE void finish_row(const filtering *f, int64_t p)
{
    const bool has_curve = td_block_has_curve(f->v->act);
    __m256 sum = _mm256_setzero_ps();
    for (int64_t q = 0; q < f->v->Q; q++) {
        float *d = f->d + (p * f->v->Q + q) * f->next;
        if (has_curve)
            td_block_curve(f->v->act, d);
        sum = _mm256_add_ps(sum, _mm256_loadu_ps(d));
    }
    if (f->sums)
        _mm256_storeu_ps(f->sums + p * f->v->M, sum);
}

/* the last tile of a row overlaps the one before it */
INLINE void filter_rows(int side, int stride, const filtering *f)
{
    const int64_t Q = f->v->Q;
    for (int64_t p = 0; p < f->rows; p++) {
        if (Q >= WINDOWS)
            for (int64_t q = 0; q < Q; q += WINDOWS)
                filter_tile(WINDOWS, side, stride, f, p, q + WINDOWS <= Q ? q : Q - WINDOWS);
        else
            for (int64_t q = 0; q < Q; q++)
                filter_tile(1, side, stride, f, p, q);
        if (td_block_has_curve(f->v->act) || f->sums)
            finish_row(f, p);
    }
}

static TARGET void filter(const filtering *f)
{
    if (f->v->side == 3 && f->v->stride == 1)
        filter_rows(3, 1, f);
    else if (f->v->side == 3)
        filter_rows(3, 2, f);
    else if (f->v->stride == 1)
        filter_rows(5, 1, f);
    else
        filter_rows(5, 2, f);
}

/* --- a job ------------------------------------------------------------------------------------ */

/* the rows of x that a job reads */
typedef struct {
    int64_t first; /* row of x that is row 0 of e, may be negative */
    int64_t from, to;
} input_rows;

static input_rows rows_read(const td_inverted *v, const td_inverted_job *j)
{
    input_rows r = { .first = j->p_from * v->stride - v->pad };
    const int64_t end = r.first + rows_of_e(v, j->p_to - j->p_from);
    r.from = r.first < 0 ? 0 : r.first;
    r.to = end < v->H ? end : v->H;
    if (r.to < r.from)
        r.to = r.from;
    return r;
}

static void places(const td_inverted *v, const input_rows *r, int32_t *at)
{
    for (int64_t h = r->from; h < r->to; h++)
        for (int64_t w = 0; w < v->W; w++)
            *at++ = (int32_t)(((h - r->first) * v->columns + w + v->pad) * BLOCK);
}

/* channels [m, m + n) of d, or of y and its rows' sums without a projection */
static TARGET void filter_block(const td_inverted *v, const td_inverted_in *in,
                                const td_inverted_job *j, const float *e, int64_t m, int64_t n,
                                float *d)
{
    const int64_t taps = v->side * v->side;
    for (int64_t k = 0; k < n; k += LANES)
        filter(&(filtering){ .v = v,
                             .rows = j->p_to - j->p_from,
                             .e = e + k,
                             .w = in->w2 + (m + k) * taps,
                             .b = in->b2 + m + k,
                             .d = d + k,
                             .next = v->has_projection ? DEPTH : v->M,
                             .sums = v->has_projection ? NULL : j->sums + m + k });
}

static TARGET void run(const td_inverted *v, const td_inverted_in *in, const td_inverted_job *j)
{
    const int64_t rows = j->p_to - j->p_from;
    const input_rows r = rows_read(v, j);
    float *e = j->scratch, *d = e + size_of_e(v, rows);
    int32_t *at = (int32_t *)(d + size_of_d(v, rows));
    const float *x = in->x + j->n * v->H * v->W * v->C;
    const float *rest = j->adds_rest && v->has_residual ? x + j->p_from * v->Q * v->K : NULL;
    expansion s = {
        .v = v, .n = (r.to - r.from) * v->W, .x = x + r.from * v->W * v->C, .at = at, .e = e
    };
    memset(e, 0, (size_t)size_of_e(v, rows) * sizeof *e);
    places(v, &r, at);
    for (int64_t from = j->m_from; from < j->m_to; from += DEPTH) {
        const int64_t to = from + DEPTH < j->m_to ? from + DEPTH : j->m_to;
        const bool is_first = from == j->m_from;
        for (int64_t m = from; m < to; m += BLOCK) {
            const int64_t n = to - m < BLOCK ? to - m : BLOCK;
            expand(&s, in, m, n);
            filter_block(v, in, j, e, m, n, v->has_projection ? d + m - from : j->y + m);
        }
        if (v->has_projection)
            td_block_project(&(td_block_projection){ .n = rows * v->Q,
                                                     .depth = to - from,
                                                     .row = DEPTH,
                                                     .M = v->M,
                                                     .K = v->K,
                                                     .d = d,
                                                     .w = in->w3 + from * LANES,
                                                     .b = j->adds_rest ? in->b3 : NULL,
                                                     .rest = is_first ? rest : NULL,
                                                     .is_first = is_first,
                                                     .y = j->y });
    }
}

td_inverted_loops *td_inverted_loops_here(void)
{
    if (!td_native_has_avx2())
        return NULL;
    return run;
}
#else
td_inverted_loops *td_inverted_loops_here(void)
{
    return NULL;
}
#endif
