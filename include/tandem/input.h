/*
 * tandem/input.h -- options of the input data, shared by train, evaluate and benchmark
 */
#ifndef TD_INPUT_H
#define TD_INPUT_H

#include <stdbool.h>

#include "tandem/loader.h"
#include "tandem/options.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What is done to training images besides crop and flip. */
typedef enum { TD_AUGMENTATION_NONE, TD_AUGMENTATION_AUTOAUGMENT } td_augmentation;

/** How training JPEGs are decoded: as PIL does, to the bit, or at reduced size. */
typedef enum { TD_DECODE_EXACT, TD_DECODE_FAST } td_decode_mode;

/** Classes of categories: 1 .. K in order of their ids, or the ids themselves. */
typedef enum { TD_LABEL_IDS_DENSE, TD_LABEL_IDS_KEEP } td_label_ids;

/** Options of the input data. */
typedef struct {
    td_given given;
    const char *data; /* folder or .safetensors file */
    td_data_backend data_backend;
    const char *val_list; /* list for the validation during training; NULL: rows of `data` */
    double val_split;     /* fraction of each class held out of the training images for validation;
                             0: the data have validation images */
    bool list_outside;    /* lists may name files outside of their folder */
    const char *list_delimiter; /* lists: "|", between the labels of an image; NULL: one label, or a
                                    column of 0 and 1 for each class */
    int label_offset;           /* TFRecords: number of the first class, 0 or 1 */
    td_interpolation interpolation;
    td_train_interpolation train_interpolation;
    td_crop_rules crop;
    bool antialias, point_sampled;
    td_normalization normalization;
    td_augmentation augmentation;
    td_auto_augment auto_augment;
    const char *timm_augment; /* "rand-m7-mstd0.5-inc1"; NULL: none */
    int ra_ops, ra_magnitude, augment_bins;
    double random_erase; /* probability */
    const char *jitter_strength;
    int workers;    /* decoding threads; 0: automatic */
    int prefetch;   /* batches loaded in advance */
    double max_bad; /* fraction of the images that may be unreadable */
    bool stored_orientation;
    td_decode_mode decode;
    bool exact_decode; /* the same as decode EXACT, which it overrides */

    /* detectors */
    const char *annotations;     /* COCO annotation file; NULL: the usual place in `data` */
    const char *val_annotations; /* for validation during training; NULL: the same */
    td_label_ids label_ids;
    bool strict;       /* a bad annotation is an error, not skipped */
    bool color_jitter; /* training images; SSD300 always applies its own */
} td_input_opts;

TD_API const struct td_field *td_input_fields(void);

#ifdef __cplusplus
}
#endif
#endif
