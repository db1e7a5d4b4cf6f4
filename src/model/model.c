/*
 * model.c -- model options; chooses between a row of arch.c and a graph file
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "base/text.h"
#include "image/image.h"
#include "image/norm_text.h"
#include "model/head.h"
#include "model/own_graph.h"
#include "model/resnet.h"
#include "onnx_import/onnx_import.h"
#include "ops/ops.h"

#define GRAPH_FILE_BYTES ((size_t)64 << 20)
#define EVAL_PADDING     32
#define COCO_CLASSES     90 /* COCO's largest category number; there are gaps */
#define SSD300_CLASSES   80
#define SSD320_SIDE_OF   32 /* so that the pyramid's upsampled maps fit */
#define SSD320_SIDE_MIN  160
#define TORCH_SIDE_OF    32
#define TF_CLASSES       1001 /* but labels are 0 .. 999; the last class is never a target */

static const char *const se_forms[] = { "const", "ratio", NULL };

/* the names in --model-config of NVIDIA's 2019 edition, which has four names for two behaviours */
static const char *const conv_inits[] = { "fan_in|fanin|grp-fanin", "fan_out|classic|grp-fanout",
                                          "auto", NULL };

static const char *const variants[] = { "auto", "pytorch", "tensorflow", NULL };

/* clang-format off */
static const td_field fields[] = {
    TD_GIVEN(td_model_opts, given),
    TD_TEXT_AS(td_model_opts, arch, "arch", "a", "resnet50", "NAME",
               "network architecture: resnet18, resnet34, resnet50, resnet101, resnet152, "
               "resnext50-32x4d, resnext101-32x4d, wide_resnet50_2 (torchvision's), se-resnet50, "
               "se-resnext101-32x4d, seresnet50, seresnext101_32x4d and resnet50d (timm's); "
               "vgg11, vgg13, vgg16, vgg19, vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn, "
               "densenet121, densenet169, densenet201, squeezenet1_1, regnet_y_400mf, "
               "regnet_y_8gf, shufflenet_v2_x0_5, shufflenet_v2_x1_0, shufflenet_v2_x1_5, "
               "shufflenet_v2_x2_0, "
               "convnext_tiny, convnext_small, convnext_base, convnext_large, "
               "vit_b_16, vit_b_32, vit_l_16, vit_l_32, "
               "mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small, "
               "efficientnet_b0, efficientnet_b1, efficientnet_b2, efficientnet_b3, "
               "efficientnet_b4 (torchvision's), efficientnet-b0, efficientnet-b4, "
               "efficientnet-widese-b0 and efficientnet-widese-b4 (NVIDIA's); "
               "detectors, which stretch images to a square: ssd320, ssd300, "
               "ssdlite320_mobilenet_v3_large and retinanet_resnet50_fpn (torchvision's)"),
    TD_TEXT(td_model_opts, model, NULL, "FILE",
               "graph file or ONNX file of your own network, instead of --arch; an ONNX file's "
               "weights are used unless others are given; with the parts of a preset: its "
               "network"),
    TD_TEXT_AS(td_model_opts, output, "model_output", NULL, NULL, "NAME",
               "of an ONNX file: the value [N,classes] that is the result, an output or any other "
               "value; default: the only output, or the one named logits"),
    TD_INT (td_model_opts, num_classes, 0, 0, 1 << 20,
               "number of classes; 0: taken from the data or the weights, or 1000 (1001 with "
               "--variant tensorflow)"),
    TD_BOOL(td_model_opts, multi_label, false,
               "an image has any number of classes: probabilities are sigmoids of the logits; set "
               "by the weight file and, in training, by data with several labels for an image"),
    TD_INT (td_model_opts, image_size, 0, 0, 8192,
               "side of the square input image in pixels; 0: that of the weight file, or "
               "the network's default"),
    TD_INT (td_model_opts, channels, 0, 0, 3,
               "channels of the images: 3, red, green and blue; 1, gray; 0: those of the weight "
               "file or graph file, or 3"),
    TD_INT_AS(td_model_opts, val_resize, "val_resize", "val-resize-size", 0, 0, 8192, NULL,
               "classifiers: short side in pixels to which evaluation resizes images before it "
               "cuts out their center of --image-size; 0: that of the weight file, or 32 more than "
               "--image-size"),
    TD_TEXT(td_model_opts, mean, NULL, "R,G,B",
               "mean of the images' red, green and blue, pixels counted from 0 to 1, as "
               "'tandem dataset stats' prints it; one number with --channels 1; default: that of "
               "the weight file, or ImageNet's 0.485,0.456,0.406 (gray: 0.449)"),
    TD_TEXT(td_model_opts, std, NULL, "R,G,B",
               "standard deviation, as --mean; default: that of the weight file, or ImageNet's "
               "0.229,0.224,0.225 (gray: 0.226)"),
    TD_ENUM(td_model_opts, se_form, TD_SE_FORM_CONST, se_forms,
               "hidden units of squeeze-and-excitation blocks; const: 16 in every block; "
               "ratio: a 16th of the block's channels"),
    TD_BOOL(td_model_opts, last_bn_0_init, false,
               "initialize the last batch norm weight of each residual branch to 0"),
    TD_ENUM_AS(td_model_opts, conv_init, "conv_init", "c|model-config", TD_CONV_INIT_AUTO,
               conv_inits,
               "fan mode of the initialization of convolutions; auto: fan_in, or fan_out with "
               "--variant tensorflow"),
    TD_ENUM(td_model_opts, variant, TD_VARIANT_AUTO, variants,
               "variant of the network (padding, initialization, outputs); auto: the variant "
               "stored in the weights, or pytorch"),
    TD_REAL(td_model_opts, dropout, -1, -1, 1,
               "probability of dropout, less than 1, for networks that have it; -1: the network's "
               "own"),
    TD_REAL(td_model_opts, stochastic_depth, -1, -1, 1,
               "probability, less than 1, that training leaves out the last residual block of a "
               "sample, for networks with stochastic depth; earlier blocks have proportionally "
               "less; -1: the network's own"),
    TD_TEXT(td_model_opts, backbone, "resnet50", "NAME",
               "ssd320, ssd300: backbone network: resnet18, resnet34, resnet50, resnet101, "
               "resnet152"),
    TD_REAL(td_model_opts, bn_decay, 0, 0, 1,
            "detectors: fraction of the running statistics that each step keeps; 0: 0.997 for "
            "ssd320, 0.9 for ssd300 and retinanet_resnet50_fpn, 0.97 for "
            "ssdlite320_mobilenet_v3_large"),
    TD_REAL(td_model_opts, bn_momentum, -1, -1, 1,
            "weight of a batch's statistics in the running statistics of batch norms; -1: the "
            "network's own; of detectors 1 - --bn-decay"),
    TD_REAL(td_model_opts, bn_epsilon, -1, -1, 1,
            "what batch norms add to the variance; -1: the weight file's value, or the network's"),
    TD_END,
};
/* clang-format on */

