/* test_loader.c -- batches: the same bits whatever the workers, resuming, bad images, the end */
/* ctest: labels threads */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "base/log.h"
#include "tandem/dataset.h"
#include "tandem/loader.h"

enum { S = 16, B = 4, ROW = 3 * S * S, CLASSES = 3, PER_CLASS = 7, N = CLASSES * PER_CLASS };

static char good_root[4096], bad_root[4096];
static int make_folders(void **state)
{
    (void)state;
    (void)snprintf(good_root, sizeof good_root, "%s", td_scratch_path("good"));
    td_write_folder(good_root, "train", CLASSES, PER_CLASS, 40);

    /* samples 4, 5 (neighbours) and 20 (the last: its substitute wraps around to 0) are bad */
    char path[8192];
    (void)snprintf(bad_root, sizeof bad_root, "%s", td_scratch_path("bad"));
    td_write_folder(bad_root, "train", CLASSES, PER_CLASS, 40);
    (void)snprintf(path, sizeof path, "%s/train/class0/004.jpg", bad_root);
    td_write_text(path, "no image");
    (void)snprintf(path, sizeof path, "%s/train/class0/005.jpg", bad_root);
    td_write_text(path, "");
    (void)snprintf(path, sizeof path, "%s/train/class2/006.jpg", bad_root);
    char *bytes;
    size_t n;
    expect_ok(td_file_read(path, 1 << 20, &bytes, &n));
    expect_ok(td_file_write(path, bytes, n / 2)); /* cut in the middle */
    td_free(bytes);
    return 0;
}

static td_dataset *open_set(const char *root)
{
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = root, .split = "train" }, &ds));
    assert_int_equal(td_dataset_count(ds), N);
    return ds;
}

static td_loader_opts training(void)
{
    return (td_loader_opts){
        .is_training = true, .batch_size = B, .image_size = S, .workers = 2, .seed = 11
    };
}

/* Everything of some batches, one after the other. */
typedef struct {
    float images[64 * B * ROW];
    int64_t labels[64 * B], samples[64 * B];
    int n_rows, n_batches;
} record;

/* take `n` batches, going on over the ends of epochs */
static void take(td_loader *ld, int n, record *r)
{
    const td_batch *b;
    while (n > 0) {
        td_status st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            continue;
        expect_ok(st);
        assert_int_equal(b->channels, 3);
        assert_int_equal(b->height, S);
        assert_int_equal(b->width, S);
        memcpy(r->images + ROW * r->n_rows, b->images, (size_t)b->n * ROW * sizeof(float));
        memcpy(r->labels + r->n_rows, b->labels, (size_t)b->n * sizeof(int64_t));
        memcpy(r->samples + r->n_rows, b->samples, (size_t)b->n * sizeof(int64_t));
        r->n_rows += b->n;
        r->n_batches++;
        n--;
    }
}

static void expect_same(const record *a, const record *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    assert_memory_equal(a->samples, b->samples, (size_t)a->n_rows * sizeof *a->samples);
    assert_memory_equal(a->labels, b->labels, (size_t)a->n_rows * sizeof *a->labels);
    assert_memory_equal(a->images, b->images, (size_t)a->n_rows * ROW * sizeof *a->images);
}

static void record_batches(const char *root, td_loader_opts o, int n, record *r)
{
    td_dataset *ds = open_set(root);
    td_loader *ld;
    memset(r, 0, sizeof *r);
    expect_ok(td_loader_new(ds, &o, &ld));
    take(ld, n, r);
    td_loader_free(ld);
    td_dataset_free(ds);
}

static record one, two, joined;

/* --- the same bits -------------------------------------------------------------------------- */

static void workers_change_nothing(void **state)
{
    (void)state;
    td_loader_opts o = training();
    o.max_bad = 0.5;
    for (int bad = 0; bad < 2; bad++) {
        o.workers = 1;
        record_batches(bad ? bad_root : good_root, o, 12, &one);
        assert_int_equal(one.n_rows, 12 * B);
        for (int workers = 2; workers <= 5; workers += 3) {
            o.workers = workers;
            o.prefetch = workers;
            record_batches(bad ? bad_root : good_root, o, 12, &two);
            expect_same(&one, &two);
        }
    }
    o.seed++;
    record_batches(good_root, o, 12, &two);
    assert_memory_not_equal(one.images, two.images, sizeof(float) * ROW);
}

