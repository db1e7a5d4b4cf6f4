/*
 * tandem/input.h -- options of the input data, shared by train, evaluate and benchmark
 */
#ifndef TD_INPUT_H
#define TD_INPUT_H

#include <stdbool.h>

#include "tandem/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of the input data. */
typedef struct {
    const char *data;  /* folder or .safetensors file */
    int data_backend;  /* td_data_backend */
    int interpolation; /* td_interpolation */
    int crop;          /* 0: by data_backend, otherwise td_crop_rules + 1 */
    bool antialias, no_antialias;
    int normalization; /* td_normalization */
    int augmentation;  /* training only: 0 none, 1 autoaugment */
    int workers;       /* decoding threads; 0: automatic */
    int prefetch;      /* batches loaded in advance */
    double max_bad;    /* fraction of the images that may be unreadable */
    bool ignore_orientation;
    int decode;        /* training images: 0 "exact", 1 "fast" */
    bool exact_decode; /* the same as decode 0 */

    /* detectors */
    const char *annotations;     /* COCO annotation file; NULL: the usual place in `data` */
    const char *val_annotations; /* for validation during training; NULL: the same */
    int label_ids;               /* 0 dense: categories in order of id, 1 .. K; 1 keep: the id */
    bool strict;                 /* a bad annotation is an error, not skipped */
    bool color_jitter;           /* training images; SSD300 always applies its own */
} td_input_opts;

TD_API const struct td_field *td_input_fields(void);

#ifdef __cplusplus
}
#endif
#endif
