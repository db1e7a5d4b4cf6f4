/*
 * tfrecord_file.c -- writes images of a data set as TFRecords, as TensorFlow's programs do
 *
 *     tfrecord_file DATA SPLIT FORM FIRST COUNT > FILE
 *
 * FORM: classes     image/class/label from 1, with image/class/text (ImageNet)
 *       zero        the same from 0, without texts
 *       boxes       objects with image/object/class/label and .../text (COCO)
 *       texts       objects with texts only, as the Object Detection API writes COCO
 * Features follow each other in both directions in turn, since they are a map.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/objects.h"
#include "support/tf_records.h"

static void check(td_status st)
{
    if (st == TD_OK)
        return;
    fprintf(stderr, "tfrecord_file: %s\n", td_error_message());
    exit(1);
}

static void add_class(td_test_example *e, const td_dataset *ds, int64_t i, bool from_zero)
{
    const int64_t label = td_dataset_label(ds, i), stored = label + !from_zero;
    const char *text = td_dataset_class_name(ds, (int)label);
    td_example_ints(e, "image/class/label", &stored, 1);
    if (!from_zero)
        td_example_texts(e, "image/class/text", &text, 1);
}

typedef float real_fn(const td_annotation *a, td_annotated of);

static float xmin(const td_annotation *a, td_annotated of)
{
    return (float)(a->x / of.width);
}

static float ymin(const td_annotation *a, td_annotated of)
{
    return (float)(a->y / of.height);
}

static float xmax(const td_annotation *a, td_annotated of)
{
    return (float)((a->x + a->width) / of.width);
}

static float ymax(const td_annotation *a, td_annotated of)
{
    return (float)((a->y + a->height) / of.height);
}

static float area(const td_annotation *a, td_annotated of)
{
    (void)of;
    return (float)a->area;
}

static void add_boxes(td_test_example *e, const td_dataset *ds, int64_t i, bool has_labels)
{
    enum { OBJECTS_MAX = 64 };
    static const struct {
        const char *key;
        real_fn *value;
    } reals[] = { { "image/object/bbox/xmin", xmin },
                  { "image/object/bbox/ymin", ymin },
                  { "image/object/bbox/xmax", xmax },
                  { "image/object/bbox/ymax", ymax },
                  { "image/object/area", area } };
    int n;
    char id[24];
    const char *texts[OBJECTS_MAX], *source = id;
    int64_t labels[OBJECTS_MAX], crowds[OBJECTS_MAX];
    float values[OBJECTS_MAX];
    const td_annotation *a = td_dataset_annotations(ds, i, &n);
    const td_annotated of = td_dataset_annotated(ds, i);
    TD_CHECK(n <= OBJECTS_MAX);
    (void)snprintf(id, sizeof id, "%lld", (long long)of.id);
    td_example_texts(e, "image/source_id", &source, 1);
    td_example_ints(e, "image/height", &(int64_t){ of.height }, 1);
    td_example_ints(e, "image/width", &(int64_t){ of.width }, 1);
    for (size_t r = 0; r < sizeof reals / sizeof *reals; r++) {
        for (int k = 0; k < n; k++)
            values[k] = reals[r].value(&a[k], of);
        td_example_reals(e, reals[r].key, values, n);
    }
    for (int k = 0; k < n; k++) {
        labels[k] = td_dataset_category(ds, a[k].label);
        texts[k] = td_dataset_class_name(ds, a[k].label - 1);
        crowds[k] = a[k].is_crowd;
    }
    if (has_labels)
        td_example_ints(e, "image/object/class/label", labels, n);
    td_example_texts(e, "image/object/class/text", texts, n);
    td_example_ints(e, "image/object/is_crowd", crowds, n);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    const bool from_zero = strcmp(argv[3], "zero") == 0, has_labels = strcmp(argv[3], "boxes") == 0;
    const bool has_boxes = has_labels || strcmp(argv[3], "texts") == 0;
    const int64_t first = atoll(argv[4]), n = atoll(argv[5]);
    td_dataset *ds;
    td_transformer w = { 0 };
    td_text file = { 0 };
    check(td_dataset_open(
        &(td_dataset_opts){ .path = argv[1], .split = argv[2], .has_boxes = has_boxes }, &ds));
    for (int64_t i = first; i < first + n; i++) {
        td_test_example e = { 0 };
        const void *bytes;
        size_t n_bytes;
        const char *name = strrchr(td_dataset_path(ds, i), '/') + 1;
        check(td_sample_read(ds, i, &w, &bytes, &n_bytes));
        td_example_texts(&e, "image/filename", &name, 1);
        td_example_bytes(&e, "image/format", "jpeg", 4);
        if (has_boxes)
            add_boxes(&e, ds, i, has_labels);
        else
            add_class(&e, ds, i, from_zero);
        td_example_bytes(&e, "image/encoded", bytes, n_bytes);
        td_example_write(&e, i % 2 == 1, &file);
    }
    check(td_text_status(&file));
    fwrite(td_text_get(&file), 1, file.len, stdout);
    td_text_release(&file);
    td_transformer_release(&w);
    td_dataset_free(ds);
    return fflush(stdout) == 0 ? 0 : 1;
}
