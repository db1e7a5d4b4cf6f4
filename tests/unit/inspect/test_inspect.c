/*
 * test_inspect.c -- every thing to inspect, as text and as JSON, and the wrong questions
 */
#include "support/expect.h"
#include "support/scratch.h"

#include "base/file_io.h"
#include "base/json.h"
#include "base/paths.h"
#include "io/safetensors.h"
#include "pass/amp.h"
#include "tandem/graph.h"
#include "tandem/inspect.h"

static td_inspect_opts opts(void)
{
    td_inspect_opts o;
    td_inspect_defaults(&o);
    o.model.arch = "resnet18";
    o.model.num_classes = 10;
    o.model.image_size = 64;
    return o;
}

static void expect_text(const char *thing, td_inspect_opts o, const char *path, const char *part)
{
    char *text;
    o.json = false;
    expect_ok(td_inspect(thing, &o, path, &text));
    if (!strstr(text, part))
        fail_msg("inspect %s has no '%s':\n%s", thing, part, text);
    td_text_free(text);
}

static td_json *json_of(const char *thing, td_inspect_opts o, const char *path)
{
    char *text;
    td_json *doc;
    o.json = true;
    expect_ok(td_inspect(thing, &o, path, &text));
    expect_ok(td_json_parse(text, strlen(text), thing, &doc));
    td_text_free(text);
    return doc;
}

static void a_model_is_counted(void **state)
{
    (void)state;
    int64_t parameters, macs, tensors;
    td_inspect_opts o = opts();
    o.model.num_classes = 1000;
    o.model.image_size = 224;
    expect_text("model", o, NULL, "11689512 parameters in 62 tensors, 1.814 GMAC for 1 image");
    expect_text("model", o, NULL, "layer4.0.downsample.0");
    td_json *doc = json_of("model", o, NULL);
    expect_ok(td_json_int(doc, "parameters", &parameters));
    expect_ok(td_json_int(doc, "macs", &macs));
    expect_ok(td_json_int(doc, "trainable_tensors", &tensors));
    assert_int_equal(parameters, 11689512);
    assert_int_equal(tensors, 62);
    assert_int_equal((macs + 500000) / 1000000, 1814);
    assert_true(td_json_count(td_json_get(doc, "layers")) > 60);
    td_json_free(doc);
}

/* what it prints can be given back as --model */
static void a_graph_can_be_used_again(void **state)
{
    (void)state;
    char *text, *again;
    td_inspect_opts o = opts();
    const char *path = td_scratch_path("net.td");
    expect_ok(td_inspect("graph", &o, NULL, &text));
    expect_ok(td_file_write(path, text, strlen(text)));
    o.model.model = path;
    expect_ok(td_inspect("graph", &o, NULL, &again));
    assert_string_equal(text, again);
    td_text_free(text);
    td_text_free(again);
    o.training = true;
    expect_text("graph", o, NULL, "sgd %conv1.weight");
}

static void kernels_and_memory_are_those_of_a_program(void **state)
{
    (void)state;
    int64_t live, planned, unplanned;
    td_inspect_opts o = opts();
    o.device.name = "ref";
    expect_text("kernels", o, NULL, "ref_conv");
    td_json *doc = json_of("kernels", o, NULL);
    assert_true(td_json_count(td_json_get(doc, "nodes")) > 20);
    td_json_free(doc);

    o.training = true;
    expect_text("memory", o, NULL, "activation_bytes");
    doc = json_of("memory", o, NULL);
    expect_ok(td_json_int(doc, "peak_live_bytes", &live));
    expect_ok(td_json_int(doc, "activation_bytes", &planned));
    expect_ok(td_json_int(doc, "unplanned_bytes", &unplanned));
    assert_true(live > 0 && live <= planned && unplanned > 0);
    td_json_free(doc);
}

/* the ops of SSD320's step, with what there is in half of them and the casts of their results */
static void a_detector_s_precision_is_listed_by_op(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "conv2d                     allow        110    110      0              0              0\n",
        "add                        infer         94     45     49              0              0\n",
        "sigmoid_focal_loss         deny           1      0      1              0              0\n",
        "conv2d_grad_w              allow        110    110      0              0            110\n",
        "sgd                        unlisted     269      0    269              0              0\n",
        "fp32  sum of a weight's gradients\n",
        ":heads.class_tower.0.bn3 ",
        "Converted 784/1943 nodes to bfloat16 precision using 3 cast(s) ",
        "784 of 1940 nodes in bf16 (of 1943 with the outputs of the graph",
        "112 to fp32; fusion leaves 71 of the 185\n",
    };
    td_inspect_opts o = opts();
    o.model.arch = "ssd320";
    o.model.image_size = 0;
    o.training = true;
    o.amp.precision = TD_PRECISION_BF16;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        expect_text("amp", o, NULL, lines[i]);
    td_json *doc = json_of("amp", o, NULL);
    int64_t n_left, n_half;
    expect_ok(td_json_int(doc, "n_casts_left", &n_left));
    expect_ok(td_json_int(doc, "n_half", &n_half));
    assert_int_equal(n_left, 71);
    assert_int_equal(n_half, 784);
    td_json_free(doc);
}

