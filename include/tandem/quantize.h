/*
 * tandem/quantize.h -- 8-bit weights and activations for inference, by calibration
 */
#ifndef TD_QUANTIZE_H
#define TD_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/device.h"
#include "tandem/input.h"
#include "tandem/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How the range of an activation is chosen from the magnitudes in the calibration set. */
typedef enum {
    TD_RANGE_MSE,        /* the least mean squared error */
    TD_RANGE_PERCENTILE, /* that of td_quantize_opts.percentile */
    TD_RANGE_MAX         /* the largest */
} td_range_method;

typedef struct {
    td_model_opts model; /* the weight file completes it */
    td_input_opts input;
    const char *weights;
    const char *output; /* file to write */
    bool overwrite;
    bool use_ema;               /* quantize the averaged weights of the file */
    int64_t calibration_images; /* evenly spaced in the data set */
    bool calibrate_on_val;      /* images of the validation split, not the training split */
    td_range_method method;
    double percentile;
    const char *keep_wide; /* names of layers to keep in float32: "layer4.*,conv1"; or NULL */
    const char
        *quantize_also; /* names of layers that are float32 by default: "conv1,fc"; or NULL */
    int batch_size;
    td_device_opts device;
    const char *log;
} td_quantize_opts;

TD_API const struct td_field *td_quantize_fields(void);
TD_API void td_quantize_defaults(td_quantize_opts *opts);

/** A convolution or linear layer of the network. */
typedef struct {
    const char *weight;   /* name of its weight */
    const char *why;      /* what decided whether it is quantized */
    bool is_wide;         /* it stays float32 */
    double input, output; /* ranges */
    double input_db;      /* signal to quantization error of the input, in decibels */
    double weights_db;    /* of the weights */
} td_quantize_layer;

typedef struct {
    int64_t n_images; /* of the calibration */
    int n_layers, n_quantized;
    td_quantize_layer *layers; /* [n_layers], in order of execution */
    int64_t bytes;             /* of the written file */
    void *memory;              /* of the texts */
} td_quantize_result;

TD_API void td_quantize_release(td_quantize_result *r);

/**
 * Observe the activations of a network on a data set, choose their ranges, and write a weight file
 * that runs with 8-bit integers.  Release the result after success.
 *   TD_EUSAGE    no weights or output; `keep_wide` or `quantize_also` matches nothing; the weights
 *                are quantized already; no layer is quantized
 *   TD_ENUMERIC  an activation is not finite
 */
TD_API TD_CHECKED td_status td_quantize(const td_quantize_opts *opts, td_quantize_result *out);

#ifdef __cplusplus
}
#endif
#endif
