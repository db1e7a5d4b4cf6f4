/*
 * augment.c -- transforms an image file into a row of a batch
 *
 * The scaled decoder makes large images cheap: a JPEG block can be decoded to 4 x 4, 2 x 2 or 1 x 1
 * pixels instead of 8 x 8.  Training uses it if the crop is at least twice the output on both
 * sides, so that resizing still shrinks (or keeps) the decoded pixels.
 *
 *     upright image          covers (decoded, 1/scale)         cut            sized
 *     +----------------+       +----------+                      +------+       +----+
 *     |   +------+     |  -->  | +------+ |                 -->  |      |  -->  |    |
 *     |   | crop |     |       | |      | |                      +------+       +----+
 *     |   +------+     |       +----------+
 *     +----------------+
 *
 * Without antialiasing no reduced decoding is used: the whole crop is decoded and sampled.  DALI's
 * filters read pixels around the crop too, so a few more are decoded.
 */
#include "transforms/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "transforms/autoaugment.h"

enum {
    AROUND = 2, /* pixels around the crop that a cubic filter reads */
    FILE_BYTES_MAX = 256 << 20,
    SIZED_PIXELS_MAX =
        16 << 20 /* beyond it only the crop is resized: a 1 x 60000 strip grows 256-fold */
};

void td_transformer_release(td_transformer *w)
{
    td_free(w->bytes);
    td_free(w->packed.bytes);
    td_image_release(&w->stored);
    td_image_release(&w->decoded);
    td_image_release(&w->cut);
    td_image_release(&w->sized);
    td_resampler_release(&w->resampler);
    td_taps_release(&w->taps);
    td_free(w->values);
    td_free(w->ground_truths);
    td_free(w->scratch);
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
    case TD_INTERPOLATE_TRIANGULAR: /* PIL's "bilinear" is triangular */
        *out = TD_BILINEAR;
        return TD_OK;
    case TD_INTERPOLATE_BICUBIC:
        *out = TD_BICUBIC;
        return TD_OK;
    }
    return td_error(TD_EARG, "interpolation %d is unknown", (int)i);
}

/* "0.4,0.4,0.4,0": brightness, contrast, saturation, hue */
static td_status parse_jitter(const char *text, double out[TD_JITTERS])
{
    const char *at = text;
    for (int i = 0; i < TD_JITTERS; i++) {
        char *end;
        out[i] = strtod(at, &end);
        const double most = i == TD_JITTERS - 1 ? 0.5 : 100;
        if (end == at || *end != (i == TD_JITTERS - 1 ? '\0' : ',') ||
            !(out[i] >= 0 && out[i] <= most))
            return td_error(TD_EUSAGE,
                            "jitter strength '%.60s', wanted brightness, contrast, saturation "
                            "(0 to 100) and hue (0 to 0.5), for example 0.4,0.4,0.4,0.1",
                            text);
        at = end + 1;
    }
    return TD_OK;
}

/* timm's RandAugment instead of torchvision's augmentations */
static td_status choose_timm(td_transform *t, const td_loader_opts *o)
{
    const char *other = o->auto_augment  ? "--auto-augment"
                        : o->autoaugment ? "--augmentation autoaugment"
                                         : NULL;
    if (!o->timm_augment)
        return TD_OK;
    TD_TRY_MSG(td_timm_rule_parse(o->timm_augment, &t->timm), "--aa");
    if (other)
        return td_error(TD_EUSAGE, "--aa and %s exclude each other", other);
    if (o->crop == TD_RULES_TF)
        return td_error(TD_EUSAGE, "--crop tf and --aa exclude each other: the operations require "
                                   "8-bit images");
    return TD_OK;
}

