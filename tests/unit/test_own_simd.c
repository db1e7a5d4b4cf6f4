/*
 * test_own_simd.c -- the inner loops give the same bits whatever the instruction set
 *
 * What is right is decided by the problem lines (tests/ops); here every variant this machine can
 * run must agree with the plain one to the last bit, NaN and infinity included.
 */
#include <math.h>
#include <stdio.h>

#include "backend/own/own.h"
#include "base/rng.h"
#include "support/expect.h"

#define PIXELS  1500 /* more than one chunk, and no multiple of 4 after it */
#define FLOATS  (PIXELS * 16)
#define SIDE    21
#define WINDOWS 11 /* of 3 with stride 2 and pad 1 on 21 */

typedef struct {
    float x[FLOATS], y[FLOATS], z[FLOATS]; /* in */
    float a[FLOATS], b[FLOATS];            /* out */
    uint8_t mask_in[FLOATS / 8], mask[FLOATS / 8], where[FLOATS];
    double s[16], t[16];
    float lanes[16];
} area;

static area *new_area(void)
{
    area *m = td_alloc(1, sizeof *m);
    assert_non_null(m);
    td_rng r = td_rng_make(3, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < FLOATS; i++) {
        m->x[i] = (float)(td_rng_normal(&r) + 3);
        m->y[i] = (float)td_rng_normal(&r);
        m->z[i] = (float)td_rng_normal(&r);
        m->mask_in[i / 8] = (uint8_t)td_rng_u32(&r);
    }
    m->y[5] = NAN;
    m->y[PIXELS * 4] = INFINITY;
    m->y[PIXELS * 4 + 1] = -INFINITY;
    m->y[17] = -0.0f;
    return m;
}

static td_own_coefs coefs(void)
{
    td_own_coefs c;
    for (int i = 0; i < 16; i++) {
        c.mean[i] = 3 + 0.01f * (float)i;
        c.scale[i] = 0.5f + 0.1f * (float)i;
        c.shift[i] = 0.3f * (float)i - 2;
        c.slope[i] = 0.02f * (float)i;
    }
    return c;
}

typedef void (*step)(const td_own_simd *f, area *m);

static td_own_plane plane_of(const td_own_simd *f, bool is_streamed)
{
    return (td_own_plane){ PIXELS, f->lanes, is_streamed };
}

static void stats(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    f->norm_stats(&v, m->x, m->s, m->t);
}

static void apply_each(const td_own_simd *f, area *m, bool is_streamed)
{
    const td_own_plane v = plane_of(f, is_streamed);
    const td_own_coefs c = coefs();
    f->norm_apply(&v, &c, m->y, m->z, m->a, m->mask);
    f->norm_apply(&v, &c, m->x, NULL, m->b, NULL);
}

static void apply(const td_own_simd *f, area *m)
{
    apply_each(f, m, false);
}

static void apply_streamed(const td_own_simd *f, area *m)
{
    apply_each(f, m, true);
}

static void apply_relu(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    const td_own_coefs c = coefs();
    f->norm_apply(&v, &c, m->y, NULL, m->a, m->mask);
}

static void grad_sums(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    const td_own_coefs c = coefs();
    f->norm_grad_sums(&v, &c, m->z, m->mask_in, m->x, m->s, m->t);
}

static void grad_sums_unmasked(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    const td_own_coefs c = coefs();
    f->norm_grad_sums(&v, &c, m->z, NULL, m->x, m->s, m->t);
}

static void grad_apply(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    const td_own_coefs c = coefs();
    f->norm_grad_apply(&v, &c, m->y, m->mask_in, m->x, m->a, m->b);
}

static void grad_apply_streamed(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, true);
    const td_own_coefs c = coefs();
    f->norm_grad_apply(&v, &c, m->z, m->mask_in, m->x, m->a, NULL);
    f->norm_grad_apply(&v, &c, m->z, NULL, m->x, m->b, NULL);
}

static void sum(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    f->sum(&v, m->x, 1.0 / 3, m->lanes);
}

