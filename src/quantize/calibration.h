/*
 * quantize/calibration.h -- observes the activations of a network and chooses their ranges
 *
 *     td_calibration *c;
 *     TD_TRY(td_calibration_new(&model, dev, batch, &c));
 *     TD_OUT(td_weights_load(..., td_calibration_program(c)));
 *     TD_OUT(td_calibration_run(c, images, n));                  any number of times
 *     TD_OUT(td_calibration_finish(c, &opts, &quantization));
 *     td_calibration_free(c);
 */
#ifndef TD_QUANTIZE_CALIBRATION_H
#define TD_QUANTIZE_CALIBRATION_H

#include "checkpoint/quantization.h"
#include "tandem/model.h"
#include "tandem/program.h"
#include "tandem/quantize.h"

typedef struct td_calibration td_calibration;

/** Compile the inference graph in float32.  `model`'s classes and image size must be resolved. */
td_status td_calibration_new(const td_model_opts *model, td_device *dev, int batch,
                             td_calibration **out) TD_CHECKED;
void td_calibration_free(td_calibration *c);

/** The program, for setting weights. */
td_program *td_calibration_program(td_calibration *c);

/**
 * Run images [n, C, S, S], 1 <= n <= the batch, and count their activations; a smaller batch is
 * filled by repeating them.  TD_ENUMERIC names a value that is not finite.
 */
td_status td_calibration_run(td_calibration *c, const float *images, int n) TD_CHECKED;

/**
 * Choose the ranges by `o`.  TD_EUSAGE: o->keep_wide has a pattern that matches no convolution.
 * Release `out` in any case.
 */
td_status td_calibration_finish(const td_calibration *c, const td_quantize_opts *o,
                                td_quantization *out) TD_CHECKED;

/**
 * The ranges of a network on one batch of random images, for benchmarks; `weights`, which `path`
 * names, may be NULL: those of td_program_init with seed 1, which *fresh gets, because making them
 * takes long (NULL otherwise; td_tensors_free).  Release `out` in any case.
 */
td_status td_calibrate_random(const td_model_opts *model, td_device *dev, const td_tensors *weights,
                              const char *path, td_tensors **fresh,
                              td_quantization *out) TD_CHECKED;

#endif
