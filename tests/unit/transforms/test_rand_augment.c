/*
 * test_rand_augment.c -- every operation of torchvision's augmentations at every strength: amount
 * and pixels equal torchvision's, draws have its distributions
 *
 * tests/golden/image/rand_augment.bin has the amounts and CRC-32 values of the pixels;
 * tests/oracle/augmentations.py made it.
 */
#include <math.h>
#include <string.h>

#include "support/expect.h"
#include "support/formula_images.h"

#include "base/arena.h"
#include "base/file_io.h"
#include "transforms/rand_augment.h"

enum { SIZE = 96 };

static bool is_geometry(td_rand_op op)
{
    return op >= TD_RAND_SHEAR_X && op <= TD_RAND_ROTATE;
}

static bool has_sign(td_rand_op op)
{
    return op >= TD_RAND_SHEAR_X && op <= TD_RAND_SHARPNESS;
}

static bool has_strength(td_rand_op op)
{
    return op >= TD_RAND_SHEAR_X && op <= TD_RAND_SOLARIZE;
}

static void compare(td_rand_step step, td_filter filter, int source, const uint8_t **at)
{
    td_image img = { 0 }, scratch = { 0 };
    make_formula_image(source, &img);
    const size_t bytes = 3 * (size_t)img.width * (size_t)img.height;
    expect_ok(td_rand_apply(step, filter, &img, &scratch));
    if (crc32_of(img.px, bytes) != next_u32(at))
        fail_msg("operation %d by %g, filter %d, source %d", (int)step.op, step.amount, (int)filter,
                 source);
    td_image_release(&img);
    td_image_release(&scratch);
}

static void amounts_and_pixels_are_torchvisions(void **state)
{
    (void)state;
    char *bytes;
    size_t n;
    expect_ok(td_file_read("tests/golden/image/rand_augment.bin", 1 << 20, &bytes, &n));
    const uint8_t *at = (const uint8_t *)bytes;
    for (int kind = TD_AUTO_AUGMENT_IMAGENET; kind <= TD_AUTO_AUGMENT_TA_WIDE; kind++)
        for (int i = 0; i < TD_RAND_OPS; i++) {
            const td_rand_op op = (td_rand_op)i;
            const int bins = kind == TD_AUTO_AUGMENT_IMAGENET ? TD_RAND_BINS : 31;
            for (int bin = 0; bin < (has_strength(op) ? bins : 1); bin++) {
                const double amount = td_rand_amount((td_auto_augment)kind, op, bins, bin, SIZE);
                const uint32_t word = next_u32(&at);
                float wanted;
                memcpy(&wanted, &word, sizeof wanted);
                if (amount != (double)wanted)
                    fail_msg("kind %d, operation %d, strength %d: %.9g, wanted %.9g", kind, i, bin,
                             amount, (double)wanted);
                for (int s = 0; s < FORMULA_IMAGES; s++)
                    for (int f = TD_BILINEAR; f <= (is_geometry(op) ? TD_BICUBIC : TD_BILINEAR);
                         f++)
                        for (int sign = 1; sign >= (has_sign(op) ? -1 : 1); sign -= 2)
                            compare((td_rand_step){ op, sign * amount }, (td_filter)f, s, &at);
            }
        }
    assert_int_equal((const char *)at - bytes, n);
    td_free(bytes);
}

/* --- draws ------------------------------------------------------------------------------------ */

enum { DRAWS = 140000 };

static td_rand_augment draw(const td_rand_rule *rule, uint64_t i)
{
    td_rng r = td_rng_make(3, TD_RNG_AUGMENT, 1, i);
    return td_rand_augment_draw(rule, SIZE, &r);
}

/* five deviations of a binomial distribution */
static void expect_share(int n, int of, double p)
{
    const double mean = of * p, deviation = sqrt(of * p * (1 - p));
    if (!(fabs(n - mean) <= 5 * deviation + 1e-9))
        fail_msg("%d of %d, wanted %.0f +- %.0f", n, of, mean, 5 * deviation);
}

