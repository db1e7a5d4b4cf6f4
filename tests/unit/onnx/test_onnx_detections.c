/*
 * test_onnx_detections.c -- what stands behind a detector in an ONNX file: the nodes, run node by
 * node, against boxes/; and nodes that make no sense
 */
#include "onnx/onnx_detections.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "boxes/decode.h"
#include "onnx/onnx_eval.h"
#include "support/allocations.h"
#include "support/expect.h"

enum { IMAGES = 2, CLASSES = 3, COLUMNS = CLASSES + 1 };

/* heads of a detector, and what the nodes make of them */
typedef struct {
    td_anchors *anchors;
    float *deltas, *logits; /* [IMAGES, A, 4], [IMAGES, A, COLUMNS] */
    td_onnx *m;
    td_onnx_eval *e;
} sample;

static td_onnx_value head(const char *name, int64_t rows, int64_t columns)
{
    td_onnx_value v = { .name = name, .dtype = TD_DT_F32, .rank = 3 };
    v.dim[0] = (td_onnx_dim){ -1, "N" };
    v.dim[1].value = rows;
    v.dim[2].value = columns;
    return v;
}

static td_status open_model(sample *s, const td_nms_opts *nms)
{
    const td_onnx_value deltas = head("codes", s->anchors->n, 4);
    const td_onnx_value logits = head("logits", s->anchors->n, COLUMNS);
    TD_TRY(td_onnx_new(&s->m));
    td_onnx_add_value(s->m, &s->m->outputs, &deltas);
    td_onnx_add_value(s->m, &s->m->outputs, &logits);
    return td_onnx_add_detections(s->m, s->anchors, nms);
}

static td_status set(td_onnx_eval *e, const char *name, int64_t rows, int64_t columns, float *x)
{
    const td_onnx_array a = {
        .dtype = TD_DT_F32, .rank = 3, .dim = { IMAGES, rows, columns }, .f = x
    };
    return td_onnx_eval_set(e, name, &a);
}

static td_status run_model(sample *s)
{
    TD_TRY(td_onnx_eval_new(s->m, "m", IMAGES, &s->e));
    TD_TRY(set(s->e, "codes", s->anchors->n, 4, s->deltas));
    TD_TRY(set(s->e, "logits", s->anchors->n, COLUMNS, s->logits));
    return td_onnx_eval_run(s->e, 0);
}

static void close_model(sample *s)
{
    td_onnx_eval_free(s->e);
    td_onnx_free(s->m);
    s->e = NULL;
    s->m = NULL;
}

/* logits in steps of 1/4, so that scores tie; boxes near their anchors, so that they overlap */
static sample heads_of(td_detector kind, int side, uint64_t seed)
{
    sample s = { 0 };
    td_rng rng = td_rng_make(seed, TD_RNG_SYNTH, 0, 0);
    expect_ok(td_anchors_new(kind, side, &s.anchors));
    const size_t rows = (size_t)IMAGES * (size_t)s.anchors->n;
    s.deltas = td_alloc(rows, 4 * sizeof(float));
    s.logits = td_alloc(rows, COLUMNS * sizeof(float));
    for (size_t i = 0; i < rows * 4; i++)
        s.deltas[i] = (float)td_rng_normal(&rng);
    for (size_t i = 0; i < rows * COLUMNS; i++)
        s.logits[i] = floorf((float)td_rng_normal(&rng) * 8) / 4 - (i % COLUMNS ? 1 : 0);
    return s;
}

static void close_heads(sample *s)
{
    close_model(s);
    td_anchors_free(s->anchors);
    td_free(s->deltas);
    td_free(s->logits);
}

static const td_onnx_array *get(const sample *s, const char *name)
{
    const td_onnx_array *a = td_onnx_eval_get(s->e, name);
    assert_non_null(a);
    return a;
}

/* --- boxes and scores ------------------------------------------------------------------------- */

static double score_of(const sample *s, size_t row, int label)
{
    const float *x = s->logits + row * COLUMNS;
    double sum = 0;
    if (s->anchors->kind == TD_DETECTOR_SSD320)
        return 1 / (1 + exp(-(double)x[label]));
    for (int c = 0; c < COLUMNS; c++)
        sum += exp((double)x[c]);
    return exp((double)x[label]) / sum;
}

static void check_boxes(const sample *s)
{
    const td_onnx_array *boxes = get(s, TD_ONNX_BOXES), *scores = get(s, TD_ONNX_SCORES);
    const size_t n = (size_t)s->anchors->n;
    assert_int_equal(boxes->dim[0], IMAGES);
    assert_int_equal(scores->dim[2], CLASSES);
    for (size_t i = 0; i < IMAGES * n; i++) {
        const td_rect own = td_box_decode(s->anchors, (int)(i % n), s->deltas + 4 * i);
        assert_memory_equal(boxes->f + 4 * i, &own, sizeof own);
        for (int c = 0; c < CLASSES; c++)
            assert_true(fabs((double)scores->f[i * CLASSES + (size_t)c] - score_of(s, i, c + 1)) <
                        1e-7);
    }
}