const td_field *td_model_fields(void)
{
    return fields;
}

void td_model_defaults(td_model_opts *opts)
{
    *opts = (td_model_opts){ 0 };
    td_fields_default(fields, opts);
}

const char *td_variant_name(td_variant variant)
{
    return variants[(unsigned)variant <= TD_VARIANT_TENSORFLOW ? variant : TD_VARIANT_AUTO];
}

int td_model_default_classes(const td_model_opts *opts, int n)
{
    const td_detector detector = td_model_detector(opts);
    if (detector)
        return detector == TD_DETECTOR_SSD300 ? SSD300_CLASSES : COCO_CLASSES;
    return opts->variant == TD_VARIANT_TENSORFLOW ? TF_CLASSES : n;
}

static bool is_own_graph(const td_model_opts *opts)
{
    return opts->model || opts->model_text;
}

bool td_model_lacks(const td_model_opts *opts, const char *option)
{
    const td_arch *arch = td_arch_known(opts->arch);
    if (is_own_graph(opts))
        return td_text_in_list(
            TD_ARCH_LACKS_RESIDUAL "," TD_ARCH_LACKS_DROPOUT ",bn_epsilon,bn_momentum", option);
    return arch && td_text_in_list(arch->family->lacks, option);
}

int td_model_channels(const td_model_opts *opts)
{
    return opts->channels ? opts->channels : 3;
}

