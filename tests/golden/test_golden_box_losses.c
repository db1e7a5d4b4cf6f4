/*
 * test_golden_box_losses.c -- the losses of both detectors and their gradients, on every device
 *
 * From ground truths to gradients: targets by src/boxes, losses and gradients by a compiled graph,
 * on the reference kernels and on the fast ones, against the original detectors' numbers.
 *
 * Of SSD300's three cases the one whose mining reaches its cap cannot be made again, for its labels
 * are not stored; tests/ops has lines for that.
 */
#include <math.h>
#include <stdio.h>

#include "boxes/targets.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"
#include "tandem/program.h"

#define N_320 12804
#define N_300 8732

static const char *const devices[] = { "ref", "cpu" };

static const void *data_of(const td_tensors *t, const char *a, const char *b)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s%s", a, b);
    const td_tensor *v = td_tensors_get(t, name);
    if (!v)
        fail_msg("no tensor '%s'", name);
    return v->data;
}

static void *room(size_t n, size_t each)
{
    void *p = td_alloc(n, each);
    assert_non_null(p);
    return p;
}

/* |found - wanted| <= absolute + relative |wanted| */
static void expect_near(const char *what, double found, double wanted, double absolute,
                        double relative)
{
    if (!(fabs(found - wanted) <= absolute + relative * fabs(wanted)))
        fail_msg("%s: %.9g, wanted %.9g", what, found, wanted);
}

/* --- a detector's loss as a program ----------------------------------------------------------- */

typedef struct {
    td_device *device;
    td_graph *graph;
    td_program *program;
} step;

/* parameters: deltas, scores; inputs: target, labels; outputs: two losses, ddeltas, dscores */
static step step_open(td_detector kind, const char *device, int64_t N, int64_t A, int64_t C)
{
    const int64_t code_dim[] = { N, A, 4 }, score_dim[] = { N, A, C };
    step s;
    td_builder *b = td_build_begin();
    assert_non_null(b);
    td_value *deltas = td_param(b, "codes", TD_DT_F32, 3, code_dim, NULL);
    td_value *scores = td_param(b, "scores", TD_DT_F32, 3, score_dim, NULL);
    td_value *target = td_input(b, "target", td_type_of(TD_DT_F32, 3, code_dim));
    td_value *labels = td_input(b, "labels", td_type_of(TD_DT_I64, 2, code_dim)), *box, *class;
    if (kind == TD_DETECTOR_SSD320) {
        box = td_huber_box_loss(b, deltas, target, labels, NULL);
        class = td_sigmoid_focal_loss(b, scores, labels, NULL);
    } else {
        box = td_huber_box_loss(b, deltas, target, labels, "per_image=true");
        class = td_multibox_class_loss(b, scores, labels, NULL);
    }
    td_value *loss = td_add(b, box, class);
    td_output(b, "loss_box", box);
    td_output(b, "loss_class", class);
    td_output(b, "dcodes", td_gradient(b, loss, deltas));
    td_output(b, "dscores", td_gradient(b, loss, scores));
    expect_ok(td_build_end(b, &s.graph));
    expect_ok(td_test_device_open(device, &s.device));
    expect_ok(td_compile(s.graph, s.device, &(td_compile_opts){ 0 }, &s.program));
    return s;
}

static void step_run(const step *s, const float *deltas, const float *scores, const float *target,
                     const int64_t *labels)
{
    expect_ok(td_program_set(s->program, "codes", deltas));
    expect_ok(td_program_set(s->program, "scores", scores));
    expect_ok(td_program_bind(s->program, "target", target));
    expect_ok(td_program_bind(s->program, "labels", labels));
    expect_ok(td_program_run(s->program));
}

static const float *result(const step *s, const char *name)
{
    const float *x = td_program_output(s->program, name, NULL);
    assert_non_null(x);
    return x;
}

static void step_close(step *s)
{
    td_program_free(s->program);
    td_device_close(s->device);
    td_graph_free(s->graph);
}

/* --- single numbers --------------------------------------------------------------------------- */

