/* test_object_crop.c -- windows and what becomes of boxes: geometry, bounds and probabilities */
#include <math.h>
#include <stdio.h>

#include "support/expect.h"

#include "transforms/crop.h"
#include "transforms/object_crop.h"

static td_ground_truth ground_truth(float ymin, float xmin, float ymax, float xmax, int label)
{
    return (td_ground_truth){ .box = { ymin, xmin, ymax, xmax }, .label = label, .area = 7 };
}

static void expect_rect(td_rect r, float ymin, float xmin, float ymax, float xmax)
{
    const float want[] = { ymin, xmin, ymax, xmax }, got[] = { r.ymin, r.xmin, r.ymax, r.xmax };
    for (int i = 0; i < 4; i++)
        if (fabsf(want[i] - got[i]) > 1e-6F)
            fail_msg("corner %d is %.9g, wanted %.9g", i, got[i], want[i]);
}

static td_rng stream(uint64_t i)
{
    return td_rng_make(11, TD_RNG_TEST, i, 0);
}

/* up to 4 boxes anywhere in the image */
static int random_ground_truths(td_rng *r, td_ground_truth *t)
{
    int n = 1 + (int)td_rng_below(r, 4);
    for (int i = 0; i < n; i++) {
        double h = 0.01 + 0.9 * td_rng_uniform(r), w = 0.01 + 0.9 * td_rng_uniform(r);
        double y = (1 - h) * td_rng_uniform(r), x = (1 - w) * td_rng_uniform(r);
        t[i] = ground_truth((float)y, (float)x, (float)(y + h), (float)(x + w), i + 1);
    }
    return n;
}

static bool is_in_image(td_rect b)
{
    return b.ymin >= 0 && b.xmin >= 0 && b.ymax <= 1 && b.xmax <= 1 && b.ymin <= b.ymax &&
           b.xmin <= b.xmax;
}

/* --- flips ------------------------------------------------------------------------------------ */

static void flips(void **state)
{
    (void)state;
    td_ground_truth t[] = { ground_truth(0.1F, 0.2F, 0.5F, 0.7F, 3), ground_truth(0, 0, 1, 1, 4),
                            ground_truth(0.5F, 0.75F, 0.5F, 0.75F, 5) };
    td_ground_truths_flip(t, 3);
    expect_rect(t[0].box, 0.1F, 0.3F, 0.5F, 0.8F);
    expect_rect(t[1].box, 0, 0, 1, 1);
    expect_rect(t[2].box, 0.5F, 0.25F, 0.5F, 0.25F);
    assert_true(t[0].label == 3 && t[0].area == 7);
}

/* 1 - (1 - x) is x again, where x is a multiple of 2^-24: twice is nothing */
static void two_flips_are_none(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        td_rng r = stream(i);
        float x = (float)td_rng_below(&r, 1 << 24) / 16777216;
        float y = (float)td_rng_below(&r, 1 << 24) / 16777216;
        td_ground_truth t = ground_truth(0.25F, x < y ? x : y, 0.5F, x < y ? y : x, 1), before = t;
        td_ground_truths_flip(&t, 1);
        assert_true(t.box.xmin <= t.box.xmax);
        td_ground_truths_flip(&t, 1);
        assert_memory_equal(&t.box, &before.box, sizeof t.box);
    }
}

/* --- SSD320 ----------------------------------------------------------------------------------- */

/* every window lies in the image, has 75 .. 100 % of its area and a ratio of about .75 .. 3 */
static void windows_keep_their_bounds(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 640, 480 }, { 480, 640 }, { 320, 320 }, { 1000, 300 },
                                    { 7, 5 },     { 333, 500 }, { 1, 1 } };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int width = sizes[k][0], height = sizes[k][1], n_cropped = 0;
        for (uint64_t i = 0; i < 2000; i++) {
            td_rng r = stream(i);
            td_box b = td_distorted_crop(&r, width, height, NULL, 0);
            assert_true(b.x >= 0 && b.y >= 0 && b.width > 0 && b.height > 0);
            assert_true(b.x + b.width <= width && b.y + b.height <= height);
            double area = (double)b.width * b.height / ((double)width * height);
            double ratio = (double)b.width / b.height;
            assert_true(area >= 0.75 && area <= 1);
            if (b.width == width && b.height == height)
                continue;
            n_cropped++;
            /* rounding of the width moves the ratio by half a pixel at most */
            assert_true(ratio > 0.75 - 0.51 / b.height && ratio < 3 + 0.51 / b.height);
        }
        if (width > 300 && height >= 300)
            assert_true(n_cropped > 1900);
    }
}

