/*
 * tandem/input.h -- where the samples of a job come from: options that train, evaluate and
 * benchmark share
 */
#ifndef TD_INPUT_H
#define TD_INPUT_H

#include <stdbool.h>

#include "tandem/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where samples come from, shared by train, evaluate and benchmark. */
typedef struct {
    const char *data;  /* folder or .safetensors file */
    int data_backend;  /* td_data_backend */
    int interpolation; /* td_interpolation */
    int crop;          /* 0: by back end, else td_crop_rules + 1 */
    bool antialias, no_antialias;
    int normalization; /* td_normalization */
    int augmentation;  /* of training: 0 none, 1 autoaugment */
    int workers;       /* decoding threads; 0: chosen */
    int prefetch;      /* batches ahead */
    double max_bad;    /* share of the data set that may be undecodable */
    bool ignore_orientation;
    int decode;        /* of training images: 0 "exact", 1 "fast" */
    bool exact_decode; /* the same as decode 0 */

    /* detectors */
    const char *annotations;     /* COCO instances; NULL: where data sets have them */
    const char *val_annotations; /* of validation while training; NULL: the same */
    int label_ids;               /* 0 dense: categories in order of id, 1 .. K; 1 keep: the id */
    bool strict;                 /* a bad annotation is an error, not left out */
    bool color_jitter;           /* of training images; SSD300 has its own anyway */
} td_input_opts;

TD_API const struct td_field *td_input_fields(void);

#ifdef __cplusplus
}
#endif
#endif
