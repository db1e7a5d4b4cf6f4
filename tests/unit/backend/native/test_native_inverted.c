/*
 * test_native_inverted.c -- inverted residual blocks, with squeeze-excite layers too: the same
 * results as their three convolutions, and what must not change a bit
 *
 * On a machine without the loops the block stays three convolutions, and the results are equal.
 */
#include "support/expect.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/native/native_block_act.h"
#include "backend/native/native_inverted.h"
#include "base/rng.h"
#include "support/graphs.h"
#include "tandem/program.h"

typedef struct {
    int channels, wide, results, side, taps, stride;
    const char *act;
    bool gated;
} block;

static void fill(float *x, int64_t n, uint64_t seed)
{
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)td_rng_normal(&r);
}

/* what follows the depthwise convolution: a gate, the projection and an addition */
static void add_end(const block *b, int batch, char *text, size_t size)
{
    char gate[256] = "";
    if (b->gated)
        snprintf(gate, sizeof gate,
                 "%%k = global_avg_pool %%d\n%%s = sigmoid %%k\n"
                 "%%r = reshape %%s {shape=%d:%d:1:1}\n%%g = mul %%d, %%r\n",
                 batch, b->wide);
    snprintf(text, size,
             "%s%%p = conv2d_fused %%%s, %%w3, %%b3\n%%y = add %%p, %%%s\noutput y = %%y\n", gate,
             b->gated ? "g" : "d", b->stride == 1 && b->channels == b->results ? "x" : "p");
}

static td_graph *graph_of(const block *b, int batch)
{
    char text[2048], end[512];
    add_end(b, batch, end, sizeof end);
    snprintf(text, sizeof text,
             "%%x:f32[%d,%d,%d,%d] = input\n"
             "%%w1:f32[%d,%d,1,1] = param\n%%b1:f32[%d] = param\n"
             "%%w2:f32[%d,1,%d,%d] = param\n%%b2:f32[%d] = param\n"
             "%%w3:f32[%d,%d,1,1] = param\n%%b3:f32[%d] = param\n"
             "%%e = conv2d_fused %%x, %%w1, %%b1 {%s}\n"
             "%%d = conv2d_fused %%e, %%w2, %%b2 {stride=%d, pad=%d, groups=%d, %s}\n%s",
             batch, b->channels, b->side, b->side, b->wide, b->channels, b->wide, b->wide, b->taps,
             b->taps, b->wide, b->results, b->wide, b->results, b->act, b->stride, b->taps / 2,
             b->wide, b->act, end);
    return td_test_graph(text);
}

static void set_params(td_program *p, const block *b)
{
    const struct {
        const char *name;
        int64_t n;
    } all[] = { { "w1", (int64_t)b->wide * b->channels },       { "b1", b->wide },
                { "w2", (int64_t)b->wide * b->taps * b->taps }, { "b2", b->wide },
                { "w3", (int64_t)b->results * b->wide },        { "b3", b->results } };
    static float values[1 << 16];
    for (int i = 0; i < 6; i++) {
        assert_true(all[i].n <= (int64_t)(sizeof values / sizeof values[0]));
        fill(values, all[i].n, (uint64_t)i + 7);
        expect_ok(td_program_set(p, all[i].name, values));
    }
}

static int count_ops(const td_program *p, const char *op)
{
    int n = 0;
    for (int i = 0; i < td_program_node_count(p); i++)
        n += strcmp(td_program_node(p, i).op, op) == 0;
    return n;
}

/* the results of `batch` images from `x`; td_free */
static float *run(const block *b, int batch, const char *skip, const float *x, int64_t *count)
{
    td_graph *g = graph_of(b, batch);
    td_device *dev;
    td_program *p;
    td_type t;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = skip }, &p));
    const int n_fused = td_inverted_loops_here() && !skip;
    assert_int_equal(count_ops(p, "inverted_residual"), n_fused && !b->gated);
    assert_int_equal(count_ops(p, "expand_depthwise"), n_fused && b->gated);
    assert_int_equal(count_ops(p, "conv2d_gated"), n_fused && b->gated);
    assert_int_equal(count_ops(p, "global_avg_pool"), !n_fused && b->gated);
    set_params(p, b);
    expect_ok(td_program_bind(p, "x", x));
    expect_ok(td_program_run(p));
    const float *y = td_program_output(p, "y", &t);
    assert_non_null(y);
    *count = td_type_count(&t);
    float *copy = td_alloc((size_t)*count, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, y, (size_t)*count * sizeof *copy);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return copy;
}

