/* test_draw.c -- drawn samples and boxes */
#include "image/image.h"

#include <math.h>
#include <stdlib.h>

#include "support/expect.h"

static td_image draw(int kind, uint64_t index, int width, int height)
{
    td_rng rng = td_rng_make(1, TD_RNG_DRAW, index, 0);
    td_image img = { 0 };
    expect_ok(td_image_draw_sample(kind, &rng, width, height, &img));
    assert_int_equal(img.width, width);
    assert_int_equal(img.height, height);
    return img;
}

static size_t size_of(const td_image *img)
{
    return 3 * (size_t)img->width * (size_t)img->height;
}

static void names_are_distinct(void **state)
{
    (void)state;
    int n = td_draw_kinds();
    assert_in_range(n, 16, 100);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            assert_string_not_equal(td_draw_kind_name(i), td_draw_kind_name(k));
    }
    assert_null(td_draw_kind_name(-1));
    assert_null(td_draw_kind_name(n));
}

static void same_stream_same_image(void **state)
{
    (void)state;
    for (int k = 0; k < td_draw_kinds(); k++) {
        td_image a = draw(k, 5, 48, 40), b = draw(k, 5, 48, 40), c = draw(k, 6, 48, 40);
        assert_memory_equal(a.px, b.px, size_of(&a));
        assert_memory_not_equal(a.px, c.px, size_of(&a));
        td_image_release(&a);
        td_image_release(&b);
        td_image_release(&c);
    }
}

static void sizes_have_limits(void **state)
{
    (void)state;
    static const int good[][2] = { { 16, 16 }, { 16, 300 }, { 300, 16 } };
    static const int bad[][2] = { { 15, 16 }, { 16, 15 }, { 4097, 16 }, { 16, 4097 }, { -1, 20 } };
    td_rng rng = td_rng_make(1, TD_RNG_DRAW, 0, 0);
    td_image img = { 0 };
    for (size_t i = 0; i < 3; i++)
        expect_ok(td_image_draw_sample(0, &rng, good[i][0], good[i][1], &img));
    for (size_t i = 0; i < 5; i++)
        expect_error(td_image_draw_sample(0, &rng, bad[i][0], bad[i][1], &img), TD_EARG,
                     "16 to 4096");
    expect_error(td_image_draw_sample(-1, &rng, 64, 64, &img), TD_EARG,
                 "drawing kind is -1, wanted 0 to");
    expect_error(td_image_draw_sample(td_draw_kinds(), &rng, 64, 64, &img), TD_EARG,
                 "drawing kind is");
    td_image_release(&img);
    td_alloc_fail_at(1);
    expect_error(td_image_draw_sample(0, &rng, 64, 64, &img), TD_ENOMEM, "cannot allocate");
    td_alloc_fail_at(0);
    assert_null(img.px);
}

/* Brightness of one pixel row of the image's histogram: how dark and bright thirds are filled. */
static int spread(const td_image *img)
{
    int low = 255, high = 0;
    for (int y = 2; y < img->height - 2; y++) {
        for (int x = 2; x < img->width - 2; x++) {
            int sum = 0; /* of 5 x 5 pixels, to average the noise away */
            for (int i = 0; i < 25; i++) {
                const uint8_t *p = img->px + 3 * ((y + i / 5 - 2) * img->width + x + i % 5 - 2);
                sum += 299 * p[0] + 587 * p[1] + 114 * p[2];
            }
            low = sum / 25000 < low ? sum / 25000 : low;
            high = sum / 25000 > high ? sum / 25000 : high;
        }
    }
    return high - low;
}

/* Figure and background differ in brightness, whatever the colours. */
static void figures_stand_out(void **state)
{
    (void)state;
    for (int k = 0; k < td_draw_kinds(); k++) {
        for (uint64_t i = 0; i < 20; i++) {
            td_image img = draw(k, i, 96, 96);
            if (spread(&img) < 40)
                fail_msg("%s %d: contrast is %d", td_draw_kind_name(k), (int)i, spread(&img));
            td_image_release(&img);
        }
    }
}

static td_image blank(void)
{
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, 20, 10));
    memset(img.px, 0, size_of(&img));
    return img;
}

