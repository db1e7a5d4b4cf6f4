/* test_tiff.c -- kinds of TIFF, orientation, and damage */
#include "image/image.h"

#include "support/codec_test.h"
#include "support/expect.h"

static const td_codec_case files[] = {
    { "gray1.tif", "gray", 1, 43, 29 },
    { "gray8_lzw.tif", "gray", 8, 43, 29 },
    { "gray16.tif", "gray", 16, 43, 29 },
    { "gray_fax.tif", "gray", 1, 43, 29 },
    { "white_is_zero.tif", "gray", 8, 43, 29 },
    { "palette8.tif", "palette", 8, 43, 29 },
    { "rgb.tif", "RGB", 8, 43, 29 },
    { "rgb_deflate.tif", "RGB", 8, 43, 29 },
    { "rgb16_big_endian.tif", "RGB", 16, 43, 29 },
    { "rgba.tif", "RGBA", 8, 43, 29 },
    { "premultiplied.tif", "RGBA", 8, 43, 29 },
    { "cmyk.tif", "CMYK", 8, 43, 29 },
    { "jpeg.tif", "RGB", 8, 43, 29 },
    { "tiles.tif", "RGB", 8, 43, 29 },
    { "planes.tif", "RGB", 8, 43, 29 },
    { "turn1.tif", "RGB", 8, 21, 13 },
    { "turn2.tif", "RGB", 8, 21, 13 },
    { "turn3.tif", "RGB", 8, 21, 13 },
    { "turn4.tif", "RGB", 8, 21, 13 },
    { "turn5.tif", "RGB", 8, 21, 13 },
    { "turn6.tif", "RGB", 8, 21, 13 },
    { "turn7.tif", "RGB", 8, 21, 13 },
    { "turn8.tif", "RGB", 8, 21, 13 },
};
static const td_codec_cases cases = { files, sizeof files / sizeof *files, "TIFF", 200 };

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

/* rgb.tif with the value of one entry changed */
static void refuse(unsigned tag, uint32_t value, td_status st, const char *part)
{
    td_test_file f = td_test_image("tiles.tif"); /* its directory is at byte 8, all values LONG */
    td_image img = { 0 };
    size_t at = 10;
    while (f.bytes[at] + 256u * f.bytes[at + 1] != tag)
        at += 12;
    for (size_t i = 0; i < 4; i++)
        f.bytes[at + 8 + i] = (uint8_t)(value >> 8 * i);
    expect_error(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL), st, part);
    td_image_release(&img);
    td_test_file_release(&f);
}

static void fields_are_checked(void **state)
{
    (void)state;
    enum { WIDTH = 256, COMPRESSION = 259, PHOTOMETRIC = 262, SAMPLES = 277, TILE_WIDTH = 322 };
    refuse(WIDTH, 0, TD_EFORMAT, "TIFF: ");
    refuse(WIDTH, 2000, TD_EFORMAT, "TIFF: "); /* there are too few tiles */
    refuse(COMPRESSION, 34712, TD_EUNSUPPORTED, "34712");
    refuse(PHOTOMETRIC, 8, TD_EUNSUPPORTED, "interpretation 8");
    refuse(PHOTOMETRIC, 5, TD_EUNSUPPORTED, "wanted 4 to 8");
    refuse(TILE_WIDTH, 1 << 30, TD_ELIMIT, "1073741824 x 16");

    td_image img = { 0 };
    td_test_file f = td_test_image("rgb.tif");
    const td_decode_opts opts = { .max_pixels = 43 * 29 - 1 };
    expect_error(td_image_decode(f.bytes, f.n, &opts, &img, NULL), TD_ELIMIT, "43 x 29");
    assert_null(img.px);
    td_test_file_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_pil),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(fields_are_checked),
    };
    return cmocka_run_group_tests_name("tiff", tests, NULL, NULL);
}
