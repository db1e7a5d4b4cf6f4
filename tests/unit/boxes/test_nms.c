/*
 * test_nms.c -- anchors and suppression at their edges: options, numbers that are none, memory
 */
#include <math.h>

#include "base/rng.h"
#include "boxes/decode.h"
#include "boxes/nms.h"
#include "boxes/nms_pick.h"
#include "boxes/targets.h"
#include "support/allocations.h"
#include "support/expect.h"

#define COLUMNS 5

typedef struct {
    td_anchors *anchors;
    td_nms *nms;
    float *deltas, *logits;
    td_detection found[TD_NMS_TOTAL_MAX];
    int n;
} detector;

static void detector_open(td_detector kind, int size, float logit, detector *d)
{
    expect_ok(td_anchors_new(kind, size, &d->anchors));
    expect_ok(td_nms_new(d->anchors, COLUMNS, &d->nms));
    const size_t n = (size_t)d->anchors->n;
    d->deltas = td_alloc(n, 4 * sizeof(float));
    d->logits = td_alloc(n, COLUMNS * sizeof(float));
    assert_true(d->deltas && d->logits);
    for (size_t i = 0; i < n * COLUMNS; i++)
        d->logits[i] = logit;
}

static void detector_close(detector *d)
{
    td_nms_free(d->nms);
    td_anchors_free(d->anchors);
    td_free(d->deltas);
    td_free(d->logits);
}

static void detect(detector *d)
{
    const td_nms_opts opts = td_nms_defaults(d->anchors->kind);
    expect_ok(td_nms_run(d->nms, &opts, d->deltas, d->logits, d->found, &d->n));
}

/* --- anchors ---------------------------------------------------------------------------------- */

static void sizes_are_checked(void **state)
{
    (void)state;
    td_anchors *a;
    assert_int_equal(td_anchors_count(TD_DETECTOR_SSD320, 320), 12804);
    assert_int_equal(td_anchors_count(TD_DETECTOR_SSD300, 300), 8732);
    assert_int_equal(td_anchors_count(TD_DETECTOR_SSD320, 300), 0);
    assert_int_equal(td_anchors_count(TD_DETECTOR_NONE, 320), 0);
    expect_error(td_anchors_new(TD_DETECTOR_SSD320, 330, &a), TD_EARG, "multiple of 32");
    assert_null(a);
    expect_error(td_anchors_new(TD_DETECTOR_SSD320, 8192, &a), TD_EARG, "8192");
    expect_error(td_anchors_new(TD_DETECTOR_SSD300, 320, &a), TD_EARG, "wanted 300");
    expect_error(td_anchors_new(TD_DETECTOR_RETINANET, 32, &a), TD_EARG, "from 64 to 4096");
    assert_int_equal(td_anchors_count(TD_DETECTOR_RETINANET, 100), 0);
    expect_error(td_anchors_new(TD_DETECTOR_NONE, 320, &a), TD_EARG, "an unknown detector");
    td_anchors_free(NULL);
}

/* the figures of the published description */
static void anchors_are_where_they_should(void **state)
{
    (void)state;
    td_anchors *a;
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, 320, &a));
    assert_true(a->corner[0].ymin == -0.0375F && a->corner[0].xmax == 0.0625F);
    assert_true(fabsf(a->corner[1].ymax - 0.083211F) < 1e-6F);
    assert_true(a->corner[12804 - 54].ymin == -0.8F && a->corner[12804 - 54].xmax == 0.8F);
    for (int i = 0; i < a->n; i++)
        assert_true(a->ymin[i] == a->corner[i].ymin && a->xmax[i] == a->corner[i].xmax &&
                    a->area[i] == td_rect_area(a->corner[i]));
    td_anchors_free(a);
}

static void a_box_of_ten_five(void **state)
{
    (void)state;
    td_centre centre = { 0.05F, 0.05F, 0.1F, 0.1F };
    const td_anchors a = { .kind = TD_DETECTOR_SSD320, .n = 1, .centre = &centre };
    float code[4];
    td_box_encode(&a, 0, (td_rect){ 0.05F, 0.05F, 0.25F, 0.15F }, code);
    assert_true(fabsf(code[0] - 10) < 1e-5F && fabsf(code[1] - 5) < 1e-5F);
    assert_true(fabsf(code[2] - 3.465736F) < 1e-5F && fabsf(code[3]) < 1e-5F);
}

/* --- matching --------------------------------------------------------------------------------- */