/* the interpolation of training images */
static td_status choose_train_filter(td_transform *t, const td_loader_opts *o)
{
    const td_train_interpolation i = o->train_interpolation;
    if ((unsigned)i > TD_TRAIN_INTERPOLATE_RANDOM)
        return td_error(TD_EARG, "interpolation %d of training images is unknown", (int)i);
    if (!o->is_training || i == TD_TRAIN_INTERPOLATE_SAME)
        return TD_OK;
    if (o->crop == TD_RULES_TF)
        return td_error(TD_EUSAGE, "--crop tf and --train-interpolation exclude each other: its "
                                   "resize is bilinear");
    t->filter = i == TD_TRAIN_INTERPOLATE_BICUBIC ? TD_BICUBIC : TD_BILINEAR;
    t->is_filter_drawn = i == TD_TRAIN_INTERPOLATE_RANDOM;
    return TD_OK;
}

/* what is done to training images after crop and flip */
static td_status choose_changes(td_transform *t, const td_loader_opts *o)
{
    enum { OPS = 2, BINS = 31 };
    if (!o->is_training)
        return TD_OK;
    TD_TRY(choose_timm(t, o));
    const td_rand_rule rule = { .kind = o->auto_augment,
                                .n_ops = o->ra_ops ? o->ra_ops : OPS,
                                .bins = o->augment_bins ? o->augment_bins : BINS,
                                .magnitude = o->ra_magnitude };
    if ((unsigned)rule.kind > TD_AUTO_AUGMENT_TA_WIDE || rule.n_ops < 1 ||
        rule.n_ops > TD_RAND_MAX || rule.bins < 2 || rule.bins > TD_RAND_BINS_MAX)
        return td_error(TD_EARG, "augmentation %d of %d operations and %d strengths",
                        (int)rule.kind, rule.n_ops, rule.bins);
    if (rule.kind == TD_AUTO_AUGMENT_RA && (rule.magnitude < 0 || rule.magnitude >= rule.bins))
        return td_error(TD_EUSAGE, "--ra-magnitude %d, wanted 0 to %d, less than --augment-bins",
                        rule.magnitude, rule.bins - 1);
    if (rule.kind && o->autoaugment)
        return td_error(TD_EUSAGE,
                        "--auto-augment and --augmentation autoaugment exclude each other");
    if (rule.kind && o->crop == TD_RULES_TF)
        return td_error(TD_EUSAGE, "--crop tf and --auto-augment exclude each other: the "
                                   "operations require 8-bit images");
    if (o->color_jitter && !o->detector && o->crop == TD_RULES_TF)
        return td_error(TD_EUSAGE, "--crop tf and --color-jitter exclude each other: it requires "
                                   "8-bit images");
    if (!(o->random_erase >= 0 && o->random_erase <= 1))
        return td_error(TD_EARG, "random erasing with probability %g", o->random_erase);
    if (!o->detector && o->color_jitter)
        TD_TRY(parse_jitter(o->jitter_strength ? o->jitter_strength : "0.4,0.4,0.4,0", t->jitter));
    t->is_jittered = o->color_jitter;
    t->rand = rule;
    t->erase = o->random_erase;
    return TD_OK;
}

static td_status check_norm(const td_loader_opts *o)
{
    for (int c = 0; c < 3 && o->norm.std[0] != 0; c++)
        if (!(o->norm.std[c] > 0 && o->norm.std[c] <= 255 && o->norm.mean[c] >= 0 &&
              o->norm.mean[c] <= 255))
            return td_error(TD_EARG, "normalization by mean %g and deviation %g",
                            (double)o->norm.mean[c], (double)o->norm.std[c]);
    if (o->channels == 1 && o->normalization != TD_NORMALIZE_TORCH)
        return td_error(TD_EUSAGE, "--normalization tf requires images of 3 channels: use --mean "
                                   "and --std for gray images");
    if (o->norm.std[0] != 0 && o->normalization != TD_NORMALIZE_TORCH)
        return td_error(TD_EUSAGE, "--normalization tf and a mean and deviation, given or of the "
                                   "weight file, exclude each other");
    return TD_OK;
}

