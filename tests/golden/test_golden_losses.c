/*
 * test_golden_losses.c -- loss and gradient against losses.json, on every device and type
 *
 * Three ways to the same numbers: labels through one_hot, and targets fed as numbers, in float32 on
 * the reference kernels and on the fast ones; targets in float64 on the reference kernels.
 *
 * Mixed targets are smoothed here, q = (1 - s) t + s / K, as whoever mixes does; a case in
 * evaluation mode is plain cross-entropy whatever its smoothing.
 */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"
#include "tandem/program.h"

#define PART "classification"

/* float32 sums of 1000 terms; logits of +-5000 keep 3e-4 of a difference, 1e-7 of the loss */
#define LOSS_F32 2e-6
#define GRAD_F32 2e-6
#define LOSS_F64 1e-12

static td_json *doc;
static td_tensors *tensors;

static int set_up(void **state)
{
    (void)state;
    doc = td_golden_json(PART, "losses.json");
    tensors = td_golden_tensors(PART, "losses.safetensors");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    td_tensors_free(tensors);
    td_json_free(doc);
    return 0;
}

/* --- a case and its data --------------------------------------------------------------------- */

typedef struct {
    const char *name, *inputs;
    bool is_soft;
    double smoothing, lambda;  /* lambda: share of the row's own label, 1 in hard cases */
    double loss_f32, loss_f64; /* NaN where there is none */
    const td_tensor *logits;   /* [N, K] */
    const td_tensor *labels;   /* [N] */
    const td_tensor *mates;    /* [N] row mixed in, soft cases */
    const td_tensor *mixed;    /* [N, K], NULL where none is stored */
    const td_tensor *grad;     /* [N, K], NULL where none is stored */
    int64_t n, k;
} loss_case;

static const td_tensor *find(const char *a, const char *b, const char *c)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s%s", a, b, c);
    return td_tensors_get(tensors, name);
}

/* "mixup_0.3" of "mixup_0.3.k10.smoothing_0.1" */
static const td_tensor *find_mixed(const loss_case *c)
{
    char name[256];
    const char *end = strstr(c->name, c->inputs);
    assert_non_null(end);
    snprintf(name, sizeof name, "%.*s%s.target", (int)(end - c->name), c->name, c->inputs);
    return td_tensors_get(tensors, name);
}

static double loss_of(const td_json *j, const char *run)
{
    const td_json *loss = td_json_get(j, "loss");
    return td_json_get(loss, run) ? td_golden_number(loss, run) : (double)NAN;
}

static loss_case read_case(const td_json *j)
{
    loss_case c = { .name = td_golden_text(j, "name"), .inputs = td_golden_text(j, "inputs") };
    c.smoothing = td_golden_number(j, "smoothing");
    if (strcmp(td_golden_text(j, "mode"), "eval") == 0)
        c.smoothing = 0;
    c.loss_f32 = loss_of(j, "float32");
    c.loss_f64 = loss_of(j, "float64");
    c.logits = find("logits.", c.inputs, "");
    c.labels = find("labels.", c.inputs, "");
    c.grad = find(c.name, ".grad", "");
    assert_non_null(c.logits);
    assert_non_null(c.labels);
    c.n = c.logits->dim[0];
    c.k = c.logits->dim[1];
    c.is_soft = strcmp(td_golden_text(j, "target"), "soft") == 0;
    c.lambda = c.is_soft ? td_golden_number(j, "lambda") : 1;
    if (c.is_soft) {
        c.mates = find("mixup_perm.", c.inputs, "");
        c.mixed = find_mixed(&c);
        assert_non_null(c.mates);
    }
    return c;
}

static double one_hot_at(const loss_case *c, int64_t row, int64_t column)
{
    return ((const int64_t *)c->labels->data)[row] == column;
}

