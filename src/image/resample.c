/*
 * image/resample.c -- antialiased resizing, bit-equal to PIL
 *
 * A separable filter in two passes.  For each output column (then row) the filter is centred on its
 * position in the source, widened by the reduction so that shrinking averages pixels, and its
 * weights are normalised in double and rounded to fixed point:
 *
 *     out = (2^21 + sum of in[x] * k[x]) >> 22, clipped to a byte       k = round(weight * 2^22)
 *
 * The horizontal pass runs first, only over the rows that the vertical pass will read, and rounds
 * to bytes; the results are the same integers as PIL's, on any processor.
 *
 * The passes exist twice: in plain C, and for AVX2, where the weights are split into an upper part
 * of 16 bits and a lower one of 8, so that one instruction multiplies and adds two taps:
 *
 *     k = 256 * high + low        sum in[x] * k[x] = 256 * (sum in * high) + (sum in * low)
 *
 * Source: Pillow 9 .. 12, src/libImaging/Resample.c (precompute_coeffs, ImagingResampleInner).
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/isa.h"
#include "image/image.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* a fused multiply-add would change some borders */
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define TD_RESAMPLE_AVX2 1
#include <immintrin.h>
#else
#define TD_RESAMPLE_AVX2 0
#endif

enum { PRECISION_BITS = 32 - 8 - 2, HALF = 1 << (PRECISION_BITS - 1), OVERREAD = 16 };

/* --- the weights ------------------------------------------------------------------------------ */

/* One axis: for output i, taps first[i] .. first[i] + n[i] - 1 with weights k[i * n_max ...]. */
typedef struct {
    int in_len, out_len;
    float from, to;
    td_filter filter;

    int n_max;
    int *first;   /* [out_len] */
    int *n;       /* [out_len] */
    int32_t *k;   /* [out_len, n_max], zero after n[i] */
    int16_t *cut; /* [out_len, n_max / 4, (4 high parts, 4 low parts)] of k */
    double *real; /* [n_max], scratch */
    size_t cap_first, cap_n, cap_k, cap_cut, cap_real;
} axis;

/* Along x, n rows; and along y, row i of the output. */
typedef struct {
    void (*rows)(const axis *, const uint8_t *src, size_t src_row, int n, uint8_t *dst,
                 size_t dst_row);
    void (*columns)(const axis *, int i, const uint8_t *src, size_t stride, size_t len,
                    uint8_t *dst);
} passes;

typedef struct {
    axis x, y;
    passes passes;
    uint8_t *between; /* result of the first pass: [rows of the second, row_bytes(out_width)] */
    size_t cap_between;
} resampler;

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static int32_t to_fixed(double w)
{
    return (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << PRECISION_BITS));
}

/* The weights of output i; the arithmetic is PIL's, operation by operation. */
static void weigh(axis *a, int i, double scale, double filter_scale, double support)
{
    double (*filter)(double) = a->filter == TD_BICUBIC ? bicubic : bilinear;
    double center = (double)a->from + (i + 0.5) * scale;
    double inverse = 1.0 / filter_scale, sum = 0.0;
    int first = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
    first = first < 0 ? 0 : first;
    end = end > a->in_len ? a->in_len : end;

    int n = end - first;
    for (int t = 0; t < n; t++) {
        a->real[t] = filter((t + first - center + 0.5) * inverse);
        sum += a->real[t];
    }
    int32_t *k = a->k + (size_t)i * (size_t)a->n_max;
    for (int t = 0; t < n; t++)
        k[t] = to_fixed(sum != 0.0 ? a->real[t] / sum : a->real[t]);
    for (int t = n; t < a->n_max; t++)
        k[t] = 0;
    a->first[i] = first;
    a->n[i] = n;
}

