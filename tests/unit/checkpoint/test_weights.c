/*
 * test_weights.c -- names of weights in files, and files that a program does not take
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "tandem/graph.h"

static void names_lose_what_wrappers_put_before_them(void **state)
{
    static const char *const rows[][2] = {
        { "conv1.weight", "conv1.weight" },
        { "module.conv1.weight", "conv1.weight" },
        { "module.1.conv1.weight", "conv1.weight" },
        { "1.weight", "1.weight" }, /* of a network of one's own */
        { "module.11.weight", "11.weight" },
        { "ema.module.1.fc.bias", "ema.fc.bias" },
        { "ema.1.fc.bias", "ema.1.fc.bias" },
        { "layers.0.0.conv1.weight", "layer1.0.conv1.weight" },
        /* RetinaNet's towers before torchvision 0.13, and now */
        { "head.classification_head.conv.0.weight", "head.classification_head.conv.0.0.weight" },
        { "module.head.regression_head.conv.6.bias", "head.regression_head.conv.3.0.bias" },
        { "head.regression_head.conv.2.0.bias", "head.regression_head.conv.2.0.bias" },
        { "head.regression_head.conv.3.weight", "head.regression_head.conv.3.weight" },
        { "my_head.conv.2.weight", "my_head.conv.2.weight" },
        { "module.layers.3.1.squeeze.expand.weight", "layer4.1.se.fc2.weight" },
        { "layers.0.block0.se.squeeze.weight", "layers.0.block0.se.squeeze.weight" },
        { "module.layer7.block1.proj.bn.weight", "layers.6.block1.proj.bn.weight" },
        { "ema.layer1.block0.depsep.conv.weight", "ema.layers.0.block0.depsep.conv.weight" },
        { "layer8.block0.proj.bn.weight", "layer8.block0.proj.bn.weight" },
        { "layer1.0.conv1.weight", "layer1.0.conv1.weight" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[256];
        td_weight_name(rows[i][0], name);
        assert_string_equal(name, rows[i][1]);
    }
}

enum { CLASSES = 3, FEATURES = 2 };

/* y = w x + b */
static td_program *linear_program(td_device *dev)
{
    td_program *p;
    td_graph *g;
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", td_type_of(TD_DT_F32, 2, (int64_t[]){ 1, FEATURES }));
    td_value *w = td_param(b, "fc.weight", TD_DT_F32, 2, (int64_t[]){ CLASSES, FEATURES }, "");
    td_value *bias = td_param(b, "fc.bias", TD_DT_F32, 1, (int64_t[]){ CLASSES }, "");
    td_output(b, "y", td_linear(b, x, w, bias));
    expect_ok(td_build_end(b, &g));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    return p;
}

static td_tensors *file_of(const float w[CLASSES * FEATURES], const float bias[CLASSES],
                           const char *prefix)
{
    td_tensors *t;
    char name[64];
    expect_ok(td_tensors_new(&t));
    snprintf(name, sizeof name, "%sfc.weight", prefix);
    expect_ok(td_tensors_add(t, name, TD_DT_F32, 2, (int64_t[]){ CLASSES, FEATURES }, w));
    snprintf(name, sizeof name, "%sfc.bias", prefix);
    expect_ok(td_tensors_add(t, name, TD_DT_F32, 1, (int64_t[]){ CLASSES }, bias));
    return t;
}

static void what_is_no_number_is_refused(void **state)
{
    static const float none[CLASSES * FEATURES] = { 0 };
    const float wild[] = { NAN, INFINITY, -INFINITY, 3.4e38f, -1e-45f, 0 };
    td_device *dev;
    (void)state;
    expect_ok(td_device_open("cpu", &dev));
    for (int i = 0; i < 6; i++) {
        float w[] = { 1, 2, 3, 4, 5, 6 }, bias[] = { 7, 8, 9 }, found[CLASSES * FEATURES];
        td_program *p = linear_program(dev);
        const td_load_opts o = { 0 };
        bias[2] = wild[i];
        td_tensors *t = file_of(w, bias, "");
        expect_ok(td_program_set(p, "fc.weight", none));
        if (i < 3) {
            expect_error(td_weights_check(t, "a.file", &o, p), TD_EARG,
                         "'a.file': 1 of the 3 values of tensor 'fc.bias'");
            expect_error(td_weights_load(t, "a.file", &o, p), TD_EARG,
                         "1 of the 3 values of tensor 'fc.bias'");
        } else {
            expect_ok(td_weights_check(t, "a.file", &o, p));
        }
        expect_ok(td_program_get(p, "fc.weight", found));
        assert_memory_equal(found, none, sizeof none); /* nothing was set */
        if (i >= 3) {
            expect_ok(td_weights_load(t, "a.file", &o, p));
            expect_ok(td_program_get(p, "fc.weight", found));
            assert_memory_equal(found, w, sizeof w);
        }
        td_tensors_free(t);
        td_program_free(p);
    }
    td_device_close(dev);
}

