/*
 * test_timm_augment.c -- every operation of timm's RandAugment: amount and pixels equal timm's,
 * draws have its distributions, names of policies are parsed or refused
 *
 * tests/golden/image/timm_augment.bin has the amounts and CRC-32 values of the pixels;
 * tests/oracle/augmentations.py made it.
 */
#include <math.h>
#include <string.h>

#include "support/expect.h"
#include "support/formula_images.h"

#include "base/arena.h"
#include "base/file_io.h"
#include "transforms/timm_augment.h"

static const uint8_t fill[3] = { 124, 116, 104 };

static bool is_geometry(td_timm_op op)
{
    return op == TD_TIMM_ROTATE || op >= TD_TIMM_SHEAR_X;
}

static void compare(td_timm_step step, int source, const uint8_t **at)
{
    td_image img = { 0 }, scratch = { 0 };
    make_formula_image(source, &img);
    const size_t bytes = 3 * (size_t)img.width * (size_t)img.height;
    expect_ok(td_timm_step_apply(step, fill, &img, &scratch));
    if (crc32_of(img.px, bytes) != next_u32(at))
        fail_msg("operation %d by %g, filter %d, source %d", (int)step.op, step.amount,
                 (int)step.filter, source);
    td_image_release(&img);
    td_image_release(&scratch);
}

static double next_f64(const uint8_t **at)
{
    double v;
    memcpy(&v, *at, sizeof v);
    *at += sizeof v;
    return v;
}

static void amounts_and_pixels_are_timms(void **state)
{
    (void)state;
    static const double magnitudes[] = { 0,   0.25, 1,   2.4, 3,     4.5, 5, 6.999,
                                         7.5, 8,    9.1, 10,  13.37, 20,  30 };
    char *bytes;
    size_t n;
    expect_ok(td_file_read("tests/golden/image/timm_augment.bin", 1 << 20, &bytes, &n));
    const uint8_t *at = (const uint8_t *)bytes;
    for (int inc = 0; inc < 2; inc++)
        for (int i = 0; i < TD_TIMM_OPS; i++)
            for (size_t k = 0; k < sizeof magnitudes / sizeof *magnitudes; k++)
                for (int sign = 0; sign < 2; sign++) {
                    const td_timm_op op = (td_timm_op)i;
                    const double amount = td_timm_amount(op, inc, magnitudes[k], sign);
                    const double wanted = next_f64(&at);
                    if (amount != wanted)
                        fail_msg("operation %d, magnitude %g, sign %d: %.17g, wanted %.17g", i,
                                 magnitudes[k], sign, amount, wanted);
                    for (int s = 0; s < FORMULA_IMAGES; s++)
                        for (int f = TD_BILINEAR; f <= (is_geometry(op) ? TD_BICUBIC : TD_BILINEAR);
                             f++)
                            compare((td_timm_step){ op, amount, (td_filter)f }, s, &at);
                }
    assert_int_equal((const char *)at - bytes, n);
    td_free(bytes);
}

/* --- draws ------------------------------------------------------------------------------------ */

enum { DRAWS = 150000 };

/* five deviations of a binomial distribution */
static void expect_share(int n, int of, double p)
{
    const double mean = of * p, deviation = sqrt(of * p * (1 - p));
    if (!(fabs(n - mean) <= 5 * deviation + 1e-9))
        fail_msg("%d of %d, wanted %.0f +- %.0f", n, of, mean, 5 * deviation);
}

typedef struct {
    int n[TD_TIMM_OPS], total, at_bound, negative, bicubic;
    double sum, squares; /* of the magnitudes of rotations */
} seen;

static seen draw_all(const char *policy, const td_filter *filter)
{
    seen s = { .total = 0 };
    td_timm_rule rule;
    expect_ok(td_timm_rule_parse(policy, &rule));
    for (uint64_t i = 0; i < DRAWS; i++) {
        td_rng r = td_rng_make(5, TD_RNG_AUGMENT, 2, i);
        const td_timm_augment a = td_timm_draw(&rule, filter, &r);
        assert_in_range(a.n, 0, rule.n_ops);
        for (int k = 0; k < a.n; k++) {
            const td_timm_step t = a.step[k];
            s.n[t.op]++;
            s.total++;
            if (t.op != TD_TIMM_ROTATE)
                continue;
            const double m = fabs(t.amount) / 3;
            s.at_bound += fabs(t.amount) == 30;
            s.negative += t.amount < 0;
            s.bicubic += t.filter == TD_BICUBIC;
            s.sum += m;
            s.squares += m * m;
        }
    }
    for (int i = 0; i < TD_TIMM_OPS; i++)
        expect_share(s.n[i], DRAWS, rule.n_ops * rule.p / TD_TIMM_OPS);
    return s;
}

