/*
 * inference/inputs.h -- open data sets and loaders according to a job's options
 */
#ifndef TD_INFERENCE_INPUTS_H
#define TD_INFERENCE_INPUTS_H

#include "tandem/dataset.h"
#include "tandem/input.h"
#include "tandem/loader.h"
#include "tandem/model.h"
#include "tandem/program.h"

/** Open "train" or "val"; a validation folder may be the root itself.  n_images: synthetic only. */
td_status td_open_split(const td_input_opts *in, const char *split, const td_model_opts *model,
                        int64_t n_images, td_dataset **out) TD_CHECKED;

/**
 * The same with in->val_split: the part of the training images that `seed` chooses for "train" or
 * "val".  TD_EUSAGE: the data have validation images, or no classes to choose from.
 */
td_status td_open_part(const td_input_opts *in, const char *split, const td_model_opts *model,
                       int64_t n_images, uint64_t seed, td_dataset **out) TD_CHECKED;

/** Make DATA the list, tar files or TFRecords of --val-list, with the options that these read. */
void td_input_use_val_list(td_input_opts *in);

td_loader_opts td_loader_opts_of(const td_input_opts *in, const td_model_opts *model, int batch);

/**
 * Do loaders give pixels, which programs of this device normalize?  It saves three of four bytes
 * that are copied to a GPU.  TANDEM_INPUT=u8 or f32 decides for tests.  TD_EUSAGE: another value.
 */
td_status td_input_as_bytes(const td_device *dev, bool *out) TD_CHECKED;

/**
 * The same for images that no loader makes: what would normalize a loader's pixels, or NULL where
 * they would be floats; lent by `model`.  Errors of td_input_as_bytes and td_transform_choose.
 */
td_status td_input_norm(const td_device *dev, const td_input_opts *in, const td_model_opts *model,
                        const td_norm **out) TD_CHECKED;

/** The images of a batch, or its pixels, whichever it has. */
const void *td_batch_images(const td_batch *b);

/** Log one line if the backend differs from its name. */
void td_log_backend(const td_input_opts *in);

/** Resolve `model`; the images of a data set of tensors determine its image size. */
td_status td_resolve_image_size(const td_dataset *ds, td_model_opts *model) TD_CHECKED;

/** Did the user not choose a network? */
bool td_model_is_default(const td_model_opts *model);

#endif
