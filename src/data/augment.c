/*
 * augment.c -- one picture file -> one row of a batch
 *
 * The scaled decoder makes big pictures cheap: a JPEG block can be decoded to 4 x 4, 2 x 2 or 1 x 1
 * pixels instead of 8 x 8.  It is used in training where the crop is at least twice the output on
 * both sides, so that resizing still shrinks (or keeps) what was decoded.
 *
 *     upright picture          covers (decoded, 1/scale)         cut            sized
 *     +----------------+       +----------+                      +------+       +----+
 *     |   +------+     |  -->  | +------+ |                 -->  |      |  -->  |    |
 *     |   | crop |     |       | |      | |                      +------+       +----+
 *     |   +------+     |       +----------+
 *     +----------------+
 *
 * Source: torchvision transforms (RandomResizedCrop.get_params, _compute_resized_output_size,
 * center_crop); Python's round() is to even, and so is rint().
 */
#include "data/augment.h"

#include <math.h>

#include "base/arena.h"
#include "base/os.h"

enum {
    TRIES = 10,
    FILE_BYTES_MAX = 256 << 20,
    SIZED_PIXELS_MAX =
        64 << 20 /* beyond it only the crop is made: a 1 x 60000 strip grows 256-fold */
};

static const double min_area = 0.08, max_area = 1.0;
static const double min_ratio = 3.0 / 4.0, max_ratio = 4.0 / 3.0;

void td_transformer_release(td_transformer *w)
{
    td_free(w->bytes);
    td_image_release(&w->stored);
    td_image_release(&w->decoded);
    td_image_release(&w->cut);
    td_image_release(&w->sized);
    td_resampler_release(&w->resampler);
    *w = (td_transformer){ 0 };
}

td_status td_transform_read(td_transformer *w, const char *path)
{
    return td_file_read_into(path, FILE_BYTES_MAX, &w->bytes, &w->cap_bytes, &w->n_bytes);
}

td_status td_filter_of(td_interpolation i, td_filter *out)
{
    switch (i) {
    case TD_INTERPOLATE_BILINEAR:
        *out = TD_BILINEAR;
        return TD_OK;
    case TD_INTERPOLATE_BICUBIC:
        *out = TD_BICUBIC;
        return TD_OK;
    }
    return td_error(TD_EARG, "interpolation %d is unknown", (int)i);
}

/* --- where to cut ---------------------------------------------------------------------------- */

static td_box centred(int width, int height, int w, int h)
{
    return (td_box){ .x = (width - w) / 2, .y = (height - h) / 2, .width = w, .height = h };
}

static double uniform(td_rng *r, double low, double high)
{
    return low + (high - low) * td_rng_uniform(r);
}

/* round half to even, never below 1 */
static int rounded(double x)
{
    double y = rint(x);
    return y < 1 ? 1 : (int)y;
}

td_box td_random_crop(td_rng *r, int width, int height)
{
    double area = (double)width * height;
    for (int i = 0; i < TRIES; i++) {
        double target = area * uniform(r, min_area, max_area);
        double ratio = exp(uniform(r, log(min_ratio), log(max_ratio)));
        double w = rint(sqrt(target * ratio)), h = rint(sqrt(target / ratio));
        if (w < 1 || w > width || h < 1 || h > height)
            continue;
        int y = (int)td_rng_below(r, (uint64_t)(height - (int)h + 1));
        int x = (int)td_rng_below(r, (uint64_t)(width - (int)w + 1));
        return (td_box){ .x = x, .y = y, .width = (int)w, .height = (int)h };
    }
    double in_ratio = (double)width / height;
    if (in_ratio < min_ratio)
        return centred(width, height, width, rounded(width / min_ratio));
    if (in_ratio > max_ratio)
        return centred(width, height, rounded(height * max_ratio), height);
    return centred(width, height, width, height);
}

void td_short_side(int width, int height, int to, int *out_width, int *out_height)
{
    int longer = width > height ? width : height, shorter = width > height ? height : width;
    int long_to = (int)((int64_t)to * longer / shorter);
    *out_width = width > height ? long_to : to;
    *out_height = width > height ? to : long_to;
}

td_box td_centre_crop(int width, int height, int size)
{
    return (td_box){ .x = (int)rint((width - size) / 2.0),
                     .y = (int)rint((height - size) / 2.0),
                     .width = size,
                     .height = size };
}

/* --- the two ways ---------------------------------------------------------------------------- */

/*
 * Cut `crop` (of the upright picture) out of what was decoded and resize it to S x S.  At scale 1
 * nothing outside the crop is seen, as when PIL crops before it resizes.  At a smaller scale the
 * crop has fractional edges and the pixels they fall into are kept.
 */
