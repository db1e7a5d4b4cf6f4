/* test_objects.c -- images with boxes: layouts, classes, packs, tensors, and their batches */
/* ctest: labels threads */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/image_sets.h"
#include "support/images.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "base/paths.h"
#include "base/text.h"
#include "boxes/targets.h"
#include "data/objects.h"
#include "tandem/dataset_tools.h"

enum { TRAIN = 13, VAL = 5, SIZE = 96, S = 64 };

static char drawn[4096];

static int draw(void **state)
{
    (void)state;
    (void)snprintf(drawn, sizeof drawn, "%s", td_scratch_path("drawn"));
    const td_draw_opts o = {
        .boxes = true, .train = TRAIN, .val = VAL, .size = SIZE, .threads = 2, .seed = 4
    };
    return td_dataset_draw(drawn, &o) != TD_OK;
}

static td_dataset *open_with(td_dataset_opts o)
{
    td_dataset *ds;
    o.has_boxes = true;
    expect_ok(td_dataset_open(&o, &ds));
    return ds;
}

static td_dataset *open_drawn(const char *split)
{
    return open_with((td_dataset_opts){ .path = drawn, .split = split });
}

static void expect_equal_sets(const td_dataset *a, const td_dataset *b)
{
    int n, m;
    assert_int_equal(td_dataset_count(a), td_dataset_count(b));
    assert_int_equal(td_dataset_classes(a), td_dataset_classes(b));
    for (int i = 0; i < td_dataset_classes(a); i++) {
        assert_string_equal(td_dataset_class_name(a, i), td_dataset_class_name(b, i));
        assert_int_equal(td_dataset_category(a, i + 1), td_dataset_category(b, i + 1));
    }
    for (int64_t i = 0; i < td_dataset_count(a); i++) {
        const td_annotation *p = td_dataset_annotations(a, i, &n);
        const td_annotation *q = td_dataset_annotations(b, i, &m);
        td_annotated x = td_dataset_annotated(a, i), y = td_dataset_annotated(b, i);
        assert_true(n == m && x.id == y.id && x.width == y.width && x.height == y.height);
        for (int k = 0; k < n; k++) {
            assert_true(p[k].id == q[k].id && p[k].label == q[k].label);
            assert_true(p[k].x == q[k].x && p[k].y == q[k].y && p[k].area == q[k].area);
            assert_true(p[k].width == q[k].width && p[k].height == q[k].height);
            assert_int_equal(p[k].is_crowd, q[k].is_crowd);
        }
    }
}

/* --- what is drawn ---------------------------------------------------------------------------- */

static void drawn_sets_open(void **state)
{
    (void)state;
    td_dataset *ds = open_drawn("train");
    assert_true(td_dataset_has_boxes(ds) && td_dataset_count(ds) == TRAIN);
    assert_int_equal(td_dataset_classes(ds), 3);
    assert_string_equal(td_dataset_class_name(ds, 0), "circle");
    assert_non_null(strstr(td_dataset_annotation_file(ds), "annotations/instances_train.json"));
    for (int64_t i = 0; i < TRAIN; i++) {
        int n, m;
        const td_annotation *a = td_dataset_annotations(ds, i, &n);
        const td_ground_truth *t = td_dataset_ground_truths(ds, i, &m);
        assert_true(n >= 1 && n <= 4 && n == m);
        assert_int_equal(td_dataset_label(ds, i), -1);
        for (int k = 0; k < n; k++) {
            assert_true(a[k].area > 0 && a[k].area <= a[k].width * a[k].height);
            assert_true(t[k].label == a[k].label && t[k].area == a[k].area);
            assert_true(t[k].box.xmin == (float)(a[k].x / SIZE));
            assert_true(t[k].box.ymax == (float)((a[k].y + a[k].height) / SIZE));
        }
    }
    td_dataset_free(ds);
    assert_true(td_dataset_is_annotated(drawn, "train") && td_dataset_is_annotated(drawn, "val"));
    assert_false(td_dataset_is_annotated(drawn, NULL));
}

/* the tight box of a figure: around it the paper, inside it the ink */
static void drawing_repeats(void **state)
{
    (void)state;
    char other[4096], *a, *b;
    size_t n, m;
    (void)snprintf(other, sizeof other, "%s", td_scratch_path("again"));
    const td_draw_opts o = {
        .boxes = true, .train = TRAIN, .val = VAL, .size = SIZE, .threads = 3, .seed = 4
    };
    expect_ok(td_dataset_draw(other, &o));
    static const char *const files[] = { "annotations/instances_train.json",
                                         "annotations/instances_val.json", "train/00007.jpg",
                                         "val/00004.jpg" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *p = td_path_join(drawn, files[i]), *q = td_path_join(other, files[i]);
        expect_ok(td_file_read(p, 1 << 20, &a, &n));
        expect_ok(td_file_read(q, 1 << 20, &b, &m));
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        td_free(a);
        td_free(b);
        td_free(p);
        td_free(q);
    }
}

/* --- layouts ---------------------------------------------------------------------------------- */

#define CATEGORIES                                                                                 \
    "\"categories\": [{\"id\": 7, \"name\": \"dog\"}, {\"id\": 2, \"name\": \"cat\"}]"

