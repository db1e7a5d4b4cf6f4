/*
 * test_real_pictures.c -- the 334 pictures of $TANDEM_SHARED/data/imagenet-sample.tar
 *
 * Skipped (77) where the archive is absent.
 */
/* ctest: labels threads */
/* ctest: timeout 300 */
#include <stdio.h>
#include <stdlib.h>

#include "support/expect.h"
#include "support/scratch.h"

#include "base/os.h"
#include "tandem/data.h"

enum { PICTURES = 334, SKIPPED = 77 };

static td_dataset *ds;

static int open_set(void **state)
{
    (void)state;
    td_dataset_opts o = { .path = td_scratch_path("imagenet-sample"), .split = "val" };
    if (td_dataset_open(&o, &ds) != TD_OK)
        print_error("%s\n", td_error_message());
    return ds == NULL;
}

static int close_set(void **state)
{
    (void)state;
    td_dataset_free(ds);
    return 0;
}

static void all_decode(void **state)
{
    (void)state;
    td_dataset_report *r;
    assert_int_equal(td_dataset_count(ds), PICTURES);
    assert_int_equal(td_dataset_classes(ds), PICTURES);
    expect_ok(td_dataset_check(ds, &(td_check_opts){ 0 }, &r));
    for (int64_t i = 0; i < r->n_bad; i++)
        print_error("%s: %s\n", r->bad[i].path, r->bad[i].reason);
    assert_int_equal(r->n_bad, 0);
    assert_int_equal(r->n_good, PICTURES);
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
    count_rows(false, PICTURES);
    count_rows(true, PICTURES / 32 * 32);
}

int main(void)
{
    const char *shared = getenv("TANDEM_SHARED");
    char tar[4096], command[16384];
    (void)snprintf(tar, sizeof tar, "%s/data/imagenet-sample.tar", shared ? shared : "../shared");
    if (!td_path_exists(tar)) {
        (void)fprintf(stderr, "skipped: '%s' is absent\n", tar);
        return SKIPPED;
    }
    (void)snprintf(command, sizeof command, "tar -xf '%s' -C '%s'", tar, td_scratch_folder());
    if (system(command) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_decode),
        cmocka_unit_test(all_become_rows),
    };
    return cmocka_run_group_tests(tests, open_set, close_set);
}
