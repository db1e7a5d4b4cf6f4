/* ctest: timeout 900 */
/* ctest: processors 2 */
/*
 * test_golden_steps.c -- five steps of a training job on one rank and on two, in float32 and in
 * mixed precision, against PyTorch's
 *
 *     test_golden_steps [PRECISION [PATTERN]]        fp32, bf16 or fp16; of the cases' names
 *
 * Cases of tests/golden/steps (tests/oracle/steps.py): a rank is a process with a batch and batch
 * norms of its own; gradients are averaged over the ranks.  Compared are the losses before each
 * update and, after steps 1 and 5, weights, momentum buffers and rank 0's running statistics, with
 * float64.  All ranks must have the same bits.
 *
 * Float32 has the limits of test_golden_training.c.  A half type has SLACK times what PyTorch's
 * autocast to that type is away from float64 in the same case.  In fp16 gradients are scaled.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "amp/amp_opts.h"
#include "base/clock.h"
#include "base/threads.h"
#include "checkpoint/weights_ranks.h"
#include "optim/optimizer.h"
#include "support/expect.h"
#include "support/golden.h"
#include "support/measure.h"
#include "support/ranks.h"

#define PART  "steps"
#define SLACK 3

enum { N_MAX = 16 };

typedef struct {
    const char *name, *precision;
} steps_test;

/* --- limits ----------------------------------------------------------------------------------- */

static td_precision precision_of(const char *name)
{
    int i = 0;
    while (td_amp_precisions[i] && strcmp(td_amp_precisions[i], name) != 0)
        i++;
    if (!td_amp_precisions[i])
        fail_msg("no precision '%s'", name);
    return (td_precision)i;
}

/* PyTorch's run of this precision; NULL: float32 */
static const td_json *agreement_of(const td_test_network_case *c, td_precision precision)
{
    if (precision == TD_PRECISION_FP32)
        return NULL;
    return td_golden_rows(td_golden_rows(c->doc, "agreement"),
                          precision == TD_PRECISION_FP16 ? "float16" : "bfloat16");
}

/* one limit for all steps, some of which PyTorch meets by chance */
static double loss_limit(const td_json *agreement)
{
    double largest = 0;
    if (!agreement)
        return 1e-5;
    const td_json *losses = td_golden_rows(agreement, "losses");
    for (size_t i = 0; i < td_json_count(losses); i++) {
        double v;
        expect_ok(td_json_as_number(td_json_at(losses, i), &v));
        largest = fmax(largest, v);
    }
    return SLACK * largest;
}

/* what is compared of a group of tensors */
static double limit_of(const td_json *agreement, int step, const char *group, const char *measure,
                       double of_float32)
{
    char key[32];
    if (!agreement)
        return of_float32;
    snprintf(key, sizeof key, "step%d", step);
    return SLACK * td_golden_number(td_golden_rows(td_golden_rows(agreement, key), group), measure);
}

/* --- measures --------------------------------------------------------------------------------- */

static void measure(td_measure *m, td_test_network *n, int step, const char *group)
{
    char key[64];
    const bool is_momentum = strcmp(group, "momentum") == 0;
    snprintf(key, sizeof key, "step%d.%s", step, group);
    td_measure_group(m, n->c, key, strcmp(group, "buffers") == 0 ? "buffers" : "parameters",
                     is_momentum ? td_fetch_momentum_buffer : td_fetch_param, n);
}

/*
 * Single momentum buffers are not compared in half types, where those of a norm's biases, sums of
 * gradients that nearly cancel, have few correct digits.
 */
static void compare(td_test_network *n, int step, const td_json *agreement, td_findings *r)
{
    td_measure m;
    char what[32];
    measure(&m, n, step, "params");
    snprintf(what, sizeof what, "after %d: weights", step);
    td_findings_add(r, what, m.worst, limit_of(agreement, step, "params", "max", 1e-5),
                    m.worst_name);
    measure(&m, n, step, "momentum");
    td_findings_add(r, "momentum", m.worst, agreement ? TD_NO_LIMIT : 2e-3, m.worst_name);
    td_findings_add(r, "median", m.median, limit_of(agreement, step, "momentum", "median", 5e-5),
                    NULL);
    td_findings_add(r, "L2", m.l2, limit_of(agreement, step, "momentum", "l2", 2e-5), NULL);
    if (td_comm_rank(n->form.comm) > 0)
        return;
    measure(&m, n, step, "buffers");
    td_findings_add(r, "BN", m.worst, limit_of(agreement, step, "buffers", "max", 2e-5),
                    m.worst_name);
}

/* the mean over the ranks, relative to a loss above 1 */
static double loss_error(const td_test_network *n, int step)
{
    int64_t count;
    double wanted;
    const td_json *losses = td_golden_rows(td_golden_rows(n->c->doc, "losses"), "float64");
    double *loss = td_test_network_output(n, "loss", &count), sum = *loss;
    assert_int_equal(count, 1);
    td_free(loss);
    expect_ok(td_json_as_number(td_json_at(losses, (size_t)step), &wanted));
    expect_ok(td_comm_sum_f64(n->form.comm, &sum, 1));
    return fabs(sum / td_comm_size(n->form.comm) - wanted) / fmax(1, fabs(wanted));
}