/* two images, the second without a box, and one annotation that is left out */
static void write_layout(const char *root, const char *file, const char *folder)
{
    char path[4096];
    td_text t = { 0 };
    (void)snprintf(path, sizeof path, "%s/%s/a.jpg", root, folder);
    td_write_image(path, 0, 1, 40, 20);
    (void)snprintf(path, sizeof path, "%s/%s/b.jpg", root, folder);
    td_write_image(path, 1, 2, 30, 30);
    td_text_add(&t, "{\"images\": [{\"id\": 5, \"file_name\": \"a.jpg\", \"width\": 40, "
                    "\"height\": 20}, {\"id\": 6, \"file_name\": \"b.jpg\", \"width\": 30, "
                    "\"height\": 30}], " CATEGORIES ", \"annotations\": ["
                    "{\"id\": 1, \"image_id\": 5, \"category_id\": 7, \"bbox\": [4, 2, 20, 10]}, "
                    "{\"id\": 2, \"image_id\": 5, \"category_id\": 2, \"bbox\": [0, 0, 0, 1]}]}");
    (void)snprintf(path, sizeof path, "%s/%s", root, file);
    td_write_text(path, td_text_get(&t));
    td_text_release(&t);
}

static void finds_every_layout(void **state)
{
    (void)state;
    static const struct {
        const char *file, *folder, *split;
        bool allow_root;
    } cases[] = {
        { "annotations/instances_train2017.json", "train2017", "train", false },
        { "annotations/instances_val2017.json", "val2017", "val", false },
        { "annotations/instances_train.json", "images/train", "train", false },
        { "annotations/train.json", "images/train2017", "train", false },
        { "annotations/val.json", "images", "val", false },
        { "train/_annotations.coco.json", "train", "train", false },
        { "valid/_annotations.coco.json", "valid", "val", false },
        { "val/annotations.json", "val", "val", false },
        { "val.json", "val", "val", false },
        { "instances_val.json", ".", "val", false },
        { "annotations.json", "images", NULL, false },
        { "_annotations.coco.json", ".", NULL, false },
        { "annotations/annotations.json", "annotations", NULL, false },
        { "annotations.json", ".", "val", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[4096], name[32];
        (void)snprintf(name, sizeof name, "layout%zu", i);
        (void)snprintf(root, sizeof root, "%s", td_scratch_path(name));
        write_layout(root, cases[i].file, cases[i].folder);
        td_dataset *ds = open_with((td_dataset_opts){
            .path = root, .split = cases[i].split, .allow_root = cases[i].allow_root });
        assert_int_equal(td_dataset_count(ds), 2);
        assert_true(td_path_exists(td_dataset_path(ds, 0)) &&
                    td_path_exists(td_dataset_path(ds, 1)));
        td_dataset_free(ds);
        assert_int_equal(td_dataset_is_annotated(root, cases[i].split), !cases[i].allow_root);
    }
}

static void takes_a_file_by_name(void **state)
{
    (void)state;
    char root[4096], file[4200];
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("named"));
    write_layout(root, "odd name.json", "photos");
    (void)snprintf(file, sizeof file, "%s/odd name.json", root);
    td_dataset *ds;
    expect_error(td_dataset_open(&(td_dataset_opts){ .path = root, .annotations = file }, &ds),
                 TD_ENOTFOUND, "'a.jpg'");
    char images[4200];
    (void)snprintf(images, sizeof images, "%s/photos", root);
    ds = open_with((td_dataset_opts){ .path = images, .annotations = file });
    assert_int_equal(td_dataset_count(ds), 2);
    td_dataset_free(ds);
    char beside[4200];
    (void)snprintf(beside, sizeof beside, "%s/photos/boxes.json", root);
    assert_int_equal(rename(file, beside), 0);
    ds = open_with((td_dataset_opts){ .path = beside }); /* the file itself */
    assert_int_equal(td_dataset_count(ds), 2);
    td_dataset_free(ds);
}

static void says_what_is_missing(void **state)
{
    (void)state;
    td_dataset *ds;
    char root[4096];
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("nothing"));
    expect_ok(td_make_folder(root));
    td_dataset_opts o = { .path = root, .split = "train", .has_boxes = true };
    expect_error(td_dataset_open(&o, &ds), TD_ENOTFOUND,
                 "has no annotation file: looked for annotations/instances_train2017.json");
    o.path = "/nowhere";
    expect_error(td_dataset_open(&o, &ds), TD_ENOTFOUND, "'/nowhere' does not exist");
    o = (td_dataset_opts){ .path = root, .annotations = "/nowhere/a.json" };
    expect_error(td_dataset_open(&o, &ds), TD_ENOTFOUND, "/nowhere/a.json");
    write_layout(root, "annotations/instances_train.json", "train");
    o = (td_dataset_opts){ .path = root, .split = "train", .has_boxes = true, .strict = true };
    expect_error(td_dataset_open(&o, &ds), TD_EFORMAT, "annotation 2: its box is 0 x 1 pixels");
}

/* --- classes ---------------------------------------------------------------------------------- */

static const char *layout(void)
{
    static char root[4096];
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("classes"));
    write_layout(root, "annotations.json", "images");
    return root;
}

