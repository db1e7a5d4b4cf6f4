/* test_sampler.c -- which samples make which batch */
#include "support/expect.h"

#include "data/sampler.h"

static void epoch_is_a_partition(void **state)
{
    (void)state;
    enum { N = 103, B = 8 };
    td_sampler s = { .n = N, .batch = B, .world = 1, .shuffles = true, .seed = 5 };
    expect_ok(td_sampler_init(&s));
    assert_int_equal(td_sampler_batches(&s), 13);
    int64_t rows[B];
    int seen[N] = { 0 }, n_moved = 0;
    for (int64_t i = 0; i < 13; i++) {
        int n = td_sampler_rows(&s, 3, i, rows);
        assert_int_equal(n, i < 12 ? B : N % B);
        for (int k = 0; k < n; k++) {
            seen[rows[k]]++;
            n_moved += rows[k] != i * B + k;
        }
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    assert_true(n_moved > 80);
    td_sampler_release(&s);
}

static void order_depends_on_epoch_and_seed_alone(void **state)
{
    (void)state;
    enum { N = 1000 };
    static int64_t a[N], b[N], c[N], d[N];
    td_sampler s = { .n = N, .batch = N, .world = 1, .shuffles = true, .seed = 5 }, t = s;
    t.seed = 6;
    expect_ok(td_sampler_init(&s));
    expect_ok(td_sampler_init(&t));
    td_sampler_rows(&s, 0, 0, a);
    td_sampler_rows(&s, 1, 0, b);
    td_sampler_rows(&s, 0, 0, c); /* back again */
    td_sampler_rows(&t, 0, 0, d);
    assert_memory_equal(a, c, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, d, sizeof a);
    td_sampler_release(&s);
    td_sampler_release(&t);
}

static void ranks_see_what_one_sees(void **state)
{
    (void)state;
    enum { N = 50, B = 3, W = 4 };
    for (int drops = 0; drops < 2; drops++) {
        td_sampler one = { .n = N, .batch = B * W, .world = 1, .shuffles = true, .drops = drops };
        expect_ok(td_sampler_init(&one));
        assert_int_equal(td_sampler_batches(&one), drops ? 4 : 5);
        for (int64_t i = 0; i < td_sampler_batches(&one); i++) {
            int64_t all[B * W], joined[B * W];
            int n = td_sampler_rows(&one, 7, i, all), m = 0;
            for (int r = 0; r < W; r++) {
                td_sampler s = one;
                s.batch = B;
                s.rank = r;
                s.world = W;
                expect_ok(td_sampler_init(&s));
                assert_int_equal(td_sampler_batches(&s), td_sampler_batches(&one));
                m += td_sampler_rows(&s, 7, i, joined + m);
                td_sampler_release(&s);
            }
            assert_int_equal(m, n); /* the last ranks of the last batch may get fewer, even none */
            assert_memory_equal(all, joined, (size_t)n * sizeof *all);
        }
        td_sampler_release(&one);
    }
}

static void small_sets(void **state)
{
    (void)state;
    int64_t rows[8];
    td_sampler s = { .n = 5, .batch = 8, .world = 1, .drops = true };
    expect_ok(td_sampler_init(&s));
    assert_int_equal(td_sampler_batches(&s), 0);
    s.drops = false;
    assert_int_equal(td_sampler_batches(&s), 1);
    assert_int_equal(td_sampler_rows(&s, 0, 0, rows), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rows[i], i); /* unshuffled is in order */
    td_sampler_release(&s);
}

static void no_memory(void **state)
{
    (void)state;
    td_sampler s = { .n = 5, .batch = 1, .world = 1, .shuffles = true };
    td_alloc_fail_at(1);
    td_status st = td_sampler_init(&s);
    td_alloc_fail_at(0);
    assert_int_equal(st, TD_ENOMEM);
    td_sampler_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epoch_is_a_partition),
        cmocka_unit_test(order_depends_on_epoch_and_seed_alone),
        cmocka_unit_test(ranks_see_what_one_sees),
        cmocka_unit_test(small_sets),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
