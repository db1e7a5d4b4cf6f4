/*
 * test_native_linear.c -- the last linear layer of a network of 8-bit integers: where the processor
 * has products of bf16, its weight is bf16 whatever the batch, and nothing else is rounded
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/machine.h"
#include "base/rng.h"
#include "support/graphs.h"
#include "tandem/program.h"

enum { C = 67, K = 13, ROWS = 9 /* more than the loops take */ };

static float x[ROWS * C], w[K * C], bias[K];

static void fill(float *to, int64_t n, uint64_t seed)
{
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)td_rng_normal(&r);
}

static void run(int rows, const char *skip, float *y)
{
    static const td_activation_ranges none = { 0 };
    const td_amp_opts amp = { .precision = TD_PRECISION_INT8, .ranges = &none };
    char text[256];
    snprintf(text, sizeof text,
             "%%x:f32[%d,%d] = input\n%%w:f32[%d,%d] = param\n%%b:f32[%d] = param\n"
             "%%y = linear %%x, %%w, %%b\noutput y = %%y\n",
             rows, C, K, C, K);
    td_graph *g = td_test_graph(text);
    td_device *dev;
    td_program *p;
    td_type t;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = skip, .amp = &amp }, &p));
    expect_ok(td_program_set(p, "w", w));
    expect_ok(td_program_set(p, "b", bias));
    expect_ok(td_program_bind(p, "x", x));
    expect_ok(td_program_run(p));
    memcpy(y, td_program_output(p, "y", &t), (size_t)(rows * K) * sizeof *y);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

/* the largest difference from the product with a weight that is rounded, or not */
static double error_of(int rows, bool is_rounded, const float *y)
{
    double most = 0;
    for (int i = 0; i < rows * K; i++) {
        double sum = bias[i % K];
        for (int c = 0; c < C; c++) {
            const float each = w[i % K * C + c];
            sum += (double)x[i / K * C + c] *
                   (double)(is_rounded ? td_bf16_to_f32(td_f32_to_bf16(each)) : each);
        }
        most = fmax(most, fabs(sum - (double)y[i]));
    }
    return most;
}

static void weights_are_rounded_in_every_batch(void **state)
{
    (void)state;
    const bool is_rounded = td_cpu_bf16_rate() > 1;
    const double limit = 1e-4; /* rounding the weights changes results by 1e-2 */
    float y[ROWS * K];
    fill(x, ROWS * C, 1);
    fill(w, (int64_t)K * C, 2);
    fill(bias, K, 3);
    for (int rows = 1; rows <= ROWS; rows++) {
        run(rows, NULL, y);
        assert_true(error_of(rows, is_rounded, y) < limit);
        run(rows, "int8_ends", y);
        assert_true(error_of(rows, false, y) < limit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_rounded_in_every_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
