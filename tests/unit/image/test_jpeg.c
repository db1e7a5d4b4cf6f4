/* test_jpeg.c -- every kind of JPEG, parts of images, and files that mean harm */
#include "image/image.h"

#include <stdlib.h>

#include "support/expect.h"
#include "support/images.h"

static const char *const files[] = {
    "420.jpg",          "422.jpg",         "440.jpg",     "444.jpg",        "411.jpg",
    "odd_sampling.jpg", "progressive.jpg", "restart.jpg", "arithmetic.jpg", "rgb.jpg",
    "gray.jpg",         "cmyk.jpg",        "ycck.jpg",    "cmyk_plain.jpg", "one_pixel.jpg",
};
enum { N_FILES = sizeof files / sizeof files[0] };

static td_status decode(const td_test_file *f, td_image *img)
{
    return td_image_decode(f->bytes, f->n, &(td_decode_opts){ 0 }, img, NULL);
}

/* Where the first segment with this marker starts (its FF). */
static size_t find(const td_test_file *f, unsigned marker)
{
    for (size_t at = 2; at + 4 <= f->n;) {
        if (f->bytes[at + 1] == marker)
            return at;
        at += 2 + (size_t)(f->bytes[at + 2] << 8 | f->bytes[at + 3]);
    }
    fail_msg("no marker %x", marker);
    return 0;
}

enum { SOF0 = 0xC0, SOF2 = 0xC2, SOS = 0xDA, DQT = 0xDB };

/* The file with `n_cut` bytes at `at` replaced by these. */
static td_test_file spliced(const td_test_file *f, size_t at, size_t n_cut, const void *bytes,
                            size_t n)
{
    td_test_file out = td_test_copy(f->bytes, f->n);
    out.n = f->n - n_cut + n;
    out.bytes = realloc(out.bytes, out.n > f->n ? out.n : f->n);
    assert_non_null(out.bytes);
    memcpy(out.bytes + at, bytes, n);
    memcpy(out.bytes + at + n, f->bytes + at + n_cut, f->n - at - n_cut);
    return out;
}

static td_test_file with_size(const char *name, unsigned width, unsigned height)
{
    td_test_file f = td_test_image(name);
    uint8_t *p = f.bytes + find(&f, SOF0) + 5;
    p[0] = (uint8_t)(height >> 8);
    p[1] = (uint8_t)height;
    p[2] = (uint8_t)(width >> 8);
    p[3] = (uint8_t)width;
    return f;
}

/* Decoding these bytes gives this error, also of a region only; the bytes are released. */
static void refuse(td_test_file f, td_status st, const char *part)
{
    td_image img = { 0 };
    expect_error(decode(&f, &img), st, part);
    td_decode_opts region = { .region = { .width = 1, .height = 1 } };
    expect_error(td_image_decode(f.bytes, f.n, &region, &img, NULL), st, part);
    td_image_release(&img);
    td_test_file_release(&f);
}

/* --- what is right ---------------------------------------------------------------------------- */

static void decodes_as_pil(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i]);
        td_image img = td_test_decode(&f);
        td_test_expect_golden(files[i], &img);
        td_image_release(&img);
        td_test_file_release(&f);
    }
}

static void probe_describes(void **state)
{
    (void)state;
    static const struct {
        const char *name, *colour;
        bool is_progressive;
    } rows[] = { { "420.jpg", "YCbCr", false }, { "progressive.jpg", "YCbCr", true },
                 { "rgb.jpg", "RGB", false },   { "gray.jpg", "gray", false },
                 { "cmyk.jpg", "CMYK", false }, { "ycck.jpg", "YCCK", false } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        td_test_file f = td_test_image(rows[i].name);
        td_image_info info;
        expect_ok(td_image_probe(f.bytes, f.n, &info));
        assert_int_equal(info.width, 43);
        assert_int_equal(info.height, 29);
        assert_int_equal(info.orientation, 1);
        assert_int_equal(info.bits, 8);
        assert_string_equal(info.format, "JPEG");
        assert_string_equal(info.colour, rows[i].colour);
        assert_int_equal(info.is_progressive, rows[i].is_progressive);
        td_test_file_release(&f);
    }
}

