/*
 * test_model.c -- architectures: the reference's table of sizes, names, shapes, heads, both forms
 * of squeeze-and-excitation, graph files, and out of memory at every call
 */
#include "support/expect.h"
#include "support/scratch.h"

#include <math.h>
#include <stdlib.h>

#include "base/file_io.h"
#include "ir/graph.h"
#include "model/arch.h"
#include "ops/ops.h"
#include "tandem/model.h"

typedef struct {
    const char *name;
    int se_form;
    int64_t parameters; /* trainable elements */
    double gmac;        /* forward, three decimals */
    int convs, norms, trainable, entries;
} row;

/* 1000 classes, the network's own image size; `entries` of a PyTorch state_dict counts BN's batch
   counters too */
static const row sizes[] = {
    { "resnet18", 0, 11689512, 1.814, 20, 20, 62, 122 },
    { "resnet34", 0, 21797672, 3.664, 36, 36, 110, 218 },
    { "resnet50", 0, 25557032, 4.089, 53, 53, 161, 320 },
    { "resnet101", 0, 44549160, 7.801, 104, 104, 314, 626 },
    { "resnet152", 0, 60192808, 11.514, 155, 155, 467, 932 },
    { "resnext50-32x4d", 0, 25028904, 4.230, 53, 53, 161, 320 },
    { "resnext101-32x4d", 0, 44177704, 7.970, 104, 104, 314, 626 },
    { "wide_resnet50_2", 0, 68883240, 11.398, 53, 53, 161, 320 },
    { "se-resnet50", 0, 26055720, 4.090, 53, 53, 225, 384 },
    { "se-resnet50", 1, 28088024, 4.092, 53, 53, 225, 384 },
    { "seresnet50", 0, 28088024, 4.092, 53, 53, 225, 384 },
    { "se-resnext101-32x4d", 0, 45251128, 7.971, 104, 104, 446, 758 },
    { "se-resnext101-32x4d", 1, 48955416, 7.975, 104, 104, 446, 758 },
    { "seresnext101_32x4d", 0, 48955416, 7.975, 104, 104, 446, 758 },
    { "resnet50d", 0, 25576264, 4.329, 55, 55, 167, 332 },
    { "vgg11", 0, 132863336, 7.609, 8, 0, 22, 22 },
    { "vgg13", 0, 133047848, 11.308, 10, 0, 26, 26 },
    { "vgg16", 0, 138357544, 15.470, 13, 0, 32, 32 },
    { "vgg19", 0, 143667240, 19.632, 16, 0, 38, 38 },
    { "vgg11_bn", 0, 132868840, 7.609, 8, 8, 38, 62 },
    { "vgg13_bn", 0, 133053736, 11.308, 10, 10, 46, 76 },
    { "vgg16_bn", 0, 138365992, 15.470, 13, 13, 58, 97 },
    { "vgg19_bn", 0, 143678248, 19.632, 16, 16, 70, 118 },
    { "densenet121", 0, 7978856, 2.834, 120, 121, 364, 727 },
    { "densenet169", 0, 14149480, 3.360, 168, 169, 508, 1015 },
    { "densenet201", 0, 20013928, 4.291, 200, 201, 604, 1207 },
    { "squeezenet1_1", 0, 1235496, 0.349, 26, 0, 52, 52 },
    { "regnet_y_400mf", 0, 4344144, 0.402, 53, 53, 225, 384 },
    { "regnet_y_8gf", 0, 39381472, 8.473, 56, 56, 238, 406 },
    { "shufflenet_v2_x0_5", 0, 1366792, 0.040, 56, 56, 170, 338 },
    { "shufflenet_v2_x1_0", 0, 2278604, 0.145, 56, 56, 170, 338 },
    { "shufflenet_v2_x1_5", 0, 3503624, 0.296, 56, 56, 170, 338 },
    { "shufflenet_v2_x2_0", 0, 7393996, 0.583, 56, 56, 170, 338 },
    { "convnext_tiny", 0, 28589128, 4.456, 22, 0, 182, 182 },
    { "convnext_small", 0, 50223688, 8.684, 40, 0, 344, 344 },
    { "convnext_base", 0, 88591464, 15.355, 40, 0, 344, 344 },
    { "convnext_large", 0, 197767336, 34.361, 40, 0, 344, 344 },
    { "vit_b_16", 0, 86567656, 17.564, 1, 0, 152, 152 },
    { "vit_b_32", 0, 88224232, 4.409, 1, 0, 152, 152 },
    { "vit_l_16", 0, 304326632, 61.555, 1, 0, 296, 296 },
    { "vit_l_32", 0, 306535400, 15.378, 1, 0, 296, 296 },
    { "mobilenet_v2", 0, 3504872, 0.301, 52, 52, 158, 314 },
    { "mobilenet_v3_large", 0, 5483032, 0.217, 46, 46, 174, 312 },
    { "mobilenet_v3_small", 0, 2542856, 0.057, 34, 34, 142, 244 },
    { "efficientnet_b0", 0, 5288548, 0.386, 49, 49, 213, 360 },
    { "efficientnet_b1", 0, 7794184, 0.687, 69, 69, 301, 508 },
    { "efficientnet_b2", 0, 9109994, 0.994, 69, 69, 301, 508 },
    { "efficientnet_b3", 0, 12233232, 1.827, 78, 78, 340, 574 },
    { "efficientnet_b4", 0, 19341616, 4.394, 96, 96, 418, 706 },
    { "efficientnet-b0", 0, 5288548, 0.386, 49, 49, 213, 360 },
    { "efficientnet-b4", 0, 19341616, 4.394, 96, 96, 418, 706 },
    { "efficientnet-widese-b0", 0, 8423848, 0.389, 49, 49, 213, 360 },
    { "efficientnet-widese-b4", 0, 34927246, 4.409, 96, 96, 418, 706 },
};
#define N_SIZES ((int)(sizeof sizes / sizeof *sizes))

