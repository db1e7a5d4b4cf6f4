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

#include "backend/native/inverted_residual/native_inverted.h"
#include "base/half.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "support/graphs.h"
#include "support/programs.h"

typedef struct {
    int channels, wide, results, side, taps, stride;
    const char *act;
    bool gated, mixed; /* mixed: images and filters in bf16, biases in float32 */
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
             "%s%%p = conv2d_fused %%%s, %%w3, %%b3\n%%y%s = add %%p, %%%s\n%soutput y = %%y\n",
             gate, b->gated ? "g" : "d", b->mixed ? "_" : "",
             b->stride == 1 && b->channels == b->results ? "x" : "p",
             b->mixed ? "%y = cast %y_ {to=f32}\n" : "");
}

/* of the operands that are float32 outside */
static void add_casts(const block *b, char *text, size_t size)
{
    static const char *const names[] = { "x", "w1", "w2", "w3" };
    text[0] = 0;
    for (int i = 0; i < 4 && b->mixed; i++)
        snprintf(text + strlen(text), size - strlen(text), "%%%s = cast %%%s_ {to=bf16}\n",
                 names[i], names[i]);
}

static td_graph *graph_of(const block *b, int batch)
{
    char text[2048], end[512], casts[256];
    const char *own = b->mixed ? "_" : "";
    add_end(b, batch, end, sizeof end);
    add_casts(b, casts, sizeof casts);
    snprintf(text, sizeof text,
             "%%x%s:f32[%d,%d,%d,%d] = input\n"
             "%%w1%s:f32[%d,%d,1,1] = param\n%%b1:f32[%d] = param\n"
             "%%w2%s:f32[%d,1,%d,%d] = param\n%%b2:f32[%d] = param\n"
             "%%w3%s:f32[%d,%d,1,1] = param\n%%b3:f32[%d] = param\n%s"
             "%%e = conv2d_fused %%x, %%w1, %%b1 {%s}\n"
             "%%d = conv2d_fused %%e, %%w2, %%b2 {stride=%d, pad=%d, groups=%d, %s}\n%s",
             own, batch, b->channels, b->side, b->side, own, b->wide, b->channels, b->wide, own,
             b->wide, b->taps, b->taps, b->wide, own, b->results, b->wide, b->results, casts,
             b->act, b->stride, b->taps / 2, b->wide, b->act, end);
    return td_test_graph(text);
}

static bool has_loops(const block *b)
{
    return b->mixed ? td_inverted_loops_bf16() != NULL : td_inverted_loops_at(0) != NULL;
}

static void set_params(td_program *p, const block *b)
{
    const struct {
        const char *name;
        int64_t n;
    } all[] = {
        { b->mixed ? "w1_" : "w1", (int64_t)b->wide * b->channels },       { "b1", b->wide },
        { b->mixed ? "w2_" : "w2", (int64_t)b->wide * b->taps * b->taps }, { "b2", b->wide },
        { b->mixed ? "w3_" : "w3", (int64_t)b->results * b->wide },        { "b3", b->results }
    };
    static float values[1 << 16];
    for (int i = 0; i < 6; i++) {
        assert_true(all[i].n <= (int64_t)(sizeof values / sizeof values[0]));
        fill(values, all[i].n, (uint64_t)i + 7);
        expect_ok(td_program_set(p, all[i].name, values));
    }
}

/* the results of `batch` images from `x`; td_free */
static float *run(const block *b, int batch, const char *skip, const float *x, int64_t *count)
{
    td_graph *g = graph_of(b, batch);
    td_device *dev;
    td_program *p;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = skip }, &p));
    const int n_fused = has_loops(b) && !skip;
    assert_int_equal(td_test_count_ops(p, "inverted_residual"), n_fused && !b->gated);
    assert_int_equal(td_test_count_ops(p, "expand_depthwise"), n_fused && b->gated);
    assert_int_equal(td_test_count_ops(p, "conv2d_gated"), n_fused && b->gated);
    assert_int_equal(td_test_count_ops(p, "global_avg_pool"), !n_fused && b->gated);
    set_params(p, b);
    expect_ok(td_program_bind(p, b->mixed ? "x_" : "x", x));
    float *y = td_test_run(p, "y", count);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
    return y;
}

