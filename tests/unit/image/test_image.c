/* test_image.c -- buffers, sniffing, cropping, flipping, normalising, and memory that runs out */
#include "image/image.h"

#include <math.h>

#include "support/expect.h"
#include "support/images.h"

static td_image numbered(int width, int height)
{
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, width, height));
    for (int i = 0; i < 3 * width * height; i++)
        img.px[i] = (uint8_t)(7 * i + 3);
    return img;
}

static void buffers_are_kept(void **state)
{
    (void)state;
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, 30, 20));
    const uint8_t *px = img.px;
    td_alloc_fail_at(1);
    expect_ok(td_image_resize_buffer(&img, 20, 30));
    assert_ptr_equal(img.px, px);
    expect_error(td_image_resize_buffer(&img, 200, 30), TD_ENOMEM, "cannot allocate");
    assert_int_equal(img.width, 20);
    td_alloc_fail_at(0);
    expect_error(td_image_resize_buffer(&img, 0, 30), TD_EARG, "0 x 30");
    expect_error(td_image_resize_buffer(&img, 3, -1), TD_EARG, "3 x -1");
    expect_error(td_image_resize_buffer(&img, 65536, 65536), TD_ELIMIT, "65536 x 65536");
    expect_error(td_image_resize_buffer(&img, 1 << 25, 1), TD_ELIMIT, "limit");
    assert_ptr_equal(img.px, px);
    td_image_release(&img);
    assert_null(img.px);
    td_image_release(&img);
}

/* Content decides; what no codec reads is called by its name. */
static void other_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } rows[] = {
        { "", 0, "file is empty" },
        { "x", 1, "looks like text" },
        { "\xFF", 1, "unknown binary data" },
        { "\0\0\0\0\0\0\0\0", 8, "zero bytes" },
        { "just some words\n", 16, "looks like text" },
        { "<!DOCTYPE html>\n<p>not found", 27, "an HTML page" },
        { "  <HTML><body>", 14, "an HTML page" },
        { "<svg xmlns='http://www.w3.org/2000/svg'/>", 41, "an SVG drawing" },
        { "<?xml version='1.0'?><a/>", 25, "an XML file" },
        { "GIF89a\1\0\1\0\0\0\0", 13, "GIF: the file is truncated" },
        { "RIFF\x10\0\0\0WEBPVP8 ", 16, "WebP: the file is truncated" },
        { "\0\0\0\x18"
          "ftypheic\0\0\0\0",
          16, "a HEIC image" },
        { "\0\0\0\x18"
          "ftypavif\0\0\0\0",
          16, "an AVIF image" },
        { "BM\x36\0\0\0\0\0\0\0", 10, "unknown binary data" },
        { "II*\0\x08\0\0\0", 8, "TIFF: " },
        { "%PDF-1.4", 8, "a PDF file" },
        { "PK\3\4....", 8, "a ZIP archive" },
        { "\x1F\x8B\x08\0", 4, "a gzip file" },
        { "\x89PN", 3, "unknown binary data" },
    };
    td_image img = { 0 };
    td_image_info info;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        td_test_file f = td_test_copy((const uint8_t *)rows[i].bytes, rows[i].n);
        expect_error(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL), TD_EFORMAT,
                     rows[i].part);
        expect_error(td_image_probe(f.bytes, f.n, &info), TD_EFORMAT, rows[i].part);
        assert_null(info.format);
        td_test_file_release(&f);
    }
    expect_error(td_image_decode("\xFF\xD8", 2, &(td_decode_opts){ 0 }, &img, NULL), TD_EFORMAT,
                 "file ends before the image data (byte 2 of 2)");
    assert_null(img.px);
}

static void crops_are_cut_out(void **state)
{
    (void)state;
    td_image src = numbered(9, 7), out = { 0 };
    expect_ok(td_image_crop(&src, (td_box){ 2, 3, 4, 2 }, &out));
    assert_int_equal(out.width, 4);
    assert_int_equal(out.height, 2);
    for (int y = 0; y < 2; y++)
        assert_memory_equal(out.px + 12 * y, src.px + 3 * ((3 + y) * 9 + 2), 12);
    expect_ok(td_image_crop(&src, (td_box){ 0 }, &out));
    assert_memory_equal(out.px, src.px, 9 * 7 * 3);
    expect_error(td_image_crop(&src, (td_box){ 6, 0, 4, 2 }, &out), TD_EARG,
                 "0) exceeds the image of 9");
    expect_error(td_image_crop(&src, (td_box){ -1, 0, 4, 2 }, &out), TD_EARG,
                 "region 4 x 2 at (-1, 0) exceeds the");
    td_image_release(&out);
    td_alloc_fail_at(1);
    expect_error(td_image_crop(&src, (td_box){ 0, 0, 4, 2 }, &out), TD_ENOMEM, "cannot allocate");
    td_alloc_fail_at(0);
    td_image_release(&src);
}

