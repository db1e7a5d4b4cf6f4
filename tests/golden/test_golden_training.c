/* ctest: timeout 600 */
/*
 * test_golden_training.c -- five optimiser steps on five batches against the reference's numbers
 *
 * Cases of type "sgd": momentum 0.875, decay of everything but parameters with "bn" in their names,
 * label smoothing 0.1.  Compared are the losses before each update and, after steps 1 and 5,
 * weights, momentum buffers and BN's running statistics: float32 on "cpu" by the training job's own
 * graph, float64 on "ref" by one whose targets are float64 too.
 *
 * After step 1 a momentum buffer is gradient + decay * weight, so the limits of gradients hold for
 * it. Limits are those that tests/golden/classification/README.md suggests at the end of section 6.
 * It leaves out `plain` in float32, where two correct programs part by half of a weight's change
 * from the second step on: there the first step is compared, with a factor of 5 on what the
 * reference's own runs differ by.
 */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "optim/training_graph.h"
#include "support/expect.h"
#include "support/golden.h"
#include "support/measure.h"

#define N_MAX 64

/* --- limits ----------------------------------------------------------------------------------- */

/* of one snapshot */
typedef struct {
    double params, momentum, momentum_median, momentum_l2, buffers;
} limits;

/* clang-format off */
#define NO TD_NO_LIMIT
static const limits f64_limits[2] = {
    { 1e-9, 1e-8, 1e-9, 1e-9, 1e-9 },
    { 1e-9, 1e-8, NO,   NO,   1e-9 },
};
static const limits margin_limits[2] = {
    { 1e-5, 1e-3, 5e-5, 2e-5, 2e-5 },
    { 1e-5, 2e-3, NO,   NO,   2e-5 },
};
/* clang-format on */

static bool is_loose(const td_test_network_case *c, td_dtype dtype)
{
    return dtype == TD_DT_F32 && c->fill == TD_FILL_PLAIN;
}

/* i: 0 after step 1, 1 after step 5 */
static limits limits_of(const td_test_network_case *c, td_dtype dtype, int i)
{
    limits l = { 0 };
    if (!is_loose(c, dtype))
        return dtype == TD_DT_F64 ? f64_limits[i] : margin_limits[i];
    if (i == 0) {
        l.momentum_l2 = 5 * td_test_network_agreement(c, "step1.momentum.l2");
        l.buffers = 5 * td_test_network_agreement(c, "step1.buffers.max");
    }
    return l;
}

static double loss_limit(const td_test_network_case *c, td_dtype dtype, int step)
{
    if (is_loose(c, dtype))
        return step == 0 ? 5 * td_test_network_agreement(c, "losses.0") : TD_NO_LIMIT;
    return dtype == TD_DT_F64 ? 1e-9 : 1e-5;
}

/* --- one case --------------------------------------------------------------------------------- */

static void compare(td_test_network *n, int step, const limits *l, td_findings *r)
{
    char key[64], what[32];
    td_measure m;
    snprintf(key, sizeof key, "step%d.params", step);
    snprintf(what, sizeof what, "after %d: weights", step);
    td_measure_group(&m, n->c, key, "parameters", td_fetch_param, n);
    td_findings_add(r, what, m.worst, l->params, m.worst_name);
    snprintf(key, sizeof key, "step%d.momentum", step);
    td_measure_group(&m, n->c, key, "parameters", td_fetch_momentum_buffer, n);
    td_findings_add(r, "momentum", m.worst, l->momentum, m.worst_name);
    td_findings_add(r, "median", m.median, l->momentum_median, NULL);
    td_findings_add(r, "L2", m.l2, l->momentum_l2, NULL);
    snprintf(key, sizeof key, "step%d.buffers", step);
    td_measure_group(&m, n->c, key, "buffers", td_fetch_param, n);
    td_findings_add(r, "BN", m.worst, l->buffers, m.worst_name);
}