static td_model_opts opts_of(const char *arch, int num_classes)
{
    td_model_opts o;
    td_model_defaults(&o);
    o.arch = arch;
    o.num_classes = num_classes;
    return o;
}

/* detectors have rows of their own: golden.ssd320, golden.ssd300 */
static bool is_detector(const char *name)
{
    const td_model_opts o = opts_of(name, 10);
    return td_model_detector(&o) != 0;
}

static td_graph *graph_of(const td_model_opts *o, int batch, bool is_training)
{
    td_graph *g;
    expect_ok(td_model_graph(o, batch, is_training, &g));
    return g;
}

static const td_param_attr *attr_of(const td_graph *g, const char *name)
{
    const td_value *v = td_graph_find(g, name);
    if (!v)
        fail_msg("no parameter '%s'", name);
    return v->producer->attr;
}

/* an image of fewer than 8 pixels would be a single one after the stem */
static void images_have_a_smallest_size(void **state)
{
    (void)state;
    td_model_opts o = opts_of("resnet18", 2);
    o.image_size = 7;
    expect_error(td_model_resolve(&o), TD_EUNSUPPORTED, "at least 8, found 7");
    o.image_size = 8;
    expect_ok(td_model_resolve(&o));
    td_graph_free(graph_of(&o, 1, true));
}

/* options of other families change nothing, except the variant, which is refused */
static void families_have_their_own_rules(void **state)
{
    (void)state;
    td_graph *g;
    td_arch_info a;
    td_model_opts o = opts_of("vgg11", 2), other = o;
    expect_ok(td_arch_find("vgg11", &a));
    assert_string_equal(a.family, "vgg");
    assert_null(a.block);
    o.image_size = other.image_size = 31;
    expect_error(td_model_resolve(&o), TD_EUNSUPPORTED, "at least 32, found 31");
    o.image_size = other.image_size = 32;
    other.conv_init = TD_CONV_INIT_FAN_IN;
    other.last_bn_0_init = true;
    char *text, *same;
    td_graph *h;
    expect_ok(td_model_graph(&o, 1, true, &g));
    expect_ok(td_model_graph(&other, 1, true, &h));
    expect_ok(td_graph_print(g, &text));
    expect_ok(td_graph_print(h, &same));
    assert_string_equal(text, same);
    td_text_free(text);
    td_text_free(same);
    td_graph_free(g);
    td_graph_free(h);
    o.variant = TD_VARIANT_TENSORFLOW;
    expect_error(td_model_graph(&o, 1, true, &g), TD_EUSAGE, "'vgg11' has no variant 'tensorflow'");
    o = opts_of("vgg11", 2);
    td_builder *b = td_build_begin();
    int64_t dim[4] = { 1, 3, 32, 32 };
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, dim));
    td_model_forward_features(b, &o, x, false);
    expect_error(td_build_end(b, &g), TD_EUNSUPPORTED, "no stages");
}

static int count_ops(const td_graph *g, const char *op)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += strcmp(g->nodes[i]->op->name, op) == 0;
    return n;
}

static const td_dropout_attr *dropout_at(const td_graph *g, int i)
{
    for (int k = 0; k < g->n_nodes; k++)
        if (strcmp(g->nodes[k]->op->name, "dropout") == 0 && i-- == 0)
            return g->nodes[k]->attr;
    fail_msg("no dropout of that number");
    return NULL;
}

static td_graph *small_graph(const char *arch, double dropout, double stochastic_depth)
{
    td_model_opts o = opts_of(arch, 10);
    o.image_size = 32;
    o.dropout = dropout;
    o.stochastic_depth = stochastic_depth;
    return graph_of(&o, 2, true);
}

/* the network's own probabilities, those of the options, and none; blocks linear in their number */
static void probabilities_are_the_network_s_or_the_options(void **state)
{
    (void)state;
    td_graph *g = small_graph("efficientnet_b0", -1, -1);
    assert_int_equal(count_ops(g, "dropout"), 10); /* 9 blocks with residuals, the head */
    assert_int_equal(dropout_at(g, 0)->mode, TD_DROPOUT_ROW);
    assert_true(fabs(dropout_at(g, 0)->p - 0.2 * 2 / 16) < 1e-15);
    assert_true(fabs(dropout_at(g, 8)->p - 0.2 * 14 / 16) < 1e-15);
    assert_true(dropout_at(g, 9)->p == 0.2);
    assert_int_equal(dropout_at(g, 9)->mode, TD_DROPOUT_ELEMENT);
    td_graph_free(g);
    g = small_graph("efficientnet_b0", 0.75, 0.5);
    assert_true(fabs(dropout_at(g, 8)->p - 0.5 * 14 / 16) < 1e-15);
    assert_true(dropout_at(g, 9)->p == 0.75);
    td_graph_free(g);
    g = small_graph("efficientnet_b0", 0, 0);
    assert_int_equal(count_ops(g, "dropout"), 0);
    td_graph_free(g);
    g = small_graph("efficientnet-widese-b0", -1, -1); /* survival 1 */
    assert_int_equal(count_ops(g, "dropout"), 1);
    td_graph_free(g);
    g = small_graph("efficientnet-b0", -1, -1);
    assert_int_equal(count_ops(g, "dropout"), 1);
    td_graph_free(g);
    g = small_graph("efficientnet-widese-b4", -1, -1);
    assert_int_equal(count_ops(g, "dropout"), 26);
    assert_int_equal(dropout_at(g, 0)->mode, TD_DROPOUT_BATCH);
    assert_true(fabs(dropout_at(g, 24)->p - 0.2 * 31 / 32) < 1e-15);
    assert_true(dropout_at(g, 25)->p == 0.4);
    td_graph_free(g);
    g = small_graph("vgg11", 0.25, 0.5);
    assert_int_equal(count_ops(g, "dropout"), 2);
    assert_true(dropout_at(g, 1)->p == 0.25);
    td_graph_free(g);

    td_model_opts o = opts_of("vgg11", 10);
    o.dropout = 1;
    expect_error(td_model_resolve(&o), TD_EUSAGE, "--dropout is 1");
    o = opts_of("vgg11", 10);
    o.stochastic_depth = -0.5;
    expect_error(td_model_resolve(&o), TD_EUSAGE, "--stochastic-depth is -0.5");
    assert_true(td_model_lacks(&o, "stochastic_depth"));
    assert_false(td_model_lacks(&o, "dropout"));
    o.model = "net.td";
    assert_true(td_model_lacks(&o, "dropout"));
}

