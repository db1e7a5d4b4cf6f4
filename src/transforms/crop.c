/*
 * crop.c -- crop rules of torchvision, DALI and TensorFlow 1
 *
 * Sources: torchvision transforms (RandomResizedCrop.get_params, _compute_resized_output_size,
 * center_crop); DALI random_crop_generator.cc and the resize and crop attributes; TensorFlow's
 * sample_distorted_bounding_box_op.cc (GenerateRandomCrop) and the preprocessing of its ResNet.
 * Python's round() rounds half to even, as does rint().
 */
#include "transforms/crop.h"

#include <math.h>

enum { TRIES = 10, TRIES_DALI = 100, TRIES_TF = 100 };

static const double min_area = 0.08, max_area = 1.0;
static const double min_ratio = 3.0 / 4.0, max_ratio = 4.0 / 3.0;

/* TensorFlow's classifiers: the window covers at least a tenth of the box, here the whole image */
static const td_distortion tf_distortion = {
    .min_area = 0.05, .max_area = 1.0, .min_ratio = 0.75, .max_ratio = 1.33, .min_covered = 0.1
};

static double uniform(td_rng *r, double low, double high)
{
    return low + (high - low) * td_rng_uniform(r);
}

/* a uniform whole number 0 .. n - 1 */
static int below(td_rng *r, int n)
{
    return (int)td_rng_below(r, (uint64_t)n);
}

/* one draw of torchvision's and DALI's: rounded sides, not yet checked */
static void draw_sides(td_rng *r, int width, int height, double *w, double *h)
{
    double target = (double)width * height * uniform(r, min_area, max_area);
    double ratio = exp(uniform(r, log(min_ratio), log(max_ratio)));
    *w = rint(sqrt(target * ratio));
    *h = rint(sqrt(target / ratio));
}

/* --- torchvision ------------------------------------------------------------------------------ */

static td_box centred(int width, int height, int w, int h)
{
    return (td_box){ .x = (width - w) / 2, .y = (height - h) / 2, .width = w, .height = h };
}

/* round half to even, never below 1 */
static int rounded(double x)
{
    double y = rint(x);
    return y < 1 ? 1 : (int)y;
}

static td_box torchvision_crop(td_rng *r, int width, int height)
{
    for (int i = 0; i < TRIES; i++) {
        double w, h;
        draw_sides(r, width, height, &w, &h);
        if (w < 1 || w > width || h < 1 || h > height)
            continue;
        int y = below(r, height - (int)h + 1), x = below(r, width - (int)w + 1);
        return (td_box){ .x = x, .y = y, .width = (int)w, .height = (int)h };
    }
    double in_ratio = (double)width / height;
    if (in_ratio < min_ratio)
        return centred(width, height, width, rounded(width / min_ratio));
    if (in_ratio > max_ratio)
        return centred(width, height, rounded(height * max_ratio), height);
    return centred(width, height, width, height);
}

/* --- DALI ------------------------------------------------------------------------------------- */

/* the largest box of an allowed ratio, by DALI's rounding; its area is never above max_area */
static td_box dali_fallback(int width, int height, int max_width, int max_height)
{
    double ratio = (double)width / height;
    td_box box = { .width = width, .height = height };
    if (ratio > max_ratio)
        box.width = max_width;
    else if (ratio < min_ratio)
        box.height = max_height;
    double shrink = sqrt(fmin(1, max_area * width * height / ((double)box.width * box.height)));
    box.width = (int)fmax(1, box.width * shrink);
    box.height = (int)fmax(1, box.height * shrink);
    return box;
}

static bool dali_try(td_rng *r, int width, int height, td_box *box)
{
    double w, h;
    draw_sides(r, width, height, &w, &h);
    w = fmax(1, w);
    h = fmax(1, h);
    *box = (td_box){ .width = (int)w, .height = (int)h };
    return w <= width && h <= height && w / h >= min_ratio && w / h <= max_ratio;
}

