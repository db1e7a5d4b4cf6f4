/*
 * color_jitter.c -- hue, saturation, contrast and brightness as one linear transform of each
 * pixel's colour
 *
 *     rgb' = brightness (128 + contrast (M rgb - 128)) + shift
 *     M    = YIQ to RGB . rotate I and Q by the hue, scale them by the saturation . RGB to YIQ
 *
 * Source: DALI's hsv and brightness_contrast operators (NTSC's matrices to three places).
 */
#include <math.h>

#include "image/image.h"

typedef double matrix[3][3];

static const matrix to_yiq = { { 0.299, 0.587, 0.114 },
                               { 0.596, -0.274, -0.321 },
                               { 0.211, -0.523, 0.311 } };
static const matrix to_rgb = { { 1, 0.956, 0.621 }, { 1, -0.272, -0.647 }, { 1, -1.107, 1.705 } };

static void multiply(const matrix a, const matrix b, matrix out)
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            out[i][j] = a[i][0] * b[0][j] + a[i][1] * b[1][j] + a[i][2] * b[2][j];
}

td_color_jitter td_color_jitter_make(double hue, double saturation, double contrast,
                                     double brightness, double shift)
{
    const double pi = 3.14159265358979323846, middle = 128;
    double turn = hue * pi / 180, c = saturation * cos(turn), s = saturation * sin(turn);
    const matrix turned = { { 1, 0, 0 }, { 0, c, s }, { 0, -s, c } };
    matrix half, all;
    td_color_jitter t;
    multiply(turned, to_yiq, half);
    multiply(to_rgb, half, all);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            t.m[i][j] = (float)(brightness * contrast * all[i][j]);
    t.offset = (float)(brightness * middle * (1 - contrast) + shift);
    return t;
}

static float limited(float v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

static void turn_pixel(const td_color_jitter *t, const float in[3], float out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = limited(t->m[i][0] * in[0] + t->m[i][1] * in[1] + t->m[i][2] * in[2] + t->offset);
}

void td_color_jitter_values(const td_color_jitter *t, float *px, size_t n)
{
    float out[3];
    for (size_t k = 0; k < n; k++, px += 3) {
        turn_pixel(t, px, out);
        for (int i = 0; i < 3; i++)
            px[i] = out[i];
    }
}

void td_color_jitter_image(const td_color_jitter *t, td_image *img)
{
    size_t n = (size_t)img->width * (size_t)img->height;
    uint8_t *px = img->px;
    float in[3], out[3];
    for (size_t k = 0; k < n; k++, px += 3) {
        for (int i = 0; i < 3; i++)
            in[i] = px[i];
        turn_pixel(t, in, out);
        for (int i = 0; i < 3; i++)
            px[i] = (uint8_t)(out[i] + 0.5f);
    }
}