/* torchvision's two ways to write a block, and NVIDIA's */
static void check_part(const char *arch, const char *const *names, int n)
{
    td_model_opts o = opts_of(arch, 10);
    td_graph *g = graph_of(&o, 1, false);
    int i = 0;
    while (i < td_graph_param_count(g) && strcmp(td_graph_param_name(g, i), names[0]) != 0)
        i++;
    for (int k = 0; k < n && i + k < td_graph_param_count(g); k++)
        assert_string_equal(td_graph_param_name(g, i + k), names[k]);
    assert_true(i + n <= td_graph_param_count(g));
    td_graph_free(g);
}

#define NORM(name) name ".weight", name ".bias", name ".running_mean", name ".running_var"
#define GATE(a, b) a ".weight", a ".bias", b ".weight", b ".bias"
#define CHECK_PART(arch, ...)                                                                      \
    check_part(arch, (const char *const[]){ __VA_ARGS__ },                                         \
               (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

static void depthwise_blocks_have_pytorch_s_names(void **state)
{
    (void)state;
    CHECK_PART("mobilenet_v2", "features.1.conv.0.0.weight", NORM("features.1.conv.0.1"),
               "features.1.conv.1.weight", NORM("features.1.conv.2"), "features.2.conv.0.0.weight",
               NORM("features.2.conv.0.1"), "features.2.conv.1.0.weight",
               NORM("features.2.conv.1.1"), "features.2.conv.2.weight", NORM("features.2.conv.3"));
    CHECK_PART("mobilenet_v2", "features.18.0.weight", NORM("features.18.1"), "classifier.1.weight",
               "classifier.1.bias");
    CHECK_PART("mobilenet_v3_small", "features.4.block.0.0.weight", NORM("features.4.block.0.1"),
               "features.4.block.1.0.weight", NORM("features.4.block.1.1"),
               GATE("features.4.block.2.fc1", "features.4.block.2.fc2"),
               "features.4.block.3.0.weight", NORM("features.4.block.3.1"));
    CHECK_PART("mobilenet_v3_small", "features.12.0.weight", NORM("features.12.1"),
               GATE("classifier.0", "classifier.3"));
    CHECK_PART("efficientnet_b0", "features.1.0.block.0.0.weight", NORM("features.1.0.block.0.1"),
               GATE("features.1.0.block.1.fc1", "features.1.0.block.1.fc2"),
               "features.1.0.block.2.0.weight", NORM("features.1.0.block.2.1"),
               "features.2.0.block.0.0.weight");
    CHECK_PART("efficientnet-widese-b0", "stem.conv.weight", NORM("stem.bn"),
               "layers.0.block0.depsep.conv.weight", NORM("layers.0.block0.depsep.bn"),
               GATE("layers.0.block0.se.squeeze", "layers.0.block0.se.expand"),
               "layers.0.block0.proj.conv.weight", NORM("layers.0.block0.proj.bn"),
               "layers.1.block0.expand.conv.weight");
    CHECK_PART("efficientnet-b0", "stem.conv.weight", NORM("stem.bn"),
               "layers.0.block0.depsep.conv.weight", NORM("layers.0.block0.depsep.bn"),
               GATE("layers.0.block0.se.squeeze", "layers.0.block0.se.expand"));
    CHECK_PART("efficientnet-widese-b0", "features.conv.weight", NORM("features.bn"),
               "classifier.fc.weight", "classifier.fc.bias");
}

static void check_sizes(const row *r)
{
    td_model_opts o = opts_of(r->name, 0);
    o.se_form = (td_se_form)r->se_form;
    td_graph *g = graph_of(&o, 1, false);
    int64_t elements = 0;
    int trainable = 0;
    for (int i = 0; i < td_graph_param_count(g); i++) {
        if (attr_of(g, td_graph_param_name(g, i))->role == TD_ROLE_STAT)
            continue;
        td_type t = td_graph_param_type(g, i);
        elements += td_type_count(&t);
        trainable++;
    }
    assert_int_equal(elements, r->parameters);
    assert_int_equal(trainable, r->trainable);
    assert_int_equal(td_graph_param_count(g) + r->norms, r->entries);
    assert_int_equal(count_ops(g, "conv2d"), r->convs);
    assert_int_equal(count_ops(g, "batch_norm_infer"), r->norms);
    assert_int_equal((int64_t)round((double)td_graph_macs(g) / 1e6), (int64_t)round(r->gmac * 1e3));
    td_graph_free(g);
}

static void sizes_are_the_reference_s(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIZES; i++)
        check_sizes(&sizes[i]);
}

static void every_row_is_in_the_table_above(void **state)
{
    (void)state;
    for (int i = 0; td_arch_name_at(i); i++) {
        bool found = is_detector(td_arch_name_at(i));
        for (int k = 0; k < N_SIZES; k++)
            found = found || strcmp(sizes[k].name, td_arch_name_at(i)) == 0;
        if (!found)
            fail_msg("'%s' has no row of sizes", td_arch_name_at(i));
    }
    assert_null(td_arch_name_at(-1));
}

/* printing and parsing back gives the same text: training, the text of every network */
static void the_text_form_goes_round(void **state)
{
    (void)state;
    for (int i = 0; td_arch_name_at(i); i++) {
        td_model_opts o = opts_of(td_arch_name_at(i), 10);
        o.image_size = is_detector(o.arch) ? 0 : 64; /* theirs */
        td_graph *g = graph_of(&o, 2, i % 2), *back;
        char *text, *again;
        expect_ok(td_graph_print(g, &text));
        expect_ok(td_graph_parse(text, "printed", &back));
        expect_ok(td_graph_print(back, &again));
        assert_string_equal(text, again);
        td_text_free(text);
        td_text_free(again);
        td_graph_free(g);
        td_graph_free(back);
    }
}

static void resnet18_reads_as_written_down(void **state)
{
    (void)state;
    const char *path = "tests/golden/graphs/resnet18.txt";
    td_model_opts o = opts_of("resnet18", 1000);
    td_graph *g = graph_of(&o, 1, false);
    char *text, *wanted = NULL;
    size_t n;
    expect_ok(td_graph_print(g, &text));
    if (getenv("TANDEM_GOLDEN_WRITE"))
        expect_ok(td_file_write(path, text, strlen(text)));
    expect_ok(td_file_read(path, 1 << 20, &wanted, &n));
    assert_string_equal(text, wanted);
    td_free(wanted);
    td_text_free(text);
    td_graph_free(g);
}

static void heads_have_any_number_of_classes(void **state)
{
    (void)state;
    const int classes[] = { 1, 2, 10, 1001 };
    for (int i = 0; i < 4; i++) {
        td_model_opts o = opts_of("resnet50", classes[i]);
        td_graph *g = graph_of(&o, 4, false);
        td_type y = td_graph_output_value(g, "logits")->type;
        assert_int_equal(y.rank, 2);
        assert_int_equal(y.dim[0], 4);
        assert_int_equal(y.dim[1], classes[i]);
        assert_int_equal(td_graph_find(g, "fc.weight")->type.dim[0], classes[i]);
        assert_int_equal(td_graph_find(g, "fc.bias")->type.dim[0], classes[i]);
        td_graph_free(g);
    }
}

static void check_stages(const char *arch, int size, const int64_t *channels, const int64_t *sides)
{
    td_model_opts o = opts_of(arch, 10);
    td_graph *g;
    td_builder *b = td_build_begin();
    int64_t dim[4] = { 2, 3, size, size };
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, dim));
    td_output(b, "logits", td_model_forward_features(b, &o, x, true));
    expect_ok(td_build_end(b, &g));
    static const char *const names[] = { "layer1", "layer2", "layer3", "layer4" };
    for (int i = 0; i < 4; i++) {
        const td_value *v = td_graph_output_value(g, names[i]);
        assert_non_null(v);
        assert_int_equal(v->type.dim[1], channels[i]);
        assert_int_equal(v->type.dim[2], sides[i]);
        assert_int_equal(v->type.dim[3], sides[i]);
    }
    td_graph_free(g);
}