static void resuming_changes_nothing(void **state)
{
    (void)state;
    td_loader_opts o = training(); /* 5 batches an epoch */
    record_batches(good_root, o, 13, &one);
    for (int stop = 0; stop <= 13; stop++) {
        memset(&joined, 0, sizeof joined);
        record_batches(good_root, o, stop, &joined);
        td_loader_opts again = o;
        again.start_epoch = stop / 5;
        again.start_batch = stop % 5;
        record_batches(good_root, again, 13 - stop, &two);
        memcpy(joined.images + ROW * joined.n_rows, two.images,
               sizeof(float) * ROW * (size_t)two.n_rows);
        memcpy(joined.labels + joined.n_rows, two.labels, sizeof(int64_t) * (size_t)two.n_rows);
        memcpy(joined.samples + joined.n_rows, two.samples, sizeof(int64_t) * (size_t)two.n_rows);
        joined.n_rows += two.n_rows;
        expect_same(&one, &joined);
    }
}

static void ranks_join_to_one(void **state)
{
    (void)state;
    td_loader_opts o = training();
    o.batch_size = 2 * B;
    record_batches(good_root, o, 4, &one);
    o.batch_size = B;
    o.world = 2;
    static record rank[2];
    for (o.rank = 0; o.rank < 2; o.rank++)
        record_batches(good_root, o, 4, &rank[o.rank]);
    for (int i = 0; i < 4; i++) {
        for (int r = 0; r < 2; r++)
            assert_memory_equal(one.images + ROW * B * (2 * i + r), rank[r].images + ROW * B * i,
                                sizeof(float) * ROW * B);
    }
}

/* --- order ---------------------------------------------------------------------------------- */

static void epochs_end_and_go_on(void **state)
{
    (void)state;
    td_dataset *ds = open_set(good_root);
    td_loader *ld;
    td_loader_opts o = training();
    const td_batch *b;
    for (o.is_training = false;; o.is_training = true) {
        expect_ok(td_loader_new(ds, &o, &ld));
        int n = o.is_training ? N / B : (N + B - 1) / B;
        assert_int_equal(td_loader_batches(ld), n);
        for (int epoch = 0; epoch < 3; epoch++) {
            for (int i = 0; i < n; i++) {
                expect_ok(td_loader_next(ld, &b));
                assert_int_equal(b->epoch, epoch);
                assert_int_equal(b->index, i);
                assert_int_equal(b->n, i < N / B ? B : N % B);
                assert_true(b->decode_s > 0 && b->wait_s >= 0);
                for (int k = 0; k < b->n && !o.is_training; k++) {
                    assert_int_equal(b->samples[k], i * B + k);
                    assert_int_equal(b->labels[k], (i * B + k) / PER_CLASS);
                }
            }
            assert_int_equal(td_loader_next(ld, &b), TD_EEND);
            assert_null(b);
        }
        td_loader_free(ld);
        if (o.is_training)
            break;
    }
    td_dataset_free(ds);
}