static void odd_ground_truths_do_no_harm(void **state)
{
    (void)state;
    static const td_detector kinds[] = { TD_DETECTOR_SSD320, TD_DETECTOR_SSD300,
                                         TD_DETECTOR_SSDLITE, TD_DETECTOR_RETINANET };
    static const td_ground_truth odd[] = {
        { .box = { NAN, 0, 1, 1 }, .label = 1 },
        { .box = { 0, 0, INFINITY, 1 }, .label = 2 },
        { .box = { 0.4F, 0.4F, 0.4F, 0.6F }, .label = 3 }, /* no height */
        { .box = { 30, 30, 31, 31 }, .label = 4 },         /* outside */
        { .box = { 0.8F, 0.8F, 0.2F, 0.2F }, .label = 5 }, /* turned over */
        { .box = { -1e30F, -1e30F, 1e30F, 1e30F }, .label = 6 },
    };
    for (int k = 0; k < 4; k++) {
        td_anchors *a;
        expect_ok(td_anchors_new(kinds[k], k == 1 ? 300 : 64, &a));
        void *scratch = td_alloc(1, td_targets_scratch_bytes(a));
        int64_t *labels = td_alloc((size_t)a->n, sizeof *labels);
        float *deltas = td_alloc((size_t)a->n, 4 * sizeof *deltas);
        assert_true(scratch && labels && deltas);
        assert_int_equal(td_targets_assign(a, odd, 2, scratch, labels, deltas), 0);
        assert_int_equal(td_targets_assign(a, odd, 6, scratch, labels, deltas), k < 3);
        if (k < 3) /* all claim anchor 0: the first, the last; RetinaNet's none */
            assert_int_equal(labels[0], k ? 6 : 3);
        assert_int_equal(td_targets_assign(a, NULL, 0, scratch, labels, deltas), 0);
        td_free(scratch);
        td_free(labels);
        td_free(deltas);
        td_anchors_free(a);
    }
}

/* an object of the shape of one anchor, and a small one inside several anchors, far from it */
static void retinanet_claims_ties_and_ignores_between(void **state)
{
    (void)state;
    td_anchors *a;
    int n_ignored = 0, n_positive = 0, n_claimed = 0;
    expect_ok(td_anchors_new(TD_DETECTOR_RETINANET, 64, &a));
    const td_rect same = a->corner[9 * (8 + 1) + 3]; /* pixels; the second row and column */
    const td_ground_truth objects[] = {
        { .box = { same.ymin / 64, same.xmin / 64, same.ymax / 64, same.xmax / 64 }, .label = 1 },
        { .box = { 58 / 64.0F, 58 / 64.0F, 62 / 64.0F, 62 / 64.0F }, .label = 2 },
    };
    void *scratch = td_alloc(1, td_targets_scratch_bytes(a));
    int64_t *labels = td_alloc((size_t)a->n, sizeof *labels);
    float *deltas = td_alloc((size_t)a->n, 4 * sizeof *deltas);
    assert_true(scratch && labels && deltas);
    const int n = td_targets_assign(a, objects, 2, scratch, labels, deltas);
    for (int i = 0; i < a->n; i++) {
        const td_rect c = a->corner[i];
        const float h = fminf(c.ymax, same.ymax) - fmaxf(c.ymin, same.ymin);
        const float w = fminf(c.xmax, same.xmax) - fmaxf(c.xmin, same.xmin);
        const float both = h > 0 && w > 0 ? h * w : 0;
        const float iou = both / (a->area[i] + td_rect_area(same) - both);
        n_positive += labels[i] == 1;
        n_ignored += labels[i] == -1;
        n_claimed += labels[i] == 2;
        if (labels[i] != 2)
            assert_int_equal(labels[i], iou >= 0.5F ? 1 : iou >= 0.4F ? -1 : 0);
    }
    assert_true(n_positive > 1 && n_ignored > 1);
    assert_true(n_claimed > 1); /* far below 0.5, but as good as any, several times */
    assert_int_equal(n, n_positive + n_claimed);
    td_free(scratch);
    td_free(labels);
    td_free(deltas);
    td_anchors_free(a);
}

/* --- suppression ------------------------------------------------------------------------------ */