/* target of element i before smoothing */
static double mixed_at(const loss_case *c, int64_t i)
{
    int64_t row = i / c->k, mate = c->is_soft ? ((const int64_t *)c->mates->data)[row] : row;
    assert_in_range(mate, 0, c->n - 1);
    return c->lambda * one_hot_at(c, row, i % c->k) +
           (1 - c->lambda) * one_hot_at(c, mate, i % c->k);
}

static double target_at(const loss_case *c, int64_t i)
{
    return (1 - c->smoothing) * mixed_at(c, i) + c->smoothing / (double)c->k;
}

/* --- running it ------------------------------------------------------------------------------ */

typedef enum { FROM_LABELS, FROM_TARGETS } source;

static td_graph *make_graph(const loss_case *c, td_dtype dtype, source from)
{
    const int64_t dim[] = { c->n, c->k };
    td_graph *g;
    td_builder *b = td_build_begin();
    assert_non_null(b);
    td_value *x = td_param(b, "logits", dtype, 2, dim, NULL), *q;
    if (from == FROM_LABELS)
        q = td_one_hot(b, td_input(b, "labels", td_type_of(TD_DT_I64, 1, dim)), (int)c->k,
                       c->smoothing);
    else
        q = td_input(b, "targets", td_type_of(dtype, 2, dim));
    td_value *loss = td_mean(b, td_softmax_cross_entropy(b, x, q));
    td_output(b, "loss", loss);
    td_output(b, "grad", td_gradient(b, loss, x));
    expect_ok(td_build_end(b, &g));
    return g;
}

/* logits and targets of the case in the type of the run; dtype F32 or F64 */
static void make_inputs(const loss_case *c, td_dtype dtype, void *x, void *q)
{
    for (int64_t i = 0; i < c->n * c->k; i++) {
        float logit = ((const float *)c->logits->data)[i];
        double target = target_at(c, i);
        if (dtype == TD_DT_F64) {
            ((double *)x)[i] = (double)logit;
            ((double *)q)[i] = target;
        } else {
            ((float *)x)[i] = logit;
            ((float *)q)[i] = (float)target;
        }
    }
}

