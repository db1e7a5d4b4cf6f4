/* test_exif.c -- the orientation: reading it, mapping boxes, turning images */
#include "image/codec.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/expect.h"
#include "support/images.h"

/* A TIFF block of one entry, little or big endian. */
static size_t block(uint8_t *p, bool is_big, unsigned type, unsigned value)
{
    static const uint8_t little[26] = {
        'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 0, 0, 1, 0, 0, 0
    };
    static const uint8_t big[26] = { 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 0, 0, 0, 0, 1 };
    memcpy(p, is_big ? big : little, 26);
    p[is_big ? 13 : 12] = (uint8_t)type;
    unsigned n = type == 4 ? 4 : 2;
    for (unsigned i = 0; i < n; i++)
        p[18 + (is_big ? n - 1 - i : i)] = (uint8_t)(value >> 8 * i);
    return 26;
}

static void both_byte_orders_are_read(void **state)
{
    (void)state;
    static const unsigned values[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 257, 65535 };
    uint8_t p[26];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        int wanted = values[i] >= 1 && values[i] <= 8 ? (int)values[i] : 1;
        for (unsigned type = 3; type <= 4; type++) {
            size_t n = block(p, false, type, values[i]);
            assert_int_equal(td_exif_orientation(p, n), wanted);
            n = block(p, true, type, values[i]);
            assert_int_equal(td_exif_orientation(p, n), wanted);
        }
    }
    size_t n = block(p, false, 2, 6); /* a text is no orientation */
    assert_int_equal(td_exif_orientation(p, n), 1);
    block(p, false, 3, 6);
    p[14] = 0xFF; /* 255 values are none either */
    assert_int_equal(td_exif_orientation(p, n), 1);
}

static void hostile_blocks_mean_upright(void **state)
{
    (void)state;
    uint8_t p[26];
    for (size_t n = 0; n < 22; n++) { /* cut before the entry ends */
        block(p, false, 3, 6);
        td_test_file cut = td_test_copy(p, n);
        assert_int_equal(td_exif_orientation(cut.bytes, n), 1);
        td_test_file_release(&cut);
    }
    static const uint32_t offsets[] = { 0, 4, 7, 24, 25, 26, 27, 0x7FFFFFFF, 0xFFFFFFFF };
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        block(p, false, 3, 6);
        for (unsigned k = 0; k < 4; k++)
            p[4 + k] = (uint8_t)(offsets[i] >> 8 * k);
        assert_int_equal(td_exif_orientation(p, 26), 1);
    }
    block(p, false, 3, 6);
    p[8] = p[9] = 0xFF; /* 65,535 entries; the first is there */
    assert_int_equal(td_exif_orientation(p, 26), 6);
    p[10] = 0x13; /* and none of them is the orientation */
    assert_int_equal(td_exif_orientation(p, 26), 1);
}

/* Random bytes behind a good beginning: never a wild read (the sanitizers watch), always 1 .. 8. */
static void random_blocks_are_harmless(void **state)
{
    (void)state;
    td_rng rng = td_rng_make(1, TD_RNG_TEST, 0, 0);
    for (int round = 0; round < 20000; round++) {
        uint8_t p[64];
        size_t n = 8 + (size_t)td_rng_below(&rng, 57);
        for (size_t i = 0; i < n; i++)
            p[i] = (uint8_t)td_rng_below(&rng, td_rng_u32(&rng) & 1 ? 256 : 20);
        memcpy(p, round % 2 ? "II*\0" : "MM\0*", 4);
        td_test_file f = td_test_copy(p, n);
        int o = td_exif_orientation(f.bytes, n);
        assert_in_range(o, 1, 8);
        td_test_file_release(&f);
    }
}

static void segments_are_walked(void **state)
{
    (void)state;
    td_test_file f = td_test_image("turn6.jpg");
    assert_int_equal(td_exif_orientation_of_jpeg(f.bytes, f.n), 6);
    for (size_t n = 0; n < f.n; n++) {
        td_test_file cut = td_test_copy(f.bytes, n);
        int o = td_exif_orientation_of_jpeg(cut.bytes, n);
        assert_true(o == 1 || o == 6);
        td_test_file_release(&cut);
    }
    td_test_file_release(&f);
    static const uint8_t endless[] = { 0xFF, 0xD8, 0xFF, 0xE0, 0, 0 };
    assert_int_equal(td_exif_orientation_of_jpeg(endless, sizeof endless), 1);

    f = td_test_image("turn6.png");
    assert_int_equal(td_exif_orientation_of_png(f.bytes, f.n), 6);
    for (size_t n = 0; n < f.n; n++) {
        td_test_file cut = td_test_copy(f.bytes, n);
        int o = td_exif_orientation_of_png(cut.bytes, n);
        assert_true(o == 1 || o == 6);
        td_test_file_release(&cut);
    }
    td_test_file_release(&f);
}

static void boxes_map_back(void **state)
{
    (void)state;
    td_box b = { 3, 5, 7, 2 };
    for (int o = 1; o <= 8; o++) {
        td_box stored = td_orient_to_stored(b, o, 40, 30);
        td_box back = td_orient_to_upright(stored, o, 40, 30);
        assert_memory_equal(&b, &back, sizeof b);
        assert_int_equal(stored.width, td_orient_swaps(o) ? 2 : 7);
        assert_int_equal(stored.height, td_orient_swaps(o) ? 7 : 2);
        assert_true(stored.x >= 0 && stored.x + stored.width <= 40);
        assert_true(stored.y >= 0 && stored.y + stored.height <= 30);
    }
}

static void files_come_upright(void **state)
{
    (void)state;
    td_image img = { 0 }, part = { 0 };
    for (int o = 1; o <= 9; o++) {
        char name[16];
        snprintf(name, sizeof name, o < 9 ? "turn%d.jpg" : "turn6.png", o);
        td_test_file f = td_test_image(name);
        td_image_info info;
        td_decoded where;
        expect_ok(td_image_probe(f.bytes, f.n, &info));
        assert_int_equal(info.orientation, o < 9 ? o : 6);
        assert_int_equal(info.width, 21);
        assert_int_equal(info.height, 13);
        expect_ok(td_image_decode(f.bytes, f.n, &(td_decode_opts){ 0 }, &img, &where));
        td_test_expect_golden(name, &img);
        assert_int_equal(where.full_width, img.width);
        assert_int_equal(where.full_height, img.height);
        assert_int_equal(where.covers.width, img.width);

        td_decode_opts opts = { .region = { 1, 2, 3, 4 } };
        expect_ok(td_image_decode(f.bytes, f.n, &opts, &part, &where));
        assert_true(td_test_region_equal(&img, &part, &where, opts.region));
        opts = (td_decode_opts){ .stored_orientation = true };
        expect_ok(td_image_decode(f.bytes, f.n, &opts, &img, NULL));
        assert_int_equal(img.width, 21);
        assert_int_equal(img.height, 13);
        td_test_file_release(&f);
    }
    td_image_release(&img);
    td_image_release(&part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_byte_orders_are_read),
        cmocka_unit_test(hostile_blocks_mean_upright),
        cmocka_unit_test(random_blocks_are_harmless),
        cmocka_unit_test(segments_are_walked),
        cmocka_unit_test(boxes_map_back),
        cmocka_unit_test(files_come_upright),
    };
    return cmocka_run_group_tests_name("exif", tests, NULL, NULL);
}
