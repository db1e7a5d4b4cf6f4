/* test_records.c -- samples of TFRecords: places, labels, boxes; every allocation may fail */
#include "data/records.h"

#include <math.h>
#include <string.h>

#include "support/allocations.h"
#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"
#include "support/tf_records.h"

#include "base/file_io.h"
#include "data/members.h"
#include "data/objects.h"

static td_text file;
static td_dataset_opts opts;

static void begin(bool has_boxes)
{
    td_text_release(&file);
    opts = (td_dataset_opts){ .has_boxes = has_boxes };
}

static td_status parse(td_dataset **out)
{
    td_dataset *ds = TD_NEW(td_dataset);
    *out = NULL;
    if (!ds)
        return TD_ENOMEM;
    const td_status st = td_records_parse(td_text_get(&file), file.len, "train-0", &opts, ds);
    if (st == TD_OK)
        *out = ds;
    else
        td_dataset_free(ds);
    return st;
}

static void refuse(td_status st, const char *part)
{
    td_dataset *ds;
    expect_error(parse(&ds), st, part);
    expect_error(st, st, "'train-0'");
    td_text_release(&file);
}

/* --- classes ---------------------------------------------------------------------------------- */

static void add_class(int64_t label, const char *text, const char *name)
{
    td_test_example e = { 0 };
    td_example_bytes(&e, "image/encoded", "image", 5);
    td_example_ints(&e, "image/class/label", &label, 1);
    td_example_bytes(&e, "image/colorspace", "RGB", 3);
    if (text)
        td_example_texts(&e, "image/class/text", &text, 1);
    if (name)
        td_example_texts(&e, "image/filename", &name, 1);
    td_example_write(&e, label % 2, &file);
}

static void labels_count_from_one(void **state)
{
    (void)state;
    td_dataset *ds;
    begin(false);
    add_class(4, "tulip", "n04_7.JPEG");
    add_class(1, NULL, "a/b.JPEG");
    add_class(4, "another", NULL);
    add_class(2, "caf\xe9", "x\ny");
    expect_ok(parse(&ds));
    assert_int_equal(ds->n, 4);
    assert_int_equal(ds->n_classes, 4);
    assert_false(ds->has_class_names);
    assert_int_equal(td_dataset_label(ds, 0), 3);
    assert_int_equal(td_dataset_label(ds, 1), 0);
    assert_string_equal(td_dataset_class_name(ds, 3), "tulip");
    assert_string_equal(td_dataset_class_name(ds, 0), "0");
    assert_string_equal(td_dataset_class_name(ds, 1), "1");
    assert_string_equal(td_dataset_path(ds, 0), "train-0/n04_7.JPEG");
    assert_string_equal(td_sample_name(ds, 1), "/b.JPEG");
    assert_string_equal(td_dataset_path(ds, 2), "train-0/2");
    assert_string_equal(td_dataset_path(ds, 3), "train-0/3");
    for (int i = 0; i < 4; i++) {
        const td_member *m = ds->samples[i].member;
        assert_int_equal(m->n_bytes, 5);
        assert_memory_equal(file.data + m->offset, "image", 5);
    }
    td_dataset_free(ds);
    opts.labels_from_zero = true;
    expect_ok(parse(&ds));
    assert_int_equal(ds->n_classes, 5);
    assert_int_equal(td_dataset_label(ds, 0), 4);
    td_dataset_free(ds);
    td_text_release(&file);
}