static void regions_equal_the_whole(void **state)
{
    (void)state;
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 0, 0);
    td_image part = { 0 }, whole = { 0 };
    for (int i = 0; i < 2 * N_FILES; i++) {
        td_test_file f = td_test_image(files[i / 2]);
        td_decode_opts opts = { .is_fast = i % 2 };
        expect_ok(td_image_decode(f.bytes, f.n, &opts, &whole, NULL));
        uint64_t w = (uint64_t)whole.width, h = (uint64_t)whole.height;
        for (int round = 0; round < 60; round++) {
            td_box b = { .x = (int)td_rng_below(&rng, w), .y = (int)td_rng_below(&rng, h) };
            b.width = 1 + (int)td_rng_below(&rng, w - (uint64_t)b.x);
            b.height = 1 + (int)td_rng_below(&rng, h - (uint64_t)b.y);
            td_decoded where;
            opts.region = b;
            expect_ok(td_image_decode(f.bytes, f.n, &opts, &part, &where));
            assert_int_equal(where.full_width, whole.width);
            assert_int_equal(where.full_height, whole.height);
            if (!td_test_region_equal(&whole, &part, &where, b))
                fail_msg("%s: region %d x %d at (%d, %d)%s", files[i / 2], b.width, b.height, b.x,
                         b.y, i % 2 ? ", fast" : "");
        }
        td_test_file_release(&f);
    }
    td_image_release(&part);
    td_image_release(&whole);
}

/* Scaled decoding keeps to out_size, says what it covers, and looks like the image. */
static void scaled_images_are_similar(void **state)
{
    (void)state;
    td_resampler r = { 0 };
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 1, 0);
    td_image drawn = { 0 }, whole = { 0 }, part = { 0 }, small[2] = { { 0 }, { 0 } };
    td_text text = { 0 };
    expect_ok(td_image_draw_sample(0, &rng, 301, 203, &drawn));
    expect_ok(td_image_encode_jpeg(&drawn, 90, &text));
    expect_ok(td_image_decode(text.data, text.len, &(td_decode_opts){ 0 }, &whole, NULL));

    static const struct {
        td_box region;
        int out_size, scale;
    } rows[] = { { { 0, 0, 301, 203 }, 25, 8 },  { { 0, 0, 301, 203 }, 26, 4 },
                 { { 30, 20, 100, 90 }, 40, 2 }, { { 101, 77, 200, 126 }, 20, 4 },
                 { { 30, 20, 100, 90 }, 46, 1 }, { { 290, 190, 11, 13 }, 1, 8 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        td_box b = rows[i].region;
        td_decode_opts opts = { .region = b, .allow_scale = true, .out_size = rows[i].out_size };
        td_decoded at;
        expect_ok(td_image_decode(text.data, text.len, &opts, &part, &at));
        assert_int_equal(at.scale, rows[i].scale);
        assert_int_equal(at.covers.width, part.width * at.scale);
        assert_int_equal(at.covers.height, part.height * at.scale);
        assert_true(at.covers.x <= b.x && at.covers.x + at.covers.width >= b.x + b.width);
        assert_true(at.covers.y <= b.y && at.covers.y + at.covers.height >= b.y + b.height);

        double s = at.scale;
        expect_ok(td_image_resample(&r, &whole, b.x, b.y, b.width, b.height, TD_BILINEAR, 8, 8,
                                    &small[0]));
        expect_ok(td_image_resample(&r, &part, (b.x - at.covers.x) / s, (b.y - at.covers.y) / s,
                                    b.width / s, b.height / s, TD_BILINEAR, 8, 8, &small[1]));
        int sum = 0;
        for (int k = 0; k < 8 * 8 * 3; k++)
            sum += abs(small[0].px[k] - small[1].px[k]);
        assert_in_range(sum, 0, 6 * 8 * 8 * 3);
    }
    td_image_release(&drawn);
    td_image_release(&whole);
    td_image_release(&part);
    td_image_release(&small[0]);
    td_image_release(&small[1]);
    td_resampler_release(&r);
    td_text_release(&text);
}

