/*
 * test_golden_presets.c -- every published recipe against presets.txt, which was typed from the
 * reference's own tables, and the learning rates that they lead to against lr.json
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expect.h"
#include "support/golden.h"

#include "base/arena.h"
#include "base/text.h"
#include "optim/lr_schedule.h"
#include "options/field.h"
#include "tandem/recipes.h"
#include "tandem/train.h"

typedef struct {
    td_train_opts o;
    td_field_group groups[7];
    td_arena arena;
    td_text yaml;
} run;

static void open_run(run *r)
{
    *r = (run){ .arena = { 0 } };
    td_train_defaults(&r->o);
    td_train_groups(&r->o, r->groups);
}

static void close_run(run *r)
{
    td_text_release(&r->yaml);
    td_arena_release(&r->arena);
}

static void resolve(run *r, const char *preset)
{
    r->o.launch.preset = preset;
    expect_ok(td_train_preset(&r->o, r->groups, &r->arena));
    expect_ok(td_train_resolve(&r->o));
    td_options_yaml(r->groups, &r->yaml);
    expect_ok(td_text_status(&r->yaml));
}

static void expect_setting(const run *r, const char *preset, const char *name, const char *value)
{
    char plain[200], quoted[200];
    snprintf(plain, sizeof plain, "\n  %s: %s\n", name, value);
    snprintf(quoted, sizeof quoted, "\n  %s: \"%s\"\n", name, value);
    if (!strstr(td_text_get(&r->yaml), plain) && !strstr(td_text_get(&r->yaml), quoted))
        fail_msg("%s: wanted %s in\n%s", preset, plain + 1, td_text_get(&r->yaml));
}

/* "name=value name=value" */
static void expect_pairs(const run *r, const char *preset, const char *pairs, bool is_90)
{
    char name[64], value[64], model[64];
    snprintf(model, sizeof model, "%.*s", (int)strcspn(preset, "/"), preset);
    int n = 0;
    for (const char *s = pairs; sscanf(s, " %63[^= \n]=%63[^ \n]%n", name, value, &n) == 2;
         s += n) {
        if (is_90 && strcmp(name, "epochs") == 0)
            snprintf(value, sizeof value, "90");
        if (is_90 && strcmp(name, "mixup") == 0)
            snprintf(value, sizeof value, "0");
        expect_setting(r, preset, name, strcmp(value, "MODEL") == 0 ? model : value);
    }
}

static void expect_precision(const run *r, const char *preset)
{
    bool is_2019 = strstr(preset, "2019") != NULL;
    if (strstr(preset, "/AMP") || strstr(preset, "/FP16")) {
        expect_setting(r, preset, "static_loss_scale", "128");
        expect_setting(r, preset, "dynamic_loss_scale", is_2019 ? "false" : "true");
        expect_setting(r, preset, "loss_scaler", is_2019 ? "auto" : "nvidia");
    } else {
        expect_setting(r, preset, "static_loss_scale", "-1");
    }
    expect_setting(r, preset, "amp", strstr(preset, "/AMP") ? "true" : "false");
    if (strstr(preset, "/FP32"))
        expect_setting(r, preset, "precision", "fp32");
    if (strstr(preset, "/TF32"))
        expect_setting(r, preset, "precision", "tf32");
}

static void check_row(const char *line, const char *common, bool is_90)
{
    char name[100], preset[120], values[5][32];
    static const char *const names[] = { "batch_size", "optimizer_batch_size", "lr", "weight_decay",
                                         "memory_format" };
    int n = 0;
    run r;
    if (sscanf(line, "%99s %31s %31s %31s %31s %31s%n", name, values[0], values[1], values[2],
               values[3], values[4], &n) != 6)
        fail_msg("no row: %.80s", line);
    snprintf(preset, sizeof preset, "%s%s", name, is_90 ? "/90" : "");
    open_run(&r);
    resolve(&r, preset);
    for (int i = 0; i < 5; i++)
        expect_setting(&r, preset, names[i], values[i]);
    expect_pairs(&r, preset, common, is_90);
    expect_pairs(&r, preset, line + n, is_90);
    expect_precision(&r, preset);
    close_run(&r);
}

/* "torchvision/resnet50-v2 name=value ..." */
static void check_recipe(const char *line)
{
    char name[100];
    int n = 0;
    run r;
    assert_int_equal(sscanf(line, "%99s%n", name, &n), 1);
    open_run(&r);
    resolve(&r, name);
    expect_pairs(&r, name, line + n, false);
    close_run(&r);
}