/* y = batch_norm_infer(x), with that running variance and its average in the file */
static void expect_variance(float variance, float average, td_status st, const char *part)
{
    static const char *const names[] = { "bn1.weight", "bn1.bias", "bn1.running_mean",
                                         "bn1.running_var" };
    const float one[] = { 1, 1 }, var[] = { 1, variance }, ema[] = { 1, average };
    const int64_t two = 2;
    td_device *dev;
    td_graph *g;
    td_program *p;
    td_tensors *t;
    td_value *v[4];
    const td_load_opts o = { .use_ema = part && strstr(part, "ema") };
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", td_type_of(TD_DT_F32, 4, (int64_t[]){ 1, 2, 1, 1 }));
    expect_ok(td_tensors_new(&t));
    for (int i = 0; i < 4; i++) {
        v[i] = td_param(b, names[i], TD_DT_F32, 1, &two, i < 2 ? "" : "role=stat");
        expect_ok(td_tensors_add(t, names[i], TD_DT_F32, 1, &two, i < 3 ? one : var));
    }
    for (int i = 0; i < 4 && o.use_ema; i++) {
        char name[40];
        snprintf(name, sizeof name, "ema.%s", names[i]);
        expect_ok(td_tensors_add(t, name, TD_DT_F32, 1, &two, i < 3 ? one : ema));
    }
    td_output(b, "y", td_batch_norm_infer(b, x, v[0], v[1], v[2], v[3], ""));
    expect_ok(td_build_end(b, &g));
    expect_ok(td_device_open("cpu", &dev));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    if (st == TD_OK)
        expect_ok(td_weights_load(t, "a.file", &o, p));
    else
        expect_error(td_weights_load(t, "a.file", &o, p), st, "bn1.running_var' has the value -");
    td_program_free(p);
    td_graph_free(g);
    td_device_close(dev);
    td_tensors_free(t);
}

static void negative_variances_are_refused(void **state)
{
    (void)state;
    expect_variance(0, 1, TD_OK, NULL);
    expect_variance(-0.0F, 1, TD_OK, NULL);
    expect_variance(-1, 1, TD_EARG, NULL);
    expect_variance(-1e-45F, 1, TD_EARG, NULL);
    expect_variance(1, -2, TD_EARG, "ema");
    expect_variance(-1, 2, TD_OK, "ema"); /* not the one that is read */
}

static void averages_are_checked_without_being_set(void **state)
{
    const float w[] = { 1, 2, 3, 4, 5, 6 }, bias[] = { 7, 8, 9 };
    const float none[CLASSES * FEATURES] = { 0 };
    float found[CLASSES * FEATURES];
    const td_load_opts ema = { .use_ema = true };
    td_device *dev;
    (void)state;
    expect_ok(td_device_open("cpu", &dev));
    td_program *p = linear_program(dev);
    expect_ok(td_program_set(p, "fc.weight", none));
    td_tensors *t = file_of(w, bias, "");
    expect_error(td_weights_check(t, "a.file", &ema, p), TD_EFORMAT, "has no averaged weights");
    td_tensors_free(t);
    t = file_of(w, bias, "ema.");
    expect_ok(td_weights_check(t, "a.file", &ema, p));
    expect_ok(td_program_get(p, "fc.weight", found));
    assert_memory_equal(found, none, sizeof none);
    td_tensors_free(t);
    td_program_free(p);
    td_device_close(dev);
}

/* --- how many batches norms have seen --------------------------------------------------------- */

static const char *const norms[] = { "bn1", "layer1.0.bn1", "layer1.0.bn2", "neck.bn",
                                     "backbone.bn1" };
enum { NORMS = sizeof norms / sizeof *norms };

/* the norms one behind the other */
static td_program *norms_program(td_device *dev)
{
    td_text text = { 0 };
    td_program *p;
    td_graph *g;
    td_text_add(&text, "%%y0:f32[1,2,2,2] = input\n");
    for (int i = 0; i < NORMS; i++) {
        const char *n = norms[i];
        td_text_add(&text,
                    "%%%s.weight:f32[2] = param\n%%%s.bias:f32[2] = param\n"
                    "%%%s.running_mean:f32[2] = param {role=stat}\n"
                    "%%%s.running_var:f32[2] = param {role=stat, init=ones}\n"
                    "%%y%d = batch_norm_infer %%y%d, %%%s.weight, %%%s.bias, %%%s.running_mean, "
                    "%%%s.running_var\n",
                    n, n, n, n, i + 1, i, n, n, n, n);
    }
    td_text_add(&text, "output y = %%y%d\n", NORMS);
    expect_ok(td_text_status(&text));
    expect_ok(td_graph_parse(td_text_get(&text), "norms", &g));
    expect_ok(td_compile(g, dev, &(td_compile_opts){ 0 }, &p));
    td_graph_free(g);
    td_text_release(&text);
    return p;
}

