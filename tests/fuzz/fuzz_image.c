/*
 * fuzz_image.c -- any bytes as an image: probed, decoded whole, and decoded in part and scaled
 *
 * Beyond "no crash": what a decoder says about its result must be true, and a JPEG that is decoded
 * here must be decided, and look, as libjpeg would have it.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "image/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { MAX_PIXELS = 1 << 18 };

static void touch(const td_image *img)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < 3 * (size_t)img->width * (size_t)img->height; i++)
        sum = (uint8_t)(sum + img->px[i]);
}

/* A box inside width x height that depends on the bytes. */
static td_box choose_box(const uint8_t *data, size_t n_bytes, int width, int height)
{
    uint32_t seed = (uint32_t)n_bytes;
    for (size_t i = 0; i < n_bytes; i += 37)
        seed = seed * 31 + data[i];
    td_rng rng = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    td_box b = { .x = (int)td_rng_below(&rng, (uint64_t)width),
                 .y = (int)td_rng_below(&rng, (uint64_t)height) };
    b.width = 1 + (int)td_rng_below(&rng, (uint64_t)(width - b.x));
    b.height = 1 + (int)td_rng_below(&rng, (uint64_t)(height - b.y));
    return b;
}

static void check_covers(const td_image *img, const td_decoded *d, td_box b)
{
    td_box c = d->covers;
    TD_CHECK(d->scale == 1 || d->scale == 2 || d->scale == 4 || d->scale == 8);
    TD_CHECK(c.width == img->width * d->scale && c.height == img->height * d->scale);
    TD_CHECK(c.x <= b.x && c.x + c.width >= b.x + b.width);
    TD_CHECK(c.y <= b.y && c.y + c.height >= b.y + b.height);
}

static void compare_with_library(const uint8_t *data, size_t n_bytes, bool is_fast)
{
    td_image here = { 0 }, library = { 0 };
    td_codec_result r;
    td_codec_opts o = { .max_pixels = MAX_PIXELS, .orientation = 1, .is_fast = is_fast };
    td_status a = td_jpeg_decode(data, n_bytes, &o, &here, &r);
    o.by_library = true;
    td_status b = td_jpeg_decode(data, n_bytes, &o, &library, &r);
    TD_CHECK(a == b);
    if (a == TD_OK) {
        TD_CHECK(here.width == library.width && here.height == library.height);
        TD_CHECK(memcmp(here.px, library.px, 3 * (size_t)here.width * (size_t)here.height) == 0);
    }
    td_image_release(&here);
    td_image_release(&library);
}

static void decode_part(const uint8_t *data, size_t n_bytes, td_box b, bool allow_scale)
{
    td_image img = { 0 }, small = { 0 };
    td_resampler r = { 0 };
    td_decoded d;
    td_decode_opts opts = { .max_pixels = MAX_PIXELS,
                            .region = b,
                            .allow_scale = allow_scale,
                            .out_size = 8,
                            .is_fast = allow_scale };
    if (td_image_decode(data, n_bytes, &opts, &img, &d) == TD_OK) {
        check_covers(&img, &d, b);
        double s = d.scale;
        td_status st = td_image_resample(&r, &img, (b.x - d.covers.x) / s, (b.y - d.covers.y) / s,
                                         b.width / s, b.height / s, TD_BILINEAR, 8, 8, &small);
        TD_CHECK(st == TD_OK);
        touch(&small);
    }
    td_resampler_release(&r);
    td_image_release(&img);
    td_image_release(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_image img = { 0 };
    td_image_info info;
    td_decoded d;
    td_decode_opts opts = { .max_pixels = MAX_PIXELS };
    if (n_bytes >= 2 && data[0] == 0xFF && data[1] == 0xD8) {
        compare_with_library(data, n_bytes, false);
        compare_with_library(data, n_bytes, true);
    }
    bool is_known = td_image_probe(data, n_bytes, &info) == TD_OK;
    if (td_image_decode(data, n_bytes, &opts, &img, &d) == TD_OK) {
        TD_CHECK(is_known && d.scale == 1);
        bool swaps = info.orientation >= 5;
        TD_CHECK(img.width == (swaps ? info.height : info.width));
        TD_CHECK(img.height == (swaps ? info.width : info.height));
        TD_CHECK(d.full_width == img.width && d.full_height == img.height);
        touch(&img);
        td_box b = choose_box(data, n_bytes, img.width, img.height);
        decode_part(data, n_bytes, b, false);
        decode_part(data, n_bytes, b, true);
    }
    td_image_release(&img);
    return 0;
}
