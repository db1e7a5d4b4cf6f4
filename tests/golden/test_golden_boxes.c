/*
 * test_golden_boxes.c -- anchors, deltas, matching and suppression against the original detectors
 *
 * Exact to the bit: anchors, overlaps, matches, the small suppression cases.  Codes, decoded boxes
 * and scores: the tolerances of tests/golden/ssd320/README.md and ssd300/README.md.
 */
#include <math.h>
#include <stdio.h>

#include "boxes/decode.h"
#include "boxes/nms.h"
#include "boxes/targets.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"

#define N_320 12804
#define N_300 8732

static td_anchors *anchors_320, *anchors_300;

static int set_up(void **state)
{
    (void)state;
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, 320, &anchors_320));
    expect_ok(td_anchors_new(TD_DETECTOR_SSD300, 300, &anchors_300));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    td_anchors_free(anchors_320);
    td_anchors_free(anchors_300);
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

static const void *data_of(const td_tensors *t, td_dtype dtype, int64_t count, const char *fmt, ...)
    TD_PRINTF(4, 5);

/* the tensor of that name; `count` elements unless that is negative */
static const void *data_of(const td_tensors *t, td_dtype dtype, int64_t count, const char *fmt, ...)
{
    char name[128];
    va_list args;
    int64_t n = 1;
    va_start(args, fmt);
    (void)vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    const td_tensor *v = td_tensors_get(t, name);
    if (!v)
        fail_msg("no tensor '%s'", name);
    for (int i = 0; i < v->rank; i++)
        n *= v->dim[i];
    assert_int_equal(v->dtype, dtype);
    if (count >= 0)
        assert_int_equal(n, count);
    return v->data;
}

static int64_t rows_of(const td_tensors *t, const char *name)
{
    const td_tensor *v = td_tensors_get(t, name);
    assert_non_null(v);
    return v->dim[0];
}

static td_rect rect_at(const float *corners, int64_t i)
{
    const float *c = corners + 4 * i;
    return (td_rect){ c[0], c[1], c[2], c[3] };
}

/* the same from x, y, x, y */
static td_rect rect_from_xy(const float *corners, int64_t i)
{
    const float *c = corners + 4 * i;
    return (td_rect){ c[1], c[0], c[3], c[2] };
}

/* largest difference of two boxes' corners */
static float distance(td_rect a, td_rect b)
{
    return fmaxf(fmaxf(fabsf(a.ymin - b.ymin), fabsf(a.xmin - b.xmin)),
                 fmaxf(fabsf(a.ymax - b.ymax), fabsf(a.xmax - b.xmax)));
}

static float *filled(const char *name, double lo, double hi, int64_t n)
{
    float *x = td_alloc((size_t)n, sizeof *x);
    assert_non_null(x);
    td_fill_range(td_fill_prefix(), name, lo, hi, n, x);
    return x;
}

/* anchors of a detector with these corners; only what coding and suppression need */
static td_anchors anchors_of(td_detector kind, int n, const float *corners)
{
    td_anchors a = { .kind = kind, .n = n };
    a.centre = td_alloc((size_t)n, sizeof *a.centre);
    assert_non_null(a.centre);
    for (int i = 0; corners && i < n; i++) {
        const td_rect r = rect_at(corners, i);
        td_centre c = { .h = r.ymax - r.ymin, .w = r.xmax - r.xmin };
        c.y = r.ymin + c.h / 2;
        c.x = r.xmin + c.w / 2;
        a.centre[i] = c;
    }
    return a;
}

/* --- anchors ---------------------------------------------------------------------------------- */

static void anchors_are_exact(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "anchors.safetensors");
    assert_int_equal(anchors_320->n, N_320);
    assert_memory_equal(anchors_320->corner, data_of(t, TD_DT_F32, 4 * N_320, "anchors"),
                        4 * N_320 * sizeof(float));
    td_tensors_free(t);
}

