/* test_sampler.c -- which samples make which batch */
#include "support/expect.h"

#include "base/arena.h"
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

/* an epoch with repeats has the first samples of the order, each in consecutive rows, and all
   copies of a sample are told apart, on any number of ranks */
static void samples_are_repeated(void **state)
{
    (void)state;
    enum { N = 72, B = 4, R = 3 };
    int64_t order[N], rows[B];
    td_sampler plain = { .n = N, .batch = N, .world = 1, .shuffles = true, .seed = 5 };
    expect_ok(td_sampler_init(&plain));
    td_sampler_rows(&plain, 2, 0, order);
    for (int world = 1; world < 4; world++) {
        int seen[N] = { 0 };
        for (int rank = 0; rank < world; rank++) {
            td_sampler s = { .n = N,
                             .batch = B,
                             .rank = rank,
                             .world = world,
                             .shuffles = true,
                             .drops_last = true,
                             .repeats = R,
                             .seed = 5 };
            expect_ok(td_sampler_init(&s));
            assert_int_equal(td_sampler_batches(&s), N / (B * world));
            for (int64_t i = 0; i < td_sampler_batches(&s); i++) {
                assert_int_equal(td_sampler_rows(&s, 2, i, rows), B);
                for (int k = 0; k < B; k++) {
                    assert_int_equal(rows[k], order[((i * world + rank) * B + k) / R]);
                    seen[rows[k]] += 1 << 4 * td_sampler_copy(&s, i, k);
                }
            }
            td_sampler_release(&s);
        }
        for (int i = 0; i < N / R; i++)
            assert_int_equal(seen[order[i]], 0x111);
    }
    td_sampler_release(&plain);
}

/* each class as often as another, each of its samples too, and copies are told apart */
static void classes_are_balanced(void **state)
{
    (void)state;
    enum { N = 1200, A = 1000, B = 150, W = 2, EPOCHS = 40 };
    static int64_t classes[N], all[N], rows[N / W];
    static int seen[N], copies[N];
    int64_t n_of[4] = { 0 };
    double spread = 0;
    for (int i = 0; i < N; i++)
        classes[i] = i < A ? 3 : i < A + B ? 0 : 1; /* none has class 2 */
    td_sampler one = {
        .n = N, .batch = N, .world = 1, .shuffles = true, .drops_last = true, .seed = 5
    };
    for (int e = 0; e < EPOCHS; e++) {
        one.classes = classes;
        expect_ok(td_sampler_init(&one));
        assert_int_equal(td_sampler_batches(&one), 1);
        assert_int_equal(td_sampler_rows(&one, e, 0, all), N);
        memset(copies, 0, sizeof copies);
        for (int i = 0; i < N; i++) {
            n_of[classes[all[i]]]++;
            seen[all[i]]++;
            assert_int_equal(td_sampler_copy(&one, 0, i), copies[all[i]]++);
        }
        for (int rank = 0; rank < W; rank++) { /* the ranks have its parts */
            td_sampler s = one;
            s.batch = N / W;
            s.rank = rank;
            s.world = W;
            s.classes = classes;
            expect_ok(td_sampler_init(&s));
            assert_int_equal(td_sampler_rows(&s, e, 0, rows), N / W);
            assert_memory_equal(rows, all + rank * (N / W), sizeof rows);
            for (int i = 0; i < N / W; i++)
                assert_int_equal(td_sampler_copy(&s, 0, i),
                                 td_sampler_copy(&one, 0, rank * (N / W) + i));
            td_sampler_release(&s);
        }
        td_sampler_release(&one);
    }
    assert_int_equal(n_of[2], 0);
    for (int k = 0; k < 4; k++) /* 16000 each, a deviation of 103 */
        assert_true(k == 2 || (n_of[k] > 15500 && n_of[k] < 16500));
    for (int i = 0; i < A; i++)
        spread += (seen[i] - 16.0) * (seen[i] - 16.0) / 16.0; /* chi square, 999 degrees */
    assert_true(spread > 850 && spread < 1150);
}

