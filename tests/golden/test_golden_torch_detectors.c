/* ctest: timeout 300 */
/*
 * test_golden_torch_detectors.c -- torchvision's detectors: anchors, matching, suppression, and one
 * training pass, against torchvision's own numbers
 *
 * tests/oracle/detectors.py --write makes the files and describes them.  Anchors and labels are
 * exact; box deltas and found boxes are float32 on both sides; the pass is float64 there.
 */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "boxes/decode.h"
#include "boxes/nms.h"
#include "boxes/targets.h"
#include "optim/training_graph.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"
#include "tandem/program.h"

#define PART       "torch-detectors"
#define HEADS_OF   13 /* every thirteenth row of the heads, of all images */
#define SAMPLES    8  /* of each gradient, behind its norm */
#define OBJECTS    8
#define CLASSES    5
#define PASS_BATCH 4

typedef struct {
    const char *arch, *file;
    td_detector kind;
    int nms_side, pass_side;
    int anchor_of; /* every so many anchors, one is stored */
} golden_case;

static const golden_case cases[] = {
    { "ssdlite320_mobilenet_v3_large", "ssdlite.safetensors", TD_DETECTOR_SSDLITE, 64, 128, 7 },
    { "retinanet_resnet50_fpn", "retinanet.safetensors", TD_DETECTOR_RETINANET, 64, 64, 97 },
};
#define N_CASES (sizeof cases / sizeof *cases)

/* --- reading ---------------------------------------------------------------------------------- */

/* the data of a tensor; *n: rows */
static const void *data_of(const td_tensors *t, const char *name, td_dtype dtype, int64_t *n)
{
    const td_tensor *v = td_tensors_get(t, name);
    if (!v)
        fail_msg("no tensor '%s'", name);
    assert_int_equal(v->dtype, dtype);
    if (n)
        *n = v->dim[0];
    return v->data;
}

static td_anchors *anchors_of(td_detector kind, int side)
{
    td_anchors *a;
    expect_ok(td_anchors_new(kind, side, &a));
    return a;
}

/* the objects of image i; returns their number */
static int objects_of(const td_tensors *t, int64_t i, td_ground_truth objects[OBJECTS])
{
    const float *boxes = data_of(t, "boxes", TD_DT_F32, NULL);
    const int64_t *classes = data_of(t, "classes", TD_DT_I64, NULL);
    int n = 0;
    for (int64_t k = i * OBJECTS; k < (i + 1) * OBJECTS; k++) {
        if (classes[k] == 0)
            continue;
        objects[n] = (td_ground_truth){ .label = classes[k] };
        memcpy(&objects[n++].box, boxes + 4 * k, sizeof objects->box);
    }
    return n;
}

/* --- anchors and matching --------------------------------------------------------------------- */

static void anchors_are_exact(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_CASES; c++) {
        int64_t n;
        td_arch_info info;
        td_tensors *t = td_golden_tensors(PART, cases[c].file);
        expect_ok(td_arch_find(cases[c].arch, &info));
        td_anchors *a = anchors_of(cases[c].kind, info.image_size);
        const float *wanted = data_of(t, "anchors", TD_DT_F32, &n);
        assert_int_equal(a->n, info.n_anchors);
        assert_int_equal(n, (a->n + cases[c].anchor_of - 1) / cases[c].anchor_of);
        for (int64_t i = 0; i < n; i++)
            assert_memory_equal(&a->corner[i * cases[c].anchor_of], wanted + 4 * i,
                                4 * sizeof(float));
        td_anchors_free(a);
        td_tensors_free(t);
    }
}

