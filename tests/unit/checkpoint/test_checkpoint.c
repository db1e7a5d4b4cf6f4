/*
 * test_checkpoint.c -- a run's state to a file and back: every field, what a file says about its
 * network, what is refused
 */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"
#include "support/small_training.h"

static td_run_state some_state(void)
{
    return (td_run_state){
        .epoch = 3,
        .iteration = 17,
        .ranks = 2,
        .steps = 123456789012,
        .batches_tracked = 99,
        .seed = UINT64_MAX - 5,
        .best = 71.25,
        .best_boxes = { 0.5, 0.75, 0.25, -1, 0, 1, 0.125, 0.5, 0.5, -1, 0.5, 1.0 / 3 },
        .best_epoch = 2,
        .n_without_best = 1,
        .loss_sum = 12.0625,
        .epoch_skipped = 4,
        .last_train_loss = 1.0 / 3,
        .last_val_loss = 0.5,
        .last = 70.5,
        .last_second = 90.125,
        .step = { .done = 1, .n_batches = 4, .in_epoch = 1, .loss_sum = 0.75, .ema_before = 0.999 },
        .scaler = { .kind = TD_SCALER_DYNAMIC,
                    .scale = 65536,
                    .good_steps = 7,
                    .skipped = 5,
                    .skipped_in_row = 1 }
    };
}

static void expect_state(const td_run_state *is, const td_run_state *want)
{
    assert_true(is->epoch == want->epoch && is->iteration == want->iteration);
    assert_true(is->ranks == want->ranks && is->steps == want->steps);
    assert_true(is->batches_tracked == want->batches_tracked && is->seed == want->seed);
    assert_true(is->detects == want->detects);
    assert_true(is->best == want->best && is->best_epoch == want->best_epoch);
    assert_int_equal(is->n_without_best, want->n_without_best);
    assert_true(is->loss_sum == want->loss_sum && is->epoch_skipped == want->epoch_skipped);
    assert_true(is->last_train_loss == want->last_train_loss);
    assert_true(is->last == want->last && is->last_second == want->last_second);
    assert_true(is->step.done == want->step.done && is->step.n_batches == want->step.n_batches);
    assert_true(is->step.in_epoch == want->step.in_epoch);
    assert_true(is->step.loss_sum == want->step.loss_sum);
    assert_true(is->step.ema_before == want->step.ema_before);
    assert_int_equal(is->scaler.kind, want->scaler.kind);
    assert_true(is->scaler.scale == want->scaler.scale &&
                is->scaler.good_steps == want->scaler.good_steps);
    assert_true(is->scaler.skipped == want->scaler.skipped);
    assert_true(is->scaler.skipped_in_row == want->scaler.skipped_in_row);
}

/* a set with that state, and with `state` as its text where it is not NULL */
static td_tensors *set_with(const char *kind, const char *version, const char *state)
{
    td_tensors *t;
    const td_run_state s = some_state();
    expect_ok(td_tensors_new(&t));
    expect_ok(td_checkpoint_set_state(t, &s));
    if (kind)
        expect_ok(td_tensors_set_meta(t, "tandem.kind", kind));
    if (version)
        expect_ok(td_tensors_set_meta(t, "tandem.version", version));
    if (state)
        expect_ok(td_tensors_set_meta(t, "tandem.state", state));
    return t;
}

static void states_come_back(void **state)
{
    (void)state;
    for (int detects = 0; detects < 2; detects++) {
        td_run_state want = some_state(), is;
        td_tensors *t = set_with("checkpoint", "1", NULL);
        want.detects = detects;
        expect_ok(td_checkpoint_set_state(t, &want));
        expect_ok(td_checkpoint_state(t, "x", &is));
        expect_state(&is, &want);
        for (int i = 0; i < TD_BOX_METRICS; i++)
            assert_true(is.best_boxes[i] == (detects ? want.best_boxes[i] : -1));
        td_tensors_free(t);
    }
}

