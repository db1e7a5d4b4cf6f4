/*
 * test_augment.c -- crops, sizes and rows
 *
 * Means and deviations of torchvision's sampler come from 200,000 calls of
 * RandomResizedCrop.get_params(img, [0.08, 1], [3/4, 4/3]) of torchvision 0.29 per image size.
 */
#include <math.h>
#include <stdio.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "transforms/augment.h"

/* --- crops ------------------------------------------------------------------------------------ */

enum { AREA, RATIO, X, Y, N_STATS };

static void crops_are_distributed_as_torchvisions(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    static const struct {
        int width, height;
        double mean[N_STATS], deviation[N_STATS];
    } cases[] = {
        { 500,
          375,
          { 0.43388, 0.03081, 0.21768, 0.13965 },
          { 0.21679, 0.16413, 0.16094, 0.13533 } },
        { 300,
          700,
          { 0.26738, -0.03603, 0.12296, 0.33027 },
          { 0.11763, 0.16458, 0.11853, 0.19837 } },
        { 64, 64, { 0.4844, -0.00029, 0.16331, 0.16316 }, { 0.23682, 0.16015, 0.14801, 0.1479 } },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int w = cases[c].width, h = cases[c].height;
        double sum[N_STATS] = { 0 }, square[N_STATS] = { 0 };
        for (uint64_t i = 0; i < DRAWS; i++) {
            td_rng r = td_rng_make(1, TD_RNG_CROP, 0, i);
            td_box b = td_random_crop(TD_RULES_TORCHVISION, &r, w, h);
            assert_true(b.x >= 0 && b.y >= 0 && b.width > 0 && b.height > 0);
            assert_true(b.x + b.width <= w && b.y + b.height <= h);
            double v[N_STATS] = { (double)b.width * b.height / ((double)w * h),
                                  log((double)b.width / b.height), (double)b.x / w,
                                  (double)b.y / h };
            for (int k = 0; k < N_STATS; k++) {
                sum[k] += v[k];
                square[k] += v[k] * v[k];
            }
        }
        for (int k = 0; k < N_STATS; k++) {
            double mean = sum[k] / DRAWS, deviation = sqrt(square[k] / DRAWS - mean * mean);
            /* five standard errors of the two samples */
            double room = 5 * cases[c].deviation[k] * sqrt(1.0 / DRAWS + 1.0 / 200000);
            if (fabs(mean - cases[c].mean[k]) > room ||
                fabs(deviation - cases[c].deviation[k]) > room)
                fail_msg("%d x %d, value %d: mean %g, deviation %g, wanted %g, %g", w, h, k, mean,
                         deviation, cases[c].mean[k], cases[c].deviation[k]);
        }
    }
}