static td_status check_variant(const td_model_opts *opts)
{
    if (opts->variant && opts->weights_variant && opts->variant != opts->weights_variant)
        return td_error(TD_EUSAGE, "the weights belong to variant '%s', but --variant is '%s'",
                        td_variant_name(opts->weights_variant), td_variant_name(opts->variant));
    return TD_OK;
}

td_detector td_model_detector(const td_model_opts *opts)
{
    const td_arch *arch = is_own_graph(opts) ? NULL : td_arch_known(opts->arch);
    return arch ? arch->detector : TD_DETECTOR_NONE;
}

/* --- graph files ------------------------------------------------------------------------------ */

static const char *graph_name(const td_model_opts *opts)
{
    return opts->model ? opts->model : "the weight file's graph";
}

/* resizes the head if the options require another number of classes */
static td_status fit_classes(const td_model_opts *opts, td_graph **g)
{
    const td_value *y = td_graph_output_value(*g, "logits");
    td_graph *fits;
    if (!opts->num_classes || !y || y->type.rank != 2 || y->type.dim[1] == opts->num_classes)
        return TD_OK;
    const td_status st = td_head_resize(*g, opts->num_classes, &fits);
    if (st != TD_OK)
        return td_error_context(st, "--model '%s' cannot be changed to %d classes",
                                graph_name(opts), opts->num_classes);
    td_graph_free(*g);
    *g = fits;
    return TD_OK;
}

static td_status read_onnx(const td_model_opts *opts, td_graph **out)
{
    td_onnx *m;
    td_onnx_graph g = { 0 };
    *out = NULL;
    TD_TRY(td_onnx_read(opts->model, &m));
    const td_onnx_import_opts o = {
        .batch = 1, .is_model = true, .output = opts->output, .height = opts->image_size
    };
    const td_status st = td_graph_of_onnx(m, opts->model, &o, &g);
    td_onnx_free(m);
    *out = g.graph;
    g.graph = NULL;
    td_onnx_graph_release(&g);
    return st;
}

static td_status parse_graph(const td_model_opts *opts, td_graph **out)
{
    const char *path = opts->model;
    char *text = NULL;
    size_t n;
    td_status st;
    *out = NULL;
    if (opts->model_text)
        return td_graph_parse(opts->model_text, graph_name(opts), out);
    if (td_onnx_is(path))
        return read_onnx(opts, out);
    if (opts->output)
        return td_error(TD_EUSAGE, "--model-output requires an ONNX file: '%s' is none", path);
    st = td_file_read(path, GRAPH_FILE_BYTES, &text, &n);
    if (st == TD_ENOTFOUND && td_arch_known(path))
        st =
            td_error(TD_EUSAGE, "graph file '%s' does not exist; --arch %s is the built-in network",
                     path, path);
    TD_OUT(st);
    if (td_text_is_utf16(text, n))
        TD_OUT(td_error(TD_EFORMAT, "'%s' is UTF-16, wanted UTF-8", path));
    if (memchr(text, '\0', n))
        TD_OUT(td_error(TD_EFORMAT, "'%s' is not a text file", path));
    st = td_graph_parse(text, path, out);
out:
    td_free(text);
    return st;
}

td_status td_model_file_text(const td_model_opts *opts, char **out)
{
    td_graph *g;
    *out = NULL;
    if (!td_onnx_is(opts->model)) {
        size_t n;
        return td_file_read(opts->model, GRAPH_FILE_BYTES, out, &n);
    }
    TD_TRY(read_onnx(opts, &g));
    const td_status st = td_graph_print(g, out);
    td_graph_free(g);
    return st;
}

