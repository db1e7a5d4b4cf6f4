/*
 * test_device_memory.c -- memory that only kernels and copies may use: the same results, and a
 * signal for everybody else
 */
#include "support/expect.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "runtime/device_memory.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { IMAGES = 4 * 3 * 8 * 8, STEPS = 5, WEIGHTS_MAX = 1 << 16 };

typedef struct {
    float losses[STEPS];
    float weights[WEIGHTS_MAX];
    int n_weights;
    double observed; /* sum over all that an observer has seen */
} outcome;

static void observe(void *ctx, const td_observation *o)
{
    outcome *out = ctx;
    if (o->type.dtype == TD_DT_F32)
        for (int64_t i = 0; i < o->bytes / 4; i++)
            out->observed += fabs((double)((const float *)o->data)[i]);
}

static void read_weights(td_program *p, outcome *out)
{
    for (int i = 0; i < td_program_param_count(p); i++) {
        const td_type t = td_program_param_type(p, i);
        const int n = (int)td_type_count(&t);
        assert_true(out->n_weights + n <= WEIGHTS_MAX);
        expect_ok(td_program_get(p, td_program_param_name(p, i), out->weights + out->n_weights));
        out->n_weights += n;
    }
}

static void train(const char *guard, outcome *out)
{
    static float images[IMAGES], lr = 0.1f;
    static const int64_t labels[4] = { 3, 0, 4, 1 };
    td_device *dev;
    td_program *p;
    *out = (outcome){ 0 };
    assert_int_equal(setenv("TANDEM_GUARD_MEMORY", guard, 1), 0);
    td_graph *g = td_test_graph(td_test_training);
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    expect_ok(td_program_init(p, 1));
    for (int i = 0; i < IMAGES; i++)
        images[i] = (float)sin(0.37 * i);
    expect_ok(td_program_bind(p, "images", images));
    expect_ok(td_program_bind(p, "labels", labels));
    expect_ok(td_program_bind(p, "lr", &lr));
    for (int i = 0; i < STEPS; i++) {
        lr = 0.1f / (float)(i + 1); /* the program sees the new value */
        expect_ok(td_program_run(p));
        out->losses[i] = *(const float *)td_program_output(p, "loss", NULL);
    }
    read_weights(p, out);
    td_program_observe(p, observe, out);
    expect_ok(td_program_run(p));
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

static void results_are_the_same_bits(void **state)
{
    static outcome plain, guarded;
    (void)state;
    train("0", &plain);
    train("1", &guarded);
    assert_memory_equal(plain.losses, guarded.losses, sizeof plain.losses);
    assert_int_equal(plain.n_weights, guarded.n_weights);
    assert_memory_equal(plain.weights, guarded.weights, sizeof plain.weights);
    assert_true(plain.observed > 0 && plain.observed == guarded.observed);
}

/* the signal that ends a process that reads `p`, or 0 */
static int signal_of_reading(const volatile char *p)
{
    int status;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit none = { 0, 0 };
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGSEGV, SIG_DFL);
        _exit(*p == 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void only_kernels_and_copies_may_use_it(void **state)
{
    const td_device_memory *m = &td_guarded_memory;
    const char text[] = "sixteen letters.";
    char back[sizeof text] = "";
    (void)state;
    char *p = m->alloc(1 << 20), *other = m->alloc(64);
    assert_true(p && other);
    assert_int_equal(signal_of_reading(p), SIGSEGV);
    expect_ok(m->copy_in(p + 4096, text, sizeof text));
    expect_ok(m->copy_out(back, p + 4096, sizeof text));
    assert_string_equal(back, text);
    assert_int_equal(signal_of_reading(p + 4096), SIGSEGV);
    m->begin_kernels();
    m->begin_kernels();
    assert_int_equal(p[4096], 's');
    other[0] = 1;
    m->end_kernels();
    assert_int_equal(signal_of_reading(p), 0); /* one kernel is still running */
    m->end_kernels();
    assert_int_equal(signal_of_reading(p), SIGSEGV);
    expect_ok(m->clear(p + 4096, 4));
    expect_ok(m->copy_out(back, p + 4096, sizeof text));
    assert_int_equal(back[0], 0);
    assert_int_equal(back[4], 'e');
    m->free(other, 64);
    m->free(p, 1 << 20);
}

static void the_variable_is_0_or_1(void **state)
{
    td_device *dev;
    (void)state;
    assert_int_equal(setenv("TANDEM_GUARD_MEMORY", "yes", 1), 0);
    expect_error(td_device_open("cpu", &dev), TD_EUSAGE, "TANDEM_GUARD_MEMORY");
    assert_int_equal(unsetenv("TANDEM_GUARD_MEMORY"), 0);
    expect_ok(td_device_open("cpu", &dev));
    td_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_same_bits),
        cmocka_unit_test(only_kernels_and_copies_may_use_it),
        cmocka_unit_test(the_variable_is_0_or_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
