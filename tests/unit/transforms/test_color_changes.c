/*
 * test_color_changes.c -- color jitter's pixels equal torchvision's, its draws and those of random
 * erasing have torchvision's distributions
 *
 * tests/golden/image/color_jitter.bin has CRC-32 values; tests/oracle/augmentations.py made it, and
 * --erase printed the means of the boxes.
 */
#include <math.h>
#include <string.h>

#include "support/expect.h"
#include "support/formula_images.h"

#include "base/arena.h"
#include "base/file_io.h"
#include "transforms/color_changes.h"

/* of 100,000 boxes of torchvision's on 224 x 224 */
static const double mean_side = 95.13, mean_area = 8737;

static const double all[TD_JITTERS] = { 1, 1, 1, 0.5 };

static void make_cube(td_image *img)
{
    expect_ok(td_image_resize_buffer(img, 52 * 52, 52));
    uint8_t *q = img->px;
    for (int r = 0; r < 256; r += 5)
        for (int g = 0; g < 256; g += 5)
            for (int b = 0; b < 256; b += 5, q += 3) {
                q[0] = (uint8_t)r;
                q[1] = (uint8_t)g;
                q[2] = (uint8_t)b;
            }
}

static void pixels_are_torchvisions(void **state)
{
    (void)state;
    static const double hues[] = { 0, 0.004, -0.004, 0.1, -0.1, 0.25, -0.37, 0.5, -0.5 };
    static const td_color_changes jitters[] = {
        { { 0, 1, 2, 3 }, { 0.7, 1.3, 0.6, 0.1 } },  { { 3, 2, 1, 0 }, { 1.4, 0.61, 1.39, -0.1 } },
        { { 1, 0, 3, 2 }, { 0.9, 1.9, 0.1, 0.5 } },  { { 2, 3, 0, 1 }, { 1.05, 0.95, 1.8, -0.31 } },
        { { 3, 0, 2, 1 }, { 0.0, 0.0, 0.0, 0.02 } },
    };
    char *bytes;
    size_t n;
    td_image img = { 0 }, scratch = { 0 };
    expect_ok(td_file_read("tests/golden/image/color_jitter.bin", 1 << 20, &bytes, &n));
    const uint8_t *at = (const uint8_t *)bytes;
    for (size_t i = 0; i < sizeof hues / sizeof *hues; i++) {
        make_cube(&img);
        td_image_shift_hue(&img, (int)(hues[i] * 255));
        if (crc32_of(img.px, 3 * 52 * 52 * 52) != next_u32(&at))
            fail_msg("hue by %g", hues[i]);
    }
    for (int s = 0; s < FORMULA_IMAGES; s++)
        for (size_t i = 0; i < sizeof jitters / sizeof *jitters; i++) {
            make_formula_image(s, &img);
            const size_t size = 3 * (size_t)img.width * (size_t)img.height;
            expect_ok(td_color_changes_apply(&jitters[i], all, &img, &scratch));
            if (crc32_of(img.px, size) != next_u32(&at))
                fail_msg("source %d, jitter %zu", s, i);
        }
    assert_int_equal((const char *)at - bytes, n);
    td_free(bytes);
    td_image_release(&img);
    td_image_release(&scratch);
}

static void a_strength_of_zero_changes_nothing(void **state)
{
    (void)state;
    const double none[TD_JITTERS] = { 0 };
    td_image img = { 0 }, scratch = { 0 };
    make_formula_image(0, &img);
    const uint32_t before = crc32_of(img.px, 3 * 53 * 41);
    td_rng r = td_rng_make(1, TD_RNG_JITTER, 2, 3);
    const td_color_changes c = td_color_changes_draw(none, &r);
    expect_ok(td_color_changes_apply(&c, none, &img, &scratch));
    assert_int_equal(crc32_of(img.px, 3 * 53 * 41), before);
    td_image_release(&img);
    td_image_release(&scratch);
}