static void stages_have_their_shapes(void **state)
{
    (void)state;
    const int64_t basic[] = { 64, 128, 256, 512 }, wide[] = { 256, 512, 1024, 2048 };
    const int64_t at_224[] = { 56, 28, 14, 7 }, at_97[] = { 25, 13, 7, 4 };
    check_stages("resnet18", 224, basic, at_224);
    check_stages("resnet50", 224, wide, at_224);
    check_stages("resnext101-32x4d", 97, wide, at_97);
    check_stages("seresnet50", 97, wide, at_97);
}

/* v1.5: the 3x3 strides, not the first 1x1 */
static void bottlenecks_stride_in_the_3x3(void **state)
{
    (void)state;
    td_model_opts o = opts_of("resnext50-32x4d", 10);
    td_graph *g = graph_of(&o, 1, false);
    int strided = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_node *n = g->nodes[i];
        if (strcmp(n->op->name, "conv2d") != 0 || strncmp(n->in[1]->name, "layer", 5) != 0)
            continue;
        const td_conv_attr *a = n->attr;
        bool is_3x3 = n->in[1]->type.dim[2] == 3;
        assert_int_equal(a->groups, is_3x3 ? 32 : 1);
        assert_int_equal(a->pad, is_3x3 ? 1 : 0);
        if (a->stride != 1) {
            strided++;
            assert_true(is_3x3 || strstr(n->in[1]->name, "downsample"));
        }
    }
    assert_int_equal(strided, 6);
    td_graph_free(g);
}

static void both_forms_of_squeeze_and_excitation(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        td_model_opts o = opts_of("se-resnet50", 10);
        o.se_form = (td_se_form)form;
        td_graph *g = graph_of(&o, 1, false);
        td_type w1 = td_graph_find(g, "layer4.2.se.fc1.weight")->type;
        td_type w2 = td_graph_find(g, "layer4.2.se.fc2.weight")->type;
        assert_int_equal(w1.rank, 4);
        assert_int_equal(w1.dim[0], form ? 128 : 16);
        assert_int_equal(w1.dim[1], 2048);
        assert_int_equal(w2.dim[0], 2048);
        assert_int_equal(w2.dim[1], form ? 128 : 16);
        assert_int_equal(td_graph_find(g, "layer4.2.se.fc2.bias")->type.dim[0], 2048);
        td_graph_free(g);
    }
}

/* PyTorch's state_dict order */
static void parameters_come_in_pytorch_s_order(void **state)
{
    (void)state;
    static const char *const first[] = {
        "conv1.weight",
        "bn1.weight",
        "bn1.bias",
        "bn1.running_mean",
        "bn1.running_var",
        "layer1.0.conv1.weight",
        "layer1.0.bn1.weight",
        "layer1.0.bn1.bias",
        "layer1.0.bn1.running_mean",
        "layer1.0.bn1.running_var",
        "layer1.0.conv2.weight",
        "layer1.0.bn2.weight",
        "layer1.0.bn2.bias",
        "layer1.0.bn2.running_mean",
        "layer1.0.bn2.running_var",
        "layer1.0.conv3.weight",
        "layer1.0.bn3.weight",
        "layer1.0.bn3.bias",
        "layer1.0.bn3.running_mean",
        "layer1.0.bn3.running_var",
        "layer1.0.se.fc1.weight",
        "layer1.0.se.fc1.bias",
        "layer1.0.se.fc2.weight",
        "layer1.0.se.fc2.bias",
        "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.weight",
        "layer1.0.downsample.1.bias",
        "layer1.0.downsample.1.running_mean",
        "layer1.0.downsample.1.running_var",
        "layer1.1.conv1.weight",
    };
    td_model_opts o = opts_of("seresnet50", 10);
    td_graph *g = graph_of(&o, 1, true);
    int n = td_graph_param_count(g);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        assert_string_equal(td_graph_param_name(g, (int)i), first[i]);
    assert_string_equal(td_graph_param_name(g, n - 2), "fc.weight");
    assert_string_equal(td_graph_param_name(g, n - 1), "fc.bias");
    td_graph_free(g);
}

