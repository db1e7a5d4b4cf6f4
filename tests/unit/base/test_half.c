/*
 * test_half.c -- every 16-bit pattern, and rounding against a search in the table of all values;
 * many at once against one at a time
 *
 * TANDEM_HALF_ALL=1 compares all 2^32 floats instead of a dense subset.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"

typedef struct {
    int exponent_bits, fraction_bits;
    uint16_t (*narrow)(float);
    float (*widen)(uint16_t);
} format;

static const format f16 = { 5, 10, td_f32_to_f16, td_f16_to_f32 };
static const format bf16 = { 8, 7, td_f32_to_bf16, td_bf16_to_f32 };

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static uint16_t infinity_of(const format *f)
{
    return (uint16_t)(((1 << f->exponent_bits) - 1) << f->fraction_bits);
}

/* the value of a finite pattern without its sign, by the definition; infinity as the next power */
static double value_of(const format *f, uint16_t u)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1, exponent = u >> f->fraction_bits;
    int fraction = u & ((1 << f->fraction_bits) - 1);
    if (exponent == 0)
        return ldexp(fraction, 1 - bias - f->fraction_bits);
    return ldexp(fraction + (1 << f->fraction_bits), exponent - bias - f->fraction_bits);
}

/* to nearest, ties to even, by bisection over all values */
static uint16_t slow_narrow(const format *f, float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0, low = 0, high = infinity_of(f);
    double v = fabs((double)x);
    if (v >= value_of(f, high))
        return sign | high;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (value_of(f, middle) <= v)
            low = middle;
        else
            high = middle;
    }
    double below = v - value_of(f, low), above = value_of(f, high) - v;
    return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

static void every_pattern_comes_back(const format *f)
{
    for (uint32_t u = 0; u <= 0xffff; u++) {
        uint16_t magnitude = u & 0x7fff, infinity = infinity_of(f);
        float x = f->widen((uint16_t)u);
        assert_int_equal(signbit(x) != 0, u >> 15);
        if (magnitude < infinity) {
            assert_true(fabs((double)x) == value_of(f, magnitude));
            assert_int_equal(f->narrow(x), u);
        } else if (magnitude == infinity) {
            assert_true(isinf(x));
            assert_int_equal(f->narrow(x), u);
        } else {
            uint16_t quiet = (uint16_t)(1 << (f->fraction_bits - 1));
            assert_true(isnan(x));
            assert_true(bits_of(x) & 0x00400000);
            assert_int_equal(f->narrow(x), u | quiet);
        }
    }
}

static void check_rounding(const format *f, float x)
{
    uint16_t got = f->narrow(x), wanted = slow_narrow(f, x);
    if (got != wanted)
        fail_msg("%a (%08x) became %04x, wanted %04x", (double)x, bits_of(x), got, wanted);
}

static void rounding_is_exact(const format *f)
{
    /* each value, the middle to the next one, and the floats beside both */
    for (uint16_t u = 0; u < infinity_of(f); u++) {
        double v = value_of(f, u), next = value_of(f, (uint16_t)(u + 1));
        float points[2] = { (float)v, (float)(v + (next - v) / 2) };
        for (int i = 0; i < 2; i++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float x = (float)sign * points[i];
                check_rounding(f, x);
                check_rounding(f, nextafterf(x, INFINITY));
                check_rounding(f, nextafterf(x, -INFINITY));
            }
    }
    /* a walk over all floats */
    for (uint64_t u = 0; u <= UINT32_MAX; u += 9973)
        if (!isnan(float_of((uint32_t)u)))
            check_rounding(f, float_of((uint32_t)u));
    check_rounding(f, INFINITY);
    check_rounding(f, -INFINITY);
    check_rounding(f, 3.40282347e38f);
    check_rounding(f, 1e-45f);
    check_rounding(f, -0.0f);
}

