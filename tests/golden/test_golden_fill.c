/*
 * test_golden_fill.c -- our fill against fill.json: seeds, first numbers and sums
 */
#include <math.h>
#include <stdio.h>

#include "support/expect.h"
#include "support/fill.h"
#include "support/golden.h"

static td_json *doc;

static int set_up(void **state)
{
    (void)state;
    doc = td_golden_json("classification", "fill.json");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    td_json_free(doc);
    return 0;
}

static int64_t read_shape(const td_json *j, int64_t dim[8], int *rank)
{
    const td_json *shape = td_json_get(j, "shape");
    int64_t n = 1;
    assert_non_null(shape);
    *rank = (int)td_json_count(shape);
    assert_in_range(*rank, 1, 8);
    for (int i = 0; i < *rank; i++) {
        expect_ok(td_json_as_int(td_json_at(shape, (size_t)i), &dim[i]));
        n *= dim[i];
    }
    return n;
}

/* the first numbers must agree to the bit, the sum of n to the order it was taken in */
static void check_values(const td_json *first, double sum, const float *v, int64_t n)
{
    double wanted, found = 0, size = 0;
    assert_non_null(first);
    for (size_t i = 0; i < td_json_count(first); i++) {
        expect_ok(td_json_as_number(td_json_at(first, i), &wanted));
        assert_true((double)v[i] == wanted);
    }
    for (int64_t i = 0; i < n; i++) {
        found += (double)v[i];
        size += fabs((double)v[i]);
    }
    assert_true(fabs(found - sum) <= 1e-12 * size);
}

static void check_tensor(const td_json *j)
{
    const char *name = td_golden_text(j, "name");
    int64_t dim[8];
    int rank;
    int64_t n = read_shape(j, dim, &rank);
    uint64_t seed = td_fill_seed(td_fill_prefix(), name);
    char hex[17];

    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)seed);
    assert_string_equal(hex, td_golden_text(j, "fnv1a64"));
    for (size_t i = 0; i < td_json_count(td_json_get(j, "u")); i++) {
        double u;
        expect_ok(td_json_as_number(td_json_at(td_json_get(j, "u"), i), &u));
        assert_true(td_fill_u(seed, (int64_t)i) == u);
    }
    float *v = td_alloc((size_t)n, sizeof *v);
    assert_non_null(v);
    td_fill_tensor(TD_FILL_PLAIN, false, td_fill_prefix(), name, rank, dim, v);
    check_values(td_json_get(j, "plain"), td_golden_number(j, "plain_sum"), v, n);
    td_fill_tensor(TD_FILL_MARGIN, false, td_fill_prefix(), name, rank, dim, v);
    check_values(td_json_get(j, "margin"), td_golden_number(j, "margin_sum"), v, n);
    td_free(v);
}

static void tensors(void **state)
{
    (void)state;
    const td_json *all = td_golden_rows(doc, "tensors");
    assert_non_null(all);
    assert_true(td_json_count(all) > 0);
    for (size_t i = 0; i < td_json_count(all); i++)
        check_tensor(td_json_at(all, i));
}

static void images(void **state)
{
    (void)state;
    const td_json *j = td_json_get(doc, "images");
    int64_t dim[8];
    int rank;
    int64_t n = read_shape(j, dim, &rank);
    float *v = td_alloc((size_t)n, sizeof *v);
    assert_non_null(v);
    td_fill_images(td_fill_prefix(), td_golden_text(j, "name"), n, v);
    check_values(td_json_get(j, "first"), td_golden_number(j, "sum"), v, n);
    td_free(v);
}

static void check_labels(const td_json *j, const char *key, int64_t classes)
{
    const td_json *list = td_json_get(j, key);
    int64_t v[64], wanted;
    assert_non_null(list);
    size_t n = td_json_count(list);
    assert_in_range(n, 1, 64);
    td_fill_labels(td_fill_prefix(), td_golden_text(j, "name"), (int64_t)n, classes, v);
    for (size_t i = 0; i < n; i++) {
        expect_ok(td_json_as_int(td_json_at(list, i), &wanted));
        assert_int_equal(v[i], wanted);
    }
}

static void labels(void **state)
{
    (void)state;
    check_labels(td_json_get(doc, "labels"), "of_1000", 1000);
    check_labels(td_json_get(doc, "labels"), "of_10", 10);
}

static void sample_indices(void **state)
{
    (void)state;
    const td_json *n = td_json_get(td_json_get(doc, "sample_index"), "n");
    const td_json *k = td_json_get(td_json_get(doc, "sample_index"), "k");
    int64_t size, wanted;
    for (size_t i = 0; i < td_json_count(n); i++) {
        expect_ok(td_json_as_int(td_json_at(n, i), &size));
        for (size_t s = 0; s < td_json_count(td_json_at(k, i)); s++) {
            expect_ok(td_json_as_int(td_json_at(td_json_at(k, i), s), &wanted));
            assert_int_equal(td_golden_sample((int64_t)s, size), wanted);
        }
    }
}

/* what fill.json does not show: basic blocks end with bn2, prefixes, kinds by name */
static void rules(void **state)
{
    (void)state;
    const int64_t dim[] = { 70 };
    float end[70], inside[70];
    td_fill_kind kind;

    td_fill_tensor(TD_FILL_MARGIN, true, "p.", "layer2.1.bn2.bias", 1, dim, end);
    td_fill_tensor(TD_FILL_MARGIN, false, "p.", "layer2.1.bn2.bias", 1, dim, inside);
    uint64_t seed = td_fill_seed("p.layer2", ".1.bn2.bias");
    for (int i = 0; i < 70; i++) {
        double u = td_fill_u(seed, i);
        double b = i == 9 ? 0 : 0.7;
        double in = i == 5 || i == 69 ? 2 * u - 1 : (u < 0.25 ? -1 : 1) * (3.5 + 0.5 * u);
        assert_true(end[i] == (float)(0.05 * (b + 0.2 * (2 * u - 1))));
        assert_true(inside[i] == (float)in);
    }
    assert_true(td_fill_has_basic_blocks("resnet34") && !td_fill_has_basic_blocks("resnet50"));
    assert_true(td_fill_kind_parse("margin", &kind) && kind == TD_FILL_MARGIN);
    assert_true(td_fill_kind_parse("plain", &kind) && kind == TD_FILL_PLAIN);
    assert_false(td_fill_kind_parse("other", &kind));
    td_fill_tensor(TD_FILL_PLAIN, false, "", "bn1.num_batches_tracked", 0, NULL, end);
    assert_true(end[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors),        cmocka_unit_test(images), cmocka_unit_test(labels),
        cmocka_unit_test(sample_indices), cmocka_unit_test(rules),
    };
    td_golden_require("classification");
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
