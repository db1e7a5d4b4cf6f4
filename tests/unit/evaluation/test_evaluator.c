/*
 * test_evaluator.c -- a pass over a data set without learning: counts against the raw outputs,
 * short batches, limits; rules of --require
 */
#include "evaluation/evaluator.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/rng.h"
#include "io/safetensors.h"
#include "pass/amp.h"
#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"
#include "support/small_training.h"

enum { N = 10, BATCH = 4, K = TD_SMALL_CLASSES, ROW = 3 * TD_SMALL_SIDE * TD_SMALL_SIDE };

typedef struct {
    td_device *dev;
    td_dataset *ds;
    td_loader *ld;
    td_evaluator *j;
    td_evaluator_opts o;
    td_amp_opts amp;
    int64_t labels[N];
} bench;

static td_dataset *open_rows(int64_t *labels)
{
    static float images[N * ROW];
    const char *path = td_scratch_path("rows.safetensors");
    td_rng r = td_rng_make(8, TD_RNG_INIT, 0, 0);
    td_tensors *t;
    td_dataset *ds;
    for (int i = 0; i < N * ROW; i++)
        images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < N; i++)
        labels[i] = i * i % K;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "images", TD_DT_F32, 4,
                             (int64_t[]){ N, 3, TD_SMALL_SIDE, TD_SMALL_SIDE }, images));
    expect_ok(td_tensors_add(t, "labels", TD_DT_I64, 1, (int64_t[]){ N }, labels));
    expect_ok(td_tensors_write(t, path));
    td_tensors_free(t);
    expect_ok(td_dataset_open(
        &(td_dataset_opts){ .path = path, .backend = TD_DATA_TENSORS, .n_classes = K }, &ds));
    return ds;
}

static void begin(bench *b)
{
    td_model_opts model;
    *b = (bench){ .amp = { .precision = TD_PRECISION_FP32 } };
    b->o = (td_evaluator_opts){ .batch = BATCH, .topk = 2, .max_batches = -1, .amp = &b->amp };
    b->ds = open_rows(b->labels);
    td_small_training_model(&model);
    expect_ok(td_device_open("ref", &b->dev));
    expect_ok(td_evaluator_new(&model, b->dev, &b->o, &b->j));
    expect_ok(td_program_init(td_evaluator_program(b->j), 3));
    expect_ok(td_loader_new(b->ds, &(td_loader_opts){ .batch_size = BATCH }, &b->ld));
}

static void end(bench *b)
{
    td_evaluator_free(b->j);
    td_loader_free(b->ld);
    td_dataset_free(b->ds);
    td_device_close(b->dev);
    unlink(td_scratch_path("rows.safetensors"));
}

/* every image once, the last two of a short batch too */
static void counts_are_those_of_the_outputs(void **state)
{
    (void)state;
    bench b;
    td_eval_result v;
    td_tensors *t;
    int64_t confusion[K * K] = { 0 }, wanted[K * K] = { 0 };
    int64_t top1 = 0, top2 = 0;
    double loss = 0;
    char path[4096];
    snprintf(path, sizeof path, "%s", td_scratch_path("logits.safetensors"));
    begin(&b);
    b.o.logits = path;
    b.o.confusion = confusion;
    expect_ok(td_evaluator_run(b.j, b.ld, &b.o, &v));
    expect_ok(td_tensors_read(path, &t));
    const td_tensor *logits = td_tensors_get(t, "logits");
    assert_non_null(logits);
    assert_true(logits->dim[0] == N && logits->dim[1] == K);
    for (int i = 0; i < N; i++) {
        const float *x = (const float *)logits->data + (ptrdiff_t)i * K;
        const int label = (int)b.labels[i];
        int best = 0, better = 0;
        double sum = 0;
        for (int k = 0; k < K; k++) {
            best = x[k] > x[best] ? k : best;
            better += x[k] > x[label];
            sum += exp((double)x[k]);
        }
        top1 += best == label;
        top2 += better < 2;
        loss += log(sum) - (double)x[label];
        wanted[label * K + best]++;
    }
    assert_int_equal(v.counts.n, N);
    assert_int_equal(v.counts.n_top1, top1);
    assert_int_equal(v.counts.n_topk, top2);
    assert_int_equal(v.counts.n_nonfinite, 0);
    assert_float_equal(v.counts.loss_sum, loss, 1e-4);
    assert_memory_equal(confusion, wanted, sizeof wanted);
    assert_int_equal(v.n_batches, 3);
    assert_false(v.was_stopped || v.detects);
    assert_true(v.p50 <= v.p90 && v.p99 <= v.p100);
    td_tensors_free(t);
    unlink(path);
    end(&b);
}

