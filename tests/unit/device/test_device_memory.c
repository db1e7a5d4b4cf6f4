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
#include "runtime/device.h"
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

/* --- a device that queues --------------------------------------------------------------------- */

static int n_syncs;
static bool sync_fails;

static td_status counted_sync(void)
{
    n_syncs++;
    return sync_fails ? td_error(TD_EDEVICE, "the queue failed") : TD_OK;
}

static td_program *queueing_program(td_device **dev, td_device_memory *memory)
{
    td_program *p;
    td_graph *g = td_test_graph("%x:f32[4,3] = input\n%y:f32[4,3] = relu %x\noutput y = %y\n");
    expect_ok(td_device_open("cpu", dev));
    *memory = td_guarded_memory;
    memory->sync = counted_sync;
    (*dev)->memory = memory;
    expect_ok(td_compile(g, *dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    return p;
}

/* the first node that has a kernel */
static int node_with_kernel(const td_program *p)
{
    int i = 0;
    while (!*td_program_node(p, i).kernel)
        i++;
    return i;
}

static void runs_and_measured_times_end_with_a_sync(void **state)
{
    static const float x[12] = { -1, 2 };
    td_device *dev;
    td_device_memory memory;
    double best;
    (void)state;
    td_program *p = queueing_program(&dev, &memory);
    const int i = node_with_kernel(p);
    expect_ok(td_program_bind(p, "x", x));
    n_syncs = 0;
    expect_ok(td_program_run(p));
    assert_int_equal(n_syncs, 1);
    assert_true(((const float *)td_program_output(p, "y", NULL))[1] == 2);
    td_program_profile(p, true);
    n_syncs = 0;
    expect_ok(td_program_run(p));
    assert_int_equal(n_syncs, 3); /* inputs, one kernel, one run */
    n_syncs = 0;
    expect_ok(td_program_time(p, i, 3, &best));
    assert_int_equal(n_syncs, 3);
    sync_fails = true;
    td_program_profile(p, false);
    expect_error(td_program_run(p), TD_EDEVICE, "queue");
    expect_error(td_program_time(p, i, 1, &best), TD_EDEVICE, "queue");
    sync_fails = false;
    td_program_free(p);
    td_device_close(dev);
}

/* --- guarded memory --------------------------------------------------------------------------- */

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
    expect_ok(m->fill(p + 4096, 0, 4));
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
        cmocka_unit_test(runs_and_measured_times_end_with_a_sync),
        cmocka_unit_test(only_kernels_and_copies_may_use_it),
        cmocka_unit_test(the_variable_is_0_or_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
