/* test_loader_pixels.c -- pixels, normalized, are the images that a loader gives, to the bit */
/* ctest: labels threads */
#include <stdio.h>
#include <string.h>

#include "support/expect.h"
#include "support/image_sets.h"
#include "support/leaks.h"
#include "support/scratch.h"

#include "base/log.h"
#include "tandem/dataset.h"
#include "tandem/dataset_tools.h"
#include "tandem/loader.h"

enum { S = 16, B = 4, CLASSES = 2, PER_CLASS = 9 };

static char classes_root[4096], boxes_root[4096];

static int make_folders(void **state)
{
    (void)state;
    char path[8192];
    (void)snprintf(classes_root, sizeof classes_root, "%s", td_scratch_path("classes"));
    td_write_folder(classes_root, "train", CLASSES, PER_CLASS, 40);
    (void)snprintf(path, sizeof path, "%s/train/class0/004.jpg", classes_root);
    td_write_text(path, "no image");
    (void)snprintf(boxes_root, sizeof boxes_root, "%s", td_scratch_path("boxes"));
    const td_draw_opts drawn = { .boxes = true, .train = 12, .val = 4, .size = 64 };
    expect_ok(td_dataset_draw(boxes_root, &drawn));
    return 0;
}

/* are these floats those of the pixels, bit by bit? */
static void expect_normalized(const td_batch *pixels, const td_batch *images, const td_norm *norm)
{
    const size_t area = (size_t)images->height * (size_t)images->width;
    assert_null(pixels->images);
    assert_null(images->pixels);
    for (size_t i = 0; i < (size_t)images->n * area; i++)
        for (size_t c = 0; c < 3; c++) {
            const float x = (float)pixels->pixels[3 * i + c];
            const float wanted = (x - norm->mean[c]) / norm->std[c];
            const float *y = images->images + (i / area * 3 + c) * area + i % area;
            if (memcmp(&wanted, y, sizeof wanted) != 0)
                fail_msg("pixel %zu, channel %zu: %g, wanted %g", i, c, (double)*y, (double)wanted);
        }
}

static void expect_same_rows(const td_batch *a, const td_batch *b)
{
    const size_t n = (size_t)a->n, anchors = n * (size_t)a->n_anchors;
    assert_true(a->n == b->n && a->epoch == b->epoch && a->index == b->index);
    assert_true(a->height == b->height && a->width == b->width && a->n_anchors == b->n_anchors);
    assert_memory_equal(a->labels, b->labels, n * sizeof *a->labels);
    assert_memory_equal(a->samples, b->samples, n * sizeof *a->samples);
    if (!anchors)
        return;
    assert_memory_equal(a->anchor_labels, b->anchor_labels, anchors * sizeof *a->anchor_labels);
    assert_memory_equal(a->anchor_targets, b->anchor_targets,
                        anchors * 4 * sizeof *a->anchor_targets);
}

/* three epochs of two loaders, of which one gives pixels */
static void compare(const td_dataset *ds, td_loader_opts o)
{
    td_loader *floats, *bytes;
    const td_batch *a, *b;
    int n_rows = 0;
    o.batch_size = B;
    o.seed = 5;
    o.workers = 2;
    o.max_bad = 1;
    expect_ok(td_loader_new(ds, &o, &floats));
    o.as_bytes = true;
    expect_ok(td_loader_new(ds, &o, &bytes));
    const td_norm *norm = td_loader_pixel_norm(bytes);
    assert_null(td_loader_pixel_norm(floats));
    assert_non_null(norm);
    for (int n_ends = 0; n_ends < 3;) {
        const td_status st = td_loader_next(floats, &a);
        assert_int_equal(td_loader_next(bytes, &b), st);
        n_ends += st == TD_EEND;
        if (st == TD_EEND)
            continue;
        expect_ok(st);
        expect_same_rows(a, b);
        expect_normalized(b, a, norm);
        n_rows += a->n;
    }
    assert_true(n_rows >= 24);
    td_loader_free(floats);
    td_loader_free(bytes);
}

static void of_classes(void **state)
{
    (void)state;
    static const td_loader_opts cases[] = {
        { .is_training = true },
        { .is_training = true, .autoaugment = true },
        { .is_training = true, .crop = TD_RULES_DALI },
        { .is_training = true, .interpolation = TD_INTERPOLATE_BICUBIC, .fast_decode = true },
        { .is_training = true, .normalization = TD_NORMALIZE_TF, .point_sampled = true },
        { .norm = { { 10, 20, 30 }, { 40.5F, 50, 60 } } },
        { .is_training = true, .image_sizes = "0:16,1:24,2:8" },
        { .eval_padding = 4 }, /* the bad image is left out */
        { .crop = TD_RULES_DALI, .normalization = TD_NORMALIZE_TF },
        { .eval_padding = -1, .interpolation = TD_INTERPOLATE_BICUBIC },
    };
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = classes_root, .split = "train" }, &ds));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_loader_opts o = cases[i];
        o.image_size = S;
        compare(ds, o);
    }
    td_dataset_free(ds);
}

static const td_dataset_opts with_boxes = { .path = boxes_root,
                                            .split = "train",
                                            .has_boxes = true };

static void of_boxes(void **state)
{
    (void)state;
    td_dataset *ds;
    expect_ok(td_dataset_open(&with_boxes, &ds));
    td_loader_opts o = { .detector = TD_DETECTOR_SSD300, .image_size = 300 };
    compare(ds, o);
    o.is_training = o.color_jitter = true;
    compare(ds, o);
    td_dataset_free(ds);
}

/* values that are not bytes before they are normalized stay floats */
static void expect_floats(const td_dataset *ds, td_loader_opts o)
{
    td_loader *ld;
    const td_batch *b;
    o.batch_size = B;
    o.as_bytes = true;
    o.max_bad = 1;
    expect_ok(td_loader_new(ds, &o, &ld));
    assert_null(td_loader_pixel_norm(ld));
    expect_ok(td_loader_next(ld, &b));
    assert_non_null(b->images);
    assert_null(b->pixels);
    td_loader_free(ld);
}

static void others_stay_floats(void **state)
{
    (void)state;
    td_dataset *ds;
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = classes_root, .split = "train" }, &ds));
    expect_floats(ds, (td_loader_opts){ .crop = TD_RULES_TF, .image_size = S });
    expect_floats(ds,
                  (td_loader_opts){ .crop = TD_RULES_TF, .image_size = S, .is_training = true });
    td_dataset_free(ds);
    expect_ok(td_dataset_open(&with_boxes, &ds));
    expect_floats(ds, (td_loader_opts){ .detector = TD_DETECTOR_SSD320, .image_size = 320 });
    td_dataset_free(ds);
    const td_dataset_opts noise = { .backend = TD_DATA_SYNTHETIC, .n_images = 8, .n_classes = 2 };
    expect_ok(td_dataset_open(&noise, &ds));
    expect_floats(ds, (td_loader_opts){ .is_training = true, .image_size = S });
    td_dataset_free(ds);
}

static void hush(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx, (void)level, (void)module, (void)text;
}

int main(void)
{
    td_log_set_sink(hush, NULL); /* the bad image is a warning */
    const struct CMUnitTest tests[] = {
        leak_checked_test(of_classes),
        leak_checked_test(of_boxes),
        leak_checked_test(others_stay_floats),
    };
    return cmocka_run_group_tests(tests, make_folders, NULL);
}