static const block blocks[] = {
    { 16, 96, 16, 14, 3, 1, "relu=true, relu6=true", false },
    { 24, 144, 32, 28, 3, 2, "relu=true", false },
    { 16, 104, 40, 7, 5, 1, "act=hardswish", false },
    { 40, 240, 40, 7, 5, 1, "act=silu", false },
    { 16, 96, 24, 20, 5, 2, "act=silu", true },
    { 24, 200, 24, 7, 3, 1, "act=silu", true },
    { 16, 72, 16, 28, 5, 1, "relu=true", true },
};

enum { N_BLOCKS = sizeof blocks / sizeof blocks[0], BATCH = 5, X_MAX = BATCH * 24 * 28 * 28 };

static float images[X_MAX];

/* the sums of a block are as far from exact as those of three convolutions */
static void agrees_with_convolutions(void **state)
{
    (void)state;
    for (int i = 0; i < N_BLOCKS; i++) {
        int64_t n, n_plain;
        float *y = run(&blocks[i], 2, NULL, images, &n);
        float *plain = run(&blocks[i], 2, "inverted_residual", images, &n_plain);
        double gap = 0, most = 0;
        assert_int_equal(n, n_plain);
        for (int64_t k = 0; k < n; k++) {
            gap = fmax(gap, fabs((double)y[k] - (double)plain[k]));
            most = fmax(most, fabs((double)plain[k]));
        }
        assert_true(most > 0);
        assert_true(gap <= 5e-6 * most);
        td_free(y);
        td_free(plain);
    }
}

/* small images have sums in parts, which are jobs of their own in a small batch */
static void depends_on_neither_threads_nor_batch(void **state)
{
    (void)state;
    static const int threads[] = { 2, 3, 8 };
    const int before = td_threads();
    for (int i = 0; i < N_BLOCKS && td_inverted_loops_here(); i++) {
        int64_t n, n_one;
        td_set_threads(1);
        float *all = run(&blocks[i], BATCH, NULL, images, &n);
        for (int t = 0; t < 3; t++) {
            td_set_threads(threads[t]);
            float *again = run(&blocks[i], BATCH, NULL, images, &n);
            float *one = run(&blocks[i], 1, NULL, images, &n_one);
            assert_int_equal(n, BATCH * n_one);
            assert_memory_equal(all, again, (size_t)n * sizeof *all);
            assert_memory_equal(all, one, (size_t)n_one * sizeof *all);
            td_free(again);
            td_free(one);
        }
        td_free(all);
    }
    td_set_threads(before);
}

/* the division must not lose or repeat a row */
static void has_more_threads_than_rows(void **state)
{
    (void)state;
    static const block small = { 8, 16, 8, 2, 3, 1, "relu=true", false };
    const int before = td_threads();
    int64_t n;
    td_set_threads(1);
    float *one = run(&small, 1, NULL, images, &n);
    td_set_threads(64);
    float *many = run(&small, 1, NULL, images, &n);
    td_set_threads(before);
    assert_memory_equal(one, many, (size_t)n * sizeof *one);
    td_free(one);
    td_free(many);
}

#if defined(__x86_64__)
TARGET static void silu_of(float *x, int n)
{
    for (int i = 0; i < n; i += 8)
        td_block_curve(TD_BLOCK_SILU, x + i);
}
#else
static void silu_of(float *x, int n)
{
    (void)x, (void)n;
}
#endif

/* as x / (1 + exp(-x)): -0 where exp overflows, NaN of -infinity */
static void silu_holds_at_its_ends(void **state)
{
    (void)state;
    static const float x[16] = {
        -INFINITY, -FLT_MAX, -1e30F, -200, -89,   -88.8F, -88.7F,  -88,
        -86,       -20,      -1e-3F, 0,    1e-3F, 20,     FLT_MAX, INFINITY
    };
    float y[16], nan[8] = { NAN, 0, NAN, 0, 0, 0, 0, 0 };
    if (!td_inverted_loops_here())
        skip();
    memcpy(y, x, sizeof y);
    silu_of(y, 16);
    assert_true(isnan(y[0]));
    for (int i = 1; i < 16; i++) {
        const double wanted = x[i] / (1 + exp(-(double)x[i]));
        assert_true(isinf(x[i]) ? isinf(y[i]) : fabs(y[i] - wanted) <= 4e-7 * fabs(wanted) + 3e-36);
        assert_int_equal(signbit(y[i]) != 0, signbit(x[i]) != 0);
    }
    silu_of(nan, 8);
    assert_true(isnan(nan[0]) && !isnan(nan[1]) && isnan(nan[2]));
}

static int set_up(void **state)
{
    (void)state;
    fill(images, X_MAX, 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_convolutions),
        cmocka_unit_test(depends_on_neither_threads_nor_batch),
        cmocka_unit_test(has_more_threads_than_rows),
        cmocka_unit_test(silu_holds_at_its_ends),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
