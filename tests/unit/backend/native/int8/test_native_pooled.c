/*
 * test_native_pooled.c -- a first convolution with its max pooling: all loops of float32 give the
 * same bits, those of bf16 nearly the same integers, and pass int8_ends uses them
 *
 * On a machine without the loops nothing is compared.
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/native/int8/native_pooled.h"
#include "base/half.h"
#include "base/rng.h"
#include "ops/ops.h"
#include "support/graphs.h"
#include "support/programs.h"

enum { SIDE = 45, C = 3, K = 48, R = 7, P = 23, POOLED = 12, Y = POOLED * POOLED * K };

static const td_pooled geometry = { .N = 1,
                                    .C = C,
                                    .H = SIDE,
                                    .W = SIDE,
                                    .K = K,
                                    .R = R,
                                    .P = P,
                                    .Q = P,
                                    .pooled_P = POOLED,
                                    .pooled_Q = POOLED,
                                    .stride = 2,
                                    .pad = 3,
                                    .kernel = 3,
                                    .pool_stride = 2,
                                    .pool_pad = 1,
                                    .y_scale = 0.1F };

static float image[C * SIDE * SIDE], filter[K * C * R * R], bias[K];

static void fill(float *x, int64_t n, uint64_t seed)
{
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)td_rng_normal(&r);
}

static void fill_all(void)
{
    fill(image, C * SIDE * SIDE, 1);
    fill(filter, (int64_t)K * C * R * R, 2);
    fill(bias, K, 3);
}

/* the filter in blocks of 16 channels; of pairs, with a zero behind the last tap of a row */
static void pack(bool is_half, void *to)
{
    for (int i = 0; i < K * C * R * R; i++) {
        const int k = i / (C * R * R), row = i / R % (C * R), s = i % R;
        const int block = k / 16 * C * R + row;
        if (is_half)
            ((uint16_t *)to)[((block * 4 + s / 2) * 16 + k % 16) * 2 + s % 2] =
                td_f32_to_bf16(filter[i]);
        else
            ((float *)to)[(block * R + s) * 16 + k % 16] = filter[i];
    }
}

/* rows [from, to) of y */
static void run_loops(td_pooled_loops *loops, bool is_half, int from, int to, uint8_t *y)
{
    static float packed[K * C * R * 8];
    static float largest[3 * POOLED * K], together[POOLED * K];
    td_pooled v = geometry;
    memset(packed, 0, sizeof packed);
    pack(is_half, packed);
    v.is_half = v.is_odd = is_half;
    v.taps = is_half ? 4 : 7;
    v.step = is_half ? 1 : 2;
    v.columns = is_half ? P + 4 : SIDE + 6;
    td_pooled_set_ring(&v);
    float *sums = calloc((size_t)(td_pooled_pixels(&v) * TD_POOLED_CHANNELS), sizeof *sums);
    float *windows =
        calloc((size_t)(td_pooled_windows(&v) + td_pooled_filter(&v)), sizeof *windows);
    float *rows = calloc((size_t)td_pooled_rows(&v), sizeof *rows);
    assert_true(sums && windows && rows);
    loops(&v, &(td_pooled_job){ .from = from,
                                .to = to,
                                .x = image,
                                .w = packed,
                                .bias = bias,
                                .y = y,
                                .rows = rows,
                                .windows = windows,
                                .sums = sums,
                                .largest = largest,
                                .together = together });
    free(sums);
    free(windows);
    free(rows);
}

static void loops_give_the_same_bits(void **state)
{
    (void)state;
    static uint8_t y[Y], other[Y];
    fill_all();
    if (!td_pooled_loops_at(false, 0))
        return;
    run_loops(td_pooled_loops_at(false, 0), false, 0, POOLED, y);
    for (int i = 0; td_pooled_loops_at(false, i); i++) {
        memset(other, 7, sizeof other);
        run_loops(td_pooled_loops_at(false, i), false, 5, POOLED, other);
        run_loops(td_pooled_loops_at(false, i), false, 0, 5, other);
        assert_memory_equal(y, other, sizeof y);
    }
}