void td_model_onnx_weights(td_model_opts *model, const char **weights)
{
    if (*weights || !model->model || model->model_text || !td_onnx_is(model->model))
        return;
    *weights = model->model;
    model->model = NULL;
}

static td_status read_graph(const td_model_opts *opts, td_graph **out)
{
    TD_TRY(parse_graph(opts, out));
    const td_status st = fit_classes(opts, out);
    if (st != TD_OK) {
        td_graph_free(*out);
        *out = NULL;
    }
    return st;
}

td_status td_model_graph_text(const td_model_opts *opts, char **out)
{
    td_graph *g;
    td_head head;
    *out = NULL;
    TD_TRY(parse_graph(opts, &g));
    const td_value *y = td_graph_output_value(g, "logits");
    td_status st = TD_OK;
    if (y && y->type.rank == 2 && opts->num_classes && y->type.dim[1] != opts->num_classes) {
        TD_OUT(td_head_find(g, &head));
        TD_OUT(fit_classes(opts, &g));
        st = td_graph_print(g, out);
    }
out:
    td_graph_free(g);
    return st;
}

td_status td_model_head(const td_model_opts *opts, char weight[256], char bias[256])
{
    td_graph *g;
    td_head head;
    snprintf(weight, 256, "%s.weight", td_arch_head(opts));
    snprintf(bias, 256, "%s.bias", td_arch_head(opts));
    if (!is_own_graph(opts))
        return TD_OK;
    *weight = *bias = '\0';
    TD_TRY(parse_graph(opts, &g));
    if (td_head_find(g, &head) == TD_OK) {
        snprintf(weight, 256, "%s", head.weight->name);
        snprintf(bias, 256, "%s", head.bias ? head.bias->name : "");
    }
    td_error_clear(); /* a head is needed only if the number of classes changes */
    td_graph_free(g);
    return TD_OK;
}

td_status td_model_stem(const td_model_opts *opts, char weight[256])
{
    td_graph *g;
    *weight = '\0';
    TD_TRY(td_model_graph(opts, 1, false, &g));
    const td_value *images = td_graph_find(g, "images");
    for (int i = 0; i < g->n_nodes && !*weight; i++) {
        const td_node *n = g->nodes[i];
        if (n->op == &td_op_conv2d && n->in[0] == images && td_value_is_param(n->in[1]))
            snprintf(weight, 256, "%s", n->in[1]->name);
    }
    td_graph_free(g);
    return TD_OK;
}

static td_status size_from_graph(const td_graph *g, td_model_opts *opts)
{
    const td_value *x = td_graph_find(g, "images"), *y = td_graph_output_value(g, "logits");
    if (!x || !td_value_is_input(x) || x->type.rank != 4 || x->type.dim[2] > INT_MAX)
        return td_error(TD_ESHAPE, "the graph has no input '%%images' of four dimensions");
    if (x->type.dim[1] != 1 && x->type.dim[1] != 3)
        return td_error(TD_ESHAPE, "its images have %lld channels, wanted 1 or 3",
                        (long long)x->type.dim[1]);
    if (opts->channels && opts->channels != x->type.dim[1])
        return td_error(TD_EUSAGE, "its images have %lld channels, but --channels is %d",
                        (long long)x->type.dim[1], opts->channels);
    opts->channels = (int)x->type.dim[1];
    if (!y || y->type.rank != 2 || y->type.dim[1] > INT_MAX)
        return td_error(TD_ESHAPE, "the graph has no output 'logits' of two dimensions");
    opts->num_classes = (int)y->type.dim[1];
    if (!opts->image_size)
        opts->image_size = (int)x->type.dim[2];
    return TD_OK;
}

