/*
 * test_native_rows.c -- the loops over rows give the same bits whatever the instruction set
 *
 * What is right is decided by the problem lines (tests/ops); here every variant this machine can
 * run must agree with the plain one, and write no element beyond its n but as it says.
 */
#include <math.h>
#include <string.h>

#include "backend/native/simd/native_rows.h"
#include "base/rng.h"
#include "support/expect.h"

#define N    400
#define EDGE (N + TD_NATIVE_ROW_STEP)

/* results of all loops; what no loop writes stays as it was */
typedef struct {
    float norm[EDGE], mean, scale, norm_grad[EDGE], dgamma[EDGE], dbeta[EDGE], softmax[EDGE];
    float sum, dot, added[EDGE];
    float repeated[EDGE], shifted[EDGE], squares[EDGE];
    float sums[EDGE], dots[EDGE], masked[EDGE], masked_sum[EDGE];
    float y[EDGE], y_relu[EDGE], y_relu6[EDGE], dx[EDGE];
    uint8_t mask[EDGE / 8], mask6[EDGE / 8];
    double stats[2], products[2];
} results;

typedef struct {
    float x[EDGE], y[EDGE], z[EDGE], mean[EDGE], scale[EDGE], shift[EDGE], slope[EDGE];
    uint8_t mask[EDGE / 8];
} operands;

static void fill(operands *o)
{
    static const float special[] = { NAN, INFINITY, -INFINITY, -0.0f, 1e-39f, 3e38f };
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < EDGE; i++) {
        o->x[i] = (float)td_rng_normal(&r) + 3;
        o->y[i] = (float)td_rng_normal(&r);
        o->z[i] = (float)td_rng_normal(&r);
        o->mean[i] = 3 + 0.01f * (float)(i % 7);
        o->scale[i] = 0.5f + 0.1f * (float)(i % 11);
        o->shift[i] = 0.3f * (float)(i % 13) - 2;
        o->slope[i] = 0.2f * (float)(i % 5);
        o->mask[i / 8] = (uint8_t)td_rng_u32(&r);
    }
    for (int i = 0; i < 6; i++)
        o->z[3 + 37 * i] = special[i];
}

static void run(const td_native_rows *f, int64_t n, const operands *o, results *r)
{
    const td_native_norm_row c = { o->mean, o->scale, o->shift, o->slope };
    const int64_t bytes = n - n % 8;
    memset(r, 0, sizeof *r);
    f->norm(n, o->x, o->scale, o->shift, 1e-5f, r->norm, &r->mean, &r->scale);
    f->norm_grad(n, o->y, o->x, o->scale, 3, 0.9f, r->norm_grad, r->dgamma, r->dbeta);
    f->softmax_grad(n, o->y, o->x, r->softmax);
    r->sum = f->sum(n, o->x);
    r->dot = f->dot(n, o->x, o->y);
    f->add_to(n, o->x, r->added);
    f->repeat(n, 7, r->repeated);
    f->stats(n, o->x, &r->stats[0], &r->stats[1]);
    f->add_centred(n, o->x, o->mean, r->shifted, r->squares);
    f->products(n, o->y, o->x, 3, &r->products[0], &r->products[1]);
    f->add_products(n, o->y, o->x, o->mean, r->sums, r->dots);
    f->masked(bytes, o->z, NULL, o->mask, r->masked);
    f->masked(bytes, o->y, o->z, o->mask, r->masked_sum);
    f->batch_norm(n, &c, o->x, NULL, r->y, 0, NULL);
    f->batch_norm(bytes, &c, o->x, o->z, r->y_relu, INFINITY, r->mask);
    f->batch_norm(bytes, &c, o->z, NULL, r->y_relu6, 6, r->mask6);
    f->batch_norm_grad(n, &c, o->y, o->x, r->dx);
}

static void all_instruction_sets_give_the_same_bits(void **state)
{
    static const int lengths[] = { 1, 7, 8, 15, 16, 17, 24, 49, 56, 100, 196, N };
    static operands o;
    static results wanted, found;
    const td_native_rows *plain = NULL, *f;
    (void)state;
    fill(&o);
    for (int i = 0; (f = td_native_rows_at(i)); i++)
        plain = f;
    for (int i = 0; (f = td_native_rows_at(i)) != plain; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            run(plain, lengths[k], &o, &wanted);
            run(f, lengths[k], &o, &found);
            if (memcmp(&wanted, &found, sizeof found) != 0)
                fail_msg("%s, %d elements: other bits", f->isa, lengths[k]);
        }
}

/* of numbers near 1000 with a spread of 1 */
static void statistics_lose_nothing_to_a_large_mean(void **state)
{
    static float x[N];
    td_rng r = td_rng_make(6, TD_RNG_TEST, 0, 0);
    double sum = 0, squares = 0, mean, m2;
    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(td_rng_normal(&r) + 1000);
        sum += (double)x[i] / N;
    }
    for (int i = 0; i < N; i++)
        squares += ((double)x[i] - sum) * ((double)x[i] - sum);
    for (int i = 0; td_native_rows_at(i); i++) {
        td_native_rows_at(i)->stats(N, x, &mean, &m2);
        assert_true(fabs(mean - sum) < 1e-6);
        assert_true(fabs(m2 - squares) < squares * 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_instruction_sets_give_the_same_bits),
        cmocka_unit_test(statistics_lose_nothing_to_a_large_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
