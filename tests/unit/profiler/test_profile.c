/*
 * test_profile.c -- times of nodes and of steps: what counts, what adds up, what it costs
 */
#include <math.h>

#include "support/expect.h"
#include "support/small_training.h"

#include "base/json.h"
#include "profiler/profile.h"

static void steps(td_small_training *t, td_profile *pr, int n)
{
    for (int i = 0; i < n; i++) {
        expect_ok(td_program_run(t->program));
        td_profile_step(pr, 0.25);
    }
}

static td_json *json_of(td_profile *pr)
{
    td_text out = { 0 };
    td_json *doc;
    td_profile_json(pr, &out);
    expect_ok(td_text_status(&out));
    expect_ok(td_json_parse(out.data, out.len, "profile", &doc));
    td_text_release(&out);
    return doc;
}

static double number(const td_json *object, const char *key)
{
    double x;
    expect_ok(td_json_number(object, key, &x));
    return x;
}

static void expect_near(double is, double wanted, double by)
{
    if (!(fabs(is - wanted) <= by))
        fail_msg("found %.12g, wanted %.12g", is, wanted);
}

static double sum(const td_json *doc, const char *table, const char *key)
{
    const td_json *rows = td_json_get(doc, table);
    double s = 0;
    for (size_t i = 0; i < td_json_count(rows); i++)
        s += number(td_json_at(rows, i), key);
    return s;
}

static const td_json *row_of(const td_json *doc, const char *table, const char *name)
{
    const td_json *rows = td_json_get(doc, table);
    const char *found;
    for (size_t i = 0; i < td_json_count(rows); i++) {
        expect_ok(td_json_text(td_json_at(rows, i), "name", &found));
        if (strcmp(found, name) == 0)
            return td_json_at(rows, i);
    }
    fail_msg("no '%s' in '%s'", name, table);
    return NULL;
}

static void nothing_is_timed_unless_asked_for(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    const int conv = td_small_training_node(&t, "conv2d");
    expect_ok(td_program_run(t.program));
    assert_true(td_program_span(t.program, -1).end_ns == 0);
    assert_true(td_program_span(t.program, conv).end_ns == 0);
    expect_ok(td_profile_new(t.program, false, &pr));
    steps(&t, pr, 1);
    const td_span run = td_program_span(t.program, -1), node = td_program_span(t.program, conv);
    assert_true(run.begin_ns > 0 && run.begin_ns <= node.begin_ns);
    assert_true(node.begin_ns < node.end_ns && node.end_ns <= run.end_ns);
    td_profile_free(pr);
    expect_ok(td_program_run(t.program));
    assert_true(td_program_span(t.program, -1).end_ns == 0);
    assert_true(td_program_span(t.program, conv).end_ns == 0);
    td_small_training_end(&t);
}

