/*
 * image/codec.h -- interface of the codecs, the orientation code and the buffer to image.c
 *
 * A codec works in the coordinates of the stored image; image.c turns the result upright.
 */
#ifndef TD_IMAGE_CODEC_H
#define TD_IMAGE_CODEC_H

#include "image/image.h"

/* PIL warns above this size and rejects images above twice this size; here it is the limit of all
   codecs. */
#define TD_IMAGE_MAX_PIXELS 178956970

/* Real encoders write about 10 scans; each costs a pass over the image. */
#define TD_IMAGE_MAX_SCANS 500

/** Input of a codec: the caller's options with defaults filled in, and the orientation. */
typedef struct {
    int64_t max_pixels;
    int orientation; /* orientation to apply to the result; 1: none */
    td_box region;   /* in the upright image; width 0: the whole image */
    int out_size;    /* 0: never scale */
    bool is_fast;    /* nearest-sample chroma upsampling suffices */
    int max_scans;
    bool by_library; /* JPEG: do not use jpeg_scan.c */
} td_codec_opts;

/** Output of a codec besides the pixels, in stored coordinates. */
typedef struct {
    int full_width, full_height;
    td_box covers; /* covers.width == pixels' width * scale; may reach past the edge by scale - 1 */
    int scale;
} td_codec_result;

TD_CHECKED td_status td_jpeg_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out);
TD_CHECKED td_status td_jpeg_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                                    td_image *out, td_codec_result *res);

TD_CHECKED td_status td_png_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out);
TD_CHECKED td_status td_png_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                                   td_image *out, td_codec_result *res);

TD_CHECKED td_status td_webp_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out);
TD_CHECKED td_status td_webp_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                                    td_image *out, td_codec_result *res);

TD_CHECKED td_status td_tiff_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out);
TD_CHECKED td_status td_tiff_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                                    td_image *out, td_codec_result *res);

TD_CHECKED td_status td_bmp_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out);
TD_CHECKED td_status td_bmp_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                                   td_image *out, td_codec_result *res);

TD_CHECKED td_status td_gif_probe(const uint8_t *bytes, size_t n_bytes, td_image_info *out);
TD_CHECKED td_status td_gif_decode(const uint8_t *bytes, size_t n_bytes, const td_codec_opts *opts,
                                   td_image *out, td_codec_result *res);

/**
 * For a codec that decodes whole images: check the size and the region, resize `out` and fill
 * `res`.  TD_EFORMAT, TD_ELIMIT a size; TD_EARG a region outside; TD_ENOMEM.
 */
TD_CHECKED td_status td_image_begin_whole(const td_codec_opts *opts, int64_t width, int64_t height,
                                          td_image *out, td_codec_result *res);

/** TD_ELIMIT unless both sides are positive and width * height <= max_pixels. */
TD_CHECKED td_status td_image_check_size(int64_t width, int64_t height, int64_t max_pixels);

/** TD_EARG unless `region` is inside width x height; an empty region is replaced by the whole
    image. */
TD_CHECKED td_status td_image_check_region(td_box *region, int width, int height);

/** The orientation (1 .. 8) in an EXIF block; 1 if it has none or is damaged. */
int td_exif_orientation(const uint8_t *tiff, size_t n_bytes);

/** The same, from a whole file. */
int td_exif_orientation_of_jpeg(const uint8_t *bytes, size_t n_bytes);
int td_exif_orientation_of_png(const uint8_t *bytes, size_t n_bytes);
int td_exif_orientation_of_webp(const uint8_t *bytes, size_t n_bytes);

/** A TIFF's orientation by the tag of its first image; 1 if it has none or is damaged. */
int td_tiff_orientation(const uint8_t *bytes, size_t n_bytes);

/** Does this orientation exchange width and height? */
bool td_orient_swaps(int orientation);

/** Convert a box of the upright image to stored coordinates (width x height stored), and back. */
td_box td_orient_to_stored(td_box upright, int orientation, int width, int height);
td_box td_orient_to_upright(td_box stored, int orientation, int width, int height);

/** Turn `stored` upright into `out`. */
TD_CHECKED td_status td_orient_image(const td_image *stored, int orientation, td_image *out);

/** The colours of pixel values without a palette, and of those past its end: gray, 0 .. 255. */
void td_colour_gray_palette(uint8_t palette[256][3]);

/** n pixels of CMYK as JPEG files store it (inverted) -> RGB, as PIL computes it. */
void td_colour_cmyk_row(const uint8_t *cmyk, uint8_t *rgb, int n);

#endif
