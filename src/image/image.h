/*
 * image/image.h -- decodes, transforms, draws and encodes 8-bit RGB images
 *
 * The decoder is selected by the content, not by the name: JPEG (gray, YCbCr, RGB, CMYK, YCCK,
 * progressive, EXIF-rotated), PNG (gray, palette, alpha, 8 and 16 bit, interlaced), WebP, TIFF
 * (first image), GIF (first frame) and BMP become 8-bit RGB.  Limits are checked before decoding:
 * dimensions, pixels and progressive scans.
 *
 *     td_image img = { 0 };
 *     TD_OUT(td_image_decode(bytes, n, &(td_decode_opts){ 0 }, &img));
 *     ... img.px[(y * img.width + x) * 3 + channel] ...
 *     td_image_release(&img);
 *
 * A td_image can be reused: decoding into it again keeps its buffer if that is large enough, so a
 * worker stops allocating after its largest image.
 */
#ifndef TD_IMAGE_IMAGE_H
#define TD_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "base/text.h"
#include "tandem/types.h"

/**
 * 8-bit RGB, rows without padding.  All zero is a valid empty image.  Allocate pixels with
 * td_image_resize_buffer, which adds padding after them that vector loads may read.
 */
typedef struct {
    uint8_t *px; /* [height, width, 3], owned */
    int width, height;
    size_t cap_bytes;
} td_image;

void td_image_release(td_image *img);

/**
 * Set the size; the content is undefined.  TD_EARG a side below 1; TD_ELIMIT too large;
 * TD_ENOMEM.  On failure the image is unchanged.
 */
TD_CHECKED td_status td_image_resize_buffer(td_image *img, int width, int height);

/** Pixels of a caller: 8-bit RGB [height, width, 3], rows `row_bytes` apart; 0: 3 * width. */
typedef struct {
    const uint8_t *rgb;
    int width, height;
    size_t row_bytes;
} td_pixels;

/** Copy pixels into *img.  TD_EARG row_bytes below 3 * width; errors of td_image_resize_buffer. */
TD_CHECKED td_status td_image_set(td_image *img, const td_pixels *px);

/** A box in pixels of the upright image. */
typedef struct {
    int x, y, width, height;
} td_box;

/** The properties from a file's header. */
typedef struct {
    int width, height;  /* as stored */
    int orientation;    /* EXIF 1 .. 8; from 5 on the upright image has width and height exchanged;
                            1 when there is none or it is invalid */
    const char *format; /* "JPEG", "PNG", "WebP", "TIFF", "GIF" or "BMP" */
    const char
        *colour; /* "gray", "YCbCr", "CMYK", "YCCK", "RGB", "palette", "gray+alpha", "RGBA" */
    int bits;    /* per sample */
    bool is_progressive; /* or interlaced */
} td_image_info;

typedef struct {
    int64_t max_pixels;      /* 0: 178,956,970, above which PIL warns of a decompression bomb */
    int max_scans;           /* limit for a JPEG; 0: 500 */
    bool by_library;         /* JPEG by libjpeg alone; the pixels are the same */
    bool stored_orientation; /* leave EXIF-rotated images as stored, as torchvision does */
    /* Decode at least this region of the upright image.  All zero: everything.  Unless scaled, its
       pixels are bit-equal to those of the whole image.  If allow_scale is set, a JPEG may be
       decoded at 1/2, 1/4 or 1/8 of its size, but with at least out_size pixels for the region's
       shorter side. */
    td_box region;
    bool allow_scale;
    int out_size;
    td_image *scratch; /* buffer for an image before it is turned upright; NULL: a new one */
    bool is_fast;      /* JPEG: nearest-sample chroma upsampling is allowed */
} td_decode_opts;

/**
 * Position of the decoded pixels: the pixels are the box `covers` of the full upright image at
 * 1/scale.  covers is exactly `scale` times as wide and high as the pixels; when scaled, the last
 * column or row may be partial and covers then extends up to scale - 1 pixels past the image's edge
 * (before it, when an orientation mirrors).  So the box b of the full image is in the pixels at
 * ((b.x - covers.x) / scale, (b.y - covers.y) / scale).
 */
typedef struct {
    int full_width, full_height; /* upright, unscaled */
    td_box covers;
    int scale; /* 1, 2, 4 or 8 */
} td_decoded;