static void check_names(const char *arch, int side, const char *const *first, int n,
                        const char *last)
{
    td_model_opts o = opts_of(arch, 10);
    o.image_size = side;
    td_graph *g = graph_of(&o, 2, true);
    for (int i = 0; i < n; i++)
        assert_string_equal(td_graph_param_name(g, i), first[i]);
    assert_string_equal(td_graph_param_name(g, td_graph_param_count(g) - 1), last);
    td_graph_free(g);
}

static void convnext_and_vit_have_torchvision_s_order(void **state)
{
    (void)state;
    static const char *const convnext[] = {
        "features.0.0.weight",         "features.0.0.bias",           "features.0.1.weight",
        "features.0.1.bias",           "features.1.0.layer_scale",    "features.1.0.block.0.weight",
        "features.1.0.block.0.bias",   "features.1.0.block.2.weight", "features.1.0.block.2.bias",
        "features.1.0.block.3.weight", "features.1.0.block.3.bias",   "features.1.0.block.5.weight",
        "features.1.0.block.5.bias",   "features.1.1.layer_scale",
    };
    static const char *const vit[] = {
        "class_token",
        "conv_proj.weight",
        "conv_proj.bias",
        "encoder.pos_embedding",
        "encoder.layers.encoder_layer_0.ln_1.weight",
        "encoder.layers.encoder_layer_0.ln_1.bias",
        "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
        "encoder.layers.encoder_layer_0.self_attention.in_proj_bias",
        "encoder.layers.encoder_layer_0.self_attention.out_proj.weight",
        "encoder.layers.encoder_layer_0.self_attention.out_proj.bias",
        "encoder.layers.encoder_layer_0.ln_2.weight",
        "encoder.layers.encoder_layer_0.ln_2.bias",
        "encoder.layers.encoder_layer_0.mlp.0.weight",
        "encoder.layers.encoder_layer_0.mlp.0.bias",
        "encoder.layers.encoder_layer_0.mlp.3.weight",
        "encoder.layers.encoder_layer_0.mlp.3.bias",
        "encoder.layers.encoder_layer_1.ln_1.weight",
    };
    check_names("convnext_tiny", 32, convnext, sizeof convnext / sizeof *convnext,
                "classifier.2.bias");
    check_names("vit_b_16", 32, vit, sizeof vit / sizeof *vit, "heads.head.bias");
}

/* residual networks drop branches on request: 0 of the first block, 0.05 of the last */
static void resnets_have_stochastic_depth_if_it_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        int blocks;
    } cases[] = {
        { "resnet50", 16 }, { "resnet18", 8 }, { "seresnet50", 16 }, { "resnet50d", 16 }
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int last = cases[k].blocks - 1;
        td_graph *g = small_graph(cases[k].arch, -1, 0.05);
        assert_int_equal(count_ops(g, "dropout"), last);
        for (int i = 0; i < last; i++) {
            assert_int_equal(dropout_at(g, i)->mode, TD_DROPOUT_ROW);
            assert_true(fabs(dropout_at(g, i)->p - 0.05 * (i + 1) / last) < 1e-15);
        }
        td_graph_free(g);
        g = small_graph(cases[k].arch, -1, -1);
        assert_int_equal(count_ops(g, "dropout"), 0);
        td_graph_free(g);
    }
}

/* the samples of later blocks are dropped more often: 0 in the first block, 0.1 in the last */
static void convnext_has_stochastic_depth(void **state)
{
    (void)state;
    td_model_opts o = opts_of("convnext_tiny", 10);
    o.image_size = 32;
    td_graph *g = graph_of(&o, 2, true);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const td_dropout_attr *a = g->nodes[i]->attr;
        if (strcmp(g->nodes[i]->op->name, "dropout") != 0)
            continue;
        assert_int_equal(a->mode, TD_DROPOUT_ROW);
        assert_true(fabs(a->p - 0.1 * ++n / 17) < 1e-15);
    }
    assert_int_equal(n, 17);
    td_graph_free(g);
}

/* a token for each patch and the class's: the embedding has the size of the images */
/* of the embeddings, and three times in a block; none by default */
static void vit_has_dropout_if_it_is_chosen(void **state)
{
    (void)state;
    td_model_opts o = opts_of("vit_b_32", 10);
    o.image_size = 32;
    for (int i = 0; i < 2; i++) {
        o.dropout = i ? 0.1 : -1;
        td_graph *g = graph_of(&o, 2, true);
        assert_int_equal(count_ops(g, "dropout"), i ? 1 + 3 * 12 : 0);
        td_graph_free(g);
    }
}

static void vit_has_patches_of_one_size(void **state)
{
    (void)state;
    td_graph *g;
    td_model_opts o = opts_of("vit_b_16", 10);
    o.image_size = 48;
    g = graph_of(&o, 2, false);
    assert_int_equal(td_graph_find(g, "encoder.pos_embedding")->type.dim[1], 10);
    td_graph_free(g);
    o.image_size = 56;
    expect_error(td_model_graph(&o, 1, true, &g), TD_ESHAPE,
                 "image size 56, wanted a multiple of 16");
}