static void default_boxes_are_exact(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd300", "default_boxes.safetensors");
    const float *corners = data_of(t, TD_DT_F32, 4 * N_300, "ltrb");
    const float *centres = data_of(t, TD_DT_F32, 4 * N_300, "xywh");
    assert_int_equal(anchors_300->n, N_300);
    for (int i = 0; i < N_300; i++) {
        const td_rect r = rect_from_xy(corners, i);
        const float *c = centres + 4 * (size_t)i;
        const td_centre centre = { c[1], c[0], c[3], c[2] };
        assert_memory_equal(&anchors_300->corner[i], &r, sizeof r);
        assert_memory_equal(&anchors_300->centre[i], &centre, sizeof centre);
    }
    td_tensors_free(t);
}

/* --- overlaps, matching, deltas --------------------------------------------------------------- */

static void overlaps_are_exact(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "unit_iou.safetensors");
    const float *boxes = data_of(t, TD_DT_F32, -1, "boxes");
    const float *anchors = data_of(t, TD_DT_F32, -1, "anchors");
    const int64_t n = rows_of(t, "boxes"), A = rows_of(t, "anchors");
    const float *wanted = data_of(t, TD_DT_F32, n * A, "iou");
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < A; k++) {
            const float found = td_rect_iou(rect_at(boxes, i), rect_at(anchors, k));
            assert_memory_equal(&found, &wanted[i * A + k], sizeof found);
        }
    td_tensors_free(t);
}

static void matcher_is_exact(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "unit_matcher.safetensors");
    int n_cases = 0;
    for (; n_cases < 50; n_cases++) {
        char name[32];
        (void)snprintf(name, sizeof name, "similarity_%02d", n_cases);
        const td_tensor *s = td_tensors_get(t, name);
        assert_non_null(s);
        const int n = (int)s->dim[0], A = (int)s->dim[1];
        const uint8_t *valid = data_of(t, TD_DT_U8, n, "valid_%02d", n_cases);
        const int32_t *wanted = data_of(t, TD_DT_I32, A, "match_%02d", n_cases);
        const td_anchors a = { .kind = TD_DETECTOR_SSD320, .n = A };
        void *scratch = td_alloc(1, td_targets_scratch_bytes(&a));
        int32_t match[64];
        bool is_valid[64];
        assert_non_null(scratch);
        for (int i = 0; i < n; i++)
            is_valid[i] = valid[i] != 0;
        td_targets_argmax(s->data, is_valid, n, A, scratch, match);
        assert_memory_equal(match, wanted, (size_t)A * sizeof *match);
        td_free(scratch);
    }
    td_tensors_free(t);
}

static void codes_of_ssd320(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "unit_box_coder.safetensors");
    const float *boxes = data_of(t, TD_DT_F32, 400, "boxes");
    const float *encoded = data_of(t, TD_DT_F32, 400, "encoded");
    const float *deltas = data_of(t, TD_DT_F32, 400, "codes");
    const float *decoded = data_of(t, TD_DT_F32, 400, "decoded");
    td_anchors a = anchors_of(TD_DETECTOR_SSD320, 100, data_of(t, TD_DT_F32, 400, "anchors"));
    for (int i = 0; i < 100; i++) {
        float code[4];
        td_box_encode(&a, i, rect_at(boxes, i), code);
        for (int k = 0; k < 4; k++)
            assert_true(fabsf(code[k] - encoded[4 * i + k]) <=
                        3e-6F + 1e-6F * fabsf(encoded[4 * i + k]));
        const td_rect wanted = rect_at(decoded, i);
        const float largest = fmaxf(fmaxf(fabsf(wanted.ymin), fabsf(wanted.xmin)),
                                    fmaxf(fabsf(wanted.ymax), fabsf(wanted.xmax)));
        assert_true(distance(td_box_decode(&a, i, deltas + 4 * (size_t)i), wanted) <=
                    2e-7F * fmaxf(1, largest));
    }
    td_free(a.centre);
    td_tensors_free(t);
}

