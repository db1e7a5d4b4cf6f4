/*
 * test_variant.c -- the TensorFlow variant: padding SAME at every size, 1001 outputs, how
 * parameters begin, which weights fit; and the cut normal distribution
 */
#include "support/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/graph.h"
#include "model/arch.h"
#include "ops/ops.h"
#include "tandem/model.h"
#include "tandem/program.h"

static td_model_opts tensorflow(const char *arch)
{
    td_model_opts o;
    td_model_defaults(&o);
    o.arch = arch;
    o.variant = TD_VARIANT_TENSORFLOW;
    return o;
}

static td_graph *graph_of(const td_model_opts *o)
{
    td_graph *g;
    expect_ok(td_model_graph(o, 1, false, &g));
    return g;
}

/* --- sizes ------------------------------------------------------------------------------------ */

static void check_parameters(const char *arch, int64_t wanted)
{
    const td_model_opts o = tensorflow(arch);
    td_graph *g = graph_of(&o);
    int64_t n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *p = g->nodes[i];
        if (p->op == &td_op_param && ((const td_param_attr *)p->attr)->role == TD_ROLE_WEIGHT)
            n += td_type_count(&p->out[0]->type);
    }
    assert_int_equal(n, wanted);
    assert_int_equal(td_graph_output_value(g, "logits")->type.dim[1], 1001);
    td_graph_free(g);
}

/* the PyTorch form's with C / 16 units, and C + 1 for one more output */
static void networks_have_1001_outputs(void **state)
{
    (void)state;
    check_parameters("resnet50", 25559081);
    check_parameters("resnext101-32x4d", 44177704 + 2049);
    check_parameters("se-resnext101-32x4d", 48955416 + 2049);
    td_model_opts o = tensorflow("resnet18");
    o.num_classes = 10;
    td_graph *g = graph_of(&o);
    assert_int_equal(td_graph_output_value(g, "logits")->type.dim[1], 10);
    td_graph_free(g);
    assert_int_equal(td_model_default_classes(&o, 7), 1001);
    o.variant = TD_VARIANT_AUTO;
    assert_int_equal(td_model_default_classes(&o, 7), 7);
}

/* --- padding ---------------------------------------------------------------------------------- */

/* what TensorFlow documents of SAME, for one side */
static void check_same(int64_t in, int64_t out, int kernel, int stride, int pad, int extra)
{
    const int64_t windows = (in + stride - 1) / stride;
    int64_t all = (windows - 1) * stride + kernel - in;
    all = all < 0 ? 0 : all;
    assert_int_equal(out, windows);
    assert_int_equal(pad, all / 2);
    assert_int_equal(pad + extra, all - all / 2);
}

static void every_window_is_padded_as_same_says(void **state)
{
    (void)state;
    static const int sizes[] = { 224, 97, 64, 33, 9, 8 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        td_model_opts o = tensorflow(k % 2 ? "resnet18" : "resnext50-32x4d");
        o.image_size = sizes[k];
        td_graph *g = graph_of(&o);
        for (int i = 0; i < g->n_nodes; i++) {
            const td_node *n = g->nodes[i];
            const td_conv_attr *c = n->attr;
            const td_pool_attr *p = n->attr;
            const int64_t in = n->n_in ? td_in_type(n, 0)->dim[2] : 0;
            if (n->op == &td_op_conv2d)
                check_same(in, n->out[0]->type.dim[2], (int)td_in_type(n, 1)->dim[2], c->stride,
                           c->pad, c->pad_extra);
            else if (n->op == &td_op_max_pool2d)
                check_same(in, n->out[0]->type.dim[2], p->kernel, p->stride, p->pad, p->pad_extra);
        }
        td_graph_free(g);
    }
}