static void jitter_is_drawn_evenly(void **state)
{
    (void)state;
    enum { DRAWS = 48000 };
    const double strength[TD_JITTERS] = { 0.4, 0.2, 1.5, 0.1 };
    const double from[] = { 0.6, 0.8, 0, -0.1 }, to[] = { 1.4, 1.2, 2.5, 0.1 };
    double sum[TD_JITTERS] = { 0 };
    int orders[256] = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        td_rng r = td_rng_make(1, TD_RNG_JITTER, 2, i);
        const td_color_changes c = td_color_changes_draw(strength, &r);
        orders[c.order[0] * 64 + c.order[1] * 16 + c.order[2] * 4 + c.order[3]]++;
        for (int k = 0; k < TD_JITTERS; k++) {
            assert_true(c.amount[k] >= from[k] && c.amount[k] < to[k]);
            sum[k] += c.amount[k];
        }
    }
    int n_orders = 0;
    for (int i = 0; i < 256; i++)
        if (orders[i]) {
            n_orders++;
            assert_in_range(orders[i], 2000 - 220, 2000 + 220); /* five deviations */
        }
    assert_int_equal(n_orders, 24);
    for (int k = 0; k < TD_JITTERS; k++) {
        const double width = to[k] - from[k], deviation = width / sqrt(12.0 * DRAWS);
        assert_true(fabs(sum[k] / DRAWS - (from[k] + to[k]) / 2) < 5 * deviation);
    }
}

static void boxes_are_drawn_as_torchvisions(void **state)
{
    (void)state;
    enum { DRAWS = 100000, SIZE = 224 };
    double sum[5] = { 0 };
    int n = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        td_rng r = td_rng_make(1, TD_RNG_ERASE, 2, i);
        const td_box b = td_random_erase_draw(0.25, SIZE, &r);
        if (!b.width)
            continue;
        assert_true(b.x >= 0 && b.y >= 0 && b.width > 0 && b.height > 0);
        assert_true(b.x + b.width <= SIZE && b.y + b.height <= SIZE);
        n++;
        sum[0] += b.height;
        sum[1] += b.width;
        sum[2] += b.height * b.width;
        sum[3] += b.x - b.y;
        sum[4] += log((double)b.height / b.width);
    }
    assert_in_range(n, 25000 - 700, 25000 + 700); /* five deviations */
    assert_true(fabs(sum[0] / n - mean_side) < 1.5);
    assert_true(fabs(sum[1] / n - mean_side) < 1.5);
    assert_true(fabs(sum[2] / n - mean_area) < 150);
    assert_true(fabs(sum[3] / n) < 3);
    assert_true(fabs(sum[4] / n) < 0.025);
}

static void only_the_box_is_erased(void **state)
{
    (void)state;
    enum { SIZE = 7 };
    float row[3 * SIZE * SIZE];
    for (int i = 0; i < 3 * SIZE * SIZE; i++)
        row[i] = (float)(i + 1);
    td_random_erase_apply((td_box){ .x = 2, .y = 1, .width = 3, .height = 4 }, SIZE, 3, row);
    for (int i = 0; i < 3 * SIZE * SIZE; i++) {
        const int x = i % SIZE, y = i / SIZE % SIZE;
        const bool is_in = x >= 2 && x < 5 && y >= 1 && y < 5;
        assert_true(row[i] == (is_in ? 0.0f : (float)(i + 1)));
    }
    td_rng r = td_rng_make(1, TD_RNG_ERASE, 2, 3);
    const td_box none = td_random_erase_draw(1, 1, &r); /* no box is smaller than one pixel */
    assert_int_equal(none.width, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_torchvisions),
        cmocka_unit_test(a_strength_of_zero_changes_nothing),
        cmocka_unit_test(jitter_is_drawn_evenly),
        cmocka_unit_test(boxes_are_drawn_as_torchvisions),
        cmocka_unit_test(only_the_box_is_erased),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
