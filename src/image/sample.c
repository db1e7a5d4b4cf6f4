/*
 * image/sample.c -- resizing without antialiasing
 *
 *     linear, cubic     output i is at (i + 1/2) scale - 1/2, between two or four pixels
 *     TensorFlow 1's    output i is at i scale, between that pixel and the next
 *     PyTorch's         as linear, but not before the first pixel, and without rounding
 *
 * The image's last pixel is repeated beyond its edge.  Shrinking skips pixels: this is faster and
 * gives jagged edges, and DALI (antialias off) and TensorFlow's ResNet were trained with it.
 *
 * Sources: DALI resampling_impl_cpu.cc, cubic with a = -1/2 (Keys 1981); TensorFlow
 * resize_bilinear_op.cc with half_pixel_centers = false.
 */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "image/image.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TD_SAMPLE_SSE2 1
#include <emmintrin.h>
#else
#define TD_SAMPLE_SSE2 0
#endif

enum { TAPS = 4 };

/* the source pixels of one output pixel along one axis */
typedef struct {
    int at[TAPS];
    float weight[TAPS];
} tap;

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static double cubic(double x)
{
    x = fabs(x);
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

static tap find(double place, td_filter filter, int n)
{
    tap t = { { 0 }, { 0 } };
    double whole = floor(place), part = place - whole;
    for (int k = 0; k < TAPS; k++)
        t.at[k] = clamp((int)whole - 1 + k, n);
    if (filter == TD_BICUBIC) {
        for (int k = 0; k < TAPS; k++)
            t.weight[k] = (float)cubic(part + 1 - k);
    } else {
        t.weight[1] = (float)(1 - part);
        t.weight[2] = (float)part;
    }
    return t;
}

void td_taps_release(td_taps *t)
{
    td_free(t->impl);
    *t = (td_taps){ 0 };
}

static td_status check(const td_image *src, const td_sampling *s)
{
    const td_box *w = &s->window;
    if (!(s->x >= 0 && s->y >= 0 && s->width > 0 && s->height > 0 &&
          s->x + s->width <= src->width && s->y + s->height <= src->height))
        return td_error(TD_EARG, "sampled box %g x %g at (%g, %g) exceeds the image of %d x %d",
                        s->width, s->height, s->x, s->y, src->width, src->height);
    if (w->x < 0 || w->y < 0 || w->width < 1 || w->height < 1 || w->x > s->out_width - w->width ||
        w->y > s->out_height - w->height)
        return td_error(TD_EARG, "window %d x %d at (%d, %d) exceeds the result of %d x %d",
                        w->width, w->height, w->x, w->y, s->out_width, s->out_height);
    return TD_OK;
}

/* an output row: source rows and columns of its taps; linear uses only the middle two */
typedef struct {
    const uint8_t *line[TAPS]; /* rows of the source */
    const float *weight;       /* of the rows */
    const tap *columns;
} strip;

#if TD_SAMPLE_SSE2

/* four bytes as floats; td_image has padding after the last pixel */
static inline __m128 pixel(const uint8_t *p)
{
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    __m128i zero = _mm_setzero_si128(), v = _mm_cvtsi32_si128(bytes);
    return _mm_cvtepi32_ps(_mm_unpacklo_epi16(_mm_unpacklo_epi8(v, zero), zero));
}

static inline __m128 across(const uint8_t *line, const tap *t, int first, int end)
{
    __m128 sum = _mm_setzero_ps();
    for (int k = first; k < end; k++)
        sum = _mm_add_ps(sum, _mm_mul_ps(_mm_set1_ps(t->weight[k]), pixel(line + 3 * t->at[k])));
    return sum;
}

static inline void make_row(const strip *s, int n, int first, int end, uint8_t *dst)
{
    for (int x = 0; x < n; x++, dst += 3) {
        __m128 sum = _mm_setzero_ps();
        for (int j = first; j < end; j++)
            sum = _mm_add_ps(sum, _mm_mul_ps(_mm_set1_ps(s->weight[j]),
                                             across(s->line[j], &s->columns[x], first, end)));
        sum = _mm_min_ps(_mm_max_ps(sum, _mm_setzero_ps()), _mm_set1_ps(255));
        __m128i v = _mm_cvttps_epi32(_mm_add_ps(sum, _mm_set1_ps(0.5f)));
        v = _mm_packus_epi16(_mm_packs_epi32(v, v), v);
        int32_t out = _mm_cvtsi128_si32(v);
        memcpy(dst, &out, 3);
    }
}

#else

static uint8_t byte(float v)
{
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : (int)(v + 0.5f));
}

static float across(const uint8_t *line, const tap *t, int first, int end, int c)
{
    float sum = 0;
    for (int k = first; k < end; k++)
        sum += t->weight[k] * (float)line[3 * t->at[k] + c];
    return sum;
}