static void regions_outside_are_refused(void **state)
{
    (void)state;
    static const td_box bad[] = { { -1, 0, 2, 2 },       { 0, -1, 2, 2 },  { 0, 0, 44, 2 },
                                  { 0, 0, 2, 30 },       { 42, 28, 2, 1 }, { 0, 0, 0, 5 },
                                  { 0, 0, 5, -3 },       { 43, 0, 1, 1 },  { INT32_MAX, 0, 1, 1 },
                                  { 1, 0, INT32_MAX, 1 } };
    td_test_file f = td_test_image("420.jpg");
    td_image img = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_error(
            td_image_decode(f.bytes, f.n, &(td_decode_opts){ .region = bad[i] }, &img, NULL),
            TD_EARG, "43 x 29");
    td_image_release(&img);
    td_test_file_release(&f);
}

/* --- damage ----------------------------------------------------------------------------------- */

/* Cut off anywhere, a file is refused; only without its end marker may all pixels be there. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    td_image img = { 0 };
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i]);
        td_image whole = td_test_decode(&f);
        for (size_t n = 0; n < f.n; n++) {
            td_test_file cut = td_test_copy(f.bytes, n);
            td_status st = decode(&cut, &img);
            bool is_good = st == TD_OK && n + 2 >= f.n && img.width == whole.width &&
                           !memcmp(img.px, whole.px, 3u * (unsigned)(img.width * img.height));
            if (st != TD_EFORMAT && !is_good)
                fail_msg("%s cut to %zu bytes: %s", files[i], n, td_status_name(st));
            td_decode_opts top = { .region = { .width = 1, .height = 1 } };
            td_status part = td_image_decode(cut.bytes, n, &top, &img, NULL);
            if (part != st)
                fail_msg("%s cut to %zu bytes: whole %s, region %s", files[i], n,
                         td_status_name(st), td_status_name(part));
            td_test_file_release(&cut);
        }
        td_image_release(&whole);
        td_test_file_release(&f);
    }
    td_image_release(&img);
}

static void the_message_names_the_place(void **state)
{
    (void)state;
    td_test_file f = td_test_image("420.jpg");
    size_t sos = find(&f, SOS), dqt = find(&f, DQT);
    refuse(td_test_copy(f.bytes, sos + 40), TD_EFORMAT, "file ends inside the image data (byte");
    refuse(td_test_copy(f.bytes, dqt + 10), TD_EFORMAT, "file ends before the image data (byte");
    refuse(td_test_copy(f.bytes, 8), TD_EFORMAT, "(byte 8 of 8)");
    td_test_file_release(&f);
}

static void flipped_bits_do_no_harm(void **state)
{
    (void)state;
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 2, 0);
    td_image img = { 0 };
    int n_refused = 0;
    for (int i = 0; i < N_FILES; i++) {
        td_test_file f = td_test_image(files[i]);
        for (int round = 0; round < 300; round++) {
            td_test_file bad = td_test_copy(f.bytes, f.n);
            for (int k = 0; k <= round % 4; k++) {
                uint64_t bit = td_rng_below(&rng, 8 * f.n);
                bad.bytes[bit / 8] = (uint8_t)(bad.bytes[bit / 8] ^ 1 << bit % 8);
            }
            td_decode_opts opts = { .max_pixels = 1 << 22 };
            td_status st = td_image_decode(bad.bytes, bad.n, &opts, &img, NULL);
            if (st != TD_OK && st != TD_EFORMAT && st != TD_EUNSUPPORTED && st != TD_ELIMIT)
                fail_msg("%s: %s", files[i], td_error_message());
            n_refused += st != TD_OK;
            td_test_file_release(&bad);
        }
        td_test_file_release(&f);
    }
    assert_in_range(n_refused, 100, 300 * N_FILES);
    td_image_release(&img);
}

static void sizes_are_checked_first(void **state)
{
    (void)state;
    refuse(with_size("420.jpg", 65535, 65535), TD_ELIMIT, "65500 pixels (byte");
    refuse(with_size("420.jpg", 65500, 65500), TD_ELIMIT, "65500 x 65500 pixels, the limit is");
    refuse(with_size("420.jpg", 20000, 20000), TD_ELIMIT, "20000 x 20000 pixels, the limit is");
    refuse(with_size("420.jpg", 12000, 12000), TD_EFORMAT, "too short for a JPEG of 12000 x 12000");
    refuse(with_size("420.jpg", 0, 29), TD_EFORMAT, "(byte");
    refuse(with_size("420.jpg", 43, 0), TD_EFORMAT, "(byte");

    td_test_file f = td_test_image("420.jpg");
    td_image img = { 0 };
    td_decode_opts opts = { .max_pixels = 43 * 29 - 1 };
    expect_error(td_image_decode(f.bytes, f.n, &opts, &img, NULL), TD_ELIMIT, "43 x 29");
    opts.max_pixels++;
    expect_ok(td_image_decode(f.bytes, f.n, &opts, &img, NULL));
    td_image_release(&img);
    td_test_file_release(&f);
}

static void what_the_library_lacks_is_named(void **state)
{
    (void)state;
    td_test_file f = td_test_image("420.jpg");
    f.bytes[find(&f, SOF0) + 4] = 12;
    refuse(f, TD_EUNSUPPORTED, "12");

    f = td_test_image("420.jpg");
    f.bytes[find(&f, SOF0) + 1] = 0xC5; /* hierarchical */
    refuse(f, TD_EUNSUPPORTED, "JPEG: ");

    /* two components: drop the third from the frame and the scan */
    f = td_test_image("444.jpg");
    size_t sof = find(&f, SOF0);
    f.bytes[sof + 3] = 14;
    f.bytes[sof + 9] = 2;
    td_test_file frame = spliced(&f, sof + 16, 3, "", 0);
    size_t sos = find(&frame, SOS);
    frame.bytes[sos + 3] = 10;
    frame.bytes[sos + 4] = 2;
    refuse(spliced(&frame, sos + 9, 2, "", 0), TD_EUNSUPPORTED, "2 components");
    td_test_file_release(&f);
    td_test_file_release(&frame);
}