static void flips_mirror(void **state)
{
    (void)state;
    for (int width = 1; width < 40; width++) {
        td_image a = numbered(width, 3), b = numbered(width, 3);
        td_image_flip(&b);
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < width; x++)
                assert_memory_equal(a.px + 3 * (y * width + x),
                                    b.px + 3 * (y * width + width - 1 - x), 3);
        td_image_release(&a);
        td_image_release(&b);
    }
}

static void normalises(void **state)
{
    (void)state;
    static const double mean[3] = { 0.485, 0.456, 0.406 }, std[3] = { 0.229, 0.224, 0.225 };
    for (int width = 1; width < 70; width += 3) {
        enum { HEIGHT = 5 };
        td_image img = numbered(width, HEIGHT);
        size_t n = 3 * (size_t)width * HEIGHT;
        float *out = td_alloc(n + 1, sizeof *out);
        assert_non_null(out);
        for (int flip = 0; flip <= 1; flip++) {
            out[n] = 77;
            td_image_normalise(&img, flip, out);
            assert_true(out[n] == 77);
            for (int i = 0; i < (int)n; i++) {
                int c = i / (width * HEIGHT), y = i / width % HEIGHT, x = i % width;
                int px = img.px[3 * (y * width + (flip ? width - 1 - x : x)) + c];
                double wanted = (px / 255.0 - mean[c]) / std[c];
                assert_true(fabs(out[i] - wanted) < 1e-5);
                float exact = ((float)px - td_image_mean[c]) / td_image_std[c];
                assert_memory_equal(&out[i], &exact, sizeof exact);
            }
        }
        td_free(out);
        td_image_release(&img);
    }
}

/* Each allocation fails in turn: an error, nothing leaked, and the image still usable. */
static void decoding_survives_failed_allocations(void **state)
{
    (void)state;
    static const char *const names[] = { "420.jpg",   "progressive.jpg", "cmyk.jpg",
                                         "turn6.jpg", "rgb.png",         "interlaced.png",
                                         "rgb16.png", "palette4.png",    "turn6.png" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        td_test_file f = td_test_image(names[i]);
        int64_t live = td_alloc_live(), n = 1;
        td_status st = TD_ENOMEM;
        for (; st != TD_OK; n++) {
            td_image img = { 0 };
            td_alloc_fail_at(n);
            st = td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL);
            td_alloc_fail_at(0);
            if (st != TD_OK && st != TD_ENOMEM)
                fail_msg("%s, call %d: %s: %s", names[i], (int)n, td_status_name(st),
                         td_error_message());
            expect_ok(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL));
            td_image_release(&img);
            assert_int_equal(td_alloc_live(), live);
            assert_in_range(n, 1, 1000);
        }
        assert_in_range(n, 3, 1000);
        td_test_file_release(&f);
    }
}

static void writing_survives_failed_allocations(void **state)
{
    (void)state;
    td_image img = numbered(90, 70);
    for (int kind = 0; kind < 2; kind++) {
        int64_t live = td_alloc_live(), n = 1;
        td_status st = TD_ENOMEM;
        for (; st != TD_OK; n++) {
            td_text t = { 0 };
            td_alloc_fail_at(n);
            st = kind ? td_image_encode_png(&img, &t) : td_image_encode_jpeg(&img, 90, &t);
            td_alloc_fail_at(0);
            assert_true(st == TD_OK || st == TD_ENOMEM);
            td_text_release(&t);
            assert_int_equal(td_alloc_live(), live);
            assert_in_range(n, 1, 1000);
        }
    }
    td_image_release(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_are_kept),
        cmocka_unit_test(other_files_are_named),
        cmocka_unit_test(crops_are_cut_out),
        cmocka_unit_test(flips_mirror),
        cmocka_unit_test(normalises),
        cmocka_unit_test(decoding_survives_failed_allocations),
        cmocka_unit_test(writing_survives_failed_allocations),
    };
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