static void check_is_finite(const td_test_network *n)
{
    int64_t count;
    double *finite = td_test_network_output(n, TD_OUTPUT_FINITE, &count);
    if (*finite != 1)
        fail_msg("the step has an infinity or a NaN");
    td_free(finite);
}

/* --- one case --------------------------------------------------------------------------------- */

static void feed(td_test_network *n, int step)
{
    char images[32], labels[32];
    const int rank = td_comm_rank(n->form.comm);
    snprintf(images, sizeof images, "images.%d.%d", step, rank);
    snprintf(labels, sizeof labels, "labels.%d.%d", step, rank);
    if (!n->c->backbone) {
        td_test_network_feed(n, images, labels);
        return;
    }
    const td_json *of_step = td_json_at(td_golden_rows(n->c->doc, "objects"), (size_t)step);
    td_test_network_feed_objects(n, images, td_json_at(of_step, (size_t)rank));
}

static void run_steps(td_test_network *n, td_findings *r)
{
    const td_json *agreement = agreement_of(n->c, n->form.precision);
    const double limit = loss_limit(agreement);
    const int n_steps = td_golden_int(n->c->doc, "steps");
    for (int s = 0; s < n_steps; s++) {
        feed(n, s);
        td_test_network_run(n);
        td_findings_add(r, "loss", loss_error(n, s), limit, NULL);
        if (n->form.precision == TD_PRECISION_FP16)
            check_is_finite(n);
        if (s > 0 && s < n_steps - 1)
            continue;
        compare(n, s + 1, agreement, r);
        if (n->form.comm)
            expect_ok(td_weights_compare(n->p, n->form.comm));
    }
}

typedef struct {
    const steps_test *test;
    td_comm *comm;
} rank_test;

/* runs in the process of a rank */
static void check_rank(void **state)
{
    const rank_test *rank = *state;
    const steps_test *t = rank->test;
    const int64_t t0 = td_now_ns();
    td_test_network_case c;
    td_test_network n;
    td_findings r = { 0 };
    char title[192];
    td_test_network_open(&c, PART, t->name);
    td_test_network_build(&n, &c,
                          &(td_test_network_form){ .device = "cpu",
                                                   .dtype = TD_DT_F32,
                                                   .mode = TD_NETWORK_JOB,
                                                   .lr = td_golden_number(c.doc, "lr"),
                                                   .momentum = td_golden_number(c.doc, "momentum"),
                                                   .decay = td_golden_number(c.doc, "weight_decay"),
                                                   .precision = precision_of(t->precision),
                                                   .comm = rank->comm });
    run_steps(&n, &r);
    td_test_network_release(&n);
    td_test_network_close(&c);
    snprintf(title, sizeof title, "%s %s rank %d %.1f s", t->name, t->precision,
             td_comm_rank(rank->comm), (double)(td_now_ns() - t0) * 1e-9);
    td_findings_end(&r, title);
}

/* a failed assertion ends a test, so the body of a rank is a test of its own process */
static int rank_body(const td_rank_place *place, void *ctx)
{
    rank_test t = { .test = ctx };
    if (place->size > 1 && td_comm_open(place, NULL, &t.comm) != TD_OK)
        return __LINE__;
    td_set_threads(td_comm_threads(t.comm));
    const struct CMUnitTest test = { t.test->name, check_rank, NULL, NULL, &t };
    const int n_failed = _cmocka_run_group_tests("rank", &test, 1, NULL, NULL);
    td_comm_close(t.comm, n_failed ? td_error(TD_EDEVICE, "this rank failed") : TD_OK);
    (void)fflush(NULL);
    return n_failed ? __LINE__ : 0;
}

static void check_case(void **state)
{
    const steps_test *t = *state;
    td_test_network_case c;
    td_test_network_open(&c, PART, t->name);
    const int n_ranks = td_golden_int(c.doc, "ranks");
    int codes[2];
    td_test_network_close(&c);
    assert_in_range(n_ranks, 1, 2);
    (void)fflush(NULL);
    td_test_ranks(n_ranks, rank_body, *state, codes);
    for (int r = 0; r < n_ranks; r++)
        if (codes[r])
            fail_msg("rank %d ended with %d", r, codes[r]);
}

int main(int argc, char **argv)
{
    static char names[N_MAX][128];
    static steps_test state[N_MAX];
    static struct CMUnitTest tests[N_MAX];
    td_process_setup(argv);
    td_golden_require(PART);
    const int n = td_test_network_cases(PART, "steps", N_MAX, names);
    if (n == 0)
        return 1; /* a folder without cases tests nothing */
    for (int i = 0; i < n; i++) {
        state[i] = (steps_test){ names[i], argc > 1 ? argv[1] : "fp32" };
        tests[i] = (struct CMUnitTest){ names[i], check_case, NULL, NULL, &state[i] };
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return _cmocka_run_group_tests("steps", tests, (size_t)n, NULL, NULL);
}