/* no ratio of .75 .. 3 leaves 75 % of an image outside .5625 .. 4: it always passes whole */
static void narrow_images_pass_whole(void **state)
{
    (void)state;
    static const int sizes[][2] = { { 560, 1000 }, { 4010, 1000 }, { 100, 1000 } };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t i = 0; i < 300; i++) {
            td_rng r = stream(i);
            td_box b = td_distorted_crop(&r, sizes[k][0], sizes[k][1], NULL, 0);
            assert_true(b.x == 0 && b.y == 0 && b.width == sizes[k][0] && b.height == sizes[k][1]);
        }
}

/* One draw finds a window where the ratio lies in [.75 r, r / .75] and [.75, 3]; where that is
   short, all 100 draws fail as often as follows from it. */
static void draws_fail_as_often_as_derived(void **state)
{
    (void)state;
    enum { N = 4000 };
    static const int sizes[][2] = { { 5750, 10000 }, { 5660, 10000 }, { 39500, 10000 } };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double r0 = (double)sizes[k][0] / sizes[k][1];
        double chance = (fmin(r0 / 0.75, 3) - fmax(0.75 * r0, 0.75)) / 2.25;
        double want = pow(1 - chance, 100);
        int n_whole = 0;
        for (uint64_t i = 0; i < N; i++) {
            td_rng r = stream(i);
            td_box b = td_distorted_crop(&r, sizes[k][0], sizes[k][1], NULL, 0);
            n_whole += b.width == sizes[k][0] && b.height == sizes[k][1];
        }
        /* three standard deviations, and what rounding to pixels adds */
        double slack = 3 * sqrt(want * (1 - want) / N) + 0.01;
        if (fabs((double)n_whole / N - want) > slack)
            fail_msg("%d x %d: %d of %d whole, wanted %g", sizes[k][0], sizes[k][1], n_whole, N,
                     want * N);
    }
}

/* Means and deviations of 100,000 windows each of TensorFlow 2.21's sample_distorted_bounding_box
   with these bounds: width, height, x, y. */
static void windows_are_tensorflows(void **state)
{
    (void)state;
    enum { N = 20000, THEIRS = 100000 };
    static const struct {
        int width, height;
        double moments[4][2];
    } cases[] = {
        { 640, 480, { { 584.49, 48.54 }, { 427.05, 38.46 }, { 27.10, 32.11 }, { 26.10, 26.96 } } },
        { 480, 640, { { 464.43, 14.23 }, { 533.23, 36.23 }, { 7.30, 9.30 }, { 52.87, 37.24 } } },
        { 1800,
          600,
          { { 1515.75, 103.35 }, { 578.53, 18.48 }, { 141.50, 101.60 }, { 10.29, 12.32 } } },
        { 575, 1000, { { 574.25, 1.31 }, { 868.31, 121.58 }, { 0.21, 0.62 }, { 65.80, 79.78 } } },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double sum[4] = { 0 }, square[4] = { 0 };
        for (uint64_t i = 0; i < N; i++) {
            td_rng r = stream(i);
            td_box b = td_distorted_crop(&r, cases[k].width, cases[k].height, NULL, 0);
            const double v[] = { b.width, b.height, b.x, b.y };
            for (int j = 0; j < 4; j++) {
                sum[j] += v[j];
                square[j] += v[j] * v[j];
            }
        }
        for (int j = 0; j < 4; j++) {
            double mean = sum[j] / N, sd = sqrt(square[j] / N - mean * mean);
            const double *want = cases[k].moments[j];
            double slack = 4.5 * want[1] * sqrt(1.0 / N + 1.0 / THEIRS) + 0.005;
            if (fabs(mean - want[0]) > slack || fabs(sd / want[1] - 1) > 0.04)
                fail_msg("%d x %d, %d: mean %.3f, deviation %.3f, wanted %.3f and %.3f",
                         cases[k].width, cases[k].height, j, mean, sd, want[0], want[1]);
        }
    }
}