static void pairs_are_as_good_as_bf16(void **state)
{
    (void)state;
    static uint8_t y[Y], half[Y];
    fill_all();
    if (!td_pooled_loops_at(true, 0))
        return;
    for (size_t i = 0; i < sizeof image / sizeof *image; i++)
        image[i] = td_bf16_to_f32(td_f32_to_bf16(image[i]));
    for (size_t i = 0; i < sizeof filter / sizeof *filter; i++)
        filter[i] = td_bf16_to_f32(td_f32_to_bf16(filter[i]));
    run_loops(td_pooled_loops_at(false, 0), false, 0, POOLED, y);
    for (int k = 0; td_pooled_loops_at(true, k); k++) {
        memset(half, 7, sizeof half);
        run_loops(td_pooled_loops_at(true, k), true, 5, POOLED, half);
        run_loops(td_pooled_loops_at(true, k), true, 0, 5, half);
        int n_different = 0, n_zero = 0;
        for (int i = 0; i < Y; i++) {
            assert_true(abs(y[i] - half[i]) <= 1);
            n_different += y[i] != half[i];
            n_zero += y[i] == 0;
        }
        assert_true(n_different < 10 &&
                    n_zero < Y / 10); /* exact products: only sums are rounded */
    }
}

/* --- the pass --------------------------------------------------------------------------------- */

static void run_network(const char *skip, int n_fused, float *y)
{
    static const char text[] = "%x:f32[1,3,45,45] = input\n%w:f32[48,3,7,7] = param\n"
                               "%b:f32[48] = param\n%v:f32[16,48,1,1] = param\n"
                               "%c:f32[16] = param\n"
                               "%a = conv2d_fused %x, %w, %b {stride=2, pad=3, relu=true}\n"
                               "%p, %i = max_pool2d %a {kernel=3, stride=2, pad=1}\n"
                               "%y = conv2d_fused %p, %v, %c\noutput y = %y\n";
    td_activation_range range = { .weight = "v", .input = 40, .output = 40 };
    const td_activation_ranges ranges = { .n = 1, .ranges = &range };
    const td_amp_opts amp = { .precision = TD_PRECISION_INT8, .ranges = &ranges };
    td_graph *g = td_test_graph(text);
    td_device *dev;
    td_program *p;
    td_type t;
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ .skip = skip, .amp = &amp }, &p));
    if (td_test_count_ops(p, "conv2d_int8"))
        assert_int_equal(td_test_count_ops(p, "conv2d_pool_int8"), n_fused);
    expect_ok(td_program_set(p, "w", filter));
    expect_ok(td_program_set(p, "b", bias));
    expect_ok(td_program_set(p, "v", filter));
    expect_ok(td_program_set(p, "c", bias));
    expect_ok(td_program_bind(p, "x", image));
    expect_ok(td_program_run(p));
    memcpy(y, td_program_output(p, "y", &t), 16 * POOLED * POOLED * sizeof *y);
    td_program_free(p);
    td_device_close(dev);
    td_graph_free(g);
}

static void pass_changes_little(void **state)
{
    (void)state;
    static float y[16 * POOLED * POOLED], other[16 * POOLED * POOLED];
    float most = 0, differ = 0;
    fill_all();
    run_network("int8_ends", 0, y);
    run_network(NULL, td_pooled_loops_at(false, 0) != NULL, other);
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        most = fmaxf(most, fabsf(y[i]));
        differ = fmaxf(differ, fabsf(y[i] - other[i]));
    }
    assert_true(differ < 0.01F * most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_give_the_same_bits),
        cmocka_unit_test(pairs_are_as_good_as_bf16),
        cmocka_unit_test(pass_changes_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
