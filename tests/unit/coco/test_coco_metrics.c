/* test_coco_metrics.c -- the twelve numbers on sets small enough to count by hand, and laws */
#include <math.h>

#include "support/allocations.h"
#include "support/expect.h"

#include "base/rng.h"
#include "coco/coco_metrics.h"

#define NEAR 1e-12

static td_coco_ground_truth ground_truth(int64_t image, int64_t category, double x, double y,
                                         double side)
{
    return (td_coco_ground_truth){ image, category, { x, y, side, side }, side * side, false };
}

static td_coco_detection found(const td_coco_ground_truth *t, double score)
{
    return (td_coco_detection){
        t->image, t->category, { t->box[0], t->box[1], t->box[2], t->box[3] }, score
    };
}

static td_coco_detection elsewhere(const td_coco_ground_truth *t, double score)
{
    td_coco_detection d = found(t, score);
    d.box[0] += 10 * d.box[2];
    return d;
}

/* The values of these; released at once. */
static td_coco_metrics compute(const td_coco_ground_truth *t, size_t n, const td_coco_detection *d,
                               size_t n_found, const td_coco_metrics_opts *opts)
{
    td_coco_metrics m;
    expect_ok(td_coco_metrics_compute(t, n, d, n_found, opts, &m));
    td_coco_metrics_release(&m);
    return m;
}

static void expect_near(double found_value, double wanted)
{
    if (!(fabs(found_value - wanted) <= NEAR))
        print_error("%.17g, wanted %.17g\n", found_value, wanted);
    assert_true(fabs(found_value - wanted) <= NEAR);
}

static void one_perfect_detection_is_one(void **state)
{
    (void)state;
    td_coco_ground_truth t = ground_truth(0, 1, 10, 10, 50);
    td_coco_detection d = found(&t, 0.3);
    td_coco_metrics m = compute(&t, 1, &d, 1, NULL);
    static const int ones[] = { TD_COCO_AP,  TD_COCO_AP50, TD_COCO_AP75,  TD_COCO_APM,
                                TD_COCO_AR1, TD_COCO_AR10, TD_COCO_AR100, TD_COCO_ARM };
    static const int absent[] = { TD_COCO_APS, TD_COCO_APL, TD_COCO_ARS, TD_COCO_ARL };
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        expect_near(m.value[ones[i]], 1);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        expect_near(m.value[absent[i]], -1);
}

static void a_miss_before_a_hit_is_half(void **state)
{
    (void)state;
    td_coco_ground_truth t = ground_truth(7, 1, 10, 10, 200);
    td_coco_detection d[] = { found(&t, 0.3), elsewhere(&t, 0.4) };
    td_coco_metrics m = compute(&t, 1, d, 2, NULL);
    expect_near(m.value[TD_COCO_AP], 0.5);
    expect_near(m.value[TD_COCO_APL], 0.5);
    expect_near(m.value[TD_COCO_AR1], 0);
    expect_near(m.value[TD_COCO_AR10], 1);
}

static void nothing_found_is_zero_and_nothing_there_is_minus_one(void **state)
{
    (void)state;
    td_coco_ground_truth t = ground_truth(0, 1, 0, 0, 20), crowd = t;
    crowd.is_crowd = true;
    td_coco_detection d = found(&t, 0.5);
    td_coco_metrics m = compute(&t, 1, NULL, 0, NULL);
    expect_near(m.value[TD_COCO_AP], 0);
    expect_near(m.value[TD_COCO_AR100], 0);
    expect_near(m.value[TD_COCO_APM], -1);
    for (int k = 0; k < 3; k++) {
        m = k == 0   ? compute(NULL, 0, NULL, 0, NULL)
            : k == 1 ? compute(NULL, 0, &d, 1, NULL)
                     : compute(&crowd, 1, &d, 1, NULL);
        for (int i = 0; i < TD_COCO_VALUES; i++)
            expect_near(m.value[i], -1);
    }
}

/* On a crowd many detections land without being wrong, by what they share of themselves. */
static void crowds_swallow(void **state)
{
    (void)state;
    td_coco_ground_truth t[] = { ground_truth(0, 1, 0, 0, 50), ground_truth(0, 1, 100, 100, 400) };
    t[1].is_crowd = true;
    td_coco_ground_truth inside = ground_truth(0, 1, 120, 120, 60);
    td_coco_detection d[] = { found(&inside, 0.9), found(&inside, 0.8), found(&t[0], 0.7) };
    td_coco_metrics m = compute(t, 2, d, 3, NULL);
    expect_near(m.value[TD_COCO_AP], 1);
    t[1].is_crowd = false;
    m = compute(t, 2, d, 3, NULL);
    assert_true(m.value[TD_COCO_AP] < 0.5);
}

