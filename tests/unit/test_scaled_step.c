/*
 * test_scaled_step.c -- a training step with loss scaling, as a program
 *
 * A power of two as the scale changes no bit of any result; a scale under which gradients overflow
 * changes nothing at all.
 */
#include "support/expect.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "train/network.h"

enum { BATCH = 4, SIDE = 8, CLASSES = 3, FLOATS = BATCH * 3 * SIDE * SIDE, STEPS = 3 };

static const char model_text[] =
    "%images:f32[1,3,8,8] = input\n"
    "%conv1.weight:f32[8,3,3,3] = param {init=normal, scale=0.272}\n"
    "%1 = conv2d %images, %conv1.weight {pad=1}\n"
    "%bn1.weight:f32[8] = param {init=ones}\n"
    "%bn1.bias:f32[8] = param\n"
    "%bn1.running_mean:f32[8] = param {role=stat}\n"
    "%bn1.running_var:f32[8] = param {role=stat, init=ones}\n"
    "%2 = batch_norm_infer %1, %bn1.weight, %bn1.bias, %bn1.running_mean, %bn1.running_var\n"
    "%3 = relu %2\n"
    "%4 = global_avg_pool %3\n"
    "%fc.weight:f32[3,8] = param {init=uniform, scale=0.35}\n"
    "%fc.bias:f32[3] = param {init=uniform, scale=0.35}\n"
    "%5 = linear %4, %fc.weight, %fc.bias\n"
    "output logits = %5\n";

typedef struct {
    td_device *dev;
    td_program *program;
    float images[FLOATS], lr, scale, inverse;
    int64_t labels[BATCH];
} training;

static void begin(training *t, const char *device, bool is_scaled)
{
    td_model_opts model;
    td_graph *g;
    const td_sgd_opts sgd = { .momentum = 0.9, .decay = 1e-4, .is_scaled = is_scaled };
    td_model_defaults(&model);
    model.model_text = model_text;
    model.num_classes = CLASSES;
    model.image_size = SIDE;
    expect_ok(td_training_graph(&model, BATCH, &sgd, &g));
    expect_ok(td_device_open(device, &t->dev));
    expect_ok(td_compile(g, t->dev, NULL, &t->program));
    td_graph_free(g);
    expect_ok(td_program_init(t->program, 3));

    td_rng r = td_rng_make(5, TD_RNG_INIT, 0, 0);
    for (int i = 0; i < FLOATS; i++)
        t->images[i] = (float)td_rng_normal(&r);
    for (int i = 0; i < BATCH; i++)
        t->labels[i] = i % CLASSES;
    t->lr = 0.1f;
    expect_ok(td_program_bind(t->program, "images", t->images));
    expect_ok(td_program_bind(t->program, "labels", t->labels));
    expect_ok(td_program_bind(t->program, "lr", &t->lr));
    if (is_scaled) {
        expect_ok(td_program_bind(t->program, TD_INPUT_SCALE, &t->scale));
        expect_ok(td_program_bind(t->program, TD_INPUT_INVERSE, &t->inverse));
    }
}

static void end(training *t)
{
    td_program_free(t->program);
    td_device_close(t->dev);
}

static float run(training *t, float scale)
{
    t->scale = scale;
    t->inverse = 1 / scale;
    expect_ok(td_program_run(t->program));
    return *(const float *)td_program_output(t->program, "loss", NULL);
}

static bool is_applied(const training *t)
{
    const float *answer = td_program_output(t->program, TD_OUTPUT_FINITE, NULL);
    assert_true(*answer == 0 || *answer == 1);
    return *answer == 1;
}

static int64_t elements(const training *t, int i)
{
    const td_type type = td_program_param_type(t->program, i);
    return td_type_count(&type);
}

/* every parameter behind another, as bytes */
static char *snapshot(const training *t, size_t *n_bytes)
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
static void expect_same(const training *a, const training *b)
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
    training plain, scaled;
    begin(&plain, device, false);
    begin(&scaled, device, true);
    expect_same(&plain, &scaled);
    for (int i = 0; i < STEPS; i++) {
        float a = run(&plain, 1), b = run(&scaled, ldexpf(1, 5 * i));
        assert_true(a == b);
        assert_true(is_applied(&scaled));
        expect_same(&plain, &scaled);
    }
    end(&plain);
    end(&scaled);
}

static void powers_of_two_change_no_bit(void **state)
{
    (void)state;
    powers_of_two_change_no_bit_on("ref");
    powers_of_two_change_no_bit_on("cpu");
}

/* after a step that counts, so that velocities and statistics are not what they began with */
static void an_overflow_changes_nothing_on(const char *device)
{
    training t;
    size_t n;
    begin(&t, device, true);
    float loss = run(&t, 1);
    assert_true(isfinite(loss) && is_applied(&t));
    char *before = snapshot(&t, &n);
    t.images[FLOATS / 2] = NAN; /* the loss is not finite */
    assert_true(isnan(run(&t, 1)));
    assert_true(!is_applied(&t));
    char *after = snapshot(&t, &n);
    assert_memory_equal(before, after, n);
    td_free(after);

    t.images[FLOATS / 2] = 0; /* the gradients alone are not */
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
    end(&t);
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
    training t;
    char *text;
    begin(&t, "ref", false);
    expect_ok(td_program_print(t.program, &text));
    assert_null(strstr(text, "all_finite"));
    assert_null(strstr(text, TD_INPUT_SCALE));
    assert_null(td_program_output(t.program, TD_OUTPUT_FINITE, NULL));
    td_text_free(text);
    end(&t);
}

/* each allocation of building the graph in turn */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    td_model_opts model;
    td_graph *g = NULL;
    const td_sgd_opts sgd = { .is_scaled = true };
    td_model_defaults(&model);
    model.model_text = model_text;
    model.num_classes = CLASSES;
    model.image_size = SIDE;
    td_status st = TD_ENOMEM;
    for (int64_t n = 1; st != TD_OK; n++) {
        td_alloc_fail_at(n);
        st = td_training_graph(&model, BATCH, &sgd, &g);
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