/* the place is uniform, but never the last one */
static void windows_lie_everywhere(void **state)
{
    (void)state;
    enum { N = 20000 };
    double sum = 0, square = 0;
    int n = 0;
    for (uint64_t i = 0; i < N; i++) {
        td_rng r = stream(i);
        td_box b = td_distorted_crop(&r, 640, 480, NULL, 0);
        if (b.width > 620)
            continue;
        double u = b.x / (double)(640 - b.width);
        assert_true(u < 1);
        sum += u;
        square += u * u;
        n++;
    }
    double mean = sum / n, variance = square / n - mean * mean;
    assert_true(fabs(mean - 0.5) < 0.02 && fabs(variance - 1.0 / 12) < 0.01);
}

/* boxes without a whole pixel give the sampler nothing to cover */
static void boxes_below_a_pixel_prevent_a_crop(void **state)
{
    (void)state;
    td_ground_truth tiny[] = { ground_truth(0.5F, 0.5F, 0.501F, 0.6F, 1),
                               ground_truth(0.1F, 0.1F, 0.1F, 0.9F, 1) };
    td_ground_truth seen[] = { tiny[0], ground_truth(0.5F, 0.5F, 0.6F, 0.6F, 1) };
    int n_cropped = 0;
    for (uint64_t i = 0; i < 200; i++) {
        td_rng r = stream(i), s = stream(i);
        td_box b = td_distorted_crop(&r, 100, 100, tiny, 2);
        assert_true(b.width == 100 && b.height == 100);
        b = td_distorted_crop(&s, 100, 100, seen, 2);
        n_cropped += b.width < 100 || b.height < 100;
    }
    assert_true(n_cropped > 150);
}

static void boxes_follow_the_window(void **state)
{
    (void)state;
    const td_box window = { .x = 20, .y = 10, .width = 80, .height = 40 }; /* of 200 x 100 */
    td_ground_truth t[] = {
        ground_truth(0.2F, 0.2F, 0.3F, 0.3F, 1),  /* inside */
        ground_truth(0, 0, 1, 1, 2),              /* around it */
        ground_truth(0.4F, 0.4F, 0.9F, 0.9F, 3),  /* over the corner */
        ground_truth(0.6F, 0.2F, 0.8F, 0.3F, 4),  /* below */
        ground_truth(0.2F, 0.5F, 0.3F, 0.6F, 5),  /* touches the right edge */
        ground_truth(0.2F, 0.02F, 0.3F, 0.1F, 6), /* touches the left edge */
        ground_truth(0.2F, 0.3F, 0.2F, 0.4F, 7),  /* no area */
        ground_truth(0.3F, 0.45F, 0.31F, 2, 8),   /* leaves the image */
    };
    int n = td_ground_truths_crop(t, 8, window, 200, 100);
    assert_int_equal(n, 4);
    expect_rect(t[0].box, 0.25F, 0.25F, 0.5F, 0.5F);
    expect_rect(t[1].box, 0, 0, 1, 1);
    expect_rect(t[2].box, 0.75F, 0.75F, 1, 1);
    expect_rect(t[3].box, 0.5F, 0.875F, 0.525F, 1);
    assert_true(t[0].label == 1 && t[1].label == 2 && t[2].label == 3 && t[3].label == 8);
}

/* a point of a box is the same point of the image before and after, for any window */
static void boxes_are_where_they_were(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        td_rng r = stream(i);
        td_ground_truth t[4], before[4];
        int n = random_ground_truths(&r, t), k = 0;
        for (int j = 0; j < n; j++)
            before[j] = t[j];
        td_box b = td_distorted_crop(&r, 640, 480, t, n);
        int n_kept = td_ground_truths_crop(t, n, b, 640, 480);
        for (int j = 0; j < n_kept; j++, k++) {
            while (before[k].label != t[j].label)
                k++;
            assert_true(is_in_image(t[j].box));
            double left = b.x + (double)t[j].box.xmin * b.width;
            double top = b.y + (double)t[j].box.ymin * b.height;
            double was_left = fmax((double)before[k].box.xmin * 640, b.x);
            double was_top = fmax((double)before[k].box.ymin * 480, b.y);
            assert_true(fabs(left - was_left) < 1e-3 && fabs(top - was_top) < 1e-3);
        }
    }
}