static void dot(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, false);
    f->dot(&v, m->x, m->z, m->lanes);
}

static void mul_and_fill(const td_own_simd *f, area *m)
{
    const td_own_plane v = plane_of(f, true), w = plane_of(f, false);
    f->mul(&v, m->y, m->z, m->a);
    f->fill(&w, m->z, 0.25f, m->b);
}

static void max_pool(const td_own_simd *f, area *m)
{
    const td_own_window v = { SIDE, SIDE, WINDOWS, WINDOWS, 3, 2, 1 };
    for (int64_t p = 0; p < WINDOWS; p++)
        f->max_pool_row(&v, m->y, p, m->a + p * WINDOWS * f->lanes,
                        m->where + p * WINDOWS * f->lanes);
    for (int64_t h = 0; h < SIDE; h++)
        f->max_pool_grad_row(&v, m->z, m->where, h, m->b + h * SIDE * f->lanes);
}

static void flat(const td_own_simd *f, area *m)
{
    f->add(FLOATS - 3, m->x, m->y, m->a, true);
    f->relu(FLOATS - 3, m->y, m->b, false);
    f->relu_grad(FLOATS - 5, m->x, m->y, m->a, false);
}

static void sgd(const td_own_simd *f, area *m)
{
    const td_own_step plain = { 0.875, 3e-5, 0.1, false }, nesterov = { 0.9, 1e-4, 0.1, true };
    memcpy(m->a, m->x, sizeof m->a);
    memcpy(m->b, m->z, sizeof m->b);
    f->sgd(FLOATS - 3, &plain, m->a, m->b, m->y);
    f->sgd(FLOATS - 3, &nesterov, m->a, m->b, m->y);
}

static const td_own_simd *plain_simd(int lanes)
{
    const td_own_simd *f = NULL;
    for (int i = 0; (f = td_own_simd_at(i)); i++)
        if (strcmp(f->isa, "plain") == 0 && f->lanes == lanes)
            return f;
    fail_msg("no plain loops");
    return NULL;
}

static void compare_all(step run)
{
    const td_own_simd *f;
    for (int i = 0; (f = td_own_simd_at(i)); i++) {
        area *wanted = new_area(), *found = new_area();
        run(plain_simd(f->lanes), wanted);
        run(f, found);
        if (memcmp(wanted, found, sizeof *wanted) != 0)
            fail_msg("%s with %d lanes: other bits than the plain loops", f->isa, f->lanes);
        td_free(wanted);
        td_free(found);
    }
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        compare_all(name);                                                                         \
    }

TEST(stats)
TEST(apply)
TEST(apply_streamed)
TEST(apply_relu)
TEST(grad_sums)
TEST(grad_sums_unmasked)
TEST(grad_apply)
TEST(grad_apply_streamed)
TEST(sum)
TEST(dot)
TEST(mul_and_fill)
TEST(max_pool)
TEST(flat)
TEST(sgd)

/* statistics of numbers far from zero lose nothing to cancellation */
static void test_stats_far_from_zero(void **state)
{
    (void)state;
    const td_own_simd *f = td_own_simd_for(16);
    const td_own_plane v = plane_of(f, false);
    area *m = new_area();
    for (int i = 0; i < FLOATS; i++)
        m->x[i] = 4096 + (float)(i / 16 % 4); /* variance 1.25 */
    f->norm_stats(&v, m->x, m->s, m->t);
    assert_true(fabs(m->s[7] - 4097.5) < 1e-9);
    assert_true(fabs(m->t[7] / PIXELS - 1.25) < 1e-6);
    td_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_apply),
        cmocka_unit_test(test_apply_streamed),
        cmocka_unit_test(test_apply_relu),
        cmocka_unit_test(test_grad_sums),
        cmocka_unit_test(test_grad_sums_unmasked),
        cmocka_unit_test(test_grad_apply),
        cmocka_unit_test(test_grad_apply_streamed),
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_mul_and_fill),
        cmocka_unit_test(test_max_pool),
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_stats_far_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
