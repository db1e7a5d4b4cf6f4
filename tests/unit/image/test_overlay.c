/* test_overlay.c -- boxes, letters and colours on images */
#include "image/overlay.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "support/expect.h"

static const uint8_t grey[3] = { 40, 50, 60 };

static td_image blank(int width, int height)
{
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, width, height));
    td_image_fill(&img, 0, 0, width, height, grey);
    return img;
}

static const uint8_t *at(const td_image *img, int x, int y)
{
    return img->px + 3 * ((int64_t)y * img->width + x);
}

static bool is(const td_image *img, int x, int y, const uint8_t rgb[3])
{
    return memcmp(at(img, x, y), rgb, 3) == 0;
}

static int count(const td_image *img, const uint8_t rgb[3])
{
    int n = 0;
    for (int y = 0; y < img->height; y++) {
        for (int x = 0; x < img->width; x++)
            n += is(img, x, y, rgb);
    }
    return n;
}

static void draw(td_image *img, double x, double y, double width, double height, const char *label,
                 int thick)
{
    td_overlay_box m = { { x, y, width, height }, label, 3, TD_OVERLAY_FOUND };
    td_image_draw_overlay(img, &m, 1, &(td_overlay_opts){ .thick = thick, .text_unit = 1 });
}

static void lines_are_inside_the_box(void **state)
{
    (void)state;
    uint8_t rgb[3];
    td_overlay_colour(3, rgb);
    td_image img = blank(40, 30);
    draw(&img, 5.4, 6.6, 20, 10, NULL, 2); /* 5 .. 25, 7 .. 17 */
    assert_true(is(&img, 5, 7, rgb) && is(&img, 24, 16, rgb) && is(&img, 6, 12, rgb));
    assert_true(is(&img, 4, 7, grey) && is(&img, 25, 16, grey) && is(&img, 5, 6, grey));
    assert_true(is(&img, 7, 9, grey) && is(&img, 22, 14, grey) && is(&img, 24, 17, grey));
    assert_int_equal(count(&img, rgb), 20 * 10 - 16 * 6);
    td_image_release(&img);
}

/* A line thicker than the box fills it; a box without a side is a line; a cut box has no line. */
static void thin_boxes_and_cut_ones(void **state)
{
    (void)state;
    static const struct {
        double box[4];
        int thick, pixels;
    } rows[] = {
        { { 10, 10, 4, 3 }, 50, 12 },
        { { 10, 10, 8, 0 }, 3, 8 },
        { { 10, 10, 0, 0 }, 3, 1 },
        { { -5, -5, 15, 15 }, 1, 19 },
        { { -5, -5, 100, 100 }, 1, 0 },
        { { -1e300, 5, 2e300, 1e300 }, 2, 2 * 40 },
        { { 39, 29, 1e18, 1e18 }, 1, 1 },
        { { 40, 30, 5, 5 }, 1, 0 },
        { { -20, 5, 20, 5 }, 3, 0 },
        { { 10, 10, -4, 3 }, 1, 0 },
        { { 10, 10, 4, -3 }, 1, 0 },
        { { NAN, 10, 4, 3 }, 1, 0 },
        { { 10, NAN, 4, 3 }, 1, 0 },
        { { 10, 10, INFINITY, 3 }, 1, 0 },
        { { 10, 10, 3, NAN }, 1, 0 },
        { { -INFINITY, 10, 3, 3 }, 1, 0 },
        { { 0, 0, 40, 30 }, 2147483647, 1200 },
    };
    uint8_t rgb[3];
    td_overlay_colour(3, rgb);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_image img = blank(40, 30);
        const double *b = rows[i].box;
        draw(&img, b[0], b[1], b[2], b[3], NULL, rows[i].thick);
        if (count(&img, rgb) != rows[i].pixels)
            print_error("row %zu: %d pixels\n", i, count(&img, rgb));
        assert_int_equal(count(&img, rgb), rows[i].pixels);
        td_image_release(&img);
    }
}

