/*
 * checkpoint/weight_file.h -- reads a weight file of any supported format
 *
 * The content decides, not the name: safetensors (io/safetensors.h) or PyTorch's (pth/pth.h).
 */
#ifndef TD_CHECKPOINT_WEIGHT_FILE_H
#define TD_CHECKPOINT_WEIGHT_FILE_H

#include "io/safetensors.h"

/** Is it a PyTorch file, by its first bytes?  TD_ENOTFOUND, TD_EIO. */
td_status td_weight_file_is_torch(const char *path, bool *out) TD_CHECKED;

/**
 * Read a file as it is.  `is_ema` chooses the averaged weights of a checkpoint of PyTorch's, and
 * changes nothing for ours, which have both in one set.  Errors as of td_tensors_read and
 * td_pth_read; TD_EUNSUPPORTED names files of other programs (io/foreign.h).
 */
td_status td_weight_file_read(const char *path, bool is_ema, td_tensors **out) TD_CHECKED;

/**
 * The same for a network: f16 and bf16 are made f32, and an architecture that a checkpoint of
 * PyTorch's names is "tandem.arch" where we have it.  Safetensors are mapped: once the tensors are
 * copied out, td_tensors_check tells whether all were readable (td_weights_load calls it).
 */
td_status td_weight_file_open(const char *path, td_tensors **out) TD_CHECKED;
td_status td_weight_file_open_as(const char *path, bool is_ema, td_tensors **out) TD_CHECKED;

/** Warn of a file with this program's metadata and no digest; td_weight_file_open does so too. */
void td_weight_file_warn(const td_tensors *t, const char *path);

/** Were the averaged weights of a PyTorch checkpoint read?  They have the weights' names. */
bool td_weight_file_is_average(const td_tensors *t);

/**
 * Our name of the network that a checkpoint of PyTorch's names; NULL: none, or not one we have, or
 * the set has "tandem.arch" or "tandem.graph" already.
 */
const char *td_weight_file_arch(const td_tensors *t);

#endif
