/*
 * tandem/onnx.h -- a network as an ONNX file
 */
#ifndef TD_ONNX_H
#define TD_ONNX_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/detection.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The input named `images`. */
typedef enum {
    TD_ONNX_IN_NORMALISED, /* f32 [N, C, H, W], as the network wants it */
    TD_ONNX_IN_FLOAT,      /* f32 [N, C, H, W], 0 .. 255 */
    TD_ONNX_IN_BYTES       /* u8 [N, H, W, C] */
} td_onnx_input;

/** How squeeze-and-excitation is written: 1x1 convolutions, or linear layers. */
typedef enum { TD_ONNX_SE_CONV, TD_ONNX_SE_LINEAR } td_onnx_se;

/** Options of the ONNX export; call td_onnx_defaults first. */
typedef struct {
    td_model_opts model; /* settings that the weight file does not have */
    int opset;           /* 13 .. 21; 0: the lowest that has the network's operators */
    int batch_size;      /* images a run; 0: left open, "N" */
    td_onnx_input input;
    td_onnx_se se_layers;
    bool probabilities;  /* a second output: softmax of logits */
    bool half_weights;   /* filters and matrices as fp16, cast to f32 before use */
    bool qdq;            /* quantized weights as integers, in QDQ form */
    bool verify;         /* read the file back, run it, compare, before it is put in place */
    bool nms;            /* detectors: the best boxes; otherwise all */
    td_boxes_opts boxes; /* detectors: limits of the best boxes */
    bool use_ema;        /* the averaged weights; option --ema of convert */
    const char *classes; /* td_convert_opts', likewise */
    bool overwrite;      /* likewise */
} td_onnx_opts;

TD_API const struct td_field *td_onnx_fields(void); /* without `model` */
TD_API void td_onnx_defaults(td_onnx_opts *opts);

typedef struct {
    char output[512]; /* the file written */
    char arch[64];
    int opset, n_nodes;
    int64_t bytes;
    int64_t parameters; /* trained parameters */
    int64_t macs;       /* multiply-accumulates for one image */
    int image_size;     /* that the file fixes; 0: images may have any height and width */
    char fixed_by[300]; /* why the network does not take images of any size; "": --image-size */
    bool is_detector;
    bool was_verified;
    double difference; /* largest difference of the logits read back, divided by the largest
                          logit; for a detector the same for box deltas */
} td_onnx_result;

/**
 * Write a weight file as an ONNX file: input `images`, output `logits`. The height and width of the
 * images are left open, as far as the network allows it, unless model.image_size is set. Outputs of
 * a detector are `detection_boxes`, `detection_scores`, `detection_classes`, `num_detections`, or
 * `boxes` and `scores` of all anchors (docs/formats/onnx.md). out_path NULL: the base name of
 * `weights` with the extension .onnx, in the current folder.
 *
 *   TD_EUSAGE        options that apply to the other kind of network
 *   TD_EUNSUPPORTED  an op without an ONNX counterpart; the message names it
 *   TD_ELIMIT        more than 2 GiB
 *   TD_EFORMAT       the file read back differs from the network; out_path is unchanged
 *   and the errors of reading weights, compiling and writing
 */
TD_API TD_CHECKED td_status td_onnx_export(const char *weights, const char *out_path,
                                           const td_onnx_opts *opts, td_onnx_result *out);

/** Has td_onnx_export written the file: does it describe its network?  Errors of reading. */
TD_API TD_CHECKED td_status td_onnx_is_export(const char *path, bool *out);

/**
 * Read the weights of an ONNX file that td_onnx_export has written, and write them as a weight file
 * (.safetensors) with the description of the network; n_tensors gets their number.  Norms that are
 * folded into filters, as in the QDQ form, come back as norms with mean 0 and variance 1 - epsilon;
 * a QDQ file gives a quantized weight file.  TD_EUNSUPPORTED: the file does not describe its
 * network, or its weights are not those of that network; TD_EFORMAT: malformed, or a scale is not
 * that of the ranges in its metadata.
 */
TD_API TD_CHECKED td_status td_onnx_restore(const char *path, const char *out_path, bool overwrite,
                                            int64_t *n_tensors);

#ifdef __cplusplus
}
#endif
#endif