static void operations_and_signs_are_uniform(void **state)
{
    (void)state;
    const td_rand_rule ra = { .kind = TD_AUTO_AUGMENT_RA, .n_ops = 2, .bins = 31, .magnitude = 9 };
    int n[TD_RAND_OPS] = { 0 }, negative[TD_RAND_OPS] = { 0 }, same = 0;
    for (uint64_t i = 0; i < DRAWS / 2; i++) {
        const td_rand_augment a = draw(&ra, i);
        assert_int_equal(a.n, 2);
        same += a.step[0].op == a.step[1].op;
        for (int k = 0; k < 2; k++) {
            const td_rand_step s = a.step[k];
            n[s.op]++;
            negative[s.op] += s.amount < 0;
            assert_true(fabs(s.amount) == td_rand_amount(ra.kind, s.op, 31, 9, SIZE));
        }
    }
    for (int i = 0; i < TD_RAND_OPS; i++) {
        expect_share(n[i], DRAWS, i == TD_RAND_INVERT ? 0 : 1.0 / 14);
        expect_share(negative[i], n[i], has_sign((td_rand_op)i) ? 0.5 : 0);
    }
    expect_share(same, DRAWS / 2, 1.0 / 14);
}

static void trivial_strengths_are_uniform(void **state)
{
    (void)state;
    const td_rand_rule wide = { .kind = TD_AUTO_AUGMENT_TA_WIDE, .bins = 31 };
    int n[TD_RAND_OPS] = { 0 }, rotated[31] = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        const td_rand_augment a = draw(&wide, i);
        assert_int_equal(a.n, 1);
        n[a.step[0].op]++;
        if (a.step[0].op == TD_RAND_ROTATE)
            rotated[(int)lround(fabs(a.step[0].amount) / 4.5)]++;
    }
    for (int i = 0; i < TD_RAND_INVERT; i++)
        expect_share(n[i], DRAWS, 1.0 / 14);
    for (int i = 0; i < 31; i++)
        expect_share(rotated[i], n[TD_RAND_ROTATE], 1.0 / 31);
}

/* The shares of operations over all of torchvision's policies. */
static void policies_are_uniform(void **state)
{
    (void)state;
    const td_rand_rule policies = { .kind = TD_AUTO_AUGMENT_IMAGENET };
    int n[TD_RAND_OPS] = { 0 }, steps[3] = { 0 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        const td_rand_augment a = draw(&policies, i);
        assert_in_range(a.n, 0, 2);
        steps[a.n]++;
        for (int k = 0; k < a.n; k++)
            n[a.step[k].op]++;
    }
    assert_true(steps[0] > 0 && steps[1] > 0 && steps[2] > 0);
    /* expected number per image: the sum of an operation's probabilities / 25 */
    const double shear = 0.6 / 25, invert = 1.8 / 25, sharp = 0.4 / 25;
    expect_share(n[TD_RAND_SHEAR_X], DRAWS, shear);
    expect_share(n[TD_RAND_INVERT], DRAWS, invert);
    expect_share(n[TD_RAND_SHARPNESS], DRAWS, sharp);
    expect_share(n[TD_RAND_ROTATE], DRAWS, (0.6 + 0.8 + 0.2 + 0.8 + 0.4 + 0.8) / 25);
    expect_share(n[TD_RAND_CONTRAST], DRAWS, 2.0 / 25);
    assert_int_equal(n[TD_RAND_SHEAR_Y] + n[TD_RAND_TRANSLATE_X] + n[TD_RAND_IDENTITY], 0);
}

static void bad_transforms_are_errors(void **state)
{
    (void)state;
    td_image img = { 0 }, scratch = { 0 };
    double m[6] = { 1, 0, 0, 0, 1, 0 };
    expect_error(td_image_affine(&img, m, TD_BILINEAR, NULL, &scratch), TD_EARG, "0 x 0");
    expect_error(td_image_rotate(&img, 5, TD_BILINEAR, NULL, &scratch), TD_EARG, "0 x 0");
    make_formula_image(0, &img);
    m[2] = NAN;
    expect_error(td_image_affine(&img, m, TD_BILINEAR, NULL, &scratch), TD_EARG, "nan");
    expect_error(td_image_rotate(&img, 360, TD_BILINEAR, NULL, &scratch), TD_EARG, "360");
    td_alloc_fail_at(1);
    const td_status st =
        td_rand_apply((td_rand_step){ TD_RAND_ROTATE, 90 }, TD_BILINEAR, &img, &scratch);
    td_alloc_fail_at(0);
    assert_int_equal(st, TD_ENOMEM);
    assert_int_equal(img.width, 53);
    td_image_release(&img);
    td_image_release(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_and_pixels_are_torchvisions),
        cmocka_unit_test(operations_and_signs_are_uniform),
        cmocka_unit_test(trivial_strengths_are_uniform),
        cmocka_unit_test(policies_are_uniform),
        cmocka_unit_test(bad_transforms_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
