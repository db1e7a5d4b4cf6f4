/*
 * image/affine.c -- affine transforms, bit-equal to PIL's Image.transform and Image.rotate
 *
 * The output pixel (x, y) is the input at (a (x + 1/2) + b (y + 1/2) + c, d (x + 1/2) + ...),
 * between two pixels per axis (bilinear) or four (bicubic); outside of the input it has one color.
 *
 * Sources: Pillow 9 .. 13: src/libImaging/Geometry.c (affine_transform, bilinear_filter32RGB,
 * bicubic_filter32RGB), Image.py (rotate).
 */
#include <math.h>
#include <string.h>

#include "image/image.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* a fused multiply-add would change some values */
#endif

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static double between(double a, double b, double t)
{
    return a + (b - a) * t;
}

/* interpolates between b and c; a = -1 */
static double cubic(double a, double b, double c, double d, double t)
{
    const double p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + t * (p2 + t * (p3 + t * p4));
}

static uint8_t clip(double v)
{
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : (int)v);
}

static void bilinear(const td_image *img, double x, double y, uint8_t *q)
{
    const int i = (int)floor(x), j = (int)floor(y);
    const size_t left = 3 * (size_t)clamp(i, img->width),
                 right = 3 * (size_t)clamp(i + 1, img->width);
    const size_t row = 3 * (size_t)img->width;
    const uint8_t *p = img->px + (size_t)clamp(j, img->height) * row;
    const bool is_last = j + 1 >= img->height;
    const uint8_t *below = is_last ? p : img->px + (size_t)(j + 1) * row;
    for (size_t c = 0; c < 3; c++) {
        const double v1 = between(p[left + c], p[right + c], x - i),
                     v2 = is_last ? v1 : between(below[left + c], below[right + c], x - i);
        q[c] = (uint8_t)between(v1, v2, y - j);
    }
}

static void bicubic(const td_image *img, double x, double y, uint8_t *q)
{
    const int i = (int)floor(x), j = (int)floor(y);
    const size_t row = 3 * (size_t)img->width;
    size_t at[4];
    for (int k = 0; k < 4; k++)
        at[k] = 3 * (size_t)clamp(i - 1 + k, img->width);
    for (size_t c = 0; c < 3; c++) {
        double v[4];
        for (int k = 0; k < 4; k++) {
            /* only the first row is clamped; a later one outside repeats the one before */
            if (k && (j - 1 + k < 0 || j - 1 + k >= img->height)) {
                v[k] = v[k - 1];
                continue;
            }
            const uint8_t *p = img->px + (size_t)clamp(j - 1 + k, img->height) * row + c;
            v[k] = cubic(p[at[0]], p[at[1]], p[at[2]], p[at[3]], x - i);
        }
        q[c] = clip(cubic(v[0], v[1], v[2], v[3], y - j));
    }
}

td_status td_image_affine(const td_image *img, const double m[6], td_filter filter,
                          const uint8_t *fill, td_image *out)
{
    static const uint8_t black[3];
    const int w = img->width, h = img->height;
    if (w < 1 || h < 1)
        return td_error(TD_EARG, "transform of an image of %d x %d", w, h);
    for (int i = 0; i < 6; i++)
        if (!(fabs(m[i]) <= 1e9))
            return td_error(TD_EARG, "transform of an image by %g", m[i]);
    TD_TRY(td_image_resize_buffer(out, w, h));
    uint8_t *q = out->px;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++, q += 3) {
            const double at_x = m[0] * (x + 0.5) + m[1] * (y + 0.5) + m[2],
                         at_y = m[3] * (x + 0.5) + m[4] * (y + 0.5) + m[5];
            if (!(at_x >= 0 && at_x < w && at_y >= 0 && at_y < h))
                memcpy(q, fill ? fill : black, 3);
            else if (filter == TD_BICUBIC)
                bicubic(img, at_x - 0.5, at_y - 0.5, q);
            else
                bilinear(img, at_x - 0.5, at_y - 0.5, q);
        }
    return TD_OK;
}

/* --- rotation --------------------------------------------------------------------------------- */

/* rounds to fifteen decimals, as Image.rotate does; a product that is halfway by rounding is not */
static double digits15(double v)
{
    const double product = v * 1e15, error = fma(v, 1e15, -product);
    double whole = rint(product);
    if (fabs(product - whole) == 0.5 && error != 0)
        whole = error > 0 ? ceil(product) : floor(product);
    return whole / 1e15;
}

/* by a quarter, two or three of them: pixels are moved, not computed */
static td_status quarters(const td_image *img, int n, td_image *out)
{
    const int w = img->width, h = img->height;
    TD_TRY(td_image_resize_buffer(out, w, h));
    uint8_t *q = out->px;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++, q += 3) {
            const int i = n == 1   ? w - 1 - y
                          : n == 2 ? w - 1 - x
                                   : y,
                      j = n == 1   ? x
                          : n == 2 ? h - 1 - y
                                   : h - 1 - x;
            memcpy(q, img->px + 3 * ((size_t)j * (size_t)w + (size_t)i), 3);
        }
    return TD_OK;
}

td_status td_image_rotate(const td_image *img, double degrees, td_filter filter,
                          const uint8_t *fill, td_image *out)
{
    const double pi = 3.14159265358979323846;
    if (img->width < 1 || img->height < 1 || !(fabs(degrees) < 360))
        return td_error(TD_EARG, "rotation by %g degrees of an image of %d x %d", degrees,
                        img->width, img->height);
    const double turn = degrees < 0 ? degrees + 360.0 : degrees;
    if (turn == 180 || ((turn == 90 || turn == 270) && img->width == img->height))
        return quarters(img, (int)turn / 90, out);
    const double angle = -(turn * (pi / 180.0));
    const double mx = img->width / 2.0, my = img->height / 2.0;
    double m[6] = { digits15(cos(angle)),  digits15(sin(angle)), 0,
                    digits15(-sin(angle)), digits15(cos(angle)), 0 };
    m[2] = m[0] * -mx + m[1] * -my + 0.0 + mx;
    m[5] = m[3] * -mx + m[4] * -my + 0.0 + my;
    return td_image_affine(img, m, filter, fill, out);
}