static void labels_stand_on_the_box(void **state)
{
    (void)state;
    uint8_t rgb[3];
    td_overlay_colour(3, rgb);
    td_image img = blank(60, 50);
    draw(&img, 10, 20, 30, 20, "I", 1);
    /* a field of 7 x 10 on the upper edge, the letter a dot inside */
    assert_true(is(&img, 10, 10, rgb) && is(&img, 16, 19, rgb));
    assert_true(is(&img, 17, 15, grey) && is(&img, 10, 9, grey));
    assert_false(is(&img, 13, 12, rgb)); /* the I's stem */
    assert_true(is(&img, 11, 12, rgb));
    td_image_release(&img);

    img = blank(60, 50); /* no room above: inside; no room at the right: moved */
    draw(&img, 50, 3, 9, 40, "I", 1);
    draw(&img, 57, 30, 3, 10, "III", 1);
    assert_true(is(&img, 51, 3, rgb) && is(&img, 56, 12, rgb) && !is(&img, 53, 5, rgb));
    assert_true(is(&img, 60 - 19, 20, rgb) && is(&img, 59, 29, rgb) && is(&img, 40, 20, grey));
    td_image_release(&img);

    img = blank(60, 50); /* of a box that is not seen there is no label */
    draw(&img, 70, 10, 5, 5, "away", 1);
    draw(&img, 10, 10, 5, NAN, "away", 1);
    assert_int_equal(count(&img, grey), 60 * 50);
    td_image_release(&img);
}

/* Of what is annotated: dashes of black, white and nothing, the label below the box. */
static void ground_truths_are_dashed(void **state)
{
    (void)state;
    static const uint8_t black[3] = { 0, 0, 0 }, white[3] = { 255, 255, 255 };
    for (int style = TD_OVERLAY_GROUND_TRUTH; style <= TD_OVERLAY_CROWD; style++) {
        const int dash = style == TD_OVERLAY_GROUND_TRUTH ? 8 : 2;
        td_overlay_box m = { { 3, 5, 48, 24 }, NULL, 3, (td_overlay_style)style };
        td_image img = blank(60, 50);
        td_image_draw_overlay(&img, &m, 1, &(td_overlay_opts){ .text_unit = 1 });
        for (int x = 0; x < 48; x++) {
            const uint8_t *ink = x / dash % 3 == 0 ? black : x / dash % 3 == 1 ? white : grey;
            assert_true(x == 0 || x == 47 || is(&img, 3 + x, 5, ink));
        }
        assert_int_equal(count(&img, black) + count(&img, white) + count(&img, grey), 60 * 50);
        assert_true(is(&img, 4, 6, grey) && is(&img, 2, 5, grey));
        m.label = "I";
        td_image_draw_overlay(&img, &m, 1, &(td_overlay_opts){ .text_unit = 1 });
        assert_true(is(&img, 3, 29, white) && is(&img, 9, 38, white) && is(&img, 6, 31, black));
        assert_true(is(&img, 3, 39, grey) && is(&img, 10, 30, grey));
        m.box[1] = 20; /* no room below: inside */
        td_image_draw_overlay(&img, &m, 1, &(td_overlay_opts){ .text_unit = 1 });
        assert_true(is(&img, 4, 35, white) && is(&img, 4, 43, white));
        td_image_release(&img);
    }
}

/* Each printable letter has dots and no other letter's; others show as '?', once a character. */
static void glyphs_differ(void **state)
{
    (void)state;
    static const uint8_t white[3] = { 255, 255, 255 };
    static uint8_t seen[128][3 * 6 * 8];
    for (int c = ' '; c <= '~'; c++) {
        td_image img = blank(6, 8);
        char text[2] = { (char)c, 0 };
        td_image_draw_text(&img, 0, 0, 1, white, text);
        memcpy(seen[c], img.px, sizeof seen[c]);
        assert_int_equal(count(&img, white) == 0, c == ' ');
        for (int y = 0; y < 8; y++)
            assert_true(is(&img, 5, y, grey)); /* room between two */
        for (int k = ' '; k < c; k++)
            assert_memory_not_equal(seen[k], seen[c], sizeof seen[c]);
        td_image_release(&img);
    }
    static const char *const others[] = { "\xC3\xA9", "\xE2\x82\xAC", "\x01", "\x7F", "\xFF" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        td_image img = blank(6, 8);
        td_image_draw_text(&img, 0, 0, 1, white, others[i]);
        assert_memory_equal(img.px, seen['?'], sizeof seen[0]);
        assert_int_equal(td_overlay_count_glyphs(others[i]), 1);
        td_image_release(&img);
    }
    assert_int_equal(td_overlay_count_glyphs(""), 0);
    assert_int_equal(td_overlay_count_glyphs("a\xC3\xA9z"), 3);
}