td_status td_transform_choose(td_transform *t, const td_loader_opts *o)
{
    bool is_triangular = o->interpolation == TD_INTERPOLATE_TRIANGULAR;
    TD_TRY(td_filter_of(o->interpolation, &t->filter));
    if ((unsigned)o->crop > TD_RULES_TF || (unsigned)o->normalization > TD_NORMALIZE_TF)
        return td_error(TD_EARG, "crop rules %d or normalization %d are unknown", (int)o->crop,
                        (int)o->normalization);
    TD_TRY(check_norm(o));
    if (o->antialias && o->point_sampled)
        return td_error(TD_EUSAGE, "--antialias and --no-antialias exclude each other");
    if (is_triangular && o->point_sampled)
        return td_error(
            TD_EUSAGE,
            "--interpolation triangular and --no-antialias exclude each other: triangular always "
            "antialiases");
    if (o->crop == TD_RULES_TF && (o->interpolation != TD_INTERPOLATE_BILINEAR || o->antialias))
        return td_error(TD_EUSAGE,
                        "--crop tf requires --interpolation bilinear without antialiasing");
    if (o->crop == TD_RULES_TF && o->autoaugment && o->is_training)
        return td_error(
            TD_EUSAGE,
            "--crop tf and autoaugment exclude each other: autoaugment requires 8-bit images");
    TD_TRY(choose_train_filter(t, o));
    TD_TRY(choose_changes(t, o));
    t->rules = o->crop == TD_RULES_AUTO ? TD_RULES_TORCHVISION : o->crop;
    t->is_point = o->point_sampled || (o->crop == TD_RULES_DALI && !is_triangular && !o->antialias);
    t->is_tf_norm = o->normalization == TD_NORMALIZE_TF;
    t->norm = o->norm;
    t->channels = o->channels;
    t->is_autoaugmented = o->autoaugment && o->is_training;
    return TD_OK;
}

/* --- crop then resize, resize then crop ------------------------------------------------------- */

/*
 * Cut `crop` (of the upright image) out of the decoded pixels and resize it to S x S.  At scale 1
 * no pixel outside the crop is read, like in PIL, which crops before it resizes.  At a smaller
 * scale the crop has fractional edges, and the pixels at the edges contribute.
 */