static td_status cut_and_size(td_transformer *w, const td_transform *t, td_box crop,
                              const td_decoded *at)
{
    double s = at->scale;
    double x0 = (crop.x - at->covers.x) / s, x1 = x0 + crop.width / s;
    double y0 = (crop.y - at->covers.y) / s, y1 = y0 + crop.height / s;
    x1 = fmin(x1, w->decoded.width);
    y1 = fmin(y1, w->decoded.height);
    td_box cut = { .x = (int)floor(x0), .y = (int)floor(y0) };
    cut.width = (int)ceil(x1) - cut.x;
    cut.height = (int)ceil(y1) - cut.y;

    const td_image *src = &w->decoded;
    if (cut.width != src->width || cut.height != src->height) {
        TD_TRY(td_image_crop(src, cut, &w->cut));
        src = &w->cut;
    }
    return td_image_resample(&w->resampler, src, x0 - cut.x, y0 - cut.y, x1 - x0, y1 - y0,
                             t->filter, t->size, t->size, &w->sized);
}

static bool turns_on_its_side(int orientation)
{
    return orientation >= 5;
}

static td_status train_row(td_transformer *w, const td_transform *t, const void *bytes,
                           size_t n_bytes, td_rng *r, float *dst)
{
    td_image_info info;
    TD_TRY(td_image_probe(bytes, n_bytes, &info));
    bool turns = !t->ignore_orientation && turns_on_its_side(info.orientation);
    int width = turns ? info.height : info.width, height = turns ? info.width : info.height;
    td_box crop = td_random_crop(r, width, height);
    bool flip = td_rng_uniform(r) < 0.5;

    bool is_big = crop.width >= 2 * t->size && crop.height >= 2 * t->size;
    td_decode_opts opts = { .ignore_orientation = t->ignore_orientation,
                            .region = crop,
                            .allow_scale = is_big && t->is_fast,
                            .out_size = t->size,
                            .scratch = &w->stored,
                            .is_fast = t->is_fast };
    td_decoded at;
    TD_TRY(td_image_decode(bytes, n_bytes, &opts, &w->decoded, &at));
    TD_TRY(cut_and_size(w, t, crop, &at));
    td_image_normalise(&w->sized, flip, dst);
    return TD_OK;
}

/* resize all of it, then cut: the order in which torchvision rounds */
static td_status size_and_cut(td_transformer *w, const td_transform *t, int width, int height)
{
    const td_image *sized = &w->decoded;
    if (width != sized->width || height != sized->height) {
        TD_TRY(td_image_resample(&w->resampler, &w->decoded, 0, 0, w->decoded.width,
                                 w->decoded.height, t->filter, width, height, &w->sized));
        sized = &w->sized;
    }
    return td_image_crop(sized, td_centre_crop(width, height, t->size), &w->cut);
}

static td_status eval_row(td_transformer *w, const td_transform *t, const void *bytes,
                          size_t n_bytes, float *dst)
{
    td_decode_opts opts = { .ignore_orientation = t->ignore_orientation, .scratch = &w->stored };
    TD_TRY(td_image_decode(bytes, n_bytes, &opts, &w->decoded, NULL));
    int width, height;
    td_short_side(w->decoded.width, w->decoded.height, t->size + t->padding, &width, &height);
    if ((int64_t)width * height <= SIZED_PIXELS_MAX) {
        TD_TRY(size_and_cut(w, t, width, height));
    } else {
        td_box crop = td_centre_crop(width, height, t->size);
        double sx = (double)w->decoded.width / width, sy = (double)w->decoded.height / height;
        TD_TRY(td_image_resample(&w->resampler, &w->decoded, crop.x * sx, crop.y * sy,
                                 crop.width * sx, crop.height * sy, t->filter, t->size, t->size,
                                 &w->cut));
    }
    td_image_normalise(&w->cut, false, dst);
    return TD_OK;
}

td_status td_transform_picture(td_transformer *w, const td_transform *t, const void *bytes,
                               size_t n_bytes, int64_t epoch, int64_t sample, float *dst)
{
    if (!t->is_training)
        return eval_row(w, t, bytes, n_bytes, dst);
    td_rng r = td_rng_make(t->seed, TD_RNG_CROP, (uint64_t)epoch, (uint64_t)sample);
    return train_row(w, t, bytes, n_bytes, &r, dst);
}

td_status td_transform_file(td_transformer *w, const td_transform *t, const char *path,
                            int64_t epoch, int64_t sample, float *dst)
{
    TD_TRY(td_transform_read(w, path));
    return td_transform_picture(w, t, w->bytes, w->n_bytes, epoch, sample, dst);
}