/* 32 x 32 is small and medium both, 96 x 96 medium and large. */
static void limits_of_areas_belong_to_both_sides(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        td_coco_ground_truth t = ground_truth(0, 1, 0, 0, k ? 96 : 32);
        td_coco_detection d = found(&t, 0.5);
        td_coco_metrics m = compute(&t, 1, &d, 1, NULL);
        expect_near(m.value[TD_COCO_APS], k ? -1 : 1);
        expect_near(m.value[TD_COCO_APM], 1);
        expect_near(m.value[TD_COCO_APL], k ? 1 : -1);
    }
}

static void areas_are_the_annotations_or_the_boxes(void **state)
{
    (void)state;
    td_coco_ground_truth t = ground_truth(0, 1, 0, 0, 100);
    t.area = 900; /* an outline inside its box */
    td_coco_detection d = found(&t, 0.5);
    td_coco_metrics m = compute(&t, 1, &d, 1, NULL);
    expect_near(m.value[TD_COCO_APS], 1);
    expect_near(m.value[TD_COCO_APL], -1);
    m = compute(&t, 1, &d, 1, &(td_coco_metrics_opts){ .box_areas = true });
    expect_near(m.value[TD_COCO_APS], -1);
    expect_near(m.value[TD_COCO_APL], 1);
}

/* The 101st detection of an image and class is not looked at; nor are categories not asked for. */
static void caps_and_categories(void **state)
{
    (void)state;
    enum { N = 101 };
    td_coco_ground_truth t[2] = { ground_truth(0, 1, 0, 0, 50), ground_truth(0, 9, 0, 0, 50) };
    td_coco_detection d[N];
    for (int i = 0; i < N; i++)
        d[i] = elsewhere(&t[0], 0.5);
    d[N - 1] = found(&t[0], 0.5);
    expect_near(compute(t, 1, d, N, NULL).value[TD_COCO_AR100], 0);
    expect_near(compute(t, 1, d + 1, N - 1, NULL).value[TD_COCO_AR100], 1);

    td_coco_detection nine = found(&t[1], 1);
    expect_near(compute(t, 2, &nine, 1, NULL).value[TD_COCO_AP], 0.5);
    td_coco_metrics m;
    const int64_t wanted[] = { 12, 9, 9 };
    td_coco_metrics_opts opts = { .categories = wanted, .n_categories = 3 };
    expect_ok(td_coco_metrics_compute(t, 2, &nine, 1, &opts, &m));
    expect_near(m.value[TD_COCO_AP], 1);
    assert_int_equal(m.n_classes, 2);
    assert_int_equal(m.classes[0].category, 9);
    assert_int_equal(m.classes[0].n_ground_truths, 1);
    expect_near(m.classes[0].ap, 1);
    assert_int_equal(m.classes[1].category, 12);
    assert_int_equal(m.classes[1].n_ground_truths, 0);
    expect_near(m.classes[1].ap, -1);
    expect_near(m.classes[1].ar100, -1);
    td_coco_metrics_release(&m);
}

/* Of two ground truths that fit equally well the later is taken, the earlier score comes first. */
static void ties(void **state)
{
    (void)state;
    td_coco_ground_truth t[] = { ground_truth(0, 1, 0, 0, 50), ground_truth(0, 1, 0, 0, 50) };
    td_coco_detection d[] = { found(t, 0.5), found(t, 0.5), elsewhere(t, 0.5) };
    expect_near(compute(t, 2, d, 3, NULL).value[TD_COCO_AP], 1);
    td_coco_detection reversed[] = { d[2], d[1], d[0] };
    td_coco_metrics m = compute(t, 2, reversed, 3, NULL);
    expect_near(m.value[TD_COCO_AP], 2.0 / 3);
    expect_near(m.value[TD_COCO_AR1], 0);
}

static void numbers_must_be_numbers(void **state)
{
    (void)state;
    static const double bad[] = { NAN, INFINITY, -INFINITY, 1e16 };
    td_coco_metrics m;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (int k = 0; k < 6; k++) {
            td_coco_ground_truth t = ground_truth(0, 1, 0, 0, 50);
            td_coco_detection d = found(&t, 0.5);
            *(k < 4 ? &d.box[k] : k == 4 ? &d.score : &t.area) = bad[i];
            expect_error(td_coco_metrics_compute(&t, 1, &d, 1, NULL, &m), TD_ENUMERIC,
                         k == 5 ? "truth 0 has the number" : "detection 0 has the number");
            assert_null(m.classes);
        }
    }
}

/* --- laws ------------------------------------------------------------------------------------- */

enum { GROUND_TRUTHS = 60, FOUND = 200, CLASSES = 4, IMAGES = 6 };

static td_coco_ground_truth some_ground_truths[GROUND_TRUTHS];
static td_coco_detection some_found[FOUND];

