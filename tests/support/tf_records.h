/*
 * support/tf_records.h -- TFRecords of tf.train.Examples in memory
 *
 *     td_test_example e = { 0 };
 *     td_example_ints(&e, "image/class/label", (int64_t[]){ 3 }, 1);
 *     td_example_write(&e, false, &file);           a record after those of `file`; empties `e`
 */
#ifndef TD_TEST_TF_RECORDS_H
#define TD_TEST_TF_RECORDS_H

#include <stdbool.h>

#include "base/text.h"

enum { TD_EXAMPLE_FEATURES = 16 };

/** Entries of the map of features.  Zero-initialise. */
typedef struct {
    td_text entries[TD_EXAMPLE_FEATURES];
    int n;
} td_test_example;

void td_example_bytes(td_test_example *e, const char *key, const void *bytes, size_t n);
void td_example_texts(td_test_example *e, const char *key, const char *const *texts, int n);
void td_example_ints(td_test_example *e, const char *key, const int64_t *values, int n);
void td_example_reals(td_test_example *e, const char *key, const float *values, int n);

void td_example_write(td_test_example *e, bool is_reversed, td_text *file);

/** A record of any bytes. */
void td_record_write(const void *data, size_t n, td_text *file);

#endif