static const block blocks[] = {
    { 16, 96, 16, 14, 3, 1, "relu=true, relu6=true", false, false },
    { 24, 144, 32, 28, 3, 2, "relu=true", false, false },
    { 16, 104, 40, 7, 5, 1, "act=hardswish", false, false },
    { 40, 240, 40, 7, 5, 1, "act=silu", false, false },
    { 16, 96, 24, 20, 5, 2, "act=silu", true, false },
    { 24, 200, 24, 7, 3, 1, "act=silu", true, false },
    { 16, 72, 16, 28, 5, 1, "relu=true", true, false },
    { 16, 96, 16, 14, 3, 1, "relu=true, relu6=true", false, true },
    { 24, 144, 32, 28, 3, 2, "relu=true", false, true },
    { 24, 72, 24, 28, 3, 1, "relu=true", false, true },
    { 16, 104, 40, 7, 5, 1, "act=hardswish", false, true },
    { 40, 240, 40, 7, 5, 1, "act=silu", false, true },
    { 16, 96, 24, 20, 5, 2, "act=silu", true, true },
    { 24, 200, 24, 7, 3, 1, "act=silu", true, true },
};

enum { N_BLOCKS = sizeof blocks / sizeof blocks[0], BATCH = 5, X_MAX = BATCH * 24 * 28 * 28 };

static float images[X_MAX];