/* Where the next marker behind entropy-coded data starts. */
static size_t next_marker(const td_test_file *f, size_t at)
{
    while (!(f->bytes[at] == 0xFF && f->bytes[at + 1] != 0))
        at++;
    return at;
}

/* A progressive file with its first scan written 79,000 times over. */
static void scans_are_counted(void **state)
{
    (void)state;
    enum { N_COPIES = 79000 };
    td_test_file f = td_test_image("progressive.jpg");
    size_t scan = find(&f, SOS), end = next_marker(&f, scan + 2);
    td_text long_file = { 0 };
    td_text_add_bytes(&long_file, (const char *)f.bytes, end);
    for (int i = 0; i < N_COPIES; i++)
        td_text_add_bytes(&long_file, (const char *)f.bytes + scan, end - scan);
    td_text_add_bytes(&long_file, (const char *)f.bytes + end, f.n - end);
    expect_ok(td_text_status(&long_file));

    td_image img = { 0 };
    expect_error(td_image_decode(long_file.data, long_file.len, &(td_decode_opts){ 0 }, &img, NULL),
                 TD_ELIMIT, "scan 501, the limit is 500");
    td_image_release(&img);
    td_text_release(&long_file);
    td_test_file_release(&f);
}

static void lost_restart_markers_are_refused(void **state)
{
    (void)state;
    td_test_file f = td_test_image("restart.jpg");
    size_t at = find(&f, SOS);
    while (!(f.bytes[at] == 0xFF && f.bytes[at + 1] == 0xD0))
        at++;
    td_test_file lost = spliced(&f, at, 2, "", 0);
    td_image img = { 0 };
    expect_error(decode(&lost, &img), TD_EFORMAT, "JPEG: ");
    td_image_release(&img);
    td_test_file_release(&lost);
    td_test_file_release(&f);
}

