/*
 * test_mixup.c -- what batches are mixed with: the distribution, repeatability, given files
 */
#include "support/expect.h"
#include "support/scratch.h"

#include <math.h>
#include <string.h>

#include "optim/mixup.h"

enum { N = 8, S = 3 };

/* mean 1/2, variance 1 / (4 (2 a + 1)); the standard error of 20000 draws is below 0.004 */
static void beta_has_its_moments(void **state)
{
    (void)state;
    static const double alphas[] = { 0.001, 0.2, 0.4, 1, 2.5, 50 };
    for (size_t i = 0; i < sizeof alphas / sizeof *alphas; i++) {
        const double a = alphas[i];
        td_rng r = td_rng_make(11, TD_RNG_MIXUP, i, 0);
        double sum = 0, squares = 0;
        enum { DRAWS = 20000 };
        for (int k = 0; k < DRAWS; k++) {
            const double x = td_beta(&r, a);
            assert_true(x >= 0 && x <= 1);
            sum += x;
            squares += (x - 0.5) * (x - 0.5);
        }
        assert_true(fabs(sum / DRAWS - 0.5) < 0.015);
        const double variance = 1 / (4 * (2 * a + 1));
        assert_true(fabs(squares / DRAWS - variance) < 0.03 * variance + 0.001);
    }
}

static td_mixup make(td_mixup_mode mode, uint64_t seed)
{
    td_mixup m = { .mode = mode, .alpha = 0.2, .batch = N, .seed = seed };
    expect_ok(td_mixup_open(&m, NULL));
    return m;
}

static void a_batch_has_one_coefficient_and_a_permutation(void **state)
{
    (void)state;
    td_mixup m = make(TD_MIXUP_BATCH, 1);
    bool is_there[N] = { false };
    expect_ok(td_mixup_draw(&m, 3, 5, 0));
    for (int i = 0; i < N; i++) {
        assert_true(m.lambda[i] == m.lambda[0]);
        assert_in_range(m.partner[i], 0, N - 1);
        assert_false(is_there[m.partner[i]]);
        is_there[m.partner[i]] = true;
    }
    td_mixup_close(&m);
}

static void a_sample_has_its_own_and_the_reversed_partner(void **state)
{
    (void)state;
    td_mixup m = make(TD_MIXUP_SAMPLE, 1);
    int n_different = 0;
    expect_ok(td_mixup_draw(&m, 3, 5, 0));
    for (int i = 0; i < N; i++) {
        n_different += m.lambda[i] != m.lambda[0];
        assert_int_equal(m.partner[i], N - 1 - i);
    }
    assert_true(n_different > 3);
    td_mixup_close(&m);
}

/* seed, epoch and batch say all; nothing of the past is needed */
static void draws_depend_on_the_place_alone(void **state)
{
    (void)state;
    td_mixup a = make(TD_MIXUP_SAMPLE, 7), b = make(TD_MIXUP_SAMPLE, 7);
    for (int i = 0; i < 5; i++)
        expect_ok(td_mixup_draw(&a, 0, i, i));
    expect_ok(td_mixup_draw(&b, 0, 4, 99));
    assert_memory_equal(a.lambda, b.lambda, N * sizeof *a.lambda);
    expect_ok(td_mixup_draw(&b, 1, 4, 99));
    assert_memory_not_equal(a.lambda, b.lambda, N * sizeof *a.lambda);
    td_mixup_close(&a);
    td_mixup_close(&b);
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *write_file(const char *name, int rank, int64_t width, int64_t worst)
{
    float lambda[S * N];
    int64_t perm[S * N], dim[2] = { S, width };
    td_tensors *t;
    for (int i = 0; i < S * N; i++) {
        lambda[i] = (float)i / (S * N);
        perm[i] = i == 5 ? worst : i % N;
    }
    const char *path = td_scratch_path(name);
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "lambda", TD_DT_F32, rank, dim, lambda));
    expect_ok(td_tensors_add(t, "perm", TD_DT_I64, 2, dim, perm));
    expect_ok(td_tensors_write(t, path));
    td_tensors_free(t);
    return path;
}

static void a_file_gives_them(void **state)
{
    (void)state;
    td_mixup m = { .alpha = 0.2, .batch = N };
    expect_ok(td_mixup_open(&m, write_file("one.safetensors", 1, N, 0)));
    expect_ok(td_mixup_draw(&m, 9, 9, 1));
    for (int i = 0; i < N; i++)
        assert_true(m.lambda[i] == 1.0f / (S * N) && m.partner[i] == i);
    expect_error(td_mixup_draw(&m, 0, 0, S), TD_ENOTFOUND, "has 3 batches");
    td_mixup_close(&m);
    m = (td_mixup){ .alpha = 0.2, .batch = N };
    expect_ok(td_mixup_open(&m, write_file("each.safetensors", 2, N, 0)));
    expect_ok(td_mixup_draw(&m, 0, 0, 2));
    for (int i = 0; i < N; i++)
        assert_true(m.lambda[i] == (float)(2 * N + i) / (S * N));
    td_mixup_close(&m);
}

