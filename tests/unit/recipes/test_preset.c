/*
 * test_preset.c -- recipes by name: what the parts of a name mean, which section wins, what is
 * missing or contradicts; the numbers of the published recipes are golden.presets'
 */
#include "recipes/preset.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/text.h"
#include "options/field.h"
#include "recipes/train_options.h"
#include "support/allocations.h"
#include "support/expect.h"
#include "support/leaks.h"
#include "support/scratch.h"
#include "tandem/recipes.h"

typedef struct {
    td_train_opts o;
    td_field_group groups[7];
    td_arena arena;
} run;

static void begin(run *r)
{
    *r = (run){ .arena = { 0 } };
    td_train_defaults(&r->o);
    td_train_groups(&r->o, r->groups);
}

static void end(run *r)
{
    td_arena_release(&r->arena);
}

static td_status resolve(run *r)
{
    return td_train_preset(&r->o, r->groups, &r->arena);
}

static void expect_refused(const char *preset, const char *names)
{
    run r;
    begin(&r);
    r.o.launch.preset = preset;
    expect_error(resolve(&r), TD_EUSAGE, names);
    end(&r);
}

static void parts_come_in_any_order_and_case(void **state)
{
    (void)state;
    static const char *const same[] = { "resnet50/DGXA100/AMP/90", "ResNet50/90/amp/dgxa100",
                                        "resnet50/amp/DGXA100/convergence/90" };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        run r;
        begin(&r);
        r.o.launch.preset = same[i];
        expect_ok(resolve(&r));
        expect_ok(td_train_resolve(&r.o));
        assert_true(r.o.lr.peak > 2.0479 && r.o.lr.peak < 2.0481);
        assert_int_equal(r.o.length.epochs, 90);
        assert_true(r.o.amp.amp);
        assert_string_equal(r.o.model.arch, "resnet50");
        end(&r);
    }
}

static void names_that_are_none_are_refused(void **state)
{
    (void)state;
    char overlong[100];
    memset(overlong, 'a', sizeof overlong);
    overlong[sizeof overlong - 1] = '\0';
    expect_refused("resnet9000", "'resnet9000'");
    expect_refused("resnet50/DGX9", "'DGX9'");
    expect_refused("resnet50/T4/AMP/convergence/evaluate", "'evaluate'");
    expect_refused("resnet50/T4/DGX1V/AMP", "'DGX1V'");
    expect_refused("resnet50/T4/AMP/FP32", "'FP32'");
    expect_refused("resnet50/90/250", "'250'");
    expect_refused("resnet50/91", "91");
    expect_refused("resnext101-32x4d/50", "50");
    expect_refused("resnet50//AMP", "'resnet50//AMP'");
    expect_refused("resnet50/", "'resnet50/'");
    expect_refused("", "--preset");
    expect_refused(overlong, "--preset");
    expect_refused("efficientnet-b0/90", "'efficientnet-b0'");
    expect_refused("ssd320/9gpus", "'9gpus'");
    expect_refused("ssd320//", "--preset");
}

static void what_a_machine_needs_is_asked_for(void **state)
{
    (void)state;
    run r;
    unsetenv("TANDEM_AMP");
    expect_refused("resnet50/T4", "--precision");
    expect_refused("resnet50/2019-12/AMP", "--platform");
    begin(&r);
    r.o.launch.platform = "T4"; /* of which model? */
    expect_error(resolve(&r), TD_EUSAGE, "--model");
    end(&r);
    begin(&r);
    r.o.launch.preset = "resnet50/90";
    r.o.launch.pipeline_config_path = "p.config";
    expect_error(resolve(&r), TD_EUSAGE, "--pipeline-config-path");
    end(&r);
    begin(&r);
    r.o.launch.hparams_overrides = "a=1";
    expect_error(resolve(&r), TD_EUSAGE, "--hparams-overrides");
    end(&r);
}