/* absolute; after the first step relative to a loss above 1, which `plain` drives up to 65 */
static double loss_error(const td_test_network *n, int step)
{
    int64_t count;
    double wanted;
    const td_json *losses = td_json_get(td_json_get(n->c->doc, "losses"), "float64");
    double *loss = td_test_network_output(n, "loss", &count);
    assert_int_equal(count, 1);
    expect_ok(td_json_as_number(td_json_at(losses, (size_t)step), &wanted));
    double e = fabs(*loss - wanted);
    td_free(loss);
    return step == 0 ? e : e / fmax(1, fabs(wanted));
}

static void run_steps(td_test_network *n, td_findings *r)
{
    const int n_steps = (int)td_golden_number(n->c->doc, "steps");
    char images[32], labels[32];
    for (int s = 0; s < n_steps; s++) {
        snprintf(images, sizeof images, "images.%d", s);
        snprintf(labels, sizeof labels, "labels.%d", s);
        td_test_network_feed(n, images, labels);
        td_test_network_run(n);
        td_findings_add(r, "loss", loss_error(n, s), loss_limit(n->c, n->form.dtype, s), NULL);
        for (int i = 0; i < 2; i++)
            if (s + 1 == (i == 0 ? 1 : 5)) {
                const limits l = limits_of(n->c, n->form.dtype, i);
                compare(n, s + 1, &l, r);
            }
    }
}

/* the reference's groups against our rule */
static void check_groups(const td_test_network_case *c)
{
    const td_json *params = td_golden_rows(c->doc, "parameters");
    const char *name, *group;
    for (size_t i = 0; i < td_json_count(params); i++) {
        expect_ok(td_json_as_text(td_json_at(td_json_at(params, i), 0), &name));
        expect_ok(td_json_as_text(td_json_at(td_json_at(params, i), 2), &group));
        assert_string_equal(td_is_undecayed(name) ? "no_decay" : "decay", group);
    }
}

typedef struct {
    char (*name)[128];
    const char *device;
    td_dtype dtype;
    td_test_network_mode mode;
    char title[160];
} training_test;

static void check_case(void **state)
{
    const training_test *t = *state;
    const int64_t t0 = td_now_ns();
    td_test_network_case c;
    td_test_network n;
    td_findings r = { 0 };
    char title[192];
    bool decays_norm, is_nesterov;

    td_test_network_open(&c, "classification", *t->name);
    expect_ok(td_json_bool(c.doc, "bn_weight_decay", &decays_norm));
    expect_ok(td_json_bool(c.doc, "nesterov", &is_nesterov));
    assert_false(decays_norm || is_nesterov); /* no case has them yet: optimizers.json does */
    check_groups(&c);
    td_test_network_build(
        &n, &c,
        &(td_test_network_form){ .device = t->device,
                                 .dtype = t->dtype,
                                 .mode = t->mode,
                                 .lr = td_golden_number(c.doc, "lr"),
                                 .momentum = td_golden_number(c.doc, "momentum"),
                                 .decay = td_golden_number(c.doc, "weight_decay") });
    run_steps(&n, &r);
    td_test_network_release(&n);
    td_test_network_close(&c);
    snprintf(title, sizeof title, "%s %.1f s", t->title, (double)(td_now_ns() - t0) * 1e-9);
    td_findings_end(&r, title);
}

int main(int argc, char **argv)
{
    td_process_setup(argv);
    static char names[N_MAX][128];
    static training_test state[2 * N_MAX];
    static struct CMUnitTest tests[2 * N_MAX];

    td_golden_require("classification");
    const int n = td_test_network_cases("classification", "sgd", N_MAX, names);
    if (n == 0)
        return 1; /* a folder without cases tests nothing */
    for (int i = 0; i < 2 * n; i++) {
        state[i] = i < n ? (training_test){ &names[i], "cpu", TD_DT_F32, TD_NETWORK_JOB, "" }
                         : (training_test){ &names[i - n], "ref", TD_DT_F64, TD_NETWORK_STEP, "" };
        snprintf(state[i].title, sizeof state[i].title, "%s %s %s", *state[i].name, state[i].device,
                 td_dtype_name(state[i].dtype));
        tests[i] = (struct CMUnitTest){ state[i].title, check_case, NULL, NULL, &state[i] };
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("training", tests, (size_t)(2 * n), NULL, NULL);
}
