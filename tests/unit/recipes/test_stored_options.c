/*
 * test_stored_options.c -- which options of a checkpoint a resumed run takes: every row of the
 * tables, so that a new one cannot be forgotten
 */
#include "recipes/stored_options.h"

#include "support/expect.h"
#include "support/scratch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

enum { N_GROUPS = 5 };

static const char state[] =
    "{\"epoch\": 1, \"iteration\": 0, \"steps\": 3, \"batches_tracked\": 4, \"seed\": 5, "
    "\"best_epoch\": 0, \"best_top1\": 6, \"loss_sum\": 7, \"train_loss\": 8, \"val_loss\": 9, "
    "\"top1\": 10, \"topk\": 11}";

/* what a checkpoint with this configuration gives; the status is the reading's */
static td_status stored(const char *config, char **json)
{
    static const float one = 1;
    const char *path = td_scratch_path("stored_options.safetensors");
    td_tensors *t;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_set_meta(t, "tandem.kind", "checkpoint"));
    expect_ok(td_tensors_set_meta(t, "tandem.version", "1"));
    expect_ok(td_tensors_set_meta(t, "tandem.state", state));
    expect_ok(td_tensors_set_meta(t, "tandem.config", config));
    expect_ok(td_tensors_add(t, "w", TD_DT_F32, 0, NULL, &one));
    expect_ok(td_tensors_write(t, path));
    td_tensors_free(t);
    td_status st = td_train_stored_options(path, json);
    unlink(path);
    return st;
}

/* a value of the row that is not its default, as JSON */
static void add_value(const td_field *f, td_text *out)
{
    switch (f->kind) {
    case TD_KIND_INT:
    case TD_KIND_LONG:
    case TD_KIND_REAL:
        td_text_add(out, "%.17g", f->def == f->max ? f->min : f->max);
        break;
    case TD_KIND_BOOL:
        td_text_add(out, f->def != 0 ? "false" : "true");
        break;
    case TD_KIND_ENUM: {
        const char *name = f->names[f->def == 0 ? 1 : 0];
        if (name) /* of one value only: that */
            td_text_add(out, "\"%.*s\"", (int)strcspn(name, "|"), name);
        else
            td_text_add(out, "\"%.*s\"", (int)strcspn(f->names[0], "|"), f->names[0]);
        break;
    }
    default:
        td_text_add(out, "\"/tmp/hostile/%s\"", f->name);
    }
}

/* the row's name, or its alias of this number from 1; NULL: it has none */
static const char *spelling(const td_field *f, int number, size_t *n)
{
    const char *s = number ? f->alias : f->name;
    for (int i = 1; s && i < number; i++) {
        s = strchr(s, '|');
        s = s ? s + 1 : NULL;
    }
    *n = s ? strcspn(s, "|") : 0;
    return s;
}

/* rows of one group with a member, each under that spelling */
static void add_rows(const td_field *fields, int number, td_text *out)
{
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++) {
        size_t n;
        const char *name = f->kind < TD_KIND_TITLE ? spelling(f, number, &n) : NULL;
        if (!name)
            continue;
        td_text_add(out, "%s\"%.*s\": ", out->len > 1 ? ", " : "", (int)n, name);
        add_value(f, out);
    }
}

static void check_rows(int number)
{
    td_train_opts o, d;
    td_field_group groups[7], defaults[7];
    td_arena arena = { 0 };
    td_text config = { 0 };
    char *json;
    int n_paths = 0, n_taken = 0;
    td_train_defaults(&o);
    td_train_defaults(&d);
    td_train_groups(&o, groups);
    td_train_groups(&d, defaults);
    td_text_add(&config, "{");
    for (int g = 0; g < N_GROUPS; g++)
        add_rows(groups[g].fields, number, &config);
    td_text_add(&config, "}");
    expect_ok(stored(td_text_get(&config), &json));
    expect_ok(td_options_config_json(groups, json, "stored", &arena));
    for (int g = 0; g < N_GROUPS; g++)
        for (const td_field *f = groups[g].fields; f->kind != TD_KIND_END; f++) {
            if (f->kind >= TD_KIND_TITLE)
                continue;
            const bool is_set = !td_field_is_default(f, groups[g].base);
            if (td_field_is_path(f) && is_set)
                fail_msg("a checkpoint sets the path --%s", f->name);
            if (!td_option_is_stored(f) && is_set)
                fail_msg("a checkpoint sets --%s", f->name);
            n_paths += td_field_is_path(f);
            n_taken += is_set;
        }
    if (number == 0) {
        assert_true(n_paths >= 18);
        assert_true(n_taken >= 70);
    }
    td_free(json);
    td_text_release(&config);
    td_arena_release(&arena);
}