/* --- SSD300 ----------------------------------------------------------------------------------- */

static void overlap_windows_keep_their_bounds(void **state)
{
    (void)state;
    enum { N = 20000 };
    int n_whole = 0;
    for (uint64_t i = 0; i < N; i++) {
        td_rng r = stream(i);
        td_ground_truth t[4];
        int n = random_ground_truths(&r, t);
        td_rect w = td_overlap_crop(&r, t, n);
        assert_true(is_in_image(w));
        float width = w.xmax - w.xmin, height = w.ymax - w.ymin;
        if (width == 1 && height == 1) {
            n_whole++;
            continue;
        }
        assert_true(width > 0.2999F && height > 0.2999F);
        assert_true(width / height > 0.4999F && width / height < 2.0001F);
        int n_kept = td_ground_truths_crop_centres(t, n, w);
        assert_true(n_kept >= 1 && n_kept <= n);
        for (int k = 0; k < n_kept; k++)
            assert_true(is_in_image(t[k].box));
    }
    /* one option of seven is the whole image, and the others often fail */
    assert_true(n_whole > N / 7 && n_whole < N * 3 / 4);
}

/* A ground truth of the whole image: a window's IoU is its area. How often each bound's one try
   succeeds is known by drawing windows here, and from that how often the image stays whole. */
static void options_are_drawn_alike(void **state)
{
    (void)state;
    enum { N = 40000, BOUNDS = 6 };
    static const double bounds[BOUNDS] = { 0, 0.1, 0.3, 0.5, 0.7, 0.9 };
    const td_ground_truth whole = ground_truth(0, 0, 1, 1, 1);
    int n_whole = 0, n_good[BOUNDS] = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        td_rng r = stream(i), s = stream(N + i);
        n_whole += td_rect_area(td_overlap_crop(&r, &whole, 1)) == 1;
        double w = 0.3 + 0.7 * td_rng_uniform(&s), h = 0.3 + 0.7 * td_rng_uniform(&s);
        double x = (1 - w) * td_rng_uniform(&s), y = (1 - h) * td_rng_uniform(&s);
        bool has_centre = x <= 0.5 && x + w >= 0.5 && y <= 0.5 && y + h >= 0.5;
        for (int k = 0; k < BOUNDS; k++)
            n_good[k] += w / h >= 0.5 && w / h <= 2 && has_centre && w * h >= bounds[k];
    }
    double sum = 1;
    for (int k = 0; k < BOUNDS; k++)
        sum += (double)n_good[k] / N;
    if (fabs((double)n_whole / N - 1 / sum) > 0.012)
        fail_msg("%g of the images are whole, wanted %g", (double)n_whole / N, 1 / sum);
}

