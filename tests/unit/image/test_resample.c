/* test_resample.c -- the same integers as PIL, for every case of tests/golden/image/resample.bin */
#include "image/image.h"

#include <math.h>

#include "support/expect.h"
#include "support/images.h"

/* The formula of tests/oracle/resample.py. */
static td_image source(void)
{
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, 53, 41));
    for (uint32_t i = 0; i < 53 * 41 * 3; i++)
        img.px[i] = (uint8_t)(i * 2654435761u >> 24);
    return img;
}

typedef struct {
    double x, y, width, height;
    int32_t filter, out_width, out_height;
} record;

static const uint8_t *take(const uint8_t *p, record *r)
{
    memcpy(&r->x, p, 4 * sizeof(double));
    memcpy(&r->filter, p + 4 * sizeof(double), 3 * sizeof(int32_t));
    return p + 4 * sizeof(double) + 3 * sizeof(int32_t);
}

/* Where no bytes may be read behind the pixels, the plain passes run. */
static void forbid_reading_past(td_image *img)
{
    img->cap_bytes = 3 * (size_t)img->width * (size_t)img->height;
}

static void equals_pil_with(bool is_plain)
{
    size_t n;
    uint8_t *golden = td_test_golden("resample.bin", &n);
    const uint8_t *p = golden;
    td_image src = source(), out = { 0 };
    td_resampler r = { 0 };
    int n_cases = 0;
    if (is_plain)
        forbid_reading_past(&src);
    for (; p < golden + n; n_cases++) {
        record c;
        p = take(p, &c);
        expect_ok(td_image_resample(&r, &src, c.x, c.y, c.width, c.height, (td_filter)c.filter,
                                    c.out_width, c.out_height, &out));
        assert_int_equal(out.width, c.out_width);
        assert_int_equal(out.height, c.out_height);
        size_t n_bytes = 3 * (size_t)c.out_width * (size_t)c.out_height;
        if (memcmp(out.px, p, n_bytes) != 0)
            fail_msg("case %d: box %g x %g at (%g, %g) to %d x %d, filter %d", n_cases, c.width,
                     c.height, c.x, c.y, c.out_width, c.out_height, c.filter);
        p += n_bytes;
    }
    assert_int_equal(n_cases, 28);
    td_resampler_release(&r);
    td_image_release(&src);
    td_image_release(&out);
    td_free(golden);
}

static void equals_pil(void **state)
{
    (void)state;
    equals_pil_with(false);
}

static void plain_passes_equal_pil(void **state)
{
    (void)state;
    equals_pil_with(true);
}

/* A flat image stays flat, also where a bicubic filter overshoots and at extreme reductions. */
static void flat_stays_flat(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 1, 1 }, { 3, 500 }, { 500, 3 }, { 64, 64 }, { 1000, 1 } };
    td_resampler r = { 0 };
    td_image src = { 0 }, out = { 0 };
    for (int value = 0; value <= 255; value += 51) {
        expect_ok(td_image_resize_buffer(&src, 700, 3));
        memset(src.px, value, 700 * 3 * 3);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int filter = TD_BILINEAR; filter <= TD_BICUBIC; filter++) {
                expect_ok(td_image_resample(&r, &src, 0, 0, 700, 3, (td_filter)filter, sizes[i][0],
                                            sizes[i][1], &out));
                for (int k = 0; k < 3 * sizes[i][0] * sizes[i][1]; k++)
                    assert_int_equal(out.px[k], value);
            }
        }
    }
    td_resampler_release(&r);
    td_image_release(&src);
    td_image_release(&out);
}

static void whole_size_is_a_copy(void **state)
{
    (void)state;
    td_resampler r = { 0 };
    td_image src = source(), out = { 0 };
    expect_ok(td_image_resample(&r, &src, 0, 0, 53, 41, TD_BICUBIC, 53, 41, &out));
    assert_memory_equal(src.px, out.px, 53 * 41 * 3);
    td_resampler_release(&r);
    td_image_release(&src);
    td_image_release(&out);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    static const double boxes[][4] = { { -0.1, 0, 5, 5 },    { 0, -1, 5, 5 },  { 0, 0, 53.1, 5 },
                                       { 0, 0, 5, 41.01 },   { 0, 0, 0, 5 },   { 0, 0, 5, -1 },
                                       { 50, 0, 4, 5 },      { 0, 0, NAN, 5 }, { NAN, 0, 5, 5 },
                                       { 0, 0, INFINITY, 5 } };
    td_resampler r = { 0 };
    td_image src = source(), out = { 0 };
    for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++) {
        const double *b = boxes[i];
        expect_error(td_image_resample(&r, &src, b[0], b[1], b[2], b[3], TD_BILINEAR, 8, 8, &out),
                     TD_EARG, "53 x 41");
    }
    expect_error(td_image_resample(&r, &src, 0, 0, 53, 41, TD_BILINEAR, 0, 8, &out), TD_EARG,
                 "0 x 8");
    expect_error(td_image_resample(&r, &src, 0, 0, 53, 41, TD_BILINEAR, 8, -1, &out), TD_EARG,
                 "8 x -1");
    expect_error(td_image_resample(&r, &src, 0, 0, 53, 41, TD_BILINEAR, 1 << 20, 1 << 20, &out),
                 TD_ELIMIT, "limit");
    td_resampler_release(&r);
    td_image_release(&src);
    td_image_release(&out);
}

/* Every allocation fails in turn; the last round succeeds, and a failed resampler still works. */
static void survives_every_failed_allocation(void **state)
{
    (void)state;
    td_image src = source();
    int64_t live = td_alloc_live();
    td_status st = TD_ENOMEM;
    int64_t n = 1;
    for (; st != TD_OK; n++) {
        td_resampler r = { 0 };
        td_image out = { 0 };
        td_alloc_fail_at(n);
        st = td_image_resample(&r, &src, 0, 0, 53, 41, TD_BILINEAR, 20, 20, &out);
        td_alloc_fail_at(0);
        if (st != TD_OK)
            assert_int_equal(st, TD_ENOMEM);
        expect_ok(td_image_resample(&r, &src, 0, 0, 53, 41, TD_BILINEAR, 20, 20, &out));
        td_resampler_release(&r);
        td_image_release(&out);
        assert_int_equal(td_alloc_live(), live);
    }
    assert_in_range(n, 6, 40);

    /* once warm, none at all */
    td_resampler r = { 0 };
    td_image out = { 0 };
    expect_ok(td_image_resample(&r, &src, 0, 0, 53, 41, TD_BILINEAR, 20, 20, &out));
    td_alloc_fail_at(1);
    expect_ok(td_image_resample(&r, &src, 1, 1, 30, 30, TD_BILINEAR, 20, 20, &out));
    td_alloc_fail_at(0);
    td_resampler_release(&r);
    td_image_release(&out);
    td_image_release(&src);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pil),
        cmocka_unit_test(plain_passes_equal_pil),
        cmocka_unit_test(flat_stays_flat),
        cmocka_unit_test(whole_size_is_a_copy),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("resample", tests, NULL, NULL);
}