static void ranks_see_what_one_sees(void **state)
{
    (void)state;
    enum { N = 50, B = 3, W = 4 };
    for (int drops = 0; drops < 2; drops++) {
        td_sampler one = {
            .n = N, .batch = B * W, .world = 1, .shuffles = true, .drops_last = drops
        };
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
    td_sampler s = { .n = 5, .batch = 8, .world = 1, .drops_last = true };
    expect_ok(td_sampler_init(&s));
    assert_int_equal(td_sampler_batches(&s), 0);
    s.drops_last = false;
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
    for (int n = 1; n <= 6; n++) {
        s.classes = (int64_t[]){ 0, 1, 0, 1, 1 };
        td_alloc_fail_at(n);
        td_status st = td_sampler_init(&s);
        td_alloc_fail_at(0);
        assert_int_equal(st, TD_ENOMEM);
        td_sampler_release(&s);
    }
    td_alloc_fail_at(1);
    td_status st = td_sampler_init(&s);
    td_alloc_fail_at(0);
    assert_int_equal(st, TD_ENOMEM);
    td_sampler_release(&s);
}

/* PyTorch's: all ranks have as many, and between them everything, a few twice */
static void padded_shares_are_pytorchs(void **state)
{
    (void)state;
    enum { N = 53, B = 4, W = 5 }; /* 11 each: 53 and the first two again */
    td_sampler whole = { .n = N, .batch = N, .world = 1, .shuffles = true, .seed = 7 };
    int64_t order[N], rows[B];
    int seen[N] = { 0 };
    expect_ok(td_sampler_init(&whole));
    td_sampler_rows(&whole, 2, 0, order);
    for (int rank = 0; rank < W; rank++) {
        td_sampler s = { .n = N,
                         .batch = B,
                         .rank = rank,
                         .world = W,
                         .shuffles = true,
                         .seed = 7,
                         .order_kind = TD_ORDER_PADDED };
        expect_ok(td_sampler_init(&s));
        assert_int_equal(td_sampler_batches(&s), 3);
        for (int i = 0, k = 0; i < 3; i++) {
            int n = td_sampler_rows(&s, 2, i, rows);
            assert_int_equal(n, i < 2 ? B : 3);
            for (int j = 0; j < n; j++, k++) {
                assert_int_equal(rows[j], order[(k * W + rank) % N]);
                seen[rows[j]]++;
            }
        }
        s.drops_last = true;
        assert_int_equal(td_sampler_batches(&s), 2);
        td_sampler_release(&s);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[order[i]], i < 2 ? 2 : 1);
    td_sampler_release(&whole);
}

/* the samples of one epoch of a rank */
static int64_t buffered(int n, int rank, int world, uint64_t seed, int64_t epoch, bool shuffles,
                        int64_t *out)
{
    td_sampler s = { .n = n,
                     .batch = 64,
                     .rank = rank,
                     .world = world,
                     .shuffles = shuffles,
                     .seed = seed,
                     .order_kind = TD_ORDER_BUFFER };
    expect_ok(td_sampler_init(&s));
    int64_t count = 0;
    for (int64_t i = 0; i < td_sampler_batches(&s); i++)
        count += td_sampler_rows(&s, epoch, i, out + count);
    td_sampler_release(&s);
    return count;
}

static void buffered_shares_move_on(void **state)
{
    (void)state;
    enum { N = 10001, W = 3 };
    static int64_t a[N], b[N], list[N];
    int seen[N] = { 0 };
    int64_t n = 0;
    for (int rank = 0; rank < W; rank++) /* every epoch sees everything once */
        n += buffered(N, rank, W, 1, 4, true, a + n);
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++)
        seen[a[i]]++;
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);

    /* rank 0 in epoch 1 reads the range that rank 1 read in epoch 0, in another order */
    int64_t n_a = buffered(N, 1, W, 1, 0, true, a), n_b = buffered(N, 0, W, 1, 1, true, b);
    assert_int_equal(n_a, n_b);
    assert_memory_not_equal(a, b, (size_t)n_a * sizeof *a);
    int64_t sum = 0;
    for (int64_t i = 0; i < n_a; i++)
        sum += a[i] - b[i];
    assert_int_equal(sum, 0);

    /* nothing leaves the buffer before it has come in: 1024 places after its own at the latest */
    td_sampler s = {
        .n = N, .batch = 1, .world = 1, .shuffles = true, .order_kind = TD_ORDER_BUFFER
    };
    expect_ok(td_sampler_init(&s));
    for (int i = 0; i < N; i++)
        list[s.list[i]] = i;
    td_sampler_release(&s);
    buffered(N, 0, 1, 9, 0, true, a);
    int64_t late = 0;
    for (int64_t i = 0; i < N; i++) {
        assert_true(list[a[i]] < i + 1024);
        late = i - list[a[i]] > late ? i - list[a[i]] : late;
    }
    assert_true(late > 2000); /* some wait long: uniform picks */

    /* in evaluation: ranges in plain order, nothing twice */
    n_a = buffered(N, 2, W, 1, 3, false, a);
    assert_int_equal(n_a, N - N / W * 2 - N % W * 2 / W);
    for (int64_t i = 0; i < n_a; i++)
        assert_int_equal(a[i], N - n_a + i);
}

static void buffered_ranks_have_as_many_batches(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        td_sampler s = { .n = 20,
                         .batch = 6,
                         .rank = rank,
                         .world = 3,
                         .shuffles = true,
                         .drops_last = true,
                         .order_kind = TD_ORDER_BUFFER };
        int64_t rows[6];
        expect_ok(td_sampler_init(&s));
        assert_int_equal(td_sampler_batches(&s), 1);
        for (int64_t e = 0; e < 4; e++)
            assert_int_equal(td_sampler_rows(&s, e, 0, rows), 6);
        td_sampler_release(&s);
    }
    td_sampler s = {
        .n = 20, .batch = 6, .world = 1, .shuffles = true, .order_kind = TD_ORDER_BUFFER
    };
    for (int n = 1; n <= 2; n++) {
        td_alloc_fail_at(n);
        td_status st = td_sampler_init(&s);
        td_alloc_fail_at(0);
        assert_int_equal(st, TD_ENOMEM);
        td_sampler_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padded_shares_are_pytorchs),
        cmocka_unit_test(buffered_shares_move_on),
        cmocka_unit_test(buffered_ranks_have_as_many_batches),
        cmocka_unit_test(epoch_is_a_partition),
        cmocka_unit_test(order_depends_on_epoch_and_seed_alone),
        cmocka_unit_test(samples_are_repeated),
        cmocka_unit_test(classes_are_balanced),
        cmocka_unit_test(ranks_see_what_one_sees),
        cmocka_unit_test(small_sets),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
