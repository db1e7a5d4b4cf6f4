/* test_tensors.c -- data sets of ready rows: tensors in a file, and noise */
#include <math.h>
#include <stdio.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "io/safetensors.h"
#include "tandem/dataset.h"
#include "tandem/loader.h"

enum { N = 11, C = 3, H = 4, W = 4, ROW = C * H * W };

static float images[N * ROW];
static int64_t labels[N];
static int remember(void **state)
{
    (void)state;
    (void)td_test_leaks_begin(state);
    for (int i = 0; i < N * ROW; i++)
        images[i] = (float)i;
    for (int i = 0; i < N; i++)
        labels[i] = i % 5;
    return 0;
}

typedef struct {
    td_dtype images, labels;
    int rank;
    int64_t n, n_labels;
    bool no_images, no_labels;
} form;

static const char *write_file(const char *name, form f)
{
    const char *path = td_scratch_path(name);
    td_tensors *t;
    static int64_t raw[N * ROW];
    expect_ok(td_tensors_new(&t));
    if (!f.no_images)
        expect_ok(td_tensors_add(t, "images", f.images ? f.images : TD_DT_F32, f.rank ? f.rank : 4,
                                 (int64_t[]){ f.n ? f.n : N, C, H, W },
                                 f.images ? (void *)raw : (void *)images));
    if (!f.no_labels)
        expect_ok(td_tensors_add(t, "labels", f.labels ? f.labels : TD_DT_I64, 1,
                                 (int64_t[]){ f.n_labels ? f.n_labels : N }, labels));
    expect_ok(td_tensors_write(t, path));
    td_tensors_free(t);
    return path;
}

static td_status open_file(const char *path, int n_classes, td_dataset **ds)
{
    return td_dataset_open(
        &(td_dataset_opts){ .path = path, .backend = TD_DATA_TENSORS, .n_classes = n_classes }, ds);
}

static void rows_come_in_order(void **state)
{
    (void)state;
    td_dataset *ds;
    td_loader *ld;
    const td_batch *b;
    int c, h, w;
    expect_ok(open_file(write_file("a.safetensors", (form){ 0 }), 0, &ds));
    assert_int_equal(td_dataset_count(ds), N);
    assert_int_equal(td_dataset_classes(ds), 5);
    assert_string_equal(td_dataset_class_name(ds, 4), "4");
    assert_int_equal(td_dataset_label(ds, 6), 1);
    td_dataset_shape(ds, &c, &h, &w);
    assert_true(c == C && h == H && w == W);
    for (int training = 0; training < 2; training++) {
        for (int rank = 0; rank < 2; rank++) {
            td_loader_opts o = {
                .is_training = training, .batch_size = 2, .world = 2, .rank = rank
            };
            expect_ok(td_loader_new(ds, &o, &ld));
            assert_int_equal(td_loader_batches(ld), training ? 2 : 3);
            for (int step = 0; step < 2 * td_loader_batches(ld); step++) {
                int i = step % (int)td_loader_batches(ld), first = (2 * i + rank) * 2;
                if (step && i == 0)
                    assert_int_equal(td_loader_next(ld, &b), TD_EEND);
                expect_ok(td_loader_next(ld, &b));
                assert_int_equal(b->n, first + 2 <= N ? 2 : first < N ? N - first : 0);
                assert_int_equal(b->index, i);
                for (int k = 0; k < b->n; k++) {
                    assert_int_equal(b->samples[k], first + k);
                    assert_int_equal(b->labels[k], (first + k) % 5);
                }
                assert_memory_equal(b->images, images + first * ROW,
                                    (size_t)b->n * ROW * sizeof(float));
            }
            td_loader_free(ld);
        }
    }
    td_dataset_free(ds);
}

static void resuming_and_choosing_epochs(void **state)
{
    (void)state;
    td_dataset *ds;
    td_loader *ld;
    const td_batch *b;
    expect_ok(open_file(write_file("a.safetensors", (form){ 0 }), 8, &ds));
    assert_int_equal(td_dataset_classes(ds), 8);
    td_loader_opts o = { .is_training = true, .batch_size = 4, .start_epoch = 3, .start_batch = 1 };
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->epoch, 3);
    assert_int_equal(b->samples[0], 4);
    expect_ok(td_loader_start_epoch(ld, 9));
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->epoch, 9);
    assert_int_equal(b->samples[0], 0);
    td_loader_free(ld);
    o = (td_loader_opts){ .batch_size = 4, .image_size = 32 };
    expect_error(td_loader_new(ds, &o, &ld), TD_ESHAPE, "4, wanted 32");
    static const char *const names[] = { "a", "b", "c", "d" };
    expect_error(td_dataset_use_classes(ds, 4, names, true), TD_EFORMAT, "8 classes, wanted 4");
    td_dataset_free(ds);
}