static void focal_of_one_logit(const char *device)
{
    td_tensors *t = td_golden_tensors("ssd320", "unit_losses.safetensors");
    const float *x = data_of(t, "x", ""), code[4] = { 0 };
    step s = step_open(TD_DETECTOR_SSD320, device, 1, 1, 2);
    for (int64_t label = 0; label < 2; label++) {
        const float *loss = data_of(t, "focal_z", label ? "1" : "0");
        const float *slope = data_of(t, "focal_gradient_z", label ? "1" : "0");
        for (int i = 0; i < 129; i++) {
            const float scores[2] = { -200, x[i] };
            step_run(&s, code, scores, code, &label);
            expect_near("focal loss", (double)*result(&s, "loss_class"), (double)loss[i], 1.1e-6,
                        2e-7);
            expect_near("focal slope", (double)result(&s, "dscores")[1], (double)slope[i], 1.1e-6,
                        2e-7);
        }
    }
    step_close(&s);
    td_tensors_free(t);
}

static void huber_of_one_error(const char *device)
{
    td_tensors *t = td_golden_tensors("ssd320", "unit_losses.safetensors");
    const float *e = data_of(t, "huber_error", ""), *sum = data_of(t, "huber_sum_of_four", "");
    const float *slope = data_of(t, "huber_gradient", ""), scores[2] = { 0 }, zero[4] = { 0 };
    const float *with_nan = data_of(t, "huber_nan_target", "");
    const int64_t label = 1;
    step s = step_open(TD_DETECTOR_SSD320, device, 1, 1, 2);
    for (int i = 0; i < 71; i++) {
        const float code[4] = { e[i], e[i], e[i], e[i] };
        step_run(&s, code, scores, zero, &label);
        expect_near("huber", 4 * (double)*result(&s, "loss_box"), (double)sum[i], 1e-7, 1e-7);
        expect_near("huber slope", 4 * (double)result(&s, "dcodes")[2], (double)slope[i], 1e-7, 0);
    }
    const float half[4] = { 0.5F, 0.5F, 0.5F, 0.5F }, target[4] = { 0, NAN, 0, 0 };
    step_run(&s, half, scores, target, &label);
    expect_near("huber of a NaN", 4 * (double)*result(&s, "loss_box"), (double)with_nan[0], 0, 0);
    assert_true(result(&s, "dcodes")[1] == 0 && result(&s, "dcodes")[2] > 0);
    step_run(&s, half, scores, zero, &label);
    expect_near("huber", 4 * (double)*result(&s, "loss_box"), (double)with_nan[1], 0, 0);
    step_close(&s);
    td_tensors_free(t);
}

/* the divisor is the number of matched anchors, whose class need not have a column */
static void class_without_a_column(const char *device)
{
    static const double hit = 0.0433217, miss = 0.129965; /* of logit 0 */
    static const int64_t labels[][2] = { { 1, 0 }, { 1, 2 }, { 1, 7 }, { 2, 0 }, { 1, -1 } };
    static const double wanted[] = { hit + 3 * miss, (hit + 3 * miss) / 2, (hit + 3 * miss) / 2,
                                     4 * miss, hit + 3 * miss };
    const float code[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, scores[4] = { 0 }, zero[8] = { 0 };
    step s = step_open(TD_DETECTOR_SSD320, device, 1, 2, 2);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        step_run(&s, code, scores, zero, labels[i]);
        expect_near("focal loss", (double)*result(&s, "loss_class"), wanted[i], 0, 2e-5);
        expect_near("huber", (double)*result(&s, "loss_box"), 0.5, 0, 1e-6); /* errors of 1 */
    }
    step_close(&s);
}

static void single_numbers(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        focal_of_one_logit(devices[d]);
        huber_of_one_error(devices[d]);
        class_without_a_column(devices[d]);
    }
}

/* --- summaries of gradients ------------------------------------------------------------------- */

/* where element i of the reference's order lies in ours */
typedef int64_t (*place)(int64_t i, int64_t width);