static void nan_stays_nan(const format *f)
{
    int dropped = 23 - f->fraction_bits;
    for (uint32_t payload = 1; payload < 0x800000; payload += payload < 0x4000 ? 1 : 4099)
        for (uint32_t sign = 0; sign <= 1; sign++) {
            uint16_t got = f->narrow(float_of(sign << 31 | 0x7f800000 | payload));
            uint32_t kept = payload >> dropped, quiet = 1u << (f->fraction_bits - 1);
            assert_int_equal(got, sign << 15 | infinity_of(f) | kept | quiet);
        }
}

static void f16_patterns(void **state)
{
    (void)state;
    every_pattern_comes_back(&f16);
}

static void f16_rounding(void **state)
{
    (void)state;
    rounding_is_exact(&f16);
}

static void f16_nan(void **state)
{
    (void)state;
    nan_stays_nan(&f16);
}

static void bf16_patterns(void **state)
{
    (void)state;
    every_pattern_comes_back(&bf16);
}

static void bf16_rounding(void **state)
{
    (void)state;
    rounding_is_exact(&bf16);
}

static void bf16_nan(void **state)
{
    (void)state;
    nan_stays_nan(&bf16);
}

static void known_values(void **state)
{
    (void)state;
    assert_int_equal(td_f32_to_f16(1.0f), 0x3c00);
    assert_int_equal(td_f32_to_f16(-2.0f), 0xc000);
    assert_int_equal(td_f32_to_f16(65504.0f), 0x7bff);
    assert_int_equal(td_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(td_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(td_f32_to_f16(0x1p-24f), 0x0001);
    assert_int_equal(td_f32_to_f16(0x1p-25f), 0x0000);
    assert_int_equal(td_f32_to_f16(0x1.000002p-25f), 0x0001);
    assert_int_equal(td_f32_to_bf16(1.0f), 0x3f80);
    assert_int_equal(td_f32_to_bf16(3.40282347e38f), 0x7f80);
}

/* --- many at once ----------------------------------------------------------------------------- */

#define BATCH 4096

static void compare_narrow(const td_half_simd *s, const uint32_t *u, size_t n)
{
    static float x[BATCH];
    static uint16_t bf[BATCH], f[BATCH];
    memcpy(x, u, n * sizeof *u);
    s->f32_to_bf16(x, n, bf);
    s->f32_to_f16(x, n, f);
    for (size_t i = 0; i < n; i++) {
        if (bf[i] != td_f32_to_bf16(x[i]))
            fail_msg("%s: %08x became bf16 %04x, wanted %04x", s->name, u[i], bf[i],
                     td_f32_to_bf16(x[i]));
        if (f[i] != td_f32_to_f16(x[i]))
            fail_msg("%s: %08x became f16 %04x, wanted %04x", s->name, u[i], f[i],
                     td_f32_to_f16(x[i]));
    }
}

/* sign, exponent and the
   upper bits of the fraction, and around each boundary that either type rounds at */
static void compare_boundaries(const td_half_simd *s)
{
    uint32_t u[BATCH];
    size_t n = 0;
    for (uint32_t high = 0; high < 1u << 19; high++) /* sign, exponent, 10 bits */
        for (int low = -2; low <= 2; low++) {
            static const uint32_t at[] = { 0x0000, 0x1000 }; /* a value of f16, and the middle */
            for (int k = 0; k < 2; k++) {
                u[n++] = (high << 13) + at[k] + (uint32_t)low;
                if (n == BATCH) {
                    compare_narrow(s, u, n);
                    n = 0;
                }
            }
        }
    compare_narrow(s, u, n);
}

static void compare_walk(const td_half_simd *s, uint64_t step)
{
    uint32_t u[BATCH];
    size_t n = 0;
    for (uint64_t v = 0; v <= UINT32_MAX; v += step) {
        u[n++] = (uint32_t)v;
        if (n == BATCH) {
            compare_narrow(s, u, n);
            n = 0;
        }
    }
    compare_narrow(s, u, n);
}

static void narrow_n_is_narrow(void **state)
{
    (void)state;
    bool is_full = getenv("TANDEM_HALF_ALL") != NULL;
    const td_half_simd *s;
    for (int i = 0; (s = td_half_simd_at(i)); i++) {
        compare_boundaries(s);
        compare_walk(s, is_full ? 1 : 997);
    }
}

static void widen_n_is_widen(void **state)
{
    (void)state;
    static uint16_t u[65536];
    static float x[65536];
    const td_half_simd *s;
    for (uint32_t i = 0; i < 65536; i++)
        u[i] = (uint16_t)i;
    for (int k = 0; (s = td_half_simd_at(k)); k++) {
        s->bf16_to_f32(u, 65536, x);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(bits_of(x[i]), bits_of(td_bf16_to_f32(u[i])));
        s->f16_to_f32(u, 65536, x);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(bits_of(x[i]), bits_of(td_f16_to_f32(u[i])));
    }
}

/* every length up to 70 at every offset of a vector, nothing written beside */
static void check_tail(const td_half_simd *s, size_t from, size_t n)
{
    float wide[160], back[160];
    uint16_t bf[160], f[160];
    for (size_t i = 0; i < 160; i++)
        wide[i] = (float)i * 0.37f - 20;
    memset(bf, 0x5a, sizeof bf);
    memset(f, 0x5a, sizeof f);
    s->f32_to_bf16(wide + from, n, bf + from);
    s->f32_to_f16(wide + from, n, f + from);
    for (size_t i = 0; i < 160; i++) {
        bool is_inside = i >= from && i < from + n;
        assert_int_equal(bf[i], is_inside ? td_f32_to_bf16(wide[i]) : 0x5a5a);
        assert_int_equal(f[i], is_inside ? td_f32_to_f16(wide[i]) : 0x5a5a);
    }
    memset(back, 0x5a, sizeof back);
    s->bf16_to_f32(bf + from, n, back + from);
    for (size_t i = 0; i < 160; i++)
        assert_int_equal(bits_of(back[i]),
                         i >= from && i < from + n ? bits_of(td_bf16_to_f32(bf[i])) : 0x5a5a5a5a);
    memset(back, 0x5a, sizeof back);
    s->f16_to_f32(f + from, n, back + from);
    for (size_t i = 0; i < 160; i++)
        assert_int_equal(bits_of(back[i]),
                         i >= from && i < from + n ? bits_of(td_f16_to_f32(f[i])) : 0x5a5a5a5a);
}

static void tails(void **state)
{
    (void)state;
    const td_half_simd *s;
    for (int k = 0; (s = td_half_simd_at(k)); k++)
        for (size_t from = 0; from < 33; from++)
            for (size_t n = 0; n <= 70; n++)
                check_tail(s, from, n);
}

/* the plain doors take the best set */
static void doors(void **state)
{
    (void)state;
    float x[3] = { 1, -65520, 0x1p-130f }, back[3];
    uint16_t h[3];
    td_f32_to_f16_n(x, 3, h);
    assert_int_equal(h[0], 0x3c00);
    assert_int_equal(h[1], 0xfc00);
    assert_int_equal(h[2], 0);
    td_f16_to_f32_n(h, 3, back);
    assert_true(back[0] == 1 && isinf(back[1]) && back[2] == 0);
    td_f32_to_bf16_n(x, 3, h);
    assert_int_equal(h[2], 0x0008); /* 2^-130 is a subnormal and stays */
    td_bf16_to_f32_n(h, 3, back);
    assert_true(back[2] == 0x1p-130f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_patterns),
        cmocka_unit_test(f16_rounding),
        cmocka_unit_test(f16_nan),
        cmocka_unit_test(bf16_patterns),
        cmocka_unit_test(bf16_rounding),
        cmocka_unit_test(bf16_nan),
        cmocka_unit_test(known_values),
        cmocka_unit_test(narrow_n_is_narrow),
        cmocka_unit_test(widen_n_is_widen),
        cmocka_unit_test(tails),
        cmocka_unit_test(doors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
