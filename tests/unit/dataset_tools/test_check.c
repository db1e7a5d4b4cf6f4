/* test_check.c -- decoding a whole data set: what is counted, what is dumped; and its speed */
/* ctest: labels threads */
#include <stdio.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "io/safetensors.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"
#include "tandem/loader.h"

static char root[4096];
static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("set"));
    td_write_image(td_scratch_path("set/a/1.jpg"), 0, 1, 50, 40);
    td_write_text(td_scratch_path("set/a/2.jpg"), "");
    td_write_image(td_scratch_path("set/a/3.png"), 1, 1, 30, 90);
    td_write_image(td_scratch_path("set/b/1.JPEG"), 2, 1, 70, 60);
    td_write_text(td_scratch_path("set/b/2.png"), "<html>no</html>");
    td_write_text(td_scratch_path("set/b/3.jpg"), "\xFF\xD8\xFF");
    return 0;
}

static td_dataset *open_set(void)
{
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = root }, &ds));
    assert_int_equal(td_dataset_count(ds), 6);
    return ds;
}

static void everything_is_counted(void **state)
{
    (void)state;
    td_dataset *ds = open_set();
    for (int threads = 1; threads < 9; threads += 3) {
        td_dataset_report *r;
        expect_ok(td_dataset_check(ds, &(td_check_opts){ .threads = threads }, &r));
        assert_int_equal(r->n_images, 6);
        assert_int_equal(r->n_good, 3);
        assert_int_equal(r->n_bad, 3);
        assert_int_equal(r->n_jpeg, 2);
        assert_int_equal(r->n_png, 1);
        assert_int_equal(r->n_gray + r->n_cmyk + r->n_rotated + r->n_progressive, 0);
        assert_true(r->width.min == 30 && r->width.median == 50 && r->width.max == 70);
        assert_true(r->height.min == 40 && r->height.median == 60 && r->height.max == 90);
        assert_int_equal(r->n_classes, 2);
        assert_true(r->class_good[0] == 2 && r->class_good[1] == 1);
        assert_true(r->class_bad[0] == 1 && r->class_bad[1] == 2);
        assert_int_equal(r->bad[0].sample, 1);
        assert_string_equal(r->bad[0].path, td_dataset_path(ds, 1));
        assert_non_null(strstr(r->bad[0].reason, "empty"));
        assert_int_equal(r->bad[1].sample, 4);
        assert_non_null(strstr(r->bad[1].reason, "HTML"));
        assert_int_equal(r->bad[2].sample, 5);
        td_dataset_report_free(r);
    }
    td_dataset_report_free(NULL);
    td_dataset_free(ds);
}

static void a_median_of_two_is_their_mean(void **state)
{
    (void)state;
    td_dataset *ds;
    td_dataset_report *r;
    td_write_image(td_scratch_path("two/a/1.jpg"), 0, 1, 20, 40);
    td_write_image(td_scratch_path("two/b/2.jpg"), 1, 1, 31, 60);
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = td_scratch_path("two") }, &ds));
    expect_ok(td_dataset_check(ds, &(td_check_opts){ .threads = 1 }, &r));
    assert_float_equal(r->width.median, 25.5, 0);
    assert_float_equal(r->height.median, 50, 0);
    td_dataset_report_free(r);
    td_dataset_free(ds);
}

/* the dump is what an evaluating loader makes */
static void the_dump_is_what_evaluation_sees(void **state)
{
    (void)state;
    enum { S = 24 };
    const char *path = td_scratch_path("dump.safetensors");
    td_dataset *ds = open_set(), *dumped;
    td_dataset_report *r;
    td_check_opts o = { .threads = 2, .dump_tensors = path, .image_size = S, .eval_padding = 4 };
    expect_ok(td_dataset_check(ds, &o, &r));
    assert_int_equal(r->n_bad, 3);
    td_dataset_report_free(r);

    td_loader *ld, *again;
    const td_batch *a, *b;
    td_loader_opts l = { .batch_size = 6, .image_size = S, .eval_padding = 4, .max_bad = 1 };
    expect_ok(td_loader_new(ds, &l, &ld));
    expect_ok(td_loader_next(ld, &a));
    expect_ok(
        td_dataset_open(&(td_dataset_opts){ .path = path, .backend = TD_DATA_TENSORS }, &dumped));
    l.batch_size = 3;
    expect_ok(td_loader_new(dumped, &l, &again));
    expect_ok(td_loader_next(again, &b));
    assert_int_equal(a->n, 3);
    assert_int_equal(b->n, 3);
    assert_memory_equal(a->images, b->images, 3 * 3 * S * S * sizeof(float));
    assert_memory_equal(a->labels, b->labels, 3 * sizeof(int64_t));
    td_loader_free(ld);
    td_loader_free(again);
    td_dataset_free(dumped);
    td_dataset_free(ds);
}

static void options_are_checked(void **state)
{
    (void)state;
    td_dataset *ds = open_set(), *noise;
    td_dataset_report *r;
    expect_error(td_dataset_check(ds, &(td_check_opts){ .threads = -2 }, &r), TD_EARG,
                 "-2 threads");
    expect_error(td_dataset_check(ds, &(td_check_opts){ .image_size = -2 }, &r), TD_EARG,
                 "image size is -2");
    expect_error(
        td_dataset_check(
            ds, &(td_check_opts){ .image_size = 8, .dump_tensors = "/no/such/folder/x" }, &r),
        TD_EIO, "/no/such/folder/x");
    assert_null(r);
    expect_ok(td_dataset_open(&(td_dataset_opts){ .backend = TD_DATA_SYNTHETIC }, &noise));
    expect_error(td_dataset_check(noise, &(td_check_opts){ 0 }, &r), TD_EARG,
                 "'synthetic' is not a folder of images,");
    td_dataset_free(noise);
    td_dataset_free(ds);
}

static td_dataset *checked;

static td_status check_and_dump(void)
{
    td_dataset_report *r;
    const td_check_opts o = { .threads = 1,
                              .image_size = 8,
                              .dump_tensors = td_scratch_path("torn.safetensors") };
    const td_status st = td_dataset_check(checked, &o, &r);
    assert_int_equal(r != NULL, st == TD_OK);
    td_dataset_report_free(r);
    return st;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    checked = open_set();
    assert_true(td_test_allocations(check_and_dump, 2000) > 20);
    td_dataset_free(checked);
}

static void speed_is_measured(void **state)
{
    (void)state;
    td_dataset *ds;
    td_data_speed s;
    td_write_folder(td_scratch_path("fast"), "train", 2, 4, 32);
    const char *path = td_scratch_path("fast");
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = path, .split = "train" }, &ds));
    td_loader_opts o = { .image_size = 16, .workers = 2 };
    expect_ok(td_data_benchmark(ds, &o, 3, 0.01, &s));
    assert_int_equal(s.threads, 2);
    assert_true(s.min > 0 && s.min <= s.median && s.median <= s.max);
    assert_true(s.n_images >= 24 && s.n_images % 8 == 0);
    expect_error(td_data_benchmark(ds, &o, -1, 0.01, &s), TD_EARG, "-1 rounds");
    expect_error(td_data_benchmark(ds, &o, 1, -1, &s), TD_EARG, "of -1 s");
    td_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(everything_is_counted),
        leak_checked_test(a_median_of_two_is_their_mean),
        leak_checked_test(the_dump_is_what_evaluation_sees),
        leak_checked_test(options_are_checked),
        leak_checked_test(survives_every_failing_allocation),
        leak_checked_test(speed_is_measured),
    };
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