static void numbers_classes_by_id(void **state)
{
    (void)state;
    int n;
    const td_bad_annotation *bad;
    int64_t n_listed;
    td_dataset *ds = open_with((td_dataset_opts){ .path = layout() });
    assert_int_equal(td_dataset_classes(ds), 2);
    assert_string_equal(td_dataset_class_name(ds, 0), "cat");
    assert_true(td_dataset_category(ds, 1) == 2 && td_dataset_category(ds, 2) == 7);
    assert_int_equal(td_dataset_annotations(ds, 0, &n)->label, 2);
    assert_int_equal(n, 1);
    (void)td_dataset_annotations(ds, 1, &n);
    assert_int_equal(n, 0);
    assert_int_equal(td_dataset_bad_annotations(ds, &bad, &n_listed), 1);
    assert_non_null(strstr(bad[0].text, "annotation 2: its box is 0 x 1 pixels"));
    td_dataset_free(ds);

    ds = open_with((td_dataset_opts){ .path = layout(), .keep_ids = true });
    assert_int_equal(td_dataset_classes(ds), 7);
    assert_string_equal(td_dataset_class_name(ds, 6), "dog");
    assert_string_equal(td_dataset_class_name(ds, 3), "(id 4)");
    assert_true(td_dataset_category(ds, 4) == -1 && td_dataset_category(ds, 7) == 7);
    assert_int_equal(td_dataset_annotations(ds, 0, &n)->label, 7);
    td_dataset_free(ds);

    ds = open_with((td_dataset_opts){ .path = layout(), .skip_empty = true });
    assert_int_equal(td_dataset_count(ds), 1);
    td_dataset_free(ds);
}

static void follows_other_numberings(void **state)
{
    (void)state;
    int n;
    static const char *const names[] = { "dog", "bird", "cat" };
    td_dataset *ds = open_with((td_dataset_opts){ .path = layout() });
    expect_error(td_dataset_use_classes(ds, 2, names, true), TD_EFORMAT, "has a class 'cat'");
    expect_ok(td_dataset_use_classes(ds, 3, names, true));
    assert_int_equal(td_dataset_annotations(ds, 0, &n)->label, 1);
    assert_int_equal(td_dataset_ground_truths(ds, 0, &n)->label, 1);
    assert_true(td_dataset_category(ds, 1) == 7 && td_dataset_category(ds, 2) == -1 &&
                td_dataset_category(ds, 3) == 2);
    td_dataset_free(ds);
}

static void refuses_ids_that_are_no_classes(void **state)
{
    (void)state;
    td_dataset *ds;
    char root[4096];
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("zero"));
    td_write_image(td_scratch_path("zero/a.jpg"), 0, 1, 16, 16);
    td_write_text(td_scratch_path("zero/annotations.json"),
                  "{\"images\": [{\"id\": 1, \"file_name\": \"a.jpg\", \"width\": 16, \"height\": "
                  "16}], \"categories\": [{\"id\": 0, \"name\": \"x\"}], \"annotations\": []}");
    td_dataset_opts o = { .path = root, .has_boxes = true, .keep_ids = true };
    expect_error(td_dataset_open(&o, &ds), TD_EFORMAT, "category 'x' has the id 0");
    o.keep_ids = false;
    o.skip_empty = true;
    expect_error(td_dataset_open(&o, &ds), TD_EFORMAT, "no image has a box");
}

/* --- batches ---------------------------------------------------------------------------------- */

typedef struct {
    float *images;
    int64_t *labels, *samples;
    float *deltas;
    int n_rows, n_anchors;
} record;

static void take(td_loader *ld, int n_batches, record *r)
{
    const td_batch *b;
    for (int i = 0; i < n_batches; i++) {
        td_status st = td_loader_next(ld, &b);
        if (st == TD_EEND)
            st = td_loader_next(ld, &b);
        expect_ok(st);
        size_t rows = (size_t)(r->n_rows + b->n), a = (size_t)b->n_anchors;
        size_t row = 3 * (size_t)b->height * (size_t)b->width, at = (size_t)r->n_rows;
        r->images = realloc(r->images, rows * row * sizeof(float));
        r->labels = realloc(r->labels, rows * a * sizeof(int64_t));
        r->deltas = realloc(r->deltas, rows * a * 4 * sizeof(float));
        r->samples = realloc(r->samples, rows * sizeof(int64_t));
        memcpy(r->images + at * row, b->images, (size_t)b->n * row * sizeof(float));
        memcpy(r->labels + at * a, b->anchor_labels, (size_t)b->n * a * sizeof(int64_t));
        memcpy(r->deltas + at * a * 4, b->anchor_targets, (size_t)b->n * a * 4 * sizeof(float));
        memcpy(r->samples + at, b->samples, (size_t)b->n * sizeof(int64_t));
        r->n_rows += b->n;
        r->n_anchors = b->n_anchors;
    }
}

static void forget(record *r)
{
    free(r->images);
    free(r->labels);
    free(r->deltas);
    free(r->samples);
    *r = (record){ 0 };
}

static void expect_same(const record *a, const record *b, int size)
{
    size_t n = (size_t)a->n_rows, anchors = n * (size_t)a->n_anchors;
    assert_true(a->n_rows == b->n_rows && a->n_anchors == b->n_anchors && n > 0);
    assert_memory_equal(a->samples, b->samples, n * sizeof(int64_t));
    assert_memory_equal(a->images, b->images, n * 3 * (size_t)size * (size_t)size * sizeof(float));
    assert_memory_equal(a->labels, b->labels, anchors * sizeof(int64_t));
    assert_memory_equal(a->deltas, b->deltas, anchors * 4 * sizeof(float));
}

