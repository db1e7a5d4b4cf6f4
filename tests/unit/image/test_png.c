/* test_png.c -- every kind of PNG, damage, and writing */
#include "image/image.h"

#include "support/expect.h"
#include "support/images.h"

static const struct {
    const char *name, *colour;
    int bits;
    bool is_interlaced;
} files[] = {
    { "gray1.png", "gray", 1, false },
    { "gray8.png", "gray", 8, false },
    { "gray16.png", "gray", 16, false },
    { "gray_alpha.png", "gray+alpha", 8, false },
    { "palette4.png", "palette", 4, false },
    { "palette8.png", "palette", 8, false },
    { "palette_clear.png", "palette", 4, false },
    { "rgb.png", "RGB", 8, false },
    { "rgb16.png", "RGB", 16, false },
    { "rgba.png", "RGBA", 8, false },
    { "interlaced.png", "RGB", 8, true },
    { "one_pixel.png", "RGB", 8, false },
};
enum { N_FILES = sizeof files / sizeof files[0] };

static td_status decode(const td_test_file *f, td_image *img)
{
    return td_image_decode(f->bytes, f->n, &(td_decode_opts){ 0 }, img, NULL);
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t crc(const uint8_t *p, size_t n)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

enum { IHDR = 8, IHDR_BYTES = 13 };

/* The file with another header, its checksum right. */
static td_test_file with_header(const char *name, uint32_t width, uint32_t height)
{
    td_test_file f = td_test_image(name);
    put32(f.bytes + IHDR + 8, width);
    put32(f.bytes + IHDR + 12, height);
    put32(f.bytes + IHDR + 8 + IHDR_BYTES, crc(f.bytes + IHDR + 4, 4 + IHDR_BYTES));
    return f;
}

static void refuse(td_test_file f, td_status st, const char *part)
{
    td_image img = { 0 };
    expect_error(decode(&f, &img), st, part);
    td_image_release(&img);
    td_test_file_release(&f);
}

static void decodes_as_pil(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i].name);
        td_image img = td_test_decode(&f);
        td_test_expect_golden(files[i].name, &img);
        td_image_release(&img);
        td_test_file_release(&f);
    }
}

static void probe_describes(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i].name);
        td_image_info info;
        expect_ok(td_image_probe(f.bytes, f.n, &info));
        assert_string_equal(info.format, "PNG");
        assert_string_equal(info.colour, files[i].colour);
        assert_int_equal(info.bits, files[i].bits);
        assert_int_equal(info.is_progressive, files[i].is_interlaced);
        assert_int_equal(info.width, i == N_FILES - 1 ? 1 : 43);
        assert_int_equal(info.height, i == N_FILES - 1 ? 1 : 29);
        td_test_file_release(&f);
    }
}

/* A PNG is always decoded whole, at full size. */
static void regions_cover_everything(void **state)
{
    (void)state;
    td_test_file f = td_test_image("rgb.png");
    td_image img = { 0 };
    td_decoded where;
    td_decode_opts opts = { .region = { 3, 4, 5, 6 }, .allow_scale = true, .out_size = 1 };
    expect_ok(td_image_decode(f.bytes, f.n, &opts, &img, &where));
    td_test_expect_golden("rgb.png", &img);
    assert_int_equal(where.scale, 1);
    assert_int_equal(where.covers.x, 0);
    assert_int_equal(where.covers.width, 43);
    assert_int_equal(where.covers.height, 29);
    opts.region.width = 41;
    expect_error(td_image_decode(f.bytes, f.n, &opts, &img, &where), TD_EARG,
                 "region 41 x 6 at (3, 4) exceeds the");
    td_image_release(&img);
    td_test_file_release(&f);
}

