/*
 * test_boxes.c -- matching and suppression against a second, naive implementation
 *
 * A thousand images each, on coarse grids so that ties are everywhere: of ground truths over
 * anchors, of scores, of boxes.  The naive code follows the references step by step and shares
 * nothing with src/boxes but the anchors, the decoder and the type of a box.
 */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "boxes/decode.h"
#include "boxes/nms.h"
#include "boxes/targets.h"
#include "support/expect.h"

static td_rng stream(uint64_t test, uint64_t i)
{
    return td_rng_make(11, TD_RNG_TEST, test, i);
}

static bool chance(td_rng *r, unsigned percent)
{
    return td_rng_below(r, 100) < percent;
}

/* --- matching --------------------------------------------------------------------------------- */

#define GROUND_TRUTHS_MAX 120

static float slow_iou(td_rect a, td_rect b)
{
    const float ymin = fmaxf(a.ymin, b.ymin), ymax = fminf(a.ymax, b.ymax);
    const float xmin = fmaxf(a.xmin, b.xmin), xmax = fminf(a.xmax, b.xmax);
    const float h = fmaxf(0, ymax - ymin), w = fmaxf(0, xmax - xmin), common = h * w;
    const float area_a = (a.ymax - a.ymin) * (a.xmax - a.xmin);
    const float area_b = (b.ymax - b.ymin) * (b.xmax - b.xmin);
    return common == 0 ? 0 : common / (area_a + area_b - common);
}

/* is ground truth `i` one that the detector takes? */
static bool counts(td_detector kind, const td_ground_truth *t, int i)
{
    const td_rect r = t[i].box;
    const bool is_finite =
        isfinite(r.ymin) && isfinite(r.xmin) && isfinite(r.ymax) && isfinite(r.xmax);
    if (kind == TD_DETECTOR_SSD320)
        return is_finite && i < 100;
    return is_finite && r.ymax > r.ymin && r.xmax > r.xmin;
}

/* the references' formulas, each step rounded to float32 */
static void slow_encode(const td_anchors *a, int k, td_rect box, float code[4])
{
    const td_rect r = a->corner[k];
    const float h = box.ymax - box.ymin, w = box.xmax - box.xmin;
    if (a->kind == TD_DETECTOR_SSD320) {
        const float ha = r.ymax - r.ymin, wa = r.xmax - r.xmin;
        const float ya = r.ymin + ha / 2, xa = r.xmin + wa / 2;
        code[0] = (box.ymin + h / 2 - ya) / (ha + 1e-8F) * 10;
        code[1] = (box.xmin + w / 2 - xa) / (wa + 1e-8F) * 10;
        code[2] = logf((h + 1e-8F) / (ha + 1e-8F)) * 5;
        code[3] = logf((w + 1e-8F) / (wa + 1e-8F)) * 5;
    } else {
        const td_centre c = a->centre[k];
        code[0] = 10 * (0.5F * (box.xmin + box.xmax) - c.x) / c.w;
        code[1] = 10 * (0.5F * (box.ymin + box.ymax) - c.y) / c.h;
        code[2] = 5 * logf(w / c.w);
        code[3] = 5 * logf(h / c.h);
    }
}

static int best_anchor(const td_anchors *a, td_rect box)
{
    int best = 0;
    for (int k = 1; k < a->n; k++)
        if (slow_iou(box, a->corner[k]) > slow_iou(box, a->corner[best]))
            best = k;
    return best;
}

static int slow_match(const td_anchors *a, const td_ground_truth *t, int n, const int *best, int k)
{
    const bool is_320 = a->kind == TD_DETECTOR_SSD320;
    int match = -1;
    float most = 0;
    for (int i = 0; i < n; i++) {
        const float iou = counts(a->kind, t, i) ? slow_iou(t[i].box, a->corner[k]) : 0;
        if (iou > most) {
            most = iou;
            match = i;
        }
    }
    if (is_320 ? most < 0.5F : most <= 0.5F)
        match = -1;
    for (int i = is_320 ? n - 1 : 0; i >= 0 && i < n; i += is_320 ? -1 : 1)
        if (counts(a->kind, t, i) && best[i] == k)
            match = i; /* the last one to claim it stays: the lowest, or the latest */
    return match;
}