static td_loader *start(const td_dataset *ds, td_loader_opts o)
{
    td_loader *ld;
    o.batch_size = o.batch_size ? o.batch_size : 4;
    expect_ok(td_loader_new(ds, &o, &ld));
    return ld;
}

static const td_loader_opts training = {
    .is_training = true, .detector = TD_DETECTOR_SSD320, .image_size = S, .seed = 9, .workers = 2
};

static void run(const td_dataset *ds, td_loader_opts o, int n_batches, record *r)
{
    td_loader *ld = start(ds, o);
    take(ld, n_batches, r);
    td_loader_free(ld);
}

/* threads, and where a run begins, change no bit of images and targets */
static void batches_are_deterministic(void **state)
{
    (void)state;
    static const td_detector detectors[] = { TD_DETECTOR_SSD320, TD_DETECTOR_SSD300 };
    td_dataset *ds = open_drawn("train");
    for (int k = 0; k < 2; k++) {
        record one = { 0 }, two = { 0 }, other = { 0 };
        td_loader_opts o = training;
        o.detector = detectors[k];
        o.image_size = k ? 300 : S;
        o.color_jitter = true;
        run(ds, o, 6, &one);
        o.workers = 1;
        o.prefetch = 1;
        run(ds, o, 2, &two);
        o.start_batch = 2; /* three batches of four an epoch */
        run(ds, o, 4, &two);
        expect_same(&one, &two, o.image_size);
        o.start_batch = 0;
        o.seed++;
        run(ds, o, 6, &other);
        assert_memory_not_equal(one.images, other.images, 1000);
        forget(&one);
        forget(&two);
        forget(&other);
    }
    td_dataset_free(ds);
}

/* each row's targets are those of the ground truths that its crop left */
static void targets_are_those_of_the_row(void **state)
{
    (void)state;
    td_dataset *ds = open_drawn("train");
    td_anchors *a;
    record r = { 0 };
    td_transformer w = { 0 };
    const void *bytes;
    size_t n_bytes;
    int n, n_positive = 0;
    run(ds, training, 3, &r);
    expect_ok(td_anchors_new(TD_DETECTOR_SSD320, S, &a));
    assert_int_equal(r.n_anchors, a->n);
    size_t A = (size_t)a->n;
    int64_t *labels = td_alloc(A, sizeof *labels);
    float *deltas = td_alloc(4 * A, sizeof *deltas), *image = td_alloc(3 * S * S, sizeof *image);
    void *scratch = td_alloc(1, td_targets_scratch_bytes(a));
    assert_true(labels && deltas && image && scratch);
    const td_transform t = {
        .is_training = true, .size = S, .detector = TD_DETECTOR_SSD320, .seed = 9
    };
    for (int i = 0; i < r.n_rows; i++) {
        expect_ok(td_sample_read(ds, r.samples[i], &w, &bytes, &n_bytes));
        const td_object_source from = { .bytes = bytes,
                                        .n_bytes = n_bytes,
                                        .scene = td_dataset_scene(ds, r.samples[i]),
                                        .sample = r.samples[i] };
        expect_ok(td_object_row(&w, &t, &from, image, &n));
        assert_memory_equal(image, r.images + (size_t)i * 3 * S * S, 3 * S * S * sizeof(float));
        n_positive += td_targets_assign(a, w.ground_truths, n, scratch, labels, deltas);
        assert_memory_equal(labels, r.labels + (size_t)i * A, A * sizeof *labels);
        assert_memory_equal(deltas, r.deltas + (size_t)i * A * 4, 4 * A * sizeof *deltas);
    }
    assert_true(n_positive >= r.n_rows);
    td_free(labels);
    td_free(deltas);
    td_free(image);
    td_free(scratch);
    td_anchors_free(a);
    td_transformer_release(&w);
    forget(&r);
    td_dataset_free(ds);
}

/* colours alone: crops, flips and targets stay what they are */
static void jitter_moves_no_box(void **state)
{
    (void)state;
    td_dataset *ds = open_drawn("train");
    record plain = { 0 }, jittered = { 0 };
    td_loader_opts o = training;
    run(ds, o, 3, &plain);
    o.color_jitter = true;
    run(ds, o, 3, &jittered);
    size_t n = (size_t)plain.n_rows * (size_t)plain.n_anchors;
    assert_memory_equal(plain.labels, jittered.labels, n * sizeof(int64_t));
    assert_memory_equal(plain.deltas, jittered.deltas, n * 4 * sizeof(float));
    assert_memory_not_equal(plain.images, jittered.images, 3 * S * S * sizeof(float));
    forget(&plain);
    forget(&jittered);
    td_dataset_free(ds);
}

/* An image that is red left of its middle and blue right of it, with a box around the red: in
   every row the pixels at the box's centre are red, those behind its inner edge blue. */
