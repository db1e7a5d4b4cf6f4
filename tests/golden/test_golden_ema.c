/*
 * test_golden_ema.c -- averages of a small state over ten steps against ema.json
 *
 * Every tensor is a graph of its own: ema(value, average, keep, share), on both devices.  The batch
 * counters are never averaged and not compared.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/build.h"
#include "ops/ops.h"
#include "support/device.h"
#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"
#include "tandem/program.h"

#define PART  "classification"
#define N_MAX 4096

/* our own kernel rounds as the reference does; the plain one rounds once */
#define TOLERANCE 5e-7

static td_json *doc;
static td_tensors *tensors;

static int set_up(void **state)
{
    (void)state;
    doc = td_golden_json(PART, "ema.json");
    tensors = td_golden_tensors(PART, "ema.safetensors");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    td_tensors_free(tensors);
    td_json_free(doc);
    return 0;
}

static void fill(const char *tensor, int64_t n, float *out)
{
    td_fill_range(td_golden_text(doc, "prefix"), tensor, -1, 1, n, out);
}

static td_program *compile(td_device *dev, int64_t n)
{
    td_graph *g;
    td_program *p;
    td_builder *b = td_build_begin();
    td_value *value = td_input(b, "value", td_type_1d(TD_DT_F32, n));
    td_value *keep = td_input(b, "keep", td_type_scalar(TD_DT_F32));
    td_value *share = td_input(b, "share", td_type_scalar(TD_DT_F32));
    td_value *average = td_param(b, "average", TD_DT_F32, 1, &n, "role=momentum");
    td_emit(b, &td_op_ema, NULL, value, average, keep, share);
    expect_ok(td_build_end(b, &g));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    return p;
}

/* number of stored averages compared */
static int evaluate(const char *run, int64_t t, const char *name, td_program *p, bool is_exact)
{
    char key[256];
    float found[N_MAX];
    snprintf(key, sizeof key, "%s.%lld.%s", run, (long long)t, name);
    const td_tensor *wanted = td_tensors_get(tensors, key);
    if (!wanted)
        return 0;
    const float *w = wanted->data;
    const int64_t n = (int64_t)(wanted->n_bytes / sizeof(float));
    expect_ok(td_program_get(p, "average", found));
    for (int64_t i = 0; i < n; i++)
        if (is_exact ? memcmp(&found[i], &w[i], sizeof(float)) != 0
                     : !(fabsf(found[i] - w[i]) <= (float)TOLERANCE)) {
            print_error("%s: [%lld] is %.9g, wanted %.9g\n", key, (long long)i, (double)found[i],
                        (double)w[i]);
            fail();
        }
    return 1;
}

static int run_tensor(const td_json *run, const char *name, int64_t n, const char *device)
{
    const td_json *decay = td_golden_rows(run, "decay");
    float value[N_MAX], keep, share;
    char key[256];
    td_device *dev;
    int n_checked = 0;
    expect_ok(td_test_device_open(device, &dev));
    td_program *p = compile(dev, n);
    snprintf(key, sizeof key, "ema.start.%s", name);
    fill(key, n, value);
    expect_ok(td_program_set(p, "average", value));
    expect_ok(td_program_bind(p, "value", value));
    expect_ok(td_program_bind(p, "keep", &keep));
    expect_ok(td_program_bind(p, "share", &share));
    for (size_t t = 0; t < td_json_count(decay); t++) {
        double m;
        expect_ok(td_json_as_number(td_json_at(decay, t), &m));
        keep = (float)m;
        share = (float)(1 - m);
        snprintf(key, sizeof key, "ema.%zu.%s", t, name);
        fill(key, n, value);
        expect_ok(td_program_run(p));
        n_checked +=
            evaluate(td_golden_text(run, "name"), (int64_t)t, name, p, strcmp(device, "cpu") == 0);
    }
    td_program_free(p);
    td_device_close(dev);
    return n_checked;
}

static void run_all(const char *device)
{
    const td_json *runs = td_golden_rows(doc, "runs"), *names = td_golden_rows(doc, "state");
    int n_checked = 0;
    for (size_t i = 0; i < td_json_count(runs); i++)
        for (size_t k = 0; k < td_json_count(names); k++) {
            const td_json *entry = td_json_at(names, k), *dims = td_json_at(entry, 1);
            const char *name;
            int64_t n = 1, d;
            expect_ok(td_json_as_text(td_json_at(entry, 0), &name));
            if (strstr(name, "num_batches_tracked"))
                continue;
            for (size_t j = 0; j < td_json_count(dims); j++) {
                expect_ok(td_json_as_int(td_json_at(dims, j), &d));
                n *= d;
            }
            assert_in_range(n, 1, N_MAX);
            n_checked += run_tensor(td_json_at(runs, i), name, n, device);
        }
    print_message("%d averages\n", n_checked);
    assert_true(n_checked > 0);
}

static void on_ref(void **state)
{
    (void)state;
    run_all("ref");
}

static void on_cpu(void **state)
{
    (void)state;
    run_all("cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_ref),
        cmocka_unit_test(on_cpu),
    };
    td_golden_require(PART);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
