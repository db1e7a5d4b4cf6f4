/* test_jpeg_scan.c -- the usual JPEG as decoded here and as libjpeg decodes it: the same pixels */
#include <stdio.h>
#include <stdlib.h>

#include "support/expect.h"
#include "support/images.h"

#include "image/codec.h"

static const char *const files[] = { "420.jpg",  "422.jpg",         "444.jpg",      "gray.jpg",
                                     "rgb.jpg",  "progressive.jpg", "440.jpg",      "411.jpg",
                                     "cmyk.jpg", "restart.jpg",     "one_pixel.jpg" };

static bool holds_same(const td_image *a, td_box at_a, const td_image *b, td_box at_b, td_box box)
{
    for (int y = box.y; y < box.y + box.height; y++) {
        size_t i = (size_t)(y - at_a.y) * (size_t)a->width + (size_t)(box.x - at_a.x);
        size_t k = (size_t)(y - at_b.y) * (size_t)b->width + (size_t)(box.x - at_b.x);
        if (memcmp(a->px + 3 * i, b->px + 3 * k, 3 * (size_t)box.width) != 0)
            return false;
    }
    return true;
}

/* decode a box both ways; true when it was not left to libjpeg */
static bool expect_same(const void *bytes, size_t n, td_box box, bool is_fast, const char *name)
{
    td_image here = { 0 }, library = { 0 };
    td_codec_result r, s;
    td_codec_opts o = {
        .max_pixels = 1 << 28, .orientation = 1, .region = box, .is_fast = is_fast
    };
    expect_ok(td_jpeg_decode(bytes, n, &o, &here, &r));
    o.by_library = true;
    expect_ok(td_jpeg_decode(bytes, n, &o, &library, &s));
    if (!holds_same(&here, r.covers, &library, s.covers, box))
        fail_msg("%s: box %d x %d at (%d, %d)%s differs", name, box.width, box.height, box.x, box.y,
                 is_fast ? ", fast" : "");
    /* libjpeg decodes a margin; a whole image does not tell */
    bool is_here = r.covers.width == box.width && r.covers.height == box.height;
    td_image_release(&here);
    td_image_release(&library);
    return is_here;
}

static td_box random_box(td_rng *rng, int width, int height)
{
    td_box b = { .x = (int)td_rng_below(rng, (uint64_t)width),
                 .y = (int)td_rng_below(rng, (uint64_t)height) };
    b.width = 1 + (int)td_rng_below(rng, (uint64_t)(width - b.x));
    b.height = 1 + (int)td_rng_below(rng, (uint64_t)(height - b.y));
    return b;
}

static void files_are_the_same(void **state)
{
    (void)state;
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 0, 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        td_test_file f = td_test_image(files[i]);
        td_image_info info;
        expect_ok(td_image_probe(f.bytes, f.n, &info));
        for (int k = 0; k < 100; k++)
            (void)expect_same(f.bytes, f.n, random_box(&rng, info.width, info.height), k & 1,
                              files[i]);
        td_box all = { .width = info.width, .height = info.height };
        (void)expect_same(f.bytes, f.n, all, false, files[i]);
        td_test_file_release(&f);
    }
}

/* every size around block and MCU borders, from coarse to fine, smooth and noisy */
static void drawn_ones_are_the_same(void **state)
{
    (void)state;
    static const int qualities[] = { 1, 30, 75, 90, 95, 100 };
    td_rng rng = td_rng_make(2, TD_RNG_TEST, 0, 0);
    td_image img = { 0 };
    td_text text = { 0 };
    char name[64];
    int n_here = 0, n = 0;
    for (int size = 16; size < 52; size++) {
        int width = size, height = 16 + (size * 7) % 41, quality = qualities[size % 6];
        expect_ok(td_image_draw_sample(size % td_draw_kinds(), &rng, width, height, &img));
        text.len = 0;
        expect_ok(td_image_encode_jpeg(&img, quality, &text));
        (void)snprintf(name, sizeof name, "%d x %d, quality %d", width, height, quality);
        for (int k = 0; k < 30; k++, n++)
            n_here +=
                expect_same(text.data, text.len, random_box(&rng, width, height), k & 1, name);
    }
    assert_true(n_here > n * 9 / 10); /* or nothing was tested */
    td_image_release(&img);
    td_text_release(&text);
}