#define TD_IMAGE_FORMATS "JPEG, PNG, WebP, TIFF, GIF or BMP"

enum { TD_IMAGE_HEAD_BYTES = 18 };

/** Do the first bytes of a file look like those of a format that td_image_decode reads? */
bool td_image_is_head(const void *bytes, size_t n_bytes);

/**
 * Read a header.  TD_EFORMAT none of the formats (the message names what it looks like: empty,
 * text, HTML, AVIF, ...), or damaged; TD_EUNSUPPORTED lossless, arithmetic or 12-bit JPEG if the
 * library lacks them, a TIFF or BMP of an unusual kind; TD_ELIMIT too large.
 */
TD_CHECKED td_status td_image_probe(const void *bytes, size_t n_bytes, td_image_info *out);

/** The size of the decoded image: upright, or with `stored_orientation` as stored. */
void td_image_size(const td_image_info *info, bool stored_orientation, int *width, int *height);

/**
 * Decode to RGB, bit for bit as PIL's convert("RGB") of the same file.  CMYK is converted like in
 * PIL: it is taken as inverted whether or not Adobe wrote it, then r = (255-c)(255-k)/255.  Alpha
 * is dropped without blending; 16-bit samples keep their upper 8 bits.  `where` may be NULL.
 *
 * TD_EFORMAT as td_image_probe, and for an image that ends early or has damaged pixels, with the
 * library's message and the position ("byte 1032 of 4096"); it never returns a partly grey image;
 * outside a region only the end is checked.  TD_ELIMIT more than max_pixels or more than max_scans.
 * TD_EARG a region outside the image.  TD_EUNSUPPORTED as td_image_probe.  TD_ENOMEM.
 * On failure *out may have incomplete content or a new size, but remains valid.
 */
TD_CHECKED td_status td_image_decode(const void *bytes, size_t n_bytes, const td_decode_opts *opts,
                                     td_image *out, td_decoded *where);

/**
 * JPEG, quality 1 .. 100, 4:2:0 unless `quality` >= 95; appended to *out.  TD_EARG another quality,
 * or an image that is empty or too large (65,500 a side); TD_ENOMEM.
 */
TD_CHECKED td_status td_image_encode_jpeg(const td_image *img, int quality, td_text *out);

/** PNG, 8-bit RGB; appended to *out.  TD_EARG empty image; TD_ENOMEM. */
TD_CHECKED td_status td_image_encode_png(const td_image *img, td_text *out);

/* --- resampling ------------------------------------------------------------------------------- */

typedef enum { TD_BILINEAR, TD_BICUBIC } td_filter;

/** Buffers and coefficient tables kept between calls; one per thread.  All zero is valid. */
typedef struct td_resampler {
    void *impl;
} td_resampler;

void td_resampler_release(td_resampler *r);

/**
 * Resample `box` (fractional edges allowed) of src to out_width x out_height, antialiased when
 * shrinking, exactly as PIL's Image.resize(size, filter, box) computes it: two passes, horizontal
 * first, fixed-point coefficients with 22 bits, 8-bit intermediate.  Bit-equal to PIL 9 .. 12.
 * (PIL 13 differs by 1 in some pixels if it runs the vertical pass first.)  `src` and `out` must be
 * different images.  TD_EARG an empty box or one that leaves src, a size below 1; TD_ELIMIT;
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_image_resample(td_resampler *r, const td_image *src, double box_x,
                                       double box_y, double box_width, double box_height,
                                       td_filter filter, int out_width, int out_height,
                                       td_image *out);

/* Resizing without antialiasing: a grid of out_width x out_height points over a box of the image;
   only `window` of the result is computed. */
typedef struct {
    double x, y, width, height; /* the box, pixels of the source; may have fractional edges */
    int out_width, out_height;
    td_box window; /* of the result */
} td_sampling;

/** A table kept between calls; one per thread.  All zero is valid. */
typedef struct {
    void *impl;
    size_t cap;
} td_taps;

void td_taps_release(td_taps *t);

/**
 * Interpolate at the centre of each grid cell between two (linear) or four (cubic) pixels per axis,
 * rounded to bytes: DALI's resize without antialiasing.  Pixels outside the box contribute.
 * TD_EARG a box or window that leaves its image; TD_ELIMIT; TD_ENOMEM.
 */