/* --- targets ---------------------------------------------------------------------------------- */

typedef struct {
    void *scratch;
    int32_t *match;
    int64_t *labels;
    float *deltas;
} room;

static room room_new(const td_anchors *a)
{
    room r = { .scratch = td_alloc(1, td_targets_scratch_bytes(a)),
               .match = td_alloc((size_t)a->n, sizeof(int32_t)),
               .labels = td_alloc((size_t)a->n, sizeof(int64_t)),
               .deltas = td_alloc((size_t)a->n, 4 * sizeof(float)) };
    assert_true(r.scratch && r.match && r.labels && r.deltas);
    return r;
}

static void room_free(room *r)
{
    td_free(r->scratch);
    td_free(r->match);
    td_free(r->labels);
    td_free(r->deltas);
}

/* of 100 slots, those that hold something */
static int read_ground_truths(const float *boxes, const int32_t *classes, int slots,
                              td_ground_truth *ground_truths)
{
    int n = 0;
    for (int i = 0; i < slots; i++) {
        const td_rect r = rect_at(boxes, i);
        if (td_rect_area(r) > 0)
            ground_truths[n++] = (td_ground_truth){ .box = r, .label = classes[i] };
    }
    return n;
}

static void targets_of_ssd320(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "targets.safetensors");
    const float *boxes = data_of(t, TD_DT_F32, 800, "groundtruth_boxes");
    const float *weights = data_of(t, TD_DT_F32, 200, "groundtruth_weights");
    const int32_t *match = data_of(t, TD_DT_I32, 2 * (int64_t)N_320, "match");
    room r = room_new(anchors_320);
    for (int image = 0; image < 2; image++) {
        td_ground_truth ground_truths[100];
        const int32_t *anchor = data_of(t, TD_DT_I32, -1, "positive_anchor_image%d", image);
        const int32_t *column = data_of(t, TD_DT_I32, -1, "positive_class_column_image%d", image);
        const float *code = data_of(t, TD_DT_F32, -1, "positive_regression_target_image%d", image);
        const int32_t *classes = data_of(t, TD_DT_I32, 200, "groundtruth_classes");
        char name[40];
        int n = 0, positives = 0;
        for (; n < 100 && weights[100 * image + n] > 0; n++)
            ground_truths[n] = (td_ground_truth){ .box = rect_at(boxes, 100 * image + n),
                                                  .label = classes[100 * image + n] };
        td_targets_match(anchors_320, ground_truths, n, r.scratch, r.match);
        assert_memory_equal(r.match, match + N_320 * image, N_320 * sizeof *r.match);
        const int found =
            td_targets_assign(anchors_320, ground_truths, n, r.scratch, r.labels, r.deltas);
        for (int i = 0; i < N_320; i++) {
            if (r.match[i] < 0) {
                assert_int_equal(r.labels[i], 0);
                assert_true(r.deltas[4 * i] == 0 && r.deltas[4 * i + 3] == 0);
                continue;
            }
            assert_int_equal(anchor[positives], i);
            assert_int_equal(column[positives], r.labels[i]);
            for (int k = 0; k < 4; k++)
                assert_true(fabsf(r.deltas[4 * i + k] - code[4 * positives + k]) <=
                            3e-6F + 1e-6F * fabsf(code[4 * positives + k]));
            positives++;
        }
        assert_int_equal(found, positives);
        snprintf(name, sizeof name, "positive_anchor_image%d", image);
        assert_int_equal(positives, rows_of(t, name));
    }
    room_free(&r);
    td_tensors_free(t);
}