static int64_t counted(const td_tensors *t, const char *norm)
{
    char name[80];
    int64_t n;
    snprintf(name, sizeof name, "%s.num_batches_tracked", norm);
    const td_tensor *x = td_tensors_get(t, name);
    assert_non_null(x);
    assert_int_equal(x->n_bytes, sizeof n);
    memcpy(&n, x->data, sizeof n);
    return n;
}

/*
 * As PyTorch's: a norm in eval mode, which --freeze-bn makes of one whose scale and shift are
 * frozen, counts no batch; one in training mode does, frozen or not; each from where its file was.
 */
static void norms_count_the_batches_that_they_learn_from(void **state)
{
    (void)state;
    static const int64_t begin[] = { 100, 100, 7 };                      /* none of the others */
    static const int64_t wanted[][NORMS] = { { 105, 105, 12, 5, 105 },   /* no norm is kept still */
                                             { 100, 100, 12, 5, 105 } }; /* "bn1*,layer1.0.*..." */
    static const char *const still[] = { NULL, "bn1*,layer1.0.bn1.*,layer1.0.bn2.weight" };
    td_device *dev;
    td_tensors *file, *saved;
    expect_ok(td_device_open("ref", &dev));
    td_program *p = norms_program(dev);
    expect_ok(td_tensors_new(&file));
    for (int i = 0; i < 3; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s%s.num_batches_tracked", i ? "module." : "", norms[i]);
        expect_ok(td_tensors_add(file, name, TD_DT_I64, 0, NULL, &begin[i]));
    }
    for (int k = 0; k < 2; k++) {
        td_tracked tracked = { .frozen_norms = still[k] };
        expect_ok(td_tracked_read(file, 100, &tracked));
        expect_ok(td_tensors_new(&saved));
        expect_ok(td_weights_save(p, 0, 105, &tracked, saved)); /* five batches later */
        for (int i = 0; i < NORMS; i++)
            assert_int_equal(counted(saved, norms[i]), wanted[k][i]);
        td_tracked_release(&tracked);
        td_tensors_free(saved);
    }
    expect_ok(td_tensors_new(&saved));
    expect_ok(td_weights_save(p, 0, 105, NULL, saved));
    for (int i = 0; i < NORMS; i++)
        assert_int_equal(counted(saved, norms[i]), 105);
    td_tensors_free(saved);
    td_tensors_free(file);
    td_program_free(p);
    td_device_close(dev);
}

static int side_of(const char *arch, int rank, const int64_t *dim)
{
    static const float room[257 * 2];
    td_tensors *t;
    td_model_opts o;
    td_model_defaults(&o);
    o.arch = arch;
    expect_ok(td_tensors_new(&t));
    expect_ok(td_tensors_add(t, "module.encoder.pos_embedding", TD_DT_F32, rank, dim, room));
    const int side = td_weights_side(t, &o);
    td_weight_metadata_apply(t, false, &o);
    assert_int_equal(o.image_size, side);
    td_tensors_free(t);
    return side;
}

/* a square of patches and the class token */
static void position_embeddings_tell_the_image_size(void **state)
{
    (void)state;
    assert_int_equal(side_of("vit_b_16", 3, (int64_t[]){ 1, 17, 2 }), 64);
    assert_int_equal(side_of("vit_l_32", 3, (int64_t[]){ 1, 17, 2 }), 128);
    assert_int_equal(side_of("vit_b_16", 3, (int64_t[]){ 1, 257, 1 }), 256);
    assert_int_equal(side_of("vit_b_16", 3, (int64_t[]){ 1, 16, 2 }), 0);
    assert_int_equal(side_of("vit_b_16", 3, (int64_t[]){ 1, 1, 2 }), 0);
    assert_int_equal(side_of("vit_b_16", 2, (int64_t[]){ 17, 2 }), 0);
    assert_int_equal(side_of("convnext_tiny", 3, (int64_t[]){ 1, 17, 2 }), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_lose_what_wrappers_put_before_them),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(negative_variances_are_refused),
        cmocka_unit_test(averages_are_checked_without_being_set),
        cmocka_unit_test(norms_count_the_batches_that_they_learn_from),
        cmocka_unit_test(position_embeddings_tell_the_image_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
