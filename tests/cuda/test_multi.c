/*
 * test_multi.c -- updates of many tensors in one launch: the bits of one launch for each, and those
 * of the processor
 *
 * On the device that TANDEM_TEST_DEVICE names, a stand-in or a GPU.  Tensors have one element, and
 * up to several parts of a launch; the last part of some is one element.
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/program_parts.h"
#include "support/graphs.h"

static const int counts[] = { 1, 7, 40000, 8, 2047, 16384, 2880, 16385, 64 };

enum { N = sizeof counts / sizeof *counts, IS_4D = 6, RUNS = 4, LARGEST = 40000 };

typedef struct {
    td_device *dev;
    td_program *p;
} job;

/* gradients, and the scalars of a run */
static float gradients[N][LARGEST], lr, inverse, last, keep, share, rest1, rest2;

static const char *shape(int i)
{
    static char text[32];
    (void)snprintf(text, sizeof text, "%d", counts[i]);
    return i == IS_4D ? "16,20,3,3" : text;
}

static void write_update(const char *rule, int i, td_text *out)
{
    td_text_add(out, "%s %%w%d, %%v%d, %%s%d, %%lr, ", rule, i, i, i);
    if (strcmp(rule, "sgd") != 0)
        td_text_add(out, "%%m%d, ", i);
    const bool is_lamb = strcmp(rule, "lamb") == 0;
    if (is_lamb || strcmp(rule, "adam") == 0)
        td_text_add(out, "%%rest1, %%rest2, ");
    td_text_add(out, "%%inverse, %%f%d, %%h%d {decay=0.%d", N - 1, i, i);
    td_text_add(out, "%s}\n",
                is_lamb                     ? ""
                : strcmp(rule, "adam") != 0 ? ", momentum=0.9"
                : i % 2                     ? ", decoupled=true"
                                            : "");
}

/* a step over two batches: sums, tests, norms, steps with a half copy, averages, statistics,
   commits */
static void write_graph(const char *rule, td_text *out)
{
    static const char *const scalars[] = { "lr",    "inverse", "last", "keep",
                                           "share", "rest1",   "rest2" };
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        td_text_add(out, "%%%s:f32[] = input\n", scalars[i]);
    for (int i = 0; i < N; i++) {
        td_text_add(out, "%%g%d:f32[%s] = input\n", i, shape(i));
        td_text_add(out, "%%w%d:f32[%s] = param {init=normal}\n", i, shape(i));
        td_text_add(out, "%%h%d:f16[%s] = param {role=momentum}\n", i, shape(i));
        for (const char *s = "vamxyz"; *s; s++)
            td_text_add(out, "%%%c%d:f32[%s] = param {role=momentum}\n", *s, i, shape(i));
        td_text_add(out, "%%r%d:f32[%d] = param {role=stat}\n", i, counts[i]);
        td_text_add(out, "%%q%d:f32[%d] = param {role=stat}\n", i, counts[i]);
        td_text_add(out, "%%b%d:f32[%d] = input\n", i, counts[i]);
    }
    for (int i = 0; i < N; i++) {
        td_text_add(out, "%%s%d = accumulate %%a%d, %%g%d\n", i, i, i);
        td_text_add(out, "%%f%d = all_finite %%s%d", i, i);
        td_text_add(out, i ? ", %%f%d\n" : ", %%last\n", i - 1);
    }
    for (int i = 0; i < N; i++) {
        td_text_add(out, "%%n%d = grad_norm %%s%d, %%inverse", i, i);
        td_text_add(out, i ? ", %%n%d\n" : "\n", i - 1);
    }
    for (int i = 0; i < N; i++) {
        write_update(rule, i, out);
        td_text_add(out, "carry %%w%d, %%a%d, %%s%d, %%last\n", i, i, i);
        td_text_add(out, "ema %%w%d, %%x%d, %%keep, %%share, %%f%d\n", i, i, N - 1);
        td_text_add(out, "commit %%y%d, %%z%d, %%last, %%f%d\n", i, i, N - 1);
        td_text_add(out, "batch_norm_update %%r%d, %%q%d, %%b%d, %%b%d, %%f%d {count=9}\n", i, i, i,
                    i, N - 1);
        td_text_add(out, "%%c%d = cast %%g%d {to=f16}\noutput c%d = %%c%d\n", i, i, i, i);
    }
    td_text_add(out, "output finite = %%f%d\noutput norm = %%n%d\n", N - 1, N - 1);
}

static void bind(td_program *p)
{
    char name[16];
    expect_ok(td_program_bind(p, "lr", &lr));
    expect_ok(td_program_bind(p, "inverse", &inverse));
    expect_ok(td_program_bind(p, "last", &last));
    expect_ok(td_program_bind(p, "keep", &keep));
    expect_ok(td_program_bind(p, "share", &share));
    expect_ok(td_program_bind(p, "rest1", &rest1));
    expect_ok(td_program_bind(p, "rest2", &rest2));
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "g%d", i);
        expect_ok(td_program_bind(p, name, gradients[i]));
        name[0] = 'b';
        expect_ok(td_program_bind(p, name, gradients[i]));
    }
}

static job start(const char *device, const td_graph *g)
{
    job j;
    expect_ok(td_device_open(device, &j.dev));
    expect_ok(td_compile(g, j.dev, &(td_compile_opts){ 0 }, &j.p));
    expect_ok(td_program_init(j.p, 1));
    bind(j.p);
    return j;
}

static void stop(job *j)
{
    td_program_free(j->p);
    td_device_close(j->dev);
}