/* Computes the axis's tables, unless the last call computed the same ones. */
static td_status axis_prepare(axis *a, int in_len, float from, float to, int out_len,
                              td_filter filter)
{
    if (a->in_len == in_len && a->out_len == out_len && a->from == from && a->to == to &&
        a->filter == filter)
        return TD_OK;
    a->out_len = 0; /* not valid until the end */

    double scale = (double)(to - from) / out_len;
    double filter_scale = scale < 1.0 ? 1.0 : scale;
    double support = (filter == TD_BICUBIC ? 2.0 : 1.0) * filter_scale;
    int n_max = (int)td_round_up((size_t)ceil(support) * 2 + 1, 4);
    size_t n = (size_t)out_len, n_k = n * (size_t)n_max;
    TD_TRY(td_reserve(&a->first, &a->cap_first, n, sizeof *a->first));
    TD_TRY(td_reserve(&a->n, &a->cap_n, n, sizeof *a->n));
    TD_TRY(td_reserve(&a->k, &a->cap_k, n_k, sizeof *a->k));
    TD_TRY(td_reserve(&a->cut, &a->cap_cut, 2 * n_k, sizeof *a->cut));
    TD_TRY(td_reserve(&a->real, &a->cap_real, (size_t)n_max, sizeof *a->real));

    a->in_len = in_len;
    a->from = from;
    a->to = to;
    a->filter = filter;
    a->n_max = n_max;
    for (int i = 0; i < out_len; i++)
        weigh(a, i, scale, filter_scale, support);
    for (size_t i = 0; i < n_k; i++) {
        a->cut[2 * i - i % 4] = (int16_t)(a->k[i] >> 8);
        a->cut[2 * i - i % 4 + 4] = (int16_t)(a->k[i] & 255);
    }
    a->out_len = out_len;
    return TD_OK;
}

static void axis_release(axis *a)
{
    td_free(a->first);
    td_free(a->n);
    td_free(a->k);
    td_free(a->cut);
    td_free(a->real);
}

void td_resampler_release(td_resampler *r)
{
    resampler *impl = r->impl;
    if (impl) {
        axis_release(&impl->x);
        axis_release(&impl->y);
        td_free(impl->between);
        td_free(impl);
    }
    r->impl = NULL;
}

/* --- the passes, in plain C ------------------------------------------------------------------- */

static uint8_t clip8(int32_t sum)
{
    int32_t v = sum >> PRECISION_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* One row: src [in_len, 3] -> dst [out_len, 3]. */
static void row_plain(const axis *a, const uint8_t *src, uint8_t *dst)
{
    for (int i = 0; i < a->out_len; i++, dst += 3) {
        const int32_t *k = a->k + (size_t)i * (size_t)a->n_max;
        const uint8_t *p = src + 3 * (size_t)a->first[i];
        int32_t sum[3] = { HALF, HALF, HALF };
        for (int t = 0; t < a->n[i]; t++, p += 3) {
            for (int c = 0; c < 3; c++)
                sum[c] += p[c] * k[t];
        }
        for (int c = 0; c < 3; c++)
            dst[c] = clip8(sum[c]);
    }
}

static void rows_plain(const axis *a, const uint8_t *src, size_t src_row, int n, uint8_t *dst,
                       size_t dst_row)
{
    for (int y = 0; y < n; y++)
        row_plain(a, src + (size_t)y * src_row, dst + (size_t)y * dst_row);
}

/* Output bytes from .. len - 1 of one row, from n source rows that are `stride` bytes apart. */
static void column_plain(const int32_t *k, int n, const uint8_t *src, size_t stride, size_t from,
                         size_t len, uint8_t *dst)
{
    for (size_t x = from; x < len; x++) {
        int32_t sum = HALF;
        for (int t = 0; t < n; t++)
            sum += src[(size_t)t * stride + x] * k[t];
        dst[x] = clip8(sum);
    }
}

static void columns_plain(const axis *a, int i, const uint8_t *src, size_t stride, size_t len,
                          uint8_t *dst)
{
    column_plain(a->k + (size_t)i * (size_t)a->n_max, a->n[i], src, stride, 0, len, dst);
}

/* --- the passes, with AVX2 -------------------------------------------------------------------- */

#if TD_RESAMPLE_AVX2

#define TD_AVX2 __attribute__((target("avx2")))

/* Two weights, four copies of each pair. */
TD_AVX2 static inline __m256i pair(const int16_t *k)
{
    int32_t both;
    memcpy(&both, k, sizeof both);
    return _mm256_set1_epi32(both);
}

/* Sums of high and of low parts -> eight results in 32-bit lanes. */
TD_AVX2 static inline __m256i join(__m256i high, __m256i low)
{
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), PRECISION_BITS);
}