/* losses of a run that diverged; steps of one batch; one rank */
static void what_is_not_there_has_a_default(void **state)
{
    (void)state;
    td_run_state want = some_state(), is;
    td_tensors *t = set_with("checkpoint", "1", NULL);
    want.last_train_loss = NAN;
    want.last_val_loss = INFINITY;
    want.ranks = 1;
    want.step = (td_step_state){ .done = 1, .n_batches = 2, .ema_before = -1 };
    expect_ok(td_checkpoint_set_state(t, &want)); /* as older versions wrote it without averages */
    expect_ok(td_checkpoint_state(t, "x", &is));
    assert_true(is.step.done == 1 && is.step.ema_before == 1);
    want.step = (td_step_state){ .n_batches = 1 };
    expect_ok(td_checkpoint_set_state(t, &want));
    const char *text = td_tensors_meta(t, "tandem.state");
    assert_null(strstr(text, "\"step\""));
    assert_null(strstr(text, "\"ranks\""));
    expect_ok(td_checkpoint_state(t, "x", &is));
    assert_true(isnan(is.last_train_loss) && isnan(is.last_val_loss));
    assert_int_equal(is.ranks, 1);
    assert_int_equal(is.step.n_batches, 1);
    assert_true(is.step.ema_before == 1);
    td_tensors_free(t);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *kind, *version, *names;
    } rows[] = { { NULL, NULL, "'a/b'" },
                 { "weights", "1", "--pretrained-weights" },
                 { "checkpoint", NULL, "'a/b'" },
                 { "checkpoint", "2", "version 2" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_run_state s;
        td_tensors *t = set_with(rows[i].kind, rows[i].version, NULL);
        expect_error(td_checkpoint_state(t, "a/b", &s), TD_EFORMAT, rows[i].names);
        td_tensors_free(t);
    }
}

/* `from` in a good state becomes `to` */
static void expect_refused(td_status want, const char *from, const char *to, const char *names)
{
    td_run_state s;
    td_tensors *t = set_with("checkpoint", "1", NULL);
    const char *good = td_tensors_meta(t, "tandem.state"), *at = strstr(good, from);
    char text[4096];
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    td_tensors_free(t);
    t = set_with("checkpoint", "1", text);
    expect_error(td_checkpoint_state(t, "a/b", &s), want, "'a/b'");
    assert_non_null(strstr(td_error_message(), names));
    td_tensors_free(t);
}