/* *backbone is the row of the detector's backbone, or its own if that is fixed */
static td_status find_backbone(const td_model_opts *opts, const td_arch *arch,
                               const td_arch **backbone)
{
    *backbone = arch;
    if (td_text_in_list(arch->family->lacks, "backbone"))
        return TD_OK;
    TD_TRY(td_arch_row(opts->backbone ? opts->backbone : "resnet50", backbone));
    const td_resnet *r = td_resnet_of(*backbone);
    if (!r || r->groups != 1 || r->se != TD_SE_NONE || r->is_deep)
        return td_error(TD_EUSAGE,
                        "'%s' is not a backbone for '%s', wanted resnet18, resnet34, resnet50, "
                        "resnet101 or resnet152",
                        (*backbone)->name, arch->name);
    return TD_OK;
}

static td_status check_multiple(const td_arch *arch, int side, int of, int least)
{
    if (side >= least && side % of == 0)
        return TD_OK;
    return td_error(TD_EUNSUPPORTED,
                    "'%s' requires an image size that is a multiple of %d and at least %d, "
                    "found %d",
                    arch->name, of, least, side);
}

/* checks that the detector can be built; *backbone is as in find_backbone */
static td_status check_detector(const td_model_opts *opts, const td_arch *arch,
                                const td_arch **backbone)
{
    const int side = opts->image_size ? opts->image_size : arch->image_size;
    TD_TRY(find_backbone(opts, arch, backbone));
    if (opts->variant == TD_VARIANT_TENSORFLOW)
        return td_error(TD_EUSAGE, "'%s' has no variant '%s'", arch->name,
                        td_variant_name(opts->variant));
    if (arch->detector == TD_DETECTOR_SSD300 && side != arch->image_size)
        return td_error(TD_EUNSUPPORTED, "'%s' requires images of %d x %d, found %d x %d",
                        arch->name, arch->image_size, arch->image_size, side, side);
    if (arch->detector == TD_DETECTOR_SSD320)
        return check_multiple(arch, side, SSD320_SIDE_OF, SSD320_SIDE_MIN);
    if (arch->detector == TD_DETECTOR_SSDLITE || arch->detector == TD_DETECTOR_RETINANET)
        return check_multiple(arch, side, TORCH_SIDE_OF, arch->family->side_min);
    return TD_OK;
}

/* is it -1 (the network's own) or a probability of [0, 1)? */
static td_status check_probability(const char *option, double p)
{
    if (p == -1 || (p >= 0 && p < 1))
        return TD_OK;
    return td_error(TD_EUSAGE, "--%s is %g, wanted 0 to less than 1, or -1 for the network's own",
                    option, p);
}

/* checks options that change the results of networks that have them */
static td_status check_options(const td_model_opts *opts, const td_arch *arch)
{
    if (opts->variant == TD_VARIANT_TENSORFLOW && td_text_in_list(arch->family->lacks, "variant"))
        return td_error(TD_EUSAGE, "'%s' has no variant '%s'", arch->name,
                        td_variant_name(opts->variant));
    if (!(opts->bn_epsilon == -1 || opts->bn_epsilon >= 0))
        return td_error(TD_EUSAGE, "--bn-epsilon is %g, wanted 0 to 1, or -1", opts->bn_epsilon);
    if (!(opts->bn_momentum == -1 || opts->bn_momentum >= 0))
        return td_error(TD_EUSAGE, "--bn-momentum is %g, wanted 0 to 1, or -1", opts->bn_momentum);
    if (opts->bn_momentum >= 0 && opts->bn_decay > 0)
        return td_error(TD_EUSAGE, "--bn-momentum %g and --bn-decay %g exclude each other",
                        opts->bn_momentum, opts->bn_decay);
    TD_TRY(check_probability("dropout", opts->dropout));
    return check_probability("stochastic-depth", opts->stochastic_depth);
}

td_status td_model_resolve_norm(td_model_opts *opts)
{
    const int channels = td_model_channels(opts);
    td_norm n = opts->norm.std[0] > 0 ? opts->norm : *td_norm_of_channels(channels);
    if (!opts->mean && !opts->std)
        return TD_OK;
    if (td_model_detector(opts))
        return td_error(TD_EUSAGE, "--%s requires a classifier: '%s' has fixed values",
                        opts->mean ? "mean" : "std", opts->arch);
    if (opts->mean)
        TD_TRY(td_norm_parse_mean(opts->mean, "--mean", channels, n.mean));
    if (opts->std)
        TD_TRY(td_norm_parse_std(opts->std, "--std", channels, n.std));
    opts->norm = n;
    return TD_OK;
}

