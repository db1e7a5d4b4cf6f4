/*
 * tandem/model.h -- the built-in networks
 *
 *     td_model_opts o;
 *     td_model_defaults(&o);
 *     o.arch = "resnet50";  o.num_classes = 10;
 *     td_value *logits = td_model_forward(b, &o, images, true);
 *
 * Parameters have the names of torchvision and timm and include their initialization, so that the
 * graph alone defines the initial network. Set `model` to use a graph file instead of an
 * architecture.
 */
#ifndef TD_MODEL_H
#define TD_MODEL_H

#include "tandem/graph.h"
#include "tandem/options.h"
#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_field;

/**
 * Two variants of the same networks. TensorFlow's uses SAME padding, which is asymmetric with
 * strides, 1001 outputs by default, C / 16 units in squeeze-and-excitation, and another
 * initialization. Parameters have the same names and shapes but give other results.
 */
typedef enum { TD_VARIANT_AUTO, TD_VARIANT_PYTORCH, TD_VARIANT_TENSORFLOW } td_variant;

/** "pytorch", "tensorflow"; "auto" for other values. */
TD_API const char *td_variant_name(td_variant variant);

/** Hidden units of squeeze-and-excitation: 16, or C / 16 as in TensorFlow and timm. */
typedef enum { TD_SE_FORM_CONST, TD_SE_FORM_RATIO } td_se_form;

/** Fan of the convolutions' initial values; AUTO: by the variant. */
typedef enum { TD_CONV_INIT_FAN_IN, TD_CONV_INIT_FAN_OUT, TD_CONV_INIT_AUTO } td_conv_init;

/**
 * The input i64[3] of a training graph whose network has dropout or stochastic depth: a seed, the
 * epoch, and the number within the epoch of the batch's first sample, over all ranks. The same
 * numbers give the same masks.
 */
#define TD_INPUT_RANDOM "random"

/** The network. The field table (td_model_fields) holds names, defaults and ranges. */
typedef struct {
    td_given given;         /* what was chosen: a weight file has no say in it */
    const char *arch;       /* "resnet50" */
    const char *model;      /* graph file: input `images`, output `logits`; instead of arch */
    const char *model_text; /* the text of such a graph, as in weight files; overrides model */
    const char *output;     /* of an ONNX file: the value that is the logits; NULL: the only output,
                               or the one named `logits` */
    int num_classes;        /* 1000; 0: as many as the data or the weight file has; a graph's last
                               layer gets as many rows */
    const char *backbone;   /* detectors: "resnet50", or 18, 34, 101, 152 */
    double bn_decay;        /* detectors: fraction of running statistics kept; 0: default */
    double bn_momentum;     /* weight of each batch's statistics; negative: the network's own */
    double bn_epsilon;      /* epsilon of all batch norms; negative: the default */
    int channels;           /* image channels: 3 (RGB) or 1 (gray); 0: the default */
    int image_size;         /* side of the input; 0: the default of the architecture, 224 */
    int val_resize;   /* classifiers: short side to which images are resized in evaluation before
                         their center is cut; 0: the weight file's, or 32 more than image_size */
    bool multi_label; /* an image has any number of classes: sigmoid, not softmax; also set by
                         the weight file and, in training, by the data */
    td_se_form se_form;
    bool last_bn_0_init; /* gamma of each branch's last BN starts at 0 */
    td_conv_init conv_init;
    td_variant variant;         /* AUTO: the weight file's, or PyTorch's */
    td_variant weights_variant; /* of the weight file; another one is an error */
    double dropout;             /* probability, of networks with dropout; negative: the network's */
    double stochastic_depth;    /* probability of dropping the last residual block; proportionally
                                   less for earlier blocks; negative: the network's */
    td_dtype dtype;             /* 0: float32; TD_DT_F64 on the reference device only */
    const char *mean, *std;     /* "0.485,0.456,0.406", or "0.449" for gray images: of their pixels,
                                   0 .. 1; NULL: the weight file's, or ImageNet's */
    td_norm norm;               /* what they come to (td_model_resolve); std[0] 0: not set */
} td_model_opts;

TD_API const struct td_field *td_model_fields(void);
TD_API void td_model_defaults(td_model_opts *opts);

/** Names of the architectures; NULL past the end. */
TD_API const char *td_arch_name_at(int i);

/** Properties of an architecture. */
typedef struct {
    const char *name;
    const char
        *family; /* "resnet", "vgg", ..: networks built from other numbers of the same parts */
    const char *block; /* residual networks: "basic" or "bottleneck"; others: NULL */
    int layers[4];     /* this and the following four: of residual networks, otherwise 0 */
    int widths[4];
    int expansion, groups;
    bool has_se;
    int image_size;
    td_detector detector;
    int n_anchors; /* of a detector, at image_size */
} td_arch_info;