static void wrong_records_are_refused(void **state)
{
    (void)state;
    td_test_example e = { 0 };
    const int64_t labels[] = { 1, 2 };
    const float reals[] = { 1 };
    begin(false);
    refuse(TD_EFORMAT, "has no records");
    add_class(1, NULL, NULL);
    refuse(TD_EFORMAT, "one class");
    add_class(0, NULL, NULL);
    refuse(TD_EFORMAT,
           "the record at byte 0 has the label 0, wanted 1 or more; use --label-offset");
    opts.labels_from_zero = true;
    add_class(-1, NULL, NULL);
    refuse(TD_EFORMAT, "the label -1, wanted 0 or more");
    add_class(1000000, NULL, NULL);
    refuse(TD_ELIMIT, "1000000");
    td_example_ints(&e, "image/class/label", labels, 1);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "has no 'image/encoded'");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "has 0 values of 'image/class/label'");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_ints(&e, "image/class/label", labels, 2);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "has 2 values of 'image/class/label'");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_reals(&e, "image/class/label", reals, 1);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "'image/class/label': it is no list of integers");
    td_example_ints(&e, "image/encoded", labels, 1);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "'image/encoded' is no list of bytes");
    td_example_texts(&e, "image/encoded", (const char *[]){ "a", "b" }, 2);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "'image/encoded' has two values");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "'image/encoded' occurs twice");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_bytes(&e, "image/filename", "x\0y", 3);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "zero byte");
    td_record_write("\x0a\xff\xff\xff\xff\x01", 6, &file);
    refuse(TD_EFORMAT, "no tf.train.Example");
    td_record_write("\x0a\x80", 2, &file);
    refuse(TD_EFORMAT, "no tf.train.Example");
    td_record_write("\x12\x00", 2, &file); /* a SequenceExample, an event */
    refuse(TD_EFORMAT, "no tf.train.Example");
    td_record_write("\x0b", 1, &file);
    refuse(TD_EFORMAT, "invalid wire type");
}

/* --- boxes ------------------------------------------------------------------------------------ */

typedef struct {
    const char *id;
    int n;
    float box[2][4]; /* xmin, ymin, xmax, ymax */
    int64_t labels[2];
    const char *texts[2];
} scene;

static void add_scene(const scene *s, bool has_labels, bool has_texts)
{
    static const char *const keys[] = { "image/object/bbox/xmin", "image/object/bbox/ymin",
                                        "image/object/bbox/xmax", "image/object/bbox/ymax" };
    td_test_example e = { 0 };
    const int64_t crowds[] = { 0, 1 };
    td_example_ints(&e, "image/height", (int64_t[]){ 48 }, 1);
    td_example_ints(&e, "image/width", (int64_t[]){ 64 }, 1);
    td_example_texts(&e, "image/source_id", &s->id, 1);
    for (int k = 0; k < 4; k++) {
        const float values[] = { s->box[0][k], s->box[1][k] };
        td_example_reals(&e, keys[k], values, s->n);
    }
    if (has_labels)
        td_example_ints(&e, "image/object/class/label", s->labels, s->n);
    if (has_texts)
        td_example_texts(&e, "image/object/class/text", s->texts, s->n);
    td_example_ints(&e, "image/object/is_crowd", crowds, s->n);
    td_example_bytes(&e, "image/encoded", "image", 5);
    td_example_write(&e, false, &file);
}

static const scene two = { "139",
                           2,
                           { { 0.1F, 0.25F, 0.7F, 1 }, { 0, 0, 1.0F / 3, 0.99F } },
                           { 90, 3 },
                           { "toothbrush", "car" } };
static const scene none = { "7", 0, { { 0 } }, { 0 }, { NULL } };

static void check_two(const td_dataset *ds)
{
    int n;
    const td_ground_truth *t = td_dataset_ground_truths(ds, 0, &n);
    assert_int_equal(n, 2);
    for (int k = 0; k < 2; k++) { /* the fractions, to the bit */
        assert_memory_equal(&t[k].box.xmin, &two.box[k][0], sizeof(float));
        assert_memory_equal(&t[k].box.ymin, &two.box[k][1], sizeof(float));
        assert_memory_equal(&t[k].box.xmax, &two.box[k][2], sizeof(float));
        assert_memory_equal(&t[k].box.ymax, &two.box[k][3], sizeof(float));
        assert_int_equal(t[k].is_crowd, k);
    }
    assert_int_equal(td_dataset_annotated(ds, 0).id, 139);
    assert_int_equal(td_dataset_annotated(ds, 0).width, 64);
    assert_string_equal(td_dataset_path(ds, 0), "train-0/0");
    assert_memory_equal(file.data + ds->samples[0].member->offset, "image", 5);
}