static void epochs_can_be_chosen(void **state)
{
    (void)state;
    td_dataset *ds = open_set(good_root);
    td_loader *ld;
    td_loader_opts o = training();
    o.start_epoch = 6;
    record_batches(good_root, o, 5, &one);
    o.start_epoch = 0;
    o.start_batch = 5; /* the end of an epoch is a place to resume at */
    expect_ok(td_loader_new(ds, &o, &ld));
    const td_batch *b;
    assert_int_equal(td_loader_next(ld, &b), TD_EEND);
    memset(&two, 0, sizeof two);
    take(ld, 3, &two);
    for (int i = 0; i < 3; i++) { /* with batches ahead, lent, and not yet touched */
        expect_ok(td_loader_start_epoch(ld, 6));
        memset(&two, 0, sizeof two);
        take(ld, i < 2 ? i : 5, &two);
    }
    expect_same(&one, &two);
    expect_error(td_loader_start_epoch(ld, -1), TD_EARG, "epoch -1");
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void loaders_can_be_left_at_any_time(void **state)
{
    (void)state;
    td_dataset *ds = open_set(good_root);
    td_loader_opts o = training();
    for (int i = 0; i < 8; i++) {
        td_loader *ld;
        o.prefetch = 1 + i;
        expect_ok(td_loader_new(ds, &o, &ld));
        take(ld, i, &(record){ 0 });
        td_loader_free(ld);
    }
    td_loader_free(NULL);
    td_dataset_free(ds);
}

/* --- bad images --------------------------------------------------------------------------- */

static void bad_images_are_replaced_in_training(void **state)
{
    (void)state;
    td_dataset *ds = open_set(bad_root);
    td_loader *ld;
    td_loader_opts o = training();
    o.max_bad = 3.0 / N;
    o.batch_size = 1; /* so that every sample is wanted once */
    record_batches(good_root, o, N, &one);
    expect_ok(td_loader_new(ds, &o, &ld));
    memset(&two, 0, sizeof two);
    take(ld, 2 * N, &two);
    for (int i = 0; i < N; i++) {
        int64_t wanted = one.samples[i];
        int64_t got = wanted == 4 || wanted == 5 ? 6 : wanted == 20 ? 0 : wanted;
        assert_int_equal(two.samples[i], got);
        assert_int_equal(two.labels[i], got / PER_CLASS);
        if (got == wanted) /* the others are as if nothing had been wrong */
            assert_memory_equal(two.images + ROW * i, one.images + ROW * i, ROW * sizeof(float));
    }
    const td_bad_image *bad;
    assert_int_equal(td_loader_bad(ld, &bad), 3); /* each once, though met in two epochs */
    int seen = 0;
    for (int i = 0; i < 3; i++) {
        assert_string_equal(bad[i].path, td_dataset_path(ds, bad[i].sample));
        assert_true(strlen(bad[i].reason) > 5);
        seen |= bad[i].sample == 4 ? 1 : bad[i].sample == 5 ? 2 : bad[i].sample == 20 ? 4 : 8;
    }
    assert_int_equal(seen, 7);
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void bad_images_are_left_out_in_evaluation(void **state)
{
    (void)state;
    td_dataset *ds = open_set(bad_root);
    td_loader *ld;
    td_loader_opts o = training();
    o.is_training = false;
    record_batches(good_root, o, 6, &one);
    assert_int_equal(one.n_rows, N);
    o.max_bad = 0.2;
    expect_ok(td_loader_new(ds, &o, &ld));
    memset(&two, 0, sizeof two);
    take(ld, 6, &two);
    assert_int_equal(two.n_rows, N - 3);
    for (int i = 0; i < N - 3; i++) {
        int64_t s = i < 4 ? i : i + 2;
        assert_int_equal(two.samples[i], s);
        assert_int_equal(two.labels[i], s / PER_CLASS);
        assert_memory_equal(two.images + ROW * i, one.images + ROW * s, ROW * sizeof(float));
    }
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void a_batch_may_be_empty(void **state)
{
    (void)state;
    td_dataset *ds = open_set(bad_root);
    td_loader *ld;
    td_loader_opts o = { .batch_size = 1, .image_size = S, .max_bad = 1, .start_batch = 4 };
    const td_batch *b;
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->n, 0);
    td_loader_free(ld);

    o = (td_loader_opts){
        .batch_size = N - 1, .image_size = S, .world = 2, .rank = 1, .max_bad = 1
    };
    expect_ok(td_loader_new(ds, &o, &ld)); /* rank 1 has one image, and that is bad */
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->n, 0);
    assert_int_equal(td_loader_next(ld, &b), TD_EEND);
    td_loader_free(ld);

    o.batch_size = N; /* rank 1 has none */
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->n, 0);
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void the_cap_ends_the_run(void **state)
{
    (void)state;
    td_dataset *ds = open_set(bad_root);
    td_loader *ld;
    td_loader_opts o = training();
    const td_batch *b;
    /* 0: by default one of 21 may be bad; 0.1: two; -1: none */
    static const double caps[] = { 0, 0.1, -1 };
    static const char *const words[] = {
        "2 of 21 images cannot be used, more than --max-bad 0.01 allows (1)",
        "3 of 21 images cannot be used, more than --max-bad 0.1 allows (2)",
        "1 of 21 images cannot be used, more than --max-bad 0 allows (0)"
    };
    for (int is_training = 0; is_training < 2; is_training++) {
        for (int i = 0; i < 3; i++) {
            o.is_training = is_training;
            o.max_bad = caps[i];
            expect_ok(td_loader_new(ds, &o, &ld));
            td_status st;
            int n = 0;
            do {
                st = td_loader_next(ld, &b);
            } while ((st == TD_OK || st == TD_EEND) && n++ < 100);
            expect_error(st, TD_EFORMAT, is_training ? "--max-bad" : words[i]);
            assert_non_null(strstr(td_error_message(), "the first is '"));
            assert_non_null(strstr(td_error_message(), "epoch 0, batch "));
            assert_null(b);
            expect_error(td_loader_next(ld, &b), TD_EFORMAT, "already failed");
            expect_error(td_loader_start_epoch(ld, 0), TD_EFORMAT, "already failed");
            td_loader_free(ld);
        }
    }
    td_dataset_free(ds);
}

static void nothing_but_bad_images(void **state)
{
    (void)state;
    const char *root = td_scratch_path("nothing");
    char path[4096];
    for (int i = 0; i < 6; i++) {
        (void)snprintf(path, sizeof path, "%s/%c/%d.jpg", root, 'a' + i % 2, i);
        td_write_text(path, "x");
    }
    (void)snprintf(path, sizeof path, "%s/a/pipe.jpg", root); /* must not block */
    assert_int_equal(mkfifo(path, 0600), 0);
    td_dataset *ds;
    td_loader *ld;
    const td_batch *b;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = root }, &ds));
    td_loader_opts o = training();
    o.max_bad = 1;
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_error(td_loader_next(ld, &b), TD_EFORMAT, "none of 7 images");
    td_loader_free(ld);
    td_dataset_free(ds);
}