/* the sums of a block are as far from exact as those of three convolutions; these round more often
   in bf16, by 2^-9 each time */
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
        assert_true(gap <= (blocks[i].mixed ? 1.2e-2 : 5e-6) * most);
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
    for (int i = 0; i < N_BLOCKS && has_loops(&blocks[i]); i++) {
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
    static const block small = { 8, 16, 8, 2, 3, 1, "relu=true", false, false };
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

/* where the processor has no products of pairs, or has those of matrices, blocks stay convolutions:
   `run` counts the ops */
static void mixed_has_more_threads_than_rows(void **state)
{
    (void)state;
    static const block small = { 8, 16, 8, 2, 3, 1, "relu=true", false, true };
    const int before = td_threads();
    int64_t n;
    td_set_threads(1);
    float *one = run(&small, 1, NULL, images, &n);
    td_set_threads(64);
    float *many = run(&small, 1, NULL, images, &n);
    td_set_threads(before);
    if (has_loops(&small))
        assert_memory_equal(one, many, (size_t)n * sizeof *one);
    td_free(one);
    td_free(many);
}

/* y = silu(x) of n channels, as a depthwise convolution of one pixel that changes nothing */
static void silu_of(td_inverted_loops *loops, const float *x, int n, float *y)
{
    static float filter[16 * 9], bias[16], sums[16], scratch[1024];
    const td_inverted v = { .N = 1,
                            .C = n,
                            .H = 1,
                            .W = 1,
                            .M = n,
                            .K = n,
                            .P = 1,
                            .Q = 1,
                            .columns = 3,
                            .side = 3,
                            .stride = 1,
                            .pad = 1,
                            .act = TD_BLOCK_SILU };
    for (int i = 0; i < n; i++)
        filter[(i / 8 * 9 + 4) * 8 + i % 8] = 1;
    assert_true(td_inverted_scratch(&v, 1) <= (int64_t)(sizeof scratch / sizeof scratch[0]));
    loops(&v, &(td_inverted_in){ .x = x, .w2 = filter, .b2 = bias },
          &(td_inverted_job){ .p_to = 1, .m_to = n, .y = y, .sums = sums, .scratch = scratch });
}

static void check_silu(td_inverted_loops *loops)
{
    static const float x[16] = {
        -INFINITY, -FLT_MAX, -1e30F, -200, -89,   -88.8F, -88.7F,  -88,
        -86,       -20,      -1e-3F, 0,    1e-3F, 20,     FLT_MAX, INFINITY
    };
    static const float nan[8] = { NAN, 0, NAN, 0, 0, 0, 0, 0 };
    float y[16];
    silu_of(loops, x, 16, y);
    assert_true(isnan(y[0]));
    for (int i = 1; i < 16; i++) {
        const double wanted = x[i] / (1 + exp(-(double)x[i]));
        assert_true(isinf(x[i]) ? isinf(y[i]) : fabs(y[i] - wanted) <= 4e-7 * fabs(wanted) + 3e-36);
        assert_int_equal(signbit(y[i]) != 0, signbit(x[i]) != 0);
    }
    silu_of(loops, nan, 8, y);
    assert_true(isnan(y[0]) && !isnan(y[1]) && isnan(y[2]));
}

/* as x / (1 + exp(-x)): -0 where exp overflows, NaN of -infinity */
static void silu_holds_at_its_ends(void **state)
{
    (void)state;
    td_inverted_loops *loops;
    if (!td_inverted_loops_at(0))
        skip();
    for (int i = 0; (loops = td_inverted_loops_at(i)); i++)
        check_silu(loops);
}

/* as above; the sums of rows are of rounded results */
static void silu_in_bf16_holds_at_its_ends(void **state)
{
    (void)state;
    static const float x[16] = { -INFINITY, -1e30F, -200,  -89,   -88,     -87, -20,   -3,
                                 -1e-3F,    0,      1e-3F, 0.75F, 2.3125F, 20,  1e30F, INFINITY };
    uint16_t half[16], y[16];
    static uint16_t filter[16 * 9];
    static float bias[16], sums[16], scratch[1024];
    const td_inverted v = { .N = 1,
                            .C = 16,
                            .H = 1,
                            .W = 1,
                            .M = 16,
                            .K = 16,
                            .P = 1,
                            .Q = 1,
                            .columns = 3,
                            .side = 3,
                            .stride = 1,
                            .pad = 1,
                            .act = TD_BLOCK_SILU };
    td_inverted_loops *loops = td_inverted_loops_bf16();
    if (!loops)
        skip();
    for (int i = 0; i < 16; i++) {
        half[i] = td_f32_to_bf16(x[i]);
        filter[(i / 8 * 9 + 4) * 8 + i % 8] = td_f32_to_bf16(1);
    }
    loops(&v, &(td_inverted_in){ .x = half, .w2 = filter, .b2 = bias },
          &(td_inverted_job){ .p_to = 1, .m_to = 16, .y = y, .sums = sums, .scratch = scratch });
    assert_true(isnan(td_bf16_to_f32(y[0])));
    for (int i = 1; i < 16; i++) {
        const double in = td_bf16_to_f32(half[i]), wanted = in / (1 + exp(-in));
        const double found = td_bf16_to_f32(y[i]);
        assert_true(isinf(in) ? isinf(found) : fabs(found - wanted) <= 4e-3 * fabs(wanted) + 3e-36);
    }
}

/* computes image 1 of v */
static void run_loops(td_inverted_loops *loops, const td_inverted *v, const td_inverted_in *in,
                      float *y, float *sums, float *scratch)
{
    loops(v, in,
          &(td_inverted_job){ .n = 1,
                              .p_to = v->P,
                              .m_to = v->M,
                              .adds_rest = true,
                              .y = y,
                              .sums = sums,
                              .scratch = scratch });
}

/* all vectors, whole and half, of every set of loops against the last set */
static void widths_have_the_same_bits(void **state)
{
    (void)state;
    enum { MOST = 1 << 16 };
    static const int wide[] = { 48, 56, 104 }, results[] = { 8, 16, 24, 40, 48 };
    static const int sizes[] = { 1, 3, 7, 15 };
    static float w[MOST], y[2][MOST], sums[2][MOST], scratch[MOST];
    td_inverted_loops *loops;
    int last = 0;
    if (!td_inverted_loops_at(1))
        skip();
    while (td_inverted_loops_at(last + 1))
        last++;
    fill(w, MOST, 3);
    for (int i = 0; i < 3 * 5 * 4 * 2 * 4; i++) {
        const int side = i / 120 % 2 ? 5 : 3, stride = 1 + i / 60 % 2, size = sizes[i / 15 % 4];
        td_inverted v = { .N = 2, .C = 24, .H = size, .W = size };
        v.M = wide[i % 3], v.K = results[i / 3 % 5], v.side = side, v.stride = stride;
        v.pad = side / 2, v.P = v.Q = (size - 1) / stride + 1, v.columns = size + 2 * v.pad;
        v.act = i % 2 ? TD_BLOCK_SILU : TD_BLOCK_HARDSWISH;
        v.has_expansion = true, v.has_projection = i / 240 == 0;
        const td_inverted_in in = { images, w, w + 1, w + 2, w + 3, w + 4, w + 5 };
        assert_true(td_inverted_scratch(&v, v.P) <= MOST && v.P * v.Q * v.M <= MOST);
        memset(y, 0, sizeof y), memset(sums, 0, sizeof sums);
        run_loops(td_inverted_loops_at(last), &v, &in, y[0], sums[0], scratch);
        for (int k = 0; k < last && (loops = td_inverted_loops_at(k)); k++) {
            run_loops(loops, &v, &in, y[1], sums[1], scratch);
            assert_memory_equal(y[0], y[1], sizeof y[0]);
            assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
        }
    }
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
        cmocka_unit_test(mixed_has_more_threads_than_rows),
        cmocka_unit_test(silu_holds_at_its_ends),
        cmocka_unit_test(silu_in_bf16_holds_at_its_ends),
        cmocka_unit_test(widths_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