static void check_init(const td_graph *g, const char *name, int role, int init, double scale)
{
    const td_param_attr *a = attr_of(g, name);
    assert_int_equal(a->role, role);
    assert_int_equal(a->init, init);
    if (init == TD_INIT_NORMAL || init == TD_INIT_UNIFORM)
        assert_true(fabs(a->scale - scale) < 1e-15);
}

static void parameters_say_how_they_begin(void **state)
{
    (void)state;
    td_model_opts o = opts_of("se-resnext101-32x4d", 10);
    td_graph *g = graph_of(&o, 1, false);
    check_init(g, "conv1.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, sqrt(2.0 / (49 * 3)));
    check_init(g, "layer1.0.conv2.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, sqrt(2.0 / (9 * 4)));
    check_init(g, "layer1.0.bn3.weight", TD_ROLE_WEIGHT, TD_INIT_ONES, 0);
    check_init(g, "layer1.0.bn3.bias", TD_ROLE_WEIGHT, TD_INIT_ZEROS, 0);
    check_init(g, "bn1.running_mean", TD_ROLE_STAT, TD_INIT_ZEROS, 0);
    check_init(g, "bn1.running_var", TD_ROLE_STAT, TD_INIT_ONES, 0);
    check_init(g, "layer1.0.se.fc1.weight", TD_ROLE_WEIGHT, TD_INIT_UNIFORM, 1 / 16.0);
    check_init(g, "layer1.0.se.fc1.bias", TD_ROLE_WEIGHT, TD_INIT_UNIFORM, 1 / 16.0);
    check_init(g, "layer1.0.se.fc2.bias", TD_ROLE_WEIGHT, TD_INIT_UNIFORM, 1 / 4.0);
    check_init(g, "fc.weight", TD_ROLE_WEIGHT, TD_INIT_UNIFORM, 1 / sqrt(2048));
    check_init(g, "fc.bias", TD_ROLE_WEIGHT, TD_INIT_UNIFORM, 1 / sqrt(2048));
    td_graph_free(g);

    o.conv_init = TD_CONV_INIT_FAN_OUT;
    o.last_bn_0_init = true;
    g = graph_of(&o, 1, false);
    check_init(g, "layer1.0.conv2.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, sqrt(2.0 / (9 * 128)));
    check_init(g, "layer1.0.bn3.weight", TD_ROLE_WEIGHT, TD_INIT_ZEROS, 0);
    check_init(g, "layer1.0.bn2.weight", TD_ROLE_WEIGHT, TD_INIT_ONES, 0);
    check_init(g, "layer1.0.downsample.1.weight", TD_ROLE_WEIGHT, TD_INIT_ONES, 0);
    td_graph_free(g);
}

static void later_families_say_how_they_begin(void **state)
{
    (void)state;
    td_model_opts o = opts_of("convnext_small", 10);
    o.image_size = 32;
    td_graph *g = graph_of(&o, 1, false);
    const char *scale = "features.7.2.layer_scale";
    check_init(g, scale, TD_ROLE_WEIGHT, TD_INIT_CONSTANT, 0);
    assert_true(attr_of(g, scale)->scale == 1e-6);
    check_init(g, "features.0.0.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, 0.02);
    check_init(g, "features.5.26.block.0.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, 0.02);
    check_init(g, "features.5.26.block.3.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, 0.02);
    check_init(g, "features.5.26.block.3.bias", TD_ROLE_WEIGHT, TD_INIT_ZEROS, 0);
    check_init(g, "features.5.26.block.2.weight", TD_ROLE_WEIGHT, TD_INIT_ONES, 0);
    check_init(g, "classifier.2.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, 0.02);
    td_graph_free(g);

    o = opts_of("vit_l_32", 10);
    o.image_size = 64;
    g = graph_of(&o, 1, false);
#define IN_BLOCK(name) "encoder.layers.encoder_layer_23." name
    check_init(g, "class_token", TD_ROLE_WEIGHT, TD_INIT_ZEROS, 0);
    check_init(g, "encoder.pos_embedding", TD_ROLE_WEIGHT, TD_INIT_NORMAL, 0.02);
    check_init(g, "conv_proj.weight", TD_ROLE_WEIGHT, TD_INIT_NORMAL, sqrt(1.0 / (3 * 32 * 32)));
    check_init(g, IN_BLOCK("self_attention.in_proj_weight"), TD_ROLE_WEIGHT, TD_INIT_UNIFORM,
               sqrt(6.0 / 4096));
    check_init(g, IN_BLOCK("self_attention.out_proj.weight"), TD_ROLE_WEIGHT, TD_INIT_UNIFORM,
               1.0 / 32);
    check_init(g, IN_BLOCK("mlp.0.weight"), TD_ROLE_WEIGHT, TD_INIT_UNIFORM, sqrt(6.0 / 5120));
    check_init(g, IN_BLOCK("mlp.3.bias"), TD_ROLE_WEIGHT, TD_INIT_NORMAL, 1e-6);
    check_init(g, "heads.head.weight", TD_ROLE_WEIGHT, TD_INIT_ZEROS, 0);
    td_graph_free(g);
}

static void double_precision_is_double_throughout(void **state)
{
    (void)state;
    td_model_opts o = opts_of("se-resnet50", 10);
    o.dtype = TD_DT_F64;
    td_graph *g = graph_of(&o, 1, true);
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i]->type.dtype != TD_DT_U8) /* what the max-pool remembers */
            assert_int_equal(g->values[i]->type.dtype, TD_DT_F64);
    td_graph_free(g);
}

/* --- names and options ------------------------------------------------------------------------ */

static void names_are_found_and_suggested(void **state)
{
    (void)state;
    td_arch_info a;
    expect_ok(td_arch_find("resnext101_32x4d", &a));
    assert_string_equal(a.name, "resnext101-32x4d");
    assert_string_equal(a.block, "bottleneck");
    assert_int_equal(a.groups, 32);
    assert_int_equal(a.expansion, 2);
    assert_int_equal(a.layers[2], 23);
    assert_int_equal(a.widths[3], 1024);
    assert_false(a.has_se);
    expect_ok(td_arch_find("se_resnet50", &a));
    assert_true(a.has_se);
    expect_error(td_arch_find("resnet5", &a), TD_EUSAGE, "'resnet5'");
    expect_error(td_arch_find("rasnet152", &a), TD_EUSAGE, "'resnet152'");
    expect_error(td_arch_find("", &a), TD_EUSAGE, "no architecture");
    expect_error(td_arch_find(NULL, &a), TD_EUSAGE, "no architecture");
}

/* the option's help is written by hand */
static void help_names_every_architecture(void **state)
{
    (void)state;
    const td_field *f = td_field_find(td_model_fields(), "arch");
    for (int i = 0; td_arch_name_at(i); i++)
        if (!strstr(f->help, td_arch_name_at(i)))
            fail_msg("'%s' is not in the help of --arch", td_arch_name_at(i));
}

static void an_unknown_name_sticks_to_the_builder(void **state)
{
    (void)state;
    td_graph *g;
    td_model_opts o = opts_of("vgg17x", 10);
    expect_error(td_model_graph(&o, 1, false, &g), TD_EUSAGE, "vgg17x");
    td_builder *b = td_build_begin();
    int64_t dim[4] = { 1, 3, 64, 64 };
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, dim));
    td_output(b, "logits", td_model_forward(b, &o, x, false));
    expect_error(td_build_end(b, &g), TD_EUSAGE, "vgg17x");
    assert_null(g);
}

static void resolving_fills_in_what_is_open(void **state)
{
    (void)state;
    td_model_opts o = opts_of("resnet18", 0);
    expect_ok(td_model_resolve(&o));
    assert_int_equal(o.image_size, 224);
    assert_int_equal(o.num_classes, 0);
    o.image_size = 64;
    expect_ok(td_model_resolve(&o));
    assert_int_equal(o.image_size, 64);
}

/* --- graph files ------------------------------------------------------------------------------ */

static const char net_text[] = "%images:f32[8,3,16,16] = input\n"
                               "%conv.weight:f32[4,3,3,3] = param {init=normal, scale=0.2}\n"
                               "%1 = conv2d %images, %conv.weight {pad=1}\n"
                               "%bn.weight:f32[4] = param {init=ones}\n"
                               "%bn.bias:f32[4] = param\n"
                               "%bn.running_mean:f32[4] = param\n"
                               "%bn.running_var:f32[4] = param {role=stat, init=ones}\n"
                               "%2 = batch_norm_infer %1, %bn.weight, %bn.bias, %bn.running_mean, "
                               "%bn.running_var {eps=0.001}\n"
                               "%3, %where = max_pool2d %2 {kernel=4, stride=4}\n"
                               "%4 = reshape %3 {shape=8:64}\n"
                               "%fc.weight:f32[5,64] = param {init=uniform, scale=0.1}\n"
                               "%5 = linear %4, %fc.weight\n"
                               "output logits = %5\n";

static td_model_opts opts_of_text(const char *text)
{
    td_model_opts o;
    td_model_defaults(&o);
    o.model = td_scratch_path("net.td");
    expect_ok(td_file_write(o.model, text, strlen(text)));
    return o;
}

static void a_graph_file_takes_another_batch_and_mode(void **state)
{
    (void)state;
    td_model_opts o = opts_of_text(net_text);
    td_graph *g = graph_of(&o, 3, true), *back;
    assert_int_equal(count_ops(g, "batch_norm"), 1);
    assert_int_equal(count_ops(g, "batch_norm_update"), 1);
    assert_int_equal(count_ops(g, "batch_norm_infer"), 0);
    td_type y = td_graph_output_value(g, "logits")->type;
    assert_int_equal(y.dim[0], 3);
    assert_int_equal(y.dim[1], 5);
    assert_int_equal(attr_of(g, "bn.running_mean")->role, TD_ROLE_STAT);
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, "batch_norm_update") == 0) {
            const td_norm_attr *a = g->nodes[i]->attr;
            assert_int_equal(a->count, 3 * 16 * 16);
            assert_true(a->momentum == 0.1);
        }

    /* and back again, with eps kept */
    td_builder *b = td_build_begin();
    int64_t dim[4] = { 7, 3, 16, 16 };
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F64, 4, dim));
    td_output(b, "logits", td_model_from_graph(b, g, x, false));
    td_graph_free(g);
    expect_ok(td_build_end(b, &back));
    assert_int_equal(count_ops(back, "batch_norm_update"), 0);
    for (int i = 0; i < back->n_nodes; i++)
        if (strcmp(back->nodes[i]->op->name, "batch_norm_infer") == 0)
            assert_true(((const td_norm_attr *)back->nodes[i]->attr)->eps == 0.001);
    y = td_graph_output_value(back, "logits")->type;
    assert_int_equal(y.dim[0], 7);
    assert_int_equal(y.dtype, TD_DT_F64);
    td_graph_free(back);
}

