/* test_gray.c -- gray images: PIL's gray, which operations on colours keep, and their constants */
#include <string.h>

#include "support/expect.h"

#include "image/image.h"
#include "image/norm_text.h"

/* by Pillow: Image.new("RGB", (1, 1), colour).convert("L") */
static void grays_are_pils(void **state)
{
    (void)state;
    static const struct {
        uint8_t rgb[3];
        int gray;
    } cases[] = {
        { { 255, 0, 0 }, 76 },  { { 0, 255, 0 }, 150 }, { { 0, 0, 255 }, 29 },
        { { 10, 20, 30 }, 18 }, { { 200, 3, 77 }, 70 }, { { 1, 2, 0 }, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(td_luma(cases[i].rgb), cases[i].gray);
    for (int v = 0; v < 256; v++) {
        const uint8_t same[3] = { (uint8_t)v, (uint8_t)v, (uint8_t)v };
        assert_int_equal(td_luma(same), v);
    }
}

static void draw(td_image *img)
{
    expect_ok(td_image_resize_buffer(img, 13, 11));
    for (int i = 0; i < 3 * 13 * 11; i++)
        img->px[i] = (uint8_t)(i * 37 % 251);
    td_image_to_gray(img);
}

static void assert_gray(const td_image *img)
{
    for (int i = 0; i < img->width * img->height; i++) {
        const uint8_t *p = img->px + 3 * (size_t)i;
        assert_true(p[0] == p[1] && p[1] == p[2]);
    }
}

static void changes_of_colours_keep_gray(void **state)
{
    (void)state;
    static const double amounts[TD_AUGMENT_OPS] = { 0.2, -0.2, 3,  -2, 20, 1.7, 0.6, 1.4,
                                                    1.9, 3,    90, 40, 0,  0,   0 };
    td_image img = { 0 }, scratch = { 0 };
    for (int op = 0; op < TD_AUGMENT_OPS; op++) {
        draw(&img);
        expect_ok(td_image_augment(&img, (td_augment_op)op, amounts[op], &scratch));
        assert_gray(&img);
    }
    draw(&img);
    td_image_shift_hue(&img, 77);
    assert_gray(&img);
    td_image_release(&img);
    td_image_release(&scratch);
}

static void normalises_the_one_channel(void **state)
{
    (void)state;
    enum { N = 13 * 11 };
    float one[N], three[3 * N];
    td_image img = { 0 };
    draw(&img);
    for (int flip = 0; flip < 2; flip++) {
        td_image_normalise_gray(&img, &td_norm_gray, flip, one);
        td_image_normalise_by(&img, &td_norm_gray, flip, three);
        assert_memory_equal(one, three, sizeof one);
    }
    td_image_release(&img);
}

static void constants_are_one_number(void **state)
{
    (void)state;
    float mean[3], std[3];
    char text[TD_NORM_TEXT];
    expect_ok(td_norm_parse_mean("0.449", "--mean", 1, mean));
    expect_ok(td_norm_parse_std("0.226", "--std", 1, std));
    assert_memory_equal(mean, td_norm_of_channels(1)->mean, sizeof mean);
    assert_memory_equal(std, td_norm_of_channels(1)->std, sizeof std);
    td_norm_print(std, 1, text);
    assert_string_equal(text, "0.226");
    expect_error(td_norm_parse_mean("0.1,0.1,0.1", "--mean", 1, mean), TD_EUSAGE, "--mean");
    expect_error(td_norm_parse_std("0", "--std", 1, std), TD_EUSAGE, "--std");
    expect_ok(td_channels_check(0));
    expect_error(td_channels_check(2), TD_EUSAGE, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grays_are_pils),
        cmocka_unit_test(changes_of_colours_keep_gray),
        cmocka_unit_test(normalises_the_one_channel),
        cmocka_unit_test(constants_are_one_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
