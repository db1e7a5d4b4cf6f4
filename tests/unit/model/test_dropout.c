/*
 * test_dropout.c -- dropout's masks: their distribution, what they depend on, and the form of a
 * graph text in training and in inference
 */
#include "model/dropout_source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "support/expect.h"
#include "support/graphs.h"
#include "tandem/model.h"
#include "tandem/program.h"

enum { ROWS = 64, WIDTH = 2048, ALL = ROWS * WIDTH };

/* dropout of ones */
static float *masked(const char *attrs, const int64_t *random)
{
    char text[256];
    float *x = td_alloc(ALL, sizeof *x), *y = td_alloc(ALL, sizeof *y);
    td_device *dev;
    td_program *p;
    assert_non_null(x);
    assert_non_null(y);
    for (int i = 0; i < ALL; i++)
        x[i] = 1;
    snprintf(text, sizeof text,
             "%%x:f32[%d,%d] = input\n%%random:i64[3] = input\n%%y = dropout %%x, %%random {%s}\n"
             "output y = %%y\n",
             ROWS, WIDTH, attrs);
    td_graph *g = td_test_graph(text);
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, NULL, &p));
    expect_ok(td_program_bind(p, "x", x));
    expect_ok(td_program_bind(p, "random", random));
    expect_ok(td_program_run(p));
    memcpy(y, td_program_output(p, "y", NULL), ALL * sizeof *y);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    td_free(x);
    return y;
}

static int kept(const float *y, int from, int n)
{
    int k = 0;
    for (int i = from; i < from + n; i++)
        k += y[i] > 0;
    return k;
}

/* `k` of `n` draws within five standard deviations of the mean, 1 - p of them */
static void expect_rate(int k, int n, double p)
{
    const double mean = n * (1 - p), sd = sqrt(n * p * (1 - p));
    if (fabs(k - mean) > 5 * sd)
        fail_msg("%d of %d kept with p = %g", k, n, p);
}

static void elements_are_kept_at_the_rate_and_scaled(void **state)
{
    static const double rates[] = { 0.1, 0.2, 0.5, 0.9 };
    (void)state;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        char attrs[32];
        snprintf(attrs, sizeof attrs, "p=%g", rates[r]);
        float *y = masked(attrs, (int64_t[]){ 5, 1, 64 });
        expect_rate(kept(y, 0, ALL), ALL, rates[r]);
        for (int i = 0; i < ROWS; i++) /* rows by themselves, and all columns */
            expect_rate(kept(y, i * WIDTH, WIDTH), WIDTH, rates[r]);
        for (int i = 0; i < ALL; i++)
            if (y[i] > 0)
                assert_float_equal(y[i], (float)(1 / (1 - rates[r])), 2e-6F);
        td_free(y);
    }
}

/* how many elements of two masks agree: half of them by chance with p = 0.5 */
static int agreeing(const float *a, const float *b, int n)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        k += (a[i] > 0) == (b[i] > 0);
    return k;
}

static void rows_nodes_steps_and_seeds_are_independent(void **state)
{
    float *y = masked("p=0.5", (int64_t[]){ 5, 1, 64 });
    float *others[] = { masked("p=0.5, id=1", (int64_t[]){ 5, 1, 64 }),
                        masked("p=0.5", (int64_t[]){ 6, 1, 64 }),
                        masked("p=0.5", (int64_t[]){ 5, 2, 64 }),
                        masked("p=0.5", (int64_t[]){ 5, 1, 64 + ROWS }) };
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        expect_rate(agreeing(y, others[i], ALL), ALL, 0.5);
        td_free(others[i]);
    }
    for (int i = 1; i < ROWS; i++)
        expect_rate(agreeing(y, y + i * WIDTH, WIDTH), WIDTH, 0.5);
    expect_rate(agreeing(y, y + 1, ALL - 1), ALL - 1, 0.5); /* neighbours */
    td_free(y);
}

