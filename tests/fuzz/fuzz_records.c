/*
 * fuzz_records.c -- any bytes as a TFRecord file of a data set: an error in words, or samples whose
 * images are in the file, with classes, or with boxes in their images
 */
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "data/members.h"
#include "data/objects.h"
#include "data/records.h"
#include "io/crc32c.h"
#include "io/tfrecord.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Make the length and its checksum right of the records that are there. */
static void repair(uint8_t *bytes, size_t n_bytes)
{
    size_t at = 0;
    while (n_bytes - at >= TD_TFRECORD_HEAD + TD_TFRECORD_FOOT) {
        const size_t left = n_bytes - at - TD_TFRECORD_HEAD - TD_TFRECORD_FOOT;
        const uint64_t n = td_get_le(bytes + at, 8);
        const size_t length = n <= left ? (size_t)n : left;
        td_put_le(bytes + at, length, 8);
        td_put_le(bytes + at + 8, td_crc32c_masked(bytes + at, 8), 4);
        at += TD_TFRECORD_HEAD + length + TD_TFRECORD_FOOT;
    }
}

static void check_boxes(const td_dataset *ds, int64_t i)
{
    int n;
    const td_ground_truth *t = td_dataset_ground_truths(ds, i, &n);
    for (int k = 0; k < n; k++) {
        TD_CHECK(t[k].label >= 1 && t[k].label <= ds->n_classes);
        TD_CHECK(t[k].box.xmin >= 0 && t[k].box.xmax <= 1 && t[k].box.xmin <= t[k].box.xmax);
        TD_CHECK(t[k].box.ymin >= 0 && t[k].box.ymax <= 1 && t[k].box.ymin <= t[k].box.ymax);
    }
}

static void check_samples(const td_dataset *ds, size_t n_bytes)
{
    TD_CHECK(ds->n > 0 && ds->n_classes > 0);
    for (int64_t i = 0; i < ds->n; i++) {
        const td_sample *s = &ds->samples[i];
        const td_member *m = s->member;
        TD_CHECK(ds->objects ? s->label == -1 : s->label >= 0 && s->label < ds->n_classes);
        TD_CHECK(strncmp(s->path, "train-0/", 8) == 0 && s->path[8]);
        TD_CHECK(m->offset >= m->record && m->record >= TD_TFRECORD_HEAD && m->n_bytes >= 0);
        TD_CHECK(m->n_bytes <= m->record_bytes - (m->offset - m->record));
        TD_CHECK(m->record_bytes <= (int64_t)n_bytes - m->record - TD_TFRECORD_FOOT);
        if (ds->objects)
            check_boxes(ds, i);
    }
    for (int i = 0; i < ds->n_classes; i++)
        TD_CHECK(*ds->class_names[i]);
}

static void parse(const uint8_t *bytes, size_t n_bytes, const td_dataset_opts *opts)
{
    td_dataset *ds = TD_NEW(td_dataset);
    if (!ds)
        return;
    td_error_clear();
    if (td_records_parse(bytes, n_bytes, "train-0", opts, ds) != TD_OK)
        TD_CHECK(*td_error_message());
    else
        check_samples(ds, n_bytes);
    td_dataset_free(ds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const td_dataset_opts classes = { .labels_from_zero = n_bytes % 2 };
    const td_dataset_opts boxes = { .has_boxes = true,
                                    .keep_ids = n_bytes % 2,
                                    .skip_empty = n_bytes % 3 == 0 };
    uint8_t *copy;
    if (td_alloc_to(&copy, n_bytes + 1, 1) != TD_OK)
        return 0;
    memcpy(copy, data, n_bytes);
    parse(copy, n_bytes, &classes);
    repair(copy, n_bytes);
    parse(copy, n_bytes, &classes);
    parse(copy, n_bytes, &boxes);
    td_free(copy);
    return 0;
}
