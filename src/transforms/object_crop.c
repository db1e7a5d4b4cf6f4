/*
 * object_crop.c -- crops and flips images with boxes
 */
#include "transforms/object_crop.h"

#include "transforms/crop.h"

enum { DRAWS_MAX = 1000, TORCH_TRIES = 40 };

/* overlaps that a window may have to have; -1: no crop */
static const float least_overlap[] = { -1, 0, 0.1F, 0.3F, 0.5F, 0.7F, 0.9F };
enum { OVERLAPS = sizeof least_overlap / sizeof *least_overlap };

/* of SSD300's and SSDLite's windows */
static const double min_side = 0.3, min_ratio = 0.5, max_ratio = 2;

void td_ground_truths_flip(td_ground_truth *ground_truths, int n)
{
    for (int i = 0; i < n; i++) {
        td_rect *b = &ground_truths[i].box;
        float xmin = 1 - b->xmax;
        b->xmax = 1 - b->xmin;
        b->xmin = xmin;
    }
}

td_rect td_box_fraction(td_box b, int width, int height)
{
    return (td_rect){ .ymin = (float)b.y / (float)height,
                      .xmin = (float)b.x / (float)width,
                      .ymax = (float)(b.y + b.height) / (float)height,
                      .xmax = (float)(b.x + b.width) / (float)width };
}

/* --- SSD320 ----------------------------------------------------------------------------------- */

static const td_distortion distortion = {
    .min_area = 0.75, .max_area = 1.0, .min_ratio = 0.75, .max_ratio = 3.0
};

static int pixel(float share, int side)
{
    float clipped = share < 0 ? 0 : share > 1 ? 1 : share;
    return (int)(clipped * (float)side);
}

/* does the sampler use this box: does it cover at least one pixel? */
static bool covers_a_pixel(td_rect b, int width, int height)
{
    return pixel(b.ymax, height) > pixel(b.ymin, height) &&
           pixel(b.xmax, width) > pixel(b.xmin, width);
}

td_box td_distorted_crop(td_rng *r, int width, int height, const td_ground_truth *ground_truths,
                         int n)
{
    bool is_seen = n == 0; /* without boxes, the whole image is the box */
    for (int i = 0; i < n && !is_seen; i++)
        is_seen = covers_a_pixel(ground_truths[i].box, width, height);
    td_box window = { .width = width, .height = height };
    if (is_seen)
        (void)td_crop_distorted(r, width, height, &distortion, &window);
    return window;
}

static float clipped(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

static td_rect relative(td_rect b, td_rect window)
{
    float y_scale = 1 / (window.ymax - window.ymin), x_scale = 1 / (window.xmax - window.xmin);
    return (td_rect){ .ymin = clipped(y_scale * (b.ymin - window.ymin)),
                      .xmin = clipped(x_scale * (b.xmin - window.xmin)),
                      .ymax = clipped(y_scale * (b.ymax - window.ymin)),
                      .xmax = clipped(x_scale * (b.xmax - window.xmin)) };
}

int td_ground_truths_crop(td_ground_truth *ground_truths, int n, td_box window, int width,
                          int height)
{
    int n_kept = 0;
    const td_rect win = td_box_fraction(window, width, height);
    for (int i = 0; i < n; i++) {
        td_rect b = ground_truths[i].box;
        if (b.ymin >= win.ymax || b.xmin >= win.xmax || b.ymax <= win.ymin || b.xmax <= win.xmin)
            continue;
        if (td_rect_area(b) == 0) /* the reference computes 0/0 here: NaN fails >= 0 */
            continue;
        ground_truths[n_kept] = ground_truths[i];
        ground_truths[n_kept++].box = relative(b, win);
    }
    return n_kept;
}

/* --- SSD300 ----------------------------------------------------------------------------------- */

static bool has_centre_in(td_rect b, td_rect window)
{
    float y = (b.ymin + b.ymax) / 2, x = (b.xmin + b.xmax) / 2;
    return y >= window.ymin && y <= window.ymax && x >= window.xmin && x <= window.xmax;
}

/* one try: sides, ratio, position; all boxes must overlap enough, and the centre of at least one
   must be inside */
static bool try_window(td_rng *r, const td_ground_truth *ground_truths, int n, float least,
                       td_rect *out)
{
    double w = min_side + (1 - min_side) * td_rng_uniform(r);
    double h = min_side + (1 - min_side) * td_rng_uniform(r);
    if (w / h < min_ratio || w / h > max_ratio)
        return false;
    double x = (1 - w) * td_rng_uniform(r), y = (1 - h) * td_rng_uniform(r);
    const td_rect window = { (float)y, (float)x, (float)(y + h), (float)(x + w) };
    int n_inside = 0;
    for (int i = 0; i < n; i++) {
        if (td_rect_iou(ground_truths[i].box, window) < least)
            return false;
        n_inside += has_centre_in(ground_truths[i].box, window);
    }
    *out = window;
    return n_inside > 0;
}

td_rect td_overlap_crop(td_rng *r, const td_ground_truth *ground_truths, int n)
{
    const td_rect whole = { 0, 0, 1, 1 };
    td_rect window;
    for (int i = 0; i < DRAWS_MAX && n > 0; i++) {
        float bound = least_overlap[td_rng_below(r, OVERLAPS)];
        if (bound < 0)
            return whole;
        if (try_window(r, ground_truths, n, bound, &window))
            return window;
    }
    return whole;
}

int td_ground_truths_crop_centres(td_ground_truth *ground_truths, int n, td_rect window)
{
    int n_kept = 0;
    for (int i = 0; i < n; i++) {
        if (!has_centre_in(ground_truths[i].box, window))
            continue;
        ground_truths[n_kept] = ground_truths[i];
        ground_truths[n_kept++].box = relative(ground_truths[i].box, window);
    }
    return n_kept;
}

/* --- SSDLite ---------------------------------------------------------------------------------- */

/* does a box with its centre inside overlap enough? */
static bool is_wanted(td_rect window, const td_ground_truth *ground_truths, int n, float least)
{
    for (int i = 0; i < n; i++)
        if (has_centre_in(ground_truths[i].box, window) &&
            td_rect_iou(ground_truths[i].box, window) >= least)
            return true;
    return false;
}

/* one try: sides, ratio, position */
static bool try_pixels(td_rng *r, int width, int height, td_box *out)
{
    out->width = (int)(width * (min_side + (1 - min_side) * td_rng_uniform(r)));
    out->height = (int)(height * (min_side + (1 - min_side) * td_rng_uniform(r)));
    const double ratio = (double)out->width / out->height; /* NaN or infinite: not in range */
    if (!(ratio >= min_ratio && ratio <= max_ratio))
        return false;
    out->x = (int)((width - out->width) * td_rng_uniform(r));
    out->y = (int)((height - out->height) * td_rng_uniform(r));
    return true;
}

td_box td_torch_crop(td_rng *r, int width, int height, const td_ground_truth *ground_truths, int n)
{
    td_box window;
    for (int i = 0; i < DRAWS_MAX && n > 0; i++) {
        const float least = least_overlap[td_rng_below(r, OVERLAPS)];
        for (int k = 0; k < TORCH_TRIES && least >= 0; k++)
            if (try_pixels(r, width, height, &window) &&
                is_wanted(td_box_fraction(window, width, height), ground_truths, n, least))
                return window;
        if (least < 0)
            break;
    }
    return (td_box){ .width = width, .height = height };
}
