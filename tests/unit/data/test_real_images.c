/*
 * test_real_images.c -- 334 real images, by the threads that check a data set and fill batches
 */
/* ctest: labels threads */
/* ctest: timeout 300 */
#include "support/expect.h"
#include "support/imagenet_sample.h"

#include "data/parallel.h"
#include "tandem/dataset_tools.h"

enum { IMAGES = TD_TEST_SAMPLE_IMAGES };

static td_dataset *ds;

static void all_decode(void **state)
{
    (void)state;
    td_dataset_report *r;
    assert_int_equal(td_dataset_count(ds), IMAGES);
    assert_int_equal(td_dataset_classes(ds), IMAGES);
    expect_ok(td_dataset_check(ds, &(td_check_opts){ 0 }, &r));
    for (int64_t i = 0; i < r->n_bad; i++)
        print_error("%s: %s\n", r->bad[i].path, r->bad[i].reason);
    assert_int_equal(r->n_bad, 0);
    assert_int_equal(r->n_good, IMAGES);
    print_message("%lld gray, %lld CMYK, %lld progressive, %lld rotated; %d .. %d pixels wide\n",
                  (long long)r->n_gray, (long long)r->n_cmyk, (long long)r->n_progressive,
                  (long long)r->n_rotated, r->width.min, r->width.max);
    td_dataset_report_free(r);
}

static void count_rows(bool is_training, int64_t wanted)
{
    td_loader *ld;
    const td_batch *b;
    td_loader_opts o = { .is_training = is_training, .max_bad = -1 };
    expect_ok(td_loader_new(ds, &o, &ld));
    int64_t n = 0;
    td_status st;
    while ((st = td_loader_next(ld, &b)) == TD_OK) {
        n += b->n;
        for (int64_t i = 0; i < (int64_t)b->n * 3 * b->height * b->width; i++)
            assert_true(b->images[i] > -2.2f && b->images[i] < 2.7f);
    }
    assert_int_equal(st, TD_EEND);
    assert_int_equal(n, wanted);
    td_loader_free(ld);
}

static void all_become_rows(void **state)
{
    (void)state;
    count_rows(false, IMAGES);
    count_rows(true, IMAGES / 32 * 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_decode),
        cmocka_unit_test(all_become_rows),
    };
    int rc = td_test_sample_open(&ds);
    if (!rc)
        rc = cmocka_run_group_tests(tests, NULL, NULL);
    td_dataset_free(ds);
    return rc;
}