/* the ground truth sets of the losses: 14 and 200 boxes, hundreds of ties */
static void matches_of_ssd320(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "heads_loss.safetensors");
    const float *boxes = data_of(t, TD_DT_F32, 800, "full.groundtruth_boxes");
    const int32_t *classes = data_of(t, TD_DT_I32, 200, "full.groundtruth_classes");
    const int32_t *match = data_of(t, TD_DT_I32, 2 * (int64_t)N_320, "full.match");
    const int32_t *none = data_of(t, TD_DT_I32, 2 * (int64_t)N_320, "no_boxes.match");
    room r = room_new(anchors_320);
    for (int image = 0; image < 2; image++) {
        td_ground_truth ground_truths[100];
        const int n =
            read_ground_truths(boxes + 400 * image, classes + 100 * image, 100, ground_truths);
        td_targets_match(anchors_320, ground_truths, n, r.scratch, r.match);
        assert_memory_equal(r.match, match + N_320 * image, N_320 * sizeof *r.match);
        td_targets_match(anchors_320, ground_truths, 0, r.scratch, r.match);
        assert_memory_equal(r.match, none + N_320 * image, N_320 * sizeof *r.match);
    }
    room_free(&r);
    td_tensors_free(t);
}

/* x, y, w, h as the reference keeps them, from the ground truth's corners */
static void code_of_reference(const td_anchors *a, int i, const float *xywh, float code[4])
{
    const td_centre *c = &a->centre[i];
    code[0] = 10 * (xywh[0] - c->x) / c->w;
    code[1] = 10 * (xywh[1] - c->y) / c->h;
    code[2] = 5 * logf(xywh[2] / c->w);
    code[3] = 5 * logf(xywh[3] / c->h);
}

static void targets_of_ssd300(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd300", "targets.safetensors");
    room r = room_new(anchors_300);
    for (int k = 0; k < 12; k++) {
        char name[64], *end = name + snprintf(name, sizeof name, "batch%d.image%d.", k / 4, k % 4);
        (void)snprintf(end, 24, "boxes_ltrb");
        const int n = (int)rows_of(t, name);
        const float *boxes = data_of(t, TD_DT_F32, -1, "%s", name);
        *end = '\0';
        const int32_t *labels = data_of(t, TD_DT_I32, n, "%slabels", name);
        const int32_t *positive = data_of(t, TD_DT_I32, -1, "%spositive", name);
        const int32_t *label = data_of(t, TD_DT_I32, -1, "%spositive_label", name);
        const float *xywh = data_of(t, TD_DT_F32, -1, "%spositive_box_xywh", name);
        (void)snprintf(end, 24, "positive");
        const int wanted = (int)rows_of(t, name);
        td_ground_truth ground_truths[16];
        int positives = 0;
        for (int i = 0; i < n; i++)
            ground_truths[i] =
                (td_ground_truth){ .box = rect_from_xy(boxes, i), .label = labels[i] };
        assert_int_equal(
            td_targets_assign(anchors_300, ground_truths, n, r.scratch, r.labels, r.deltas),
            wanted);
        for (int i = 0; i < N_300; i++) {
            float code[4];
            if (r.labels[i] == 0)
                continue;
            assert_int_equal(positive[positives], i);
            assert_int_equal(label[positives], r.labels[i]);
            code_of_reference(anchors_300, i, xywh + 4 * (size_t)positives, code);
            assert_memory_equal(code, r.deltas + 4 * (size_t)i, sizeof code);
            positives++;
        }
        assert_int_equal(positives, wanted);
    }
    room_free(&r);
    td_tensors_free(t);
}

/* --- suppression ------------------------------------------------------------------------------ */

