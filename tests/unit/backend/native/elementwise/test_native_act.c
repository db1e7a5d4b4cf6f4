/*
 * test_native_act.c -- the loops of activations: the same bits whatever the instruction set and the
 * position of an element, and elementary functions good to a few last places
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/native/elementwise/native_act.h"
#include "backend/native/elementwise/native_act_bf16.h"
#include "base/half.h"
#include "base/rng.h"
#include "support/expect.h"

#define N 1037 /* not a multiple of any register */

static const td_act_attr attrs = { .a = -0.5, .b = 1.5 };

static const float specials[] = { NAN,     INFINITY, -INFINITY, 0.0f,    -0.0f,  1e-45f,  -1e-39f,
                                  1e30f,   -1e30f,   88.7f,     89.5f,   -87.5f, -103.5f, -105.0f,
                                  3.4e38f, -3.4e38f, 0.625f,    -0.625f, 1.0f,   -1.0f };

static void fill(uint64_t seed, float *x)
{
    td_rng r = td_rng_make(seed, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++)
        x[i] = (float)(td_rng_normal(&r) * (i % 3 ? 1.5 : 20));
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        x[7 + 31 * i] = specials[i];
}

/* the same bits, but for those of a NaN */
static void expect_same(int act, const char *isa, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("row %d, %s: element %d is %.9g, wanted %.9g", act, isa, (int)i, (double)a[i],
                     (double)b[i]);
}

static void all_instruction_sets_give_the_same_bits(void **state)
{
    static float x[N], dy[N], found[N], wanted[N];
    const td_native_act_simd *plain = td_native_act_simd_at(0), *f;
    (void)state;
    fill(1, x);
    fill(2, dy);
    for (int i = 0; (f = td_native_act_simd_at(i)); i++)
        plain = f;
    for (int i = 0; (f = td_native_act_simd_at(i)); i++)
        for (int act = 0; act < TD_ACT_COUNT; act++) {
            f->function[act](N, &attrs, x, found);
            plain->function[act](N, &attrs, x, wanted);
            expect_same(act, f->isa, found, wanted, N);
            f->gradient[act](N, &attrs, dy, x, found);
            plain->gradient[act](N, &attrs, dy, x, wanted);
            expect_same(act, f->isa, found, wanted, N);
        }
}

static void neither_position_nor_length_matters(void **state)
{
    static float x[N], all[N], part[N];
    const td_native_act_simd *f = td_native_act_simd_at(0);
    (void)state;
    fill(3, x);
    for (int act = 0; act < TD_ACT_COUNT; act++) {
        f->function[act](N, &attrs, x, all);
        for (int n = 0; n < 40; n++) {
            memcpy(part, x + n, (size_t)n * sizeof *part);
            f->function[act](n, &attrs, part, part); /* in place */
            expect_same(act, "in place", part, all + n, n);
        }
    }
}

static double gelu(double x)
{
    return x * erfc(-x / sqrt(2)) / 2;
}

static double expm1_of_elu(double x)
{
    return x < 0 ? expm1(x) : x;
}

/* the largest error over the result's size, or over `least` if that is larger */
static void expect_accurate(int act, double (*exact)(double), double lo, double hi, double least,
                            double limit)
{
    enum { STEPS = 200000 };
    const td_act_attr one = { .a = 1 };
    const td_native_act_simd *f = td_native_act_simd_at(0);
    double worst = 0, where = 0;
    for (int i = 0; i <= STEPS; i++) {
        float y;
        const float x = (float)(lo + (hi - lo) * i / STEPS);
        f->function[act](1, &one, &x, &y);
        const double wanted = exact((double)x);
        const double error = fabs((double)y - wanted) / fmax(fabs(wanted), least);
        if (!(error <= worst)) {
            worst = error;
            where = (double)x;
        }
    }
    if (!(worst <= limit))
        fail_msg("row %d: an error of %.3g at %.9g, limit %.3g", act, worst, where, limit);
}

static void functions_are_good_to_a_few_last_places(void **state)
{
    const double tiny = 1e-30;
    (void)state;
    expect_accurate(TD_ACT_exp, exp, -87, 88.7, tiny, 2e-7);
    expect_accurate(TD_ACT_exp, exp, -103, -87, 1e-38, 2e-7); /* subnormal results */
    expect_accurate(TD_ACT_log, log, 1e-6, 1e-3, tiny, 2e-7);
    expect_accurate(TD_ACT_log, log, 1e-3, 3, tiny, 3e-7);
    expect_accurate(TD_ACT_log, log, 3, 1e30, tiny, 2e-7);
    expect_accurate(TD_ACT_log, log, 1e-44, 1e-38, tiny, 2e-7);
    expect_accurate(TD_ACT_tanh, tanh, -10, 10, tiny, 3e-7);
    expect_accurate(TD_ACT_tanh, tanh, -1e-3, 1e-3, tiny, 2e-7);
    expect_accurate(TD_ACT_erf, erf, -5, 5, tiny, 5e-7);
    expect_accurate(TD_ACT_erf, erf, -1e-3, 1e-3, tiny, 3e-7);
    expect_accurate(TD_ACT_gelu, gelu, -8, 8, 1, 1e-6);
    expect_accurate(TD_ACT_elu, expm1_of_elu, -20, 2, tiny, 4e-7);
}

static float of(int act, float x)
{
    float y;
    td_native_act_simd_at(0)->function[act](1, &attrs, &x, &y);
    return y;
}