static void a_checkpoint_is_listed(void **state)
{
    (void)state;
    td_tensors *t;
    const float w[6] = { 0 };
    const char *path = td_scratch_path("w.safetensors");
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "fc.weight", TD_DT_F32, 2, (int64_t[]){ 2, 3 }, w));
    expect_ok(td_tensors_set_meta(t, "arch", "res\"net"));
    expect_ok(td_tensors_write(t, path));
    td_tensors_free(t);
    expect_text("checkpoint", opts(), path, "f32[2,3]");
    expect_text("checkpoint", opts(), path, "arch: res\"net");
    td_json *doc = json_of("checkpoint", opts(), path);
    const char *arch;
    expect_ok(td_json_text(td_json_get(doc, "metadata"), "arch", &arch));
    assert_string_equal(arch, "res\"net");
    assert_int_equal(td_json_count(td_json_get(doc, "tensors")), 1);
    td_json_free(doc);
}

static void put(const char *name)
{
    expect_ok(td_file_write(td_scratch_path(name), "x", 1));
}

static void a_data_set_is_counted(void **state)
{
    (void)state;
    const char *const folders[] = { "set/train/a", "set/train/b", "set/val/a", "set/val/b" };
    for (int i = 0; i < 4; i++)
        expect_ok(td_make_folder(td_scratch_path(folders[i])));
    put("set/train/a/1.jpg");
    put("set/train/a/2.png");
    put("set/train/b/1.jpg");
    put("set/val/a/1.jpg");
    put("set/val/b/1.jpg");
    expect_text("dataset", opts(), td_scratch_path("set"), "train: 3 images, 2 classes");
    expect_text("dataset", opts(), td_scratch_path("set"), "val: 2 images, 2 classes");
    expect_text("dataset", opts(), td_scratch_path("set/val"), "2 images, 2 classes");
    td_json *doc = json_of("dataset", opts(), td_scratch_path("set"));
    assert_int_equal(td_json_count(td_json_get(doc, "sets")), 2);
    td_json_free(doc);
}

static void ops_and_backends_are_listed(void **state)
{
    (void)state;
    expect_text("ops", opts(), NULL, "conv2d");
    expect_text("ops", opts(), NULL, "{stride, pad, dilation, groups, pad_extra, tf32}");
    expect_text("backends", opts(), NULL, "ref");
    expect_text("backends", opts(), NULL, "layout");
    td_json_free(json_of("ops", opts(), NULL));
    td_json_free(json_of("backends", opts(), NULL));
}

static void wrong_questions_are_refused(void **state)
{
    (void)state;
    char *text;
    td_inspect_opts o = opts();
    expect_error(td_inspect("nothing", &o, NULL, &text), TD_EUSAGE, "'nothing'");
    expect_error(td_inspect("checkpoint", &o, NULL, &text), TD_EUSAGE,
                 "checkpoint requires a PATH");
    expect_error(td_inspect("model", &o, "x", &text), TD_EUSAGE, "'x'");
    expect_error(td_inspect("checkpoint", &o, "absent", &text), TD_ENOTFOUND, "absent");
    expect_error(td_inspect("dataset", &o, "absent", &text), TD_ENOTFOUND, "absent");
    assert_null(text);
    o.model.arch = "resnet19";
    expect_error(td_inspect("memory", &o, NULL, &text), TD_EUSAGE, "resnet18");
    o = opts();
    o.device.name = "abacus";
    expect_error(td_inspect("kernels", &o, NULL, &text), TD_EUSAGE, "abacus");
    o = opts();
    o.device.skip_passes = "fues";
    expect_error(td_inspect("kernels", &o, NULL, &text), TD_EUSAGE, "fues");
    assert_null(text);
}

static void check_memory(const char *thing, td_inspect_opts o)
{
    td_status st = TD_ENOMEM;
    for (int64_t n = 1; st != TD_OK; n++) {
        char *text;
        int64_t live = td_alloc_live();
        td_alloc_fail_at(n);
        st = td_inspect(thing, &o, NULL, &text);
        td_alloc_fail_at(0);
        if (st == TD_OK)
            td_text_free(text);
        else
            assert_null(text);
        assert_int_equal(td_alloc_live(), live);
    }
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    check_memory("model", opts());
    check_memory("ops", opts());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_counted),
        cmocka_unit_test(a_graph_can_be_used_again),
        cmocka_unit_test(kernels_and_memory_are_those_of_a_program),
        cmocka_unit_test(a_detector_s_precision_is_listed_by_op),
        cmocka_unit_test(a_checkpoint_is_listed),
        cmocka_unit_test(a_data_set_is_counted),
        cmocka_unit_test(ops_and_backends_are_listed),
        cmocka_unit_test(wrong_questions_are_refused),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