static void test_all_boxes(void **state)
{
    (void)state;
    for (int kind = TD_DETECTOR_SSD320; kind <= TD_DETECTOR_SSD300; kind++) {
        sample s = heads_of((td_detector)kind, kind == TD_DETECTOR_SSD300 ? 300 : 160, 1);
        expect_ok(open_model(&s, NULL));
        assert_int_equal(s.m->outputs.n, 2);
        assert_string_equal(s.m->outputs.at[0].name, "boxes");
        assert_string_equal(s.m->outputs.at[1].name, "scores");
        assert_string_equal(s.m->outputs.at[1].dim[0].param, "N");
        expect_ok(run_model(&s));
        check_boxes(&s);
        close_heads(&s);
    }
}

/* --- detections ------------------------------------------------------------------------------- */

static void check_image(const sample *s, int i, const td_detection *own, int n)
{
    const td_onnx_array *score = get(s, TD_ONNX_DETECTION_SCORES);
    const float *boxes = get(s, TD_ONNX_DETECTION_BOXES)->f;
    const int64_t *labels = get(s, TD_ONNX_DETECTION_CLASSES)->i, k = score->dim[1];
    assert_int_equal(get(s, TD_ONNX_NUM_DETECTIONS)->i[i], n);
    for (int64_t at = i * k; at < i * k + k; at++) {
        const td_detection none = { 0 }, *d = at - i * k < n ? &own[at - i * k] : &none;
        assert_int_equal(labels[at], d->label);
        assert_memory_equal(&score->f[at], &d->score, sizeof d->score);
        assert_true(at - i * k >= n || memcmp(boxes + 4 * at, &d->box, sizeof d->box) == 0);
        assert_true(at - i * k < n || fabsf(boxes[4 * at]) + fabsf(boxes[4 * at + 3]) <= 0);
    }
}

/* of the boxes and scores that the nodes made, boxes/nms.h has to leave the same; how many */
static int check_detections(const sample *s, const td_nms_opts *opts)
{
    const int n = s->anchors->n;
    const td_onnx_array *scores = get(s, TD_ONNX_SCORES);
    const td_rect *boxes = get(s, TD_ONNX_BOXES)->data;
    float *columns = td_alloc((size_t)n * COLUMNS, sizeof *columns);
    td_detection *own = td_alloc(TD_NMS_TOTAL_MAX, sizeof *own);
    td_nms *nms;
    int found, total = 0;
    expect_ok(td_nms_new(s->anchors, COLUMNS, &nms));
    for (int i = 0; i < IMAGES; i++) {
        for (int r = 0; r < n; r++)
            memcpy(columns + r * COLUMNS + 1, scores->f + (i * n + r) * CLASSES,
                   CLASSES * sizeof *columns);
        expect_ok(td_nms_run_scores(nms, opts, boxes + i * n, columns, own, &found));
        check_image(s, i, own, found);
        total += found;
    }
    td_nms_free(nms);
    td_free(columns);
    td_free(own);
    return total;
}

static void test_best_boxes(void **state)
{
    static const td_nms_opts limits[] = {
        { 1e-8, 0.6, 100, 100, false },                                /* the references' */
        { 0.05, 0.5, 200, 200, false },  { 0.9, 0.3, 4, 1000, false }, /* a class is full */
        { 0.97, 1, 1000, 50, false },                                  /* the whole is */
        { 0.99999, 0.5, 10, 10, false },                               /* few, or none */
    };
    static const char *const names[] = { "detection_boxes", "detection_scores", "detection_classes",
                                         "num_detections" };
    (void)state;
    for (int kind = TD_DETECTOR_SSD320; kind <= TD_DETECTOR_SSD300; kind++) {
        sample s = heads_of((td_detector)kind, kind == TD_DETECTOR_SSD300 ? 300 : 160, 2);
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            expect_ok(open_model(&s, &limits[i]));
            assert_int_equal(s.m->outputs.n, 4);
            for (size_t k = 0; k < 4; k++)
                assert_string_equal(s.m->outputs.at[k].name, names[k]);
            expect_ok(run_model(&s));
            const int n = check_detections(&s, &limits[i]);
            assert_true(i == 4 || n > 0);
            close_model(&s);
        }
        close_heads(&s);
    }
}