/* --- options and memory --------------------------------------------------------------------- */

static void options_are_checked(void **state)
{
    (void)state;
    td_dataset *ds = open_set(good_root);
    td_loader *ld;
    static const struct {
        td_loader_opts opts;
        const char *message;
    } cases[] = {
        { { .batch_size = -1 }, "batch size is -1" },
        { { .image_size = 100000 }, "image size is 100000" },
        { { .workers = -1 }, "-1 threads" },
        { { .prefetch = -3 }, "prefetch is -3" },
        { { .rank = 1 }, "rank is 1, wanted 0 .. 0" },
        { { .world = -2 }, "world is -2" },
        { { .start_epoch = -1 }, "first epoch is -1" },
        { { .start_batch = 99 }, "first batch is 99, wanted 0 .. 1" },
        { { .max_bad = 1.5 }, "share of bad images is 1.5" },
        { { .interpolation = (td_interpolation)7 }, "interpolation 7" },
        { { .is_training = true },
          "21 images, fewer than one batch of 32: use a smaller --batch-size (-b)" },
        { { .is_training = true, .batch_size = 11, .world = 2 }, "fewer than one batch of 22" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_error(td_loader_new(ds, &cases[i].opts, &ld), TD_EARG, cases[i].message);
        assert_null(ld);
    }
    td_dataset_free(ds);
}

/* The count of allocations runs on in the workers, so which call fails differs from run to run. */
static void survives_every_failing_allocation(void **state)
{
    (void)state;
    td_dataset *ds = open_set(bad_root);
    td_loader_opts o = training();
    o.max_bad = 1;
    int n_failed = 0, n_made = 0;
    for (int n = 1; n < 400; n++) {
        td_loader *ld = NULL;
        const td_batch *b;
        td_alloc_fail_at(n);
        td_status st = td_loader_new(ds, &o, &ld);
        assert_true(st == TD_OK || !ld);
        n_made += st == TD_OK;
        for (int i = 0; i < 7 && (st == TD_OK || st == TD_EEND); i++)
            st = td_loader_next(ld, &b);
        td_alloc_fail_at(0);
        if (st != TD_OK && st != TD_EEND && st != TD_ENOMEM)
            fail_msg("allocation %d: %s: %s", n, td_status_name(st), td_error_message());
        n_failed += st == TD_ENOMEM;
        td_loader_free(ld);
        if (st == TD_OK || st == TD_EEND)
            break;
    }
    assert_in_range(n_failed, 20, 398);
    assert_true(n_made > 5);
    td_dataset_free(ds);
}

static void no_allocation_once_warm(void **state)
{
    (void)state;
    td_dataset *ds = open_set(good_root);
    td_loader *ld;
    td_loader_opts o = training();
    expect_ok(td_loader_new(ds, &o, &ld));
    static record r;
    for (int i = 0; i < 10; i++) { /* until both workers have seen the largest crop */
        memset(&r, 0, sizeof r);
        take(ld, 60, &r);
    }
    int64_t before = td_alloc_count();
    for (int i = 0; i < 2; i++) {
        memset(&r, 0, sizeof r);
        take(ld, 60, &r);
    }
    assert_in_range(td_alloc_count() - before, 0,
                    2); /* a crop larger than any before may come late */
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
        leak_checked_test(workers_change_nothing),
        leak_checked_test(resuming_changes_nothing),
        leak_checked_test(ranks_join_to_one),
        leak_checked_test(epochs_end_and_go_on),
        leak_checked_test(epochs_can_be_chosen),
        leak_checked_test(loaders_can_be_left_at_any_time),
        leak_checked_test(bad_images_are_replaced_in_training),
        leak_checked_test(bad_images_are_left_out_in_evaluation),
        leak_checked_test(a_batch_may_be_empty),
        leak_checked_test(the_cap_ends_the_run),
        leak_checked_test(nothing_but_bad_images),
        leak_checked_test(options_are_checked),
        leak_checked_test(survives_every_failing_allocation),
        leak_checked_test(no_allocation_once_warm),
    };
    return cmocka_run_group_tests(tests, make_folders, NULL);
}