static void check_matches(const golden_case *c, const td_tensors *t)
{
    td_arch_info info;
    int64_t n, at = 0;
    const int64_t *rows = data_of(t, "match.rows", TD_DT_I64, &n);
    const float *deltas = data_of(t, "match.deltas", TD_DT_F32, NULL);
    expect_ok(td_arch_find(c->arch, &info));
    td_anchors *a = anchors_of(c->kind, info.image_size);
    void *scratch = td_alloc(1, td_targets_scratch_bytes(a));
    int64_t *labels = td_alloc((size_t)a->n, sizeof *labels);
    float *found = td_alloc((size_t)a->n, 4 * sizeof *found);
    assert_true(scratch && labels && found);
    for (int64_t i = 0; i < PASS_BATCH; i++) {
        td_ground_truth objects[OBJECTS];
        (void)td_targets_assign(a, objects, objects_of(t, i, objects), scratch, labels, found);
        for (int64_t k = 0; k < a->n; k++) { /* rows: image, anchor, label where that is not 0 */
            const bool is_next = at < n && rows[3 * at] == i && rows[3 * at + 1] == k;
            assert_int_equal(labels[k], is_next ? rows[3 * at + 2] : 0);
            for (int d = 0; is_next && labels[k] > 0 && d < 4; d++)
                assert_true(fabsf(found[4 * k + d] - deltas[4 * at + d]) <
                            1e-5F * fmaxf(1, fabsf(deltas[4 * at + d])));
            at += is_next;
        }
    }
    assert_int_equal(at, n);
    td_free(found);
    td_free(labels);
    td_free(scratch);
    td_anchors_free(a);
}

static void matches_are_exact(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_CASES; c++) {
        td_tensors *t = td_golden_tensors(PART, cases[c].file);
        check_matches(&cases[c], t);
        td_tensors_free(t);
    }
}

/* --- suppression ------------------------------------------------------------------------------ */

static void check_found(const golden_case *c, const td_tensors *t)
{
    int64_t n_wanted;
    int n;
    const float *codes = data_of(t, "nms.codes", TD_DT_F32, NULL);
    const float *scores = data_of(t, "nms.scores", TD_DT_F32, NULL);
    const float *boxes = data_of(t, "nms.found.boxes", TD_DT_F32, &n_wanted);
    const float *score = data_of(t, "nms.found.scores", TD_DT_F32, NULL);
    const int64_t *label = data_of(t, "nms.found.labels", TD_DT_I64, NULL);
    td_anchors *a = anchors_of(c->kind, c->nms_side);
    td_nms *nms;
    td_detection found[TD_NMS_TOTAL_MAX];
    const td_nms_opts opts = td_nms_defaults(c->kind);
    expect_ok(td_nms_new(a, CLASSES + 1, &nms));
    expect_ok(td_nms_run(nms, &opts, codes, scores, found, &n));
    assert_int_equal(n, n_wanted);
    for (int i = 0; i < n; i++) {
        const float own[4] = { found[i].box.ymin, found[i].box.xmin, found[i].box.ymax,
                               found[i].box.xmax };
        assert_int_equal(found[i].label, label[i]);
        assert_true(fabsf(found[i].score - score[i]) < 1e-6F);
        for (int d = 0; d < 4; d++)
            assert_true(fabsf(own[d] - boxes[4 * i + d]) < 2e-6F);
    }
    td_nms_free(nms);
    td_anchors_free(a);
}

static void found_boxes_are_torchvision_s(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_CASES; c++) {
        td_tensors *t = td_golden_tensors(PART, cases[c].file);
        check_found(&cases[c], t);
        td_tensors_free(t);
    }
}

/* --- a pass ----------------------------------------------------------------------------------- */

static bool has_param(const td_program *p, const char *name)
{
    for (int i = 0; i < td_program_param_count(p); i++)
        if (strcmp(td_program_param_name(p, i), name) == 0)
            return true;
    return false;
}

/* does the parameter belong to a norm? */
static bool is_of_norm(const td_program *p, const char *name)
{
    char other[160];
    snprintf(other, sizeof other, "%.*s.running_mean", (int)(strrchr(name, '.') - name), name);
    return has_param(p, other);
}