/* the mask of a sample depends on its number, not on the batch that it is in */
static void a_sample_has_its_mask_in_every_batch(void **state)
{
    float *whole = masked("p=0.3, id=2", (int64_t[]){ 5, 1, 100 });
    float *later = masked("p=0.3, id=2", (int64_t[]){ 5, 1, 100 + ROWS / 2 });
    (void)state;
    assert_memory_equal(whole + ROWS / 2 * WIDTH, later, ALL / 2 * sizeof *whole);
    td_free(whole);
    td_free(later);
}

static void samples_are_dropped_as_a_whole(void **state)
{
    int n = 0, batches = 0;
    (void)state;
    for (int step = 0; step < 16; step++) {
        float *y = masked("p=0.25, mode=row", (int64_t[]){ 9, 0, step * ROWS });
        for (int i = 0; i < ROWS; i++) {
            const int k = kept(y, i * WIDTH, WIDTH);
            assert_true(k == 0 || k == WIDTH);
            n += k > 0;
            if (k)
                assert_float_equal(y[i * WIDTH], 4.0F / 3, 2e-6F);
        }
        td_free(y);
        y = masked("p=0.25, mode=batch", (int64_t[]){ 9, 0, step * ROWS });
        const int k = kept(y, 0, ALL);
        assert_true(k == 0 || k == ALL);
        batches += k > 0;
        td_free(y);
    }
    expect_rate(n, 16 * ROWS, 0.25);
    assert_true(batches > 4 && batches < 16);
}

#define TEXT                                                                                       \
    "%images:f32[1,3,8,8] = input\n"                                                               \
    "%a = dropout %images {p=0.1, mode=row}\n"                                                     \
    "%b = global_avg_pool %a\n"                                                                    \
    "%c = dropout %b {p=0.2}\n"                                                                    \
    "%w:f32[5,3] = param\n"                                                                        \
    "%d = linear %c, %w\n"                                                                         \
    "output logits = %d\n"

static void a_text_gets_random_numbers_in_training_only(void **state)
{
    td_model_opts o;
    td_graph *g;
    (void)state;
    td_model_defaults(&o);
    o.model_text = TEXT;
    expect_ok(td_model_graph(&o, 2, true, &g));
    char *text = td_test_print(g);
    assert_non_null(strstr(text, "%random:i64[3] = input"));
    assert_non_null(strstr(text, "dropout %images, %random {p=0.1, mode=row}"));
    assert_non_null(strstr(text, "%random {p=0.2, id=1}"));
    o.model_text = text; /* a training graph is a network, too */
    td_graph *again;
    expect_ok(td_model_graph(&o, 2, false, &again));
    char *stripped = td_test_print(again);
    assert_null(strstr(stripped, "random"));
    td_text_free(stripped);
    td_graph_free(again);
    o.model_text = TEXT;
    td_text_free(text);
    td_graph_free(g);
    expect_ok(td_model_graph(&o, 2, false, &g));
    text = td_test_print(g);
    assert_null(strstr(text, "random"));
    assert_non_null(strstr(text, "dropout %images {p=0.1, mode=row}"));
    td_text_free(text);
    td_graph_free(g);
}

static void other_ops_may_not_read_the_random_numbers(void **state)
{
    td_model_opts o;
    td_graph *g;
    (void)state;
    td_model_defaults(&o);
    o.model_text = "%images:f32[1,3,8,8] = input\n"
                   "%random:i64[3] = input\n"
                   "%r = cast %random {to=f32}\n"
                   "%p = global_avg_pool %images\n"
                   "%y = add %p, %r\n"
                   "output logits = %y\n";
    expect_error(td_model_graph(&o, 2, true, &g), TD_ESHAPE, "cast reads the input '%random'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_kept_at_the_rate_and_scaled),
        cmocka_unit_test(rows_nodes_steps_and_seeds_are_independent),
        cmocka_unit_test(a_sample_has_its_mask_in_every_batch),
        cmocka_unit_test(samples_are_dropped_as_a_whole),
        cmocka_unit_test(a_text_gets_random_numbers_in_training_only),
        cmocka_unit_test(other_ops_may_not_read_the_random_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