/* PIL reads these too: nothing of the image is lost. */
static void harmless_oddities_pass(void **state)
{
    (void)state;
    td_test_file f = td_test_image("420.jpg");
    static const char zip[] = "PK\x03\x04 and more";
    td_test_file odd[] = {
        spliced(&f, find(&f, SOS), 0, "\0\1\2", 3),       /* stray bytes between segments */
        spliced(&f, find(&f, SOS), 0, "\xFF\xFF\xFF", 3), /* filling before a marker */
        spliced(&f, f.n - 2, 0, "\0\0\0", 3),             /* stray bytes before the end marker */
        spliced(&f, f.n, 0, zip, sizeof zip),             /* another file behind this one */
        spliced(&f, 2, 0,
                "\xFF\xE1\0\x0A"
                "Exif\0\0MM",
                12), /* an EXIF block that ends early */
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        td_image img = td_test_decode(&odd[i]);
        td_test_expect_golden("420.jpg", &img);
        td_image_release(&img);
        td_test_file_release(&odd[i]);
    }
    td_test_file_release(&f);
}

/* --- writing ---------------------------------------------------------------------------------- */

static void written_images_come_back(void **state)
{
    (void)state;
    td_test_file f = td_test_image("rgb.png");
    td_image img = td_test_decode(&f), back = { 0 };
    size_t n_before = 0;
    for (int quality = 100; quality >= 50; quality -= 25) {
        td_text t = { 0 };
        td_text_add(&t, "x");
        expect_ok(td_image_encode_jpeg(&img, quality, &t));
        assert_int_equal(t.data[0], 'x');
        expect_ok(td_image_decode(t.data + 1, t.len - 1, &(td_decode_opts){ 0 }, &back, NULL));
        int sum = 0, n = 3 * img.width * img.height;
        for (int i = 0; i < n; i++)
            sum += abs(img.px[i] - back.px[i]);
        assert_in_range(sum, 0, (quality == 100 ? 2 : 20) * n);
        assert_true(n_before == 0 || t.len < n_before);
        n_before = t.len;
        td_text_release(&t);
    }
    td_image_release(&img);
    td_image_release(&back);
    td_test_file_release(&f);
}

static void impossible_writing_is_refused(void **state)
{
    (void)state;
    td_image img = { 0 };
    td_text t = { 0 };
    expect_error(td_image_encode_jpeg(&img, 90, &t), TD_EARG, "0 x 0");
    expect_ok(td_image_resize_buffer(&img, 65501, 1));
    expect_error(td_image_encode_jpeg(&img, 90, &t), TD_EARG, "65501 x 1");
    expect_ok(td_image_resize_buffer(&img, 8, 8));
    expect_error(td_image_encode_jpeg(&img, 0, &t), TD_EARG, "quality is 0");
    expect_error(td_image_encode_jpeg(&img, 101, &t), TD_EARG, "quality is 101");
    td_alloc_fail_at(1);
    expect_error(td_image_encode_jpeg(&img, 90, &t), TD_ENOMEM, "cannot allocate");
    td_alloc_fail_at(0);
    td_text_release(&t);
    td_image_release(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_as_pil),
        cmocka_unit_test(probe_describes),
        cmocka_unit_test(regions_equal_the_whole),
        cmocka_unit_test(scaled_images_are_similar),
        cmocka_unit_test(regions_outside_are_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(the_message_names_the_place),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(sizes_are_checked_first),
        cmocka_unit_test(what_the_library_lacks_is_named),
        cmocka_unit_test(scans_are_counted),
        cmocka_unit_test(lost_restart_markers_are_refused),
        cmocka_unit_test(harmless_oddities_pass),
        cmocka_unit_test(written_images_come_back),
        cmocka_unit_test(impossible_writing_is_refused),
    };
    return cmocka_run_group_tests_name("jpeg", tests, NULL, NULL);
}