static void malformed_states_are_refused(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        { "{", "", "tandem.state" },
        { "\"epoch\": 3", "\"epoch\": -1", "negative" },
        { "\"epoch\": 3", "\"epoch\": 3.5", "epoch" },
        { "\"epoch\": 3", "\"epoch\": \"3\"", "epoch" },
        { "\"steps\": 123456789012", "\"steps\": 1e99", "steps" },
        { "\"best_top1\": 71.25", "\"best_top1\": null", "best_top1" },
        { "\"kind\": \"", "\"kind\": \"un", "'un" },
        { "\"scale\": 65536", "\"scale\": 0", "0" },
        { "\"scale\": 65536", "\"scale\": 1e40", "1e+40" },
        { "\"good\": 7", "\"good\": -7", "loss scaling" },
        { "\"epoch_skipped\": 4", "\"epoch_skipped\": 18", "loss scaling" },
        { "\"done\": 1", "\"done\": 4", "step" },
        { "\"of\": 4", "\"of\": 0", "step" },
        { "\"in_epoch\": 1", "\"in_epoch\": 2", "step" },
        { "\"ema_before\": 0.999", "\"ema_before\": 2, \"x\": 0.999", "step" },
        { "\"ranks\": 2", "\"ranks\": 0", "of ranks is 0" },
        { "\"ranks\": 2", "\"ranks\": 10000000", "10000000" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_refused(TD_EFORMAT, rows[i][0], rows[i][1], rows[i][2]);
    expect_refused(TD_ENOTFOUND, "\"iteration\": 17, ", "", "iteration");
    expect_refused(TD_ENOTFOUND, "\"seed\"", "\"feed\"", "seed");
}

/* --- files ------------------------------------------------------------------------------------ */

static const char *const names[] = { "cat", "dog", "a \"quoted\" one" };

static td_weight_metadata metadata_of(const td_model_opts *model)
{
    return (td_weight_metadata){
        .model = model, .num_classes = TD_SMALL_CLASSES, .n_names = TD_SMALL_CLASSES, .names = names
    };
}

static void a_checkpoint_has_everything(void **state)
{
    (void)state;
    td_small_training t;
    td_model_opts model;
    td_run_state s = some_state(), is;
    td_tensors *file;
    const char *path = td_scratch_path("c.safetensors");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_small_training_model(&model);
    const td_weight_metadata metadata = metadata_of(&model);
    s.step = (td_step_state){ .n_batches = 1, .ema_before = 1 };
    expect_ok(td_program_run(t.program));
    expect_ok(td_checkpoint_save(path, t.program, &s, &metadata, "{\"lr\": 0.5}"));
    expect_ok(td_tensors_read(path, &file));
    assert_string_equal(td_tensors_meta(file, "tandem.kind"), "checkpoint");
    assert_string_equal(td_tensors_meta(file, "tandem.config"), "{\"lr\": 0.5}");
    assert_string_equal(td_tensors_meta(file, "tandem.num_classes"), "3");
    assert_string_equal(td_tensors_meta(file, "tandem.image_size"), "8");
    assert_string_equal(td_tensors_meta(file, "tandem.classes"),
                        "[\"cat\", \"dog\", \"a \\\"quoted\\\" one\"]");
    assert_string_equal(td_tensors_meta(file, "tandem.graph"), model.model_text);
    assert_null(td_tensors_meta(file, "tandem.arch"));
    expect_ok(td_checkpoint_state(file, path, &is));
    expect_state(&is, &s);
    for (int i = 0; i < td_program_param_count(t.program); i++) {
        float values[8 * 27];
        const td_tensor *w = td_tensors_get(file, td_program_param_name(t.program, i));
        assert_non_null(w);
        assert_true(w->n_bytes <= sizeof values);
        expect_ok(td_program_get(t.program, w->name, values));
        assert_memory_equal(w->data, values, w->n_bytes);
    }
    assert_non_null(td_tensors_get(file, "momentum.conv1.weight"));
    td_tensors_free(file);

    /* weights alone are no checkpoint */
    expect_ok(td_weight_file_save(path, t.program, 0, 5, &metadata));
    expect_ok(td_tensors_read(path, &file));
    assert_string_equal(td_tensors_meta(file, "tandem.kind"), "weights");
    assert_null(td_tensors_get(file, "momentum.conv1.weight"));
    expect_error(td_checkpoint_state(file, path, &is), TD_EFORMAT, "c.safetensors");
    td_tensors_free(file);
    td_small_training_end(&t);
    unlink(path);
}

/* what the file had stays */
static void values_that_are_not_finite_are_not_saved(void **state)
{
    (void)state;
    td_small_training t;
    td_model_opts model;
    const td_run_state s = some_state();
    td_tensors *file;
    float bias[TD_SMALL_CLASSES] = { 0, NAN, 0 };
    const char *path = td_scratch_path("nan.safetensors");
    td_small_training_begin(&t, "ref", TD_PRECISION_FP32, 0);
    td_small_training_model(&model);
    const td_weight_metadata metadata = metadata_of(&model);
    expect_ok(td_weight_file_save(path, t.program, 0, 5, &metadata));
    expect_ok(td_program_set(t.program, "fc.bias", bias));
    expect_error(td_checkpoint_save(path, t.program, &s, &metadata, "{}"), TD_ENUMERIC, "fc.bias");
    assert_non_null(strstr(td_error_message(), path));
    expect_error(td_weight_file_save(path, t.program, 0, 5, &metadata), TD_ENUMERIC, "fc.bias");
    expect_ok(td_tensors_read(path, &file));
    assert_string_equal(td_tensors_meta(file, "tandem.kind"), "weights");
    assert_true(isfinite(((const float *)td_tensors_get(file, "fc.bias")->data)[1]));
    td_tensors_free(file);
    td_small_training_end(&t);
    unlink(path);
}

/* --- what a file says about its network ------------------------------------------------------- */

static td_tensors *set_of(const char *const *pairs)
{
    td_tensors *t;
    expect_ok(td_tensors_new(&t));
    for (; pairs[0]; pairs += 2)
        expect_ok(td_tensors_set_meta(t, pairs[0], pairs[1]));
    return t;
}

#define SET(...) set_of((const char *const[]){ __VA_ARGS__, NULL })

static void metadata_fills_what_is_open(void **state)
{
    (void)state;
    td_model_opts m;
    td_tensors *t = SET("tandem.arch", "resnet18", "tandem.num_classes", "7", "tandem.image_size",
                        "96", "tandem.variant", "tensorflow");
    td_model_defaults(&m);
    m.num_classes = m.image_size = 0;
    td_weight_metadata_apply(t, true, &m);
    assert_string_equal(m.arch, "resnet18");
    assert_int_equal(m.num_classes, 7);
    assert_int_equal(m.image_size, 96);
    assert_int_equal(m.variant, TD_VARIANT_TENSORFLOW);

    td_model_defaults(&m); /* what was chosen stays */
    m.arch = "resnet34";
    m.num_classes = 5;
    m.image_size = 64;
    td_weight_metadata_apply(t, false, &m);
    assert_string_equal(m.arch, "resnet34");
    assert_int_equal(m.num_classes, 5);
    assert_int_equal(m.image_size, 64);
    td_tensors_free(t);
}

static void quiet(void *ctx, td_log_level level, const char *module, const char *text)
{
    (void)module;
    if (level <= TD_LOG_WARN)
        snprintf(ctx, 400, "%s", text);
}

/* a stranger's file must not make one image a matter of gigabytes */
static void image_sizes_of_files_are_limited(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int size;
    } rows[] = { { "224", 224 },    { "2048", 2048 }, { "2049", 0 }, { "-5", 0 },
                 { "99999999", 0 }, { "12x", 0 },     { "", 0 } };
    char warning[400];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_tensors *t = SET("tandem.image_size", rows[i].text);
        *warning = '\0';
        td_log_set_sink(quiet, warning);
        assert_int_equal(td_weight_image_size(t), rows[i].size);
        td_log_set_sink(NULL, NULL);
        assert_int_equal(strstr(warning, "2049") != NULL, strcmp(rows[i].text, "2049") == 0);
        assert_int_equal(*warning != '\0', rows[i].size == 0);
        td_tensors_free(t);
    }
}