static void no_path_comes_from_a_checkpoint(void **unused)
{
    (void)unused;
    for (int number = 0; number <= 4; number++)
        check_rows(number);
}

/* every option of a training */
static void check_options(void (*check)(const td_field *f))
{
    td_train_opts o;
    td_field_group groups[7];
    td_train_defaults(&o);
    td_train_groups(&o, groups);
    for (int g = 0; g < N_GROUPS; g++)
        for (const td_field *f = groups[g].fields; f->kind != TD_KIND_END; f++)
            check(f);
}

/*
 * The texts that a checkpoint may set.  A new row of kind TEXT is a path unless its `meta` is
 * one of those in td_field_is_path; if it is, it has to be added here as well.
 */
static void check_known(const td_field *f)
{
    static const char *const known[] = {
        "arch",
        "backbone",
        "amp_allow_add",
        "amp_allow_remove",
        "amp_infer_add",
        "amp_infer_remove",
        "amp_deny_add",
        "amp_deny_remove",
        "amp_clear_add",
        "amp_clear_remove",
        "freeze",
        "image_size_schedule",
        "gpu_affinity",
        "trt",
        "fused_se",
        "device",
        "skip_passes",
        "multistep",
        "evaluation",
        "jitter_strength",
        "class_weights",
        "pos_weight",
        "list_delimiter",
        "mean",
        "std",
        "aa",
    };
    bool is_known = f->kind != TD_KIND_TEXT || !td_option_is_stored(f);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is_known = is_known || strcmp(known[i], f->name) == 0;
    if (!is_known)
        fail_msg("may a checkpoint set the text --%s?", f->name);
}

static void texts_that_are_no_paths_are_known(void **unused)
{
    (void)unused;
    check_options(check_known);
}

/* what help pages call a path; a text of another name belongs into the list above */
static void check_path(const td_field *f)
{
    static const char *const names[] = { "FILE", "FOLDER", "PATH" };
    bool is_known = !td_field_is_path(f) || !f->meta;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_known = is_known || strcmp(names[i], f->meta) == 0;
    if (!is_known)
        fail_msg("is the %s of --%s a path?", f->meta, f->name);
}

static void paths_are_called_so(void **unused)
{
    (void)unused;
    check_options(check_path);
}

static void what_no_checkpoint_has_is_an_error(void **unused)
{
    char *json;
    (void)unused;
    expect_error(stored("{\"preset\": \"resnet50/90\"}", &json), TD_EFORMAT, "'preset'");
    expect_error(stored("{\"results_dir\": \"/tmp\"}", &json), TD_EFORMAT, "'results_dir'");
    expect_error(stored("{\"config\": \"x\"}", &json), TD_EFORMAT, "'config'");
    expect_error(stored("[1]", &json), TD_EFORMAT, "no JSON object");
    expect_error(stored("{\"lr\": [1]}", &json), TD_EFORMAT, "config: 'lr' is");
    assert_null(json);
    expect_ok(stored("{\"lr\": 0.5, \"csv\": \"/tmp/x\", \"batch-size\": 4, \"b\": 8}", &json));
    assert_string_equal(json, "{\"lr\": 0.5, \"batch_size\": 4, \"batch_size\": 8}");
    td_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_path_comes_from_a_checkpoint),
        cmocka_unit_test(texts_that_are_no_paths_are_known),
        cmocka_unit_test(paths_are_called_so),
        cmocka_unit_test(what_no_checkpoint_has_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