static void every_published_recipe(void **state)
{
    (void)state;
    char line[2000], common[2000] = "";
    int n_rows = 0;
    FILE *f = fopen("tests/golden/presets.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (*line == '#' || *line == '\n')
            continue;
        if (td_text_starts(line, "common ")) {
            snprintf(common, sizeof common, "%s", line + 7);
            continue;
        }
        if (td_text_starts(line, "recipe ")) {
            check_recipe(line + 7);
            n_rows++;
            continue;
        }
        check_row(line, common, false);
        check_row(line, common, true);
        n_rows++;
    }
    fclose(f);
    print_message("%d recipes\n", n_rows);
    assert_true(n_rows > 0);
}

static void fifty_epochs_are_resnet50s(void **state)
{
    (void)state;
    run r;
    open_run(&r);
    resolve(&r, "resnet50/DGX1V/AMP/50/2019-12");
    expect_setting(&r, "50", "epochs", "50");
    expect_setting(&r, "50", "mixup", "0");
    close_run(&r);
    open_run(&r);
    r.o.launch.preset = "resnext101-32x4d/50";
    expect_error(td_train_preset(&r.o, r.groups, &r.arena), TD_EUSAGE,
                 "50 epochs, wanted 90 or 250");
    close_run(&r);
}

/* 0.256 for every 256 images of a step, whatever makes up the step */
static void the_rule_of_thumb(void **state)
{
    (void)state;
    static const struct {
        int batch, step;
        double lr;
    } cases[] = { { 256, -1, 0.256 }, { 64, -1, 0.064 }, { 32, 2048, 2.048 }, { 1, -1, 0.001 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        open_run(&r);
        r.o.batch.size = cases[i].batch;
        r.o.batch.step_size = cases[i].step;
        resolve(&r, "se-resnext101-32x4d/90");
        assert_true(fabs(r.o.lr.peak - cases[i].lr) < 1e-15);
        assert_int_equal(r.o.batch.size, cases[i].batch);
        assert_int_equal(r.o.batch.step_size, cases[i].step);
        expect_setting(&r, "rule", "weight_decay", "6.103515625e-05");
        close_run(&r);
    }
}

static void modes_come_last(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *pairs;
    } cases[] = {
        { "resnet50/T4/AMP/convergence", "print_freq=20 training_only=false evaluate=false "
                                         "no_checkpoints=false epochs=250 prof=-1" },
        { "resnet50/T4/AMP/evaluate", "print_freq=20 training_only=false evaluate=true "
                                      "no_checkpoints=true epochs=1" },
        { "resnet50/T4/AMP/benchmark_training", "print_freq=1 training_only=true evaluate=false "
                                                "no_checkpoints=true epochs=3 prof=-1" },
        { "resnet50/T4/AMP/benchmark_training_short",
          "print_freq=1 training_only=true evaluate=false no_checkpoints=true epochs=1 "
          "data_backend=synthetic prof=100" },
        { "resnet50/T4/AMP/benchmark_inference", "print_freq=1 training_only=false evaluate=true "
                                                 "no_checkpoints=true epochs=1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        open_run(&r);
        resolve(&r, cases[i].preset);
        expect_pairs(&r, cases[i].preset, cases[i].pairs, false);
        close_run(&r);
    }
}

static const td_json *curve_of(const td_json *doc, double lr, int epochs)
{
    const td_json *all = td_golden_rows(doc, "curves");
    for (size_t i = 0; i < td_json_count(all); i++) {
        const td_json *c = td_json_at(all, i);
        if (strcmp(td_golden_text(c, "policy"), "cosine") == 0 &&
            td_golden_number(c, "base_lr") == lr && td_golden_number(c, "epochs") == epochs &&
            td_golden_number(c, "warmup") == 8 && td_golden_number(c, "end_lr") == 0)
            return c;
    }
    fail_msg("lr.json has no cosine of %g over %d epochs", lr, epochs);
    return NULL;
}

/* a size of images that the user gives replaces those of training and of the resize, too */
static void sizes_of_a_recipe_belong_together(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        run r;
        open_run(&r);
        r.o.launch.preset = "torchvision/resnet50-v2";
        expect_ok(td_train_preset(&r.o, r.groups, &r.arena));
        r.o.model.image_size = i ? 64 : 224;
        if (i == 2) {
            r.o.model.val_resize = 70;
            r.o.batch.image_size_schedule = "0:48";
        }
        expect_ok(td_train_resolve(&r.o));
        assert_int_equal(r.o.model.val_resize, i == 0 ? 232 : i == 1 ? 0 : 70);
        if (i == 1)
            assert_null(r.o.batch.image_size_schedule);
        else
            assert_string_equal(r.o.batch.image_size_schedule, i ? "0:48" : "0:176");
        close_run(&r);
    }
}