/* the epsilon of the norms after a file was read for an architecture, -1: the network's own */
static double epsilon_for(const char *arch, double chosen, td_tensors *t, char warning[400])
{
    td_model_opts m;
    td_model_defaults(&m);
    m.arch = arch;
    m.num_classes = 3;
    m.image_size = 64;
    m.bn_epsilon = chosen;
    *warning = '\0';
    td_log_set_sink(quiet, warning);
    td_weight_metadata_apply(t, false, &m);
    td_log_set_sink(NULL, NULL);
    return m.bn_epsilon;
}

static void a_file_names_the_epsilon_of_its_norms(void **state)
{
    (void)state;
    static const float zero[1];
    static const char retinanet[] = "retinanet_resnet50_fpn";
    const int64_t one[1] = { 1 };
    char warning[400];
    td_tensors *own = SET("tandem.arch", "resnet18", "tandem.bn_epsilon", "0.001");
    assert_true(epsilon_for("resnet18", -1, own, warning) == 0.001);
    assert_true(epsilon_for("resnet18", 0.01, own, warning) == 0.01);
    assert_non_null(strstr(warning, "0.001"));
    assert_true(epsilon_for("ssd300", -1, own, warning) == -1); /* a backbone's */
    td_tensors_free(own);
    static const char *const bad[] = { "", "x", "-1", "2", "nan", "0.1 " };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        td_tensors *t = SET("tandem.arch", "resnet18", "tandem.bn_epsilon", bad[i]);
        assert_true(epsilon_for("resnet18", -1, t, warning) == -1);
        td_tensors_free(t);
    }

    /* torchvision's COCO_V1 has names of its version 0.12, and epsilon 0 */
    td_tensors *early = SET("format", "pt"), *copy = SET("format", "pt");
    expect_ok(
        td_tensors_add(early, "head.classification_head.conv.6.weight", TD_DT_F32, 1, one, zero));
    assert_true(epsilon_for(retinanet, -1, early, warning) == 0);
    assert_true(epsilon_for(retinanet, 1e-5, early, warning) == 1e-5);
    assert_true(epsilon_for("ssd320", -1, early, warning) == -1);
    expect_ok(td_weight_epsilon_copy(early, copy));
    assert_string_equal(td_tensors_meta(copy, "tandem.bn_epsilon"), "0");
    assert_true(epsilon_for(retinanet, -1, copy, warning) == 0);
    td_tensors_free(early);
    td_tensors_free(copy);
    early = SET("format", "pt");
    expect_ok(
        td_tensors_add(early, "head.classification_head.conv.3.0.weight", TD_DT_F32, 1, one, zero));
    assert_true(epsilon_for(retinanet, -1, early, warning) == -1);
    td_tensors_free(early);
}

