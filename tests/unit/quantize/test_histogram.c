/*
 * test_histogram.c -- magnitudes counted, and the ranges of the three methods
 *
 * The expected ranges are those of a separate program that follows NVIDIA's pytorch-quantization
 * (histogram calibration) on the same numbers and bins.
 */
#include "quantize/histogram.h"

#include <math.h>

#include "base/arena.h"
#include "support/expect.h"

enum { N = 10007 }; /* a prime: i * 7919 visits every residue */

static float number(int i)
{
    const float u = (float)(i * 7919LL % N) / (float)N, s = u * u;
    return (i % 2 ? -1.0F : 1.0F) * (s * s * 20);
}

static td_histogram *of_numbers(int from, int to, int step)
{
    td_histogram *h = TD_NEW(td_histogram);
    assert_non_null(h);
    for (int i = from; i < to; i += step) {
        const float x = number(i);
        expect_ok(td_histogram_add(h, &x, 1, 0));
    }
    return h;
}

static void ranges_are_those_of_the_methods(void **state)
{
    static const struct {
        td_range_method method;
        double percentile;
        int steps;
        double range;
    } rows[] = {
        { TD_RANGE_MAX, 0, 255, 19.99200439453125 },
        { TD_RANGE_PERCENTILE, 50, 255, 1.25 },
        { TD_RANGE_PERCENTILE, 90, 127, 13.125 },
        { TD_RANGE_PERCENTILE, 99, 255, 19.21875 },
        { TD_RANGE_PERCENTILE, 99.9, 255, 19.921875 },
        { TD_RANGE_PERCENTILE, 100, 255, 19.99200439453125 },
        { TD_RANGE_MSE, 0, 255, 19.9921875 },
        { TD_RANGE_MSE, 0, 127, 19.8515625 },
        { TD_RANGE_MSE, 0, 15, 19.0546875 },
    };
    (void)state;
    td_histogram *h = of_numbers(0, N, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(fabs(td_histogram_range(h, rows[i].method, rows[i].percentile, rows[i].steps) -
                         rows[i].range) < 1e-12);
    assert_true(fabs(td_histogram_snr_db(h, 19.9921875, 255) - 49.877512417365594) < 1e-9);
    assert_true(fabs(td_histogram_snr_db(h, 19.0546875, 15) - 26.491415243970565) < 1e-9);
    td_free(h);
}

static void the_order_of_values_does_not_matter(void **state)
{
    (void)state;
    td_histogram *all = of_numbers(0, N, 1), *even = of_numbers(0, N, 2),
                 *odd = of_numbers(1, N, 2);
    td_histogram *merged = TD_NEW(td_histogram);
    assert_non_null(merged);
    td_histogram_merge(merged, odd);
    td_histogram_merge(merged, even);
    assert_int_equal(merged->n, N);
    assert_int_equal(merged->exponent, all->exponent);
    assert_memory_equal(merged->bins, all->bins, sizeof all->bins);
    td_free(all);
    td_free(even);
    td_free(odd);
    td_free(merged);
}

static void odd_values_are_handled(void **state)
{
    const float zeros[4] = { 0, -0.0F, 0, 0 }, tiny[2] = { 1e-40F, -3e-40F },
                huge[2] = { 3e38F, 1 };
    const float nan[2] = { 1, NAN }, infinite[2] = { -INFINITY, 1 };
    (void)state;
    td_histogram *h = TD_NEW(td_histogram);
    assert_non_null(h);
    expect_ok(td_histogram_add(h, zeros, 4, 3)); /* three of them are padding */
    assert_int_equal(h->n, 1);
    assert_true(td_histogram_range(h, TD_RANGE_MSE, 0, 255) == 1);
    expect_ok(td_histogram_add(h, tiny, 2, 0));
    expect_ok(td_histogram_add(h, huge, 2, 0));
    assert_int_equal(h->n, 5);
    assert_true(h->bins[0] == 4);
    assert_true(td_histogram_range(h, TD_RANGE_MAX, 0, 255) == (double)3e38F);
    assert_int_equal(td_histogram_add(h, nan, 2, 0), TD_ENUMERIC);
    assert_int_equal(td_histogram_add(h, infinite, 2, 0), TD_ENUMERIC);
    assert_int_equal(h->n, 5);
    td_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_those_of_the_methods),
        cmocka_unit_test(the_order_of_values_does_not_matter),
        cmocka_unit_test(odd_values_are_handled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