static void draws_are_distributed_as_timms(void **state)
{
    (void)state;
    seen s = draw_all("rand-m7-mstd0.5-inc1", NULL);
    int n = s.n[TD_TIMM_ROTATE];
    double mean = s.sum / n, deviation = sqrt(s.squares / n - mean * mean);
    expect_share(s.total, 2 * DRAWS, 0.5);
    expect_share(s.negative, n, 0.5);
    expect_share(s.bicubic, n, 0.5);
    assert_int_equal(s.at_bound, 0);
    assert_true(fabs(mean - 7) < 5 * 0.5 / sqrt(n) && fabs(deviation - 0.5) < 0.02);

    /* half of the magnitudes are at their bound, 10; the others are half a normal distribution */
    const td_filter bicubic = TD_BICUBIC;
    s = draw_all("rand-m10-n3-mstd0.5", &bicubic);
    n = s.n[TD_TIMM_ROTATE];
    mean = s.sum / n;
    expect_share(s.at_bound, n, 0.5);
    assert_int_equal(s.bicubic, n);
    assert_true(fabs(mean - (10 - 0.5 / sqrt(2 * 3.14159265358979323846))) < 0.01);

    /* uniform magnitudes, each operation with certainty */
    s = draw_all("rand-m9-mstd101-p1", NULL);
    n = s.n[TD_TIMM_ROTATE];
    mean = s.sum / n, deviation = sqrt(s.squares / n - mean * mean);
    assert_int_equal(s.total, 2 * DRAWS);
    assert_true(fabs(mean - 4.5) < 0.15 && fabs(deviation - 9 / sqrt(12)) < 0.1);

    s = draw_all("rand-m4", NULL);
    n = s.n[TD_TIMM_ROTATE];
    assert_true(fabs(s.sum / n - 4) < 1e-9);
}

/* --- names ------------------------------------------------------------------------------------ */

static void names_are_parsed(void **state)
{
    (void)state;
    td_timm_rule r;
    expect_ok(td_timm_rule_parse("rand", &r));
    assert_true(r.n_ops == 2 && r.magnitude == 10 && r.most == 10 && r.p == 0.5 &&
                r.deviation == 0 && !r.is_increasing);
    expect_ok(td_timm_rule_parse("rand-inc1-mmax20-n3-p0.25-mstd1.5-m15", &r));
    assert_true(r.n_ops == 3 && r.magnitude == 15 && r.most == 20 && r.p == 0.25 &&
                r.deviation == 1.5 && r.is_increasing);
    static const char *const wrong[] = {
        "",          "Rand",     "rand-",        "rand-m",    "rand-m31",      "rand-m-1",
        "rand-m7.5", "rand-n0",  "rand-n17",     "rand-p1.1", "rand-inc2",     "rand-mstd",
        "rand-x3",   "rand--m3", "rand-m7-",     "rand-m7a",  "rand-tweights", "original-mstd0.5",
        "augmix-m5", "3a",       "rand-mstdinf", "rand-m1e1", "rand-mmax0",    "rand-mstd1001",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_error(td_timm_rule_parse(wrong[i], &r), TD_EUSAGE, wrong[i]);
        assert_int_equal(r.n_ops, 0);
    }
}

static void memory_may_fail(void **state)
{
    (void)state;
    td_image img = { 0 }, scratch = { 0 };
    make_formula_image(0, &img);
    for (int op = 0; op < TD_TIMM_OPS; op++) {
        if (!is_geometry((td_timm_op)op))
            continue;
        td_alloc_fail_at(1);
        const td_status st = td_timm_step_apply((td_timm_step){ (td_timm_op)op, 0.2, TD_BILINEAR },
                                                fill, &img, &scratch);
        td_alloc_fail_at(0);
        assert_int_equal(st, TD_ENOMEM);
        assert_int_equal(img.width, 53);
    }
    td_image_release(&img);
    td_image_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_and_pixels_are_timms),
        cmocka_unit_test(draws_are_distributed_as_timms),
        cmocka_unit_test(names_are_parsed),
        cmocka_unit_test(memory_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