static void recipes_take_precisions_and_modes(void **state)
{
    (void)state;
    run r;
    open_run(&r);
    resolve(&r, "timm/resnet50-a2/AMP");
    expect_setting(&r, "timm", "amp", "true");
    assert_string_equal(r.o.launch.name, "timm/resnet50-a2/AMP");
    close_run(&r);
    open_run(&r);
    resolve(&r, "torchvision/ResNet50-V2/FP32");
    expect_setting(&r, "torchvision", "precision", "fp32");
    close_run(&r);
    open_run(&r);
    r.o.launch.mode = "benchmark_training";
    resolve(&r, "timm/resnet50-a3");
    expect_setting(&r, "timm", "epochs", "3");
    close_run(&r);
    open_run(&r);
    r.o.launch.platform = "T4";
    r.o.launch.preset = "timm/resnet50-a3";
    expect_error(td_train_preset(&r.o, r.groups, &r.arena), TD_EUSAGE, "--platform");
    close_run(&r);
}

/* what the run will use, epoch by epoch; the momentum is constant */
static void curves_are_the_reference_s(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        double lr;
        int epochs;
    } cases[] = { { "resnet50/DGXA100/AMP/90", 2.048, 90 }, { "resnet50/250", 0.256, 250 } };
    td_json *doc = td_golden_json("classification", "lr.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        open_run(&r);
        resolve(&r, cases[i].preset);
        const td_json *lr = td_json_get(curve_of(doc, cases[i].lr, cases[i].epochs), "lr");
        td_lr_curve o = { .schedule = r.o.lr.schedule,
                          .lr = r.o.lr.peak,
                          .end_lr = r.o.lr.end,
                          .warmup = r.o.lr.warmup,
                          .epochs = r.o.length.epochs };
        assert_int_equal(td_json_count(lr), r.o.length.epochs);
        for (int e = 0; e < r.o.length.epochs; e++) {
            double wanted;
            expect_ok(td_json_as_number(td_json_at(lr, (size_t)e), &wanted));
            assert_true(fabs(td_lr_at(&o, e) - wanted) <= 1e-13 * r.o.lr.peak);
        }
        assert_true(r.o.optimizer.momentum == 0.875);
        close_run(&r);
    }
    td_json_free(doc);
}

static void what_is_missing_is_listed(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "resnet50/DGXA100/FP32",
          "precision 'FP32' for 'resnet50' on 'DGXA100', wanted AMP, TF32" },
        { "resnext101-32x4d/DGX2V/AMP", "platform 'DGX2V' for 'resnext101-32x4d', "
                                        "wanted DGX1V, DGX1V-16G, DGX1V-32G, DGXA100, T4" },
        { "resnet34/90", "model 'resnet34', wanted resnet50, resnext101-32x4d" },
        { "resnet50/30", "number of epochs '30' for a preset (--epochs accepts any), wanted 90" },
        { "resnet50/DGX3", "'DGX3' is not a platform" },
        { "resnet50/DGXA100", "requires a precision" },
        { "resnet50//90", "empty or overlong part" },
        { "resnet50/", "empty or overlong part" },
        { "", "no model was" },
        { "efficientnet-b4/90", "model 'efficientnet-b4'" },
        { "efficientnet-quant-b4/DGXA100/AMP", "quantized networks" },
        { "torchvision", "wanted one of torchvision/resnet50-v2 timm/resnet50-a1" },
        { "timm/AMP", "wanted one of" },
        { "timm/resnet50-a4", "'resnet50-a4', wanted resnet50-a1, resnet50-a2, resnet50-a3" },
        { "timm/resnet50-a1/resnet50-a2", "'resnet50-a1' and 'resnet50-a2'" },
        { "timm/", "empty or overlong part" },
        { "resnet50/90/2019-12", "requires --platform" },
        { "resnet50/DGXA100/AMP/2019-12", "'DGXA100' is not a platform" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        open_run(&r);
        r.o.launch.preset = cases[i][0];
        expect_error(td_train_preset(&r.o, r.groups, &r.arena), TD_EUSAGE, cases[i][1]);
        close_run(&r);
    }
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    td_status st = TD_ENOMEM;
    for (int n = 1; st != TD_OK; n++) {
        run r;
        open_run(&r);
        r.o.launch.preset = "resnet50/DGXA100/AMP/90";
        td_alloc_fail_at(n);
        st = td_train_preset(&r.o, r.groups, &r.arena);
        td_alloc_fail_at(0);
        assert_true(st == TD_OK || st == TD_ENOMEM);
        close_run(&r);
        assert_int_equal(td_alloc_live(), 0);
        n += n / 20; /* some thousands in all */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_published_recipe),
        cmocka_unit_test(fifty_epochs_are_resnet50s),
        cmocka_unit_test(the_rule_of_thumb),
        cmocka_unit_test(modes_come_last),
        cmocka_unit_test(sizes_of_a_recipe_belong_together),
        cmocka_unit_test(recipes_take_precisions_and_modes),
        cmocka_unit_test(curves_are_the_reference_s),
        cmocka_unit_test(what_is_missing_is_listed),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    td_golden_require("classification");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