TD_CHECKED td_status td_image_sample(td_taps *taps, const td_image *src, const td_sampling *s,
                                     td_filter filter, td_image *out);

/**
 * TensorFlow 1's bilinear resize: the grid starts at the box's first pixel, not half a cell after
 * it; pixels outside the box do not contribute; no rounding.  The box has integer edges.
 * dst is [window.height, window.width, 3] on the scale 0 .. 255.  Errors as above.
 */
TD_CHECKED td_status td_image_sample_legacy(td_taps *taps, const td_image *src,
                                            const td_sampling *s, float *dst);

/**
 * Interpolate linearly at the centre of each grid cell; pixels outside the box do not contribute;
 * no rounding: PyTorch's interpolate(mode="bilinear").  dst as above.  Errors as above.
 */
TD_CHECKED td_status td_image_sample_linear(td_taps *taps, const td_image *src,
                                            const td_sampling *s, float *dst);

/** Mirror left to right, in place. */
void td_image_flip(td_image *img);

/**
 * Cut `box` out of src (all zero: all of it); src and out must be different images.  TD_EARG a box
 * that leaves src; TD_ENOMEM.
 */
TD_CHECKED td_status td_image_crop(const td_image *src, td_box box, td_image *out);

/* --- augmentation ----------------------------------------------------------------------------- */

/* Operations in this order: geometry, blends of two images, tables of values. */
typedef enum {
    TD_AUGMENT_SHEAR_X, /* amount: pixels per row (column) ... */
    TD_AUGMENT_SHEAR_Y,
    TD_AUGMENT_TRANSLATE_X, /* ... whole pixels, to the left (up) ... */
    TD_AUGMENT_TRANSLATE_Y,
    TD_AUGMENT_ROTATE, /* ... degrees counterclockwise, above -360 and below 360 */
    TD_AUGMENT_COLOR,  /* 0: grey, 1: unchanged, above: stronger */
    TD_AUGMENT_CONTRAST,
    TD_AUGMENT_BRIGHTNESS,
    TD_AUGMENT_SHARPNESS,
    TD_AUGMENT_POSTERIZE,    /* upper bits kept, 0 .. 8 */
    TD_AUGMENT_SOLARIZE,     /* values from here on are inverted */
    TD_AUGMENT_SOLARIZE_ADD, /* added to values below 128 */
    TD_AUGMENT_AUTOCONTRAST, /* these have no amount */
    TD_AUGMENT_EQUALIZE,
    TD_AUGMENT_INVERT,
    TD_AUGMENT_OPS
} td_augment_op;

/**
 * Change the image as PIL does (ImageOps, ImageEnhance; Image.transform with BICUBIC for shears,
 * NEAREST otherwise), bit for bit; uncovered pixels become 128.  `scratch` is another image, whose
 * buffer may be exchanged with img's.  TD_EARG an empty image, an amount out of range; TD_ENOMEM.
 */
TD_CHECKED td_status td_image_augment(td_image *img, td_augment_op op, double amount,
                                      td_image *scratch);

/**
 * Affine transform as PIL's Image.transform(size, AFFINE, m): the output pixel (x, y) is the input
 * at (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]), bit for bit; uncovered pixels have the color
 * `fill` [3], black if it is NULL.  TD_EARG an empty image, a number that is not within 1e9;
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_image_affine(const td_image *img, const double m[6], td_filter filter,
                                     const uint8_t *fill, td_image *out);

/** As Image.rotate: counterclockwise around the centre, above -360 and below 360.  As above. */
TD_CHECKED td_status td_image_rotate(const td_image *img, double degrees, td_filter filter,
                                     const uint8_t *fill, td_image *out);

/**
 * Add `shift` to the hue of each pixel in HSV, bytes that wrap around, as torchvision's adjust_hue
 * of a PIL image with int(factor * 255).
 */
void td_image_shift_hue(td_image *img, int shift);

/** A linear transform of colours, made once per image: rows of m are red, green and blue. */
typedef struct {
    float m[3][3], offset;
} td_color_jitter;

