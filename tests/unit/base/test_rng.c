/* test_rng.c -- known answers of Philox, independence of streams, rough shape of distributions */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    /* clang-format off */
    /* Random123, tests/kat_vectors: philox4x32 10 */
    static const struct { uint32_t ctr[4], key[2], out[4]; } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 },
          { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        td_philox4x32(known[i].ctr, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void a_stream_is_the_counter_in_order(void **state)
{
    (void)state;
    td_rng r = td_rng_make(UINT64_C(0x1122334455667788), TD_RNG_CROP, 7, UINT64_C(0xab12345678));
    const uint32_t key[2] = { 0x55667788, 0x11223344 };
    for (uint32_t block = 0; block < 3; block++) {
        const uint32_t ctr[4] = { block, (uint32_t)TD_RNG_CROP << 24 | 0xab, 0x12345678, 7 };
        uint32_t out[4];
        td_philox4x32(ctr, key, out);
        for (int i = 0; i < 4; i++)
            assert_int_equal(td_rng_u32(&r), out[i]);
    }
    td_rng s = td_rng_make(0, TD_RNG_TEST, 0, 0), t = s;
    uint64_t low = td_rng_u32(&s), high = td_rng_u32(&s);
    assert_true(td_rng_u64(&t) == (low | high << 32));
}

static void each_part_of_the_name_matters(void **state)
{
    (void)state;
    const td_rng streams[] = {
        td_rng_make(1, TD_RNG_CROP, 2, 3),
        td_rng_make(2, TD_RNG_CROP, 2, 3),
        td_rng_make(UINT64_C(1) << 32 | 1, TD_RNG_CROP, 2, 3),
        td_rng_make(1, TD_RNG_SYNTH, 2, 3),
        td_rng_make(1, TD_RNG_CROP, 3, 3),
        td_rng_make(1, TD_RNG_CROP, UINT64_C(1) << 63 | 2, 3),
        td_rng_make(1, TD_RNG_CROP, 2, 4),
        td_rng_make(1, TD_RNG_CROP, 2, UINT64_C(1) << 40 | 3),
        td_rng_make(1, TD_RNG_CROP, 2, UINT64_C(1) << 63 | 3),
    };
    enum { N = sizeof streams / sizeof streams[0] };
    uint64_t first[N];
    for (int i = 0; i < N; i++) {
        td_rng r = streams[i];
        first[i] = td_rng_u64(&r);
        for (int k = 0; k < i; k++)
            assert_true(first[i] != first[k]);
    }
    td_rng again = td_rng_make(1, TD_RNG_CROP, 2, 3);
    assert_true(td_rng_u64(&again) == first[0]);
}

static void uniform_is_uniform(void **state)
{
    (void)state;
    enum { N = 200000, BINS = 20 };
    int bins[BINS] = { 0 };
    double sum = 0;
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++) {
        double u = td_rng_uniform(&r);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * BINS)]++;
        sum += u;
    }
    assert_true(fabs(sum / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    double chi = 0, expected = (double)N / BINS;
    for (int i = 0; i < BINS; i++)
        chi += (bins[i] - expected) * (bins[i] - expected) / expected;
    assert_true(chi < 50); /* 19 degrees of freedom: 1 in 10^4 is 50.8 */
}

static void below_has_no_bias(void **state)
{
    (void)state;
    td_rng r = td_rng_make(6, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < 100; i++)
        assert_true(td_rng_below(&r, 1) == 0);
    enum { N = 60000 };
    int bins[6] = { 0 };
    for (int i = 0; i < N; i++)
        bins[td_rng_below(&r, 6)]++;
    for (int i = 0; i < 6; i++)
        assert_true(abs(bins[i] - N / 6) < 500); /* 5.5 standard deviations */

    /* n = 3/4 of 2^64: a modulo would give the lower third twice as often */
    uint64_t n = UINT64_C(3) << 62;
    int low = 0;
    for (int i = 0; i < N; i++) {
        uint64_t v = td_rng_below(&r, n);
        assert_true(v < n);
        low += v < n / 3;
    }
    assert_true(abs(low - N / 3) < 700);
}

static void normal_is_normal(void **state)
{
    (void)state;
    enum { N = 200000 };
    double sum = 0, squares = 0, fourth = 0, pairs = 0, before = 0;
    int beyond = 0;
    td_rng r = td_rng_make(7, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++) {
        double x = td_rng_normal(&r);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        pairs += x * before;
        before = x;
        beyond += fabs(x) > 1.959963984540054;
    }
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(pairs / N) < 5 / sqrt(N));
    assert_true(fabs((double)beyond / N - 0.05) < 5 * sqrt(0.05 * 0.95 / N));
}

static void permuting_keeps_every_number(void **state)
{
    (void)state;
    enum { N = 1000 };
    int64_t items[N], again[N];
    int seen[N] = { 0 }, in_place = 0;
    td_rng r = td_rng_make(8, TD_RNG_SHUFFLE, 1, 0), same = r;
    td_rng_permute(&r, items, N);
    td_rng_permute(&same, again, N);
    assert_memory_equal(items, again, sizeof items);
    for (int i = 0; i < N; i++) {
        assert_in_range(items[i], 0, N - 1);
        seen[items[i]]++;
        in_place += items[i] == i;
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    assert_true(in_place < 10);
    td_rng_permute(&r, items, 0);
    td_rng_permute(&r, items, 1);
    assert_int_equal(items[0], 0);

    /* all six orders of three come equally often */
    int orders[27] = { 0 };
    for (int i = 0; i < 6000; i++) {
        td_rng_permute(&r, items, 3);
        orders[items[0] * 9 + items[1] * 3 + items[2]]++;
    }
    for (int i = 0; i < 27; i++)
        assert_true(orders[i] == 0 || abs(orders[i] - 1000) < 160);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(a_stream_is_the_counter_in_order),
        cmocka_unit_test(each_part_of_the_name_matters),
        cmocka_unit_test(uniform_is_uniform),
        cmocka_unit_test(below_has_no_bias),
        cmocka_unit_test(normal_is_normal),
        cmocka_unit_test(permuting_keeps_every_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
