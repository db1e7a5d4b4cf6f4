/*
 * test_scaled_step.c -- a training step with loss scaling, as a program
 *
 * A power of two as the scale changes no bit of any result; a scale under which gradients overflow
 * changes nothing at all.
 */
#include "support/expect.h"
#include "support/small_training.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "optim/training_graph.h"
#include "pass/amp.h"

enum { STEPS = 3 };

static float run(td_small_training *t, float scale)
{
    t->scale = scale;
    t->inverse = 1 / scale;
    expect_ok(td_program_run(t->program));
    return *(const float *)td_program_output(t->program, "loss", NULL);
}

static bool is_applied(const td_small_training *t)
{
    const float *answer = td_program_output(t->program, TD_OUTPUT_FINITE, NULL);
    assert_true(*answer == 0 || *answer == 1);
    return *answer == 1;
}

static int64_t elements(const td_small_training *t, int i)
{
    const td_type type = td_program_param_type(t->program, i);
    return td_type_count(&type);
}

/* every parameter behind another, as bytes */
static char *snapshot(const td_small_training *t, size_t *n_bytes)
{
    size_t at = 0, n = 0;
    for (int i = 0; i < td_program_param_count(t->program); i++)
        n += (size_t)elements(t, i) * sizeof(float);
    char *all = td_alloc(n, 1);
    assert_non_null(all);
    for (int i = 0; i < td_program_param_count(t->program); i++) {
        expect_ok(td_program_get(t->program, td_program_param_name(t->program, i), all + at));
        at += (size_t)elements(t, i) * sizeof(float);
    }
    *n_bytes = n;
    return all;
}

/* the same parameters in both; they may stand in another order */
static void expect_same(const td_small_training *a, const td_small_training *b)
{
    assert_int_equal(td_program_param_count(a->program), td_program_param_count(b->program));
    for (int i = 0; i < td_program_param_count(a->program); i++) {
        const char *name = td_program_param_name(a->program, i);
        size_t n = (size_t)elements(a, i);
        float *x = td_alloc(n, sizeof *x), *y = td_alloc(n, sizeof *y);
        assert_true(x && y);
        expect_ok(td_program_get(a->program, name, x));
        expect_ok(td_program_get(b->program, name, y));
        if (memcmp(x, y, n * sizeof *x) != 0)
            fail_msg("'%s' differs", name);
        td_free(x);
        td_free(y);
    }
}

static void powers_of_two_change_no_bit_on(const char *device)
{
    td_small_training plain, scaled;
    td_small_training_begin(&plain, device, TD_PRECISION_FP32, 0);
    td_small_training_begin(&scaled, device, TD_PRECISION_FP32, 1);
    expect_same(&plain, &scaled);
    for (int i = 0; i < STEPS; i++) {
        float a = run(&plain, 1), b = run(&scaled, ldexpf(1, 5 * i));
        assert_true(a == b);
        assert_true(is_applied(&scaled));
        expect_same(&plain, &scaled);
    }
    td_small_training_end(&plain);
    td_small_training_end(&scaled);
}

static void powers_of_two_change_no_bit(void **state)
{
    (void)state;
    powers_of_two_change_no_bit_on("ref");
    powers_of_two_change_no_bit_on("cpu");
}

/* after a step that counts, so that momentum buffers and statistics are not what they began with */
static void an_overflow_changes_nothing_on(const char *device)
{
    td_small_training t;
    size_t n;
    td_small_training_begin(&t, device, TD_PRECISION_FP32, 1);
    float loss = run(&t, 1);
    assert_true(isfinite(loss) && is_applied(&t));
    char *before = snapshot(&t, &n);
    t.images[TD_SMALL_FLOATS / 2] = NAN; /* the loss is not finite */
    assert_true(isnan(run(&t, 1)));
    assert_true(!is_applied(&t));
    char *after = snapshot(&t, &n);
    assert_memory_equal(before, after, n);
    td_free(after);

    t.images[TD_SMALL_FLOATS / 2] = 0; /* the gradients alone are not */
    loss = run(&t, INFINITY);
    assert_true(isfinite(loss) && !is_applied(&t));
    after = snapshot(&t, &n);
    assert_memory_equal(before, after, n);
    td_free(after);

    run(&t, 1);
    assert_true(is_applied(&t));
    after = snapshot(&t, &n);
    assert_memory_not_equal(before, after, n);
    td_free(after);
    td_free(before);
    td_small_training_end(&t);
}

static void an_overflow_changes_nothing(void **state)
{
    (void)state;
    an_overflow_changes_nothing_on("ref");
    an_overflow_changes_nothing_on("cpu");
}

/* without scaling the step is the one it was: no more inputs, and updates that free gradients */
static void without_scaling_there_is_nothing_of_it(void **state)
{
    (void)state;
    td_small_training t;
    char *text;
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    expect_ok(td_program_print(t.program, &text));
    assert_null(strstr(text, "all_finite"));
    assert_null(strstr(text, TD_INPUT_SCALE));
    assert_null(td_program_output(t.program, TD_OUTPUT_FINITE, NULL));
    td_text_free(text);
    td_small_training_end(&t);
}

/* each allocation of building the graph in turn */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    td_model_opts model;
    td_graph *g = NULL;
    const td_step_opts sgd = { .is_scaled = true };
    td_small_training_model(&model);
    td_status st = TD_ENOMEM;
    for (int64_t n = 1; st != TD_OK; n++) {
        td_alloc_fail_at(n);
        st = td_training_graph(&model, TD_SMALL_BATCH, &sgd, &g);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        assert_true(st == TD_OK || !g);
        assert_true(n < 100000);
    }
    td_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_change_no_bit),
        cmocka_unit_test(an_overflow_changes_nothing),
        cmocka_unit_test(without_scaling_there_is_nothing_of_it),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
