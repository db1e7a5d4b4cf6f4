/*
 * test_exponent_stats.c -- counts of magnitudes against numbers worked out by hand: every dtype,
 * every bound from both sides, layouts with padding
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "ir/type.h"
#include "profiler/exponent_stats.h"

#define N_OF(a) ((int64_t)(sizeof(a) / sizeof *(a)))

static int64_t bin(const td_magnitudes *m, int exponent)
{
    return m->exponent[exponent - TD_EXPONENT_MIN];
}

static void float32_is_counted_at_its_bounds(void **state)
{
    (void)state;
    const float x[] = {
        0.0f,        -0.0f,           1.0f,      -1.5f, /* 2 zeros, 2 in bin 0 */
        65504.0f,    -65504.0f,                         /* the largest of fp16, twice */
        65505.0f,    65536.0f,                          /* above it */
        0x1p-14f,    0x1.fp-15f,                        /* smallest normal of fp16, and below */
        0x1p-24f,    -0x1.fp-25f,                       /* smallest subnormal of fp16, and below */
        0x1p-126f,   0x1p-127f,                         /* smallest normal of bf16, and below */
        0x1p-133f,   -0x1.8p-134f,    0x1p-149f,        /* smallest subnormal of bf16, and below */
        0x1.fep127f, 0x1.fffffep127f,                   /* largest of bf16, and above */
    };
    td_magnitudes m;
    const td_type t = td_type_1d(TD_DT_F32, N_OF(x));
    expect_ok(td_magnitudes_count(&t, x, &m));
    assert_int_equal(m.n, 19);
    assert_int_equal(m.n_zero, 2);
    assert_int_equal(m.n_infinite + m.n_nan, 0);
    assert_true(m.largest == (double)0x1.fffffep127f);
    assert_int_equal(m.n_over[TD_HALF_FP16], 4);
    assert_int_equal(m.n_over[TD_HALF_BF16], 1);
    assert_int_equal(m.n_lost[TD_HALF_FP16], 6);         /* from -0x1.fp-25 on */
    assert_int_equal(m.n_below_normal[TD_HALF_FP16], 8); /* 0x1.fp-15 and 0x1p-24 too */
    assert_int_equal(m.n_lost[TD_HALF_BF16], 2);
    assert_int_equal(m.n_below_normal[TD_HALF_BF16], 4);
    assert_int_equal(bin(&m, 0), 2);
    assert_int_equal(bin(&m, 15), 3);
    assert_int_equal(bin(&m, 16), 1);
    assert_int_equal(bin(&m, -15), 1);
    assert_int_equal(bin(&m, -25), 1);
    assert_int_equal(bin(&m, -126), 1);
    assert_int_equal(bin(&m, -127), 1);
    assert_int_equal(bin(&m, -134), 1);
    assert_int_equal(bin(&m, -149), 1);
    assert_int_equal(bin(&m, 127), 2);
}

static void what_is_not_finite_is_apart(void **state)
{
    (void)state;
    const float x[] = { INFINITY, -INFINITY, NAN, -NAN, NAN, 3.0f, 70000.0f };
    int64_t sum = 0;
    td_magnitudes m;
    const td_type t = td_type_1d(TD_DT_F32, N_OF(x));
    expect_ok(td_magnitudes_count(&t, x, &m));
    assert_int_equal(m.n_infinite, 2);
    assert_int_equal(m.n_nan, 3);
    assert_int_equal(m.n_over[TD_HALF_FP16], 3); /* the infinite ones and 70000 */
    assert_int_equal(m.n_over[TD_HALF_BF16], 2);
    assert_true(m.largest == 70000);
    for (int i = 0; i < TD_EXPONENT_BINS; i++)
        sum += m.exponent[i];
    assert_int_equal(sum, 2);
}

static void half_types_are_counted_as_what_they_hold(void **state)
{
    (void)state;
    /* 1, -2, largest, infinite, NaN, smallest subnormal, largest subnormal, smallest normal, 0 */
    const uint16_t f16[] = { 0x3c00, 0xc000, 0x7bff, 0x7c00, 0x7e00, 0x8001, 0x03ff, 0x0400, 0 };
    const uint16_t bf16[] = {
        0x3f80, 0xc000, 0x7f7f, 0xff80, 0x7fc0, 0x0001, 0x007f, 0x0080, 0x8000
    };
    td_magnitudes m;
    td_type t = td_type_1d(TD_DT_F16, N_OF(f16));
    expect_ok(td_magnitudes_count(&t, f16, &m));
    assert_int_equal(m.n, 9);
    assert_int_equal(m.n_zero, 1);
    assert_int_equal(m.n_infinite, 1);
    assert_int_equal(m.n_nan, 1);
    assert_true(m.largest == 65504);
    assert_int_equal(m.n_over[TD_HALF_FP16], 1);
    assert_int_equal(m.n_lost[TD_HALF_FP16], 0);
    assert_int_equal(m.n_below_normal[TD_HALF_FP16], 2);
    assert_int_equal(bin(&m, -24), 1);
    assert_int_equal(bin(&m, -15), 1);
    assert_int_equal(bin(&m, -14), 1);
    assert_int_equal(bin(&m, 15), 1);

    t = td_type_1d(TD_DT_BF16, N_OF(bf16));
    expect_ok(td_magnitudes_count(&t, bf16, &m));
    assert_int_equal(m.n_zero, 1);
    assert_int_equal(m.n_infinite, 1);
    assert_int_equal(m.n_nan, 1);
    assert_true(m.largest == 0x1.fep127);
    assert_int_equal(m.n_over[TD_HALF_FP16], 2);
    assert_int_equal(m.n_over[TD_HALF_BF16], 1);
    assert_int_equal(m.n_lost[TD_HALF_FP16], 3);
    assert_int_equal(m.n_lost[TD_HALF_BF16], 0);
    assert_int_equal(m.n_below_normal[TD_HALF_BF16], 2);
    assert_int_equal(bin(&m, -133), 1);
    assert_int_equal(bin(&m, -127), 1);
    assert_int_equal(bin(&m, -126), 1);
}