/* The same for SSDLite's windows, which have 40 tries for each bound. */
static void torchvisions_windows_are_drawn_alike(void **state)
{
    (void)state;
    enum { N = 20000, BOUNDS = 6, TRIES = 40, WIDTH = 200, HEIGHT = 150 };
    static const double bounds[BOUNDS] = { 0, 0.1, 0.3, 0.5, 0.7, 0.9 };
    const td_ground_truth whole = ground_truth(0, 0, 1, 1, 1);
    int n_whole = 0, n_good[BOUNDS] = { 0 };
    for (uint64_t i = 0; i < N; i++) {
        td_rng r = stream(i), s = stream(N + i);
        const td_box b = td_torch_crop(&r, WIDTH, HEIGHT, &whole, 1);
        assert_true(b.x >= 0 && b.y >= 0 && b.width > 0 && b.height > 0);
        assert_true(b.x + b.width <= WIDTH && b.y + b.height <= HEIGHT);
        n_whole += b.width == WIDTH && b.height == HEIGHT;
        const int w = (int)(WIDTH * (0.3 + 0.7 * td_rng_uniform(&s)));
        const int h = (int)(HEIGHT * (0.3 + 0.7 * td_rng_uniform(&s)));
        const int x = (int)((WIDTH - w) * td_rng_uniform(&s));
        const int y = (int)((HEIGHT - h) * td_rng_uniform(&s));
        const bool has_centre = 2 * x <= WIDTH && 2 * (x + w) >= WIDTH && 2 * y <= HEIGHT &&
                                2 * (y + h) >= HEIGHT && 2 * w >= h && w <= 2 * h;
        for (int k = 0; k < BOUNDS; k++)
            n_good[k] += has_centre && (double)(w * h) >= bounds[k] * WIDTH * HEIGHT;
    }
    double sum = 1;
    for (int k = 0; k < BOUNDS; k++)
        sum += 1 - pow(1 - (double)n_good[k] / N, TRIES);
    if (fabs((double)n_whole / N - 1 / sum) > 0.012)
        fail_msg("%g of the images are whole, wanted %g", (double)n_whole / N, 1 / sum);
}

/* the overlap is required of one of the boxes with their centre inside, not of all */
static void torchvisions_windows_have_a_box(void **state)
{
    (void)state;
    int n_far = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        td_rng r = stream(i);
        const td_ground_truth t[2] = { ground_truth(0.1F, 0.1F, 0.4F, 0.4F, 1),
                                       ground_truth(0.7F, 0.7F, 0.75F, 0.75F, 2) };
        const td_rect w = td_box_fraction(td_torch_crop(&r, 100, 100, t, 2), 100, 100);
        td_ground_truth kept[2] = { t[0], t[1] };
        const int n = td_ground_truths_crop_centres(kept, 2, w);
        assert_true(n >= 1);
        n_far += n == 1;
    }
    assert_true(n_far > 200);
    td_rng r = stream(1);
    assert_int_equal(td_torch_crop(&r, 30, 40, NULL, 0).width, 30);
    const td_ground_truth outside = ground_truth(3, 3, 4, 4, 1);
    assert_int_equal(td_torch_crop(&r, 1, 1, &outside, 1).height, 1);
}

static void keeps_boxes_by_their_centre(void **state)
{
    (void)state;
    const td_rect window = { 0.2F, 0.2F, 0.7F, 0.6F };
    td_ground_truth t[] = {
        ground_truth(0.3F, 0.3F, 0.4F, 0.4F, 1), /* inside */
        ground_truth(0.1F, 0.1F, 0.5F, 0.5F, 2), /* its centre is */
        ground_truth(0.6F, 0.5F, 0.9F, 0.9F, 3), /* overlaps only */
        ground_truth(0.8F, 0.8F, 0.9F, 0.9F, 4), /* outside */
    };
    assert_int_equal(td_ground_truths_crop_centres(t, 4, window), 2);
    expect_rect(t[0].box, 0.2F, 0.25F, 0.4F, 0.5F);
    expect_rect(t[1].box, 0, 0, 0.6F, 0.75F);
    assert_true(t[0].label == 1 && t[1].label == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flips),
        cmocka_unit_test(two_flips_are_none),
        cmocka_unit_test(windows_keep_their_bounds),
        cmocka_unit_test(narrow_images_pass_whole),
        cmocka_unit_test(draws_fail_as_often_as_derived),
        cmocka_unit_test(windows_are_tensorflows),
        cmocka_unit_test(windows_lie_everywhere),
        cmocka_unit_test(boxes_below_a_pixel_prevent_a_crop),
        cmocka_unit_test(boxes_follow_the_window),
        cmocka_unit_test(boxes_are_where_they_were),
        cmocka_unit_test(overlap_windows_keep_their_bounds),
        cmocka_unit_test(options_are_drawn_alike),
        cmocka_unit_test(torchvisions_windows_are_drawn_alike),
        cmocka_unit_test(torchvisions_windows_have_a_box),
        cmocka_unit_test(keeps_boxes_by_their_centre),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
