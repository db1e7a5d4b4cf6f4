/*
 * image/hue.c -- hue of bytes, bit-equal to PIL's conversions to HSV and back
 *
 * Source: Pillow 9 .. 13, src/libImaging/Convert.c (rgb2hsv_row, hsv2rgb), whose arithmetic is
 * partly float32, partly float64, after Python's colorsys.py.
 */
#include <math.h>

#include "image/image.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* a fused multiply-add would change some values */
#endif

typedef struct {
    uint8_t hue, saturation, value;
} hsv;

static uint8_t clip(int v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static hsv to_hsv(const uint8_t *p)
{
    const int r = p[0], g = p[1], b = p[2];
    const int most = r > g ? (r > b ? r : b) : (g > b ? g : b),
              least = r < g ? (r < b ? r : b) : (g < b ? g : b);
    if (most == least)
        return (hsv){ .value = (uint8_t)most };
    const float range = (float)(most - least), s = range / (float)most;
    const float rc = (float)(most - r) / range, gc = (float)(most - g) / range,
                bc = (float)(most - b) / range;
    float h = bc - gc;
    if (r != most)
        h = (float)(g == most ? 2.0 + rc - bc : 4.0 + gc - rc);
    h = (float)fmod(h / 6.0 + 1.0, 1.0);
    return (hsv){ clip((int)(h * 255.0)), clip((int)(s * 255.0)), (uint8_t)most };
}

static void to_rgb(hsv in, uint8_t *q)
{
    const int v = in.value;
    if (in.saturation == 0) {
        q[0] = q[1] = q[2] = in.value;
        return;
    }
    const int sector = (int)floor((float)in.hue * 6.0 / 255.0);
    const float part = (float)((float)in.hue * 6.0 / 255.0 - (float)sector),
                s = (float)((float)in.saturation / 255.0);
    const uint8_t low = clip((int)round((float)v * (1.0 - s))),
                  falling = clip((int)round((float)v * (1.0 - s * part))),
                  rising = clip((int)round((float)v * (1.0 - s * (1.0 - part))));
    const uint8_t rgb[6][3] = {
        { in.value, rising, low },  { falling, in.value, low }, { low, in.value, rising },
        { low, falling, in.value }, { rising, low, in.value },  { in.value, low, falling },
    };
    for (int c = 0; c < 3; c++)
        q[c] = rgb[sector % 6][c];
}

void td_image_shift_hue(td_image *img, int shift)
{
    uint8_t *p = img->px, *end = p + 3 * (size_t)img->width * (size_t)img->height;
    for (; p < end; p += 3) {
        hsv at = to_hsv(p);
        at.hue = (uint8_t)(at.hue + shift);
        to_rgb(at, p);
    }
}