static void draw(uint64_t seed)
{
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < GROUND_TRUTHS; i++) {
        td_coco_ground_truth *t = &some_ground_truths[i];
        *t = ground_truth((int64_t)td_rng_below(&r, IMAGES), (int64_t)td_rng_below(&r, CLASSES),
                          td_rng_uniform(&r) * 300, td_rng_uniform(&r) * 300,
                          8 + td_rng_uniform(&r) * 150);
        t->is_crowd = td_rng_below(&r, 10) == 0;
    }
    for (int i = 0; i < FOUND; i++) {
        some_found[i] =
            found(&some_ground_truths[td_rng_below(&r, GROUND_TRUTHS)], td_rng_uniform(&r));
        for (int k = 0; k < 4; k++)
            some_found[i].box[k] *= 0.8 + 0.4 * td_rng_uniform(&r);
    }
}

static void expect_same(const td_coco_metrics *a, const td_coco_metrics *b)
{
    for (int i = 0; i < TD_COCO_VALUES; i++)
        expect_near(a->value[i], b->value[i]);
}

static void orders_and_scales_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        draw(seed);
        td_coco_metrics all = compute(some_ground_truths, GROUND_TRUTHS, some_found, FOUND, NULL);
        for (int i = 0; i < TD_COCO_VALUES; i++)
            assert_true(all.value[i] == -1 || (all.value[i] >= 0 && all.value[i] <= 1));
        assert_true(all.value[TD_COCO_AP] <= all.value[TD_COCO_AP50]);
        assert_true(all.value[TD_COCO_AR1] <= all.value[TD_COCO_AR10]);
        assert_true(all.value[TD_COCO_AR10] <= all.value[TD_COCO_AR100]);

        for (int i = 0; i < FOUND / 2; i++) { /* scores differ, so order says nothing */
            td_coco_detection d = some_found[i];
            some_found[i] = some_found[FOUND - 1 - i];
            some_found[FOUND - 1 - i] = d;
        }
        for (int i = 0; i < FOUND; i++) {
            some_found[i].score = exp(some_found[i].score) - 5;
            some_found[i].image = INT64_MAX - some_found[i].image;
            some_found[i].category -= 3;
        }
        for (int i = 0; i < GROUND_TRUTHS; i++) {
            some_ground_truths[i].image = INT64_MAX - some_ground_truths[i].image;
            some_ground_truths[i].category -= 3;
        }
        td_coco_metrics other = compute(some_ground_truths, GROUND_TRUTHS, some_found, FOUND, NULL);
        expect_same(&all, &other);
    }
}

/* The mean over classes is what classes give alone; what is found of no class changes nothing. */
static void classes_stand_alone(void **state)
{
    (void)state;
    draw(99);
    double sum[TD_COCO_VALUES] = { 0 }, n[TD_COCO_VALUES] = { 0 };
    td_coco_metrics all = compute(some_ground_truths, GROUND_TRUTHS, some_found, FOUND, NULL);
    for (int64_t k = 0; k < CLASSES; k++) {
        td_coco_metrics_opts one = { .categories = &k, .n_categories = 1 };
        td_coco_metrics m = compute(some_ground_truths, GROUND_TRUTHS, some_found, FOUND, &one);
        for (int i = 0; i < TD_COCO_VALUES; i++) {
            sum[i] += m.value[i] < 0 ? 0 : m.value[i];
            n[i] += m.value[i] >= 0;
        }
    }
    for (int i = 0; i < TD_COCO_VALUES; i++)
        expect_near(all.value[i], sum[i] / n[i]);
}

static void lines_are_those_of_pycocotools(void **state)
{
    (void)state;
    static const double v[TD_COCO_VALUES] = {
        0.27349, 0.5, 1, 0, -1, 0.0004, .1, .2, .3, .4, .5, .6
    };
    td_text t = { 0 };
    td_coco_metrics_print(v, &t);
    assert_string_equal(
        td_text_get(&t),
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.273\n"
        " Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.500\n"
        " Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = 1.000\n"
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 0.000\n"
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = -1.000\n"
        " Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.000\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.100\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = 0.200\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.300\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 0.400\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 0.500\n"
        " Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.600\n");
    td_text_release(&t);
}

static td_status run_once(void)
{
    td_coco_metrics m;
    td_status st =
        td_coco_metrics_compute(some_ground_truths, GROUND_TRUTHS, some_found, FOUND, NULL, &m);
    td_coco_metrics_release(&m);
    return st;
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    draw(5);
    assert_true(td_test_allocations(run_once, 100) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_perfect_detection_is_one),
        cmocka_unit_test(a_miss_before_a_hit_is_half),
        cmocka_unit_test(nothing_found_is_zero_and_nothing_there_is_minus_one),
        cmocka_unit_test(crowds_swallow),
        cmocka_unit_test(limits_of_areas_belong_to_both_sides),
        cmocka_unit_test(areas_are_the_annotations_or_the_boxes),
        cmocka_unit_test(caps_and_categories),
        cmocka_unit_test(ties),
        cmocka_unit_test(numbers_must_be_numbers),
        cmocka_unit_test(orders_and_scales_change_nothing),
        cmocka_unit_test(classes_stand_alone),
        cmocka_unit_test(lines_are_those_of_pycocotools),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