td_status td_model_check_resize(const td_model_opts *opts)
{
    if (!opts->val_resize)
        return TD_OK;
    if (td_model_detector(opts))
        return td_error(TD_EUSAGE, "--val-resize requires a classifier: '%s' uses whole images",
                        opts->arch);
    if (opts->val_resize < opts->image_size)
        return td_error(TD_EUSAGE, "--val-resize %d is less than the image size of %d",
                        opts->val_resize, opts->image_size);
    return TD_OK;
}

int td_model_eval_padding(const td_model_opts *opts)
{
    return opts->val_resize ? opts->val_resize - opts->image_size : EVAL_PADDING;
}

/* an ONNX file whose own nodes normalize its images: these do what --mean and --std say */
static td_status resolve_onnx_norm(td_model_opts *opts)
{
    td_onnx *m;
    td_onnx_preparation p;
    if (!opts->model || opts->model_text || !td_onnx_is(opts->model))
        return TD_OK;
    TD_TRY(td_onnx_read(opts->model, &m));
    td_onnx_find_preparation(m, &p);
    td_onnx_free(m);
    if (!p.has_norm)
        return TD_OK;
    if (opts->norm.std[0] > 0 && memcmp(&opts->norm, &p.norm, sizeof p.norm) != 0) {
        char mean[TD_NORM_TEXT], std[TD_NORM_TEXT];
        td_norm_print(p.norm.mean, p.channels, mean);
        td_norm_print(p.norm.std, p.channels, std);
        return td_error(TD_EUSAGE,
                        "'%s' normalizes its images by itself (%s), as --mean %s --std %s does, "
                        "which the options or the weights contradict",
                        opts->model, p.text, mean, std);
    }
    opts->norm = p.norm;
    return TD_OK;
}

td_status td_model_resolve(td_model_opts *opts)
{
    TD_TRY(td_channels_check(opts->channels));
    if (!is_own_graph(opts)) {
        const td_arch *arch;
        if (opts->output)
            return td_error(TD_EUSAGE, "--model-output requires an ONNX file as the network");
        TD_TRY(td_model_resolve_norm(opts));
        TD_TRY(check_variant(opts));
        TD_TRY(td_arch_row(opts->arch, &arch));
        if (arch->detector && opts->multi_label)
            return td_error(TD_EUSAGE, "--multi-label requires a classifier, '%s' is a detector",
                            arch->name);
        if (arch->detector && opts->channels == 1)
            return td_error(TD_EUSAGE,
                            "--channels 1 requires a classifier: '%s' reads red, green "
                            "and blue",
                            arch->name);
        if (arch->detector)
            TD_TRY(check_detector(opts, arch, &(const td_arch *){ NULL }));
        TD_TRY(check_options(opts, arch));
        opts->channels = td_model_channels(opts);
        opts->arch = arch->name; /* a static string, unlike a name from a file */
        if (!opts->image_size)
            opts->image_size = arch->image_size;
        if (opts->image_size < arch->family->side_min)
            return td_error(TD_EUNSUPPORTED, "'%s' requires an image size of at least %d, found %d",
                            arch->name, arch->family->side_min, opts->image_size);
        if (opts->variant == TD_VARIANT_TENSORFLOW)
            opts->se_form = TD_SE_FORM_RATIO;
        return TD_OK;
    }
    if (opts->variant)
        return td_error(TD_EUSAGE, "'%s' is a graph, which has no variant '%s'", graph_name(opts),
                        td_variant_name(opts->variant));
    td_graph *g;
    TD_TRY(read_graph(opts, &g));
    td_status st = size_from_graph(g, opts);
    td_graph_free(g);
    if (st != TD_OK)
        return td_error_context(st, "'%s'", graph_name(opts));
    TD_TRY(td_model_resolve_norm(opts));
    return resolve_onnx_norm(opts);
}

