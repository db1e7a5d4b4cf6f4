/* test_gif.c -- the first frame of GIFs, and damage */
#include "image/image.h"

#include "support/codec_test.h"
#include "support/expect.h"

static const td_codec_case files[] = {
    { "plain.gif", "palette", 8, 43, 29 },       { "interlaced.gif", "palette", 8, 43, 29 },
    { "gray.gif", "palette", 8, 43, 29 },        { "animated.gif", "palette", 8, 43, 29 },
    { "transparent.gif", "palette", 8, 43, 29 }, { "part.gif", "palette", 8, 64, 40 },
    { "outside.gif", "palette", 8, 52, 33 },
};
static const td_codec_cases cases = { files, sizeof files / sizeof *files, "GIF", 1000 };

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

static void refuse(td_test_file f, td_status st, const char *part)
{
    td_image img = { 0 };
    expect_error(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, NULL), st, part);
    td_image_release(&img);
    td_test_file_release(&f);
}

static void headers_are_checked(void **state)
{
    (void)state;
    static const char head[] = "GIF89a\x02\x00\x02\x00\x00\x00\x00";
    static const struct {
        const char *bytes;
        size_t n;
        td_status st;
        const char *part;
    } rows[] = {
        { ";", 1, TD_EFORMAT, "no frame" },
        { "x", 1, TD_EFORMAT, "byte 13 is 0x78" },
        { "!\xF9\x04\x01", 4, TD_EFORMAT, "truncated" },
        { ",\0\0\0\0\0\0\2\0\0\2", 11, TD_EFORMAT, "0 x 2" },
        { ",\0\0\0\0\xFF\xFF\xFF\xFF\0\2", 11, TD_ELIMIT, "65535 x 65535" },
        { ",\0\0\0\0\2\0\2\0\0\x09\1\1", 13, TD_EFORMAT, "9 bits" },
        { ",\0\0\0\0\2\0\2\0\0\x02\1\x2C\0", 14, TD_EFORMAT, "row 0 of 2" }, /* clear, end */
        { ",\0\0\0\0\2\0\2\0\0\x02\1\x34\0", 14, TD_EFORMAT, "code 6" },     /* clear, 6 */
        { ",\0\0\0\0\2\0\2\0\0\x02\1\x04\0", 14, TD_EFORMAT, "too early" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t bytes[64];
        memcpy(bytes, head, sizeof head - 1);
        memcpy(bytes + sizeof head - 1, rows[i].bytes, rows[i].n);
        refuse(td_test_copy(bytes, sizeof head - 1 + rows[i].n), rows[i].st, rows[i].part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_pil),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(headers_are_checked),
    };
    return cmocka_run_group_tests_name("gif", tests, NULL, NULL);
}