static int64_t same(int64_t i, int64_t width)
{
    (void)width;
    return i;
}

/* from [N, width, 8732] to [N, 8732, width] */
static int64_t turned(int64_t i, int64_t width)
{
    const int64_t anchor = i % N_300, c = i / N_300 % width, image = i / N_300 / width;
    return (image * N_300 + anchor) * width + c;
}

static void check_summary(const td_json *wanted, const float *x, int64_t n, int64_t width, place at)
{
    const td_json *samples = td_json_get(wanted, "samples");
    double sum = 0, squares = 0, min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        sum += v;
        squares += v * v;
        min = fmin(min, v);
        max = fmax(max, v);
    }
    const double l2 = td_golden_number(wanted, "l2");
    expect_near("sum", sum, td_golden_number(wanted, "sum"), 2e-6 * l2, 2e-6);
    expect_near("l2", sqrt(squares), l2, 0, 2e-6);
    expect_near("min", min, td_golden_number(wanted, "min"), 1e-9, 2e-6);
    expect_near("max", max, td_golden_number(wanted, "max"), 1e-9, 2e-6);
    for (int64_t k = 0; k < 8; k++) {
        double v;
        expect_ok(td_json_as_number(td_json_at(samples, (size_t)k), &v));
        expect_near("sample", (double)x[at(td_golden_sample(k, n), width)], v, 1e-9 * l2, 3e-5);
    }
}

/* --- SSD320 on filled heads ------------------------------------------------------------------- */

typedef struct {
    float *deltas, *scores, *target;
    int64_t *labels;
} heads;

static heads heads_new(int64_t n, int64_t width)
{
    return (heads){ .deltas = room((size_t)n, 4 * sizeof(float)),
                    .scores = room((size_t)(n * width), sizeof(float)),
                    .target = room((size_t)n, 4 * sizeof(float)),
                    .labels = room((size_t)n, sizeof(int64_t)) };
}

static void heads_free(heads *h)
{
    td_free(h->deltas);
    td_free(h->scores);
    td_free(h->target);
    td_free(h->labels);
}

/* 100 slots an image, those in use first */
static void assign_320(const float *boxes, const int32_t *classes, heads *h)
{
    td_anchors *a;
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, 320, &a));
    void *scratch = room(1, td_targets_scratch_bytes(a));
    for (int image = 0; image < 2; image++) {
        td_ground_truth ground_truths[100];
        int n = 0;
        for (; boxes && n < 100; n++) {
            const float *c = boxes + 400 * image + 4 * n;
            if (!((c[2] - c[0]) * (c[3] - c[1]) > 0))
                break;
            ground_truths[n] = (td_ground_truth){ .box = { c[0], c[1], c[2], c[3] },
                                                  .label = classes[100 * image + n] };
        }
        (void)td_targets_assign(a, ground_truths, n, scratch, h->labels + N_320 * image,
                                h->target + 4 * (size_t)N_320 * (size_t)image);
    }
    td_free(scratch);
    td_anchors_free(a);
}

static void check_rows(const td_tensors *t, const char *set, const char *name, const float *x,
                       int64_t width, double absolute)
{
    const int32_t *anchor = data_of(t, set, ".gradient_anchor");
    const float *wanted = data_of(t, set, name);
    double largest = 0;
    for (int64_t i = 0; i < 32 * width; i++)
        largest = fmax(largest, fabs((double)wanted[i]));
    for (int64_t i = 0; i < 32; i++)
        for (int64_t c = 0; c < width; c++)
            expect_near(name, (double)x[(i / 16 * N_320 + anchor[i]) * width + c],
                        (double)wanted[i * width + c], absolute * largest, 3e-5);
}