/* The last chunk says only that the file ends; PIL does not miss it either. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    enum { IEND_BYTES = 12 };
    td_image img = { 0 };
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i].name);
        for (size_t n = 0; n < f.n; n++) {
            td_test_file cut = td_test_copy(f.bytes, n);
            td_status st = decode(&cut, &img);
            if (st == TD_OK && n + IEND_BYTES + 8 >= f.n)
                td_test_expect_golden(files[i].name, &img);
            else if (st != TD_EFORMAT)
                fail_msg("%s cut to %zu bytes: %s", files[i].name, n, td_status_name(st));
            td_test_file_release(&cut);
        }
        td_test_file_release(&f);
    }
    td_image_release(&img);
}

static void damage_is_refused(void **state)
{
    (void)state;
    td_test_file f = td_test_image("rgb.png");
    td_test_file bad = td_test_copy(f.bytes, f.n);
    bad.bytes[IHDR + 8 + IHDR_BYTES] ^= 1;
    refuse(bad, TD_EFORMAT, "PNG: ");

    bad = td_test_copy(f.bytes, f.n); /* a bit of the compressed data */
    bad.bytes[f.n / 2] ^= 0x10;
    refuse(bad, TD_EFORMAT, "PNG: ");

    refuse(td_test_copy(f.bytes, f.n / 2), TD_EFORMAT, "PNG: ");
    refuse(td_test_copy(f.bytes, 4), TD_EFORMAT, "PNG: ");
    td_test_file_release(&f);
}

static void sizes_are_checked_first(void **state)
{
    (void)state;
    refuse(with_header("rgb.png", 0, 29), TD_EFORMAT, "PNG: ");
    refuse(with_header("rgb.png", 43, 0), TD_EFORMAT, "PNG: ");
    refuse(with_header("rgb.png", 20000, 20000), TD_ELIMIT, "20000 x 20000");
    refuse(with_header("rgb.png", 0x7FFFFFFF, 0x7FFFFFFF), TD_ELIMIT, "PNG: ");
    refuse(with_header("rgb.png", 12000, 12000), TD_EFORMAT,
           "too short for a PNG of 12000 x 12000");
    refuse(with_header("rgb.png", 43, 60), TD_EFORMAT, "PNG: "); /* more rows than there are */
}

static void flipped_bits_do_no_harm(void **state)
{
    (void)state;
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 0, 0);
    td_image img = { 0 };
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i].name);
        for (int round = 0; round < 300; round++) {
            td_test_file bad = td_test_copy(f.bytes, f.n);
            uint64_t bit = td_rng_below(&rng, 8 * f.n);
            bad.bytes[bit / 8] = (uint8_t)(bad.bytes[bit / 8] ^ 1 << bit % 8);
            td_status st = decode(&bad, &img);
            if (st != TD_OK && st != TD_EFORMAT && st != TD_ELIMIT)
                fail_msg("%s: %s", files[i].name, td_error_message());
            td_test_file_release(&bad);
        }
        td_test_file_release(&f);
    }
    td_image_release(&img);
}

static void written_images_come_back(void **state)
{
    (void)state;
    td_test_file f = td_test_image("rgb.png");
    td_image img = td_test_decode(&f), back = { 0 };
    td_text t = { 0 };
    td_text_add(&t, "x");
    expect_ok(td_image_encode_png(&img, &t));
    expect_ok(td_image_decode(t.data + 1, t.len - 1, &(td_decode_opts){ 0 }, &back, NULL));
    td_test_expect_golden("rgb.png", &back);
    td_image_release(&img);
    expect_error(td_image_encode_png(&img, &t), TD_EARG, "0 x 0");
    td_image_release(&back);
    td_text_release(&t);
    td_test_file_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_pil),           cmocka_unit_test(probe_describes),
        cmocka_unit_test(regions_cover_everything), cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(damage_is_refused),        cmocka_unit_test(sizes_are_checked_first),
        cmocka_unit_test(flipped_bits_do_no_harm),  cmocka_unit_test(written_images_come_back),
    };
    return cmocka_run_group_tests_name("png", tests, NULL, NULL);
}
