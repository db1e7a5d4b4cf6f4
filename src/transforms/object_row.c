/*
 * object_row.c -- transforms an image with boxes for a detector
 *
 * The random numbers of a row depend on (seed, epoch, sample): one stream for the crop, one for
 * colours, so that --color-jitter changes no crop.
 */
#include "transforms/object_row.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "boxes/detector_rules.h"
#include "transforms/object_crop.h"

bool td_scene_is_stored(const td_scene *s, const td_image_info *info)
{
    bool turns = info->orientation >= 5;
    return turns && info->width != info->height && s->width == info->width &&
           s->height == info->height;
}

/* the input of a row */
typedef struct {
    td_transformer *w;
    const td_transform *t;
    const td_object_source *from;
    bool is_stored;    /* decode without applying the EXIF orientation */
    int width, height; /* size of the decoded image */
    td_rng place, colour;
    int n; /* ground truths in w->ground_truths */
} row;

static td_status probe_row(row *r)
{
    td_image_info info;
    const td_scene *s = &r->from->scene;
    TD_TRY(td_image_probe(r->from->bytes, r->from->n_bytes, &info));
    r->is_stored = r->t->stored_orientation || td_scene_is_stored(s, &info);
    td_image_size(&info, r->is_stored, &r->width, &r->height);
    TD_TRY(td_reserve(&r->w->ground_truths, &r->w->cap_ground_truths, (size_t)s->n + 1,
                      sizeof(td_ground_truth)));
    if (s->n > 0)
        memcpy(r->w->ground_truths, s->ground_truths, (size_t)s->n * sizeof(td_ground_truth));
    r->n = s->n;
    return TD_OK;
}

static void drop_crowds(row *r)
{
    td_ground_truth *all = r->w->ground_truths;
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (!all[i].is_crowd)
            all[n++] = all[i];
    r->n = n;
}

/* decodes `window` of the image into w->cut, mirrored if `flip` */
static td_status cut_out(row *r, td_box window, bool flip)
{
    td_decoded at;
    const td_decode_opts opts = { .stored_orientation = r->is_stored,
                                  .max_pixels = r->t->max_pixels,
                                  .max_scans = r->t->max_scans,
                                  .by_library = r->t->by_library,
                                  .region = window,
                                  .scratch = &r->w->stored,
                                  .is_fast = r->t->is_fast && r->t->is_training };
    TD_TRY(td_image_decode(r->from->bytes, r->from->n_bytes, &opts, &r->w->decoded, &at));
    const td_box inside = { .x = window.x - at.covers.x,
                            .y = window.y - at.covers.y,
                            .width = window.width,
                            .height = window.height };
    TD_TRY(td_image_crop(&r->w->decoded, inside, &r->w->cut));
    if (flip)
        td_image_flip(&r->w->cut);
    return TD_OK;
}

static double between(td_rng *r, double low, double high)
{
    return low + (high - low) * td_rng_uniform(r);
}

/* w->cut -> dst, without rounding to bytes: SSD320's resize, or that of torchvision's detectors */
static td_status size_values(row *r, const td_color_jitter *colours, float *dst)
{
    td_transformer *w = r->w;
    int size = r->t->size;
    size_t n = (size_t)size * (size_t)size;
    const td_sampling s = { .width = w->cut.width,
                            .height = w->cut.height,
                            .out_width = size,
                            .out_height = size,
                            .window = { .width = size, .height = size } };
    TD_TRY(td_reserve(&w->values, &w->cap_values, 3 * n, sizeof *w->values));
    TD_TRY(r->t->detector == TD_DETECTOR_SSD320
               ? td_image_sample_legacy(&w->taps, &w->cut, &s, w->values)
               : td_image_sample_linear(&w->taps, &w->cut, &s, w->values));
    if (colours)
        td_color_jitter_values(colours, w->values, n);
    td_values_normalise(w->values, size, size, 3, td_transform_norm(r->t), false, dst);
    return TD_OK;
}

/* --- SSD320 ----------------------------------------------------------------------------------- */

/* the ranges of TensorFlow's random_distort_color */
static td_color_jitter jitter(td_rng *r)
{
    double hue = between(r, -72, 72), saturation = between(r, 0.5, 1.5);
    double contrast = between(r, 0.5, 1.5), shift = between(r, -32, 32);
    return td_color_jitter_make(hue, saturation, contrast, 1, shift);
}

static td_status train_ssd320(row *r, float *dst)
{
    td_ground_truth *ground_truths = r->w->ground_truths;
    bool flip = td_rng_uniform(&r->place) > 0.5;
    if (flip)
        td_ground_truths_flip(ground_truths, r->n);
    td_box window = td_distorted_crop(&r->place, r->width, r->height, ground_truths, r->n);
    r->n = td_ground_truths_crop(ground_truths, r->n, window, r->width, r->height);
    if (flip)
        window.x = r->width - window.x - window.width; /* its position in the decoded image */
    TD_TRY(cut_out(r, window, flip));
    const td_color_jitter colours = jitter(&r->colour);
    return size_values(r, r->t->is_jittered ? &colours : NULL, dst);
}

