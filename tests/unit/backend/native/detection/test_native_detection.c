/*
 * test_native_detection.c -- the loops of detectors' losses: same bits for every instruction set,
 * and near the ground truth from one end of float32 to the other
 */
#include <math.h>

#include "backend/native/detection/native_detection.h"
#include "base/rng.h"
#include "support/expect.h"

#define N       4096
#define COLUMNS 91
#define ROWS    (N / COLUMNS)

typedef struct {
    double sum;
    float slope[N], largest[ROWS], log_sum[ROWS], share[N], row[N];
} results;

static void fill(float *x)
{
    static const float special[] = { 0,     -0.0F,    1e-30F, -1e-30F, 20,       -20,
                                     86.9F, -87.1F,   200,    -200,    1e30F,    -1e30F,
                                     NAN,   INFINITY, 16.7F,  -16.7F,  -INFINITY };
    td_rng r = td_rng_make(5, TD_RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++)
        x[i] = (float)(6 * td_rng_normal(&r));
    for (int i = 0; i < 17; i++)
        x[200 * i + 7] = special[i];
}

static void work_out(const td_native_detection_simd *f, const float *x, results *r)
{
    r->sum = f->focal(N / 2, x);
    f->focal_grad(N, x, 0.37F, r->slope);
    f->log_sums(ROWS, COLUMNS, x, r->largest, r->log_sum);
    for (int i = 0; i < ROWS; i++) {
        f->softmax(COLUMNS, x + i * COLUMNS, r->largest[i], r->log_sum[i], 1.5F,
                   r->share + i * COLUMNS);
        f->softmax_row(COLUMNS, x + i * COLUMNS, r->row + i * COLUMNS);
    }
}

static void instruction_sets_agree(void **state)
{
    (void)state;
    const td_native_detection_simd *f;
    float *x = td_alloc(N, sizeof *x);
    results *first = TD_NEW(results), *other = TD_NEW(results);
    assert_true(x && first && other);
    fill(x);
    work_out(td_native_detection_simd_at(0), x, first);
    for (int i = 1; (f = td_native_detection_simd_at(i)); i++) {
        work_out(f, x, other);
        assert_memory_equal(first, other, sizeof *first);
    }
    td_free(x);
    td_free(first);
    td_free(other);
}

/* over a grid from -100 to 100 */
static void near_the_truth(void **state)
{
    (void)state;
    const td_native_detection_simd *f = td_native_detection_simd_at(0);
    for (int i = -10000; i <= 10000; i++) {
        float x[TD_NATIVE_STEP], slope[TD_NATIVE_STEP];
        for (int l = 0; l < TD_NATIVE_STEP; l++)
            x[l] = l ? -200 : 0.01F * (float)i;
        const double v = (double)x[0], p = 1 / (1 + exp(-v)), q = 1 / (1 + exp(v));
        const double softplus = (v > 0 ? v : 0) + log1p(exp(-fabs(v)));
        const double loss = p * p * softplus, wanted = p * p * (p + 2 * q * softplus);
        f->focal_grad(TD_NATIVE_STEP, x, 1, slope);
        assert_true(fabs(f->focal(TD_NATIVE_STEP, x) - loss) <= 1e-6 * loss + 1e-37);
        assert_true(fabs((double)slope[0] - wanted) <= 1e-6 * wanted + 1e-37);
        assert_true(slope[1] == 0);
    }
}

static void softmax_is_near_the_truth(void **state)
{
    (void)state;
    const td_native_detection_simd *f = td_native_detection_simd_at(0);
    td_rng r = td_rng_make(5, TD_RNG_TEST, 1, 0);
    for (int columns = 1; columns < 100; columns++) {
        float x[100], y[100], row[100], largest, log_sum;
        double sum = 0;
        for (int c = 0; c < columns; c++)
            x[c] = (float)(10 * td_rng_normal(&r) + 50);
        y[columns] = row[columns] = 77;
        f->log_sums(1, columns, x, &largest, &log_sum);
        f->softmax(columns, x, largest, log_sum, 1, y);
        f->softmax_row(columns, x, row);
        for (int c = 0; c < columns; c++)
            sum += exp((double)x[c] - (double)largest);
        for (int c = 0; c < columns; c++) {
            const double wanted = exp((double)x[c] - (double)largest) / sum;
            assert_true(fabs((double)y[c] - wanted) <= 5e-6 * wanted + 1e-36);
            assert_true(fabs((double)row[c] - wanted) <= 5e-6 * wanted + 1e-36);
        }
        assert_true(y[columns] == 77 && row[columns] == 77);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(near_the_truth),
        cmocka_unit_test(softmax_is_near_the_truth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