static void boxes_have_cocos_classes(void **state)
{
    (void)state;
    td_dataset *ds;
    int n;
    for (int form = 1; form < 4; form++) { /* labels, texts, both */
        begin(true);
        add_scene(&two, form & 1, form & 2);
        add_scene(&none, form & 1, form & 2);
        expect_ok(parse(&ds));
        assert_int_equal(ds->n, 2);
        assert_int_equal(ds->n_classes, 80);
        check_two(ds);
        const td_annotation *a = td_dataset_annotations(ds, 0, &n);
        assert_int_equal(a[0].label, 80);
        assert_int_equal(a[1].label, 3);
        assert_int_equal(td_dataset_category(ds, 80), 90);
        assert_string_equal(td_dataset_class_name(ds, 79), "toothbrush");
        td_dataset_annotations(ds, 1, &n);
        assert_int_equal(n, 0);
        td_dataset_free(ds);
        opts.keep_ids = opts.skip_empty = true;
        expect_ok(parse(&ds));
        assert_int_equal(ds->n, 1);
        assert_int_equal(ds->n_classes, 90);
        assert_int_equal(td_dataset_annotations(ds, 0, &n)[0].label, 90);
        td_dataset_free(ds);
    }
    td_text_release(&file);
}

static void other_classes_are_those_that_occur(void **state)
{
    (void)state;
    td_dataset *ds;
    int n;
    scene s = two;
    s.texts[1] = "car park";
    begin(true);
    add_scene(&none, false, true);
    add_scene(&s, false, true);
    expect_ok(parse(&ds));
    assert_int_equal(ds->n_classes, 2);
    assert_string_equal(td_dataset_class_name(ds, 0), "car park");
    assert_int_equal(td_dataset_category(ds, 2), 2);
    assert_int_equal(td_dataset_annotations(ds, 1, &n)[0].label, 2);
    td_dataset_free(ds);
    begin(true);
    s.labels[0] = 12; /* none of COCO's */
    s.id = "image";   /* then ids are numbers */
    add_scene(&s, true, false);
    expect_ok(parse(&ds));
    assert_int_equal(ds->n_classes, 2);
    assert_string_equal(td_dataset_class_name(ds, 1), "12");
    assert_int_equal(td_dataset_annotated(ds, 0).id, 1);
    td_dataset_free(ds);
    td_text_release(&file);
}

static void bad_boxes_are_listed(void **state)
{
    (void)state;
    td_dataset *ds;
    const td_bad_annotation *bad;
    int64_t n_listed;
    int n;
    scene s = two;
    s.box[0][2] = 1.5F;
    begin(true);
    add_scene(&s, true, true);
    s.id = "140";
    s.box[0][2] = NAN;
    add_scene(&s, true, true);
    add_scene(&two, true, true); /* the id of the first */
    s = two;
    s.id = "141";
    s.box[1][0] = s.box[1][2];
    add_scene(&s, true, true);
    expect_ok(parse(&ds));
    assert_int_equal(ds->n, 3);
    assert_int_equal(td_dataset_annotated(ds, 2).id, 141);
    assert_string_equal(td_dataset_path(ds, 2), "train-0/3");
    td_dataset_annotations(ds, 1, &n);
    assert_int_equal(n, 1);
    assert_true(td_dataset_bad_annotations(ds, &bad, &n_listed) >= 4);
    assert_non_null(strstr(bad[0].text, "exceeds its image"));
    assert_non_null(strstr(bad[0].text, "('train-0', byte 0)"));
    td_dataset_free(ds);
    opts.strict = true;
    expect_error(parse(&ds), TD_EFORMAT, "train-0");
    td_text_release(&file);
}