static void suppression_cases_are_exact(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "unit_nms.safetensors");
    const td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD320);
    int n_found = 0;
    for (int k = 0; k < 12; k++) {
        char name[32];
        (void)snprintf(name, sizeof name, "boxes_%02d", k);
        const int n_boxes = (int)rows_of(t, name);
        const td_rect *boxes = data_of(t, TD_DT_F32, 4 * (int64_t)n_boxes, "boxes_%02d", k);
        const float *scores = data_of(t, TD_DT_F32, 3 * (int64_t)n_boxes, "scores_%02d", k);
        const int wanted = *(const int32_t *)data_of(t, TD_DT_I32, 1, "out_count_%02d", k);
        td_anchors a = anchors_of(TD_DETECTOR_SSD320, n_boxes, NULL);
        td_detection found[100];
        float columns[128] = { 0 }; /* with the background's in front */
        td_nms *m;
        int n;
        for (int i = 0; i < 3 * n_boxes; i++)
            columns[i / 3 * 4 + i % 3 + 1] = scores[i];
        expect_ok(td_nms_new(&a, 4, &m));
        expect_ok(td_nms_run_scores(m, &opts, boxes, columns, found, &n));
        assert_int_equal(n, wanted);
        for (int i = 0; i < n; i++) {
            const float *box = data_of(t, TD_DT_F32, 4 * (int64_t)n, "out_boxes_%02d", k);
            const float *score = data_of(t, TD_DT_F32, n, "out_scores_%02d", k);
            const int32_t *class = data_of(t, TD_DT_I32, n, "out_classes_%02d", k);
            assert_int_equal(found[i].label, class[i] + 1);
            assert_memory_equal(&found[i].score, &score[i], sizeof score[i]);
            assert_true(distance(found[i].box, rect_at(box, i)) == 0);
        }
        n_found += n;
        td_nms_free(m);
        td_free(a.centre);
    }
    assert_true(n_found > 500);
    td_tensors_free(t);
}

/* in double, then rounded */
static float *filled_logarithms(const char *name, double from, int64_t n)
{
    float *x = td_alloc((size_t)n, sizeof *x);
    const uint64_t seed = td_fill_seed(td_fill_prefix(), name);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(from - log(1 - td_fill_u(seed, i)));
    return x;
}

static void detections_of_ssd320(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "heads_detections.safetensors");
    const int64_t n_logits = 2 * (int64_t)N_320 * 91;
    float *deltas = filled("heads.box_encodings", -2, 2, 8 * (int64_t)N_320);
    float *logits = td_alloc((size_t)n_logits, sizeof *logits);
    const uint64_t seed = td_fill_seed(td_fill_prefix(), "heads.class_predictions");
    const int32_t *sampled = data_of(t, TD_DT_I32, 64, "anchor_index");
    td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD320);
    td_nms *m;
    assert_non_null(logits);
    for (int64_t i = 0; i < n_logits; i++) {
        const bool is_favoured = i % 91 >= 1 && i % 91 <= 3;
        logits[i] = (float)(-8 - log(1 - td_fill_u(seed, i)) + (is_favoured ? 4 : 0));
    }
    expect_ok(td_nms_new(anchors_320, 91, &m));
    for (int image = 0; image < 2; image++) {
        const float *boxes = data_of(t, TD_DT_F32, 800, "detection_boxes");
        const float *scores = data_of(t, TD_DT_F32, 200, "detection_scores");
        const float *classes = data_of(t, TD_DT_F32, 200, "detection_classes");
        const float *decoded = data_of(t, TD_DT_F32, 512, "decoded_boxes_sampled");
        const float *code = deltas + 4 * (size_t)N_320 * (size_t)image;
        td_detection found[100];
        int n;
        for (int i = 0; i < 64; i++)
            assert_true(distance(td_box_decode(anchors_320, sampled[i], code + 4 * sampled[i]),
                                 rect_at(decoded, 64 * image + i)) <= 2e-7F * 4);
        expect_ok(td_nms_run(m, &opts, code, logits + n_logits / 2 * image, found, &n));
        assert_int_equal(n, 100);
        for (int i = 0; i < n; i++) {
            assert_int_equal(found[i].label, (int)classes[100 * image + i] + 1);
            assert_true(fabsf(found[i].score - scores[100 * image + i]) <= 2e-7F);
            assert_true(distance(found[i].box, rect_at(boxes, 100 * image + i)) <= 1e-6F);
        }
    }
    td_nms_free(m);
    td_free(deltas);
    td_free(logits);
    td_tensors_free(t);
}

