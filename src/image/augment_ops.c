/*
 * image/augment_ops.c -- the operations of AutoAugment, bit-equal to PIL
 *
 *     a table per channel      equalize autocontrast invert posterize solarize solarize_add
 *     blend of two images     colour contrast brightness sharpness: a degenerate image d and the
 *                              image p give d + amount (p - d), in float32, clipped to a byte
 *     geometry                 shears by a cubic filter, translations and rotations to the nearest
 *                              pixel; uncovered pixels become grey (128)
 *
 * Sources: Pillow 9 .. 13: ImageOps.py, ImageEnhance.py, Image.py (rotate), src/libImaging/Blend.c,
 * Filter.c (3 x 3), Geometry.c (affine_fixed, bicubic_filter32RGB), Convert.c (rgb2l).
 */
#include <math.h>
#include <string.h>

#include "image/image.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* a fused multiply-add would change some values */
#endif

enum { GREY = 128 };

typedef struct {
    uint8_t of[3][256];
} tables;

static size_t pixels(const td_image *img)
{
    return (size_t)img->width * (size_t)img->height;
}

static void swap(td_image *a, td_image *b)
{
    td_image c = *a;
    *a = *b;
    *b = c;
}

static uint8_t clip(double v)
{
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : (int)v);
}

/* --- a table per channel ---------------------------------------------------------------------- */

static void look_up(td_image *img, const tables *t)
{
    uint8_t *p = img->px, *end = p + 3 * pixels(img);
    for (; p < end; p += 3) {
        p[0] = t->of[0][p[0]];
        p[1] = t->of[1][p[1]];
        p[2] = t->of[2][p[2]];
    }
}

static void count(const td_image *img, uint32_t n[3][256])
{
    const uint8_t *p = img->px, *end = p + 3 * pixels(img);
    memset(n, 0, 3 * 256 * sizeof n[0][0]);
    for (; p < end; p += 3) {
        n[0][p[0]]++;
        n[1][p[1]]++;
        n[2][p[2]]++;
    }
}

static void identity_table(uint8_t to[256])
{
    for (int i = 0; i < 256; i++)
        to[i] = (uint8_t)i;
}

/* equalizes the histogram; the largest value that occurs does not count */
static void equal_table(const uint32_t n[256], uint8_t to[256])
{
    int last = 255, first = 0;
    uint32_t sum = 0;
    while (last > 0 && !n[last])
        last--;
    while (first < last && !n[first])
        first++;
    for (int i = 0; i < last; i++)
        sum += n[i];
    uint32_t step = sum / 255, at = step / 2;
    if (first == last || step == 0) {
        identity_table(to);
        return;
    }
    for (int i = 0; i < 256; i++) {
        uint32_t v = at / step;
        to[i] = (uint8_t)(v > 255 ? 255 : v);
        at += n[i];
    }
}

/* the darkest value that occurs becomes 0, the brightest 255 */
static void contrast_table(const uint32_t n[256], uint8_t to[256])
{
    int low = 0, high = 255;
    while (low < 255 && !n[low])
        low++;
    while (high > 0 && !n[high])
        high--;
    if (high <= low) {
        identity_table(to);
        return;
    }
    double scale = 255.0 / (high - low), offset = -low * scale;
    for (int i = 0; i < 256; i++)
        to[i] = clip(i * scale + offset);
}

/* applies an operation that depends on the value alone to value i */
static int map_value(td_augment_op op, double amount, int i)
{
    switch (op) {
    case TD_AUGMENT_INVERT:
        return 255 - i;
    case TD_AUGMENT_POSTERIZE:
        return i & ~((1 << (8 - (int)amount)) - 1);
    case TD_AUGMENT_SOLARIZE:
        return i < amount ? i : 255 - i;
    default: /* TD_AUGMENT_SOLARIZE_ADD */
        return i < 128 ? (int)fmin(i + amount, 255) : i;
    }
}

static void map_values(td_image *img, td_augment_op op, double amount)
{
    tables t;
    uint32_t n[3][256];
    bool is_equalize = op == TD_AUGMENT_EQUALIZE;
    if (is_equalize || op == TD_AUGMENT_AUTOCONTRAST) {
        count(img, n);
        for (int c = 0; c < 3; c++)
            (is_equalize ? equal_table : contrast_table)(n[c], t.of[c]);
    } else {
        for (int i = 0; i < 256; i++)
            t.of[0][i] = t.of[1][i] = t.of[2][i] = (uint8_t)map_value(op, amount, i);
    }
    look_up(img, &t);
}