/* every architecture through from_graph is the same graph as from the builder */
static void built_in_networks_survive_the_copy(void **state)
{
    (void)state;
    for (int i = 0; td_arch_name_at(i); i += 3) {
        if (is_detector(td_arch_name_at(i)))
            continue;
        td_model_opts o = opts_of(td_arch_name_at(i), 10);
        o.image_size = 224;
        td_graph *train = graph_of(&o, 4, true), *infer = graph_of(&o, 2, false), *copy;
        td_builder *b = td_build_begin();
        int64_t dim[4] = { 2, 3, 224, 224 };
        td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, dim));
        td_output(b, "logits", td_model_from_graph(b, train, x, false));
        expect_ok(td_build_end(b, &copy));
        char *wanted, *found;
        expect_ok(td_graph_print(infer, &wanted));
        expect_ok(td_graph_print(copy, &found));
        assert_string_equal(found, wanted);
        td_text_free(wanted);
        td_text_free(found);
        td_graph_free(train);
        td_graph_free(infer);
        td_graph_free(copy);
    }
}

static void a_graph_file_says_its_sizes(void **state)
{
    (void)state;
    td_model_opts o = opts_of_text(net_text);
    expect_ok(td_model_resolve(&o));
    assert_int_equal(o.image_size, 16);
    assert_int_equal(o.num_classes, 5);
    o.num_classes = 6;
    expect_ok(td_model_resolve(&o)); /* its last layer gets six rows */
    assert_int_equal(o.num_classes, 6);
    o.num_classes = 5;
    o.image_size = 32; /* the linear layer does not fit */
    td_graph *g;
    expect_error(td_model_graph(&o, 1, false, &g), TD_ESHAPE, "reshape");
    o.model = td_scratch_path("absent.td");
    expect_error(td_model_resolve(&o), TD_ENOTFOUND, "absent.td");
}