/* row i of [width, 8732] as it lies in ours, [8732, width] */
static void transpose(const float *x, int width, float *y)
{
    for (int i = 0; i < N_300; i++)
        for (int c = 0; c < width; c++)
            y[(size_t)i * (size_t)width + (size_t)c] = x[(size_t)c * N_300 + (size_t)i];
}

static void detections_of_ssd300(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd300", "decode.safetensors");
    float *deltas = filled("decode.loc", -2, 2, 8 * (int64_t)N_300);
    float *logits = filled_logarithms("decode.conf", 0, 2 * (int64_t)N_300 * 81);
    float *code = td_alloc(N_300, 4 * sizeof *code), *logit = td_alloc(N_300, 81 * sizeof *logit);
    const int32_t *sampled = data_of(t, TD_DT_I32, 64, "sample_index");
    const float *decoded = data_of(t, TD_DT_F32, 512, "decoded_boxes_sampled");
    td_nms_opts opts = td_nms_defaults(TD_DETECTOR_SSD300);
    td_nms *m;
    assert_true(code && logit);
    opts.worst_first = true;
    expect_ok(td_nms_new(anchors_300, 81, &m));
    for (int image = 0; image < 2; image++) {
        const float *boxes = data_of(t, TD_DT_F32, 800, "boxes_image%d", image);
        const float *scores = data_of(t, TD_DT_F32, 200, "scores_image%d", image);
        const int32_t *labels = data_of(t, TD_DT_I32, 200, "labels_image%d", image);
        float *of_image = logits + 81 * (size_t)N_300 * (size_t)image;
        td_detection found[200];
        int n;
        for (int row = 0; row < 4; row++) { /* added in double, before the rounding */
            const uint64_t seed = td_fill_seed(td_fill_prefix(), "decode.conf");
            for (int64_t i = 0; i < N_300; i++) {
                const int64_t at = (81 * (int64_t)image + row) * N_300 + i;
                logits[at] = (float)(-log(1 - td_fill_u(seed, at)) + (row == 0 ? 6 : 3));
            }
        }
        transpose(deltas + 4 * (size_t)N_300 * (size_t)image, 4, code);
        transpose(of_image, 81, logit);
        for (int i = 0; i < 64; i++)
            assert_true(distance(td_box_decode(anchors_300, sampled[i], code + 4 * sampled[i]),
                                 rect_from_xy(decoded, 64 * image + i)) <= 1e-6F);
        expect_ok(td_nms_run(m, &opts, code, logit, found, &n));
        assert_int_equal(n, 200);
        for (int i = 0; i < n; i++) {
            assert_int_equal(found[i].label, labels[i]);
            assert_true(fabsf(found[i].score - scores[i]) <= 1e-6F);
            assert_true(distance(found[i].box, rect_from_xy(boxes, i)) <= 1e-6F);
        }
    }
    td_nms_free(m);
    td_free(deltas);
    td_free(logits);
    td_free(code);
    td_free(logit);
    td_tensors_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anchors_are_exact),
        cmocka_unit_test(default_boxes_are_exact),
        cmocka_unit_test(overlaps_are_exact),
        cmocka_unit_test(matcher_is_exact),
        cmocka_unit_test(codes_of_ssd320),
        cmocka_unit_test(targets_of_ssd320),
        cmocka_unit_test(matches_of_ssd320),
        cmocka_unit_test(targets_of_ssd300),
        cmocka_unit_test(suppression_cases_are_exact),
        cmocka_unit_test(detections_of_ssd320),
        cmocka_unit_test(detections_of_ssd300),
    };
    td_golden_require("ssd320");
    td_golden_require("ssd300");
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
