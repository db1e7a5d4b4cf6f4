/* tf_records.c -- writes TFRecords of tf.train.Examples into memory */
#include "support/tf_records.h"

#include "base/bytes.h"
#include "io/crc32c.h"
#include "io/protobuf.h"

enum { KIND_BYTES = 1, KIND_REALS, KIND_INTS }; /* field numbers of Feature */

/* Add the feature `key`; `list` holds its values. */
static void add(td_test_example *e, const char *key, int kind, td_text *list)
{
    td_text feature = { 0 };
    TD_CHECK(e->n < TD_EXAMPLE_FEATURES);
    td_text *entry = &e->entries[e->n++];
    td_pb_put_message(&feature, kind, list);
    td_pb_put_text(entry, 1, key);
    td_pb_put_message(entry, 2, &feature);
    td_text_release(&feature);
    td_text_release(list);
}

void td_example_bytes(td_test_example *e, const char *key, const void *bytes, size_t n)
{
    td_text list = { 0 };
    td_pb_put_bytes(&list, 1, bytes, n);
    add(e, key, KIND_BYTES, &list);
}

void td_example_texts(td_test_example *e, const char *key, const char *const *texts, int n)
{
    td_text list = { 0 };
    for (int i = 0; i < n; i++)
        td_pb_put_text(&list, 1, texts[i]);
    add(e, key, KIND_BYTES, &list);
}

void td_example_ints(td_test_example *e, const char *key, const int64_t *values, int n)
{
    td_text list = { 0 };
    for (int i = 0; i < n; i++)
        td_pb_put_int(&list, 1, values[i]);
    add(e, key, KIND_INTS, &list);
}

void td_example_reals(td_test_example *e, const char *key, const float *values, int n)
{
    td_text list = { 0 };
    if (n)
        td_pb_put_bytes(&list, 1, values, (size_t)n * sizeof *values);
    add(e, key, KIND_REALS, &list);
}

void td_record_write(const void *data, size_t n, td_text *file)
{
    unsigned char head[12], foot[4];
    td_put_le(head, n, 8);
    td_put_le(head + 8, td_crc32c_masked(head, 8), 4);
    td_put_le(foot, td_crc32c_masked(data, n), 4);
    td_text_add_bytes(file, (const char *)head, sizeof head);
    td_text_add_bytes(file, data, n);
    td_text_add_bytes(file, (const char *)foot, sizeof foot);
}

void td_example_write(td_test_example *e, bool is_reversed, td_text *file)
{
    td_text features = { 0 }, all = { 0 };
    for (int i = 0; i < e->n; i++)
        td_pb_put_message(&features, 1, &e->entries[is_reversed ? e->n - 1 - i : i]);
    td_pb_put_message(&all, 1, &features);
    TD_CHECK(td_text_status(&all) == TD_OK);
    td_record_write(td_text_get(&all), all.len, file);
    for (int i = 0; i < e->n; i++)
        td_text_release(&e->entries[i]);
    td_text_release(&features);
    td_text_release(&all);
    *e = (td_test_example){ 0 };
}