static void make_row(const strip *s, int n, int first, int end, uint8_t *dst)
{
    for (int i = 0; i < 3 * n; i++) {
        float sum = 0;
        for (int j = first; j < end; j++)
            sum += s->weight[j] * across(s->line[j], &s->columns[i / 3], first, end, i % 3);
        dst[i] = byte(sum);
    }
}

#endif

td_status td_image_sample(td_taps *taps, const td_image *src, const td_sampling *s,
                          td_filter filter, td_image *out)
{
    const td_box *w = &s->window;
    TD_TRY(check(src, s));
    TD_TRY(td_image_resize_buffer(out, w->width, w->height));
    TD_TRY(td_reserve(&taps->impl, &taps->cap, (size_t)w->width, sizeof(tap)));
    tap *columns = taps->impl;
    double sx = s->width / s->out_width, sy = s->height / s->out_height;
    for (int x = 0; x < w->width; x++)
        columns[x] = find(s->x + (w->x + x + 0.5) * sx - 0.5, filter, src->width);
    for (int y = 0; y < w->height; y++) {
        tap rows = find(s->y + (w->y + y + 0.5) * sy - 0.5, filter, src->height);
        strip from = { .weight = rows.weight, .columns = columns };
        for (int j = 0; j < TAPS; j++)
            from.line[j] = src->px + 3 * (size_t)rows.at[j] * (size_t)src->width;
        uint8_t *dst = out->px + 3 * (size_t)y * (size_t)w->width;
        if (filter == TD_BICUBIC) /* two calls, so that each loop is unrolled */
            make_row(&from, w->width, 0, TAPS, dst);
        else
            make_row(&from, w->width, 1, TAPS - 1, dst);
    }
    return TD_OK;
}

/* --- TensorFlow 1's and PyTorch's bilinear ---------------------------------------------------- */

/* the pixel, the next one, and the next one's weight, in float32 as in TensorFlow */
static tap find_legacy(int i, float scale, int n)
{
    tap t = { { 0 }, { 0 } };
    float place = (float)i * scale, whole = floorf(place);
    t.at[0] = clamp((int)whole, n);
    t.at[1] = clamp((int)whole + 1, n);
    t.weight[1] = place - whole;
    return t;
}

/* the same at the centre of the output pixel, as in PyTorch */
static tap find_linear(int i, float scale, int n)
{
    tap t = { { 0 }, { 0 } };
    const float place = scale * ((float)i + 0.5F) - 0.5F, inside = place < 0 ? 0 : place;
    t.at[0] = clamp((int)inside, n);
    t.at[1] = clamp(t.at[0] + 1, n);
    t.weight[1] = inside - (float)t.at[0];
    return t;
}

/* two taps for each pixel of a row and column, `find` says where */
static td_status sample_values(td_taps *taps, const td_image *src, const td_sampling *s,
                               tap (*find_taps)(int i, float scale, int n), float *dst)
{
    const td_box *w = &s->window;
    TD_TRY(check(src, s));
    TD_TRY(td_reserve(&taps->impl, &taps->cap, (size_t)w->width, sizeof(tap)));
    tap *columns = taps->impl;
    int left = (int)s->x, top = (int)s->y, width = (int)s->width, height = (int)s->height;
    float sx = (float)width / (float)s->out_width, sy = (float)height / (float)s->out_height;
    for (int x = 0; x < w->width; x++)
        columns[x] = find_taps(w->x + x, sx, width);
    for (int y = 0; y < w->height; y++) {
        tap r = find_taps(w->y + y, sy, height);
        const uint8_t *p[2];
        for (int j = 0; j < 2; j++)
            p[j] = src->px + 3 * ((size_t)(top + r.at[j]) * (size_t)src->width + (size_t)left);
        for (int x = 0; x < w->width; x++)
            for (int c = 0; c < 3; c++) {
                int a = 3 * columns[x].at[0] + c, b = 3 * columns[x].at[1] + c;
                float part = columns[x].weight[1];
                float up = (float)p[0][a] + (float)(p[0][b] - p[0][a]) * part;
                float down = (float)p[1][a] + (float)(p[1][b] - p[1][a]) * part;
                *dst++ = up + (down - up) * r.weight[1];
            }
    }
    return TD_OK;
}

td_status td_image_sample_legacy(td_taps *taps, const td_image *src, const td_sampling *s,
                                 float *dst)
{
    return sample_values(taps, src, s, find_legacy, dst);
}

td_status td_image_sample_linear(td_taps *taps, const td_image *src, const td_sampling *s,
                                 float *dst)
{
    return sample_values(taps, src, s, find_linear, dst);
}