/** Hue in degrees; 0, 1, 1, 1, 0 is the identity up to rounding.  The centre of contrast is 128. */
td_color_jitter td_color_jitter_make(double hue, double saturation, double contrast,
                                     double brightness, double shift);

/** Change `n` pixels in place, clipped to 0 .. 255; bytes are rounded. */
void td_color_jitter_values(const td_color_jitter *t, float *px, size_t n);
void td_color_jitter_image(const td_color_jitter *t, td_image *img);

/* --- to a tensor ------------------------------------------------------------------------------ */

extern const float td_image_mean[3]; /* 0..255 scale: 123.675, 116.28, 103.53 */
extern const float td_image_std[3];  /* 58.395, 57.12, 57.375 */

extern const td_norm td_norm_torch; /* the values above */
extern const td_norm td_norm_tf;    /* 123.68, 116.28, 103.53 and 58.395, 57.12, 57.385 */
extern const td_norm td_norm_vgg;   /* 123.68, 116.779, 103.939 and 1: only the mean */
extern const td_norm td_norm_half;  /* 127.5 and 127.5: to -1 .. 1 */
extern const td_norm td_norm_gray; /* the mean of the three values of td_norm_torch: 0.449, 0.226 */

/** TD_EUSAGE: neither 1 nor 3, nor 0, which is not chosen. */
TD_CHECKED td_status td_channels_check(int channels);

/** The constants of classifiers on images of 1 or 3 channels, unless others are given. */
const td_norm *td_norm_of_channels(int channels);

/** The constants of a detector's images; those of classifiers for TD_DETECTOR_NONE. */
const td_norm *td_norm_of_detector(td_detector kind);

/** The gray of a pixel as PIL's convert("L") computes it. */
static inline int td_luma(const uint8_t rgb[3])
{
    return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

/** Red, green and blue of each pixel become its luma. */
void td_image_to_gray(td_image *img);

/** dst[c, y, x] = (px - mean[c]) / std[c], float32; dst is [3, height, width]. */
void td_image_normalise(const td_image *img, bool flip, float *dst);

/** The same with other constants. */
void td_image_normalise_by(const td_image *img, const td_norm *norm, bool flip, float *dst);

/** The same for an image of td_image_to_gray, by mean[0] and std[0]; dst is [height, width]. */
void td_image_normalise_gray(const td_image *img, const td_norm *norm, bool flip, float *dst);

/** The same for the first `channels` of float values, src [height, width, 3]. */
void td_values_normalise(const float *src, int width, int height, int channels, const td_norm *norm,
                         bool flip, float *dst);

/* --- drawing ---------------------------------------------------------------------------------- */

/** The number of kinds of td_image_draw_sample, and their names ("circle", "stripes",
    "letter_A"). */
int td_draw_kinds(void);
const char *td_draw_kind_name(int kind);

/**
 * Draw one labelled image: a shape, texture or letter of this kind with random place, size,
 * rotation, colours, background and noise taken from `rng`.  width, height 16 .. 4096.
 * TD_EARG no such kind, or another size; TD_ENOMEM.
 */
TD_CHECKED td_status td_image_draw_sample(int kind, td_rng *rng, int width, int height,
                                          td_image *out);

/** The number of figures other than textures, which td_image_draw_objects can draw; filled ones
    first. */
int td_draw_figures(void);
const char *td_draw_figure_name(int figure);

typedef struct {
    int figure;
    td_box box;   /* around the pixels that the figure covers by half or more */
    int64_t area; /* their number */
} td_drawn;

/**
 * Draw 1 .. most figures, chosen from the first n_figures, that do not touch; random otherwise, as
 * above.  drawn [most]; *n: their number.  Sides and errors as above.
 */
TD_CHECKED td_status td_image_draw_objects(int n_figures, int most, td_rng *rng, int width,
                                           int height, td_image *out, td_drawn *drawn, int *n);

/** Fill x0 <= x < x1, y0 <= y < y1 clipped to the image. */
void td_image_fill(td_image *img, int64_t x0, int64_t y0, int64_t x1, int64_t y1,
                   const uint8_t rgb[3]);

/** Outline `box`, `thick` pixels wide, on its inside; clipped to the image. */
void td_image_draw_box(td_image *img, td_box box, const uint8_t rgb[3], int thick);

#endif