static void check_set(const step *s, const td_tensors *t, const td_json *doc, const char *set)
{
    const td_json *wanted = td_json_get(doc, set);
    const float *ddeltas = result(s, "dcodes"), *dscores = result(s, "dscores");
    assert_non_null(wanted);
    expect_near("loss_box", (double)*result(s, "loss_box"),
                td_golden_number(wanted, "localization"), 0, 2e-6);
    expect_near("loss_class", (double)*result(s, "loss_class"),
                td_golden_number(wanted, "classification"), 0, 2e-6);
    check_summary(td_json_get(wanted, "gradient_box_encodings"), ddeltas, 8 * (int64_t)N_320, 4,
                  same);
    check_summary(td_json_get(wanted, "gradient_class_predictions"), dscores, 182 * (int64_t)N_320,
                  91, same);
    /* a code may be off by 3e-6, where 1 is the largest slope */
    check_rows(t, set, ".gradient_box_encodings", ddeltas, 4, 4e-6);
    check_rows(t, set, ".gradient_class_predictions", dscores, 91, 2e-7);
}

static void losses_of_ssd320(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd320", "heads_loss.safetensors");
    td_tensors *batch0 = td_golden_tensors("ssd320", "targets.safetensors");
    td_json *doc = td_golden_json("ssd320", "heads_loss.json");
    heads h = heads_new(2 * (int64_t)N_320, 91);
    const uint64_t seed = td_fill_seed(td_fill_prefix(), "heads.class_predictions");
    td_fill_range(td_fill_prefix(), "heads.box_encodings", -2, 2, 8 * (int64_t)N_320, h.deltas);
    for (int64_t i = 0; i < 182 * (int64_t)N_320; i++)
        h.scores[i] =
            (float)(-8 - log(1 - td_fill_u(seed, i)) + (i % 91 >= 1 && i % 91 <= 3 ? 4 : 0));
    for (int d = 0; d < 2; d++) {
        step s = step_open(TD_DETECTOR_SSD320, devices[d], 2, N_320, 91);
        assign_320(data_of(batch0, "groundtruth_boxes", ""),
                   data_of(batch0, "groundtruth_classes", ""), &h);
        step_run(&s, h.deltas, h.scores, h.target, h.labels);
        check_set(&s, t, doc, "batch0");
        assign_320(NULL, NULL, &h);
        step_run(&s, h.deltas, h.scores, h.target, h.labels);
        check_set(&s, t, doc, "no_boxes");
        assign_320(data_of(t, "full.", "groundtruth_boxes"),
                   data_of(t, "full.", "groundtruth_classes"), &h);
        step_run(&s, h.deltas, h.scores, h.target, h.labels);
        check_set(&s, t, doc, "full");
        step_close(&s);
    }
    heads_free(&h);
    td_json_free(doc);
    td_tensors_free(batch0);
    td_tensors_free(t);
}

/* --- SSD300 on filled heads ------------------------------------------------------------------- */

static void assign_300(const td_tensors *t, heads *h)
{
    td_anchors *a;
    expect_ok(td_anchors_new(TD_DETECTOR_SSD300, 300, &a));
    void *scratch = room(1, td_targets_scratch_bytes(a));
    for (int image = 0; image < 4; image++) {
        char name[32];
        td_ground_truth ground_truths[16];
        (void)snprintf(name, sizeof name, "batch0.image%d.", image);
        const float *c = data_of(t, name, "boxes_ltrb");
        const int32_t *labels = data_of(t, name, "labels");
        (void)snprintf(name + strlen(name), 12, "labels");
        const int n = (int)td_tensors_get(t, name)->dim[0];
        for (int i = 0; i < n; i++, c += 4)
            ground_truths[i] =
                (td_ground_truth){ .box = { c[1], c[0], c[3], c[2] }, .label = labels[i] };
        (void)td_targets_assign(a, ground_truths, n, scratch, h->labels + N_300 * image,
                                h->target + 4 * (size_t)N_300 * (size_t)image);
    }
    td_free(scratch);
    td_anchors_free(a);
}

