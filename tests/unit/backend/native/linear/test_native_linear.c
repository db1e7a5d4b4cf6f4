/*
 * test_native_linear.c -- the last linear layer of a network of 8-bit integers: where the processor
 * has products of bf16, its weight is bf16 whatever the batch, and nothing else is rounded; rows of
 * layers in panels, whose bits depend on neither the batch nor the number of threads
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/isa.h"
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

/* --- panels ----------------------------------------------------------------------------------- */

enum { MANY = 47, DEPTH = 64, OUTPUTS = 160 };

static float rows_x[MANY * DEPTH], rows_rest[MANY * OUTPUTS];
static float panels_w[OUTPUTS * DEPTH], panels_bias[OUTPUTS];

static void convert(const float *from, int64_t n, bool is_half, void *to)
{
    if (is_half)
        td_f32_to_bf16_n(from, (size_t)n, to);
    else
        memcpy(to, from, (size_t)n * sizeof *from);
}

/* y = gelu(x w + bias) and z = x w + rest of rows [from, from + rows); their bytes */
static size_t run_panels(int from, int rows, bool is_half, const char *kernel, unsigned char *to)
{
    static unsigned char x_bytes[sizeof rows_x], rest_bytes[sizeof rows_rest];
    const char *type = is_half ? "bf16" : "f32";
    char text[512];
    snprintf(text, sizeof text,
             "%%x:%s[%d,%d] = input\n%%r:%s[%d,%d] = input\n%%w:%s[%d,%d] = param\n"
             "%%b:f32[%d] = param\n%%y = linear_fused %%x, %%w, %%b {gelu=true}\n"
             "%%z = linear_fused %%x, %%w, %%b, %%r\noutput y = %%y\noutput z = %%z\n",
             type, rows, DEPTH, type, rows, OUTPUTS, type, OUTPUTS, DEPTH, OUTPUTS);
    td_graph *g = td_test_graph(text);
    td_device *dev;
    td_program *p;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, NULL, &p));
    for (int i = 0; i < td_program_node_count(p); i++)
        if (strcmp(td_program_node(p, i).op, "linear_fused") == 0)
            assert_string_equal(td_program_node(p, i).kernel, kernel);
    convert(rows_x + from * DEPTH, (int64_t)rows * DEPTH, is_half, x_bytes);
    convert(rows_rest + from * OUTPUTS, (int64_t)rows * OUTPUTS, is_half, rest_bytes);
    expect_ok(td_program_set(p, "w", panels_w));
    expect_ok(td_program_set(p, "b", panels_bias));
    expect_ok(td_program_bind(p, "x", x_bytes));
    expect_ok(td_program_bind(p, "r", rest_bytes));
    expect_ok(td_program_run(p));
    const size_t each = (size_t)(rows * OUTPUTS) * (is_half ? 2 : 4);
    memcpy(to, td_program_output(p, "y", NULL), each);
    memcpy(to + each, td_program_output(p, "z", NULL), each);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return each;
}

static void check_rows(bool is_half, const char *kernel)
{
    static unsigned char all[2 * sizeof rows_rest], some[2 * sizeof rows_rest];
    const size_t row = OUTPUTS * (is_half ? 2 : 4);
    td_set_threads(1);
    const size_t each = run_panels(0, MANY, is_half, kernel, all);
    for (int threads = 1; threads <= 4; threads++) {
        td_set_threads(threads);
        for (int rows = 9; rows <= MANY; rows += 7) {
            const int from = MANY - rows;
            const size_t n = run_panels(from, rows, is_half, kernel, some);
            assert_memory_equal(some, all + (size_t)from * row, n);
            assert_memory_equal(some + n, all + each + (size_t)from * row, n);
        }
    }
    td_set_threads(0);
}

static void bits_of_rows_depend_on_nothing_else(void **state)
{
    (void)state;
    if (!td_isa_has(TD_ISA_AVX512))
        skip();
    fill(rows_x, MANY * DEPTH, 4);
    fill(rows_rest, MANY * OUTPUTS, 5);
    fill(panels_w, OUTPUTS * DEPTH, 6);
    fill(panels_bias, OUTPUTS, 7);
    check_rows(false, "native_linear_panels");
    if (td_cpu_bf16_rate() == TD_BF16_RATE_PAIRS) /* AMX is left to oneDNN */
        check_rows(true, "native_linear_panels_bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_rounded_in_every_batch),
        cmocka_unit_test(bits_of_rows_depend_on_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