/*
 * Two rows at a time, one in each half of a register.  Four pixels are loaded (and four bytes
 * more), spread to 16 bits as r0 r1 g0 g1 b0 b1 - - and r2 r3 g2 g3 b2 b3 - -, and multiplied with
 * two weights each.  Reads up to OVERREAD bytes past a row, writes one.
 */
TD_AVX2 static void two_rows_avx2(const axis *a, const uint8_t *src0, const uint8_t *src1,
                                  uint8_t *dst0, uint8_t *dst1)
{
    const __m256i first =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 0, -1, 3, -1, 1,
                         -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m256i second =
        _mm256_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1, 6, -1, 9, -1,
                         7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
    for (int i = 0; i < a->out_len; i++, dst0 += 3, dst1 += 3) {
        const int16_t *k = a->cut + 2 * (size_t)i * (size_t)a->n_max;
        size_t at = 3 * (size_t)a->first[i];
        __m256i high = _mm256_setzero_si256(), low = high;
        for (int t = 0; t < a->n[i]; t += 4, k += 8, at += 12) {
            __m128i p0 = _mm_loadu_si128((const __m128i *)(const void *)(src0 + at));
            __m128i p1 = _mm_loadu_si128((const __m128i *)(const void *)(src1 + at));
            __m256i p = _mm256_inserti128_si256(_mm256_castsi128_si256(p0), p1, 1);
            __m256i u = _mm256_shuffle_epi8(p, first), v = _mm256_shuffle_epi8(p, second);
            high = _mm256_add_epi32(high, _mm256_madd_epi16(u, pair(k)));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(v, pair(k + 2)));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(u, pair(k + 4)));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(v, pair(k + 6)));
        }
        __m256i sum = join(high, low);
        sum = _mm256_packus_epi16(_mm256_packs_epi32(sum, sum), sum);
        int32_t out0 = _mm256_extract_epi32(sum, 0), out1 = _mm256_extract_epi32(sum, 4);
        memcpy(dst0, &out0, 4);
        memcpy(dst1, &out1, 4);
    }
}

static void rows_avx2(const axis *a, const uint8_t *src, size_t src_row, int n, uint8_t *dst,
                      size_t dst_row)
{
    int y = 0;
    for (; y + 2 <= n; y += 2, src += 2 * src_row, dst += 2 * dst_row)
        two_rows_avx2(a, src, src + src_row, dst, dst + dst_row);
    if (y < n)
        row_plain(a, src, dst);
}

/* 32 bytes at a time; two source rows are interleaved, so that a pair of taps is adjacent. */
TD_AVX2 static void columns_avx2(const axis *a, int i, const uint8_t *src, size_t stride,
                                 size_t len, uint8_t *dst)
{
    const int16_t *cut = a->cut + 2 * (size_t)i * (size_t)a->n_max;
    const __m256i zero = _mm256_setzero_si256();
    int n = a->n[i];
    size_t x = 0;
    for (; x + 32 <= len; x += 32) {
        __m256i high[4] = { zero, zero, zero, zero }, low[4] = { zero, zero, zero, zero };
        const uint8_t *p = src + x;
        for (int t = 0; t < n; t += 2, p += 2 * stride) {
            const int16_t *k = cut + 2 * (t - t % 4) + t % 4;
            __m256i kh = pair(k), kl = pair(k + 4);
            __m256i q0 = _mm256_loadu_si256((const __m256i *)(const void *)p), q1 = zero;
            if (t + 1 < n)
                q1 = _mm256_loadu_si256((const __m256i *)(const void *)(p + stride));
            __m256i u = _mm256_unpacklo_epi8(q0, q1), v = _mm256_unpackhi_epi8(q0, q1);
            __m256i w[4] = { _mm256_unpacklo_epi8(u, zero), _mm256_unpackhi_epi8(u, zero),
                             _mm256_unpacklo_epi8(v, zero), _mm256_unpackhi_epi8(v, zero) };
            for (int j = 0; j < 4; j++) {
                high[j] = _mm256_add_epi32(high[j], _mm256_madd_epi16(w[j], kh));
                low[j] = _mm256_add_epi32(low[j], _mm256_madd_epi16(w[j], kl));
            }
        }
        __m256i left = _mm256_packs_epi32(join(high[0], low[0]), join(high[1], low[1]));
        __m256i right = _mm256_packs_epi32(join(high[2], low[2]), join(high[3], low[3]));
        _mm256_storeu_si256((__m256i *)(void *)(dst + x), _mm256_packus_epi16(left, right));
    }
    column_plain(a->k + (size_t)i * (size_t)a->n_max, n, src, stride, x, len, dst);
}

