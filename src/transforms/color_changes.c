/*
 * color_changes.c -- torchvision's ColorJitter and RandomErasing
 *
 * Source: torchvision 0.29, transforms/transforms.py (get_params of both classes).
 */
#include "transforms/color_changes.h"

#include <math.h>
#include <string.h>

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE };

static double between(td_rng *r, double from, double to)
{
    return from + (to - from) * td_rng_uniform(r);
}

td_color_changes td_color_changes_draw(const double strength[TD_JITTERS], td_rng *r)
{
    td_color_changes c;
    int64_t order[TD_JITTERS];
    td_rng_permute(r, order, TD_JITTERS);
    for (int i = 0; i < TD_JITTERS; i++) {
        const double s = strength[i];
        c.order[i] = (int)order[i];
        c.amount[i] = i == HUE ? between(r, -s, s) : between(r, s < 1 ? 1 - s : 0, 1 + s);
    }
    return c;
}

td_status td_color_changes_apply(const td_color_changes *c, const double strength[TD_JITTERS],
                                 td_image *img, td_image *scratch)
{
    static const td_augment_op ops[] = { [BRIGHTNESS] = TD_AUGMENT_BRIGHTNESS,
                                         [CONTRAST] = TD_AUGMENT_CONTRAST,
                                         [SATURATION] = TD_AUGMENT_COLOR };
    for (int i = 0; i < TD_JITTERS; i++) {
        const int which = c->order[i];
        if (strength[which] == 0)
            continue;
        if (which == HUE)
            td_image_shift_hue(img, (int)(c->amount[HUE] * 255));
        else
            TD_TRY(td_image_augment(img, ops[which], c->amount[which], scratch));
    }
    return TD_OK;
}

/* --- random erasing --------------------------------------------------------------------------- */

td_box td_random_erase_draw(double p, int size, td_rng *r)
{
    enum { ATTEMPTS = 10 };
    const double area = (double)size * size;
    if (td_rng_uniform(r) >= p)
        return (td_box){ 0 };
    for (int i = 0; i < ATTEMPTS; i++) {
        const double share = area * between(r, 0.02, 0.33),
                     ratio = exp(between(r, log(0.3), log(3.3)));
        const int height = (int)rint(sqrt(share * ratio)), width = (int)rint(sqrt(share / ratio));
        if (height >= size || width >= size)
            continue;
        const int y = (int)td_rng_below(r, (uint64_t)(size - height + 1)),
                  x = (int)td_rng_below(r, (uint64_t)(size - width + 1));
        return (td_box){ .x = x, .y = y, .width = width, .height = height };
    }
    return (td_box){ 0 };
}

void td_random_erase_apply(td_box box, int size, int channels, float *row)
{
    for (int c = 0; c < channels; c++)
        for (int y = box.y; y < box.y + box.height; y++)
            memset(row + ((size_t)c * (size_t)size + (size_t)y) * (size_t)size + box.x, 0,
                   (size_t)box.width * sizeof *row);
}