static void only_this_variant_prints_uneven_padding(void **state)
{
    (void)state;
    td_model_opts o = tensorflow("resnet18");
    for (int tf = 0; tf < 2; tf++) {
        o.variant = tf ? TD_VARIANT_TENSORFLOW : TD_VARIANT_PYTORCH;
        td_graph *g = graph_of(&o), *back;
        char *text, *again;
        expect_ok(td_graph_print(g, &text));
        assert_int_equal(strstr(text, "pad_extra=1") != NULL, tf);
        assert_int_equal(strstr(text, "pad=2") != NULL, tf);
        expect_ok(td_graph_parse(text, "printed", &back));
        expect_ok(td_graph_print(back, &again));
        assert_string_equal(text, again);
        td_text_free(text);
        td_text_free(again);
        td_graph_free(g);
        td_graph_free(back);
    }
}

static void images_that_need_two_paddings_are_refused(void **state)
{
    (void)state;
    const td_model_opts o = tensorflow("resnet18");
    td_graph *g;
    td_builder *b = td_build_begin();
    assert_non_null(b);
    td_value *images = td_input(b, "images", td_type_4d(TD_DT_F32, 1, 3, 64, 65));
    td_output(b, "logits", td_model_forward(b, &o, images, false));
    expect_error(td_build_end(b, &g), TD_EUNSUPPORTED, "a 64x65 image");
}

static void windows_of_padding_alone_are_refused(void **state)
{
    (void)state;
    td_graph *g;
    expect_error(td_graph_parse("%x:f32[1,1,8,8] = input\n"
                                "%y, %where = max_pool2d %x {kernel=3, pad=1, pad_extra=2}\n"
                                "output y = %y\n",
                                "text", &g),
                 TD_ESHAPE, "pad 1 and pad_extra 2 are not less than kernel 3");
}

/* --- initial values --------------------------------------------------------------------------- */

static void check_init(const td_graph *g, const char *name, td_init init, double scale)
{
    const td_value *v = td_graph_find(g, name);
    if (!v)
        fail_msg("no parameter '%s'", name);
    const td_param_attr *a = v->producer->attr;
    assert_int_equal(a->init, init);
    assert_true(init == TD_INIT_ZEROS || fabs(a->scale / scale - 1) < 1e-14);
}

static void parameters_begin_as_tensorflow_s(void **state)
{
    (void)state;
    static const td_init cut = TD_INIT_TRUNCATED_NORMAL;
    for (int fan_in = 0; fan_in < 2; fan_in++) {
        td_model_opts o = tensorflow("se-resnext101-32x4d");
        o.conv_init = fan_in ? TD_CONV_INIT_FAN_IN : TD_CONV_INIT_AUTO;
        td_graph *g = graph_of(&o);
        check_init(g, "conv1.weight", cut, sqrt(2.0 / (49 * (fan_in ? 3 : 64))));
        check_init(g, "layer1.0.conv1.weight", cut, sqrt(2.0 / (fan_in ? 64 : 128)));
        check_init(g, "layer1.0.conv2.weight", TD_INIT_UNIFORM, sqrt(6.0 / (9 * 4 + 9 * 128)));
        check_init(g, "layer4.2.conv2.weight", TD_INIT_UNIFORM, sqrt(6.0 / (9 * 32 + 9 * 1024)));
        check_init(g, "layer2.0.downsample.0.weight", cut, sqrt(2.0 / (fan_in ? 256 : 512)));
        check_init(g, "fc.weight", cut, sqrt(2.0 / (fan_in ? 2048 : 1001)));
        check_init(g, "fc.bias", TD_INIT_ZEROS, 0);
        check_init(g, "layer1.0.se.fc1.weight", cut, sqrt(1.0 / 256));
        check_init(g, "layer1.0.se.fc2.weight", cut, sqrt(1.0 / 16));
        check_init(g, "layer1.0.se.fc1.bias", TD_INIT_ZEROS, 0);
        check_init(g, "bn1.weight", TD_INIT_ONES, 1);
        td_graph_free(g);
    }
}

enum { DRAWS = 200000 };