static void boxes_lie_on_their_pixels(void **state)
{
    (void)state;
    enum { W = 90, H = 60, MIDDLE = 45 };
    td_image img = { 0 };
    td_text png = { 0 };
    td_transformer w = { 0 };
    expect_ok(td_image_resize_buffer(&img, W, H));
    for (int i = 0; i < W * H; i++) {
        img.px[3 * i] = i % W < MIDDLE ? 255 : 0;
        img.px[3 * i + 1] = 0;
        img.px[3 * i + 2] = i % W < MIDDLE ? 0 : 255;
    }
    expect_ok(td_image_encode_png(&img, &png));
    const td_ground_truth red = { .box = { 0, 0, 1, 0.5F }, .label = 1 };
    const td_scene scene = { .ground_truths = &red, .n = 1, .width = W, .height = H };
    static const td_detector detectors[] = { TD_DETECTOR_SSD320, TD_DETECTOR_SSD300 };
    static float row[3 * S * S];
    int n_flipped = 0;
    for (int k = 0; k < 400; k++) {
        int n;
        const td_transform t = {
            .is_training = true, .size = S, .detector = (td_detector)detectors[k % 2], .seed = 1
        };
        const td_object_source from = {
            .bytes = png.data, .n_bytes = png.len, .scene = scene, .sample = k
        };
        expect_ok(td_object_row(&w, &t, &from, row, &n));
        assert_int_equal(n, 1);
        td_rect b = w.ground_truths[0].box;
        bool is_flipped = b.xmin > 0;
        int inside = (int)((b.xmin + b.xmax) / 2 * S);
        int beside = is_flipped ? (int)(b.xmin * S) - 2 : (int)(b.xmax * S) + 2;
        n_flipped += is_flipped;
        const float *line = row + (S / 2) * S;
        assert_true(line[inside] > line[2 * S * S + inside]);
        if (beside >= 0 && beside < S)
            assert_true(line[beside] < line[2 * S * S + beside]);
    }
    assert_true(n_flipped > 150 && n_flipped < 250);
    td_transformer_release(&w);
    td_text_release(&png);
    td_image_release(&img);
}

/* torchvision's recipes leave them out of training, the others do not; evaluation counts them */
static void crowds_are_trained_where_the_recipe_says(void **state)
{
    (void)state;
    enum { W = 96, H = 64 };
    static const struct {
        td_detector kind;
        int n;
    } cases[] = { { TD_DETECTOR_SSD320, 3 },
                  { TD_DETECTOR_SSD300, 3 },
                  { TD_DETECTOR_SSDLITE, 2 },
                  { TD_DETECTOR_RETINANET, 2 } };
    static const td_ground_truth all[] = {
        { .box = { 0.45F, 0.45F, 0.5F, 0.5F }, .label = 1 },
        { .box = { 0.4F, 0.4F, 0.6F, 0.6F }, .label = 2, .is_crowd = true },
        { .box = { 0.5F, 0.5F, 0.55F, 0.55F }, .label = 3 },
    };
    static float row[3 * S * S];
    td_image img = { 0 };
    td_text png = { 0 };
    td_transformer w = { 0 };
    expect_ok(td_image_resize_buffer(&img, W, H));
    memset(img.px, 100, 3 * W * H);
    expect_ok(td_image_encode_png(&img, &png));
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        const bool is_training = k % 2;
        const td_transform t = {
            .is_training = is_training, .size = S, .detector = cases[k / 2].kind, .seed = 1
        };
        int n, most = 0, n_crowds = 0;
        for (int64_t i = 0; i < 40; i++) { /* a window may cut off boxes */
            const td_object_source from = {
                .bytes = png.data,
                .n_bytes = png.len,
                .scene = { .ground_truths = all, .n = 3, .width = W, .height = H },
                .sample = i
            };
            expect_ok(td_object_row(&w, &t, &from, row, &n));
            most = n > most ? n : most;
            for (int b = 0; b < n; b++)
                n_crowds += w.ground_truths[b].label == 2;
        }
        assert_int_equal(most, is_training ? cases[k / 2].n : 3);
        assert_int_equal(n_crowds > 0, !is_training || cases[k / 2].n == 3);
    }
    td_transformer_release(&w);
    td_text_release(&png);
    td_image_release(&img);
}

static void row_of(const td_test_file *f, int width, int height, bool ignore_orientation,
                   float *row)
{
    td_transformer w = { 0 };
    int n;
    const td_transform t = { .size = S,
                             .detector = TD_DETECTOR_SSD320,
                             .stored_orientation = ignore_orientation };
    const td_object_source from = { .bytes = f->bytes,
                                    .n_bytes = f->n,
                                    .scene = { .width = width, .height = height } };
    expect_ok(td_object_row(&w, &t, &from, row, &n));
    td_transformer_release(&w);
}

/* An image with an orientation is turned upright, unless its annotations are of the stored one. */
static void annotations_say_which_way_is_up(void **state)
{
    (void)state;
    td_test_file f = td_test_image("turn6.jpg");
    td_image_info info;
    static float upright[3 * S * S], stored[3 * S * S], row[3 * S * S];
    expect_ok(td_image_probe(f.bytes, f.n, &info));
    assert_true(info.orientation == 6 && info.width != info.height);
    int w = info.width, h = info.height;
    row_of(&f, 0, 0, false, upright);
    row_of(&f, 0, 0, true, stored);
    assert_memory_not_equal(upright, stored, sizeof upright);
    row_of(&f, h, w, false, row);
    assert_memory_equal(row, upright, sizeof row);
    row_of(&f, w, h, false, row);
    assert_memory_equal(row, stored, sizeof row);
    row_of(&f, 2 * w, 2 * h, false, row); /* neither: shrunk since */
    assert_memory_equal(row, upright, sizeof row);
    td_test_file_release(&f);
}

