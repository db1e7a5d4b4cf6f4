/* test_draw_set.c -- drawn data sets: what is there, the same bytes, no leftovers on failure */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "base/paths.h"
#include "image/image.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"

static void counts_are_exact(void **state)
{
    (void)state;
    const char *root = td_scratch_path("counts");
    td_draw_opts o = { .classes = 3, .train = 11, .val = 4, .size = 20, .threads = 2 };
    expect_ok(td_dataset_draw(root, &o));
    assert_int_equal(td_scratch_count("part"), 0);
    for (int val = 0; val < 2; val++) {
        td_dataset *ds;
        td_dataset_opts d = { .path = root, .split = val ? "val" : "train" };
        expect_ok(td_dataset_open(&d, &ds));
        assert_int_equal(td_dataset_classes(ds), 3);
        assert_int_equal(td_dataset_count(ds), val ? 4 : 11);
        int per_class[3] = { 0 };
        for (int64_t i = 0; i < td_dataset_count(ds); i++)
            per_class[td_dataset_label(ds, i)]++;
        for (int c = 0; c < 3; c++)
            assert_in_range(per_class[c], val ? 1 : 3, val ? 2 : 4);
        int n_known = 0;
        for (int kind = 0; kind < 3; kind++) {
            for (int c = 0; c < 3; c++)
                n_known += !strcmp(td_dataset_class_name(ds, c), td_draw_kind_name(kind));
        }
        assert_int_equal(n_known, 3);
        td_dataset_report *r;
        expect_ok(td_dataset_check(ds, &(td_check_opts){ .threads = 1 }, &r));
        assert_int_equal(r->n_good, td_dataset_count(ds));
        assert_int_equal(r->n_jpeg, r->n_good);
        assert_true(r->width.min == 20 && r->width.max == 20 && r->height.median == 20);
        td_dataset_report_free(r);
        td_dataset_free(ds);
    }
}

static void same_folder(const char *a, const char *b, bool is_same)
{
    td_dataset *p, *q;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = a, .split = "train" }, &p));
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = b, .split = "train" }, &q));
    assert_int_equal(td_dataset_count(p), td_dataset_count(q));
    int n_differ = 0;
    for (int64_t i = 0; i < td_dataset_count(p); i++) {
        char *x, *y;
        size_t n, m;
        expect_ok(td_file_read(td_dataset_path(p, i), 1 << 20, &x, &n));
        expect_ok(td_file_read(td_dataset_path(q, i), 1 << 20, &y, &m));
        n_differ += n != m || memcmp(x, y, n) != 0;
        td_free(x);
        td_free(y);
    }
    assert_int_equal(n_differ, is_same ? 0 : td_dataset_count(p));
    td_dataset_free(p);
    td_dataset_free(q);
}

static void bytes_depend_on_the_seed_alone(void **state)
{
    (void)state;
    td_draw_opts o = { .classes = 4, .train = 12, .val = 4, .size = 24, .threads = 1, .seed = 3 };
    expect_ok(td_dataset_draw(td_scratch_path("s1"), &o));
    o.threads = 4;
    expect_ok(td_dataset_draw(td_scratch_path("s2"), &o));
    o.seed = 4;
    expect_ok(td_dataset_draw(td_scratch_path("s3///"), &o));
    same_folder(td_scratch_path("s1"), td_scratch_path("s2"), true);
    same_folder(td_scratch_path("s1"), td_scratch_path("s3"), false);
    same_folder(td_scratch_path("s1/val/.."), td_scratch_path("s1"), true);
}

static void only_new_or_empty_folders(void **state)
{
    (void)state;
    td_draw_opts o = { .classes = 2, .train = 2, .val = 2, .size = 16, .threads = 1 };
    const char *root = td_scratch_path("full");
    td_write_text(td_scratch_path("full/precious.txt"), "mine");
    expect_error(td_dataset_draw(root, &o), TD_EARG, "is not empty");
    expect_error(td_dataset_draw(td_scratch_path("full/precious.txt"), &o), TD_EARG,
                 "is not a folder");
    assert_true(td_path_exists(td_scratch_path("full/precious.txt")));
    root = td_scratch_path("void");
    expect_ok(td_make_folder(root));
    expect_ok(td_dataset_draw(root, &o));
    assert_true(td_path_exists(td_scratch_path("void/train")));
    expect_error(td_dataset_draw(root, &o), TD_EARG, "is not empty");
}

static void options_are_checked(void **state)
{
    (void)state;
    const char *root = td_scratch_path("never");
    expect_error(td_dataset_draw("", &(td_draw_opts){ 0 }), TD_EARG, "no output folder was given");
    expect_error(td_dataset_draw(root, &(td_draw_opts){ .classes = 1 }), TD_EARG,
                 "number of classes is 1, wanted 2 .. ");
    expect_error(td_dataset_draw(root, &(td_draw_opts){ .classes = 9999 }), TD_EARG, "9999");
    expect_error(td_dataset_draw(root, &(td_draw_opts){ .train = 3 }), TD_EARG,
                 "number of training images is 3, wanted 8");
    expect_error(td_dataset_draw(root, &(td_draw_opts){ .size = 5 }), TD_EARG, "size is 5");
    expect_error(td_dataset_draw(root, &(td_draw_opts){ .quality = 101 }), TD_EARG, "quality");
    expect_error(td_dataset_draw(root, &(td_draw_opts){ .threads = -1 }), TD_EARG, "-1 threads");
    assert_false(td_path_exists(root));
}

static td_status draw_torn(void)
{
    const td_draw_opts o = { .classes = 2, .train = 4, .val = 2, .size = 16, .threads = 2 };
    const td_status st = td_dataset_draw(td_scratch_path("torn"), &o);
    assert_int_equal(td_scratch_count("torn"), st == TD_OK);
    return st;
}

static void a_failure_leaves_nothing(void **state)
{
    (void)state;
    assert_true(td_test_allocations(draw_torn, 1000) > 10);
    expect_error(td_dataset_draw("/proc/nowhere", &(td_draw_opts){ .classes = 2 }), TD_EIO,
                 "/proc/nowhere.part");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(counts_are_exact),
        leak_checked_test(bytes_depend_on_the_seed_alone),
        leak_checked_test(only_new_or_empty_folders),
        leak_checked_test(options_are_checked),
        leak_checked_test(a_failure_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