static void options_are_checked(void **state)
{
    (void)state;
    detector d;
    td_nms *m;
    detector_open(TD_DETECTOR_SSD320, 32, 0, &d);
    static const td_nms_opts bad[] = {
        { .score_min = 0.1, .iou = 0.5, .per_class = 0, .total = 1 },
        { .score_min = 0.1, .iou = 0.5, .per_class = 1, .total = 1001 },
        { .score_min = 0.1, .iou = 0.5, .per_class = 1, .total = -1 },
        { .score_min = (double)NAN, .iou = 0.5, .per_class = 1, .total = 1 },
        { .score_min = 0.1, .iou = -0.5, .per_class = 1, .total = 1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_error(td_nms_run(d.nms, &bad[i], d.deltas, d.logits, d.found, &d.n), TD_EARG,
                     "wanted");
        assert_int_equal(d.n, 0);
    }
    expect_error(td_nms_new(d.anchors, 1, &m), TD_EARG, "1 columns");
    assert_null(m);
    td_nms_free(NULL);
    detector_close(&d);
}

static void nothing_is_found_in_nothing(void **state)
{
    (void)state;
    static const float none[] = { NAN, -INFINITY, -19 };
    for (int k = 0; k < 6; k++) {
        detector d;
        if (k < 3)
            detector_open(TD_DETECTOR_SSD320, 64, none[k], &d);
        else
            detector_open(TD_DETECTOR_SSD300, 300, none[k - 3], &d);
        if (k == 5) /* softmax of equal logits is 0.2 each; a background takes that away */
            for (int i = 0; i < d.anchors->n; i++)
                d.logits[COLUMNS * i] = 0;
        detect(&d);
        assert_int_equal(d.n, 0);
        detector_close(&d);
    }
}

/* one good box among outputs that are no numbers */
static void not_a_number_is_no_detection(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        detector d;
        detector_open(k ? TD_DETECTOR_SSD300 : TD_DETECTOR_SSD320, k ? 300 : 64, NAN, &d);
        for (int c = 0; c < COLUMNS; c++)
            d.logits[COLUMNS * 7 + c] = c == 3 ? 4 : -20;
        for (int c = 0; c < COLUMNS; c++) /* a good score for a box that is none */
            d.logits[COLUMNS * 9 + c] = c == 2 ? 6 : -20;
        d.deltas[4 * 9 + 1] = NAN;
        d.deltas[4 * 8 + 3] = INFINITY;
        detect(&d);
        assert_int_equal(d.n, 1);
        assert_int_equal(d.found[0].label, 3);
        assert_int_equal(d.found[0].anchor, 7);
        assert_true(isfinite(d.found[0].score) && isfinite(d.found[0].box.ymin));
        detector_close(&d);
    }
}

/* of pairs of boxes, does the worse one go? */
static void equal_to_the_limit_differs(void **state)
{
    (void)state;
    static const td_rect pairs[][2] = {
        { { 0, 0, 1, 1 }, { 0, 0, 0.5F, 1 } },                      /* IoU 0.5 */
        { { 0, 0, 1, 1 }, { 0, 0, 0.51F, 1 } },                     /* above */
        { { 0, 0, 1, 1 }, { 0, 0, 0.49F, 1 } },                     /* below */
        { { 0.5F, 0.5F, 0.5F, 0.7F }, { 0.5F, 0.5F, 0.5F, 0.7F } }, /* no area: 0 / 0 */
    };
    static const int wanted[2][4] = { { 2, 1, 2, 0 }, { 1, 1, 2, 1 } };
    for (int k = 0; k < 2; k++) {
        const td_detector kind = k ? TD_DETECTOR_SSD300 : TD_DETECTOR_SSD320;
        const td_anchors a = { .kind = kind, .n = 2 };
        const float scores[4] = { 0, 0.9F, 0, 0.8F };
        td_nms_opts opts = td_nms_defaults(kind);
        td_detection found[200];
        td_nms *m;
        int n;
        opts.iou = 0.5;
        expect_ok(td_nms_new(&a, 2, &m));
        for (int i = 0; i < 4; i++) {
            expect_ok(td_nms_run_scores(m, &opts, pairs[i], scores, found, &n));
            assert_int_equal(n, wanted[k][i]);
        }
        td_nms_free(m);
    }
}

static void the_worst_may_come_first(void **state)
{
    (void)state;
    detector d;
    td_detection other[TD_NMS_TOTAL_MAX];
    td_rng r = td_rng_make(1, TD_RNG_TEST, 0, 0);
    td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD300);
    detector_open(TD_DETECTOR_SSD300, 300, 0, &d);
    for (int i = 0; i < d.anchors->n * COLUMNS; i++)
        d.logits[i] = (float)td_rng_normal(&r);
    detect(&d);
    assert_int_equal(d.n, 200);
    opts.worst_first = true;
    expect_ok(td_nms_run(d.nms, &opts, d.deltas, d.logits, other, &d.n));
    for (int i = 0; i < 200; i++)
        assert_memory_equal(&d.found[i], &other[199 - i], sizeof other[0]);
    assert_true(d.found[0].score >= d.found[199].score);
    detector_close(&d);
}