static int painted(const td_image *img)
{
    int n = 0;
    for (size_t i = 0; i < size_of(img); i += 3)
        n += img->px[i] != 0;
    return n;
}

static void boxes_are_outlines(void **state)
{
    (void)state;
    static const uint8_t red[3] = { 255, 1, 2 };
    static const struct {
        td_box box;
        int thick, n;
    } rows[] = {
        { { 2, 2, 6, 5 }, 1, 18 },
        { { 2, 2, 6, 5 }, 2, 28 },
        { { 0, 0, 20, 10 }, 1, 56 },
        { { -5, -5, 10, 10 }, 1, 9 },
        { { 18, 8, 10, 10 }, 1, 3 },
        { { 30, 30, 5, 5 }, 3, 0 },
        { { 3, 3, 1, 1 }, 1, 1 },
        { { INT32_MIN, 0, 1, 1 }, 1, 0 },
        { { INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX }, INT32_MAX, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        td_image img = blank();
        td_image_draw_box(&img, rows[i].box, red, rows[i].thick);
        if (painted(&img) != rows[i].n)
            fail_msg("box %zu: %d pixels painted, not %d", i, painted(&img), rows[i].n);
        td_image_release(&img);
    }
    td_image img = blank();
    td_image_draw_box(&img, (td_box){ 2, 2, 6, 5 }, red, 1);
    assert_memory_equal(img.px + 3 * (2 * 20 + 2), red, 3);
    assert_memory_equal(img.px + 3 * (6 * 20 + 7), red, 3);
    assert_int_equal(img.px[3 * (3 * 20 + 3)], 0);
    td_image_release(&img);
}

/* --- several figures -------------------------------------------------------------------------- */

static void figures_are_filled_ones_then_letters(void **state)
{
    (void)state;
    int n = td_draw_figures(), letters = 0;
    assert_int_equal(n, 18);
    assert_string_equal(td_draw_figure_name(0), "circle");
    assert_string_equal(td_draw_figure_name(1), "square");
    assert_string_equal(td_draw_figure_name(2), "triangle");
    for (int i = 0; i < n; i++) {
        bool is_letter = strncmp(td_draw_figure_name(i), "letter_", 7) == 0;
        assert_true(is_letter || letters == 0);
        letters += is_letter;
        assert_null(strstr(td_draw_figure_name(i), "stripes"));
    }
    assert_null(td_draw_figure_name(n));
    assert_null(td_draw_figure_name(-1));
}

static void objects_keep_apart(void **state)
{
    (void)state;
    enum { W = 160, H = 120, MOST = 4 };
    td_image img = { 0 };
    td_drawn drawn[MOST];
    int n, n_objects = 0;
    for (uint64_t i = 0; i < 60; i++) {
        td_rng r = td_rng_make(2, TD_RNG_TEST, i, 0);
        expect_ok(td_image_draw_objects(td_draw_figures(), MOST, &r, W, H, &img, drawn, &n));
        assert_in_range(n, 1, MOST);
        for (int k = 0; k < n; k++) {
            td_box b = drawn[k].box;
            assert_true(b.x >= 0 && b.y >= 0 && b.x + b.width <= W && b.y + b.height <= H);
            assert_true(b.width >= 8 && b.height >= 8);
            assert_true(drawn[k].area > 0 && drawn[k].area <= (int64_t)b.width * b.height);
            assert_in_range(drawn[k].figure, 0, td_draw_figures() - 1);
            for (int j = 0; j < k; j++) { /* they leave each other alone */
                td_box c = drawn[j].box;
                assert_true(b.x >= c.x + c.width || c.x >= b.x + b.width || b.y >= c.y + c.height ||
                            c.y >= b.y + b.height);
            }
        }
        n_objects += n;
    }
    assert_in_range(n_objects, 100, 180);
    td_image_release(&img);
}

/* a filled square without turn would cover its box; a disc covers pi / 4 of it */
static void areas_are_those_of_the_figures(void **state)
{
    (void)state;
    td_image img = { 0 };
    td_drawn drawn[1];
    int n;
    for (uint64_t i = 0; i < 20; i++) {
        td_rng r = td_rng_make(3, TD_RNG_TEST, i, 0);
        expect_ok(td_image_draw_objects(1, 1, &r, 300, 300, &img, drawn, &n));
        double share = (double)drawn[0].area / ((double)drawn[0].box.width * drawn[0].box.height);
        assert_true(share > 0.76 && share < 0.81);
        assert_true(abs(drawn[0].box.width - drawn[0].box.height) <= 1);
    }
    td_rng r = td_rng_make(3, TD_RNG_TEST, 0, 0);
    expect_error(td_image_draw_objects(0, 1, &r, 300, 300, &img, drawn, &n), TD_EARG, "figures");
    expect_error(td_image_draw_objects(1, 1, &r, 8, 300, &img, drawn, &n), TD_EARG, "8 x 300");
    td_image_release(&img);
}

/* --- colours ---------------------------------------------------------------------------------- */

static void color_jitter_is_what_it_says(void **state)
{
    (void)state;
    const float px[] = { 10, 100, 200, 128, 128, 128, 250, 5, 60 };
    float v[9];
    td_color_jitter t = td_color_jitter_make(0, 1, 1, 1, 0);
    memcpy(v, px, sizeof v);
    td_color_jitter_values(&t, v, 3);
    for (int i = 0; i < 9; i++) /* three places of NTSC's matrices */
        assert_true(fabsf(v[i] - px[i]) < 0.6F);
    t = td_color_jitter_make(0, 1, 0.5, 1.1, 4);
    memcpy(v, px, sizeof v);
    td_color_jitter_values(&t, v, 3);
    for (int i = 0; i < 9; i++)
        assert_true(fabsf(v[i] - (1.1F * (128 + 0.5F * (px[i] - 128)) + 4)) < 0.6F);
    t = td_color_jitter_make(0, 0, 1, 1, 0); /* gray: all three are the brightness */
    memcpy(v, px, sizeof v);
    td_color_jitter_values(&t, v, 3);
    for (int i = 0; i < 3; i++) {
        const float *p = &px[3 * i];
        float y = 0.299F * p[0] + 0.587F * p[1] + 0.114F * p[2];
        for (int c = 0; c < 3; c++)
            assert_true(fabsf(v[3 * i + c] - y) < 0.1F);
    }
    t = td_color_jitter_make(180, 1, 1, 1,
                             0); /* opposite hue: brightness stays, differences turn round */
    memcpy(v, px, 3 * sizeof *v);
    td_color_jitter_values(&t, v, 1);
    assert_true(v[0] > v[1] && v[1] > v[2]);
    t = td_color_jitter_make(0, 1, 3, 1, 0);
    memcpy(v, px, sizeof v);
    td_color_jitter_values(&t, v, 3);
    assert_true(v[0] == 0 && v[6] == 255); /* clipped */
}

static void images_are_jittered_to_the_nearest_byte(void **state)
{
    (void)state;
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, 256, 1));
    for (int i = 0; i < 256; i++)
        img.px[3 * i] = img.px[3 * i + 1] = img.px[3 * i + 2] = (uint8_t)i;
    td_color_jitter t = td_color_jitter_make(30, 1.4, 0.7, 1.1, 0);
    td_color_jitter_image(&t, &img);
    for (int i = 0; i < 256; i++) {
        double want = 1.1 * (128 + 0.7 * (i - 128));
        for (int c = 0; c < 3; c++)
            assert_true(fabs(img.px[3 * i + c] - fmin(fmax(want, 0), 255)) <= 1.4);
    }
    td_image_release(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_distinct),
        cmocka_unit_test(same_stream_same_image),
        cmocka_unit_test(sizes_have_limits),
        cmocka_unit_test(figures_stand_out),
        cmocka_unit_test(boxes_are_outlines),
        cmocka_unit_test(figures_are_filled_ones_then_letters),
        cmocka_unit_test(objects_keep_apart),
        cmocka_unit_test(areas_are_those_of_the_figures),
        cmocka_unit_test(color_jitter_is_what_it_says),
        cmocka_unit_test(images_are_jittered_to_the_nearest_byte),
    };
    return cmocka_run_group_tests_name("draw", tests, NULL, NULL);
}