/* --- emitting --------------------------------------------------------------------------------- */

static td_value *forward(td_builder *b, const td_model_opts *opts, td_value *images,
                         bool is_training, bool features)
{
    const td_arch *arch;
    td_status st = check_variant(opts);
    if (st == TD_OK)
        st = td_arch_row(opts->arch, &arch);
    if (st == TD_OK && arch->detector)
        st = td_error(TD_EUNSUPPORTED, "'%s' is a detector, wanted a classifier", arch->name);
    if (st == TD_OK)
        st = check_options(opts, arch);
    if (st == TD_OK && features && !arch->family->has_stages)
        st = td_error(TD_EUNSUPPORTED, "'%s' has no stages layer1 to layer4", arch->name);
    if (st != TD_OK) {
        td_build_fail(b, st);
        return images;
    }
    td_model_opts o = *opts;
    if (!o.num_classes)
        o.num_classes = td_model_default_classes(&o, 1000);
    td_net m = td_net_begin(b, arch, &o, is_training);
    m.has_features = features;
    return arch->family->build(&m, images);
}

td_value *td_model_forward(td_builder *b, const td_model_opts *opts, td_value *images,
                           bool is_training)
{
    td_graph *g;
    if (!is_own_graph(opts))
        return forward(b, opts, images, is_training, false);
    td_status st = read_graph(opts, &g);
    if (st != TD_OK) {
        td_build_fail(b, st);
        return images;
    }
    td_value *logits = td_model_from_graph(b, g, images, is_training);
    td_graph_free(g);
    return logits;
}

td_value *td_model_forward_features(td_builder *b, const td_model_opts *opts, td_value *images,
                                    bool is_training)
{
    if (!is_own_graph(opts))
        return forward(b, opts, images, is_training, true);
    td_build_fail(b, td_error(TD_EUNSUPPORTED, "'%s' is a graph file, which names its own outputs",
                              graph_name(opts)));
    return images;
}

void td_detector_forward(td_builder *b, const td_model_opts *opts, td_value *images,
                         bool is_training, td_value **deltas, td_value **scores)
{
    const td_arch *arch, *backbone;
    td_model_opts o = *opts;
    *deltas = *scores = images;
    td_status st =
        is_own_graph(opts)
            ? td_error(TD_EUNSUPPORTED, "'%s' is a graph, wanted a detector", graph_name(opts))
            : td_arch_row(opts->arch, &arch);
    if (st == TD_OK && !arch->detector)
        st = td_error(TD_EUNSUPPORTED,
                      "'%s' is not a detector, wanted ssd320, ssd300, "
                      "ssdlite320_mobilenet_v3_large or retinanet_resnet50_fpn",
                      arch->name);
    o.image_size = (int)images->type.dim[2];
    if (st == TD_OK)
        st = check_detector(&o, arch, &backbone);
    if (st != TD_OK) {
        td_build_fail(b, st);
        return;
    }
    if (!o.num_classes)
        o.num_classes = td_model_default_classes(&o, 0);
    td_net m = td_net_begin(b, backbone, &o, is_training);
    arch->family->detect(&m, images, deltas, scores);
}

td_status td_model_graph(const td_model_opts *opts, int batch, bool is_training, td_graph **out)
{
    td_model_opts o = *opts;
    *out = NULL;
    TD_TRY(td_model_resolve(&o));
    td_builder *b = td_build_begin();
    if (!b)
        return TD_ENOMEM;
    int64_t dim[4] = { batch, td_model_channels(&o), o.image_size, o.image_size };
    td_value *images = td_input(b, "images", td_type_of(o.dtype ? o.dtype : TD_DT_F32, 4, dim));
    if (td_model_detector(&o)) {
        td_value *deltas, *scores;
        td_detector_forward(b, &o, images, is_training, &deltas, &scores);
        td_output(b, "codes", deltas);
        td_output(b, "scores", scores);
    } else {
        td_output(b, "logits", td_model_forward(b, &o, images, is_training));
    }
    return td_build_end(b, out);
}