static td_status crop_and_resize(td_transformer *w, const td_transform *t, td_box crop,
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

static bool is_legacy(const td_transform *t)
{
    return t->rules == TD_RULES_TF;
}

bool td_transform_gives_bytes(const td_transform *t)
{
    return t->detector ? t->detector == TD_DETECTOR_SSD300 : !is_legacy(t) && t->erase == 0;
}

const td_norm *td_transform_norm(const td_transform *t)
{
    if (t->detector)
        return td_norm_of_detector(t->detector);
    if (t->norm.std[0] > 0)
        return &t->norm;
    return t->is_tf_norm ? &td_norm_tf : td_norm_of_channels(td_transform_channels(t));
}

void td_transform_row(const td_transform *t, td_image *img, bool flip, void *dst)
{
    const size_t n = (size_t)img->width * (size_t)img->height;
    const bool is_gray = td_transform_channels(t) == 1;
    if (!t->as_bytes) {
        (is_gray ? td_image_normalise_gray : td_image_normalise_by)(img, td_transform_norm(t), flip,
                                                                    dst);
        return;
    }
    if (flip)
        td_image_flip(img);
    if (!is_gray)
        memcpy(dst, img->px, 3 * n);
    for (size_t i = 0; is_gray && i < n; i++)
        ((uint8_t *)dst)[i] = img->px[3 * i];
}

void td_transform_normalise(const td_transform *t, const uint8_t *row, float *dst)
{
    const td_norm *norm = td_transform_norm(t);
    const td_image image = { .px = (uint8_t *)(uintptr_t)row, .width = t->size, .height = t->size };
    if (td_transform_channels(t) == 3)
        td_image_normalise_by(&image, norm, false, dst);
    else
        for (size_t i = 0; i < td_transform_values(t); i++)
            dst[i] = ((float)row[i] - norm->mean[0]) / norm->std[0];
}

static td_status size_legacy(td_transformer *w, const td_transform *t, const td_sampling *s,
                             bool flip, float *dst)
{
    size_t n = 3 * (size_t)t->size * (size_t)t->size;
    TD_TRY(td_reserve(&w->values, &w->cap_values, n, sizeof *w->values));
    TD_TRY(td_image_sample_legacy(&w->taps, &w->decoded, s, w->values));
    td_values_normalise(w->values, t->size, t->size, td_transform_channels(t), td_transform_norm(t),
                        flip, dst);
    return TD_OK;
}

static bool swaps_sides(int orientation)
{
    return orientation >= 5;
}

/* the crop and the pixels around it that a filter reads */
static td_box region_of(const td_transform *t, td_box crop, int width, int height)
{
    if (!t->is_point || t->rules != TD_RULES_DALI)
        return crop;
    int x0 = crop.x > AROUND ? crop.x - AROUND : 0, y0 = crop.y > AROUND ? crop.y - AROUND : 0;
    int x1 = crop.x + crop.width + AROUND, y1 = crop.y + crop.height + AROUND;
    x1 = x1 > width ? width : x1;
    y1 = y1 > height ? height : y1;
    return (td_box){ .x = x0, .y = y0, .width = x1 - x0, .height = y1 - y0 };
}

/* resizes the crop, decoded at full size, to S x S */
static td_sampling sampling_of(const td_transform *t, td_box crop, const td_decoded *at)
{
    return (td_sampling){ .x = crop.x - at->covers.x,
                          .y = crop.y - at->covers.y,
                          .width = crop.width,
                          .height = crop.height,
                          .out_width = t->size,
                          .out_height = t->size,
                          .window = { .width = t->size, .height = t->size } };
}

/* resizes the crop to S x S bytes without antialiasing */
static td_status sample_crop(td_transformer *w, const td_transform *t, td_box crop,
                             const td_decoded *at)
{
    td_sampling s = sampling_of(t, crop, at);
    if (t->rules == TD_RULES_DALI)
        return td_image_sample(&w->taps, &w->decoded, &s, t->filter, &w->sized);
    TD_TRY(td_image_crop(&w->decoded, (td_box){ (int)s.x, (int)s.y, crop.width, crop.height },
                         &w->cut));
    s.x = s.y = 0;
    return td_image_sample(&w->taps, &w->cut, &s, t->filter, &w->sized);
}

static td_status size_crop_legacy(td_transformer *w, const td_transform *t, td_box crop,
                                  const td_decoded *at, bool flip, float *dst)
{
    td_sampling s = sampling_of(t, crop, at);
    return size_legacy(w, t, &s, flip, dst);
}

static void to_channels(td_transformer *w, const td_transform *t)
{
    if (td_transform_channels(t) == 1)
        td_image_to_gray(&w->decoded);
}

static td_status decode(td_transformer *w, const td_transform *t, const void *bytes, size_t n_bytes,
                        const td_decode_opts *opts, td_decoded *at)
{
    TD_TRY(td_image_decode(bytes, n_bytes, opts, &w->decoded, at));
    to_channels(w, t);
    return TD_OK;
}

/* the random choices: crop, flip and changes */
typedef struct {
    td_rng *crop;
    td_autoaugment change;
    td_rand_augment rand;
    td_timm_augment timm;
    td_color_changes colours;
    td_box erased;
} chance;

/* the color of pixels that timm's operations uncover: the mean, rounded */
static void fill_of(const td_transform *t, uint8_t fill[3])
{
    const td_norm *norm = td_transform_norm(t);
    const bool is_gray = td_transform_channels(t) == 1;
    for (int c = 0; c < 3; c++)
        fill[c] = (uint8_t)rint((double)norm->mean[is_gray ? 0 : c]);
}

static td_status change_image(td_transformer *w, const td_transform *t, const chance *random)
{
    uint8_t fill[3];
    fill_of(t, fill);
    if (t->is_autoaugmented)
        TD_TRY(td_autoaugment_apply(&random->change, &w->sized, &w->cut));
    if (t->rand.kind)
        TD_TRY(td_rand_augment_apply(&random->rand, t->filter, &w->sized, &w->cut));
    TD_TRY(td_timm_apply(&random->timm, fill, &w->sized, &w->cut));
    if (t->is_jittered)
        TD_TRY(td_color_changes_apply(&random->colours, t->jitter, &w->sized, &w->cut));
    return TD_OK;
}

static td_status train_row(td_transformer *w, const td_transform *t, const void *bytes,
                           size_t n_bytes, const chance *random, void *dst)
{
    td_image_info info;
    TD_TRY(td_image_probe(bytes, n_bytes, &info));
    bool turns = !t->stored_orientation && swaps_sides(info.orientation);
    int width = turns ? info.height : info.width, height = turns ? info.width : info.height;
    td_box crop = td_random_crop(t->rules, random->crop, width, height);
    bool flip = td_rng_uniform(random->crop) < 0.5;

    bool is_big = crop.width >= 2 * t->size && crop.height >= 2 * t->size;
    bool sees_all = t->is_point || is_legacy(t);
    td_decode_opts opts = { .stored_orientation = t->stored_orientation,
                            .region = region_of(t, crop, width, height),
                            .allow_scale = is_big && t->is_fast && !sees_all,
                            .out_size = t->size,
                            .scratch = &w->stored,
                            .is_fast = t->is_fast };
    td_decoded at;
    TD_TRY(decode(w, t, bytes, n_bytes, &opts, &at));
    if (is_legacy(t))
        return size_crop_legacy(w, t, crop, &at, flip, dst);
    TD_TRY(t->is_point ? sample_crop(w, t, crop, &at) : crop_and_resize(w, t, crop, &at));
    if (t->is_autoaugmented || t->rand.kind || t->timm.n_ops || t->is_jittered) {
        if (flip)
            td_image_flip(&w->sized);
        flip = false;
        TD_TRY(change_image(w, t, random));
    }
    td_transform_row(t, &w->sized, flip, dst);
    return TD_OK;
}

/* resizes the whole image, then crops: torchvision's order of rounding */
static td_status resize_and_crop(td_transformer *w, const td_transform *t, int width, int height)
{
    const td_image *sized = &w->decoded;
    if (width != sized->width || height != sized->height) {
        TD_TRY(td_image_resample(&w->resampler, &w->decoded, 0, 0, w->decoded.width,
                                 w->decoded.height, t->filter, width, height, &w->sized));
        sized = &w->sized;
    }
    return td_image_crop(sized, td_centre_crop(t->rules, width, height, t->size), &w->cut);
}

/* the same, if the resized image would be huge: resizes only the crop */
static td_status resize_crop(td_transformer *w, const td_transform *t, int width, int height)
{
    td_box crop = td_centre_crop(t->rules, width, height, t->size);
    double sx = (double)w->decoded.width / width, sy = (double)w->decoded.height / height;
    return td_image_resample(&w->resampler, &w->decoded, crop.x * sx, crop.y * sy, crop.width * sx,
                             crop.height * sy, t->filter, t->size, t->size, &w->cut);
}

/* w->decoded -> dst */
static td_status eval_decoded(td_transformer *w, const td_transform *t, void *dst)
{
    int width, height;
    td_short_side(t->rules, w->decoded.width, w->decoded.height, t->size + t->padding, t->size,
                  &width, &height);
    td_sampling s = { .width = w->decoded.width,
                      .height = w->decoded.height,
                      .out_width = width,
                      .out_height = height,
                      .window = td_centre_crop(t->rules, width, height, t->size) };
    if (is_legacy(t))
        return size_legacy(w, t, &s, false, dst);
    if (t->is_point)
        TD_TRY(td_image_sample(&w->taps, &w->decoded, &s, t->filter, &w->cut));
    else if ((int64_t)width * height <= SIZED_PIXELS_MAX)
        TD_TRY(resize_and_crop(w, t, width, height));
    else
        TD_TRY(resize_crop(w, t, width, height));
    td_transform_row(t, &w->cut, false, dst);
    return TD_OK;
}

static td_status eval_row(td_transformer *w, const td_transform *t, const void *bytes,
                          size_t n_bytes, void *dst)
{
    td_decode_opts opts = { .stored_orientation = t->stored_orientation,
                            .max_pixels = t->max_pixels,
                            .max_scans = t->max_scans,
                            .by_library = t->by_library,
                            .scratch = &w->stored };
    TD_TRY(decode(w, t, bytes, n_bytes, &opts, NULL));
    return eval_decoded(w, t, dst);
}

td_status td_transform_pixels(td_transformer *w, const td_transform *t, const td_pixels *px,
                              void *dst)
{
    TD_TRY(td_image_set(&w->decoded, px));
    to_channels(w, t);
    return eval_decoded(w, t, dst);
}

/* each from its own stream, so that crops do not depend on the others */
static void draw_changes(const td_transform *t, int64_t epoch, int64_t sample, chance *random)
{
    const uint64_t a = (uint64_t)epoch, b = (uint64_t)sample;
    td_rng augment = td_rng_make(t->seed, TD_RNG_AUGMENT, a, b);
    if (t->is_autoaugmented)
        random->change = td_autoaugment_draw(&augment);
    if (t->rand.kind)
        random->rand = td_rand_augment_draw(&t->rand, t->size, &augment);
    if (t->timm.n_ops)
        random->timm = td_timm_draw(&t->timm, t->is_filter_drawn ? NULL : &t->filter, &augment);
    td_rng jitter = td_rng_make(t->seed, TD_RNG_JITTER, a, b);
    if (t->is_jittered)
        random->colours = td_color_changes_draw(t->jitter, &jitter);
    td_rng erase = td_rng_make(t->seed, TD_RNG_ERASE, a, b);
    if (t->erase > 0)
        random->erased = td_random_erase_draw(t->erase, t->size, &erase);
}

/* the filter of an image, where it is drawn */
static td_filter drawn_filter(const td_transform *t, int64_t epoch, int64_t sample)
{
    td_rng r = td_rng_make(t->seed, TD_RNG_FILTER, (uint64_t)epoch, (uint64_t)sample);
    if (!t->is_filter_drawn)
        return t->filter;
    return td_rng_below(&r, 2) == 0 ? TD_BILINEAR : TD_BICUBIC;
}

td_status td_transform_image(td_transformer *w, const td_transform *t, const void *bytes,
                             size_t n_bytes, int64_t epoch, int64_t sample, void *dst)
{
    if (!t->is_training)
        return eval_row(w, t, bytes, n_bytes, dst);
    td_rng r = td_rng_make(t->seed, TD_RNG_CROP, (uint64_t)epoch, (uint64_t)sample);
    chance random = { .crop = &r };
    td_transform of_image = *t;
    of_image.filter = drawn_filter(t, epoch, sample);
    draw_changes(t, epoch, sample, &random);
    TD_TRY(train_row(w, &of_image, bytes, n_bytes, &random, dst));
    if (random.erased.width)
        td_random_erase_apply(random.erased, t->size, td_transform_channels(t), dst);
    return TD_OK;
}

td_status td_transform_file(td_transformer *w, const td_transform *t, const char *path,
                            int64_t epoch, int64_t sample, void *dst)
{
    TD_TRY(td_transform_read(w, path));
    return td_transform_image(w, t, w->bytes, w->n_bytes, epoch, sample, dst);
}