/* negatives with a gradient are those mined */
static void check_mined(const td_tensors *t, const char *set, const heads *h, const float *dscores)
{
    for (int image = 0; image < 4; image++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s.mined_negatives_image%d", set, image);
        const td_tensor *wanted = td_tensors_get(t, name);
        int64_t n = 0;
        assert_non_null(wanted);
        for (int64_t i = 0; i < N_300; i++) {
            const int64_t row = N_300 * image + i;
            if (h->labels[row] > 0 || dscores[81 * row + 1] == 0)
                continue;
            assert_true(n < wanted->dim[0]);
            assert_int_equal(((const int32_t *)wanted->data)[n++], i);
        }
        assert_int_equal(n, wanted->dim[0]);
    }
}

static void check_300(const step *s, const td_tensors *t, const td_json *doc, const char *set,
                      const heads *h)
{
    const td_json *wanted = td_json_get(doc, set);
    assert_non_null(wanted);
    expect_near("loss", (double)*result(s, "loss_box") + (double)*result(s, "loss_class"),
                td_golden_number(wanted, "loss_float64"), 0, 2e-7);
    check_summary(td_json_get(wanted, "gradient_loc"), result(s, "dcodes"), 16 * (int64_t)N_300, 4,
                  turned);
    check_summary(td_json_get(wanted, "gradient_conf"), result(s, "dscores"), 324 * (int64_t)N_300,
                  81, turned);
    check_mined(t, set, h, result(s, "dscores"));
}

static void losses_of_ssd300(void **state)
{
    (void)state;
    td_tensors *t = td_golden_tensors("ssd300", "heads_loss.safetensors");
    td_tensors *ground_truths = td_golden_tensors("ssd300", "targets.safetensors");
    td_json *doc = td_golden_json("ssd300", "heads_loss.json");
    heads h = heads_new(4 * (int64_t)N_300, 81);
    const uint64_t loc = td_fill_seed(td_fill_prefix(), "heads.loc"),
                   conf = td_fill_seed(td_fill_prefix(), "heads.conf");
    for (int64_t i = 0; i < 16 * (int64_t)N_300; i++)
        h.deltas[turned(i, 4)] = (float)(2 * td_fill_u(loc, i) - 1);
    for (int64_t i = 0; i < 324 * (int64_t)N_300; i++)
        h.scores[turned(i, 81)] = (float)(4 * (2 * td_fill_u(conf, i) - 1));
    for (int d = 0; d < 2; d++) {
        step s = step_open(TD_DETECTOR_SSD300, devices[d], 4, N_300, 81);
        assign_300(ground_truths, &h);
        step_run(&s, h.deltas, h.scores, h.target, h.labels);
        check_300(&s, t, doc, "batch0", &h);
        memset(h.labels + 2 * (size_t)N_300, 0, N_300 * sizeof *h.labels);
        step_run(&s, h.deltas, h.scores, h.target, h.labels);
        check_300(&s, t, doc, "one_image_without_positives", &h);
        step_close(&s);
    }
    heads_free(&h);
    td_json_free(doc);
    td_tensors_free(ground_truths);
    td_tensors_free(t);
}

/* two images of eight anchors that all lose alike, with one positive and with two */
static void mining_takes_the_first_of_equals(void **state)
{
    (void)state;
    static const int64_t labels[16] = { 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1 };
    static const bool is_taken[16] = { true, true, true, false, false, true, false, false,
                                       true, true, true, true,  true,  true, true,  true };
    static const float zeros[16 * 4], equal[16 * 3];
    for (int d = 0; d < 2; d++) {
        step s = step_open(TD_DETECTOR_SSD300, devices[d], 2, 8, 3);
        step_run(&s, zeros, equal, zeros, labels);
        const float *dscores = result(&s, "dscores");
        for (int i = 0; i < 16; i++)
            assert_int_equal(dscores[3 * i] != 0, is_taken[i]);
        expect_near("loss", (double)*result(&s, "loss_class"), 4 * log(3), 1e-6, 0);
        step_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_numbers),
        cmocka_unit_test(losses_of_ssd320),
        cmocka_unit_test(losses_of_ssd300),
        cmocka_unit_test(mining_takes_the_first_of_equals),
    };
    td_golden_require("ssd320");
    td_golden_require("ssd300");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
