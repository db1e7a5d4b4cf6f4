/*
 * test_sample.c -- resizing without antialiasing, against tests/golden/image/sample.bin
 *
 * tests/oracle/sample.py made it with NumPy, and asked PyTorch and TensorFlow whether it is theirs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/expect.h"

#include "base/arena.h"
#include "base/file_io.h"
#include "image/image.h"

enum { W = 53, H = 41, LEGACY = 2 };

static void make_source(td_image *img)
{
    expect_ok(td_image_resize_buffer(img, W, H));
    for (uint32_t i = 0; i < W * H * 3; i++)
        img->px[i] = (uint8_t)(i * 2654435761u >> 24);
}

typedef struct {
    double box[4];
    int32_t kind, width, height;
} head;

static void check_record(const td_image *src, const head *h, const float *wanted)
{
    td_sampling s = { h->box[0],
                      h->box[1],
                      h->box[2],
                      h->box[3],
                      h->width,
                      h->height,
                      { .width = h->width, .height = h->height } };
    size_t n = 3 * (size_t)h->width * (size_t)h->height;
    td_taps taps = { 0 };
    td_image out = { 0 };
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    if (h->kind == LEGACY) {
        expect_ok(td_image_sample_legacy(&taps, src, &s, values));
        assert_memory_equal(values, wanted, n * sizeof *values);
    } else {
        expect_ok(td_image_sample(&taps, src, &s, h->kind ? TD_BICUBIC : TD_BILINEAR, &out));
        for (size_t i = 0; i < n; i++) {
            float v = fminf(fmaxf(wanted[i], 0), 255);
            if (fabsf((float)out.px[i] - v) > 0.5001f)
                fail_msg("%g x %g -> %d x %d, kind %d, value %zu is %d, wanted %g", h->box[2],
                         h->box[3], h->width, h->height, h->kind, i, out.px[i], (double)wanted[i]);
        }
    }
    free(values);
    td_taps_release(&taps);
    td_image_release(&out);
}

static void values_are_those_of_others(void **state)
{
    (void)state;
    char *bytes;
    size_t n, at = 0;
    int n_records = 0;
    td_image src = { 0 };
    make_source(&src);
    expect_ok(td_file_read("tests/golden/image/sample.bin", 1 << 20, &bytes, &n));
    while (at < n) {
        head h;
        static float wanted[3 * 100 * 100];
        memcpy(h.box, bytes + at, sizeof h.box);
        memcpy(&h.kind, bytes + at + 32, 12);
        size_t n_bytes = 3 * sizeof(float) * (size_t)h.width * (size_t)h.height;
        assert_true(n_bytes <= sizeof wanted);
        memcpy(wanted, bytes + at + 44, n_bytes);
        check_record(&src, &h, wanted);
        at += 44 + n_bytes;
        n_records++;
    }
    assert_int_equal(n_records, 30);
    td_free(bytes);
    td_image_release(&src);
}

/* a window of the result is that part of the whole result */
static void a_window_is_a_part(void **state)
{
    (void)state;
    td_image src = { 0 }, all = { 0 }, part = { 0 };
    td_taps taps = { 0 };
    static float a[3 * 20 * 31], b[3 * 7 * 9];
    make_source(&src);
    td_sampling s = { 0, 0, W, H, 20, 31, { 0, 0, 20, 31 } }, t = s;
    t.window = (td_box){ 11, 5, 7, 9 };
    for (int f = 0; f < 2; f++) {
        expect_ok(td_image_sample(&taps, &src, &s, f ? TD_BICUBIC : TD_BILINEAR, &all));
        expect_ok(td_image_sample(&taps, &src, &t, f ? TD_BICUBIC : TD_BILINEAR, &part));
        for (int y = 0; y < 9; y++)
            assert_memory_equal(part.px + 3 * 7 * y, all.px + 3 * (20 * (y + 5) + 11), 21);
    }
    expect_ok(td_image_sample_legacy(&taps, &src, &s, a));
    expect_ok(td_image_sample_legacy(&taps, &src, &t, b));
    for (int y = 0; y < 9; y++)
        assert_memory_equal(b + 3 * 7 * y, a + 3 * (20 * (y + 5) + 11), 21 * sizeof(float));
    s.width = W + 1;
    expect_error(td_image_sample(&taps, &src, &s, TD_BILINEAR, &all), TD_EARG,
                 "0) exceeds the image of 53");
    t.window.x = 14;
    expect_error(td_image_sample_legacy(&taps, &src, &t, b), TD_EARG,
                 "5) exceeds the result of 20");
    td_taps_release(&taps);
    td_image_release(&src);
    td_image_release(&all);
    td_image_release(&part);
}

/* PyTorch's interpolate, bilinear, align_corners=False, of two pixels and of five */
static void linear_values_are_pytorchs(void **state)
{
    (void)state;
    static const float wide[4] = { 0, 25, 75, 100 }, narrow[2] = { 37.5F, 162.5F };
    td_image src = { 0 };
    td_taps taps = { 0 };
    float values[12];
    td_sampling s = { .width = 2,
                      .height = 1,
                      .out_width = 4,
                      .out_height = 1,
                      .window = { .width = 4, .height = 1 } };
    expect_ok(td_image_resize_buffer(&src, 2, 1));
    memcpy(src.px, (uint8_t[]){ 0, 0, 0, 100, 100, 100 }, 6);
    expect_ok(td_image_sample_linear(&taps, &src, &s, values));
    for (int i = 0; i < 12; i++)
        assert_true(values[i] == wide[i / 3]);
    expect_ok(td_image_resize_buffer(&src, 5, 1));
    for (int i = 0; i < 15; i++)
        src.px[i] = (uint8_t)(50 * (i / 3));
    s = (td_sampling){ .width = 5,
                       .height = 1,
                       .out_width = 2,
                       .out_height = 1,
                       .window = { .width = 2, .height = 1 } };
    expect_ok(td_image_sample_linear(&taps, &src, &s, values)); /* at 0.75 and 3.25 */
    for (int i = 0; i < 6; i++)
        assert_true(values[i] == narrow[i / 3]);
    td_taps_release(&taps);
    td_image_release(&src);
}

static void normalises_by_either_constants(void **state)
{
    (void)state;
    enum { SIDE = 11 };
    td_image img = { 0 };
    static float bytes[3 * SIDE * SIDE], values[3 * SIDE * SIDE], raw[3 * SIDE * SIDE];
    expect_ok(td_image_resize_buffer(&img, SIDE, SIDE));
    for (uint32_t i = 0; i < 3 * SIDE * SIDE; i++) {
        img.px[i] = (uint8_t)(i * 2654435761u >> 24);
        raw[i] = (float)img.px[i];
    }
    for (int flip = 0; flip < 2; flip++) {
        td_image_normalise_by(&img, &td_norm_tf, flip, bytes);
        td_values_normalise(raw, SIDE, SIDE, 3, &td_norm_tf, flip, values);
        assert_memory_equal(bytes, values, sizeof bytes);
    }
    assert_true(bytes[SIDE - 1] == ((float)img.px[0] - 123.68f) / 58.395f);
    assert_true(bytes[2 * SIDE * SIDE + SIDE - 1] == ((float)img.px[2] - 103.53f) / 57.385f);
    td_image_release(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_others),
        cmocka_unit_test(a_window_is_a_part),
        cmocka_unit_test(linear_values_are_pytorchs),
        cmocka_unit_test(normalises_by_either_constants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