/* --- blends of two images ------------------------------------------------------------------- */

static uint8_t blend(int d, int p, float amount)
{
    float v = (float)d + amount * (float)(p - d);
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : (int)v);
}

static void blend_grey(td_image *img, float amount)
{
    uint8_t *p = img->px, *end = p + 3 * pixels(img);
    for (; p < end; p += 3) {
        int d = td_luma(p);
        for (int c = 0; c < 3; c++)
            p[c] = blend(d, p[c], amount);
    }
}

static void blend_level(td_image *img, int d, float amount)
{
    uint8_t to[256], *p = img->px, *end = p + 3 * pixels(img);
    for (int i = 0; i < 256; i++)
        to[i] = blend(d, i, amount);
    for (; p < end; p++)
        *p = to[*p];
}

static int mean_luma(const td_image *img)
{
    const uint8_t *p = img->px, *end = p + 3 * pixels(img);
    uint64_t sum = 0;
    for (; p < end; p += 3)
        sum += (uint64_t)td_luma(p);
    return (int)((double)sum / (double)pixels(img) + 0.5);
}

/*
 * The centre of 3 x 3 pixels has weight 5, the others 1; the sum is divided by 13 and rounded.  It
 * is never halfway between two integers, so integer arithmetic gives the same as PIL's floats.  The
 * border is copied.
 */
static void blend_smooth(const td_image *img, float amount, td_image *out)
{
    size_t row = 3 * (size_t)img->width;
    memcpy(out->px, img->px, row * (size_t)img->height);
    for (int y = 1; y < img->height - 1; y++) {
        const uint8_t *p = img->px + (size_t)y * row, *above = p - row, *below = p + row;
        uint8_t *q = out->px + (size_t)y * row;
        for (size_t i = 3; i + 3 < row; i++) {
            int sum = above[i - 3] + above[i] + above[i + 3] + p[i - 3] + 5 * p[i] + p[i + 3] +
                      below[i - 3] + below[i] + below[i + 3];
            q[i] = blend((2 * sum + 13) / 26, p[i], amount);
        }
    }
}

/* --- geometry --------------------------------------------------------------------------------- */

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Geometry.c's cubic (a = -1), interpolates between b and c */
static uint8_t cubic(int a, int b, int c, int d, double t)
{
    double p1 = b, p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return clip(p1 + t * (p2 + t * (p3 + t * p4)));
}

/* The source of output i of n in a shear: four taps and the fraction after the second. */
typedef struct {
    int tap[4];
    double part;
} source;

static bool find_source(int i, double shift, int n, source *s)
{
    double at = (i + 0.5) + shift;
    if (at < 0 || at >= n)
        return false;
    at -= 0.5;
    double whole = floor(at);
    s->part = at - whole;
    for (int k = 0; k < 4; k++)
        s->tap[k] = clamp((int)whole - 1 + k, n);
    return true;
}

static void shear_x(const td_image *img, double amount, td_image *out)
{
    size_t row = 3 * (size_t)img->width;
    for (int y = 0; y < img->height; y++) {
        const uint8_t *p = img->px + (size_t)y * row;
        uint8_t *q = out->px + (size_t)y * row;
        for (int x = 0; x < img->width; x++, q += 3) {
            source s;
            if (!find_source(x, amount * (y + 0.5), img->width, &s)) {
                memset(q, GREY, 3);
                continue;
            }
            for (int c = 0; c < 3; c++)
                q[c] = cubic(p[3 * s.tap[0] + c], p[3 * s.tap[1] + c], p[3 * s.tap[2] + c],
                             p[3 * s.tap[3] + c], s.part);
        }
    }
}

/* PIL adds the two products in another order here: first the shift, then the position */
static void shear_y(const td_image *img, double amount, td_image *out)
{
    size_t row = 3 * (size_t)img->width;
    for (int y = 0; y < img->height; y++) {
        uint8_t *q = out->px + (size_t)y * row;
        for (int x = 0; x < img->width; x++, q += 3) {
            source s;
            if (!find_source(y, amount * (x + 0.5), img->height, &s)) {
                memset(q, GREY, 3);
                continue;
            }
            const uint8_t *p = img->px + 3 * (size_t)x;
            for (int c = 0; c < 3; c++)
                q[c] = cubic(p[(size_t)s.tap[0] * row + (size_t)c],
                             p[(size_t)s.tap[1] * row + (size_t)c],
                             p[(size_t)s.tap[2] * row + (size_t)c],
                             p[(size_t)s.tap[3] * row + (size_t)c], s.part);
        }
    }
}