/* element with the uniform number u; n_in: taps times channels of a filter */
static double fill_value(const td_program *p, const char *name, const td_type *t, double u)
{
    const double s = 2 * u - 1;
    const bool is_head = td_text_starts(name, "head.");
    if (td_text_ends(name, ".running_mean"))
        return 0.1 * s;
    if (td_text_ends(name, ".running_var"))
        return 0.5 + u;
    if (t->rank == 4)
        return s * (is_head ? 0.3 : 1) * sqrt(3.0 / (double)(td_type_count(t) / t->dim[0]));
    if (!is_of_norm(p, name))
        return 0.1 * s;
    return td_text_ends(name, ".weight") ? 0.3 + 0.2 * u : 2.6 + 0.4 * u;
}

static void fill(td_program *p)
{
    expect_ok(td_program_init(p, 1));
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type t = td_program_param_type(p, i);
        const int64_t n = td_type_count(&t);
        float *values = td_alloc((size_t)n, sizeof *values);
        const uint64_t seed = td_fill_seed("", name);
        assert_non_null(values);
        if (td_text_starts(name, TD_MOMENTUM_PREFIX)) {
            td_free(values);
            continue;
        }
        for (int64_t k = 0; k < n; k++)
            values[k] = (float)fill_value(p, name, &t, td_fill_u(seed, k));
        expect_ok(td_program_set(p, name, values));
        td_free(values);
    }
}

static td_device *dev;

static int open_device(void **state)
{
    (void)state;
    return td_device_open("cpu", &dev) != TD_OK;
}

static int close_device(void **state)
{
    (void)state;
    td_device_close(dev);
    return 0;
}

static td_program *compile(td_status st, td_graph *g)
{
    td_program *p;
    expect_ok(st);
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    fill(p);
    return p;
}

static void check_output(td_program *p, const td_tensors *t, const char *output, const char *name,
                         int every, double limit)
{
    td_type type;
    int64_t n;
    const float *found = td_program_output(p, output, &type);
    const double *wanted = data_of(t, name, TD_DT_F64, &n);
    const int64_t columns = type.rank ? type.dim[type.rank - 1] : 1;
    double worst = 0, top = 0;
    assert_int_equal(n, (td_type_count(&type) / columns + every - 1) / every);
    for (int64_t i = 0; i < n * columns; i++) {
        const int64_t at = i / columns * every * columns + i % columns;
        worst = fmax(worst, fabs((double)found[at] - wanted[i]));
        top = fmax(top, fabs(wanted[i]));
    }
    print_message("%-12s %.1e (%.1e)\n", name, worst / top, limit);
    assert_true(worst <= limit * top);
}

/* wanted: the norm and samples of a gradient; returns its error relative to its own size, but of
   gradients that only rounding makes differ from 0 */
static double gradient_error(td_program *p, const char *name, const td_type *t,
                             const double *wanted, double largest)
{
    char momentum[160];
    const int64_t n = td_type_count(t);
    float *found = td_alloc((size_t)n, sizeof *found);
    double square = 0, error = 0, top = wanted[0] / sqrt((double)n);
    assert_non_null(found);
    snprintf(momentum, sizeof momentum, TD_MOMENTUM_PREFIX "%s", name);
    expect_ok(td_program_get(p, momentum, found));
    for (int64_t i = 0; i < n; i++)
        square += (double)found[i] * (double)found[i];
    for (int64_t k = 0; k < SAMPLES; k++) {
        const double w = wanted[1 + k];
        error = fmax(error, fabs((double)found[td_golden_sample(k, n)] - w));
        top = fmax(top, fabs(w));
    }
    td_free(found);
    if (wanted[0] < 1e-6 * largest)
        return sqrt(square) < 1e-5 * largest ? 0 : INFINITY;
    return fmax(error / top, fabs(sqrt(square) - wanted[0]) / wanted[0]);
}