static void wrong_boxes_are_refused(void **state)
{
    (void)state;
    td_test_example e = { 0 };
    scene s = two;
    begin(true);
    refuse(TD_EFORMAT, "has no records");
    add_class(1, NULL, NULL);
    refuse(TD_EFORMAT, "has no boxes, which a detector requires");
    add_scene(&two, false, false);
    refuse(TD_EFORMAT, "without 'image/object/class/label'");
    add_scene(&two, true, true);
    add_scene(&two, false, true);
    refuse(TD_EFORMAT, "some have 'image/object/class/label'");
    s.texts[0] = "";
    add_scene(&s, false, true);
    refuse(TD_EFORMAT, "class text is empty");
    add_scene(&none, true, true);
    refuse(TD_EFORMAT, "no usable category");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_reals(&e, "image/object/bbox/xmin", (float[]){ 0, 1 }, 2);
    td_example_reals(&e, "image/object/bbox/ymin", (float[]){ 0 }, 1);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "has 2 boxes and 1 values of 'image/object/bbox/ymin'");
    td_example_bytes(&e, "image/encoded", "x", 1);
    td_example_reals(&e, "image/object/bbox/xmin", NULL, 0);
    td_example_write(&e, false, &file);
    refuse(TD_EFORMAT, "has 0 values of 'image/width'");
    begin(false);
    add_scene(&two, true, true);
    refuse(TD_EFORMAT, "--arch ssd320 or ssd300");
}

/* --- files ------------------------------------------------------------------------------------ */

static void images_are_read_in_place(void **state)
{
    (void)state;
    td_dataset *ds;
    td_transformer w = { 0 };
    const void *bytes;
    size_t n;
    const char *path = td_scratch_path("r.tfrecord");
    begin(false);
    add_class(1, NULL, NULL);
    add_class(2, NULL, NULL);
    expect_ok(td_file_write(path, file.data, file.len));
    assert_true(td_records_is(path));
    assert_false(td_records_is_annotated(path, NULL));
    opts.path = path;
    expect_ok(td_dataset_open(&opts, &ds));
    for (int i = 0; i < 2; i++) {
        expect_ok(td_sample_read(ds, i, &w, &bytes, &n));
        assert_int_equal(n, 5);
        assert_memory_equal(bytes, "image", 5);
        td_sample_read_ahead(ds, i);
    }
    td_dataset_free(ds);
    file.data[file.len - 6] ^= 1; /* the last record's data */
    expect_ok(td_file_write(path, file.data, file.len));
    expect_ok(td_dataset_open(&opts, &ds));
    expect_ok(td_sample_read(ds, 0, &w, &bytes, &n));
    expect_error(td_sample_read(ds, 1, &w, &bytes, &n), TD_EFORMAT, "checksum of the record at");
    expect_error(TD_EFORMAT, TD_EFORMAT, path);
    td_dataset_free(ds);
    td_transformer_release(&w);
    td_text_release(&file);
}

static td_status parse_once(void)
{
    td_dataset *ds;
    const td_status st = parse(&ds);
    td_dataset_free(ds);
    return st;
}

static void allocations_may_fail(void **state)
{
    (void)state;
    scene s = two;
    begin(false);
    add_class(1, "tulip", "a.jpg");
    add_class(2, NULL, NULL);
    assert_true(td_test_allocations(parse_once, 500) > 10);
    begin(true);
    s.texts[0] = "own";
    add_scene(&s, false, true);
    assert_true(td_test_allocations(parse_once, 500) > 10);
    td_text_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(labels_count_from_one),
        leak_checked_test(wrong_records_are_refused),
        leak_checked_test(boxes_have_cocos_classes),
        leak_checked_test(other_classes_are_those_that_occur),
        leak_checked_test(bad_boxes_are_listed),
        leak_checked_test(wrong_boxes_are_refused),
        leak_checked_test(images_are_read_in_place),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
