/* test_train_start.c -- what a resumed training takes from its checkpoint: hostile batch sizes */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "tandem/train.h"

#define DATA "tests/data/pth/"

static char warning[400];

static void keep_warning(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)ctx;
    (void)module;
    if (level == TD_LOG_WARN)
        snprintf(warning, sizeof warning, "%s", text);
}

/* One epoch of the network of tests/data/pth on one rank, with 4 images per batch. */
static td_status train(const char *resume, const char *workspace)
{
    td_train_opts o;
    td_train_result result;
    td_train_defaults(&o);
    o.model.model = DATA "training.td";
    o.input.data = DATA "training-data.safetensors";
    o.input.data_backend = TD_DATA_TENSORS;
    o.start.resume = resume;
    o.batch.size = 4;
    o.batch.seed = 1;
    o.length.epochs = 4;
    o.length.run_epochs = 1;
    o.validation.is_enabled = false;
    o.output.workspace = workspace;
    o.output.save_checkpoints = !resume;
    o.device.threads = 1;
    *warning = '\0';
    td_log_set_sink(keep_warning, NULL);
    const td_status st = td_train(&o, &result);
    td_log_set_sink(NULL, NULL);
    td_text_free(result.profile);
    return st;
}

/* Copies the checkpoint, with another text for the metadata `key`. */
static void edit(const char *from, const char *to, const char *key, const char *old,
                 const char *replacement)
{
    td_tensors *t;
    td_text text = { 0 };
    expect_ok(td_tensors_read(from, &t));
    const char *meta = td_tensors_meta(t, key), *at = strstr(meta, old);
    assert_non_null(at);
    td_text_add(&text, "%.*s%s%s", (int)(at - meta), meta, replacement, at + strlen(old));
    expect_ok(td_text_status(&text));
    expect_ok(td_tensors_set_meta(t, key, td_text_get(&text)));
    expect_ok(td_tensors_write(t, to));
    td_text_release(&text);
    td_tensors_free(t);
}

static const char *good, *changed; /* checkpoints */

static void batch_sizes_of_a_checkpoint_are_checked(void **state)
{
    static const char *const sizes[] = { "0", "-4", "1048577", "9223372036854775807", "\"4\"" };
    static const char *const steps[] = { "-2", "16777217", "-9223372036854775807" };
    char text[80];
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(text, sizeof text, "\"batch_size\": %s", sizes[i]);
        edit(good, changed, "tandem.config", "\"batch_size\": 4", text);
        expect_error(train(changed, td_scratch_folder()), TD_EFORMAT, "batch_size");
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        snprintf(text, sizeof text, "\"optimizer_batch_size\": %s", steps[i]);
        edit(good, changed, "tandem.config", "\"optimizer_batch_size\": -1", text);
        expect_error(train(changed, td_scratch_folder()), TD_EFORMAT, "optimizer_batch_size");
    }
}

static void other_images_per_step_are_a_warning(void **state)
{
    (void)state;
    expect_ok(train(good, td_scratch_folder()));
    assert_string_equal(warning, "");
    edit(good, changed, "tandem.state", "{", "{\"ranks\": 3, ");
    expect_ok(train(changed, td_scratch_folder()));
    assert_non_null(strstr(warning, "12 on 3 ranks"));
    assert_non_null(strstr(warning, "--optimizer-batch-size 12"));
    edit(good, changed, "tandem.state", "{", "{\"ranks\": 1000000, ");
    edit(changed, changed, "tandem.config", "\"batch_size\": 4", "\"batch_size\": 1048576");
    expect_ok(train(changed, td_scratch_folder()));
    assert_non_null(strstr(warning, "1048576000000 on 1000000 ranks"));
    assert_null(strstr(warning, "--optimizer-batch-size"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(batch_sizes_of_a_checkpoint_are_checked),
                                        cmocka_unit_test(other_images_per_step_are_a_warning) };
    good = td_scratch_path("checkpoint.safetensors");
    changed = td_scratch_path("changed.safetensors");
    if (train(NULL, td_scratch_folder()) != TD_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