/* without a machine the learning rate follows the batch, 0.256 for 256 */
static void the_rule_of_thumb_follows_the_batch(void **state)
{
    (void)state;
    run r;
    begin(&r);
    r.o.launch.preset = "resnet50/90";
    r.o.batch.size = 32;
    r.o.batch.step_size = 64;
    assert_true(td_train_step_images(&r.o) == 64);
    expect_ok(resolve(&r));
    assert_true(r.o.lr.peak > 0.0639999 && r.o.lr.peak < 0.0640001);
    assert_string_equal(r.o.launch.name, "resnet50/90");
    end(&r);
}

/* --- what the user gave, beside a preset ------------------------------------------------------ */

/* options of a command line over a preset, as `tandem train` reads them: before it and after it */
static td_status give(run *r, const char *preset, int argc, const char *const *argv)
{
    const char *rest[8];
    int n_rest;
    begin(r);
    r->o.launch.preset = preset;
    for (int i = 0; i < 2; i++) {
        expect_ok(
            td_options_parse(r->groups, argc, (char **)(uintptr_t)argv, rest, &n_rest, &r->arena));
        assert_int_equal(n_rest, 0);
        if (i == 0)
            expect_ok(resolve(r));
    }
    return td_train_resolve(&r->o);
}

#define GIVE(r, preset, ...)                                                                       \
    give(r, preset, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),               \
         (const char *[]){ __VA_ARGS__ })

/* --epochs replaces steps of the preset, and nothing that was given, if with the same value */
static void epochs_replace_steps_that_were_not_given(void **state)
{
    (void)state;
    run r;
    expect_ok(GIVE(&r, "ssd320/8gpus", "--epochs=5"));
    assert_int_equal(r.o.length.epochs, 5);
    assert_int_equal(r.o.length.num_steps, -1);
    assert_int_equal(r.o.lr.total_steps, -1);
    assert_int_equal(r.o.lr.warmup, -1);
    end(&r);
    expect_ok(GIVE(&r, "ssd320/8gpus", "--epochs=5", "--warmup=1000"));
    assert_int_equal(r.o.lr.warmup, 1000);
    assert_int_equal(r.o.length.num_steps, -1);
    end(&r);
    expect_ok(GIVE(&r, "ssd320/8gpus", "--epochs=5", "--lr-total-steps=12500"));
    assert_int_equal(r.o.lr.total_steps, 12500);
    assert_int_equal(r.o.lr.warmup, -1);
    end(&r);
    expect_ok(GIVE(&r, "ssd320/8gpus", "--epochs=5", "--num-train-steps=12500"));
    assert_int_equal(r.o.length.num_steps, 12500);
    assert_int_equal(r.o.lr.warmup, 1000);
    end(&r);
    expect_ok(GIVE(&r, "ssd320/8gpus", "--epochs=5", "--num-iter=12500", "--iter-unit=batch"));
    assert_int_equal(r.o.length.num_steps, 12500);
    end(&r);
}

/* a preset's warm-up may be longer than the training; one that was given beside --epochs may not */
static void a_given_warmup_has_to_fit(void **state)
{
    (void)state;
    run r;
    expect_ok(GIVE(&r, "resnet50/90", "--epochs=2", "--data=x"));
    assert_int_equal(r.o.lr.warmup, 8);
    expect_ok(td_train_check_training(&r.o));
    end(&r);
    expect_ok(GIVE(&r, "resnet50/90", "--epochs=2", "--warmup=8", "--data=x"));
    expect_error(td_train_check_training(&r.o), TD_EUSAGE, "--warmup");
    end(&r);
}

/* --- tables of users -------------------------------------------------------------------------- */

static const char *table(const char *text)
{
    const char *path = td_scratch_path("table.yml");
    expect_ok(td_file_write(path, text, strlen(text)));
    return path;
}

static void ask(run *r, const char *text)
{
    begin(r);
    r->o.launch.cfg_file = table(text);
    r->o.launch.preset = "resnet50/T4/AMP/evaluate";
}

#define MODELS "models: {resnet50: {T4: {AMP: {lr: 3, epochs: 33, momentum: 0.3}}}}\n"

