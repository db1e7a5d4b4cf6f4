/* test_bmp.c -- every kind of BMP, and damage */
#include "image/image.h"

#include "support/codec_test.h"
#include "support/expect.h"

static const td_codec_case files[] = {
    { "gray1.bmp", "palette", 1, 43, 29 },    { "gray8.bmp", "palette", 8, 43, 29 },
    { "palette8.bmp", "palette", 8, 43, 29 }, { "palette4.bmp", "palette", 4, 43, 29 },
    { "rgb.bmp", "RGB", 8, 43, 29 },          { "rgb555.bmp", "RGB", 8, 43, 29 },
    { "rgb565.bmp", "RGB", 8, 43, 29 },       { "rgbx.bmp", "RGB", 8, 43, 29 },
    { "masks32.bmp", "RGB", 8, 43, 29 },      { "top_down.bmp", "RGB", 8, 43, 29 },
    { "os2.bmp", "palette", 8, 43, 29 },
};
static const td_codec_cases cases = { files, sizeof files / sizeof *files, "BMP", 3 };

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

enum { WIDTH = 18, HEIGHT = 22, BITS = 28, COMPRESSION = 30, COLORS = 46 };

/* rgb.bmp or palette8.bmp with four bytes at `at` changed, refused with a part of the message */
static void refuse(const char *name, size_t at, uint32_t value, td_status st, const char *part)
{
    td_test_file f = td_test_image(name);
    td_image img = { 0 };
    for (size_t i = 0; i < 4; i++)
        f.bytes[at + i] = (uint8_t)(value >> 8 * i);
    expect_error(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL), st, part);
    assert_null(img.px);
    td_test_file_release(&f);
}

static void headers_are_checked(void **state)
{
    (void)state;
    refuse("rgb.bmp", WIDTH, 0, TD_EFORMAT, "0 x 29");
    refuse("rgb.bmp", WIDTH, UINT32_MAX, TD_EFORMAT, "-1 x 29");
    refuse("rgb.bmp", WIDTH, 1 << 23, TD_ELIMIT, "8388608 x 29");
    refuse("rgb.bmp", WIDTH, 4000, TD_EFORMAT, "truncated");
    refuse("rgb.bmp", HEIGHT, 0x80000000u, TD_ELIMIT, "2147483648");
    refuse("rgb.bmp", HEIGHT, 30, TD_EFORMAT, "truncated");
    refuse("rgb.bmp", BITS, 2, TD_EUNSUPPORTED, "2 bits");
    refuse("palette8.bmp", COMPRESSION, 1, TD_EUNSUPPORTED, "run lengths");
    refuse("palette8.bmp", COMPRESSION, 3, TD_EUNSUPPORTED, "compression 3");
    refuse("rgb.bmp", COMPRESSION, 4, TD_EUNSUPPORTED, "a JPEG");
    refuse("palette8.bmp", COLORS, 65537, TD_EFORMAT, "65537 colors");
    refuse("palette8.bmp", COLORS, 60000, TD_EFORMAT, "truncated");
    refuse("rgb.bmp", 14, 41, TD_EUNSUPPORTED, "41 bytes");
    refuse("rgb.bmp", 10, UINT32_MAX, TD_EFORMAT, "truncated");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_pil),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(headers_are_checked),
    };
    return cmocka_run_group_tests_name("bmp", tests, NULL, NULL);
}