/* td_arch_info of a detector: blocks, layers and widths are those of its default backbone. */

/** TD_EUSAGE: no such architecture; names the nearest. */
TD_API TD_CHECKED td_status td_arch_find(const char *name, td_arch_info *out);

/**
 * Set members that have no value yet, from the architecture or the graph file `model`: image_size
 * 0, channels 0, and with a graph file num_classes 0. Call this before shapes are needed. TD_ESHAPE
 * is also returned if the number of classes differs from the graph file's and its last layer cannot
 * be resized. The TensorFlow variant sets se_form to TD_SE_FORM_RATIO.
 *
 *   TD_EUSAGE   no such architecture; a variant that is not the weights'; a variant of a graph file
 *   TD_ENOTFOUND, TD_EIO, TD_EFORMAT, TD_ESHAPE   of the graph file
 */
TD_API TD_CHECKED td_status td_model_resolve(td_model_opts *opts);

/**
 * Set `norm` from `mean` and `std`, where they are given. td_model_resolve does so, too. TD_EUSAGE:
 * they are not a number in range for each channel, or the network is a detector, whose values are
 * fixed.
 */
TD_API TD_CHECKED td_status td_model_resolve_norm(td_model_opts *opts);

/** Channels of the images: opts->channels, or 3 where that is 0. */
TD_API int td_model_channels(const td_model_opts *opts);

/**
 * Check val_resize, with image_size set. TD_EUSAGE: it is less than image_size, or the network is a
 * detector, which has no crop.
 */
TD_API TD_CHECKED td_status td_model_check_resize(const td_model_opts *opts);

/** Pixels by which the short side exceeds image_size before the center is cut: 32, or as val_resize
    says. */
TD_API int td_model_eval_padding(const td_model_opts *opts);

/** The network that opts->arch names does not read this option ("conv_init"), as others do. */
TD_API bool td_model_lacks(const td_model_opts *opts, const char *option);

/** The default number of outputs: 1001 in the TensorFlow variant, otherwise `n`. */
TD_API int td_model_default_classes(const td_model_opts *opts, int n);

/**
 * Emit a classifier on images [N, C, H, W], C = 1 or 3; returns logits [N, num_classes].
 * is_training selects batch statistics with running updates, and dropout, which reads the input
 * TD_INPUT_RANDOM; otherwise stored statistics are used. opts->model is used if it is set;
 * otherwise opts->arch must exist (td_arch_find). The builder keeps failures.
 */
TD_API td_value *td_model_forward(td_builder *b, const td_model_opts *opts, td_value *images,
                                  bool is_training);

/**
 * As td_model_forward, and the results of the four stages become named outputs "layer1" ..
 * "layer4". TD_EUNSUPPORTED for networks other than residual ones, and for a graph file: name its
 * outputs there.
 */
TD_API td_value *td_model_forward_features(td_builder *b, const td_model_opts *opts,
                                           td_value *images, bool is_training);

/**
 * Emit a detector (td_arch_info.detector) on images [N, 3, S, S]: deltas [N, A, 4] of the boxes and
 * scores [N, A, num_classes + 1], column 0 the background's, for A anchors in the order of
 * boxes/anchors.h. num_classes is the number of object classes; 0: 90 for SSD320, 80 for SSD300.
 * The builder keeps failures; TD_EUNSUPPORTED: the network does not support the side S.
 */
TD_API void td_detector_forward(td_builder *b, const td_model_opts *opts, td_value *images,
                                bool is_training, td_value **deltas, td_value **scores);

/** The detector that opts->arch names, as in td_arch_info; NONE for classifiers and graph files. */
TD_API td_detector td_model_detector(const td_model_opts *opts);

/**
 * A forward graph for `batch` images: input `images` [batch, C, image_size, image_size], output
 * `logits`, for a detector `codes` and `scores`; from opts->model if it is set (its batch size is
 * ignored), otherwise from opts->arch. Errors of td_model_resolve; TD_ESHAPE: the graph file does
 * not fit this image size.
 */
TD_API TD_CHECKED td_status td_model_graph(const td_model_opts *opts, int batch, bool is_training,
                                           td_graph **out);

/**
 * Copy a forward graph into a builder with another batch size and mode: batch_norm_infer nodes
 * become batch_norm with running updates when is_training is set, and the reverse; dropout nodes
 * get their random numbers, or lose them. This is how a
 * user's graph text, written once, is trained and evaluated. Returns the value of `logits`.
 */
TD_API td_value *td_model_from_graph(td_builder *b, const td_graph *g, td_value *images,
                                     bool is_training);

#ifdef __cplusplus
}
#endif
#endif
