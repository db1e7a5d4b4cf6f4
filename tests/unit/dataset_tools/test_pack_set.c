/* test_pack_set.c -- a pack in the place of its folder: samples, batches, labels, bad images */
/* ctest: labels threads */
#include <stdio.h>
#include <sys/stat.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/image_sets.h"
#include "support/scratch.h"

#include "data/parallel.h"
#include "tandem/dataset_tools.h"

static char folder[4096], packed[4096];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s", td_scratch_path("set"));
    (void)snprintf(packed, sizeof packed, "%s", td_scratch_path("set.pack"));
    td_write_folder(folder, "train", 3, 5, 40);
    td_write_folder(folder, "val", 3, 2, 24);
    td_write_image(td_scratch_path("set/train/class1/deep/a.png"), 1, 9, 50, 30);
    td_write_text(td_scratch_path("set/train/class2/000.jpg"), "no image");
    return 0;
}

static td_status open_split(const char *path, const char *split, td_dataset **out)
{
    return td_dataset_open(&(td_dataset_opts){ .path = path, .split = split }, out);
}

static void expect_same_bytes(const td_dataset *a, const td_dataset *b, int64_t i)
{
    td_transformer v = { 0 }, w = { 0 };
    const void *p, *q;
    size_t n, m;
    expect_ok(td_sample_read(a, i, &v, &p, &n));
    expect_ok(td_sample_read(b, i, &w, &q, &m));
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    td_transformer_release(&v);
    td_transformer_release(&w);
}

static void samples_are_the_folders(void **state)
{
    (void)state;
    static const char *const splits[] = { "train", "val" };
    td_pack_result r;
    expect_ok(td_dataset_pack(folder, packed, &(td_pack_opts){ .overwrite = true }, &r));
    assert_int_equal(r.n_images, 3 * 5 + 1 + 3 * 2);
    assert_true(r.n_shrunk == 0 && r.n_unreadable == 0 && r.n_bytes > 0 && r.digest != 0);
    for (int k = 0; k < 2; k++) {
        td_dataset *a, *b;
        expect_ok(open_split(folder, splits[k], &a));
        expect_ok(open_split(packed, splits[k], &b));
        assert_int_equal(td_dataset_count(a), td_dataset_count(b));
        assert_int_equal(td_dataset_classes(a), td_dataset_classes(b));
        assert_int_equal(td_dataset_backend(b), TD_DATA_FOLDER);
        for (int c = 0; c < td_dataset_classes(a); c++)
            assert_string_equal(td_dataset_class_name(a, c), td_dataset_class_name(b, c));
        size_t na = strlen(td_dataset_root(a)), nb = strlen(td_dataset_root(b));
        for (int64_t i = 0; i < td_dataset_count(a); i++) {
            assert_int_equal(td_dataset_label(a, i), td_dataset_label(b, i));
            assert_string_equal(td_dataset_path(a, i) + na, td_dataset_path(b, i) + nb);
            expect_same_bytes(a, b, i);
        }
        td_dataset_free(a);
        td_dataset_free(b);
    }
}

static void batches_are_the_folders(void **state)
{
    (void)state;
    enum { B = 4, EPOCHS = 3 };
    for (int train = 0; train < 2; train++) {
        td_dataset *set[2];
        td_loader *ld[2];
        const td_bad_image *bad[2];
        for (int k = 0; k < 2; k++) {
            td_loader_opts o = { .is_training = train,
                                 .batch_size = B,
                                 .image_size = 20,
                                 .eval_padding = 4,
                                 .workers = k ? 3 : 1,
                                 .max_bad = 0.1,
                                 .seed = 5 };
            expect_ok(open_split(k ? packed : folder, "train", &set[k]));
            expect_ok(td_loader_new(set[k], &o, &ld[k]));
        }
        for (int epoch = 0; epoch < EPOCHS;) {
            const td_batch *a, *b;
            td_status st = td_loader_next(ld[0], &a), other = td_loader_next(ld[1], &b);
            assert_int_equal(st, other);
            epoch += st == TD_EEND;
            if (st == TD_EEND)
                continue;
            expect_ok(st);
            assert_int_equal(a->n, b->n);
            assert_memory_equal(a->images, b->images, (size_t)a->n * 3 * 20 * 20 * sizeof(float));
            assert_memory_equal(a->labels, b->labels, (size_t)a->n * sizeof *a->labels);
            assert_memory_equal(a->samples, b->samples, (size_t)a->n * sizeof *a->samples);
        }
        assert_int_equal(td_loader_bad(ld[0], &bad[0]), 1);
        assert_int_equal(td_loader_bad(ld[1], &bad[1]), 1);
        assert_int_equal(bad[0]->sample, bad[1]->sample);
        assert_string_equal(bad[0]->reason, bad[1]->reason);
        for (int k = 0; k < 2; k++) {
            td_loader_free(ld[k]);
            td_dataset_free(set[k]);
        }
    }
}