static void evaluation_keeps_everything(void **state)
{
    (void)state;
    td_dataset *ds = open_drawn("val");
    td_loader *ld = start(ds, (td_loader_opts){ .detector = TD_DETECTOR_SSD320, .image_size = S });
    const td_batch *b;
    int64_t next = 0;
    while (td_loader_next(ld, &b) == TD_OK)
        for (int i = 0; i < b->n; i++)
            assert_int_equal(b->samples[i], next++);
    assert_int_equal(next, VAL);
    td_loader_free(ld);
    td_dataset_free(ds);
}

static void packs_hold_the_same(void **state)
{
    (void)state;
    char pack[4096];
    td_pack_result result;
    (void)snprintf(pack, sizeof pack, "%s", td_scratch_path("drawn.pack"));
    expect_ok(td_dataset_pack(drawn, pack, &(td_pack_opts){ .threads = 2 }, &result));
    assert_int_equal(result.n_images, TRAIN + VAL);
    static const char *const splits[] = { "train", "val" };
    for (int k = 0; k < 2; k++) {
        record one = { 0 }, two = { 0 };
        td_dataset *a = open_drawn(splits[k]);
        td_dataset *b = open_with((td_dataset_opts){ .path = pack, .split = splits[k] });
        expect_equal_sets(a, b);
        run(a, training, 1, &one);
        run(b, training, 1, &two);
        expect_same(&one, &two, S);
        forget(&one);
        forget(&two);
        td_dataset_free(a);
        td_dataset_free(b);
        assert_true(td_dataset_is_annotated(pack, splits[k]));
    }
    assert_false(td_dataset_is_annotated(pack, NULL));
    td_dataset *ds;
    td_dataset_opts o = { .path = pack, .split = "train" };
    expect_error(td_dataset_open(&o, &ds), TD_EFORMAT, "images with boxes, wanted");
    o.annotations = "x.json";
    expect_error(td_dataset_open(&o, &ds), TD_EARG, "no annotation file");
}

/* a pack leaves out what skip_empty leaves out, and reads the right images then */
static void packs_skip_images(void **state)
{
    (void)state;
    char root[4096], pack[4096];
    td_pack_result result;
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("skips"));
    (void)snprintf(pack, sizeof pack, "%s", td_scratch_path("skips.pack"));
    td_write_image(td_scratch_path("skips/a.png"), 0, 1, 16, 16);
    td_write_image(td_scratch_path("skips/b.png"), 1, 1, 24, 24);
    td_write_text(td_scratch_path("skips/annotations.json"),
                  "{\"images\": [{\"id\": 1, \"file_name\": \"a.png\", \"width\": 16, \"height\": "
                  "16}, {\"id\": 2, \"file_name\": \"b.png\", \"width\": 24, \"height\": 24}], "
                  "\"categories\": [{\"id\": 1, \"name\": \"x\"}], \"annotations\": [{\"id\": 1, "
                  "\"image_id\": 2, \"category_id\": 1, \"bbox\": [1.1, 2.2, 3.3, 4.4], "
                  "\"iscrowd\": 1, \"area\": 0.1}]}");
    expect_ok(td_dataset_pack(root, pack, &(td_pack_opts){ 0 }, &result));
    td_dataset *a = open_with((td_dataset_opts){ .path = root, .skip_empty = true });
    td_dataset *b = open_with((td_dataset_opts){ .path = pack, .skip_empty = true });
    assert_int_equal(td_dataset_count(b), 1);
    expect_equal_sets(a, b);
    td_transformer w = { 0 };
    td_image_info info;
    const void *bytes;
    size_t n_bytes;
    expect_ok(td_sample_read(b, 0, &w, &bytes, &n_bytes));
    expect_ok(td_image_probe(bytes, n_bytes, &info));
    assert_int_equal(info.width, 24);
    td_transformer_release(&w);
    td_dataset_free(a);
    td_dataset_free(b);
}

#define IMAGES(name)                                                                               \
    "{\"images\": [{\"id\": 1, \"file_name\": \"" name "\", \"width\": 9, \"height\": 9}], "
#define REST CATEGORIES ", \"annotations\": []}"

static td_status write_pack(const char *path, const char *first, const char *json, int n_images)
{
    td_pack_writer *w;
    td_pack_metadata metadata;
    td_status st;
    const char *const classes[] = { first, "pictures" };
    TD_TRY(td_pack_create(path, 0, 0, true, &w));
    TD_OUT(td_pack_begin_split(w, "", 2, classes));
    TD_OUT(td_pack_add(w, 0, "instances.json", json, strlen(json)));
    for (int i = 0; i < n_images; i++)
        TD_OUT(td_pack_add(w, 1, i ? "b.jpg" : "a.jpg", "x", 1));
    TD_OUT(td_pack_finish(w, &metadata));
out:
    td_pack_writer_free(w);
    return st;
}

static void packs_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *first, *json;
        int n_images;
        const char *message;
    } cases[] = {
        { "annotations", IMAGES("a.jpg") REST, 1, NULL },
        { "annotations", IMAGES("b.jpg") REST, 1, "0 is 'a.jpg', its annotations name 'b.jpg'" },
        { "annotations", IMAGES("a.jpg") REST, 2, "1 images, the pack has 2" },
        { "boxes", IMAGES("a.jpg") REST, 1, "its annotations are not the first" },
        { "annotations", "{}", 1, "has no 'images'" },
        { "annotations", "", 1, "is empty" },
    };
    char pack[4096];
    td_dataset *ds;
    (void)snprintf(pack, sizeof pack, "%s", td_scratch_path("lies.pack"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const td_dataset_opts o = { .path = pack, .has_boxes = true };
        expect_ok(write_pack(pack, cases[i].first, cases[i].json, cases[i].n_images));
        if (cases[i].message)
            expect_error(td_dataset_open(&o, &ds), TD_EFORMAT, cases[i].message);
        else
            expect_ok(td_dataset_open(&o, &ds));
        td_dataset_free(ds);
    }
}