/* SSD320 clips to the image, and drops what lies outside of it */
static void test_outside(void **state)
{
    (void)state;
    const td_nms_opts limits = { 0.5, 0.6, 100, 100, false };
    sample s = heads_of(TD_DETECTOR_SSD320, 160, 3);
    for (int i = 0; i < IMAGES * s.anchors->n; i++) {
        for (int c = 0; c < COLUMNS; c++)
            s.logits[i * COLUMNS + c] = -5;
        s.deltas[4 * i] = i % 2 ? -400 : 0; /* forty heights up */
        s.deltas[4 * i + 2] = 0;
    }
    s.logits[6 * COLUMNS + 2] = 4; /* inside, and outside */
    s.logits[7 * COLUMNS + 2] = 5;
    expect_ok(open_model(&s, &limits));
    expect_ok(run_model(&s));
    assert_int_equal(check_detections(&s, &limits), 1);
    assert_int_equal(get(&s, TD_ONNX_DETECTION_CLASSES)->i[0], 2);
    close_heads(&s);
}

static void test_limits(void **state)
{
    (void)state;
    sample s = heads_of(TD_DETECTOR_SSD320, 160, 4);
    td_nms_opts limits = { 0.5, 0, 100, 100, false };
    expect_error(open_model(&s, &limits), TD_EUNSUPPORTED, "up to 1, found 0");
    close_model(&s);
    limits.iou = 1.5;
    expect_error(open_model(&s, &limits), TD_EUNSUPPORTED, "to 1, found 1.5");
    close_heads(&s);
}

/* --- nodes that make no sense ----------------------------------------------------------------- */

static td_onnx_node *node_of(const sample *s, const char *op)
{
    for (size_t i = 0; i < s->m->n_nodes; i++)
        if (strcmp(s->m->nodes[i].op, op) == 0)
            return &s->m->nodes[i];
    print_error("there is no %s\n", op);
    fail();
    return NULL;
}

static void expect_wrong(sample *s, td_status st, const char *says)
{
    td_onnx_eval_free(s->e);
    s->e = NULL;
    expect_error(run_model(s), st, says);
}

/* operand i of the first node of that kind is another value */
static void exchange(sample *s, const char *op, int i, const char *by, const char *says)
{
    td_onnx_node *n = node_of(s, op);
    const char *was = n->in[i];
    n->in[i] = by;
    expect_wrong(s, TD_EFORMAT, says);
    n->in[i] = was;
}

static void test_wrong_nodes(void **state)
{
    (void)state;
    const td_nms_opts limits = { 0.9, 0.5, 10, 10, false };
    sample s = heads_of(TD_DETECTOR_SSD300, 300, 5);
    expect_ok(open_model(&s, &limits));
    exchange(&s, "Slice", 0, "absent", "an operand is missing");
    exchange(&s, "Slice", 2, "detections/0", "is out of range");
    exchange(&s, "Slice", 1, "detections/of_size", "has the wrong type");
    exchange(&s, "Add", 1, "codes", "do not broadcast");
    exchange(&s, "Transpose", 0, "detections/centre:0", "have its declared type and");
    exchange(&s, "TopK", 1, "detections/flat", "not a single number");
    exchange(&s, "NonMaxSuppression", 0, "scores", "and scores do not match");
    exchange(&s, "GatherND", 1, "detections/class_best_at:0", "more dimensions than");
    exchange(&s, "ScatterND", 2, "boxes", "single elements");
    exchange(&s, "ScatterElements", 2, "boxes", "elements along the last axis are supported");
    exchange(&s, "Reshape", 1, "detections/first_class", "number of elements");

    td_onnx_node *n = node_of(&s, "Exp");
    n->op = "Einsum";
    expect_wrong(&s, TD_EUNSUPPORTED, "Einsum) is not");
    n->op = "Exp";
    n = node_of(&s, "Transpose");
    n->attr[0].ints[0] = 1;
    expect_wrong(&s, TD_EFORMAT, "match the dimensions");
    n->attr[0].ints[0] = 0;
    n->attr[0].name = "axes";
    expect_wrong(&s, TD_EUNSUPPORTED, "Transpose) is not");
    n->attr[0].name = "perm";
    s.m->outputs.at[0].dim[1].value++;
    expect_wrong(&s, TD_EFORMAT, "have its declared type and");
    s.m->outputs.at[0].dim[1].value--;
    td_onnx_eval_free(s.e);
    expect_ok(run_model(&s)); /* all is as it was */
    close_heads(&s);
}

/* --- memory ----------------------------------------------------------------------------------- */

static sample held;

static td_status add_and_run(void)
{
    const td_nms_opts limits = { 0.99, 0.5, 10, 10, false };
    td_status st = open_model(&held, &limits);
    if (st == TD_OK)
        st = run_model(&held);
    close_model(&held);
    return st;
}

static void test_memory(void **state)
{
    (void)state;
    held = heads_of(TD_DETECTOR_SSD320, 160, 6);
    td_test_allocations(add_and_run, 3000);
    close_heads(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_boxes),   cmocka_unit_test(test_best_boxes),
        cmocka_unit_test(test_outside),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_wrong_nodes), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