static void a_file_of_another_kind_is_refused(void **state)
{
    (void)state;
    static const struct {
        int rank, batch;
        int64_t worst;
        const char *says;
    } rows[] = { { 2, N + 1, 0, "'lambda' of type f32 and shape [S] or [S, 9" },
                 { 1, N + 1, 0, "'perm' of type i64 and shape [3, 9" },
                 { 1, N, N, "partner 8, wanted" },
                 { 1, N, -1, "-1, wanted 0 to less than 8" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_mixup m = { .alpha = 0.2, .batch = rows[i].batch };
        expect_error(
            td_mixup_open(&m, write_file("bad.safetensors", rows[i].rank, N, rows[i].worst)),
            TD_EFORMAT, rows[i].says);
        td_mixup_close(&m);
    }
}

/* --- cutmix ----------------------------------------------------------------------------------- */

enum { SIZE = 48 };

static td_mixup make_cut(td_mixup_mode mode, double mixup, double chance)
{
    td_mixup m = { .mode = mode,
                   .alpha = mixup,
                   .cut_alpha = 1,
                   .cut_chance = chance,
                   .batch = N,
                   .size = SIZE,
                   .seed = 4 };
    expect_ok(td_mixup_open(&m, NULL));
    return m;
}

static double width(const td_mixup *m, int i)
{
    return (double)(m->box[4 * i + 2] - m->box[4 * i]);
}

static double height(const td_mixup *m, int i)
{
    return (double)(m->box[4 * i + 3] - m->box[4 * i + 1]);
}

/* 20,000 draws; means of torchvision's CutMix(alpha=1) on 48 x 48 */
static void boxes_are_distributed_as_torchvisions(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    td_mixup m = make_cut(TD_MIXUP_BATCH, 0, 0);
    double share = 0, squares = 0, wide = 0, left = 0, top = 0;
    for (int64_t k = 0; k < DRAWS; k++) {
        expect_ok(td_mixup_draw(&m, 2, k, 0));
        const int64_t *b = m.box;
        assert_true(b[0] >= 0 && b[0] <= b[2] && b[2] <= SIZE);
        assert_true(b[1] >= 0 && b[1] <= b[3] && b[3] <= SIZE);
        assert_true(fabs(m.share[0] - (1 - width(&m, 0) * height(&m, 0) / (SIZE * SIZE))) < 1e-6);
        for (int i = 1; i < N; i++) {
            assert_memory_equal(b, b + 4 * i, 4 * sizeof *b);
            assert_true(m.share[i] == m.share[0] && m.lambda[i] == 1);
        }
        share += m.share[0];
        squares += (m.share[0] - 0.6937) * (m.share[0] - 0.6937);
        wide += width(&m, 0);
        left += (double)b[0];
        top += (double)b[1];
    }
    assert_true(fabs(share / DRAWS - 0.6937) < 0.0065); /* five deviations */
    assert_true(fabs(sqrt(squares / DRAWS) - 0.1849) < 0.005);
    assert_true(fabs(wide / DRAWS - 25.32) < 0.4);
    assert_true(fabs(left / DRAWS - 10.99) < 0.4 && fabs(top / DRAWS - 10.99) < 0.4);
    td_mixup_close(&m);
}

static void batches_are_mixed_or_cut(void **state)
{
    (void)state;
    enum { DRAWS = 10000 };
    td_mixup m = make_cut(TD_MIXUP_BATCH, 0.2, 0.3), mix = make(TD_MIXUP_BATCH, 4);
    int n_cut = 0;
    for (int64_t k = 0; k < DRAWS; k++) {
        expect_ok(td_mixup_draw(&m, 2, k, 0));
        expect_ok(td_mixup_draw(&mix, 2, k, 0));
        /* a coefficient of mixup may round to 1, which a cut batch has */
        if (memcmp(m.lambda, mix.lambda, N * sizeof *m.lambda) != 0 ||
            memcmp(m.partner, mix.partner, N * sizeof *m.partner) != 0) {
            n_cut++;
            assert_true(m.lambda[0] == 1);
            continue;
        }
        assert_memory_equal(m.share, mix.lambda, N * sizeof *m.share);
        for (int i = 0; i < 4 * N; i++)
            assert_int_equal(m.box[i], 0);
    }
    assert_in_range(n_cut, DRAWS * 0.3 - 230, DRAWS * 0.3 + 230); /* five deviations */
    td_mixup_close(&m);
    td_mixup_close(&mix);
}

static void samples_are_cut_apart(void **state)
{
    (void)state;
    td_mixup a = make_cut(TD_MIXUP_SAMPLE, 0, 0), b = make_cut(TD_MIXUP_SAMPLE, 0, 0);
    int n_different = 0;
    expect_ok(td_mixup_draw(&a, 1, 7, 0));
    expect_ok(td_mixup_draw(&b, 1, 6, 0));
    expect_ok(td_mixup_draw(&b, 1, 7, 0)); /* nothing of the past is needed */
    assert_memory_equal(a.box, b.box, 4 * N * sizeof *a.box);
    for (int i = 0; i < N; i++) {
        n_different += memcmp(a.box, a.box + 4 * i, 4 * sizeof *a.box) != 0;
        assert_int_equal(a.partner[i], N - 1 - i);
        assert_true(fabs(a.share[i] - (1 - width(&a, i) * height(&a, i) / (SIZE * SIZE))) < 1e-6);
    }
    assert_true(n_different > 3);
    td_mixup_close(&a);
    td_mixup_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beta_has_its_moments),
        cmocka_unit_test(a_batch_has_one_coefficient_and_a_permutation),
        cmocka_unit_test(a_sample_has_its_own_and_the_reversed_partner),
        cmocka_unit_test(draws_depend_on_the_place_alone),
        cmocka_unit_test(a_file_gives_them),
        cmocka_unit_test(a_file_of_another_kind_is_refused),
        cmocka_unit_test(boxes_are_distributed_as_torchvisions),
        cmocka_unit_test(batches_are_mixed_or_cut),
        cmocka_unit_test(samples_are_cut_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