/* --- SSD300 ----------------------------------------------------------------------------------- */

static td_status size_smooth(row *r, const td_color_jitter *colours, void *dst)
{
    td_transformer *w = r->w;
    int size = r->t->size;
    TD_TRY(td_image_resample(&w->resampler, &w->cut, 0, 0, w->cut.width, w->cut.height, TD_BILINEAR,
                             size, size, &w->sized));
    if (colours)
        td_color_jitter_image(colours, &w->sized);
    td_transform_row(r->t, &w->sized, false, dst);
    return TD_OK;
}

static td_color_jitter color_jitter(td_rng *r)
{
    double hue = between(r, -0.5, 0.5), saturation = between(r, 0.5, 1.5);
    double contrast = between(r, 0.5, 1.5), brightness = between(r, 0.875, 1.125);
    return td_color_jitter_make(hue, saturation, contrast, brightness, 0);
}

/* fractions -> whole pixels, at least one */
static td_box in_pixels(td_rect window, int width, int height)
{
    int x0 = (int)rint((double)window.xmin * width), x1 = (int)rint((double)window.xmax * width);
    int y0 = (int)rint((double)window.ymin * height), y1 = (int)rint((double)window.ymax * height);
    x1 = x1 > width ? width : x1;
    y1 = y1 > height ? height : y1;
    x0 = x0 >= x1 ? x1 - 1 : x0;
    y0 = y0 >= y1 ? y1 - 1 : y0;
    return (td_box){ .x = x0 < 0 ? 0 : x0,
                     .y = y0 < 0 ? 0 : y0,
                     .width = x1 - x0 < 1 ? 1 : x1 - x0,
                     .height = y1 - y0 < 1 ? 1 : y1 - y0 };
}

static td_status train_ssd300(row *r, void *dst)
{
    td_ground_truth *ground_truths = r->w->ground_truths;
    td_rect window = td_overlap_crop(&r->place, ground_truths, r->n);
    r->n = td_ground_truths_crop_centres(ground_truths, r->n, window);
    bool flip = td_rng_uniform(&r->place) < 0.5;
    if (flip)
        td_ground_truths_flip(ground_truths, r->n);
    TD_TRY(cut_out(r, in_pixels(window, r->width, r->height), flip));
    const td_color_jitter colours = color_jitter(&r->colour);
    return size_smooth(r, &colours, dst);
}

/* --- SSDLite, RetinaNet ----------------------------------------------------------------------- */

static td_status train_torch(row *r, float *dst)
{
    td_ground_truth *ground_truths = r->w->ground_truths;
    td_box window = { .width = r->width, .height = r->height };
    if (r->t->detector == TD_DETECTOR_SSDLITE) {
        window = td_torch_crop(&r->place, r->width, r->height, ground_truths, r->n);
        r->n = td_ground_truths_crop_centres(ground_truths, r->n,
                                             td_box_fraction(window, r->width, r->height));
    }
    const bool flip = td_rng_uniform(&r->place) < 0.5;
    if (flip)
        td_ground_truths_flip(ground_truths, r->n);
    TD_TRY(cut_out(r, window, flip));
    const td_color_jitter colours = color_jitter(&r->colour);
    return size_values(r, r->t->is_jittered ? &colours : NULL, dst);
}

/* --- all -------------------------------------------------------------------------------------- */

/* w->cut -> dst, without changes of colours */
static td_status size_plain(row *r, void *dst)
{
    return r->t->detector == TD_DETECTOR_SSD300 ? size_smooth(r, NULL, dst)
                                                : size_values(r, NULL, dst);
}

static td_status train(row *r, void *dst)
{
    if (r->t->detector == TD_DETECTOR_SSD300)
        return train_ssd300(r, dst);
    return r->t->detector == TD_DETECTOR_SSD320 ? train_ssd320(r, dst) : train_torch(r, dst);
}

td_status td_object_row(td_transformer *w, const td_transform *t, const td_object_source *from,
                        void *dst, int *n)
{
    uint64_t e = (uint64_t)from->epoch, s = (uint64_t)from->sample;
    row r = { .w = w,
              .t = t,
              .from = from,
              .place = td_rng_make(t->seed, TD_RNG_CROP, e, s),
              .colour = td_rng_make(t->seed, TD_RNG_AUGMENT, e, s) };
    TD_TRY(probe_row(&r));
    if (t->is_training) {
        if (td_detector_rules_of(t->detector)->drops_crowds)
            drop_crowds(&r);
        TD_TRY(train(&r, dst));
    } else {
        TD_TRY(cut_out(&r, (td_box){ .width = r.width, .height = r.height }, false));
        TD_TRY(size_plain(&r, dst));
    }
    *n = r.n;
    return TD_OK;
}

td_status td_object_pixels(td_transformer *w, const td_transform *t, const td_pixels *px, void *dst)
{
    row r = { .w = w, .t = t };
    TD_TRY(td_image_set(&w->cut, px));
    return size_plain(&r, dst);
}
