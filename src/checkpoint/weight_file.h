/*
 * checkpoint/weight_file.h -- read a weight file of any supported format
 *
 * The content determines the format, not the name: safetensors (io/safetensors.h), PyTorch's
 * (pth/pth.h) or ONNX (onnx_network.h).
 */
#ifndef TD_CHECKPOINT_WEIGHT_FILE_H
#define TD_CHECKPOINT_WEIGHT_FILE_H

#include "io/safetensors.h"
#include "tandem/model.h"

/** Is it a PyTorch file, by its first bytes?  TD_ENOTFOUND, TD_EIO. */
td_status td_weight_file_is_torch(const char *path, bool *out) TD_CHECKED;

/**
 * Read a file without conversion.  `is_ema` selects the averaged weights of a PyTorch checkpoint;
 * it has no effect on our files, which have both in one set.  Errors as of td_tensors_read and
 * td_pth_read; TD_EUNSUPPORTED names files of other programs (io/foreign.h).
 */
td_status td_weight_file_read(const char *path, bool is_ema, td_tensors **out) TD_CHECKED;

/** The same; the output and the image size of an ONNX file are those of `model`. */
td_status td_weight_file_read_for(const char *path, bool is_ema, const td_model_opts *model,
                                  td_tensors **out) TD_CHECKED;

/**
 * The same for a network: f16, bf16 and quantized weights (quantization.h) are converted to f32,
 * and "tandem.arch" is set to the architecture that a PyTorch checkpoint names, if it is known.
 * Safetensors files are mapped:
 * after copying the tensors, td_tensors_check tells whether all were readable (td_weights_load
 * calls it).
 */
td_status td_weight_file_open(const char *path, td_tensors **out) TD_CHECKED;
td_status td_weight_file_open_as(const char *path, bool is_ema, td_tensors **out) TD_CHECKED;
td_status td_weight_file_open_for(const char *path, bool is_ema, const td_model_opts *model,
                                  td_tensors **out) TD_CHECKED;

/**
 * Check the name of a safetensors file to be written as `option`: TD_EUSAGE if it ends like that of
 * another format (.pth, .onnx), which td_convert writes.
 */
td_status td_weight_file_name_check(const char *option, const char *path) TD_CHECKED;

/** Warn if a file has this program's metadata but no digest; td_weight_file_open does so, too. */
void td_weight_file_warn(const td_tensors *t, const char *path);

/** Were the averaged weights of a PyTorch checkpoint read?  They have the weights' names. */
bool td_weight_file_is_average(const td_tensors *t);

/**
 * Our name of the network that a PyTorch checkpoint names; NULL: none, an unknown one, or the set
 * has "tandem.arch" or "tandem.graph".
 */
const char *td_weight_file_arch(const td_tensors *t);

#endif
