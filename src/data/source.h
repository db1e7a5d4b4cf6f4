/*
 * data/source.h -- functions that open each kind of data set
 *
 *     source.c                          opens a data set: uses all kinds
 *     folder.c  coco_source.c  packed.c  tensors.c  synthetic.c  list.c  shards.c  records.c
 *     dataset.c  objects.c              a data set of any kind
 *
 * An opener fills a zeroed data set; on failure the caller frees it.
 */
#ifndef TD_DATA_SOURCE_H
#define TD_DATA_SOURCE_H

#include "data/dataset.h"

/** Is a path (NULL: none) that this backend opens a list of images, or TFRecords? */
bool td_dataset_is_list(td_data_backend backend, const char *path);
bool td_dataset_is_records(td_data_backend backend, const char *path);

/** A folder of images for each class.  TD_ENOTFOUND, TD_EFORMAT, TD_EIO, TD_ELIMIT, TD_ENOMEM. */
TD_CHECKED td_status td_folder_open(const td_dataset_opts *opts, td_dataset *ds);

/**
 * Append the images below a folder, by folder, then by name, without labels.  *cap: capacity of
 * ds->samples.  TD_EFORMAT: no images; and the errors of td_list_folder.
 */
TD_CHECKED td_status td_folder_add(td_dataset *ds, size_t *cap, const char *folder);

/** A folder of images with an annotation file, or the annotation file itself. */
TD_CHECKED td_status td_annotated_open(const td_dataset_opts *opts, td_dataset *ds);

/** Is there an annotation file for this split (NULL: none), or is `path` one itself? */
bool td_annotated_exists(const char *path, const char *split);

/**
 * Is there an annotation file for the parent folder of `path`, or for its parent?  Writes that
 * folder to `out`.
 */
bool td_annotated_find_parent(const char *path, const char *split, char *out, size_t room);

/** A pack (io/pack.h), with or without boxes, as the folder from which it was made. */
TD_CHECKED td_status td_packed_open(const td_dataset_opts *opts, td_dataset *ds);

/** Does a pack hold this split ("" for NULL), with boxes? */
bool td_packed_is_annotated(const char *path, const char *split);

/** A .safetensors file of ready rows. */
TD_CHECKED td_status td_tensor_rows_open(const td_dataset_opts *opts, td_dataset *ds);

/** Noise with random labels, or with random boxes. */
TD_CHECKED td_status td_synthetic_open(const td_dataset_opts *opts, td_dataset *ds);

/** Fill `images` [n, row] and `labels` [n] of rows first .. first + n - 1 with noise. */
void td_synthetic_fill(const td_dataset *ds, uint64_t seed, int64_t first, int n, size_t row,
                       float *images, int64_t *labels);

#endif