static void check_refused(const char *text, td_status st, const char *part)
{
    td_graph *g;
    td_model_opts o = opts_of_text(text);
    expect_error(td_model_graph(&o, 1, true, &g), st, part);
    assert_null(g);
}

static void unfit_graph_files_are_refused(void **state)
{
    (void)state;
    check_refused("nonsense\n", TD_EFORMAT, "net.td:1");
    check_refused("%x:f32[1,3,8,8] = input\n%y = global_avg_pool %x\noutput logits = %y\n",
                  TD_ESHAPE, "no input '%images'");
    check_refused("%images:f32[1,3,8,8] = input\n%y = global_avg_pool %images\noutput y = %y\n",
                  TD_ESHAPE, "no output 'logits'");
    check_refused("%images:f32[1,3,8,8] = input\n%k:f32[1,3,1,1] = input\n%z = mul %images, %k\n"
                  "%y = global_avg_pool %z\noutput logits = %y\n",
                  TD_ESHAPE, "input '%k'");
    check_refused("%images:f32[1,3,8,8] = input\n%y = global_avg_pool %images\n"
                  "%w:f32[3,3] = param\n%v:f32[3,3] = param\n%l:f32[] = input\n"
                  "sgd %w, %v, %w, %l\noutput logits = %y\n",
                  TD_ESHAPE, "");
    check_refused("%images:f32[1,3,8,8] = input\n%g:f32[3] = param\n%b:f32[3] = param\n"
                  "%a, %m, %v = batch_norm %images, %g, %b\n"
                  "%y = global_avg_pool %a\noutput logits = %y\n",
                  TD_ESHAPE, "no running statistics");

    td_model_opts o = opts_of_text(net_text);
    expect_ok(td_file_write(o.model, "a\0b", 3));
    expect_error(td_model_resolve(&o), TD_EFORMAT, "not a text file");
    expect_ok(td_file_write(o.model, net_text, strlen(net_text)));
    td_graph *g;
    td_builder *b = td_build_begin();
    int64_t dim[4] = { 1, 3, 16, 16 };
    td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, dim));
    td_model_forward_features(b, &o, x, false);
    expect_error(td_build_end(b, &g), TD_EUNSUPPORTED, "names its own outputs");
}

/* --- memory ----------------------------------------------------------------------------------- */

static void check_memory(const td_model_opts *o)
{
    td_status st = TD_ENOMEM;
    for (int64_t n = 1; st != TD_OK; n++) {
        td_graph *g;
        int64_t live = td_alloc_live();
        td_alloc_fail_at(n);
        st = td_model_graph(o, 1, true, &g);
        td_alloc_fail_at(0);
        if (st == TD_OK)
            td_graph_free(g);
        else
            assert_int_equal(st, TD_ENOMEM);
        assert_int_equal(td_alloc_live(), live);
    }
}

static void memory_may_fail_at_every_call(void **state)
{
    (void)state;
    const char *family = "";
    td_model_opts file = opts_of_text(net_text);
    check_memory(&file);
    for (int i = 0; td_arch_name_at(i); i++) { /* a network of each family */
        const td_model_opts o = opts_of(td_arch_name_at(i), 10);
        td_arch_info a;
        expect_ok(td_arch_find(o.arch, &a));
        if (strcmp(a.family, family) != 0)
            check_memory(&o);
        family = a.family;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_have_a_smallest_size),
        cmocka_unit_test(families_have_their_own_rules),
        cmocka_unit_test(sizes_are_the_reference_s),
        cmocka_unit_test(probabilities_are_the_network_s_or_the_options),
        cmocka_unit_test(depthwise_blocks_have_pytorch_s_names),
        cmocka_unit_test(every_row_is_in_the_table_above),
        cmocka_unit_test(the_text_form_goes_round),
        cmocka_unit_test(resnet18_reads_as_written_down),
        cmocka_unit_test(heads_have_any_number_of_classes),
        cmocka_unit_test(stages_have_their_shapes),
        cmocka_unit_test(bottlenecks_stride_in_the_3x3),
        cmocka_unit_test(both_forms_of_squeeze_and_excitation),
        cmocka_unit_test(parameters_come_in_pytorch_s_order),
        cmocka_unit_test(convnext_and_vit_have_torchvision_s_order),
        cmocka_unit_test(resnets_have_stochastic_depth_if_it_is_chosen),
        cmocka_unit_test(convnext_has_stochastic_depth),
        cmocka_unit_test(vit_has_dropout_if_it_is_chosen),
        cmocka_unit_test(vit_has_patches_of_one_size),
        cmocka_unit_test(parameters_say_how_they_begin),
        cmocka_unit_test(later_families_say_how_they_begin),
        cmocka_unit_test(double_precision_is_double_throughout),
        cmocka_unit_test(names_are_found_and_suggested),
        cmocka_unit_test(help_names_every_architecture),
        cmocka_unit_test(an_unknown_name_sticks_to_the_builder),
        cmocka_unit_test(resolving_fills_in_what_is_open),
        cmocka_unit_test(a_graph_file_takes_another_batch_and_mode),
        cmocka_unit_test(built_in_networks_survive_the_copy),
        cmocka_unit_test(a_graph_file_says_its_sizes),
        cmocka_unit_test(unfit_graph_files_are_refused),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