static void detectors_take_their_own_weights(void **state)
{
    (void)state;
    td_model_opts m;
    td_model_defaults(&m);
    td_tensors *ssd = SET("tandem.arch", "ssd300", "tandem.backbone", "resnet34");
    td_tensors *plain = SET("tandem.arch", "resnet50"), *none = SET("format", "pt");
    m.arch = "resnet18";
    expect_ok(td_weight_metadata_check(none, "f", &m));
    expect_ok(td_weight_metadata_check(plain, "f", &m)); /* shapes tell of those */
    expect_error(td_weight_metadata_check(ssd, "a/f", &m), TD_EUSAGE, "'a/f'");
    assert_non_null(strstr(td_error_message(), "resnet18"));
    m.arch = "ssd300";
    expect_error(td_weight_metadata_check(plain, "f", &m), TD_EUSAGE, "resnet50");
    expect_error(td_weight_metadata_check(ssd, "f", &m), TD_EUSAGE, "resnet34");
    td_weight_backbone_apply(ssd, &m); /* no backbone was chosen */
    assert_string_equal(m.backbone, "resnet34");
    expect_ok(td_weight_metadata_check(ssd, "f", &m));
    m.backbone = "resnet18"; /* one was */
    td_weight_backbone_apply(ssd, &m);
    assert_string_equal(m.backbone, "resnet18");
    td_tensors *later = SET("tandem.arch", "resnet2029"); /* no architecture of this version */
    expect_ok(td_weight_metadata_check(later, "f", &m));
    m.arch = "resnet2029";
    expect_error(td_weight_metadata_check(later, "a/f", &m), TD_EFORMAT, "'a/f'");
    assert_non_null(strstr(td_error_message(), "resnet2029"));
    td_tensors_free(later);
    td_tensors_free(ssd);
    td_tensors_free(plain);
    td_tensors_free(none);
}

static td_status write_and_read(void)
{
    const td_run_state s = some_state();
    td_run_state is;
    td_tensors *t;
    td_status st = TD_OK;
    TD_TRY(td_tensors_new(&t));
    TD_OUT(td_tensors_set_meta(t, "tandem.kind", "checkpoint"));
    TD_OUT(td_tensors_set_meta(t, "tandem.version", "1"));
    TD_OUT(td_checkpoint_set_state(t, &s));
    TD_OUT(td_checkpoint_state(t, "x", &is));
out:
    td_tensors_free(t);
    return st;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(write_and_read, 1000) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(states_come_back),
        leak_checked_test(what_is_not_there_has_a_default),
        leak_checked_test(other_files_are_refused),
        leak_checked_test(malformed_states_are_refused),
        cmocka_unit_test(a_checkpoint_has_everything),
        cmocka_unit_test(values_that_are_not_finite_are_not_saved),
        leak_checked_test(metadata_fills_what_is_open),
        leak_checked_test(image_sizes_of_files_are_limited),
        leak_checked_test(a_file_names_the_epsilon_of_its_norms),
        leak_checked_test(detectors_take_their_own_weights),
        leak_checked_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
