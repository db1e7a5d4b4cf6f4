/*
 * tandem/loader.h -- loaders: a data set in, normalised batches out
 *
 *     td_dataset *ds;
 *     TD_OUT(td_dataset_open(&(td_dataset_opts){ .path = "flowers", .split = "train" }, &ds));
 *     td_loader *ld;
 *     TD_OUT(td_loader_new(ds, &(td_loader_opts){ .batch_size = 64, .is_training = true }, &ld));
 *     const td_batch *b;
 *     while ((st = td_loader_next(ld, &b)) == TD_OK)      one epoch; TD_EEND ends it
 *         use(b->images, b->labels, b->n);
 *     td_loader_free(ld);
 *     td_dataset_free(ds);                                after every loader on it
 *
 * What a sample becomes depends on (seed, epoch, sample) alone: workers, ranks and resuming in the
 * middle of an epoch change no bit.
 */
#ifndef TD_LOADER_H
#define TD_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_loader td_loader;

/* With antialiasing bilinear is PIL's, a triangle as wide as what becomes one pixel; triangular is
   that everywhere, where crop rules or options turn antialiasing off for the others. */
typedef enum {
    TD_INTERPOLATE_BILINEAR,
    TD_INTERPOLATE_BICUBIC,
    TD_INTERPOLATE_TRIANGULAR
} td_interpolation;

/** Whose random crops, resizing and centre crops; docs/formats/transforms.md compares them. */
typedef enum {
    TD_RULES_TORCHVISION, /* antialiased, as PIL */
    TD_RULES_DALI,        /* 100 tries; not antialiased */
    TD_RULES_TF           /* TensorFlow 1: area from 10 %, bilinear without half-pixel shift */
} td_crop_rules;

/** Means and deviations: torchvision's, or those of TensorFlow's ResNet. */
typedef enum { TD_NORMALIZE_TORCH, TD_NORMALIZE_TF } td_normalization;

/** Order and shares of the ranks in training; docs/formats/datasets.md. */
typedef enum {
    TD_ORDER_PERMUTATION, /* a permutation of all, dealt in batches: no sample twice */
    TD_ORDER_PADDED, /* the same, padded to a multiple of the ranks; rank r takes r, r + W, ... */
    TD_ORDER_BUFFER  /* DALI's: a range per rank, another each epoch, through 1024 places */
} td_order;

/**
 * How to make batches.  All zero: evaluation, batches of 32, 224 x 224, resize to 256, bilinear.
 *
 * Training: shuffled; random resized crop (area 8..100 %, ratio 3/4..4/3, torchvision's sampler
 * unless `crop` says else), flip with probability 1/2; the last short batch is left out.
 * Evaluation: in order; short side to image_size + eval_padding, centre crop; the last short batch
 * is kept.  `tensors` and `synthetic` are neither shuffled nor changed.
 */
typedef struct {
    bool is_training;
    int batch_size;   /* per rank; 0 means 32 */
    int image_size;   /* 0 means 224, or the shape of `tensors` */
    int eval_padding; /* evaluation; 0 means 32, negative means none */
    td_interpolation interpolation;
    td_crop_rules crop;
    bool antialias, no_antialias; /* neither: as the rules have it; TensorFlow's have their own */
    td_normalization normalization;
    bool autoaugment;        /* training: AutoAugment's 25 policies, after the flip */
    td_order order;          /* training, and shares of the ranks in evaluation */
    const char *image_sizes; /* training: "0:128,30:160", image_size by epoch, for the call; NULL */
    bool ignore_orientation; /* leave EXIF-rotated images as stored, as torchvision does */
    bool fast_decode;        /* training: pixels may differ a little from torchvision's, see docs */
    int workers;             /* threads; 0 means one per CPU */
    int prefetch;            /* batches prepared ahead of the lent one; 0 means 2 */
    int nice;                /* lower the workers' priority by so many steps */
    uint64_t seed;
    int64_t start_epoch; /* the first epoch, counted from 0 ... */
    int64_t start_batch; /* ... and the first batch of it: to resume in its middle */
    int rank, world;     /* this rank of so many; world 0 means 1 */
    double max_bad;      /* share that may be bad; 0: 0.01, at least one image; negative: none */

    /* detectors: how images become rows is theirs, not of the crop rules above */
    int detector;      /* td_arch_info's: whose images and targets to make; 0: none.  Training
                          wants boxes; without them, no anchor has a ground truth */
    bool color_jitter; /* training: hue, saturation, contrast, brightness; SSD300 has its own */
} td_loader_opts;

