/* test_hold_out.c -- the parts of a training set are disjoint, complete, and divided by class */
#include "data/hold_out.h"

#include <string.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

enum { CLASSES = 3, PER_CLASS = 11 };

static const char *root;

static int make_folder(void **state)
{
    (void)state;
    root = td_scratch_path("set");
    td_write_folder(root, "train", CLASSES, PER_CLASS, 24);
    return 0;
}

static td_dataset *open_set(void)
{
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = root, .split = "train" }, &ds));
    return ds;
}

static td_dataset *part(double fraction, uint64_t seed, bool is_val)
{
    td_dataset *ds = open_set();
    expect_ok(td_dataset_hold_out(ds, fraction, seed, is_val));
    return ds;
}

static bool has(const td_dataset *ds, const char *name)
{
    for (int64_t i = 0; i < ds->n; i++)
        if (strcmp(td_sample_name(ds, i), name) == 0)
            return true;
    return false;
}

static void parts_are_disjoint_and_complete(void **state)
{
    (void)state;
    const double fractions[] = { 0.1, 0.25, 0.5, 0.99 };
    const int64_t wanted[] = { 1, 3, 6, 10 };
    td_dataset *all = open_set();
    for (int k = 0; k < 4; k++) {
        td_dataset *train = part(fractions[k], 7, false), *val = part(fractions[k], 7, true);
        assert_int_equal(val->n, wanted[k] * CLASSES);
        assert_int_equal(train->n + val->n, all->n);
        int64_t of_class[CLASSES] = { 0 };
        for (int64_t i = 0; i < val->n; i++)
            of_class[td_dataset_label(val, i)]++;
        for (int c = 0; c < CLASSES; c++)
            assert_int_equal(of_class[c], wanted[k]);
        for (int64_t i = 0; i < all->n; i++)
            assert_true(has(train, td_sample_name(all, i)) != has(val, td_sample_name(all, i)));
        assert_int_equal(td_dataset_classes(val), CLASSES);
        td_dataset_free(train);
        td_dataset_free(val);
    }
    td_dataset_free(all);
}

static void seeds_choose(void **state)
{
    (void)state;
    td_dataset *a = part(0.3, 1, true), *b = part(0.3, 1, true), *c = part(0.3, 2, true);
    int n_same = 0;
    for (int64_t i = 0; i < a->n; i++) {
        assert_string_equal(td_dataset_path(a, i), td_dataset_path(b, i));
        n_same += has(c, td_sample_name(a, i));
    }
    assert_true(n_same < a->n);
    td_dataset_free(a);
    td_dataset_free(b);
    td_dataset_free(c);
}

/* so a smaller part is validated again by a larger one */
static void a_larger_fraction_contains_a_smaller_one(void **state)
{
    (void)state;
    td_dataset *few = part(0.2, 3, true), *many = part(0.6, 3, true);
    for (int64_t i = 0; i < few->n; i++)
        assert_true(has(many, td_sample_name(few, i)));
    td_dataset_free(few);
    td_dataset_free(many);
}

static void other_requests_are_refused(void **state)
{
    (void)state;
    td_dataset *ds = open_set(), *noise;
    expect_error(td_dataset_hold_out(ds, 0, 1, true), TD_EARG, "0");
    expect_error(td_dataset_hold_out(ds, 1, 1, true), TD_EARG, "1");
    expect_error(td_dataset_hold_out(ds, 0.04, 1, true), TD_EFORMAT, "0.04");
    assert_int_equal(ds->n, CLASSES * PER_CLASS);
    expect_ok(td_dataset_open(&(td_dataset_opts){ .backend = TD_DATA_SYNTHETIC }, &noise));
    expect_error(td_dataset_hold_out(noise, 0.5, 1, true), TD_EARG, "synthetic");
    td_dataset_free(noise);
    td_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_disjoint_and_complete),
        cmocka_unit_test(seeds_choose),
        cmocka_unit_test(a_larger_fraction_contains_a_smaller_one),
        cmocka_unit_test(other_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
