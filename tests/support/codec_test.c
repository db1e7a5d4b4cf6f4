/* codec_test.c -- tests that every image codec shares */
#include "support/codec_test.h"

#include "support/expect.h"

static td_status decode(const td_test_file *f, td_image *img)
{
    return td_image_decode(f->bytes, f->n, &(td_decode_opts){ 0 }, img, NULL);
}

void td_codec_decodes(const td_codec_cases *c)
{
    for (int i = 0; i < c->n; i++) {
        td_test_file f = td_test_image(c->files[i].name);
        td_image img = td_test_decode(&f);
        td_image_info info;
        td_test_expect_golden(c->files[i].name, &img);
        expect_ok(td_image_probe(f.bytes, f.n, &info));
        assert_string_equal(info.format, c->format);
        assert_string_equal(info.colour, c->files[i].colour);
        assert_int_equal(info.bits, c->files[i].bits);
        assert_int_equal(info.width, c->files[i].width);
        assert_int_equal(info.height, c->files[i].height);
        td_image_release(&img);
        td_test_file_release(&f);
    }
}

void td_codec_refuses_cut_files(const td_codec_cases *c)
{
    td_image img = { 0 };
    for (int i = 0; i < c->n; i++) {
        const char *name = c->files[i].name;
        td_test_file f = td_test_image(name);
        for (size_t n = 0; n < f.n; n++) {
            td_test_file cut = td_test_copy(f.bytes, n);
            td_status st = decode(&cut, &img);
            if (st == TD_OK && n + c->spare_bytes >= f.n)
                td_test_expect_golden(name, &img);
            else if (st != TD_EFORMAT)
                fail_msg("%s cut to %zu of %zu bytes: %s", name, n, f.n, td_status_name(st));
            td_test_file_release(&cut);
        }
        td_test_file_release(&f);
    }
    td_image_release(&img);
}

void td_codec_bears_flipped_bits(const td_codec_cases *c)
{
    enum { ROUNDS = 300, PIXELS = 1 << 20 };
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 0, 0);
    td_image img = { 0 };
    for (int i = 0; i < c->n; i++) {
        td_test_file f = td_test_image(c->files[i].name);
        for (int round = 0; round < ROUNDS; round++) {
            td_test_file bad = td_test_copy(f.bytes, f.n);
            uint64_t bit = td_rng_below(&rng, 8 * f.n);
            bad.bytes[bit / 8] = (uint8_t)(bad.bytes[bit / 8] ^ 1 << bit % 8);
            const td_decode_opts opts = { .max_pixels = PIXELS };
            td_status st = td_image_decode(bad.bytes, bad.n, &opts, &img, NULL);
            if (st != TD_OK && st != TD_EFORMAT && st != TD_ELIMIT && st != TD_EUNSUPPORTED)
                fail_msg("%s: %s", c->files[i].name, td_error_message());
            td_test_file_release(&bad);
        }
        td_test_file_release(&f);
    }
    td_image_release(&img);
}