/* a million equal candidates, of which only boxes outside the image survive: nothing is found */
static void the_worst_case_ends(void **state)
{
    (void)state;
    td_anchors *a;
    td_nms *m;
    td_detection found[100];
    const td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD320);
    int n;
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, 320, &a));
    expect_ok(td_nms_new(a, 91, &m));
    float *deltas = td_alloc((size_t)a->n, 4 * sizeof *deltas);
    float *logits = td_alloc((size_t)a->n, 91 * sizeof *logits);
    assert_true(deltas && logits);
    for (int i = 0; i < a->n; i++)
        deltas[4 * i] = 1000;
    expect_ok(td_nms_run(m, &opts, deltas, logits, found, &n));
    assert_int_equal(n, 0);
    td_nms_free(m);
    td_anchors_free(a);
    td_free(deltas);
    td_free(logits);
}

/* --- picking ---------------------------------------------------------------------------------- */

static void check_picks(const td_picks *p, const float *x, size_t n, float floor)
{
    size_t wanted = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        wanted += x[i] >= p->least;
        all += x[i] >= floor;
    }
    assert_int_equal(p->n, wanted);
    assert_true(p->least >= floor);
    assert_int_equal(p->is_all, wanted == all && p->is_all);
    for (size_t i = 0; i < p->n; i++) {
        assert_true(p->at[i].value >= p->least && p->at[i].index < n);
        assert_true(p->at[i].value == x[p->at[i].index]);
    }
}

static void picks_are_all_there_are(void **state)
{
    (void)state;
    const size_t n = 200001;
    float *x = td_alloc(n, sizeof *x);
    td_picks p = { 0 };
    assert_non_null(x);
    for (int kind = 0; kind < 6; kind++) {
        td_rng r = td_rng_make(2, TD_RNG_TEST, (uint64_t)kind, 0);
        for (size_t i = 0; i < n; i++)
            x[i] = kind == 0   ? (float)td_rng_normal(&r)
                   : kind == 1 ? (float)i
                   : kind == 2 ? -(float)i
                   : kind == 3 ? 1
                   : kind == 4 ? (float)td_rng_below(&r, 3)
                               : (i % 3 ? NAN : (float)(i % 1000));
        for (size_t wanted = 1; wanted < 40 * n; wanted *= 7) {
            expect_ok(td_picks_take(&p, x, n, -1e30F, wanted));
            check_picks(&p, x, n, -1e30F);
            expect_ok(td_picks_take(&p, x, n, 0.5F, wanted));
            check_picks(&p, x, n, 0.5F);
        }
        assert_true(p.is_all);
    }
    expect_ok(td_picks_take(&p, x, 0, 0, 10));
    assert_int_equal(p.n, 0);
    td_picks_release(&p);
    td_free(x);
}

/* --- memory ----------------------------------------------------------------------------------- */

static float all_deltas[4 * 5000], all_logits[COLUMNS * 5000]; /* zeros, more than anchors of 64 */

static td_status everything(void)
{
    const td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD320);
    td_detection found[100];
    td_anchors *a = NULL;
    td_nms *m = NULL;
    td_status st;
    int n;
    TD_OUT(td_anchors_new(TD_DETECTOR_SSD320, 64, &a));
    assert_true(a->n <= 5000);
    TD_OUT(td_nms_new(a, COLUMNS, &m));
    TD_OUT(td_nms_run(m, &opts, all_deltas, all_logits, found, &n));
    assert_true(n > 0);
out:
    td_nms_free(m);
    td_anchors_free(a);
    return st;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(everything, 100) > 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(anchors_are_where_they_should),
        cmocka_unit_test(a_box_of_ten_five),
        cmocka_unit_test(odd_ground_truths_do_no_harm),
        cmocka_unit_test(retinanet_claims_ties_and_ignores_between),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(nothing_is_found_in_nothing),
        cmocka_unit_test(not_a_number_is_no_detection),
        cmocka_unit_test(equal_to_the_limit_differs),
        cmocka_unit_test(the_worst_may_come_first),
        cmocka_unit_test(the_worst_case_ends),
        cmocka_unit_test(picks_are_all_there_are),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