static void a_pass_can_be_repeated_and_cut_short(void **state)
{
    (void)state;
    bench b;
    td_eval_result whole, again, part;
    begin(&b);
    expect_ok(td_evaluator_run(b.j, b.ld, &b.o, &whole));
    expect_ok(td_evaluator_run(b.j, b.ld, &b.o, &again));
    assert_int_equal(again.counts.n, N);
    assert_int_equal(again.counts.n_top1, whole.counts.n_top1);
    assert_true(again.counts.loss_sum == whole.counts.loss_sum);
    b.o.max_batches = 1;
    expect_ok(td_evaluator_run(b.j, b.ld, &b.o, &part));
    assert_int_equal(part.counts.n, BATCH);
    assert_int_equal(part.n_batches, 1);
    b.o.max_batches = 0;
    td_loader_free(b.ld);
    expect_ok(td_loader_new(b.ds, &(td_loader_opts){ .batch_size = BATCH }, &b.ld));
    expect_ok(td_evaluator_run(b.j, b.ld, &b.o, &part));
    assert_int_equal(part.counts.n, 0);
    assert_true(part.counts.loss_sum == 0 && part.p100 == 0);
    end(&b);
}

static void outputs_that_are_not_finite_are_counted(void **state)
{
    (void)state;
    bench b;
    td_eval_result v;
    const float bias[K] = { NAN, NAN, NAN };
    begin(&b);
    expect_ok(td_program_set(td_evaluator_program(b.j), "fc.bias", bias));
    expect_ok(td_evaluator_run(b.j, b.ld, &b.o, &v));
    assert_int_equal(v.counts.n, N);
    assert_int_equal(v.counts.n_nonfinite, N);
    assert_true(!isfinite(v.counts.loss_sum));
    end(&b);
}

static void k_is_at_most_the_classes(void **state)
{
    (void)state;
    bench b;
    td_evaluator *j;
    td_model_opts model;
    begin(&b);
    td_small_training_model(&model);
    b.o.topk = K + 1;
    expect_error(td_evaluator_new(&model, b.dev, &b.o, &j), TD_EUSAGE, "--topk");
    assert_null(j);
    b.o.topk = TD_EVALUATOR_TOPK; /* the default, of any number of classes */
    expect_ok(td_evaluator_new(&model, b.dev, &b.o, &j));
    td_evaluator_free(j);
    td_evaluator_free(NULL);
    end(&b);
}

static void quantiles_are_of_the_batches(void **state)
{
    (void)state;
    const double latency[] = { 0.4, 0.1, 0.3, 0.2 };
    td_eval_result v = { .latency = latency, .n_batches = 4 };
    expect_ok(td_eval_result_quantiles(&v));
    assert_true(v.p100 == 0.4 && v.p50 >= 0.2 && v.p50 <= 0.3);
    assert_true(latency[0] == 0.4); /* its order stays */
    td_alloc_fail_at(1);
    assert_int_equal(td_eval_result_quantiles(&v), TD_ENOMEM);
    td_alloc_fail_at(0);
}

/* --- rules ------------------------------------------------------------------------------------ */

static void rules_are_met_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *rule;
        bool is_met;
    } rows[] = { { NULL, true },          { "top1>=95", true },  { "top1>=95.5", true },
                 { "top1>=95.6", false }, { "top1<=95", false }, { "top5>=99", true },
                 { "topk>=99.1", false }, { "loss<=0.3", true }, { "loss<=0.2", false },
                 { "loss>=0.2", true } };
    const td_scores s = { .n = 10, .top1 = 95.5, .topk = 99, .loss = 0.25 }, none = { .n = 0 };
    const td_scores nan = { .n = 10, .top1 = 95.5, .topk = 99, .loss = NAN };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_ok(td_require_check(rows[i].rule, 5));
        if (rows[i].is_met)
            expect_ok(td_require(rows[i].rule, &s, 5));
        else
            expect_error(td_require(rows[i].rule, &s, 5), TD_EREQUIRED, rows[i].rule);
    }
    expect_error(td_require("top1>=0", &none, 5), TD_EREQUIRED, "top1"); /* nothing was evaluated */
    expect_error(td_require("top1>=0", &nan, 5), TD_EREQUIRED, "top1>=0");
    expect_ok(td_require(NULL, &nan, 5));
}

static void malformed_rules_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = { "",          "top1", "top1>95",  "top1>=",     "top1>=x",
                                        "top1>=95%", ">=95", "top3>=95", "accuracy>=1" };
    const td_scores s = { .n = 10, .top1 = 100, .topk = 100, .loss = 0 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_error(td_require_check(rows[i], 5), TD_EUSAGE, "--require");
        expect_error(td_require(rows[i], &s, 5), TD_EUSAGE, "--require");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_the_outputs),
        cmocka_unit_test(a_pass_can_be_repeated_and_cut_short),
        cmocka_unit_test(outputs_that_are_not_finite_are_counted),
        cmocka_unit_test(k_is_at_most_the_classes),
        leak_checked_test(quantiles_are_of_the_batches),
        leak_checked_test(rules_are_met_or_not),
        leak_checked_test(malformed_rules_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