/* corners on a grid, some boxes equal, some without area or finite corners, some outside */
static int draw_ground_truths(td_rng *r, td_ground_truth *t)
{
    const int n = chance(r, 4) ? GROUND_TRUTHS_MAX : (int)td_rng_below(r, 9);
    for (int i = 0; i < n; i++) {
        const float step = chance(r, 50) ? 1.0F / 40 : 1.0F / 64;
        const float y = step * (float)td_rng_below(r, 40), x = step * (float)td_rng_below(r, 40);
        const float h = step * (float)td_rng_below(r, 24), w = step * (float)td_rng_below(r, 24);
        t[i] = (td_ground_truth){ .box = { y, x, y + h, x + w },
                                  .label = 1 + (int64_t)td_rng_below(r, 90) };
        if (i > 0 && chance(r, 10))
            t[i].box = t[td_rng_below(r, (uint64_t)i)].box;
        if (chance(r, 2))
            t[i].box.xmax = chance(r, 50) ? NAN : INFINITY;
        if (chance(r, 2))
            t[i].box = (td_rect){ 3, 3, 4, 4 };
    }
    return n;
}

static void check_targets(const td_anchors *a, const td_ground_truth *t, int n, void *scratch,
                          int32_t *match, int64_t *labels, float *deltas)
{
    int best[GROUND_TRUTHS_MAX], positives = 0;
    for (int i = 0; i < n; i++)
        best[i] = counts(a->kind, t, i) ? best_anchor(a, t[i].box) : -1;
    td_targets_match(a, t, n, scratch, match);
    const int found = td_targets_assign(a, t, n, scratch, labels, deltas);
    for (int k = 0; k < a->n; k++) {
        const int wanted = slow_match(a, t, n, best, k);
        float code[4] = { 0 };
        if (match[k] != wanted)
            fail_msg("anchor %d of %d: match %d, wanted %d of %d", k, a->n, match[k], wanted, n);
        if (wanted >= 0)
            slow_encode(a, k, t[wanted].box, code);
        assert_int_equal(labels[k], wanted >= 0 ? t[wanted].label : 0);
        assert_memory_equal(code, deltas + 4 * (size_t)k, sizeof code);
        positives += wanted >= 0;
    }
    assert_int_equal(found, positives);
}

static void match_many(td_detector kind, int size, uint64_t first, uint64_t n_cases)
{
    td_anchors *a;
    expect_ok(td_anchors_new(kind, size, &a));
    void *scratch = td_alloc(1, td_targets_scratch_bytes(a));
    int32_t *match = td_alloc((size_t)a->n, sizeof *match);
    int64_t *labels = td_alloc((size_t)a->n, sizeof *labels);
    float *deltas = td_alloc((size_t)a->n, 4 * sizeof *deltas);
    assert_true(scratch && match && labels && deltas);
    for (uint64_t i = first; i < first + n_cases; i++) {
        td_ground_truth t[GROUND_TRUTHS_MAX];
        td_rng r = stream(1, i);
        const int n = draw_ground_truths(&r, t);
        check_targets(a, t, n, scratch, match, labels, deltas);
    }
    td_free(scratch);
    td_free(match);
    td_free(labels);
    td_free(deltas);
    td_anchors_free(a);
}

static void matching_is_exact(void **state)
{
    (void)state;
    match_many(TD_DETECTOR_SSD320, 96, 0, 400);
    match_many(TD_DETECTOR_SSD320, 64, 400, 550);
    match_many(TD_DETECTOR_SSD320, 320, 950, 10);
    match_many(TD_DETECTOR_SSD300, 300, 960, 40);
}

/* --- suppression ------------------------------------------------------------------------------ */

/* one image's scores, boxes and limits */
typedef struct {
    td_anchors *anchors;
    int n_columns;
    td_rect *boxes; /* [A], decoded */
    float *scores;  /* [A, n_columns] */
    td_nms_opts opts;
} image;

static const float *scores_to_sort;

/* by score falling, then place rising */
static int by_score(const void *a, const void *b)
{
    const int i = *(const int *)a, k = *(const int *)b;
    const float x = scores_to_sort[i], y = scores_to_sort[k];
    return x != y ? (x > y ? -1 : 1) : i - k;
}

/* the order of candidates 0 .. n - 1 with these scores; the caller frees */
static int *sorted(const float *scores, int n)
{
    int *order = td_alloc((size_t)n + 1, sizeof *order);
    assert_non_null(order);
    for (int i = 0; i < n; i++)
        order[i] = i;
    scores_to_sort = scores;
    qsort(order, (size_t)n, sizeof *order, by_score);
    return order;
}

static bool slow_suppresses(const image *p, td_rect a, td_rect b)
{
    const float limit = (float)p->opts.iou;
    const float h = fmaxf(0, fminf(a.ymax, b.ymax) - fmaxf(a.ymin, b.ymin));
    const float w = fmaxf(0, fminf(a.xmax, b.xmax) - fmaxf(a.xmin, b.xmin));
    const float area_a = (a.ymax - a.ymin) * (a.xmax - a.xmin);
    const float area_b = (b.ymax - b.ymin) * (b.xmax - b.xmin);
    if (p->anchors->kind == TD_DETECTOR_SSD300)
        return !(h * w / (area_a + area_b - h * w) < limit);
    return area_a > 0 && area_b > 0 && h * w / (area_a + area_b - h * w) > limit;
}