static void check_gradients(td_program *p, const td_tensors *t, double limit)
{
    double worst = 0, largest = 0;
    const char *where = "";
    int n = 0;
    for (size_t i = 0; i < td_tensors_count(t); i++)
        if (td_text_starts(td_tensors_at(t, i)->name, "grad."))
            largest = fmax(largest, *(const double *)td_tensors_at(t, i)->data);
    for (int i = 0; i < td_program_param_count(p); i++) {
        const char *name = td_program_param_name(p, i);
        const td_type type = td_program_param_type(p, i);
        char golden[160];
        snprintf(golden, sizeof golden, "grad.%s", name);
        const td_tensor *wanted = td_tensors_get(t, golden);
        if (!wanted)
            continue;
        const double error = gradient_error(p, name, &type, wanted->data, largest);
        where = error > worst ? name : where;
        worst = fmax(worst, error);
        n++;
    }
    print_message("%d gradients: %.1e (%.1e) %s\n", n, worst, limit, where);
    for (size_t i = 0; i < td_tensors_count(t); i++)
        n -= td_text_starts(td_tensors_at(t, i)->name, "grad.");
    assert_int_equal(n, 0);
    assert_true(worst <= limit);
}

static void check_pass(const golden_case *c, const td_tensors *t)
{
    td_model_opts o;
    td_graph *g;
    td_program *p;
    td_model_defaults(&o);
    o.arch = c->arch;
    o.num_classes = CLASSES;
    o.image_size = c->pass_side;
    td_anchors *a = anchors_of(c->kind, c->pass_side);
    const int64_t n_pixels = (int64_t)PASS_BATCH * 3 * c->pass_side * c->pass_side;
    const size_t rows = (size_t)PASS_BATCH * (size_t)a->n;
    float *images = td_alloc((size_t)n_pixels, sizeof *images), lr = 0;
    float *targets = td_alloc(rows, 4 * sizeof *targets);
    int64_t *labels = td_alloc(rows, sizeof *labels);
    void *scratch = td_alloc(1, td_targets_scratch_bytes(a));
    assert_true(images && targets && labels && scratch);
    td_fill_images("", "images", n_pixels, images);
    for (int64_t i = 0; i < PASS_BATCH; i++) {
        td_ground_truth objects[OBJECTS];
        (void)td_targets_assign(a, objects, objects_of(t, i, objects), scratch, labels + i * a->n,
                                targets + 4 * i * a->n);
    }
    td_status st = td_model_graph(&o, PASS_BATCH, false, &g);
    p = compile(st, g);
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_run(p));
    check_output(p, t, "codes", "codes_eval", HEADS_OF, 2e-5);
    check_output(p, t, "scores", "scores_eval", HEADS_OF, 2e-5);
    td_program_free(p);

    st = td_detector_training_graph(&o, PASS_BATCH, &(td_step_opts){ .momentum = 0.9 }, &g);
    p = compile(st, g);
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_bind(p, "labels", labels));
    expect_ok(td_program_bind(p, "targets", targets));
    expect_ok(td_program_bind(p, "lr", &lr));
    expect_ok(td_program_run(p));
    check_output(p, t, "loss", "loss", 1, 1e-5);
    check_output(p, t, "loss_class", "loss_class", 1, 1e-5);
    check_output(p, t, "loss_box", "loss_box", 1, 1e-5);
    check_gradients(p, t, 2e-3);
    td_program_free(p);
    td_free(scratch);
    td_free(labels);
    td_free(targets);
    td_free(images);
    td_anchors_free(a);
}

static void a_pass_is_torchvision_s(void **state)
{
    (void)state;
    for (size_t c = 0; c < N_CASES; c++) {
        td_tensors *t = td_golden_tensors(PART, cases[c].file);
        check_pass(&cases[c], t);
        td_tensors_free(t);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anchors_are_exact),
        cmocka_unit_test(matches_are_exact),
        cmocka_unit_test(found_boxes_are_torchvision_s),
        cmocka_unit_test(a_pass_is_torchvision_s),
    };
    td_process_setup(argv);
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, open_device, close_device);
}
