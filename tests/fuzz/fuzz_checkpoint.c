/*
 * fuzz_checkpoint.c -- any bytes: an error in words, or a state that a run can go on from
 *
 * The input is tried as a whole checkpoint, and as each of the texts in one (state, class names,
 * options): a checkpoint's digest keeps most damage away from them.
 */
#include "checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/class_list.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weights.h"
#include "options/field.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check_state(const td_tensors *t)
{
    td_run_state s;
    if (td_checkpoint_state(t, "input", &s) != TD_OK) {
        TD_CHECK(*td_error_message());
        return;
    }
    TD_CHECK(s.epoch >= 0 && s.iteration >= 0 && s.steps >= 0);
    TD_CHECK(s.scaler.kind == TD_SCALER_NONE || s.scaler.scale > 0);
}

static void check_metadata(const td_tensors *t)
{
    char name[256];
    char **names;
    int n;
    td_model_opts model;
    td_model_defaults(&model);
    td_weight_metadata_apply(t, true, &model);
    TD_CHECK(model.num_classes >= 0 && model.image_size >= 0);
    TD_CHECK(td_weights_classes(t, &model) >= 0);
    (void)td_weights_batches(t);
    for (size_t i = 0; i < td_tensors_count(t); i++)
        td_weight_name(td_tensors_at(t, i)->name, name);
    if (td_classes_from_json(td_tensors_meta(t, "tandem.classes"), "input", &n, &names) == TD_OK)
        td_texts_free(names, (size_t)n);
    else
        TD_CHECK(n == 0 && !names && *td_error_message());
}

/* ranges of activations are positive numbers of filters in the file */
static void check_quantization(const td_tensors *t)
{
    td_quantization q;
    if (td_quantization_read(t, "input", &q) != TD_OK)
        TD_CHECK(*td_error_message());
    for (int i = 0; i < q.table.n; i++) {
        const td_activation_range *r = &q.table.ranges[i];
        TD_CHECK(td_tensors_get(t, r->weight) && r->input > 0 && r->output > 0);
        TD_CHECK(r->input < 1e31F && r->output < 1e31F);
    }
    td_quantization_release(&q);
}

/* what is taken from a checkpoint sets no path and nothing out of range */
static void check_options(const char *json)
{
    td_train_opts o;
    td_field_group groups[7];
    td_arena arena = { 0 };
    td_train_defaults(&o);
    td_train_groups(&o, groups);
    if (td_options_config_json(groups, json, "input", &arena) != TD_OK)
        TD_CHECK(*td_error_message());
    for (int g = 0; groups[g].fields; g++)
        for (const td_field *f = groups[g].fields; f->kind != TD_KIND_END; f++)
            TD_CHECK(!td_field_is_path(f) || td_field_is_default(f, groups[g].base));
    td_arena_release(&arena);
}

/* as the options that a run was made with; these are read from a file */
static void try_options(const td_tensors *t)
{
    char path[64], *json;
    snprintf(path, sizeof path, "/tmp/tandem-fuzz-checkpoint-%ld", (long)getpid());
    TD_CHECK(td_tensors_write(t, path) == TD_OK);
    if (td_train_stored_options(path, &json) == TD_OK) {
        check_options(json);
        td_text_free(json);
    } else
        TD_CHECK(!json && *td_error_message());
    unlink(path);
}

static void try_texts(const char *text)
{
    static const char *const keys[] = { "tandem.classes", "tandem.num_classes", "tandem.image_size",
                                        "tandem.arch", "tandem.config" };
    static const char state[] =
        "{\"epoch\": 1, \"iteration\": 2, \"steps\": 3, \"batches_tracked\": 4, \"seed\": 5, "
        "\"best_epoch\": 0, \"best_top1\": 6, \"loss_sum\": 7, \"train_loss\": 8, \"val_loss\": 9, "
        "\"top1\": 10, \"topk\": 11}";
    static const float one = 1;
    static unsigned n_tried;
    td_tensors *t;
    TD_CHECK(td_tensors_new(&t) == TD_OK);
    TD_CHECK(td_tensors_set_meta(t, "tandem.kind", "checkpoint") == TD_OK);
    TD_CHECK(td_tensors_set_meta(t, "tandem.version", "1") == TD_OK);
    if (td_tensors_set_meta(t, "tandem.state", text) == TD_OK) { /* UTF-8 */
        check_state(t);
        TD_CHECK(td_tensors_set_meta(t, TD_QUANTIZATION_META, text) == TD_OK);
        TD_CHECK(td_tensors_add(t, "w", TD_DT_F32, 4, (int64_t[]){ 1, 1, 1, 1 }, &one) == TD_OK);
        check_quantization(t);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            TD_CHECK(td_tensors_set_meta(t, keys[i], text) == TD_OK);
        check_metadata(t);
        TD_CHECK(td_tensors_set_meta(t, "tandem.state", state) == TD_OK);
        if (n_tried++ % 64 == 0 || strstr(text, "hostile")) /* files are slow */
            try_options(t);
    }
    td_tensors_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_tensors *t;
    if (td_tensors_parse(data, n_bytes, "input", &t) == TD_OK) {
        check_state(t);
        check_metadata(t);
        check_quantization(t);
        td_tensors_free(t);
    }
    char *text = malloc(n_bytes + 1);
    TD_CHECK(text);
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    try_texts(text);
    free(text);
    return 0;
}
