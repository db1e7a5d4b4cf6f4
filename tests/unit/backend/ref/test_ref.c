/*
 * test_ref.c -- the reference kernels' conversions, their matrix product, and what they refuse
 */
#include <math.h>
#include <stdio.h>

#include "backend/ref/ref.h"
#include "base/half.h"
#include "base/rng.h"
#include "support/expect.h"

static double stored(td_dtype d, double x)
{
    uint64_t bytes = 0;
    double back;
    td_ref_store(d, &x, 1, &bytes);
    td_ref_load(d, &bytes, 1, &back);
    return back;
}

static void halves_are_rounded_once(void **state)
{
    (void)state;
    /* just above the middle of 1 and 1 + 2^-7: rounding to float first would end in the middle, and
       then at the even 1 */
    assert_true(stored(TD_DT_BF16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
    assert_true(stored(TD_DT_BF16, 1 + 0x1p-8) == 1);
    assert_true(stored(TD_DT_BF16, 1 + 0x1p-8 - 0x1p-40) == 1);
    assert_true(stored(TD_DT_F16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
    assert_true(stored(TD_DT_F16, -1 - 0x1p-11 - 0x1p-40) == -1 - 0x1p-10);
    assert_true(stored(TD_DT_F16, 0x1p-25 + 0x1p-60) == 0x1p-24);
    assert_true(stored(TD_DT_F16, 0x1p-25) == 0);
    assert_true(isinf(stored(TD_DT_F16, 65520)));
    assert_true(stored(TD_DT_F16, 65520 - 0x1p-30) == 65504);
    assert_true(isnan(stored(TD_DT_BF16, NAN)));
    assert_true(stored(TD_DT_BF16, -INFINITY) == -INFINITY);
}

static void integers_truncate_and_saturate(void **state)
{
    (void)state;
    assert_true(stored(TD_DT_I64, 2.9) == 2);
    assert_true(stored(TD_DT_I64, -2.9) == -2);
    assert_true(stored(TD_DT_I32, 1e10) == 2147483647.0);
    assert_true(stored(TD_DT_I32, -1e10) == -2147483648.0);
    assert_true(stored(TD_DT_U8, 255.9) == 255);
    assert_true(stored(TD_DT_U8, 300) == 255);
    assert_true(stored(TD_DT_U8, -1) == 0);
    assert_true(stored(TD_DT_I64, 1e300) == 0x1p63);
    assert_true(stored(TD_DT_I64, -1e300) == -0x1p63);
    assert_true(stored(TD_DT_I64, NAN) == 0);
}

/* against the plain triple loop, at sizes around the tiles' edges: equal to the bit, whichever
   instructions there are, when sums go over from registers after the same 256 steps */
static void check_product(int64_t m, int64_t n, int64_t k)
{
    double *a = td_alloc((size_t)(m * k), sizeof *a), *b = td_alloc((size_t)(k * n), sizeof *b);
    double *c = td_alloc((size_t)(m * n), sizeof *c);
    td_rng r = td_rng_make(1, TD_RNG_TEST, 0, 0);
    assert_true(a && b && c);
    for (int64_t i = 0; i < m * k; i++)
        a[i] = td_rng_normal(&r);
    for (int64_t i = 0; i < k * n; i++)
        b[i] = td_rng_normal(&r);
    for (int64_t i = 0; i < m * n; i++)
        c[i] = (double)i;
    /* a as it lies, b transposed */
    td_ref_multiply(m, n, k, (td_ref_matrix){ a, k, 1 }, (td_ref_matrix){ b, 1, k },
                    (td_ref_matrix){ c, n, 1 });
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = (double)(i * n + j), part = 0;
            for (int64_t l = 0; l < k; l++) {
                part += a[i * k + l] * b[j * k + l];
                if (l % 256 == 255 || l == k - 1) {
                    sum += part;
                    part = 0;
                }
            }
            assert_true(c[i * n + j] == sum);
        }
    td_free(a);
    td_free(b);
    td_free(c);
}

static void products_of_odd_sizes(void **state)
{
    static const int64_t sizes[] = { 1, 3, 4, 7, 8, 9, 63, 65 };
    (void)state;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            check_product(sizes[i], sizes[j], sizes[(i + j) % 8]);
    check_product(5, 9, 256);
    check_product(5, 9, 257);
    check_product(70, 17, 513);
}

static void other_layouts_are_refused(void **state)
{
    (void)state;
    td_value x = { .type = td_type_4d(TD_DT_F32, 1, 16, 2, 2) }, y = x;
    td_value *in[] = { &x }, *out[] = { &y };
    memcpy(x.type.layout, "aBcd16b", 8);
    memcpy(y.type.layout, "aBcd16b", 8);
    td_node n = { .op = &td_op_avg_pool2d, .n_in = 1, .n_out = 1, .in = in, .out = out };
    expect_error(td_ref_avg_pool2d.kernel.accepts(&n), TD_ENOKERNEL, "layout aBcd16b");
    n.op = &td_op_relu;
    expect_ok(td_ref_relu.kernel.accepts(&n));
    y.type.layout[0] = '\0';
    expect_error(td_ref_relu.kernel.accepts(&n), TD_ENOKERNEL, "layouts differ");
    x.type = y.type = td_type_4d(TD_DT_F32, 1, 17, 2, 2);
    memcpy(x.type.layout, "aBcd16b", 8);
    memcpy(y.type.layout, "aBcd16b", 8);
    n.op = &td_op_sigmoid;
    expect_error(td_ref_sigmoid.kernel.accepts(&n), TD_ENOKERNEL, "padding");
}

/* every op that is neither a leaf nor a composite */
static void every_op_has_a_kernel(void **state)
{
    extern const td_backend td_backend_ref;
    int n_ops;
    const td_op *const *ops = td_op_all(&n_ops);
    (void)state;
    for (int i = 0; i < n_ops; i++) {
        bool is_there = ops[i]->is_leaf || ops[i]->is_composite || ops[i]->is_collective;
        for (int k = 0; k < td_backend_ref.n_kernels; k++)
            is_there = is_there || td_backend_ref.kernels[k]->op == ops[i];
        if (!is_there)
            fail_msg("%s has no reference kernel", ops[i]->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_are_rounded_once), cmocka_unit_test(integers_truncate_and_saturate),
        cmocka_unit_test(products_of_odd_sizes),   cmocka_unit_test(other_layouts_are_refused),
        cmocka_unit_test(every_op_has_a_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