/* every table has every kernel once */
static void tables_add_up(void **state)
{
    (void)state;
    static const char *const names[] = { "ops", "kernels", "layers" };
    td_small_training t;
    td_profile *pr;
    int n_kernels = 0;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_profile_new(t.program, false, &pr));
    steps(&t, pr, 5);
    for (int i = 0; i < td_program_node_count(t.program); i++)
        n_kernels += *td_program_node(t.program, i).kernel != '\0';
    td_json *doc = json_of(pr);
    assert_true(number(doc, "steps") == 5);
    assert_true(number(doc, "wait_ms") == 250);
    assert_true(number(doc, "executor_ms") >= 0 && number(doc, "executor_share") >= 0);
    assert_true(number(doc, "kernels_ms") <= number(doc, "step_ms"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(sum(doc, names[i], "calls") == n_kernels);
        assert_true(sum(doc, names[i], "share") > 0 && sum(doc, names[i], "share") <= 1);
        expect_near(sum(doc, names[i], "ms"), sum(doc, "ops", "ms"), 1e-6);
        assert_true(td_json_count(td_json_get(doc, names[i])) > 5);
    }
    /* the layer of a weight has its convolution, its gradient and its update */
    assert_true(number(row_of(doc, "layers", "conv1"), "calls") == 3);
    td_json_free(doc);
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void rates_come_from_shapes_and_times(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    const int conv = td_small_training_node(&t, "conv2d"), sgd = td_small_training_node(&t, "sgd");
    const int64_t images = (int64_t)sizeof t.images, y = 4 * TD_SMALL_BATCH * 8 * 8 * 8;
    td_node_report r = td_program_node(t.program, conv);
    assert_int_equal(r.bytes_read, images + 4 * 8 * 3 * 3 * 3);
    assert_int_equal(r.bytes_written, y);
    r = td_program_node(t.program,
                        sgd); /* weight, momentum buffer, gradient, rate in; two of them out */
    assert_int_equal(r.bytes_read - 4, r.bytes_written / 2 * 3);
    assert_int_equal(td_program_node(t.program, 0).bytes_written, 0); /* nothing runs there */

    expect_ok(td_profile_new(t.program, false, &pr));
    steps(&t, pr, 1);
    td_json *doc = json_of(pr);
    const td_json *row = row_of(doc, "ops", "conv2d");
    const td_span s = td_program_span(t.program, conv);
    const double seconds = (double)(s.end_ns - s.begin_ns) * 1e-9;
    expect_near(number(row, "ms"), seconds * 1e3, 1e-6);
    expect_near(number(row, "gflop_s") * seconds, 2e-9 * (double)(8 * 27 * 8 * 8 * 4), 1e-9);
    r = td_program_node(t.program, conv);
    expect_near(number(row, "gb_s") * seconds, 1e-9 * (double)(r.bytes_read + r.bytes_written),
                1e-9);
    assert_int_equal(td_json_kind_of(td_json_get(row, "bound_share")), TD_JSON_NULL);
    assert_int_equal(td_json_kind_of(td_json_get(doc, "bound_ms")), TD_JSON_NULL);
    assert_int_equal(td_json_kind_of(td_json_get(row_of(doc, "ops", "sgd"), "gflop_s")),
                     TD_JSON_NULL);
    td_json_free(doc);
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void the_first_step_is_left_out(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_profile_new(t.program, true, &pr));
    steps(&t, pr, 1);
    assert_int_equal(td_profile_steps(pr), 1); /* better than nothing */
    steps(&t, pr, 3);
    assert_int_equal(td_profile_steps(pr), 3);
    td_profile_free(pr);
    expect_ok(td_profile_new(t.program, false, &pr));
    steps(&t, pr, 4);
    assert_int_equal(td_profile_steps(pr), 4);
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void look(void *ctx, const td_observation *o)
{
    (void)o;
    ++*(int *)ctx;
}

static void an_observed_run_does_not_count(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    int n = 0;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_profile_new(t.program, false, &pr));
    td_program_observe(t.program, look, &n);
    steps(&t, pr, 2);
    td_program_observe(t.program, NULL, NULL);
    assert_true(n > 0);
    assert_int_equal(td_profile_steps(pr), 0);
    td_text out = { 0 };
    td_profile_text(pr, &out);
    assert_non_null(strstr(td_text_get(&out), "no step was"));
    td_text_release(&out);
    td_json_free(json_of(pr));
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void the_bound_is_measured_beside(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    double bound, again;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_profile_new(t.program, false, &pr));
    steps(&t, pr, 2);
    const double before = td_program_node(t.program, td_small_training_node(&t, "conv2d")).seconds;
    td_json *doc = json_of(pr);
    const double ms = number(row_of(doc, "ops", "conv2d"), "ms");
    td_json_free(doc);
    expect_ok(td_profile_bound(t.program, pr, &bound));
    assert_true(bound > 0);
    doc = json_of(pr);
    assert_true(number(row_of(doc, "ops", "conv2d"), "bound_share") > 0);
    expect_near(number(doc, "bound_ms"), bound * 1e3, 1e-6);
    expect_near(number(row_of(doc, "ops", "conv2d"), "ms"), ms, 1e-9);
    td_json_free(doc);
    assert_true(before == td_program_node(t.program, td_small_training_node(&t, "conv2d")).seconds);
    expect_ok(td_profile_bound(t.program, NULL, &again));
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void text_has_the_three_tables(void **state)
{
    (void)state;
    static const char *const parts[] = { "profile of 3 steps, without the first; medians\n",
                                         "\nexecutor ",
                                         "\nwaiting          250.000 ms",
                                         "\nby op  ",
                                         "\nby kernel  ",
                                         "\nby layer  ",
                                         "\nconv2d_grad_w  ",
                                         "\nref_conv2d_grad_w  ",
                                         "\nconv1  " };
    td_small_training t;
    td_profile *pr;
    td_text out = { 0 };
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_profile_new(t.program, true, &pr));
    steps(&t, pr, 4);
    td_profile_text(pr, &out);
    expect_ok(td_text_status(&out));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(out.data, parts[i]))
            fail_msg("no '%s' in\n%s", parts[i], out.data);
    assert_null(strstr(out.data, "bound  "));
    td_text_release(&out);
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_profile_new(t.program, true, &pr));
    expect_ok(td_program_run(t.program));
    const int64_t before = td_alloc_count();
    for (int i = 0; i < 3; i++)
        td_profile_step(pr, 0);
    assert_int_equal(td_alloc_count(), before);
    td_profile_free(pr);
    td_small_training_end(&t);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    td_small_training t;
    td_profile *pr;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_status st = TD_ENOMEM;
    int n = 0;
    for (; st == TD_ENOMEM; n++) {
        td_alloc_fail_at(n + 1);
        st = td_profile_new(t.program, false, &pr);
        td_alloc_fail_at(0);
        assert_true((st == TD_OK) == (pr != NULL));
    }
    expect_ok(st);
    assert_true(n > 3);
    steps(&t, pr, 1);
    st = TD_ENOMEM;
    for (n = 0; st == TD_ENOMEM; n++) {
        td_text out = { 0 };
        td_alloc_fail_at(n + 1);
        td_profile_json(pr, &out);
        td_profile_text(pr, &out);
        td_alloc_fail_at(0);
        st = td_text_status(&out);
        td_text_release(&out);
    }
    expect_ok(st);
    assert_true(n > 3);
    td_profile_free(pr);
    td_small_training_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_timed_unless_asked_for),
        cmocka_unit_test(tables_add_up),
        cmocka_unit_test(rates_come_from_shapes_and_times),
        cmocka_unit_test(the_first_step_is_left_out),
        cmocka_unit_test(an_observed_run_does_not_count),
        cmocka_unit_test(the_bound_is_measured_beside),
        cmocka_unit_test(text_has_the_three_tables),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(memory_may_run_out),
    };
    td_set_threads(1); /* nothing here is worth a barrier */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