static void limits_are_exact(void **state)
{
    (void)state;
    assert_true(of(TD_ACT_exp, INFINITY) > FLT_MAX && of(TD_ACT_exp, 89) > FLT_MAX);
    assert_true(of(TD_ACT_exp, -INFINITY) == 0 && of(TD_ACT_exp, 0) == 1);
    assert_true(of(TD_ACT_log, 0) < -FLT_MAX && of(TD_ACT_log, INFINITY) > FLT_MAX);
    assert_true(isnan(of(TD_ACT_log, -1)) && of(TD_ACT_log, 1) == 0);
    assert_true(of(TD_ACT_tanh, 50) == 1 && of(TD_ACT_tanh, -INFINITY) == -1);
    assert_true(of(TD_ACT_erf, INFINITY) == 1 && of(TD_ACT_erf, -6) == -1 &&
                of(TD_ACT_erf, 3e38f) == 1);
    assert_true(of(TD_ACT_sigmoid, -INFINITY) == 0 && of(TD_ACT_sigmoid, INFINITY) == 1);
    for (int act = 0; act < TD_ACT_COUNT; act++)
        assert_true(isnan(of(act, NAN)));
}

/* --- bfloat16 --------------------------------------------------------------------------------- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double slope_of_silu(double x)
{
    const double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

static double slope_of_gelu(double x)
{
    return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
}

/* all numbers of bfloat16 whose size is at most `most`: y against `exact`, relative to the result
   or to `least`; half of a last place is 3.9e-3 of a power of two */
static void expect_bf16(const char *name, const uint16_t *x, const uint16_t *y, int64_t n,
                        double (*exact)(double), double most, double least)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)td_bf16_to_f32(x[i]), found = (double)td_bf16_to_f32(y[i]);
        if (!(fabs(v) <= most))
            continue;
        const double wanted = exact(v);
        if (!(fabs(found - wanted) <= 4.3e-3 * fmax(fabs(wanted), least)))
            fail_msg("%s of %.6g is %.6g, wanted %.6g", name, v, found, wanted);
    }
}

static void bfloat16_is_as_accurate_as_it_can_be(void **state)
{
    static uint16_t x[1 << 16], y[1 << 16], dy[1 << 16];
    const int64_t n = 1 << 16;
    const td_native_act_loops *gelus = td_native_act_bf16(TD_ACT_gelu);
    const td_native_act_loops *silus = td_native_act_bf16(TD_ACT_silu);
    (void)state;
    if (!gelus || !silus)
        skip();
    for (int64_t i = 0; i < n; i++) {
        x[i] = (uint16_t)i;
        dy[i] = td_f32_to_bf16(1);
    }
    gelus->function(n, x, y);
    expect_bf16("gelu", x, y, n, gelu, 1e30, 1e-30);
    gelus->gradient(n, dy, x, y);
    expect_bf16("gelu's slope", x, y, n, slope_of_gelu, 1e15, 1e-2);
    silus->function(n, x, y);
    expect_bf16("silu", x, y, n, silu, 1e30, 1e-30);
    silus->gradient(n, dy, x, y);
    expect_bf16("silu's slope", x, y, n, slope_of_silu, 1e30, 1e-2);
    assert_true(td_native_act_bf16(TD_ACT_mish) == NULL);
}

/* rows of every length to two registers and of one past, among them numbers far apart */
static void softmax_of_bfloat16_sums_to_one(void **state)
{
    enum { MOST = 37 };
    const td_native_softmax_loops *f = td_native_softmax_bf16();
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    uint16_t x[MOST], y[MOST + 1], dx[MOST + 1];
    float room[MOST];
    (void)state;
    if (!f)
        skip();
    for (int64_t n = 1; n <= MOST; n++) {
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < n; i++) {
            x[i] = td_f32_to_bf16((float)(td_rng_normal(&r) * (n % 5 ? 2 : 60)));
            sum += exp((double)td_bf16_to_f32(x[i]));
        }
        y[n] = dx[n] = 0x1234; /* is not written */
        f->function(n, x, y, room);
        f->gradient(n, x, y, dx);
        for (int64_t i = 0; i < n; i++) {
            const double wanted = exp((double)td_bf16_to_f32(x[i])) / sum;
            assert_true(fabs((double)td_bf16_to_f32(y[i]) - wanted) <= 4.3e-3 * wanted + 1e-30);
            dot += (double)td_bf16_to_f32(x[i]) * (double)td_bf16_to_f32(y[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            const double v = (double)td_bf16_to_f32(y[i]);
            const double wanted = v * ((double)td_bf16_to_f32(x[i]) - dot);
            assert_true(fabs((double)td_bf16_to_f32(dx[i]) - wanted) <=
                        4.3e-3 * fabs(wanted) + 1e-5 * v * (1 + fabs(dot)));
        }
        assert_true(y[n] == 0x1234 && dx[n] == 0x1234);
    }
    x[3] = td_f32_to_bf16(NAN); /* shows in the whole row */
    f->function(MOST, x, y, room);
    for (int i = 0; i < MOST; i++)
        assert_true(isnan(td_bf16_to_f32(y[i])));
    x[3] = td_f32_to_bf16(-INFINITY);
    f->function(MOST, x, y, room);
    assert_true(y[3] == 0 && isfinite(td_bf16_to_f32(y[0])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_instruction_sets_give_the_same_bits),
        cmocka_unit_test(neither_position_nor_length_matters),
        cmocka_unit_test(functions_are_good_to_a_few_last_places),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(bfloat16_is_as_accurate_as_it_can_be),
        cmocka_unit_test(softmax_of_bfloat16_sums_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
