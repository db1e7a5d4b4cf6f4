/*
 * test_autoaugment.c -- every operation at every level, and every policy, equal Pillow's pixels
 *
 * tests/golden/image/autoaugment.bin has their CRC-32 values; tests/oracle/autoaugment.py made it.
 */
#include <string.h>

#include "support/expect.h"

#include "base/arena.h"
#include "base/file_io.h"
#include "transforms/autoaugment.h"

enum { SOURCES = 5 };

static uint32_t crc32_of(const uint8_t *p, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* the images of the script */
static void make_source(int which, td_image *img)
{
    static const int sizes[SOURCES][2] = {
        { 53, 41 }, { 224, 224 }, { 7, 9 }, { 1, 1 }, { 300, 5 }
    };
    int w = sizes[which][0], h = sizes[which][1];
    expect_ok(td_image_resize_buffer(img, w, h));
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                uint32_t i = (uint32_t)((y * w + x) * 3 + c);
                int ramp = 40 + (3 * x + 2 * y + 17 * c + x * y / 50) % 150;
                int noise = (int)(i * 2654435761u >> 24);
                img->px[i] = (uint8_t)(which == 2 ? 77 : which % 3 == 1 ? ramp : noise);
            }
}

static const uint8_t *golden(size_t *n)
{
    static char *bytes;
    td_free(bytes);
    expect_ok(td_file_read("tests/golden/image/autoaugment.bin", 1 << 20, &bytes, n));
    return (const uint8_t *)bytes;
}

static uint32_t next(const uint8_t **at)
{
    const uint8_t *p = *at;
    *at += 4;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void pixels_are_pils(void **state)
{
    (void)state;
    size_t n;
    const uint8_t *at = golden(&n), *begin = at;
    td_image source = { 0 }, img = { 0 }, scratch = { 0 };
    for (int s = 0; s < SOURCES; s++) {
        make_source(s, &source);
        size_t bytes = 3 * (size_t)source.width * (size_t)source.height;
        for (int op = 0; op < TD_AUGMENT_OPS; op++)
            for (int level = 0; level < TD_AUTOAUGMENT_LEVELS; level++)
                for (int sign = 1; sign >= -1; sign -= 2) {
                    expect_ok(td_image_crop(&source, (td_box){ 0 }, &img));
                    double amount = td_autoaugment_amount((td_augment_op)op, level);
                    if (op <= TD_AUGMENT_ROTATE)
                        amount *= sign;
                    expect_ok(td_image_augment(&img, (td_augment_op)op, amount, &scratch));
                    if (crc32_of(img.px, bytes) != next(&at))
                        fail_msg("source %d, operation %d, level %d, sign %d", s, op, level, sign);
                }
    }
    for (int s = 0; s < SOURCES; s++) {
        make_source(s, &source);
        size_t bytes = 3 * (size_t)source.width * (size_t)source.height;
        for (int i = 0; i < TD_AUTOAUGMENT_POLICIES * 16; i++) {
            td_autoaugment a = { .policy = i / 16,
                                 .is_done = { i & 8, i & 4 },
                                 .is_negative = { i & 2, i & 1 } };
            expect_ok(td_image_crop(&source, (td_box){ 0 }, &img));
            expect_ok(td_autoaugment_apply(&a, &img, &scratch));
            if (crc32_of(img.px, bytes) != next(&at))
                fail_msg("source %d, policy %d, choice %d", s, a.policy, i % 16);
        }
    }
    assert_int_equal(at - begin, n);
    td_image_release(&source);
    td_image_release(&img);
    td_image_release(&scratch);
}

static void draws_follow_the_probabilities(void **state)
{
    (void)state;
    enum { DRAWS = 250000, EACH = DRAWS / TD_AUTOAUGMENT_POLICIES };
    static int n[TD_AUTOAUGMENT_POLICIES], done[TD_AUTOAUGMENT_POLICIES][2];
    int n_negative = 0, n_turned = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        td_rng r = td_rng_make(3, TD_RNG_AUGMENT, 1, i);
        td_autoaugment a = td_autoaugment_draw(&r);
        n[a.policy]++;
        done[a.policy][0] += a.is_done[0];
        done[a.policy][1] += a.is_done[1];
        if (a.policy == 15) { /* rotate always, translateY in 8 of 10 */
            n_turned++;
            n_negative += a.is_negative[0];
            assert_true(a.is_done[1] || !a.is_negative[1]);
        }
    }
    for (int i = 0; i < TD_AUTOAUGMENT_POLICIES; i++)
        assert_in_range(n[i], EACH - 500, EACH + 500); /* five deviations */
    assert_in_range(done[0][0], n[0] * 0.8 - 200, n[0] * 0.8 + 200);
    assert_in_range(done[1][0], n[1] * 0.4 - 250, n[1] * 0.4 + 250);
    assert_int_equal(done[15][0], n[15]);
    assert_int_equal(done[16][0], 0);
    assert_int_equal(done[19][1], 0);
    assert_in_range(n_negative, n_turned / 2 - 250, n_turned / 2 + 250);
}

static void bad_amounts_are_errors(void **state)
{
    (void)state;
    td_image img = { 0 }, scratch = { 0 };
    expect_error(td_image_augment(&img, TD_AUGMENT_INVERT, 0, &scratch), TD_EARG, "0 x 0");
    expect_ok(td_image_resize_buffer(&img, 3, 2));
    memset(img.px, 9, 18);
    expect_error(td_image_augment(&img, TD_AUGMENT_POSTERIZE, 9, &scratch), TD_EARG, "by 9");
    expect_error(td_image_augment(&img, TD_AUGMENT_SHEAR_X, 1e9, &scratch), TD_EARG, "by 1e+09");
    expect_error(td_image_augment(&img, TD_AUGMENT_OPS, 0, &scratch), TD_EARG, "alteration 15");
    td_alloc_fail_at(1);
    td_status st = td_image_augment(&img, TD_AUGMENT_ROTATE, 5, &scratch);
    td_alloc_fail_at(0);
    assert_int_equal(st, TD_ENOMEM);
    assert_int_equal(img.width, 3);
    td_image_release(&img);
    td_image_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_pils),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(bad_amounts_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