/* precision < platform < model < mode */
static void later_sections_win(void **state)
{
    (void)state;
    run r;
    ask(&r, "precision: {AMP: {amp: true, lr: 1, epochs: 11, momentum: 0.1, batch-size: 11}}\n"
            "platform: {T4: {lr: 2, epochs: 22, momentum: 0.2, workers: 2}}\n" MODELS
            "mode: {evaluate: {lr: 4, warmup: null}}\n");
    const int warmup = r.o.lr.warmup;
    expect_ok(resolve(&r));
    assert_true(r.o.lr.peak == 4);
    assert_true(r.o.optimizer.momentum > 0.29 && r.o.optimizer.momentum < 0.31);
    assert_int_equal(r.o.input.workers, 2);
    assert_int_equal(r.o.batch.size, 11);    /* '-' is '_' */
    assert_int_equal(r.o.lr.warmup, warmup); /* null is as if it were not there */
    assert_true(r.o.amp.amp);
    assert_string_equal(r.o.launch.name, "resnet50/T4/AMP");
    end(&r);
}

static void malformed_tables_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names;
        td_status st;
    } rows[] = {
        { "precision: [", "table.yml", TD_EFORMAT },
        { "", "--preset", TD_EUSAGE },
        { "precision: {AMP: 5}\nplatform: {T4: {}}\nmode: {evaluate: {}}\n" MODELS, "line 1",
          TD_EFORMAT },
        { "precision: {AMP: {}}\nplatform: {T4: {lr: [1, 2]}}\nmode: {evaluate: {}}\n" MODELS,
          "line 2: 'lr'", TD_EFORMAT },
        { "precision: {AMP: {}}\nplatform: {T4: {learning: 1}}\nmode: {evaluate: {}}\n" MODELS,
          "learning", TD_EUSAGE },
        { "precision: {AMP: {}}\nplatform: {T4: {}}\nmode: {evaluate: {epochs: many}}\n" MODELS,
          "line 3", TD_EUSAGE },
        { "precision: {AMP: {}}\nplatform: {T4: {}}\nmode: {evaluate: {}}\nmodels: {resnet50: "
          "{T4: {FP32: {}}}}\n",
          "FP32", TD_EUSAGE },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run r;
        ask(&r, rows[i].text);
        expect_error(resolve(&r), rows[i].st, rows[i].names);
        end(&r);
    }
    run r;
    begin(&r);
    r.o.launch.cfg_file = "/no/such.yml";
    expect_error(resolve(&r), TD_ENOTFOUND, "/no/such.yml");
    end(&r);
    unlink(td_scratch_path("table.yml"));
}

/* --model names a network of the table or a file; the file wins */
static void models_are_names_or_files(void **state)
{
    (void)state;
    run r;
    begin(&r);
    assert_false(td_train_is_preset_model(&r.o));
    r.o.model.model = "resnet50";
    assert_true(td_train_is_preset_model(&r.o));
    r.o.model.model = "efficientnet-b4";
    assert_true(td_train_is_preset_model(&r.o));
    r.o.model.model = "resnet51";
    assert_false(td_train_is_preset_model(&r.o));
    assert_int_equal(chdir(td_scratch_folder()), 0);
    expect_ok(td_file_write("resnet50", "graph", 5));
    r.o.model.model = "resnet50";
    assert_false(td_train_is_preset_model(&r.o));
    unlink("resnet50");
    assert_true(td_train_is_preset_model(&r.o));
    end(&r);
}

static td_status resolve_one(void)
{
    run r;
    begin(&r);
    r.o.launch.preset = "resnet50/T4/AMP/90";
    const td_status st = resolve(&r);
    end(&r);
    return st;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(td_test_allocations(resolve_one, 2000) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        leak_checked_test(parts_come_in_any_order_and_case),
        leak_checked_test(names_that_are_none_are_refused),
        leak_checked_test(what_a_machine_needs_is_asked_for),
        leak_checked_test(the_rule_of_thumb_follows_the_batch),
        leak_checked_test(epochs_replace_steps_that_were_not_given),
        leak_checked_test(a_given_warmup_has_to_fit),
        leak_checked_test(later_sections_win),
        leak_checked_test(malformed_tables_are_refused),
        leak_checked_test(models_are_names_or_files),
        leak_checked_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