static void shrinking_keeps_what_is_small_or_bad(void **state)
{
    (void)state;
    td_pack_result r;
    td_dataset *a, *b;
    td_transformer w = { 0 };
    const void *bytes;
    size_t n;
    const char *path = td_scratch_path("small.pack");
    expect_ok(td_dataset_pack(
        folder, path, &(td_pack_opts){ .short_side = 30, .threads = 3, .overwrite = true }, &r));
    assert_int_equal(r.n_shrunk, 14); /* not val's 24 x 24, the 50 x 30 and the text */
    assert_int_equal(r.n_unreadable, 1);
    expect_ok(open_split(folder, "train", &a));
    expect_ok(open_split(path, "train", &b));
    for (int64_t i = 0; i < td_dataset_count(a); i++) {
        td_image_info info;
        expect_ok(td_sample_read(b, i, &w, &bytes, &n));
        if (strstr(td_dataset_path(a, i), "a.png") || strstr(td_dataset_path(a, i), "2/000.jpg")) {
            expect_same_bytes(a, b, i);
            continue;
        }
        expect_ok(td_image_probe(bytes, n, &info));
        assert_true(info.width == 30 && info.height == 30);
    }
    td_transformer_release(&w);
    td_dataset_free(a);
    td_dataset_free(b);
    expect_error(td_dataset_pack(folder, path, &(td_pack_opts){ .short_side = -1 }, &r), TD_EARG,
                 "short side");
    expect_error(td_dataset_pack(folder, path, &(td_pack_opts){ .quality = 101 }, &r), TD_EARG,
                 "quality");
    expect_error(td_dataset_pack(folder, folder, &(td_pack_opts){ .overwrite = true }, &r), TD_EARG,
                 "itself");
}

/* a hint: whatever the file is, or is not */
static void reading_ahead_never_fails(void **state)
{
    (void)state;
    td_dataset *ds;
    const char *files[] = { td_scratch_path("set/val/class0/000.jpg"), td_scratch_path("absent"),
                            td_scratch_path("pipe"), td_scratch_folder() };
    assert_int_equal(mkfifo(files[2], 0600), 0);
    expect_ok(td_dataset_from_files(files, 4, &ds));
    for (int64_t i = 0; i < 4; i++)
        td_sample_read_ahead(ds, i);
    td_dataset_free(ds);
    expect_ok(open_split(packed, "val", &ds));
    for (int64_t i = 0; i < td_dataset_count(ds); i++)
        td_sample_read_ahead(ds, i);
    td_dataset_free(ds);
}

static td_status try_open(void)
{
    td_dataset *ds;
    td_status st = open_split(packed, "train", &ds);
    td_dataset_free(ds);
    return st;
}

static td_status try_pack(void)
{
    td_pack_result r;
    const td_pack_opts o = { .short_side = 30, .threads = 1 };
    return td_dataset_pack(folder, td_scratch_path("alloc.pack"), &o, &r);
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    td_status (*const runs[])(void) = { try_open, try_pack };
    for (size_t i = 0; i < 2; i++)
        assert_in_range(td_test_allocations(runs[i], 10000), 10, 10000);
    assert_int_equal(td_scratch_count(".tmp."), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_the_folders),
        cmocka_unit_test(batches_are_the_folders),
        cmocka_unit_test(shrinking_keeps_what_is_small_or_bad),
        cmocka_unit_test(reading_ahead_never_fails),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