/* --- trouble ---------------------------------------------------------------------------------- */

static void bad_images_are_named(void **state)
{
    (void)state;
    char root[4096];
    const td_bad_image *bad;
    const td_batch *b;
    (void)snprintf(root, sizeof root, "%s", td_scratch_path("bad"));
    const td_draw_opts d = { .boxes = true, .train = 8, .val = 8, .size = 48 };
    expect_ok(td_dataset_draw(root, &d));
    assert_int_equal(unlink(td_scratch_path("bad/train/00003.jpg")), 0);
    td_write_text(td_scratch_path("bad/train/00005.jpg"), "no image");
    td_dataset *ds = open_with((td_dataset_opts){ .path = root, .split = "train" });
    td_loader_opts o = training;
    o.max_bad = 0.5;
    td_loader *ld = start(ds, o);
    for (int i = 0; i < 2; i++) {
        expect_ok(td_loader_next(ld, &b));
        for (int k = 0; k < b->n; k++)
            assert_true(b->samples[k] != 3 && b->samples[k] != 5);
    }
    assert_int_equal(td_loader_bad(ld, &bad), 2);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(bad[i].reason, bad[i].sample == 3 ? "No such file" : "JPEG"));
    td_loader_free(ld);
    o.is_training = false; /* closed up: targets follow their images */
    ld = start(ds, o);
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->n, 3);
    expect_ok(td_loader_next(ld, &b));
    assert_int_equal(b->n, 3);
    record good = { 0 };
    static const int64_t kept[] = { 4, 6, 7 };
    assert_memory_equal(b->samples, kept, sizeof kept);
    td_loader *one = start(ds, (td_loader_opts){ .detector = TD_DETECTOR_SSD320,
                                                 .image_size = S,
                                                 .batch_size = 1,
                                                 .start_batch = 6,
                                                 .max_bad = 0.5 });
    take(one, 1, &good);
    assert_int_equal(good.samples[0], 6);
    size_t n = (size_t)b->n_anchors;
    assert_memory_equal(good.labels, b->anchor_labels + n, n * sizeof(int64_t));
    assert_memory_equal(good.deltas, b->anchor_targets + 4 * n, 4 * n * sizeof(float));
    td_loader_free(one);
    td_loader_free(ld);
    forget(&good);
    td_dataset_free(ds);
}

static void options_are_checked(void **state)
{
    (void)state;
    td_loader *ld;
    td_dataset *ds = open_drawn("train"), *files;
    td_loader_opts o = training;
    o.autoaugment = true;
    expect_error(td_loader_new(ds, &o, &ld), TD_EUSAGE, "autoaugment is not");
    o = training;
    o.image_sizes = "0:64";
    expect_error(td_loader_new(ds, &o, &ld), TD_EUSAGE, "image size by epoch is not");
    o = training;
    o.image_size = 77;
    expect_error(td_loader_new(ds, &o, &ld), TD_EARG, "77");
    char *path = td_path_join(drawn, "train/00000.jpg");
    expect_ok(td_dataset_from_files((const char *const[]){ path }, 1, &files));
    o = training;
    o.batch_size = 1;
    expect_error(td_loader_new(files, &o, &ld), TD_EARG, "has no boxes");
    o.is_training = false; /* to detect needs none */
    const td_batch *b;
    expect_ok(td_loader_new(files, &o, &ld));
    expect_ok(td_loader_next(ld, &b));
    for (int i = 0; i < b->n_anchors; i++)
        assert_int_equal(b->anchor_labels[i], 0);
    td_loader_free(ld);
    td_free(path);
    td_dataset_free(files);
    td_dataset_free(ds);
}

/* --- ready rows ------------------------------------------------------------------------------- */

/* what `dataset check` dumps comes back through back end tensors with the same targets */
static void tensors_are_the_images(void **state)
{
    (void)state;
    char file[4096];
    record one = { 0 }, two = { 0 };
    td_dataset_report *report;
    (void)snprintf(file, sizeof file, "%s", td_scratch_path("val.safetensors"));
    td_dataset *ds = open_drawn("val");
    const td_check_opts o = { .dump_tensors = file, .image_size = S, .threads = 2 };
    expect_ok(td_dataset_check(ds, &o, &report));
    assert_true(report->n_boxes >= VAL && report->n_empty == 0 && report->n_other_size == 0);
    td_dataset_report_free(report);
    td_dataset *t = open_with((td_dataset_opts){ .path = file, .backend = TD_DATA_TENSORS });
    td_loader_opts eval = training;
    eval.is_training = false;
    eval.batch_size = 2;
    run(ds, eval, 3, &one);
    run(t, eval, 3, &two);
    expect_same(&one, &two, S);
    forget(&one);
    forget(&two);
    td_dataset_free(ds);
    td_dataset_free(t);
}

