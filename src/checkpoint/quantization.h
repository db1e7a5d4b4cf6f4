/*
 * checkpoint/quantization.h -- what 'tandem quantize' stores in a weight file
 *
 *     tensors    the weights of quantized layers as I8, with their scales as NAME_scale;
 *                td_weight_file_open converts them to f32
 *     metadata   tandem.quantization   JSON, an object:
 *                    method, percentile   how ranges were chosen: "max", "percentile", "mse"
 *                    images               of the calibration set
 *                    layers               an object for each layer: weight (its name), input
 *                                         and output (ranges), wide (bool), why (text), input_db
 *                                         and weights_db (signal to quantization error)
 */
#ifndef TD_CHECKPOINT_QUANTIZATION_H
#define TD_CHECKPOINT_QUANTIZATION_H

#include "base/arena.h"
#include "io/safetensors.h"
#include "tandem/amp.h"

#define TD_QUANTIZATION_META "tandem.quantization"

typedef struct {
    td_activation_range range;
    const char *why; /* what decided whether it is quantized */
    double input_db, weights_db;
} td_quantized_layer;

typedef struct {
    td_arena texts;
    char method[16];
    double percentile;
    int64_t n_images;
    int n;
    td_quantized_layer *layers;  /* [n] */
    td_activation_range *ranges; /* [n] the same as layers[].range */
    td_activation_ranges table;
} td_quantization;

/**
 * Read the metadata of `t`, which `path` names in messages; n is 0 if there is none.  TD_EFORMAT:
 * malformed, a weight that is not in the file, a range that is not a positive number.  Release it
 * in any case.
 */
td_status td_quantization_read(const td_tensors *t, const char *path,
                               td_quantization *out) TD_CHECKED;
void td_quantization_release(td_quantization *q);

/**
 * Add all tensors of `wide`, f32, to `out`: the weights of quantized layers as integers with
 * a scale for each row, as op quantize_weights has them, the others as they are, borrowed.
 */
td_status td_quantization_add_tensors(const td_quantization *q, const td_tensors *wide,
                                      td_tensors *out) TD_CHECKED;

/** Store `q` as metadata of `t`. */
td_status td_quantization_store(const td_quantization *q, td_tensors *t) TD_CHECKED;

/**
 * Read the metadata and let `amp`, not yet resolved, use them: int8 if it has no precision, unless
 * the file is not quantized.  `out` must live as long as `amp` is used.  TD_EUSAGE: `amp` has int8
 * and the file is not quantized.
 */
td_status td_quantization_apply(const td_tensors *t, const char *path, td_amp_opts *amp,
                                td_quantization *out) TD_CHECKED;

/** TD_EUSAGE: the weights are quantized, and cannot be trained. */
td_status td_quantization_check_trainable(const td_tensors *t, const char *path) TD_CHECKED;

#endif