static void translate(const td_image *img, int dx, int dy, td_image *out)
{
    int w = img->width, h = img->height;
    size_t row = 3 * (size_t)w;
    int from = dx < 0 ? -dx : 0, end = dx < 0 ? w : w - dx;
    memset(out->px, GREY, row * (size_t)h);
    for (int y = 0; y < h; y++) {
        if (y + dy >= 0 && y + dy < h && from < end)
            memcpy(out->px + (size_t)y * row + 3 * (size_t)from,
                   img->px + (size_t)(y + dy) * row + 3 * (size_t)(from + dx),
                   3 * (size_t)(end - from));
    }
}

static int to_fixed(double v)
{
    return (int)floor(v * 65536.0 + 0.5);
}

/* rounds to fifteen decimals, as Image.rotate does */
static double digits15(double v)
{
    return rint(v * 1e15) / 1e15;
}

/* rotates around the centre, counterclockwise for positive degrees */
static void rotate(const td_image *img, double degrees, td_image *out)
{
    const double pi = 3.14159265358979323846;
    int w = img->width, h = img->height;
    double turn = degrees < 0 ? degrees + 360.0 : degrees, angle = -(turn * (pi / 180.0));
    double c = digits15(cos(angle)), s = digits15(sin(angle)), t = digits15(-sin(angle));
    double mx = w / 2.0, my = h / 2.0;
    double x0 = c * -mx + s * -my + 0.0 + mx, y0 = t * -mx + c * -my + 0.0 + my;
    int ax = to_fixed(c), bx = to_fixed(s), ay = to_fixed(t), by = to_fixed(c);
    int left = to_fixed(x0 + c * 0.5 + s * 0.5), top = to_fixed(y0 + t * 0.5 + c * 0.5);
    size_t row = 3 * (size_t)w;
    for (int y = 0; y < h; y++, left += bx, top += by) {
        uint8_t *q = out->px + (size_t)y * row;
        int u = left, v = top;
        for (int x = 0; x < w; x++, q += 3, u += ax, v += ay) {
            int i = u >> 16, j = v >> 16;
            if (i >= 0 && i < w && j >= 0 && j < h)
                memcpy(q, img->px + (size_t)j * row + 3 * (size_t)i, 3);
            else
                memset(q, GREY, 3);
        }
    }
}

/* --- dispatch --------------------------------------------------------------------------------- */

static td_status move(td_image *img, td_augment_op op, double amount, td_image *scratch)
{
    if (amount == 0)
        return TD_OK; /* no change */
    TD_TRY(td_image_resize_buffer(scratch, img->width, img->height));
    if (op == TD_AUGMENT_SHEAR_X)
        shear_x(img, amount, scratch);
    else if (op == TD_AUGMENT_SHEAR_Y)
        shear_y(img, amount, scratch);
    else if (op == TD_AUGMENT_TRANSLATE_X)
        translate(img, (int)amount, 0, scratch);
    else if (op == TD_AUGMENT_TRANSLATE_Y)
        translate(img, 0, (int)amount, scratch);
    else
        rotate(img, amount, scratch);
    swap(img, scratch);
    return TD_OK;
}

static td_status enhance(td_image *img, td_augment_op op, double amount, td_image *scratch)
{
    float share = (float)amount;
    if (share == 1.0f)
        return TD_OK;
    if (op == TD_AUGMENT_COLOR) {
        blend_grey(img, share);
    } else if (op == TD_AUGMENT_CONTRAST) {
        blend_level(img, mean_luma(img), share);
    } else if (op == TD_AUGMENT_BRIGHTNESS) {
        blend_level(img, 0, share);
    } else {
        TD_TRY(td_image_resize_buffer(scratch, img->width, img->height));
        blend_smooth(img, share, scratch);
        swap(img, scratch);
    }
    return TD_OK;
}

td_status td_image_augment(td_image *img, td_augment_op op, double amount, td_image *scratch)
{
    if (img->width < 1 || img->height < 1 || (unsigned)op >= TD_AUGMENT_OPS ||
        !(fabs(amount) <= 1024) || (op == TD_AUGMENT_POSTERIZE && !(amount >= 0 && amount <= 8)))
        return td_error(TD_EARG, "alteration %d by %g of an image of %d x %d", (int)op, amount,
                        img->width, img->height);
    if (op <= TD_AUGMENT_ROTATE)
        return move(img, op, amount, scratch);
    if (op <= TD_AUGMENT_SHARPNESS)
        return enhance(img, op, amount, scratch);
    map_values(img, op, amount);
    return TD_OK;
}
