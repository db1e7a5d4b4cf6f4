/*
 * image/colour.c -- converts colours, and bytes to normalised floats
 *
 * Mean and standard deviation are ImageNet's per channel, as used to train all published ResNets:
 * (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225) on a scale of 0 .. 1.
 */
#include <string.h>

#include "base/isa.h"
#include "image/codec.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TD_COLOUR_AVX2 1
#include <immintrin.h>
#else
#define TD_COLOUR_AVX2 0
#endif

/* clang-format off */
const float td_image_mean[3] = { 123.675f, 116.28f, 103.53f };
const float td_image_std[3]  = { 58.395f,  57.12f,  57.375f };

const td_norm td_norm_torch = { { 123.675f, 116.28f, 103.53f }, { 58.395f, 57.12f, 57.375f } };
const td_norm td_norm_tf    = { { 123.68f,  116.28f, 103.53f }, { 58.395f, 57.12f, 57.385f } };
const td_norm td_norm_vgg   = { { 123.68f,  116.779f, 103.939f }, { 1, 1, 1 } };
const td_norm td_norm_half  = { { 127.5f, 127.5f, 127.5f }, { 127.5f, 127.5f, 127.5f } };
const td_norm td_norm_gray  = { { 114.495f, 114.495f, 114.495f }, { 57.63f, 57.63f, 57.63f } };
/* clang-format on */

const td_norm *td_norm_of_detector(td_detector kind)
{
    if (kind == TD_DETECTOR_SSDLITE)
        return &td_norm_half;
    return kind == TD_DETECTOR_SSD320 ? &td_norm_vgg : &td_norm_torch;
}

td_status td_channels_check(int channels)
{
    if (channels == 0 || channels == 1 || channels == 3)
        return TD_OK;
    return td_error(TD_EUSAGE, "--channels is %d, wanted 1 (gray) or 3 (red, green, blue)",
                    channels);
}

const td_norm *td_norm_of_channels(int channels)
{
    return channels == 1 ? &td_norm_gray : &td_norm_torch;
}

void td_image_to_gray(td_image *img)
{
    uint8_t *p = img->px, *end = p + 3 * (size_t)img->width * (size_t)img->height;
    for (; p < end; p += 3)
        memset(p, td_luma(p), 3);
}

/* a * b / 255 rounded, exact for bytes; PIL's MULDIV255. */
static unsigned mul255(unsigned a, unsigned b)
{
    unsigned t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}

void td_colour_cmyk_row(const uint8_t *cmyk, uint8_t *rgb, int n)
{
    for (int i = 0; i < n; i++, cmyk += 4, rgb += 3) {
        unsigned light = cmyk[3];
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(light - mul255(255u - cmyk[c], light));
    }
}

void td_colour_gray_palette(uint8_t palette[256][3])
{
    for (int i = 0; i < 256; i++)
        memset(palette[i], i, 3);
}

/* Pixels from .. w - 1 of a row -> the three planes' rows; value[c][i] is the value for byte i in
   plane c. */
static void row_plain(const uint8_t *src, ptrdiff_t from, ptrdiff_t w, bool flip,
                      float value[3][256], float *dst, ptrdiff_t plane)
{
    ptrdiff_t step = flip ? -3 : 3;
    float *r = dst, *g = r + plane, *b = g + plane;
    src += 3 * (flip ? w - 1 - from : from);
    for (ptrdiff_t x = from; x < w; x++, src += step) {
        r[x] = value[0][src[0]];
        g[x] = value[1][src[1]];
        b[x] = value[2][src[2]];
    }
}

#if TD_COLOUR_AVX2

#define TD_AVX2 __attribute__((target("avx2")))

