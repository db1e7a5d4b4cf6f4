/*
 * image/colour.c -- bytes to other bytes, and bytes to the network's numbers
 *
 * The means and deviations are ImageNet's per channel, the ones every published ResNet was trained
 * with: (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225) on a scale of 0 .. 1.
 */
#include "image/codec.h"

/* clang-format off */
const float td_image_mean[3] = { 123.675f, 116.28f, 103.53f };
const float td_image_std[3]  = { 58.395f,  57.12f,  57.375f };
/* clang-format on */

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

void td_image_normalise(const td_image *img, bool flip, float *dst)
{
    float value[3][256];
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++)
            value[c][i] = ((float)i - td_image_mean[c]) / td_image_std[c];

    ptrdiff_t w = img->width, plane = w * img->height, step = flip ? -3 : 3;
    for (ptrdiff_t y = 0; y < img->height; y++) {
        const uint8_t *src = img->px + 3 * (y * w + (flip ? w - 1 : 0));
        float *r = dst + y * w, *g = r + plane, *b = g + plane;
        for (ptrdiff_t x = 0; x < w; x++, src += step) {
            r[x] = value[0][src[0]];
            g[x] = value[1][src[1]];
            b[x] = value[2][src[2]];
        }
    }
}