static bool is_candidate(const image *p, int anchor, int column)
{
    const td_rect r = p->boxes[anchor];
    return p->scores[anchor * p->n_columns + column] > (float)p->opts.score_min &&
           r.ymin == r.ymin && r.xmin == r.xmin && r.ymax == r.ymax && r.xmax == r.xmax;
}

/* the reference's loop over one class; appends to `out` */
static int slow_class(const image *p, int column, td_detection *out)
{
    const bool is_300 = p->anchors->kind == TD_DETECTOR_SSD300;
    float *scores = td_alloc((size_t)p->anchors->n, sizeof *scores);
    int *anchor = td_alloc((size_t)p->anchors->n, sizeof *anchor);
    int n = 0, n_kept = 0;
    assert_true(scores && anchor);
    for (int i = 0; i < p->anchors->n; i++)
        if (is_candidate(p, i, column)) {
            scores[n] = p->scores[i * p->n_columns + column];
            anchor[n++] = i;
        }
    int *order = sorted(scores, n);
    if (is_300 && n > p->opts.per_class)
        n = p->opts.per_class;
    for (int i = 0; i < n && (is_300 || n_kept < p->opts.per_class); i++) {
        const td_rect box = p->boxes[anchor[order[i]]];
        bool stays = true;
        for (int k = 0; k < n_kept; k++)
            stays = stays && !slow_suppresses(p, out[k].box, box);
        if (stays)
            out[n_kept++] = (td_detection){ box, scores[order[i]], column, anchor[order[i]] };
    }
    td_free(order);
    td_free(scores);
    td_free(anchor);
    return n_kept;
}

static float inside(float v)
{
    return fminf(fmaxf(v, 0), 1);
}

/* all classes, one after the other, merged; the caller frees *out */
static int slow_detections(const image *p, td_detection **out)
{
    td_detection *all = td_alloc((size_t)p->anchors->n * (size_t)p->n_columns, sizeof *all);
    float *scores = td_alloc((size_t)p->anchors->n * (size_t)p->n_columns, sizeof *scores);
    int n = 0, n_found = 0;
    assert_true(all && scores);
    for (int c = 1; c < p->n_columns; c++)
        n += slow_class(p, c, all + n);
    for (int i = 0; i < n; i++)
        scores[i] = all[i].score;
    int *order = sorted(scores, n);
    *out = td_alloc((size_t)p->opts.total, sizeof **out);
    assert_non_null(*out);
    for (int i = 0; i < n && n_found < p->opts.total; i++) {
        td_detection d = all[order[i]];
        if (p->anchors->kind == TD_DETECTOR_SSD320) {
            d.box = (td_rect){ inside(d.box.ymin), inside(d.box.xmin), inside(d.box.ymax),
                               inside(d.box.xmax) };
            if (!((d.box.ymax - d.box.ymin) * (d.box.xmax - d.box.xmin) > 0))
                continue;
        }
        (*out)[n_found++] = d;
    }
    td_free(order);
    td_free(all);
    td_free(scores);
    return n_found;
}

static void compare_detections(uint64_t seed, const td_detection *found, int n,
                               const td_detection *wanted, int n_wanted)
{
    for (int i = 0; i < n && i < n_wanted; i++)
        if (memcmp(&found[i], &wanted[i], sizeof found[i]) != 0)
            fail_msg("case %llu, place %d of %d: anchor %d, class %d, score %.9g; wanted %d, %d, "
                     "%.9g",
                     (unsigned long long)seed, i, n_wanted, found[i].anchor, found[i].label,
                     (double)found[i].score, wanted[i].anchor, wanted[i].label,
                     (double)wanted[i].score);
    if (n != n_wanted)
        fail_msg("case %llu: %d detections, wanted %d", (unsigned long long)seed, n, n_wanted);
}

static td_nms_opts draw_opts(td_rng *r, td_detector kind)
{
    td_nms_opts o = td_nms_defaults(kind);
    if (chance(r, 50))
        o.per_class = 1 + (int)td_rng_below(r, 12);
    if (chance(r, 50))
        o.total = 1 + (int)td_rng_below(r, 300);
    if (chance(r, 30))
        o.iou = 0.1 * (double)td_rng_below(r, 12);
    if (chance(r, 30))
        o.score_min = 0.05 * (double)td_rng_below(r, 8);
    return o;
}