/* Pixels behind the last and before the first stay: the buffer is watched. */
static void nothing_is_written_outside(void **state)
{
    (void)state;
    enum { W = 23, H = 17, ROUNDS = 3000 };
    static const double odd[] = { 0,    -0.0, 1,     -1,     W,     H,   W - 0.5,  1e9,
                                  -1e9, 1e18, 1e308, -1e308, 0.499, NAN, INFINITY, -INFINITY };
    td_rng r = td_rng_make(1, TD_RNG_TEST, 0, 0);
    td_image whole = blank(W, H + 2), part = whole; /* the part: without first and last row */
    part.px = whole.px + 3 * W;
    part.height = H;
    for (int i = 0; i < ROUNDS; i++) {
        td_overlay_box m = { .label = i % 2 ? "gjpqy|@" : "",
                             .colour = i,
                             .style = (td_overlay_style)(i % 3) };
        for (int k = 0; k < 4; k++) {
            uint64_t n = td_rng_below(&r, 2 * sizeof odd / sizeof *odd);
            m.box[k] = n < sizeof odd / sizeof *odd ? odd[n] : td_rng_uniform(&r) * 60 - 20;
        }
        td_overlay_opts opts = { .thick = (int)td_rng_below(&r, 4) * (i % 7 ? 1 : 100000000),
                                 .text_unit = (int)td_rng_below(&r, 4) * (i % 5 ? 1 : 100000000) };
        td_image_draw_overlay(&part, &m, 1, &opts);
        for (int x = 0; x < W; x++)
            assert_true(is(&whole, x, 0, grey) && is(&whole, x, H + 1, grey));
    }
    td_image_release(&whole);
    td_image none = { 0 };
    draw(&none, 0, 0, 5, 5, "x", 1);
}

static void colours_of_neighbours_differ(void **state)
{
    (void)state;
    for (int64_t k = -20; k < 200; k++) {
        uint8_t a[3], b[3];
        td_overlay_colour(k, a);
        for (int64_t d = 1; d <= 4; d++) {
            td_overlay_colour(k + d, b);
            assert_true(abs(a[0] - b[0]) + abs(a[1] - b[1]) + abs(a[2] - b[2]) >= 60);
        }
        td_overlay_colour(k, b);
        assert_memory_equal(a, b, 3);
    }
    uint8_t rgb[3];
    td_overlay_colour(INT64_MIN, rgb);
    td_overlay_colour(INT64_MAX, rgb);
}

static void sizes_follow_the_image(void **state)
{
    (void)state;
    static const int rows[][3] = { { 64, 1, 8 }, { 320, 1, 8 }, { 480, 2, 16 }, { 1200, 6, 32 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int side = rows[i][0], thick = 0, tall = 0;
        uint8_t rgb[3];
        td_image img = blank(side, side);
        td_overlay_box m = { { side / 4, side / 2, side / 2, side / 4 }, "I", 3, TD_OVERLAY_FOUND };
        td_overlay_colour(3, rgb);
        td_image_draw_overlay(&img, &m, 1, &(td_overlay_opts){ 0 });
        while (is(&img, side / 2, side / 2 + thick, rgb))
            thick++;
        while (!is(&img, side / 4, side / 2 - 1 - tall, grey))
            tall++;
        assert_int_equal(thick, rows[i][1]);
        assert_int_equal(tall, rows[i][2] / 8 * 10);
        td_image_release(&img);
    }
}

static void endings_choose_the_format(void **state)
{
    (void)state;
    static const struct {
        const char *name, *format;
    } rows[] = {
        { "a.png", "PNG" },     { "b.c/a.PNG", "PNG" }, { "a.jpg", "JPEG" },
        { "x.y.JPEG", "JPEG" }, { "a.gif", NULL },      { "a", NULL },
        { "", NULL },           { "a.png/b", NULL },    { "png", NULL },
    };
    td_image img = blank(30, 20);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_text t = { 0 };
        td_image_info info;
        if (rows[i].format) {
            expect_ok(td_image_encode(&img, rows[i].name, 0, &t));
            expect_ok(td_image_probe(t.data, t.len, &info));
            assert_string_equal(info.format, rows[i].format);
        } else {
            expect_error(td_image_encode(&img, rows[i].name, 0, &t), TD_EUNSUPPORTED,
                         "png, .jpg or .jpeg");
        }
        td_text_release(&t);
    }
    td_image_release(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_inside_the_box),
        cmocka_unit_test(thin_boxes_and_cut_ones),
        cmocka_unit_test(labels_stand_on_the_box),
        cmocka_unit_test(ground_truths_are_dashed),
        cmocka_unit_test(glyphs_differ),
        cmocka_unit_test(nothing_is_written_outside),
        cmocka_unit_test(colours_of_neighbours_differ),
        cmocka_unit_test(sizes_follow_the_image),
        cmocka_unit_test(endings_choose_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
