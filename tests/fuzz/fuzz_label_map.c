/*
 * fuzz_label_map.c -- any bytes as a --label-map file: an error, or an output for each class
 *
 * The file is read from the scratch folder, for a data set whose folders have spaces and bytes that
 * are no UTF-8, and for outputs with names (files of odd length) and without.
 */
#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "base/log.h"
#include "evaluation/label_match.h"
#include "support/expect.h"
#include "support/image_sets.h"
#include "support/scratch.h"

enum { N_OUTPUTS = 6, N_CLASSES = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* in the byte order of the folders */
static const char *const folders[N_CLASSES] = { "caf\xe9", "cat", "two words", "\xc3\xbc" };

static void write_set(void)
{
    static bool is_written;
    char path[64];
    if (is_written)
        return;
    expect_ok(td_log_configure("error"));
    for (int i = 0; i < N_CLASSES; i++) {
        snprintf(path, sizeof path, "set/%s/a.jpg", folders[i]);
        td_write_image(td_scratch_path(path), i, 1, 16, 16);
    }
    is_written = true;
}

static void check_classes(const td_dataset *ds)
{
    TD_CHECK(td_dataset_classes(ds) == N_OUTPUTS);
    for (int i = 0; i < N_OUTPUTS; i++)
        TD_CHECK(*td_dataset_class_name(ds, i));
    for (int i = 0; i < N_CLASSES; i++)
        TD_CHECK(td_dataset_label(ds, i) >= 0 && td_dataset_label(ds, i) < N_OUTPUTS);
}

/* a refused map leaves the data set as it was */
static void check_untouched(const td_dataset *ds)
{
    TD_CHECK(*td_error_message() && td_dataset_classes(ds) == N_CLASSES);
    for (int i = 0; i < N_CLASSES; i++)
        TD_CHECK(td_dataset_label(ds, i) == i &&
                 strcmp(td_dataset_class_name(ds, i), folders[i]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static char texts[N_OUTPUTS][16] = { "ant", "bee", "cat", "twice", "twice", "n01440764 tench" };
    char *outputs[N_OUTPUTS];
    for (int i = 0; i < N_OUTPUTS; i++)
        outputs[i] = texts[i];
    const td_class_names names = { .n = n_bytes % 2 ? N_OUTPUTS : 0,
                                   .names = outputs,
                                   .source = n_bytes % 2 ? TD_NAMES_WEIGHTS : TD_NAMES_NONE };
    write_set();
    const td_label_match m = { .weights = "w.safetensors",
                               .names = &names,
                               .n_outputs = N_OUTPUTS,
                               .label_map = td_scratch_path("map") };
    td_dataset *ds;
    expect_ok(td_file_write(m.label_map, data, n_bytes));
    expect_ok(td_dataset_open(&(td_dataset_opts){ .path = td_scratch_path("set") }, &ds));
    td_error_clear();
    if (td_label_match_apply(&m, ds) == TD_OK)
        check_classes(ds);
    else
        check_untouched(ds);
    td_dataset_free(ds);
    return 0;
}