/* few different values: ties of scores, equal boxes, empty ones, all outside, NaN */
static void draw_outputs(td_rng *r, const image *p, float *deltas, float *logits)
{
    const int n = p->anchors->n, kind = (int)td_rng_below(r, 7);
    const double coarse = chance(r, 50) ? 4 : 1000;
    for (int i = 0; i < 4 * n; i++)
        deltas[i] =
            chance(r, 30) ? (float)((int)td_rng_below(r, 5) - 2) : (float)(3 * td_rng_normal(r));
    for (int i = 0; i < n * p->n_columns; i++)
        logits[i] = (float)(round(coarse * (2 * td_rng_normal(r) - 3)) / coarse);
    for (int i = 0; i < n * p->n_columns && kind == 1; i++)
        logits[i] = -1; /* all the same */
    for (int i = 0; i < n * p->n_columns && kind == 2; i++)
        logits[i] += 19; /* all saturated: score 1 */
    for (int i = 0; i < n && kind == 3; i++)
        deltas[4 * i] = 200; /* outside */
    for (int i = 0; i < 20 && kind == 4; i++) {
        deltas[td_rng_below(r, 4 * (uint64_t)n)] = i % 2 ? NAN : INFINITY;
        logits[td_rng_below(r, (uint64_t)(n * p->n_columns))] = i % 3 ? NAN : -INFINITY;
    }
    for (int i = 0; i < n && kind == 5; i++)
        deltas[4 * i + 2] = -2000; /* without height */
    for (int i = 0; i < n && kind == 6; i++) {
        deltas[4 * i + 2] = 60; /* large: all overlap */
        deltas[4 * i + 3] = 60;
    }
}

static void slow_scores(const image *p, const float *logits)
{
    for (int i = 0; i < p->anchors->n; i++) {
        const float *x = logits + i * p->n_columns;
        float *y = p->scores + i * p->n_columns, max = -INFINITY;
        double sum = 0;
        for (int c = 0; c < p->n_columns; c++)
            max = fmaxf(max, x[c]);
        for (int c = 0; c < p->n_columns; c++)
            sum += (double)expf(x[c] - max);
        for (int c = 0; c < p->n_columns; c++)
            y[c] = p->anchors->kind == TD_DETECTOR_SSD300 ? (float)((double)expf(x[c] - max) / sum)
                                                          : (float)(1 / (1 + exp(-(double)x[c])));
    }
}

static void suppress_many(td_detector kind, int size, int n_columns, uint64_t first,
                          uint64_t n_cases)
{
    image p = { .n_columns = n_columns };
    td_nms *m;
    expect_ok(td_anchors_new(kind, size, &p.anchors));
    const size_t n = (size_t)p.anchors->n;
    p.boxes = td_alloc(n, sizeof *p.boxes);
    p.scores = td_alloc(n * (size_t)n_columns, sizeof *p.scores);
    float *deltas = td_alloc(n, 4 * sizeof *deltas);
    float *logits = td_alloc(n * (size_t)n_columns, sizeof *logits);
    assert_true(p.boxes && p.scores && deltas && logits);
    expect_ok(td_nms_new(p.anchors, n_columns, &m));
    for (uint64_t i = first; i < first + n_cases; i++) {
        td_rng r = stream(2, i);
        td_detection found[TD_NMS_TOTAL_MAX], *wanted;
        int n_found;
        p.opts = draw_opts(&r, kind);
        draw_outputs(&r, &p, deltas, logits);
        td_boxes_decode(p.anchors, deltas, p.boxes);
        slow_scores(&p, logits);
        const int n_wanted = slow_detections(&p, &wanted);
        expect_ok(td_nms_run(m, &p.opts, deltas, logits, found, &n_found));
        compare_detections(i, found, n_found, wanted, n_wanted);
        expect_ok(td_nms_run_scores(m, &p.opts, p.boxes, p.scores, found, &n_found));
        compare_detections(i, found, n_found, wanted, n_wanted);
        td_free(wanted);
    }
    td_nms_free(m);
    td_free(deltas);
    td_free(logits);
    td_free(p.boxes);
    td_free(p.scores);
    td_anchors_free(p.anchors);
}

static void suppression_is_exact(void **state)
{
    (void)state;
    suppress_many(TD_DETECTOR_SSD320, 32, 4, 0, 500);
    suppress_many(TD_DETECTOR_SSD320, 64, 21, 500, 450);
    suppress_many(TD_DETECTOR_SSD320, 320, 91, 950, 6);
    suppress_many(TD_DETECTOR_SSD300, 300, 5, 956, 44);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matching_is_exact),
        cmocka_unit_test(suppression_is_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