static const float *draws_of(td_device *dev, uint64_t seed, float *to)
{
    td_graph *g;
    td_program *p;
    expect_ok(td_graph_parse("%x:f32[200000] = input\n"
                             "%w:f32[200000] = param {init=truncated_normal, scale=0.5}\n"
                             "%y = add %x, %w\noutput y = %y\n",
                             "draws", &g));
    expect_ok(td_compile(g, dev, NULL, &p));
    expect_ok(td_program_init(p, seed));
    expect_ok(td_program_get(p, "w", to));
    td_program_free(p);
    td_graph_free(g);
    return to;
}

/* moments of a normal cut at two deviations: variance 1 - 2 * 2 phi(2) / (2 Phi(2) - 1) */
static void the_cut_normal_has_its_moments(void **state)
{
    (void)state;
    float *x = malloc(DRAWS * sizeof *x), *again = malloc(DRAWS * sizeof *again);
    double sum = 0, squares = 0, largest = 0;
    int within = 0;
    td_device *dev;
    assert_true(x && again);
    expect_ok(td_device_open("ref", &dev));
    draws_of(dev, 1, x);
    const double mass = erf(sqrt(2)), density = exp(-2) / sqrt(2 * acos(-1));
    const double parent = 0.5 / sqrt(1 - 4 * density / mass);
    for (int i = 0; i < DRAWS; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
        largest = fmax(largest, fabs(x[i]));
        within += fabs(x[i]) < parent;
    }
    assert_true(fabs(sum / DRAWS) < 5 * 0.5 / sqrt(DRAWS));
    assert_true(fabs(sqrt(squares / DRAWS) / 0.5 - 1) < 0.005);
    assert_true(largest <= 2 * parent * (1 + 1e-6) && largest > 1.99 * parent);
    assert_true(fabs((double)within / DRAWS - erf(sqrt(0.5)) / mass) < 0.005);
    assert_memory_equal(draws_of(dev, 1, again), x, DRAWS * sizeof *x);
    assert_memory_not_equal(draws_of(dev, 2, again), x, DRAWS * sizeof *x);
    td_device_close(dev);
    free(x);
    free(again);
}

/* --- which weights, which graphs -------------------------------------------------------------- */

static void another_variant_than_the_weights_is_told(void **state)
{
    (void)state;
    td_model_opts o = tensorflow("resnet18");
    td_graph *g;
    o.weights_variant = TD_VARIANT_PYTORCH;
    expect_error(td_model_resolve(&o), TD_EUSAGE, "'pytorch', but --variant is 'tensorflow'");
    td_builder *b = td_build_begin();
    assert_non_null(b);
    td_value *images = td_input(b, "images", td_type_4d(TD_DT_F32, 1, 3, 64, 64));
    td_output(b, "logits", td_model_forward(b, &o, images, false));
    expect_error(td_build_end(b, &g), TD_EUSAGE, "'tensorflow'");
    o.weights_variant = TD_VARIANT_TENSORFLOW;
    expect_ok(td_model_resolve(&o));
    assert_int_equal(o.se_form, TD_SE_FORM_RATIO);

    o.weights_variant = TD_VARIANT_AUTO;
    o.model_text = "%images:f32[1,3,8,8] = input\noutput logits = %images\n";
    expect_error(td_model_resolve(&o), TD_EUSAGE, "has no variant 'tensorflow'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_have_1001_outputs),
        cmocka_unit_test(every_window_is_padded_as_same_says),
        cmocka_unit_test(only_this_variant_prints_uneven_padding),
        cmocka_unit_test(images_that_need_two_paddings_are_refused),
        cmocka_unit_test(windows_of_padding_alone_are_refused),
        cmocka_unit_test(parameters_begin_as_tensorflow_s),
        cmocka_unit_test(the_cut_normal_has_its_moments),
        cmocka_unit_test(another_variant_than_the_weights_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
