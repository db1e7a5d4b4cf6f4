/*
 * test_loader_changes.c -- loaders where something changes: sizes by epoch, augmentation, rules,
 * and files that vanish while they are in use
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/arena.h"
#include "base/log.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"
#include "tandem/loader.h"
#include "transforms/augment.h"

enum { CLASSES = 3, PER_CLASS = 8, N = CLASSES * PER_CLASS, BATCH = 4, LARGEST = 48 };

static td_dataset *open_set(const char *root)
{
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = root, .split = "train" }, &ds));
    return ds;
}

/* a digest of all that `n` batches hold */
static double sum_of(const td_dataset *ds, td_loader_opts o, int n, int64_t *samples)
{
    td_loader *ld;
    const td_batch *b;
    double sum = 0;
    o.is_training = true;
    o.batch_size = BATCH;
    expect_ok(td_loader_new(ds, &o, &ld));
    for (int i = 0; i < n;) {
        td_status st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            continue;
        expect_ok(st);
        size_t row = 3 * (size_t)b->height * (size_t)b->width;
        for (size_t k = 0; k < row * BATCH; k++)
            sum += (double)b->images[k] * (double)(1 + (k + (size_t)i) % 97);
        memcpy(samples + BATCH * i++, b->samples, BATCH * sizeof *samples);
    }
    td_loader_free(ld);
    return sum;
}

static const char *folder(const char *name)
{
    const char *root = td_scratch_path(name);
    td_write_folder(root, "train", CLASSES, PER_CLASS, 60);
    return root;
}

/* --- sizes ------------------------------------------------------------------------------------ */

static void sizes_follow_the_epochs(void **state)
{
    (void)state;
    enum { ROW = 3 * LARGEST * LARGEST };
    static float wanted[ROW];
    static const int sizes[] = { 16, 16, LARGEST, 24, 24 };
    td_dataset *ds = open_set(folder("sizes"));
    td_loader *ld;
    const td_batch *b;
    td_transformer w = { 0 };
    td_loader_opts o = { .is_training = true,
                         .batch_size = BATCH,
                         .workers = 2,
                         .prefetch = 4,
                         .image_sizes = "0:16,2:48,3:24",
                         .seed = 3 };
    expect_ok(td_loader_new(ds, &o, &ld));
    for (int epoch = 0; epoch < 5; epoch++) {
        td_status st;
        while ((st = td_loader_next(ld, &b)) == TD_OK) {
            assert_int_equal(b->height, sizes[epoch]);
            assert_int_equal(b->width, sizes[epoch]);
            td_transform t = { .is_training = true, .size = sizes[epoch], .seed = 3 };
            size_t row = 3 * (size_t)sizes[epoch] * (size_t)sizes[epoch];
            for (int i = 0; i < b->n; i++) {
                expect_ok(td_transform_file(&w, &t, td_dataset_path(ds, b->samples[i]), epoch,
                                            b->samples[i], wanted));
                assert_memory_equal(b->images + row * (size_t)i, wanted, row * sizeof(float));
            }
        }
        assert_int_equal(st, TD_EEND);
    }
    expect_ok(td_loader_start_epoch(ld, 2)); /* as after resuming */
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->height, LARGEST);
    td_loader_free(ld);
    o.image_sizes = "5:16";
    expect_error(td_loader_new(ds, &o, &ld), TD_EUSAGE, "first step begins at epoch 5");
    o.image_sizes = "0:16";
    o.is_training = false;
    expect_error(td_loader_new(ds, &o, &ld), TD_EARG, "epoch require training on image files");
    td_transformer_release(&w);
    td_dataset_free(ds);
}

/* --- what is done to images ----------------------------------------------------------------- */

static void workers_change_nothing_whatever_the_rules(void **state)
{
    (void)state;
    td_dataset *ds = open_set(folder("rules"));
    static const td_loader_opts kinds[] = {
        { .autoaugment = true },
        { .autoaugment = true, .fast_decode = true },
        { .crop = TD_RULES_DALI },
        { .crop = TD_RULES_DALI,
          .interpolation = TD_INTERPOLATE_TRIANGULAR,
          .normalization = TD_NORMALIZE_TF }, /* else torchvision's, where the first try fits */
        { .crop = TD_RULES_DALI, .interpolation = TD_INTERPOLATE_BICUBIC, .autoaugment = true },
        { .crop = TD_RULES_TF, .normalization = TD_NORMALIZE_TF },
        { .point_sampled = true },
        { .order = TD_ORDER_BUFFER },
        { .order = TD_ORDER_PADDED },
        { 0 },
    };
    enum { KINDS = sizeof kinds / sizeof *kinds, BATCHES = 14 };
    double sums[KINDS];
    int64_t samples[2][BATCH * BATCHES];
    for (int k = 0; k < KINDS; k++) {
        td_loader_opts o = kinds[k];
        o.image_size = 32;
        o.seed = 5;
        o.workers = 1;
        sums[k] = sum_of(ds, o, BATCHES, samples[0]);
        o.workers = 3;
        o.prefetch = 5;
        assert_true(sum_of(ds, o, BATCHES, samples[1]) == sums[k]);
        assert_memory_equal(samples[0], samples[1], sizeof samples[0]);
        for (int i = 0; i < k;
             i++) /* each does something of its own; padded is plain on one rank */
            if (sums[i] == sums[k] && !(i == KINDS - 2 && k == KINDS - 1))
                fail_msg("kinds %d and %d are the same", i, k);
    }
    assert_true(sums[KINDS - 2] == sums[KINDS - 1]);
    td_dataset_free(ds);
}

