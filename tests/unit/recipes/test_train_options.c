/*
 * test_train_options.c -- the options of the jobs: the reference's defaults and spellings, and
 * what is refused
 */
#include "support/expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "options/field.h"
#include "recipes/train_options.h"
#include "tandem/amp.h"
#include "tandem/benchmark.h"
#include "tandem/dataset.h"
#include "tandem/evaluate.h"
#include "tandem/inference.h"
#include "tandem/input.h"
#include "tandem/inspect.h"
#include "tandem/loader.h"
#include "tandem/model.h"
#include "tandem/train.h"

static const td_field_group *train_groups(td_train_opts *o)
{
    static td_field_group groups[5];
    td_train_defaults(o);
    groups[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    groups[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    groups[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    groups[3] = (td_field_group){ "Training", td_train_fields(), o };
    return groups;
}

static void parse(td_train_opts *o, td_arena *arena, int argc, const char *const *argv)
{
    const char *rest[64];
    int n_rest;
    expect_ok(
        td_options_parse(train_groups(o), argc, (char **)(uintptr_t)argv, rest, &n_rest, arena));
    assert_int_equal(n_rest, 0);
}

#define PARSE(...)                                                                                 \
    parse(&o, &arena, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),             \
          (const char *[]){ __VA_ARGS__ })

/* main.py of the reference, without arguments */
static void defaults_are_the_reference_s(void **state)
{
    (void)state;
    td_train_opts o;
    td_train_defaults(&o);
    assert_string_equal(o.model.arch, "resnet50");
    assert_int_equal(o.model.conv_init, TD_CONV_INIT_AUTO); /* auto: fan_in, of this variant */
    assert_false(o.model.last_bn_0_init);
    assert_int_equal(o.input.data_backend, TD_DATA_FOLDER);
    assert_int_equal(o.input.interpolation, TD_INTERPOLATE_BILINEAR);
    assert_int_equal(o.input.prefetch, 2);
    assert_int_equal(o.batch.size, 256);
    assert_int_equal(o.batch.step_size, -1);
    assert_int_equal(o.length.epochs, 90);
    assert_int_equal(o.length.run_epochs, -1);
    assert_int_equal(o.length.run_steps, -1);
    assert_int_equal(o.validation.patience, -1);
    assert_true(o.lr.peak == 0.1 && o.lr.end == 0);
    assert_int_equal(o.lr.schedule, TD_LR_STEP);
    assert_int_equal(o.lr.warmup, 0);
    assert_true(o.loss.label_smoothing == 0 && o.loss.mixup == 0);
    assert_int_equal(o.optimizer.type, TD_OPTIMIZER_SGD);
    assert_true(o.optimizer.momentum == 0.9 && o.optimizer.weight_decay == 1e-4);
    assert_true(!o.optimizer.decays_bn && !o.optimizer.nesterov);
    assert_true(o.optimizer.rmsprop_alpha == 0.9 && o.optimizer.rmsprop_eps == 1e-3);
    assert_int_equal(o.metrics.print_freq, 10);
    assert_null(o.start.resume);
    assert_null(o.start.pretrained_weights);
    assert_true(o.loss_scaling.scale == -1); /* TensorFlow's: chosen; main.py has 1 */
    assert_true(!o.loss_scaling.is_dynamic && !o.compat.fp16 && !o.amp.amp && o.amp.precision == 0);
    assert_int_equal(o.loss_scaling.scaler, TD_LOSS_SCALER_AUTO);
    assert_int_equal(o.loss_scaling.max_skips, 50);
    assert_int_equal(o.profile.iterations, -1);
    assert_int_equal(o.output.keep_checkpoints, 0);
    assert_null(o.report.file); /* experiment_raport.json, but with --no-checkpoints none */
    assert_null(o.output.workspace);
    assert_true(!o.validation.evaluate_only && o.validation.is_enabled &&
                o.output.save_checkpoints);
    assert_int_equal(o.validation.topk, 5);
    assert_string_equal(o.device.name, "cpu");
    expect_ok(td_train_check(&o));
}

static void every_table_s_defaults_are_in_range(void **state)
{
    (void)state;
    td_train_opts t;
    td_evaluate_opts e;
    td_classify_opts c;
    td_benchmark_opts b;
    td_inspect_opts i;
    td_train_defaults(&t);
    td_evaluate_defaults(&e);
    td_classify_defaults(&c);
    td_benchmark_defaults(&b);
    td_inspect_defaults(&i);
    expect_ok(td_fields_check(td_model_fields(), &t.model));
    expect_ok(td_fields_check(td_input_fields(), &t.input));
    expect_ok(td_fields_check(td_train_fields(), &t));
    expect_ok(td_fields_check(td_evaluate_fields(), &e));
    expect_ok(td_fields_check(td_classify_fields(), &c));
    expect_ok(td_fields_check(td_benchmark_fields(), &b));
    expect_ok(td_fields_check(td_inspect_fields(), &i));
    assert_string_equal(e.model.arch, "resnet50");
    assert_string_equal(b.device.name, "cpu");
    assert_true(b.bound);
}

static void spellings_of_both_editions_are_read(void **state)
{
    (void)state;
    td_train_opts o;
    td_arena arena = { 0 };
    PARSE("-a", "resnet18", "-b", "64", "-j", "3", "-p", "7", "-c", "fanin", "--wd", "0.01",
          "--learning-rate", "0.5", "--num_classes", "10", "--pretrained-from-file", "w.st",
          "--data-backend", "syntetic", "--lr-sch", "cosine", "--mom", "0.875", "--no-checkpoints");
    assert_string_equal(o.model.arch, "resnet18");
    assert_int_equal(o.batch.size, 64);
    assert_int_equal(o.input.workers, 3);
    assert_int_equal(o.metrics.print_freq, 7);
    assert_int_equal(o.model.conv_init, 0);
    assert_true(o.optimizer.weight_decay == 0.01);
    assert_true(o.lr.peak == 0.5);
    assert_int_equal(o.model.num_classes, 10);
    assert_string_equal(o.start.pretrained_weights, "w.st");
    assert_int_equal(o.input.data_backend, 1);
    assert_int_equal(o.lr.schedule, TD_LR_COSINE);
    assert_true(o.optimizer.momentum == 0.875);
    assert_true(!o.output.save_checkpoints);

    PARSE("--model-config", "grp-fanout", "--data-backend=dali-cpu", "--memory-format", "nhwc",
          "--jit", "script", "--use-xla", "--trt", "False", "--fused_se", "", "--gpu-affinity",
          "none");
    assert_int_equal(o.model.conv_init, TD_CONV_INIT_FAN_OUT);
    assert_int_equal(o.input.data_backend, TD_DATA_DALI_CPU);
    expect_ok(td_train_check(&o));
    PARSE("--crop", "tf", "--normalization=tf", "--augmentation", "autoaugment", "--no-antialias",
          "--shuffle=buffer", "--interpolation=triangular");
    assert_int_equal(o.input.crop, TD_RULES_TF);
    assert_int_equal(o.input.normalization, TD_NORMALIZE_TF);
    assert_int_equal(o.input.augmentation, TD_AUGMENTATION_AUTOAUGMENT);
    assert_int_equal(o.input.interpolation, TD_INTERPOLATE_TRIANGULAR);
    assert_true(o.input.point_sampled && !o.input.antialias);
    assert_int_equal(o.batch.shuffle, TD_SHUFFLE_BUFFER);
    expect_ok(td_train_check(&o));
    PARSE("--shuffle=buffer", "--sampler=padded");
    expect_error(td_train_check_line(&o), TD_EUSAGE, "--sampler padded");
    PARSE("--use-tf-amp", "--static_loss_scale", "128", "--dynamic-loss-scale",
          "--loss-scaler=apex");
    assert_true(o.amp.amp && o.loss_scaling.scale == 128 && o.loss_scaling.is_dynamic);
    assert_int_equal(o.loss_scaling.scaler, TD_LOSS_SCALER_APEX);
    expect_ok(td_train_check(&o));
    PARSE("-c", "classic");
    assert_int_equal(o.model.conv_init, TD_CONV_INIT_FAN_OUT);
    PARSE("-c", "grp-fanin");
    assert_int_equal(o.model.conv_init, TD_CONV_INIT_FAN_IN);
    td_arena_release(&arena);
}

/* "0.875" may not become something else on its way through a saved configuration */
static void a_configuration_reads_back(void **state)
{
    (void)state;
    td_train_opts o;
    td_arena arena = { 0 };
    td_text json = { 0 }, again = { 0 };
    PARSE("--lr", "0.256", "--wd", "3.0517578125e-05", "--seed", "123456789012", "--nesterov");
    td_fields_json(td_train_fields(), &o, &json);
    td_train_opts back = o;
    td_fields_default(td_train_fields(), &back);
    assert_false(td_fields_equal(td_train_fields(), &o, &back));
    PARSE("--lr=0.256", "--weight-decay=0.000030517578125", "--seed=123456789012",
          "--nesterov=true");
    td_fields_json(td_train_fields(), &o, &again);
    assert_string_equal(td_text_get(&json), td_text_get(&again));
    td_text_release(&json);
    td_text_release(&again);
    td_arena_release(&arena);
}

static void read_config(const td_field_group *groups, const char *text, td_arena *arena)
{
    char path[] = "/tmp/td-test-config-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    expect_ok(td_file_write(path, text, strlen(text)));
    const td_status st = td_options_config(groups, path, arena);
    assert_int_equal(unlink(path), 0);
    expect_ok(st);
}

/* as `--print-config` and config.yaml of earlier versions name them */
static void sections_of_earlier_versions_are_read(void **state)
{
    (void)state;
    td_train_opts o;
    td_evaluate_opts e;
    td_benchmark_opts b;
    td_arena arena = { 0 };
    td_field_group groups[7];
    td_train_defaults(&o);
    td_train_groups(&o, groups);
    read_config(groups,
                "recipe:\n  lr: 0.5\nboxes_that_are_found:\n  max_boxes: 7\n"
                "tensorflow's_names:\n  num_iter: 3\nthe_detectors'_names: {model_dir: m}\n",
                &arena);
    assert_true(o.lr.peak == 0.5 && o.boxes.max_boxes == 7 && o.launch.num_iter == 3);
    assert_string_equal(o.launch.model_dir, "m");
    td_evaluate_defaults(&e);
    groups[0] = (td_field_group){ "Detection", td_boxes_fields(), &e.boxes };
    groups[1] = (td_field_group){ "Evaluation", td_evaluate_fields(), &e };
    groups[2] = (td_field_group){ NULL, NULL, NULL };
    read_config(groups,
                "boxes_that_are_found: {max_boxes: 8}\nwhat_is_judged: {detections: d.json}\n"
                "names_of_the_reference_programs: {model_dir: n}\n",
                &arena);
    assert_int_equal(e.boxes.max_boxes, 8);
    assert_string_equal(e.detections, "d.json");
    td_benchmark_defaults(&b);
    groups[0] = (td_field_group){ "Measurement", td_benchmark_fields(), &b };
    groups[1] = (td_field_group){ NULL, NULL, NULL };
    read_config(groups, "names_of_the_reference_programs:\n  hparams_overrides: null\n", &arena);
    td_arena_release(&arena);
}

static void what_is_not_there_yet_is_refused(void **state)
{
    (void)state;
    static const char *const lines[][2] = {
        { "--pretrained", "--pretrained" },
    };
    td_train_opts o;
    td_arena arena = { 0 };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        PARSE(lines[i][0]);
        expect_error(td_train_check(&o), TD_EUSAGE, lines[i][1]);
    }
    PARSE("--mixup=0", "--optimizer=sgd", "--augmentation=none");
    expect_ok(td_train_check(&o));
    td_arena_release(&arena);
}

static void what_contradicts_is_refused(void **state)
{
    (void)state;
    td_train_opts o;
    td_arena arena = { 0 };
    PARSE("--batch-size=8", "--optimizer-batch-size=7");
    expect_error(td_train_check(&o), TD_EUSAGE, "7 is less than a batch of 8");
    PARSE("--batch-size=8", "--optimizer-batch-size=0");
    expect_error(td_train_check(&o), TD_EUSAGE, "0 is less than a batch of 8");
    PARSE("--use-ema=-0.5");
    expect_error(td_train_check(&o), TD_EUSAGE, "'-0.5' is out of range, wanted 0 to 1, or -1");
    PARSE("--mixup-file=x.safetensors");
    expect_error(td_train_check(&o), TD_EUSAGE, "--mixup-file requires --mixup");
    PARSE("--lr-rule=tf", "--lr-schedule=exponential");
    expect_error(td_train_check(&o), TD_EUSAGE, "--lr-schedule step or cosine");
    PARSE("--lr-rule=tf", "--lr-schedule=cosine", "--end-lr=0.1");
    expect_error(td_train_check(&o), TD_EUSAGE, "--end-lr 0.1 exclude");
    PARSE("--decay-rule=readme", "--bn-weight-decay");
    expect_error(td_train_check(&o), TD_EUSAGE, "--decay-rule readme and --bn-weight-decay");
    PARSE("--image-size-schedule=0:32,x");
    expect_error(td_train_check(&o), TD_EUSAGE, "--image-size-schedule: image sizes '0:32,x'");
    PARSE("--image-size-schedule=0:32", "--trace=t.json");
    expect_error(td_train_check(&o), TD_EUSAGE, "--trace and --image-size-schedule");
    PARSE("--image-size-schedule=0:32,4:64");
    expect_ok(td_train_check(&o));
    PARSE("--batch-size=8", "--optimizer-batch-size=20", "--use-ema=0.999", "--mixup=0.2",
          "--optimizer=rmsprop", "--lr-schedule=exponential");
    expect_ok(td_train_check(&o));
    td_arena_release(&arena);
}

static void an_option_without_its_other_is_refused(void **state)
{
    (void)state;
    td_train_opts o;
    td_arena arena = { 0 };
    PARSE("--amp-stats-every=7");
    expect_error(td_train_check_line(&o), TD_EUSAGE, "--amp-stats-every");
    PARSE("--amp-stats-every=100"); /* the command's log names it as one without effect */
    expect_ok(td_train_check_line(&o));
    PARSE("--amp-stats-every=7", "--amp-stats=a.jsonl");
    expect_ok(td_train_check_line(&o));
    td_arena_release(&arena);
}

static void training_needs_data_and_a_validation(void **state)
{
    (void)state;
    td_train_opts o;
    td_arena arena = { 0 };
    td_train_defaults(&o);
    expect_error(td_train_check_training(&o), TD_EUSAGE, "DATA");
    o.input.data = "images";
    expect_ok(td_train_check_training(&o));
    PARSE("--data-backend=synthetic", "--resume=a", "--pretrained-weights=b");
    expect_error(td_train_check_training(&o), TD_EUSAGE, "--pretrained-weights");
    PARSE("--data-backend=synthetic", "--warmup=-1");
    expect_error(td_train_check_training(&o), TD_EUSAGE, "--warmup -1");
    PARSE("--data-backend=synthetic", "--warmup=3", "--epochs=2");
    expect_error(td_train_check_training(&o), TD_EUSAGE, "--epochs 2");
    o.given = (td_given){ 0 };
    snprintf(o.launch.name, sizeof o.launch.name, "resnet50/90"); /* its benchmarks are short */
    expect_ok(td_train_check_training(&o));
    PARSE("--data-backend=synthetic", "--lr-rule=ssd300", "--warmup=300", "--epochs=2");
    expect_ok(td_train_check_training(&o));
    o.validation.require = "map>=0.1";
    expect_ok(td_train_check_training(&o));
    o.validation.is_enabled = false;
    expect_error(td_train_check_training(&o), TD_EUSAGE, "--require");
    td_arena_release(&arena);
}

/* the 2019 spelling, and what goes with nothing else */
static void fp16_is_a_precision(void **state)
{
    (void)state;
    td_train_opts o;
    td_arena arena = { 0 };
    PARSE("--fp16");
    expect_ok(td_train_check(&o));
    assert_int_equal(td_train_amp(&o).precision, 3);
    assert_int_equal(td_amp_dtype(&(td_amp_opts){ .precision = td_train_amp(&o).precision }),
                     TD_DT_F16);
    PARSE("--fp16", "--precision", "fp16");
    expect_ok(td_train_check(&o));
    PARSE("--fp16", "--precision", "bf16");
    expect_error(td_train_check_line(&o), TD_EUSAGE, "--fp16 and another --precision");
    PARSE("--fp16", "--amp");
    expect_error(td_train_check_line(&o), TD_EUSAGE, "--fp16 and --amp exclude each other");
    PARSE("--precision", "bf16");
    assert_int_equal(td_train_amp(&o).precision, 2);
    td_arena_release(&arena);
}

static void a_fixed_loss_scale_is_at_least_one(void **state)
{
    (void)state;
    static const char *const good[] = { "--static-loss-scale=-1", "--static-loss-scale=1",
                                        "--static-loss-scale=1.5", "--static-loss-scale=65536" };
    static const char *const bad[] = { "--static-loss-scale=0", "--static-loss-scale=0.99",
                                       "--static-loss-scale=-0.5" };
    td_train_opts o;
    td_arena arena = { 0 };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        PARSE(good[i]);
        expect_ok(td_train_check(&o));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        PARSE(bad[i]);
        expect_error(td_train_check(&o), TD_EUSAGE, "--static-loss-scale: ");
    }
    td_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_reference_s),
        cmocka_unit_test(every_table_s_defaults_are_in_range),
        cmocka_unit_test(spellings_of_both_editions_are_read),
        cmocka_unit_test(a_configuration_reads_back),
        cmocka_unit_test(sections_of_earlier_versions_are_read),
        cmocka_unit_test(what_is_not_there_yet_is_refused),
        cmocka_unit_test(what_contradicts_is_refused),
        cmocka_unit_test(an_option_without_its_other_is_refused),
        cmocka_unit_test(training_needs_data_and_a_validation),
        cmocka_unit_test(fp16_is_a_precision),
        cmocka_unit_test(a_fixed_loss_scale_is_at_least_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