static td_box dali_crop(td_rng *r, int width, int height)
{
    double least = min_area * width * height;
    int max_width = (int)fmax(1, height * max_ratio), max_height = (int)fmax(1, width / min_ratio);
    td_box box = { .width = width, .height = height };
    if ((double)height * max_width < least) { /* the image is too wide for any box */
        box.width = max_width;
    } else if ((double)width * max_height < least) {
        box.height = max_height;
    } else {
        int i = 0;
        while (i < TRIES_DALI && !dali_try(r, width, height, &box))
            i++;
        if (i == TRIES_DALI)
            box = dali_fallback(width, height, max_width, max_height);
    }
    box.y = below(r, height - box.height + 1);
    box.x = below(r, width - box.width + 1);
    return box;
}

/* --- TensorFlow ------------------------------------------------------------------------------- */

static int width_of(int height, double ratio)
{
    return (int)rint(height * ratio);
}

/* the range of heights for a box of this ratio */
static void tf_heights(int width, int height, const td_distortion *d, double ratio, int *low,
                       int *high)
{
    double area = (double)width * height;
    *low = (int)rint(sqrt(d->min_area * area / ratio));
    *high = (int)rint(sqrt(d->max_area * area / ratio));
    if (width_of(*high, ratio) > width) {
        *high = (int)((width + 0.5 - 1e-7) / ratio);
        if (width_of(*high, ratio) > width)
            (*high)--;
    }
    *high = *high > height ? height : *high;
    *low = *low > *high ? *high : *low;
}

static bool tf_try(td_rng *r, int width, int height, const td_distortion *d, td_box *box)
{
    double area = (double)width * height, ratio = uniform(r, d->min_ratio, d->max_ratio);
    int low, high;
    tf_heights(width, height, d, ratio, &low, &high);
    int h = low < high ? low + below(r, high - low + 1) : high;
    if ((double)h * width_of(h, ratio) < d->min_area * area)
        h++; /* must not be rejected because of rounding */
    if ((double)h * width_of(h, ratio) > d->max_area * area)
        h--;
    int w = width_of(h, ratio);
    double got = (double)w * h;
    if (got < d->min_area * area || got > d->max_area * area || w > width || h > height || w < 1 ||
        h < 1)
        return false;
    *box = (td_box){ .width = w, .height = h };
    box->y = h < height ? below(r, height - h) : 0; /* the last position is never chosen */
    box->x = w < width ? below(r, width - w) : 0;
    return got >= d->min_covered * area;
}

bool td_crop_distorted(td_rng *r, int width, int height, const td_distortion *d, td_box *out)
{
    for (int i = 0; i < TRIES_TF; i++)
        if (tf_try(r, width, height, d, out))
            return true;
    *out = (td_box){ .width = width, .height = height };
    return false;
}

static td_box tf_crop(td_rng *r, int width, int height)
{
    td_box box;
    (void)td_crop_distorted(r, width, height, &tf_distortion, &box);
    return box;
}

/* --- dispatch by rules ------------------------------------------------------------------------ */

td_box td_random_crop(td_crop_rules rules, td_rng *r, int width, int height)
{
    return rules == TD_RULES_DALI ? dali_crop(r, width, height)
           : rules == TD_RULES_TF ? tf_crop(r, width, height)
                                  : torchvision_crop(r, width, height);
}

/* float32 as in TensorFlow's graph: 256 may come out as 255 */
static int tf_side(int side, float scale, int min)
{
    int to = (int)((float)side * scale);
    return to < min ? min : to;
}

void td_short_side(td_crop_rules rules, int width, int height, int to, int min, int *out_width,
                   int *out_height)
{
    int longer = width > height ? width : height, shorter = width > height ? height : width;
    if (rules == TD_RULES_TF) {
        float scale = (float)to / (float)shorter;
        *out_width = tf_side(width, scale, min);
        *out_height = tf_side(height, scale, min);
        return;
    }
    int long_to = (int)((int64_t)to * longer / shorter);
    if (rules == TD_RULES_DALI)
        long_to = (int)floor((double)to * longer / shorter + 0.5);
    *out_width = width > height ? long_to : to;
    *out_height = width > height ? to : long_to;
}

static int offset(td_crop_rules rules, int space)
{
    return rules == TD_RULES_TF     ? space / 2
           : rules == TD_RULES_DALI ? (space + 1) / 2
                                    : (int)rint(space / 2.0);
}

td_box td_centre_crop(td_crop_rules rules, int width, int height, int size)
{
    return (td_box){ .x = offset(rules, width - size),
                     .y = offset(rules, height - size),
                     .width = size,
                     .height = size };
}
