/* test_webp.c -- lossy, lossless and animated WebP, and damage */
#include "image/image.h"

#include "support/codec_test.h"
#include "support/expect.h"

static const td_codec_case files[] = {
    { "lossy.webp", "RGB", 8, 43, 29 },     { "lossless.webp", "RGB", 8, 43, 29 },
    { "alpha.webp", "RGBA", 8, 43, 29 },    { "alpha_lossless.webp", "RGBA", 8, 43, 29 },
    { "animated.webp", "RGBA", 8, 43, 29 }, { "turn6.webp", "RGB", 8, 21, 13 },
};
static const td_codec_cases cases = { files, sizeof files / sizeof *files, "WebP", 1 };

static void decodes_as_pil(void **state)
{
    (void)state;
    td_codec_decodes(&cases);
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    td_codec_refuses_cut_files(&cases);
}

static void flipped_bits_do_no_harm(void **state)
{
    (void)state;
    td_codec_bears_flipped_bits(&cases);
}

static void sizes_are_checked_first(void **state)
{
    (void)state;
    td_image img = { 0 };
    td_test_file f = td_test_image("lossy.webp");
    const td_decode_opts opts = { .max_pixels = 43 * 29 - 1 };
    expect_error(td_image_decode(f.bytes, f.n, &opts, &img, NULL), TD_ELIMIT, "43 x 29");
    td_test_file_release(&f);
    f = td_test_image("lossy.webp");
    memset(f.bytes + 26, 0xFF, 4); /* VP8: 14 bits each of width and height */
    expect_error(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL), TD_ELIMIT,
                 "16383 x 16383");
    assert_null(img.px);
    td_test_file_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_pil),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(sizes_are_checked_first),
    };
    return cmocka_run_group_tests_name("webp", tests, NULL, NULL);
}
