/*
 * fuzz_list.c -- any bytes as a list of images and labels: an error in words, or samples whose
 * files are in the list's folder and whose labels are classes
 */
#include <stdint.h>
#include <string.h>

#include "data/list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const names[] = { "f/l.csv", "f/l.tsv", "f/l.txt" };
    static const char *const splits[] = { NULL, "train", "val" };
    const td_dataset_opts opts = { .path = names[n_bytes % 3],
                                   .split = splits[n_bytes / 3 % 3],
                                   .label_delimiter = n_bytes / 9 % 2 ? '|' : '\0' };
    td_dataset *ds = TD_NEW(td_dataset);
    if (!ds)
        return 0;
    td_error_clear();
    if (td_list_parse((const char *)data, n_bytes, &opts, false, ds) != TD_OK) {
        TD_CHECK(*td_error_message());
    } else {
        TD_CHECK(ds->n > 0 && ds->n_classes > 1);
        for (int64_t i = 0; i < ds->n; i++) {
            const td_sample *s = &ds->samples[i];
            TD_CHECK(ds->is_multi_label ? s->label == -1
                                        : s->label >= 0 && s->label < ds->n_classes);
            for (int k = 0; k < s->n_labels; k++)
                TD_CHECK(s->labels[k] >= 0 && s->labels[k] < ds->n_classes);
            TD_CHECK(strncmp(s->path, "f/", 2) == 0 && !strstr(s->path, "/../"));
        }
        for (int i = 0; i < ds->n_classes; i++)
            TD_CHECK(*ds->class_names[i]);
    }
    td_dataset_free(ds);
    return 0;
}