static void float64_is_rounded_first(void **state)
{
    (void)state;
    const double x[] = { 0.75, -1e300, 1e-300, 0 };
    td_magnitudes m;
    const td_type t = td_type_1d(TD_DT_F64, N_OF(x));
    expect_ok(td_magnitudes_count(&t, x, &m));
    assert_int_equal(m.n_infinite, 1);
    assert_int_equal(m.n_zero, 2);
    assert_true(m.largest == 0.75);
}

/* fill all of a block with a number nobody may see, then the elements with 2^(index % 7) */
static void check_layout(td_dtype d, const int64_t *dim, const char *layout)
{
    td_type t = td_type_of(d, 4, dim);
    td_blocking bl;
    td_magnitudes m;
    int64_t wanted[7] = { 0 }, at[4], n = 0;
    snprintf(t.layout, sizeof t.layout, "%s", layout);
    assert_true(td_type_blocking(&t, &bl));
    const int64_t bytes = td_type_bytes(&t), all = bytes / (int64_t)td_dtype_bytes(d);
    assert_true(all > td_type_count(&t)); /* there is padding */
    float *wide = td_alloc((size_t)all, sizeof *wide);
    uint16_t *half = td_alloc((size_t)all, sizeof *half);
    assert_true(wide && half);
    for (int64_t i = 0; i < all; i++)
        wide[i] = 1e5f;
    for (at[0] = 0; at[0] < dim[0]; at[0]++)
        for (at[1] = 0; at[1] < dim[1]; at[1]++)
            for (at[2] = 0; at[2] < dim[2]; at[2]++)
                for (at[3] = 0; at[3] < dim[3]; at[3]++, n++) {
                    wide[td_blocking_offset(&bl, &t, at)] = (float)(1 << n % 7);
                    wanted[n % 7]++;
                }
    if (d == TD_DT_BF16)
        td_f32_to_bf16_n(wide, (size_t)all, half);
    else
        td_f32_to_f16_n(wide, (size_t)all, half);
    expect_ok(td_magnitudes_count(&t, d == TD_DT_F32 ? (void *)wide : (void *)half, &m));
    assert_int_equal(m.n, n);
    assert_int_equal(m.n_zero, 0);
    assert_int_equal(m.n_over[TD_HALF_FP16], 0);
    assert_true(m.largest == 64);
    for (int e = 0; e < 7; e++)
        assert_int_equal(bin(&m, e), wanted[e]);
    td_free(wide);
    td_free(half);
}

static void padding_does_not_count(void **state)
{
    (void)state;
    static const td_dtype dtypes[] = { TD_DT_F32, TD_DT_BF16, TD_DT_F16 };
    for (int i = 0; i < 3; i++) {
        check_layout(dtypes[i], (int64_t[]){ 2, 3, 5, 4 }, "aBcd16b");
        check_layout(dtypes[i], (int64_t[]){ 20, 3, 3, 3 }, "ABcd16b16a");
        check_layout(dtypes[i], (int64_t[]){ 20, 5, 2, 3 }, "ABcd8b16a2b");
        check_layout(dtypes[i], (int64_t[]){ 12, 5, 1, 3 }, "4gAbcde16a");
        check_layout(dtypes[i], (int64_t[]){ 2, 3, 1, 9001 }, "aBcd16b"); /* longer than a block */
    }
}

static void sizes_of_many_blocks_and_scalars(void **state)
{
    (void)state;
    enum { N = 3 * 4096 + 17 };
    float *x = td_alloc(N, sizeof *x);
    td_magnitudes m;
    td_type t = td_type_1d(TD_DT_F32, N);
    assert_non_null(x);
    for (int i = 0; i < N; i++)
        x[i] = i % 3 ? 0.25f : 0;
    expect_ok(td_magnitudes_count(&t, x, &m));
    assert_int_equal(m.n, N);
    assert_int_equal(m.n_zero, (N + 2) / 3);
    assert_int_equal(bin(&m, -2), N - (N + 2) / 3);
    t = td_type_scalar(TD_DT_F32);
    x[0] = -8;
    expect_ok(td_magnitudes_count(&t, x, &m));
    assert_int_equal(m.n, 1);
    assert_int_equal(bin(&m, 3), 1);
    td_free(x);
}

static void others_are_refused_and_memory_may_fail(void **state)
{
    (void)state;
    const int64_t whole[] = { 1, 2 };
    float x[16] = { 0 };
    td_magnitudes m;
    td_type t = td_type_1d(TD_DT_I64, 2);
    expect_error(td_magnitudes_count(&t, whole, &m), TD_EARG, "i64");
    t = td_type_4d(TD_DT_F32, 1, 1, 1, 1);
    snprintf(t.layout, sizeof t.layout, "aBcd16b");
    const int64_t live = td_alloc_live();
    td_alloc_fail_at(1);
    td_status st = td_magnitudes_count(&t, x, &m);
    td_alloc_fail_at(0);
    assert_int_equal(st, TD_ENOMEM);
    assert_int_equal(td_alloc_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_is_counted_at_its_bounds),
        cmocka_unit_test(what_is_not_finite_is_apart),
        cmocka_unit_test(half_types_are_counted_as_what_they_hold),
        cmocka_unit_test(float64_is_rounded_first),
        cmocka_unit_test(padding_does_not_count),
        cmocka_unit_test(sizes_of_many_blocks_and_scalars),
        cmocka_unit_test(others_are_refused_and_memory_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