/* black and white dots at full quality: the largest coefficients there are */
static void noise_is_the_same(void **state)
{
    (void)state;
    td_rng rng = td_rng_make(3, TD_RNG_TEST, 0, 0);
    td_image img = { 0 };
    td_text text = { 0 };
    for (int round = 0; round < 60; round++) {
        int width = 1 + (int)td_rng_below(&rng, 70), height = 1 + (int)td_rng_below(&rng, 70);
        int dot = round % 3;
        expect_ok(td_image_resize_buffer(&img, width, height));
        for (int i = 0; i < 3 * width * height; i++)
            img.px[i] = dot == 2 ? (uint8_t)td_rng_below(&rng, 256)
                                 : (uint8_t)(255 * (dot ? i / 3 % 2 : (int)td_rng_below(&rng, 2)));
        text.len = 0;
        expect_ok(td_image_encode_jpeg(&img, round % 2 ? 100 : 60, &text));
        for (int k = 0; k < 10; k++)
            (void)expect_same(text.data, text.len, random_box(&rng, width, height), k & 1, "noise");
        (void)expect_same(text.data, text.len, (td_box){ .width = width, .height = height }, false,
                          "noise");
    }
    td_image_release(&img);
    td_text_release(&text);
}

/* damage is found, or not, as libjpeg finds it; of a box libjpeg reads a few rows more */
static void damaged_ones_are_read_the_same(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    td_rng rng = td_rng_make(4, TD_RNG_TEST, 0, 0);
    td_test_file f = td_test_image("420.jpg");
    td_image_info info;
    expect_ok(td_image_probe(f.bytes, f.n, &info));
    int n_bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        td_test_file bad = td_test_copy(f.bytes, f.n);
        td_image here = { 0 }, library = { 0 };
        td_codec_result r, s;
        for (int i = 0; i < 1 + round % 3; i++)
            bad.bytes[f.n / 4 + td_rng_below(&rng, f.n - f.n / 4)] ^=
                (uint8_t)(1 << td_rng_below(&rng, 8));
        td_box box = { .width = info.width, .height = info.height };
        td_codec_opts o = { .max_pixels = 1 << 20, .orientation = 1, .region = box };
        td_status a = td_jpeg_decode(bad.bytes, bad.n, &o, &here, &r);
        o.by_library = true;
        td_status b = td_jpeg_decode(bad.bytes, bad.n, &o, &library, &s);
        if (a != b)
            fail_msg("round %d: %s here, %s by libjpeg", round, td_status_name(a),
                     td_status_name(b));
        n_bad += a != TD_OK;
        if (a == TD_OK && !holds_same(&here, r.covers, &library, s.covers, box))
            fail_msg("round %d: other pixels", round);
        td_image_release(&here);
        td_image_release(&library);
        td_test_file_release(&bad);
    }
    assert_true(n_bad > 0 && n_bad < ROUNDS);
    td_test_file_release(&f);
}

static size_t put(uint8_t *to, const char *hex)
{
    size_t n = 0;
    for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        to[n++] = (uint8_t)byte;
    return n;
}

/* the largest differences times the largest steps, block after block: no int holds them */
static void the_largest_numbers_do_no_harm(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    size_t n = put(bytes, "ffd8ffdb008310");
    memset(bytes + n, 0xff, 128); /* 64 steps of 65535 */
    n += 128;
    n += put(bytes + n, "ffc00011080010001003012200021100031100");       /* 4:2:0, 16 x 16 */
    n += put(bytes + n, "ffc4001400010000000000000000000000000000000f"); /* DC: 0 is size 15 */
    n += put(bytes + n, "ffc40014100100000000000000000000000000000000"); /* AC: 0 ends the block */
    n += put(bytes + n, "ffda000c03010002000300003f00");
    /* 6 blocks of 0, fifteen ones, 0 */
    n += put(bytes + n, "7fff003fff009fff00cfff00e7ff00f3ff00fb");
    n += put(bytes + n, "ffd9");
    td_image img = { 0 };
    td_codec_result r;
    const td_codec_opts o = { .max_pixels = 1 << 20,
                              .orientation = 1,
                              .region = { .width = 16, .height = 16 } };
    const td_status st = td_jpeg_decode(bytes, n, &o, &img, &r);
    assert_true(st == TD_OK || st == TD_EFORMAT); /* libjpeg's result */
    td_image_release(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_the_same),
        cmocka_unit_test(drawn_ones_are_the_same),
        cmocka_unit_test(noise_is_the_same),
        cmocka_unit_test(damaged_ones_are_read_the_same),
        cmocka_unit_test(the_largest_numbers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