/* every third of 24 bytes, as floats; low and high are two overlapping loads */
TD_AVX2 static inline __m256 pick(__m128i low, __m128i high, int c)
{
    const char none = -1;
    char i = (char)c;
    __m128i of_low =
        _mm_setr_epi8(i, (char)(i + 3), (char)(i + 6), (char)(i + 9), (char)(i + 12), none, none,
                      none, none, none, none, none, none, none, none, none);
    __m128i of_high = _mm_setr_epi8(none, none, none, none, none, (char)(i + 7), (char)(i + 10),
                                    (char)(i + 13), none, none, none, none, none, none, none, none);
    __m128i bytes = _mm_or_si128(_mm_shuffle_epi8(low, of_low), _mm_shuffle_epi8(high, of_high));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

/* Eight pixels at a time; the same arithmetic as in the table.  Returns the number done. */
TD_AVX2 static ptrdiff_t row_avx2(const uint8_t *src, ptrdiff_t w, const td_norm *norm, bool flip,
                                  float *dst, ptrdiff_t plane)
{
    const __m256i backward = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    ptrdiff_t x = 0;
    for (; x + 8 <= w; x += 8) {
        const uint8_t *p = src + 3 * (flip ? w - 8 - x : x);
        __m128i low = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(p + 8));
        for (int c = 0; c < 3; c++) {
            __m256 v = _mm256_sub_ps(pick(low, high, c), _mm256_set1_ps(norm->mean[c]));
            v = _mm256_div_ps(v, _mm256_set1_ps(norm->std[c]));
            if (flip)
                v = _mm256_permutevar8x32_ps(v, backward);
            _mm256_storeu_ps(dst + c * plane + x, v);
        }
    }
    return x;
}

static bool has_avx2(void)
{
    return td_isa_has(TD_ISA_AVX2);
}

#else

static ptrdiff_t row_avx2(const uint8_t *src, ptrdiff_t w, const td_norm *norm, bool flip,
                          float *dst, ptrdiff_t plane)
{
    (void)src, (void)w, (void)norm, (void)flip, (void)dst, (void)plane;
    return 0;
}

static bool has_avx2(void)
{
    return false;
}

#endif

void td_image_normalise_by(const td_image *img, const td_norm *norm, bool flip, float *dst)
{
    float value[3][256];
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++)
            value[c][i] = ((float)i - norm->mean[c]) / norm->std[c];

    bool is_wide = has_avx2();
    ptrdiff_t w = img->width, plane = w * img->height;
    for (ptrdiff_t y = 0; y < img->height; y++) {
        const uint8_t *src = img->px + 3 * y * w;
        ptrdiff_t from = is_wide ? row_avx2(src, w, norm, flip, dst + y * w, plane) : 0;
        row_plain(src, from, w, flip, value, dst + y * w, plane);
    }
}

void td_image_normalise_gray(const td_image *img, const td_norm *norm, bool flip, float *dst)
{
    float value[256];
    for (int i = 0; i < 256; i++)
        value[i] = ((float)i - norm->mean[0]) / norm->std[0];
    const ptrdiff_t w = img->width, step = flip ? -3 : 3;
    for (ptrdiff_t y = 0; y < img->height; y++) {
        const uint8_t *src = img->px + 3 * (y * w + (flip ? w - 1 : 0));
        for (ptrdiff_t x = 0; x < w; x++, src += step)
            dst[y * w + x] = value[*src];
    }
}

void td_image_normalise(const td_image *img, bool flip, float *dst)
{
    td_image_normalise_by(img, &td_norm_torch, flip, dst);
}

void td_values_normalise(const float *src, int width, int height, int channels, const td_norm *norm,
                         bool flip, float *dst)
{
    ptrdiff_t w = width, plane = w * height;
    for (ptrdiff_t y = 0; y < height; y++)
        for (ptrdiff_t x = 0; x < w; x++) {
            const float *p = src + 3 * (y * w + (flip ? w - 1 - x : x));
            for (int c = 0; c < channels; c++)
                dst[c * plane + y * w + x] = (p[c] - norm->mean[c]) / norm->std[c];
        }
}