static void contradictions_are_refused(void **state)
{
    (void)state;
    static const struct {
        td_loader_opts o;
        const char *words;
        td_status st;
    } cases[] = {
        { { .antialias = true, .point_sampled = true }, "exclude each other", TD_EUSAGE },
        { { .interpolation = TD_INTERPOLATE_TRIANGULAR, .point_sampled = true },
          "triangular",
          TD_EUSAGE },
        { { .crop = TD_RULES_TF, .interpolation = TD_INTERPOLATE_BICUBIC }, "bilinear", TD_EUSAGE },
        { { .crop = TD_RULES_TF, .antialias = true }, "bilinear", TD_EUSAGE },
        { { .crop = TD_RULES_TF, .autoaugment = true },
          "tf and autoaugment exclude each",
          TD_EUSAGE },
        { { .crop = (td_crop_rules)7 }, "crop rules 7", TD_EARG },
        { { .order = (td_order)7 }, "order 7", TD_EARG },
    };
    td_dataset *ds = open_set(folder("contradictions"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_loader_opts o = cases[i].o;
        td_loader *ld;
        o.is_training = true;
        o.batch_size = BATCH;
        expect_error(td_loader_new(ds, &o, &ld), cases[i].st, cases[i].words);
    }
    td_dataset_free(ds);
}

/* --- what vanishes ---------------------------------------------------------------------------- */

/* one file deleted, one emptied, after the data set was opened */
static void vanished_files_are_replaced_and_listed(void **state)
{
    (void)state;
    td_dataset *ds = open_set(folder("vanish"));
    expect_ok(unlink(td_dataset_path(ds, 3)) == 0 ? TD_OK : TD_EIO);
    td_write_text(td_dataset_path(ds, 9), "");
    td_loader_opts o = { .image_size = 32, .seed = 5, .max_bad = 0.25, .workers = 1 };
    int64_t one[BATCH * 12], two[BATCH * 12];
    double sum = sum_of(ds, o, 12, one);
    o.workers = 3;
    assert_true(sum_of(ds, o, 12, two) == sum);
    assert_memory_equal(one, two, sizeof one);
    int n_substitutes = 0;
    for (int i = 0; i < BATCH * 12; i++) {
        assert_true(one[i] != 3 && one[i] != 9);
        n_substitutes += one[i] == 4 || one[i] == 10;
    }
    assert_int_equal(n_substitutes, 8); /* two epochs: themselves and in another's place */

    td_loader *ld;
    const td_batch *b;
    const td_bad_image *bad;
    td_status st;
    o.is_training = true;
    o.batch_size = BATCH;
    expect_ok(td_loader_new(ds, &o, &ld));
    while ((st = td_loader_next(ld, &b)) == TD_OK)
        continue;
    assert_int_equal(st, TD_EEND);
    assert_int_equal(td_loader_bad(ld, &bad), 2);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(bad[i].reason, bad[i].sample == 3 ? "No such file" : "empty"));
    td_loader_free(ld);
    td_dataset_free(ds);
}

/* all of a class goes while batches are being made: the cap ends it, in words */
static void a_vanished_folder_ends_the_run(void **state)
{
    (void)state;
    td_dataset *ds = open_set(folder("gone"));
    td_loader *ld;
    const td_batch *b;
    td_loader_opts o = {
        .is_training = true, .batch_size = BATCH, .image_size = 32, .max_bad = 0.1
    };
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_ok(td_loader_next(ld, &b));
    for (int64_t i = PER_CLASS; i < 2 * PER_CLASS; i++)
        assert_int_equal(unlink(td_dataset_path(ds, i)), 0);
    td_status st = TD_OK;
    for (int i = 0; i < 100 && (st == TD_OK || st == TD_EEND); i++)
        st = td_loader_next(ld, &b);
    expect_error(st, TD_EFORMAT, "--max-bad 0.1 allows (2)");
    td_loader_free(ld);
    td_dataset_free(ds);
}

/* a pack that is cut off while it is read makes bad images: no signal, no other process */
static void a_pack_cut_off_in_use_is_no_crash(void **state)
{
    (void)state;
    const char *path = td_scratch_path("cut.pack");
    td_pack_result made;
    expect_ok(td_dataset_pack(folder("packed"), path, &(td_pack_opts){ 0 }, &made));
    td_dataset *ds;
    td_loader *ld;
    const td_batch *b;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = path, .split = "train" }, &ds));
    td_loader_opts o = { .is_training = true, .batch_size = BATCH, .image_size = 32, .max_bad = 1 };
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(truncate(path, (off_t)made.n_bytes / 2), 0);
    td_status st = TD_OK;
    for (int i = 0; i < 100 && (st == TD_OK || st == TD_EEND); i++)
        st = td_loader_next(ld, &b);
    assert_true(st == TD_OK || st == TD_EEND); /* half of it is still there */
    const td_bad_image *bad;
    int64_t n = td_loader_bad(ld, &bad);
    assert_in_range(n, N / 4, 3 * N / 4);
    assert_non_null(strstr(bad[0].reason, "in use"));
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void hush(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx, (void)level, (void)module, (void)text;
}

int main(void)
{
    td_log_set_sink(hush, NULL); /* every bad image is a warning */
    const struct CMUnitTest tests[] = {
        leak_checked_test(sizes_follow_the_epochs),
        leak_checked_test(workers_change_nothing_whatever_the_rules),
        leak_checked_test(contradictions_are_refused),
        leak_checked_test(vanished_files_are_replaced_and_listed),
        leak_checked_test(a_vanished_folder_ends_the_run),
        leak_checked_test(a_pack_cut_off_in_use_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