static void malformed_files(void **state)
{
    (void)state;
    td_dataset *ds;
    expect_error(open_file("/no/such.safetensors", 0, &ds), TD_ENOTFOUND, "/no/such.safetensors");
    expect_error(open_file(td_scratch_folder(), 0, &ds), TD_EFORMAT, "is a folder");
    expect_error(open_file(write_file("b", (form){ .no_images = true }), 0, &ds), TD_EFORMAT,
                 "no tensor 'images'");
    expect_error(open_file(write_file("b", (form){ .no_labels = true }), 0, &ds), TD_EFORMAT,
                 "no tensor 'labels'");
    expect_error(open_file(write_file("b", (form){ .images = TD_DT_F64 }), 0, &ds), TD_EFORMAT,
                 "dtype f64 and rank 4, wanted f32");
    expect_error(open_file(write_file("b", (form){ .rank = 3 }), 0, &ds), TD_EFORMAT,
                 "rank 3, wanted f32 [N, C, H, W]");
    expect_error(open_file(write_file("b", (form){ .labels = TD_DT_I32 }), 0, &ds), TD_EFORMAT,
                 "labels has dtype i32");
    expect_error(open_file(write_file("b", (form){ .n_labels = 7 }), 0, &ds), TD_EFORMAT,
                 "7 labels for 11 images");
    labels[3] = -1;
    expect_error(open_file(write_file("b", (form){ 0 }), 0, &ds), TD_EFORMAT,
                 "label of row 3 is -1");
    labels[3] = 9;
    expect_error(open_file(write_file("b", (form){ 0 }), 9, &ds), TD_EFORMAT,
                 "label of row 3 is 9, wanted 0 .. 8");
    td_write_text(td_scratch_path("b"), "not safetensors");
    expect_error(open_file(td_scratch_path("b"), 0, &ds), TD_ELIMIT, "header of ");
    assert_null(ds);
}

static void noise_is_one_fixed_batch(void **state)
{
    (void)state;
    enum { S = 16, B = 4 };
    td_dataset *ds;
    td_loader *ld, *other;
    const td_batch *b;
    td_dataset_opts d = { .backend = TD_DATA_SYNTHETIC, .n_classes = 7, .n_images = 10 };
    expect_ok(td_dataset_open(&d, &ds));
    td_loader_opts o = { .is_training = true, .batch_size = B, .image_size = S, .seed = 3 };
    expect_ok(td_loader_new(ds, &o, &ld));
    expect_ok(td_loader_new(ds, &o, &other));
    assert_int_equal(td_loader_batches(ld), 2);
    expect_ok(td_loader_next(ld, &b));
    const float *first = b->images;
    double sum = 0, square = 0;
    for (int i = 0; i < B * 3 * S * S; i++) {
        sum += first[i];
        square += (double)first[i] * first[i];
    }
    double n = B * 3 * S * S;
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(square / n - 1) < 5 * sqrt(2 / n));
    for (int i = 0; i < B; i++)
        assert_in_range(b->labels[i], 0, 6);
    expect_ok(td_loader_next(ld, &b));
    assert_ptr_equal(b->images, first);
    assert_int_equal(b->samples[0], B);
    expect_ok(td_loader_next(other, &b));
    assert_memory_equal(b->images, first, B * 3 * S * S * sizeof(float));
    td_loader_free(ld);
    td_loader_free(other);
    td_dataset_free(ds);
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    const char *path = write_file("a.safetensors", (form){ 0 });
    for (int kind = 0; kind < 2; kind++) {
        td_dataset_opts d = { .path = path,
                              .backend = kind ? TD_DATA_TENSORS : TD_DATA_SYNTHETIC,
                              .n_classes = 6 };
        td_loader_opts o = { .batch_size = 4, .image_size = H };
        td_status st = TD_ENOMEM;
        int n = 0;
        for (; st != TD_OK && n < 1000; n++) {
            td_dataset *ds = NULL;
            td_loader *ld = NULL;
            const td_batch *b;
            td_alloc_fail_at(n + 1);
            st = td_dataset_open(&d, &ds);
            if (st == TD_OK)
                st = td_loader_new(ds, &o, &ld);
            if (st == TD_OK)
                st = td_loader_next(ld, &b);
            td_alloc_fail_at(0);
            assert_true(st == TD_OK || st == TD_ENOMEM);
            td_loader_free(ld);
            td_dataset_free(ds);
        }
        assert_in_range(n, 4, 999);
    }
}

/* the row is named when the file is opened, not when a loss has become none */
static void values_that_are_not_finite_are_named(void **state)
{
    (void)state;
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    td_dataset *ds;
    for (int i = 0; i < 3; i++) {
        images[7 * ROW + (i * H + 1) * W + 2] = odd[i];
        const char *path = write_file("odd.safetensors", (form){ 0 });
        char wanted[100];
        snprintf(wanted, sizeof wanted, "row 7 of images is %s at channel %d, y 1, x 2",
                 i ? "infinite" : "nan", i);
        expect_error(
            td_dataset_open(&(td_dataset_opts){ .path = path, .backend = TD_DATA_TENSORS }, &ds),
            TD_EFORMAT, wanted);
        images[7 * ROW + (i * H + 1) * W + 2] = 0;
    }
    images[0] = 3.4e38f; /* large is not infinite */
    images[1] = -3.4e38f;
    const char *path = write_file("odd.safetensors", (form){ 0 });
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = path, .backend = TD_DATA_TENSORS }, &ds));
    td_dataset_free(ds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_that_are_not_finite_are_named, remember,
                                        td_test_leaks_end),
        cmocka_unit_test_setup_teardown(rows_come_in_order, remember, td_test_leaks_end),
        cmocka_unit_test_setup_teardown(resuming_and_choosing_epochs, remember, td_test_leaks_end),
        cmocka_unit_test_setup_teardown(malformed_files, remember, td_test_leaks_end),
        cmocka_unit_test_setup_teardown(noise_is_one_fixed_batch, remember, td_test_leaks_end),
        cmocka_unit_test_setup_teardown(survives_every_failing_allocation, remember,
                                        td_test_leaks_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