static void synthetic_has_boxes(void **state)
{
    (void)state;
    int n, n_positive = 0;
    const td_batch *b;
    td_dataset *ds = open_with((td_dataset_opts){ .backend = TD_DATA_SYNTHETIC, .n_images = 16 });
    assert_int_equal(td_dataset_classes(ds), 80);
    const td_annotation *a = td_dataset_annotations(ds, 15, &n);
    assert_true(n == 8 && a[7].x + a[7].width <= 1000);
    td_loader *ld = start(ds, training);
    expect_ok(td_loader_next(ld, &b));
    for (int i = 0; i < b->n * b->n_anchors; i++)
        n_positive += b->anchor_labels[i] > 0;
    assert_true(n_positive >= 8);
    td_loader_free(ld);
    td_dataset_free(ds);
}

static td_status write_tensors(const char *path, const int64_t *n_boxes, const int64_t *labels,
                               const float *boxes)
{
    static float images[2 * 3 * 32 * 32];
    td_tensors *t;
    td_status st;
    TD_TRY(td_tensors_new(&t));
    TD_OUT(td_tensors_add(t, "images", TD_DT_F32, 4, (int64_t[]){ 2, 3, 32, 32 }, images));
    TD_OUT(td_tensors_add(t, "n_boxes", TD_DT_I64, 1, (int64_t[]){ 2 }, n_boxes));
    TD_OUT(td_tensors_add(t, "labels", TD_DT_I64, 2, (int64_t[]){ 2, 2 }, labels));
    if (boxes)
        TD_OUT(td_tensors_add(t, "boxes", TD_DT_F32, 3, (int64_t[]){ 2, 2, 4 }, boxes));
    TD_OUT(td_tensors_write(t, path));
out:
    td_tensors_free(t);
    return st;
}

static void odd_tensors_are_refused(void **state)
{
    (void)state;
    char path[4096];
    float boxes[16] = { 0, 0, 1, 1 }, odd[16] = { 0, NAN, 1, 1 };
    (void)snprintf(path, sizeof path, "%s", td_scratch_path("odd.safetensors"));
    const struct {
        int64_t n_boxes[2], labels[4];
        const float *boxes;
        const char *message;
    } cases[] = {
        { { 1, 0 }, { 1, 0, 0, 0 }, boxes, NULL },
        { { 1, 0 }, { 0, 0, 0, 0 }, boxes, "label of box 0 of row 0 is 0" },
        { { 1, 3 }, { 1, 0, 0, 0 }, boxes, "n_boxes of row 1 is 3, wanted 0 .. 2" },
        { { -1, 0 }, { 1, 0, 0, 0 }, boxes, "n_boxes of row 0 is -1" },
        { { 1, 0 }, { 1, 0, 0, 0 }, odd, "box 0 of row 0 is not finite" },
        { { 1, 0 }, { 1, 0, 0, 0 }, NULL, "has no tensor 'boxes'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        td_dataset *ds;
        const td_dataset_opts o = { .path = path, .backend = TD_DATA_TENSORS, .has_boxes = true };
        expect_ok(write_tensors(path, cases[i].n_boxes, cases[i].labels, cases[i].boxes));
        if (cases[i].message)
            expect_error(td_dataset_open(&o, &ds), TD_EFORMAT, cases[i].message);
        else
            expect_ok(td_dataset_open(&o, &ds));
        td_dataset_free(ds);
    }
}

/* --- memory ----------------------------------------------------------------------------------- */

static td_status open_and_load(void)
{
    td_dataset *ds;
    td_loader *ld = NULL;
    const td_batch *b;
    td_status st;
    TD_TRY(td_dataset_open(&(td_dataset_opts){ .path = drawn, .split = "val", .has_boxes = true },
                           &ds));
    static const char *const names[] = { "triangle", "square", "circle" };
    TD_OUT(td_dataset_use_classes(ds, 3, names, false));
    td_loader_opts o = training;
    o.workers = o.prefetch = 1;
    o.batch_size = 2;
    TD_OUT(td_loader_new(ds, &o, &ld));
    TD_OUT(td_loader_next(ld, &b));
out:
    td_loader_free(ld);
    td_dataset_free(ds);
    return st;
}

static void survives_every_failing_allocation(void **state)
{
    (void)state;
    (void)td_test_allocations(open_and_load, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_sets_open),
        cmocka_unit_test(drawing_repeats),
        cmocka_unit_test(finds_every_layout),
        cmocka_unit_test(takes_a_file_by_name),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(numbers_classes_by_id),
        cmocka_unit_test(follows_other_numberings),
        cmocka_unit_test(refuses_ids_that_are_no_classes),
        cmocka_unit_test(batches_are_deterministic),
        cmocka_unit_test(targets_are_those_of_the_row),
        cmocka_unit_test(jitter_moves_no_box),
        cmocka_unit_test(boxes_lie_on_their_pixels),
        cmocka_unit_test(crowds_are_trained_where_the_recipe_says),
        cmocka_unit_test(annotations_say_which_way_is_up),
        cmocka_unit_test(evaluation_keeps_everything),
        cmocka_unit_test(packs_hold_the_same),
        cmocka_unit_test(packs_skip_images),
        cmocka_unit_test(packs_that_lie_are_refused),
        cmocka_unit_test(bad_images_are_named),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(tensors_are_the_images),
        cmocka_unit_test(synthetic_has_boxes),
        cmocka_unit_test(odd_tensors_are_refused),
        cmocka_unit_test(survives_every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, draw, NULL);
}