static void thin_images_are_cropped_in_the_centre(void **state)
{
    (void)state;
    static const struct {
        int width, height;
        td_box box;
    } cases[] = {
        { 1, 65500, { 0, 32749, 1, 1 } }, /* w = W, h = round(W / (3/4)) */
        { 65500, 1, { 32749, 0, 1, 1 } }, /* h = H, w = round(H * 4/3) */
        { 10, 4000, { 0, 1993, 10, 13 } }, { 4000, 10, { 1993, 0, 13, 10 } },
        { 1, 1, { 0, 0, 1, 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_rng r = td_rng_make(1, TD_RNG_CROP, 0, i);
        td_box b = td_random_crop(TD_RULES_TORCHVISION, &r, cases[i].width, cases[i].height);
        assert_int_equal(b.x, cases[i].box.x);
        assert_int_equal(b.y, cases[i].box.y);
        assert_int_equal(b.width, cases[i].box.width);
        assert_int_equal(b.height, cases[i].box.height);
    }
}

static void sizes_are_torchvisions(void **state)
{
    (void)state;
    static const int cases[][5] = { /* from torchvision 0.29, _compute_resized_output_size */
                                    { 500, 375, 256, 341, 256 }, { 375, 500, 97, 97, 129 },
                                    { 501, 333, 256, 385, 256 }, { 257, 256, 256, 257, 256 },
                                    { 100, 99, 256, 258, 256 },  { 31, 2000, 97, 97, 6258 },
                                    { 4288, 2848, 97, 146, 97 }, { 256, 256, 64, 64, 64 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int w, h;
        td_short_side(TD_RULES_TORCHVISION, cases[i][0], cases[i][1], cases[i][2], 1, &w, &h);
        assert_int_equal(w, cases[i][3]);
        assert_int_equal(h, cases[i][4]);
    }
    /* int(round((H - c) / 2.0)) rounds 16.5 to 16 and 17.5 to 18 */
    assert_int_equal(td_centre_crop(TD_RULES_TORCHVISION, 257, 259, 224).x, 16);
    assert_int_equal(td_centre_crop(TD_RULES_TORCHVISION, 257, 259, 224).y, 18);
    assert_int_equal(td_centre_crop(TD_RULES_TORCHVISION, 341, 256, 224).x, 58);
    assert_int_equal(td_centre_crop(TD_RULES_TORCHVISION, 224, 224, 224).x, 0);
}

/* --- rows ------------------------------------------------------------------------------------- */

enum { S = 32, ROW = 3 * S * S };

static const td_transform training = {
    .is_training = true, .size = S, .filter = TD_BILINEAR, .seed = 9
};

/* the same in the plainest way: decode all of it, cut, resize, flip */
static void plain_training_row(const char *path, const td_transform *t, int64_t epoch,
                               int64_t sample, float *dst)
{
    td_transformer w = { 0 };
    expect_ok(td_transform_read(&w, path));
    td_decode_opts opts = { .stored_orientation = t->stored_orientation };
    expect_ok(td_image_decode(w.bytes, w.n_bytes, &opts, &w.decoded, NULL));
    td_rng r = td_rng_make(t->seed, TD_RNG_CROP, (uint64_t)epoch, (uint64_t)sample);
    td_box box = td_random_crop(TD_RULES_TORCHVISION, &r, w.decoded.width, w.decoded.height);
    expect_ok(td_image_crop(&w.decoded, box, &w.cut));
    expect_ok(td_image_resample(&w.resampler, &w.cut, 0, 0, box.width, box.height, t->filter, S, S,
                                &w.sized));
    if (td_rng_uniform(&r) < 0.5)
        td_image_flip(&w.sized);
    td_image_normalise(&w.sized, false, dst);
    td_transformer_release(&w);
}

/* put an EXIF block with this orientation behind the first marker of a JPEG */
static void turn(const char *from, const char *to, int orientation)
{
    const unsigned char exif[] = {
        0xFF, 0xE1, 0,    34,   'E', 'x', 'i', 'f', 0, 0, 'I',
        'I',  42,   0,    8,    0,   0,   0, /* TIFF header */
        1,    0,    0x12, 0x01, 3,   0,   1,   0,   0, 0, (unsigned char)orientation,
        0,    0,    0,    0,    0,   0,   0
    };
    char *bytes;
    size_t n;
    expect_ok(td_file_read(from, 1 << 24, &bytes, &n));
    td_text out = { 0 };
    td_text_add_bytes(&out, bytes, 2);
    td_text_add_bytes(&out, (const char *)exif, sizeof exif);
    td_text_add_bytes(&out, bytes + 2, n - 2);
    expect_ok(td_file_write(to, out.data, out.len));
    td_text_release(&out);
    td_free(bytes);
}

static void training_rows_are_exact(void **state)
{
    (void)state;
    static float got[ROW], wanted[ROW];
    const char *files[] = { td_scratch_path("a.jpg"), td_scratch_path("b.png"),
                            td_scratch_path("turned.jpg") };
    td_write_image(files[0], 1, 1, 150, 117);
    td_write_image(files[1], 2, 1, 40, 50);
    turn(files[0], files[2], 6);
    td_transformer w = { 0 };
    for (int bicubic = 0; bicubic < 2; bicubic++) {
        td_transform t = training;
        t.filter = bicubic ? TD_BICUBIC : TD_BILINEAR;
        for (int64_t i = 0; i < 60; i++) {
            const char *path = files[i % 3];
            t.stored_orientation = i & 1;
            expect_ok(td_transform_file(&w, &t, path, i / 7, i, got));
            plain_training_row(path, &t, i / 7, i, wanted);
            assert_memory_equal(got, wanted, sizeof got);
        }
    }
    td_transformer_release(&w);
}

/* decoding at reduced size changes pixels a little, never the place or the flip */
static void scaled_decoding_is_close(void **state)
{
    (void)state;
    static float got[ROW], wanted[ROW];
    const char *path = td_scratch_path("big.jpg");
    td_write_image(path, 1, 1, 900, 700);
    td_transformer w = { 0 };
    int n_differ = 0;
    td_transform t = training;
    t.is_fast = true;
    for (int64_t i = 0; i < 30; i++) {
        expect_ok(td_transform_file(&w, &t, path, 0, i, got));
        plain_training_row(path, &training, 0, i, wanted);
        double sum = 0;
        for (int k = 0; k < ROW; k++)
            sum += fabs((double)got[k] - wanted[k]);
        n_differ += sum > 0;
        if (sum / ROW > 0.03) /* 1.7 of 255 */
            fail_msg("row %d differs by %g on average", (int)i, sum / ROW);
    }
    assert_true(n_differ > 0); /* it was used */
    td_transformer_release(&w);
}

static void about_half_are_flipped(void **state)
{
    (void)state;
    static float a[ROW];
    /* left black, right white: which side is bright tells the flip, whatever the crop */
    td_image img = { 0 };
    expect_ok(td_image_resize_buffer(&img, 64, 64));
    for (int i = 0; i < 64 * 64 * 3; i++)
        img.px[i] = (uint8_t)(i / 3 % 64 * 4);
    td_text png = { 0 };
    expect_ok(td_image_encode_png(&img, &png));
    const char *path = td_scratch_path("ramp.png");
    expect_ok(td_file_write(path, png.data, png.len));
    td_transformer w = { 0 };
    int n = 0;
    for (int64_t i = 0; i < 1000; i++) {
        expect_ok(td_transform_file(&w, &training, path, 0, i, a));
        n += a[0] > a[S - 1];
    }
    assert_in_range(n, 421, 579); /* five deviations */
    td_transformer_release(&w);
    td_image_release(&img);
    td_text_release(&png);
}

static void evaluation_rows_are_exact(void **state)
{
    (void)state;
    static float got[ROW], wanted[ROW];
    const td_transform t = { .size = S, .padding = 5, .filter = TD_BILINEAR };
    static const int sizes[][2] = { { 150, 117 }, { 50, 111 }, { 37, 37 }, { 20, 33 } };
    td_transformer w = { 0 }, v = { 0 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *path = td_scratch_path("eval.jpg");
        td_write_image(path, (int)i, 3, sizes[i][0], sizes[i][1]);
        expect_ok(td_transform_file(&w, &t, path, 0, 0, got));

        int width, height;
        expect_ok(td_transform_read(&v, path));
        expect_ok(td_image_decode(v.bytes, v.n_bytes, &(td_decode_opts){ 0 }, &v.decoded, NULL));
        td_short_side(TD_RULES_TORCHVISION, sizes[i][0], sizes[i][1], 37, 1, &width, &height);
        expect_ok(td_image_resample(&v.resampler, &v.decoded, 0, 0, sizes[i][0], sizes[i][1],
                                    TD_BILINEAR, width, height, &v.sized));
        expect_ok(td_image_crop(&v.sized, td_centre_crop(TD_RULES_TORCHVISION, width, height, S),
                                &v.cut));
        td_image_normalise(&v.cut, false, wanted);
        assert_memory_equal(got, wanted, sizeof got);
    }
    td_transformer_release(&w);
    td_transformer_release(&v);
}

/* resized whole, a strip of 16 x 4096 would need 256 times its pixels at size 256 */
static void thin_images_need_little_memory(void **state)
{
    (void)state;
    static float dst[3 * 1024 * 1024];
    const td_transform t = { .size = 1024, .padding = 0, .filter = TD_BILINEAR };
    const char *path = td_scratch_path("thin.png");
    td_write_image(path, 0, 3, 16, 4096);
    td_transformer w = { 0 };
    expect_ok(td_transform_file(&w, &t, path, 0, 0, dst));
    assert_true(w.sized.cap_bytes < 64 << 20 && w.cut.cap_bytes < 64 << 20);
    td_transformer_release(&w);
}

static void bad_files_are_errors(void **state)
{
    (void)state;
    static float dst[ROW];
    td_transformer w = { 0 };
    td_write_text(td_scratch_path("text.jpg"), "hello");
    td_write_text(td_scratch_path("empty.jpg"), "");
    for (int train = 0; train < 2; train++) {
        td_transform t = training;
        t.is_training = train;
        expect_error(td_transform_file(&w, &t, td_scratch_path("text.jpg"), 0, 0, dst), TD_EFORMAT,
                     "text");
        expect_error(td_transform_file(&w, &t, td_scratch_path("empty.jpg"), 0, 0, dst), TD_EFORMAT,
                     "empty");
        expect_error(td_transform_file(&w, &t, td_scratch_path("absent.jpg"), 0, 0, dst),
                     TD_ENOTFOUND, "absent.jpg");
        expect_error(td_transform_file(&w, &t, td_scratch_folder(), 0, 0, dst), TD_EIO, "folder");
    }
    td_transformer_release(&w);
}

static void check_buffers_are_kept(const char *path)
{
    static float dst[ROW];
    td_transformer w = { 0 };
    td_transform t = training;
    for (int64_t i = 0; i < 300; i++) /* until the largest crop has been seen */
        expect_ok(td_transform_file(&w, &t, path, 0, i, dst));
    td_alloc_fail_at(1);
    td_status st = TD_OK;
    for (int64_t i = 0; i < 300 && st == TD_OK; i++)
        st = td_transform_file(&w, &t, path, 0, i, dst);
    td_alloc_fail_at(0);
    expect_ok(st);
    td_transformer_release(&w);
}

static void buffers_are_kept(void **state)
{
    (void)state;
    const char *path = td_scratch_path("kept.jpg"), *turned = td_scratch_path("kept6.jpg");
    td_write_image(path, 1, 1, 200, 200);
    turn(path, turned, 6);
    check_buffers_are_kept(path);
    check_buffers_are_kept(turned);
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    static float dst[ROW];
    const char *path = td_scratch_path("alloc.jpg");
    td_write_image(path, 1, 1, 100, 80);
    turn(path, td_scratch_path("alloc6.jpg"), 6);
    for (int kind = 0; kind < 16; kind++) { /* training, turned, and whose rules */
        td_transform t = training;
        t.is_training = kind & 1;
        t.rules = kind >> 2 == 1 ? TD_RULES_DALI : kind >> 2 == 2 ? TD_RULES_TF : t.rules;
        t.is_point = kind >> 2 == 1;
        t.is_autoaugmented = kind >> 2 == 3 && t.is_training;
        t.padding = 4;
        path = td_scratch_path(kind & 2 ? "alloc6.jpg" : "alloc.jpg");
        td_status st = TD_ENOMEM;
        int n = 0;
        for (; st != TD_OK && n < 1000; n++) {
            td_transformer w = { 0 };
            td_alloc_fail_at(n + 1);
            st = td_transform_file(&w, &t, path, 0, 0, dst);
            td_alloc_fail_at(0);
            assert_true(st == TD_OK || st == TD_ENOMEM);
            td_transformer_release(&w);
        }
        assert_in_range(n, 3, 999);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_are_distributed_as_torchvisions),
        cmocka_unit_test(thin_images_are_cropped_in_the_centre),
        cmocka_unit_test(sizes_are_torchvisions),
        leak_checked_test(training_rows_are_exact),
        leak_checked_test(scaled_decoding_is_close),
        leak_checked_test(about_half_are_flipped),
        leak_checked_test(evaluation_rows_are_exact),
        leak_checked_test(thin_images_need_little_memory),
        leak_checked_test(bad_files_are_errors),
        leak_checked_test(buffers_are_kept),
        leak_checked_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