/**
 * One batch.  Batch i of an epoch holds rows [(i W + r) B, (i W + r + 1) B) of the epoch's order,
 * for rank r of W.  Lent until the next call on its loader.  n is batch_size; less in evaluation,
 * even 0, at the end of the epoch and where bad images were left out.
 */
typedef struct {
    const float *images;          /* [n, channels, height, width], normalised */
    const int64_t *labels;        /* [n] class, 0 .. classes - 1; -1 where unknown */
    const int64_t *samples;       /* [n] index in the data set of the image that is there */
    const int64_t *anchor_labels; /* detectors: [n, n_anchors] class 1 .. K, 0 none; else NULL */
    const float
        *anchor_targets; /* detectors: [n, n_anchors, 4] box deltas, 0 where none; else NULL */
    int n, channels, height, width;
    int n_anchors;        /* 0 without a detector */
    int64_t epoch, index; /* index counts the batches of the epoch from 0 */
    double wait_s;        /* how long td_loader_next waited for it */
    double decode_s;      /* worker time spent on it, summed over threads */
} td_batch;

/**
 * Make a loader and start its workers.  `ds` is kept: it must outlive the loader.  Several loaders
 * may share it.
 *   TD_EARG    an option out of range, or a training set smaller than one batch of all ranks
 *   TD_ESHAPE  image_size is not the size of the tensors
 */
TD_API TD_CHECKED td_status td_loader_new(const td_dataset *ds, const td_loader_opts *opts,
                                          td_loader **out);

/** Stop the workers and release everything lent.  NULL is fine. */
TD_API void td_loader_free(td_loader *ld);

/**
 * Lend the next batch.  TD_EEND (*out is NULL) after the last batch of an epoch; the call after
 * that begins the next epoch.
 *
 * An image that cannot be read is noted (td_loader_bad).  In training it is replaced by the
 * next good one of the data set (index + 1, + 2, ...) with that one's label; in evaluation it is
 * left out, so that counts stay true.
 *   TD_EFORMAT  more bad images than max_bad allows; the message has the count and a reason.  In
 *               training with ranks only where no good one is found: whether they are too many, the
 *               ranks ask together (td_loader_bad, td_loader_bad_allowed)
 *   TD_ENOMEM   and then the loader is only good for td_loader_free
 */
TD_API TD_CHECKED td_status td_loader_next(td_loader *ld, const td_batch **out);

/** Go to batch 0 of `epoch`, leaving out what is left of the present one. */
TD_API TD_CHECKED td_status td_loader_start_epoch(td_loader *ld, int64_t epoch);

/** What it was made for. */
TD_API const td_dataset *td_loader_dataset(const td_loader *ld);

/** Batches of an epoch. */
TD_API int64_t td_loader_batches(const td_loader *ld);

typedef struct {
    const char *path;
    const char *reason;
    int64_t sample;
    td_status st; /* what kind of failure: TD_ENOTFOUND, TD_EIO, TD_EFORMAT, ... */
} td_bad_image;

/** Bad images met so far, each once, in the order of the batches that wanted them; lent until the
    next call on the loader. */
TD_API int64_t td_loader_bad(const td_loader *ld, const td_bad_image **out);

/** How many there may be; td_loader_next fails where one loader alone met more. */
TD_API int64_t td_loader_bad_allowed(const td_loader *ld);

typedef struct {
    double median, min, max; /* images per second over the measured rounds */
    int64_t n_images;        /* in all of them */
    int threads;
} td_data_speed;

/**
 * Measure the training pipeline (decode, crop, flip, normalise) alone: `rounds` rounds (0: 10) of
 * about `round_s` seconds (0: 0.5) after one that is not counted.  Options as for training.
 */
TD_API TD_CHECKED td_status td_data_benchmark(const td_dataset *ds, const td_loader_opts *opts,
                                              int rounds, double round_s, td_data_speed *out);

#ifdef __cplusplus
}
#endif
#endif