#endif

/* The AVX2 passes read past the end of src, which td_image_resize_buffer's padding allows. */
static passes choose_passes(const td_image *src)
{
#if TD_RESAMPLE_AVX2
    size_t room = src->cap_bytes - 3 * (size_t)src->width * (size_t)src->height;
    if (room >= OVERREAD && td_isa_has(TD_ISA_AVX2))
        return (passes){ rows_avx2, columns_avx2 };
#endif
    (void)src;
    return (passes){ rows_plain, columns_plain };
}

/* --- both ------------------------------------------------------------------------------------- */

static td_status check_arguments(const td_image *src, double x, double y, double w, double h,
                                 int out_width, int out_height)
{
    if (out_width < 1 || out_height < 1)
        return td_error(TD_EARG, "resample to %d x %d pixels", out_width, out_height);
    if (!(x >= 0 && y >= 0 && w > 0 && h > 0 && x + w <= src->width && y + h <= src->height))
        return td_error(TD_EARG, "resample box %g x %g at (%g, %g) exceeds the image of %d x %d", w,
                        h, x, y, src->width, src->height);
    return TD_OK;
}

static bool is_identity(const axis *a)
{
    return a->in_len == a->out_len && a->from == 0 && a->to == (float)a->out_len;
}

/* Row stride of the intermediate image, in bytes: at least one byte more than its pixels. */
static size_t row_bytes(int width)
{
    return td_round_up(3 * (size_t)width + 1, 64);
}

static void vertical(const resampler *r, const uint8_t *src, size_t stride, td_image *out)
{
    size_t row = 3 * (size_t)out->width;
    int top = r->y.first[0];
    for (int y = 0; y < out->height; y++)
        r->passes.columns(&r->y, y, src + (size_t)(r->y.first[y] - top) * stride, stride, row,
                          out->px + (size_t)y * row);
}

/* Resamples the rows that the vertical pass will read along x, into r->between. */
static td_status horizontal(resampler *r, const td_image *src)
{
    int last = r->y.out_len - 1, top = r->y.first[0];
    int n = r->y.first[last] + r->y.n[last] - top;
    size_t src_row = 3 * (size_t)src->width, row = row_bytes(r->x.out_len);
    TD_TRY(td_reserve(&r->between, &r->cap_between, (size_t)n * row, 1));
    r->passes.rows(&r->x, src->px + (size_t)top * src_row, src_row, n, r->between, row);
    return TD_OK;
}

td_status td_image_resample(td_resampler *handle, const td_image *src, double box_x, double box_y,
                            double box_width, double box_height, td_filter filter, int out_width,
                            int out_height, td_image *out)
{
    TD_TRY(check_arguments(src, box_x, box_y, box_width, box_height, out_width, out_height));
    if (!handle->impl)
        handle->impl = TD_NEW(resampler);
    resampler *r = handle->impl;
    if (!r)
        return TD_ENOMEM;
    TD_TRY(axis_prepare(&r->x, src->width, (float)box_x, (float)(box_x + box_width), out_width,
                        filter));
    TD_TRY(axis_prepare(&r->y, src->height, (float)box_y, (float)(box_y + box_height), out_height,
                        filter));

    r->passes = choose_passes(src);
    if (is_identity(&r->x) && is_identity(&r->y))
        return td_image_crop(src, (td_box){ .width = out_width, .height = out_height }, out);
    TD_TRY(td_image_resize_buffer(out, out_width, out_height));
    if (is_identity(&r->x)) {
        size_t row = 3 * (size_t)src->width;
        vertical(r, src->px + (size_t)r->y.first[0] * row, row, out);
        return TD_OK;
    }
    TD_TRY(horizontal(r, src));
    vertical(r, r->between, row_bytes(out_width), out);
    return TD_OK;
}