static double element(const void *p, td_dtype dtype, int64_t i)
{
    return dtype == TD_DT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void check_loss(const loss_case *c, const char *device, double found, double wanted,
                       double tolerance)
{
    if (isnan(wanted))
        return;
    if (!(fabs(found - wanted) <= tolerance * fabs(wanted))) {
        print_error("%s on %s: loss %.17g, wanted %.17g\n", c->name, device, found, wanted);
        fail();
    }
}

static void check_grad(const loss_case *c, const char *device, const void *found, td_dtype dtype)
{
    double largest = 0, worst = 0;
    if (!c->grad)
        return;
    for (int64_t i = 0; i < c->n * c->k; i++) {
        double wanted = (double)((const float *)c->grad->data)[i];
        double off = fabs(element(found, dtype, i) - wanted);
        largest = fmax(largest, fabs(wanted));
        worst = isnan(off) ? (double)INFINITY : fmax(worst, off);
    }
    if (!(worst <= GRAD_F32 * largest)) {
        print_error("%s on %s: gradient off by %g of %g\n", c->name, device, worst, largest);
        fail();
    }
}

static void run_case(const loss_case *c, const char *device, td_dtype dtype, source from)
{
    td_device *dev;
    td_program *p;
    td_graph *g = make_graph(c, dtype, from);
    size_t n = (size_t)(c->n * c->k);
    void *x = td_alloc(n, td_dtype_bytes(dtype)), *q = td_alloc(n, td_dtype_bytes(dtype));
    assert_non_null(x);
    assert_non_null(q);
    make_inputs(c, dtype, x, q);

    expect_ok(td_test_device_open(device, &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    expect_ok(td_program_set(p, "logits", x));
    if (from == FROM_LABELS)
        expect_ok(td_program_bind(p, "labels", c->labels->data));
    else
        expect_ok(td_program_bind(p, "targets", q));
    expect_ok(td_program_run(p));

    double loss = element(td_program_output(p, "loss", NULL), dtype, 0);
    check_loss(c, device, loss, c->loss_f32, LOSS_F32);
    check_loss(c, device, loss, c->loss_f64, dtype == TD_DT_F64 ? LOSS_F64 : LOSS_F32);
    check_grad(c, device, td_program_output(p, "grad", NULL), dtype);

    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    td_free(q);
    td_free(x);
}

static void run_all(const char *device, td_dtype dtype, source from)
{
    const td_json *losses = td_golden_rows(doc, "losses");
    int n_run = 0;
    assert_non_null(losses);
    for (size_t i = 0; i < td_json_count(losses); i++) {
        loss_case c = read_case(td_json_at(losses, i));
        if (c.is_soft && from == FROM_LABELS)
            continue;
        run_case(&c, device, dtype, from);
        n_run++;
    }
    assert_true(n_run > 0);
}

static void labels_on_ref(void **state)
{
    (void)state;
    run_all("ref", TD_DT_F32, FROM_LABELS);
}

static void labels_on_cpu(void **state)
{
    (void)state;
    run_all("cpu", TD_DT_F32, FROM_LABELS);
}

static void targets_on_ref(void **state)
{
    (void)state;
    run_all("ref", TD_DT_F32, FROM_TARGETS);
}

static void targets_on_cpu(void **state)
{
    (void)state;
    run_all("cpu", TD_DT_F32, FROM_TARGETS);
}

static void targets_in_double(void **state)
{
    (void)state;
    run_all("ref", TD_DT_F64, FROM_TARGETS);
}

/* the stored mixed targets, which a run does not use, are what it computes */
static void stored_targets(void **state)
{
    (void)state;
    const td_json *losses = td_golden_rows(doc, "losses");
    for (size_t i = 0; i < td_json_count(losses); i++) {
        loss_case c = read_case(td_json_at(losses, i));
        for (int64_t e = 0; c.mixed && e < c.n * c.k; e++)
            assert_true(fabs(((const float *)c.mixed->data)[e] - mixed_at(&c, e)) < 1e-7);
    }
}

/* the stored logits and labels come from the formula */
static void inputs_are_the_fill(void **state)
{
    (void)state;
    const char *prefix = td_golden_text(doc, "prefix");
    int n_checked = 0;
    for (size_t i = 0; i < td_tensors_count(tensors); i++) {
        const td_tensor *x = td_tensors_at(tensors, i), *y;
        char name[256];
        if (!td_text_starts(x->name, "logits."))
            continue;
        const double hi = td_text_ends(x->name, "-wide") ? 5000 : 4;
        int64_t n = x->dim[0] * x->dim[1], *labels = td_alloc((size_t)x->dim[0], sizeof *labels);
        float *logits = td_alloc((size_t)n, sizeof *logits);
        assert_non_null(labels);
        assert_non_null(logits);

        snprintf(name, sizeof name, "loss.%s", x->name);
        td_fill_range(prefix, name, -hi, hi, n, logits);
        assert_memory_equal(logits, x->data, x->n_bytes);
        snprintf(name, sizeof name, "loss.labels.%s", x->name + strlen("logits."));
        td_fill_labels(prefix, name, x->dim[0], x->dim[1], labels);
        y = td_tensors_get(tensors, name + strlen("loss."));
        assert_non_null(y);
        assert_memory_equal(labels, y->data, y->n_bytes);
        td_free(logits);
        td_free(labels);
        n_checked++;
    }
    assert_true(n_checked > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_are_the_fill), cmocka_unit_test(stored_targets),
        cmocka_unit_test(labels_on_ref),       cmocka_unit_test(labels_on_cpu),
        cmocka_unit_test(targets_on_ref),      cmocka_unit_test(targets_on_cpu),
        cmocka_unit_test(targets_in_double),
    };
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