/* run r: the second and the last are steps, the last but one finds something at the end of g */
static void draw(int r)
{
    static uint32_t state = 1;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < counts[i]; k++) {
            state = state * 1664525u + 1013904223u;
            gradients[i][k] = (float)(int32_t)state * 1e-9f;
        }
    lr = 0.1f;
    inverse = 0.5f;
    keep = 0.75f;
    share = 0.25f;
    rest1 = 0.19f;
    rest2 = 0.002f;
    last = r > 0;
    if (r == RUNS - 2)
        gradients[2][counts[2] - 1] = INFINITY;
}

static void each_value(void *ctx, const td_observation *o)
{
    (void)ctx;
    (void)o;
}

static bool is_sum(const td_program *p, int i, const char *rule)
{
    const char *role = td_program_param_role(p, i);
    return strcmp(role, "stat") == 0 || strcmp(rule, "lamb") == 0;
}

/* `exact`: the bits of sums over channels and weights too, which processors add in another order */
static void expect_equal_params(const job *a, const job *b, const char *rule, bool exact)
{
    static float x[LARGEST], y[LARGEST];
    for (int i = 0; i < td_program_param_count(a->p); i++) {
        const char *name = td_program_param_name(a->p, i);
        const td_type t = td_program_param_type(a->p, i);
        expect_ok(td_program_get(a->p, name, x));
        expect_ok(td_program_get(b->p, name, y));
        const bool is_equal = exact || !is_sum(a->p, i, rule);
        if (is_equal && memcmp(x, y, (size_t)td_type_bytes(&t)) != 0)
            fail_msg("%s differs", name);
        for (int k = 0; !is_equal && t.dtype == TD_DT_F32 && k < td_type_count(&t); k++)
            assert_float_equal(x[k], y[k], 1e-6);
    }
}

static void expect_equal_outputs(const job *a, const job *b)
{
    char name[16];
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "c%d", i);
        assert_memory_equal(td_program_output(a->p, name, NULL),
                            td_program_output(b->p, name, NULL), 2 * (size_t)counts[i]);
    }
}

static float number(const job *j, const char *output)
{
    return *(const float *)td_program_output(j->p, output, NULL);
}

static float found_finite(const job *j)
{
    return number(j, "finite");
}

static void expect_equal_norms(const job *many, const job *single, const job *host)
{
    const float norm = number(many, "norm"), wanted = number(host, "norm");
    assert_true(norm == number(single, "norm"));
    assert_true(norm > 0 && (norm == wanted || fabsf(norm - wanted) <= 1e-6f * wanted));
}

static void expect_calls(const job *j, const char *rule)
{
    const char *const ops[] = { rule,   "carry",      "ema",        "commit",   "batch_norm_update",
                                "cast", "accumulate", "all_finite", "grad_norm" };
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        const char *op = ops[k];
        int n_calls = 0;
        for (int i = 0; i < td_program_node_count(j->p); i++)
            if (strcmp(td_program_node(j->p, i).op, op) == 0)
                n_calls += td_program_node(j->p, i).n_together > 0;
        if (n_calls != 1)
            fail_msg("%s is launched %d times", op, n_calls);
    }
}

static void check(const char *rule)
{
    const char *device = getenv("TANDEM_TEST_DEVICE");
    td_text text = { 0 };
    write_graph(rule, &text);
    td_graph *g = td_test_graph(td_text_get(&text));
    job many = start(device ? device : "cuda", g), single = start(device ? device : "cuda", g);
    job host = start("cpu", g);
    expect_calls(&many, rule);
    td_program_observe(single.p, each_value, NULL);
    for (int r = 0; r < RUNS; r++) {
        draw(r);
        expect_ok(td_program_run(many.p));
        expect_ok(td_program_run(single.p));
        expect_ok(td_program_run(host.p));
        assert_float_equal(found_finite(&many), r == 1 || r == RUNS - 1 ? 1 : 0, 0);
        assert_float_equal(found_finite(&single), found_finite(&many), 0);
        expect_equal_norms(&many, &single, &host);
        expect_equal_params(&many, &single, rule, true);
        expect_equal_params(&many, &host, rule, false);
        expect_equal_outputs(&many, &single);
        expect_equal_outputs(&many, &host);
    }
    stop(&many);
    stop(&single);
    stop(&host);
    td_graph_free(g);
    td_text_release(&text);
}

static void steps_of_sgd(void **state)
{
    (void)state;
    check("sgd");
}

static void steps_of_rmsprop(void **state)
{
    (void)state;
    check("rmsprop");
}

static void steps_of_adam(void **state)
{
    (void)state;
    check("adam");
}

static void steps_of_lamb(void **state)
{
    (void)state;
    check("lamb");
}

/* whatever tensor, and wherever in it, is not finite */
static void one_number_is_found(void **state)
{
    (void)state;
    td_text text = { 0 };
    write_graph("sgd", &text);
    td_graph *g = td_test_graph(td_text_get(&text));
    const char *device = getenv("TANDEM_TEST_DEVICE");
    job j = start(device ? device : "cuda", g);
    for (int i = 0; i < N; i++) {
        draw(1);
        expect_ok(td_program_init(j.p, 1));
        gradients[i][i % 2 ? 0 : counts[i] - 1] = i % 3 ? NAN : -INFINITY;
        expect_ok(td_program_run(j.p));
        assert_float_equal(found_finite(&j), 0, 0);
    }
    draw(1);
    expect_ok(td_program_init(j.p, 1));
    expect_ok(td_program_run(j.p));
    assert_float_equal(found_finite(&j), 1, 0);
    stop(&j);
    td_graph_free(g);
    td_text_release(&text);
}

int main(int argc, char **argv)
{
    (void)argc;
    td_process_setup(argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps_of_sgd),
                                        cmocka_unit_test(steps_of_rmsprop),
                                        cmocka_unit_test(steps_of_adam),
                                        cmocka_unit_test(steps_of_lamb),
                                        cmocka_unit_test(one_number_is_found) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
