/*
 * tandem/loader.h -- loaders: normalized batches from a data set
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
 * The transformed sample depends only on (seed, epoch, sample): the number of workers or ranks, and
 * resuming in the middle of an epoch, do not change a bit.
 */
#ifndef TD_LOADER_H
#define TD_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/dataset.h"
#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_loader td_loader;

/* With antialiasing, bilinear is PIL's: a triangle filter as wide as the area of one output
   pixel. Triangular always antialiases, even if the crop rules or options disable antialiasing. */
typedef enum {
    TD_INTERPOLATE_BILINEAR,
    TD_INTERPOLATE_BICUBIC,
    TD_INTERPOLATE_TRIANGULAR
} td_interpolation;

/** The interpolation of training images, where it is not that of evaluation. */
typedef enum {
    TD_TRAIN_INTERPOLATE_SAME,
    TD_TRAIN_INTERPOLATE_BILINEAR,
    TD_TRAIN_INTERPOLATE_BICUBIC,
    TD_TRAIN_INTERPOLATE_RANDOM /* bilinear or bicubic, for each image and each operation on it */
} td_train_interpolation;

/** Rules of random crops, resizing and center crops; docs/formats/transforms.md compares them. */
typedef enum {
    TD_RULES_AUTO,        /* the loader: TORCHVISION; td_input_opts: as the back end has it */
    TD_RULES_TORCHVISION, /* antialiased, as PIL */
    TD_RULES_DALI,        /* 100 tries; not antialiased */
    TD_RULES_TF           /* TensorFlow 1: area from 10 %, bilinear without half-pixel shift */
} td_crop_rules;

/** Means and standard deviations of the normalization: torchvision's or TensorFlow's. */
typedef enum { TD_NORMALIZE_TORCH, TD_NORMALIZE_TF } td_normalization;

/** torchvision's automatic augmentations. */
typedef enum {
    TD_AUTO_AUGMENT_NONE,
    TD_AUTO_AUGMENT_IMAGENET, /* AutoAugment's 25 policies, as torchvision has them */
    TD_AUTO_AUGMENT_RA,       /* RandAugment */
    TD_AUTO_AUGMENT_TA_WIDE   /* TrivialAugmentWide */
} td_auto_augment;

/** The order of training samples and their division among ranks; docs/formats/datasets.md. */
typedef enum {
    TD_ORDER_PERMUTATION, /* a permutation of all, dealt in batches: no sample twice */
    TD_ORDER_PADDED, /* the same, padded to a multiple of the ranks; rank r takes r, r + W, ... */
    TD_ORDER_BUFFER  /* DALI's: a range per rank, another each epoch, through 1024 places */
} td_order;

/**
 * How to make batches.  All zero: evaluation, batches of 32, 224 x 224, resize to 256, bilinear.
 *
 * Training: shuffled; random resized crop (area 8..100 %, ratio 3/4..4/3, torchvision's sampler
 * unless `crop` is set), flip with probability 1/2; an incomplete last batch is dropped.
 * Evaluation: in order; short side to image_size + eval_padding, center crop; an incomplete last
 * batch is kept. `tensors` and `synthetic` are neither shuffled nor changed.
 */
typedef struct {
    bool is_training;
    int batch_size;   /* per rank; 0 means 32 */
    int channels;     /* 3, or 1: the gray of PIL's convert("L"); 0 means 3, or that of `tensors` */
    int image_size;   /* 0 means 224, or the shape of `tensors` */
    int eval_padding; /* evaluation; 0 means 32, negative means none */
    td_interpolation interpolation;
    td_train_interpolation train_interpolation; /* training: instead of it */
    td_crop_rules crop;
    bool antialias, point_sampled; /* neither: as the rules have it; TensorFlow's have their own */
    td_normalization normalization;
    td_norm norm;                 /* mean and deviation instead of these; std[0] 0: none */
    bool autoaugment;             /* training: AutoAugment's 25 policies, after the flip */
    td_auto_augment auto_augment; /* training: torchvision's, at the same place */
    const char *timm_augment;     /* training: timm's RandAugment, "rand-m7-mstd0.5-inc1", at the
                                     same place; NULL: none; for the call */
    int ra_ops, ra_magnitude;     /* RandAugment; ra_ops 0 means 2 */
    int augment_bins;    /* strengths of RandAugment and TrivialAugmentWide, 0 means 31; magnitude
                         counts them from 0 */
    double random_erase; /* training: probability that a box becomes 0, after the normalization */
    td_order order;      /* training, and shares of the ranks in evaluation */
    bool balanced;       /* training: each class is equally probable in every row; classes and
                                images are drawn with replacement */
    int repeats;         /* training with TD_ORDER_PERMUTATION: times that an image is taken in
                                an epoch, each time transformed anew; 0 means 1 */
    const char *image_sizes; /* training: "0:128,30:160", image_size by epoch, for the call; NULL */
    bool stored_orientation; /* leave EXIF-rotated images as stored, as torchvision does */
    bool fast_decode;        /* training: pixels may differ a little from torchvision's, see docs */
    int workers;             /* threads; 0: td_loader_workers */
    int prefetch;            /* batches prepared ahead of the lent one; 0 means 2 */
    int nice;                /* increase of the workers' nice value */
    uint64_t seed;
    int64_t start_epoch; /* the first epoch, counted from 0 ... */
    int64_t start_batch; /* ... and the first batch of it: to resume in its middle */
    int rank, world;     /* this rank and the number of ranks; world 0 means 1 */
    double max_bad;      /* bad images allowed, a fraction; 0: 0.01, at least one; negative: none */
    bool as_bytes;       /* pixels instead of images, if possible: td_loader_pixel_norm */

    /* detectors, which use their own transforms, not the crop rules above */
    td_detector detector; /* whose inputs and targets are made; training needs boxes */
    bool color_jitter;    /* training: hue, saturation, contrast, brightness; SSD300 has its own;
                             classifiers: torchvision's ColorJitter with: */
    const char *jitter_strength; /* "0.4,0.4,0.4,0", which NULL means: brightness, contrast,
                                    saturation, hue; for the call */
} td_loader_opts;

/**
 * One batch.  Batch i of an epoch holds rows [(i W + r) B, (i W + r + 1) B) of the epoch's order,
 * for rank r of W.  Lent until the next call on its loader.  n is batch_size; less in evaluation,
 * even 0, at the end of the epoch and where bad images were left out.
 */
typedef struct {
    const float *images;          /* [n, channels, height, width], normalized; or NULL, with: */
    const uint8_t *pixels;        /* [n, height, width, channels], not normalized; or NULL */
    const int64_t *labels;        /* [n] class, 0 .. classes - 1; -1 if unknown */
    const float *targets;         /* multi-label: [n, classes] 1 for the image's classes; or NULL */
    const int64_t *samples;       /* [n] index in the data set of the image in each row */
    const int64_t *anchor_labels; /* detectors: [n, n_anchors] class 1 .. K, 0 none; or NULL */
    const float *anchor_targets;  /* detectors: [n, n_anchors, 4] box deltas, 0 if none; or NULL */
    int n, channels, height, width;
    int n_anchors;        /* 0 without a detector */
    int64_t epoch, index; /* index counts the batches of the epoch from 0 */
    double wait_s;        /* time for which td_loader_next waited for it */
    double decode_s;      /* worker time spent on it, summed over threads */
} td_batch;

/**
 * The default number of workers, beside as many compute threads as there are cores: one for each
 * processor up to 8; with more, one for each hardware thread that is not a core's first, or for
 * every fourth core if cores have one thread each; at least 8.
 */
TD_API int td_loader_workers(int n_processors, int n_cores);

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
 * Lend the next batch. Returns TD_EEND (*out is NULL) after the last batch of an epoch; the
 * following call begins the next epoch.
 *
 * An image that cannot be read is noted (td_loader_bad). In training it is replaced by the next
 * good one of the data set (index + 1, + 2, ...) with that one's label; in evaluation it is
 * skipped, so that counts are exact.
 *   TD_EFORMAT  more bad images than max_bad allows; the message has the count and a reason. In
 *               training with several ranks only if no good one is found: the ranks check the limit
 *               together (td_loader_bad, td_loader_bad_allowed)
 *   TD_ENOMEM   the loader can then only be freed
 */
TD_API TD_CHECKED td_status td_loader_next(td_loader *ld, const td_batch **out);

/**
 * The images, or pixels, of the next batch of this epoch, if it has been loaded; else NULL.  They
 * stay the same until the batch has been lent and returned, unless td_loader_start_epoch is called.
 */
TD_API const void *td_loader_peek(td_loader *ld);

/** Go to batch 0 of `epoch`, skipping the rest of the current epoch. */
TD_API TD_CHECKED td_status td_loader_start_epoch(td_loader *ld, int64_t epoch);

/** The data set of the loader. */
TD_API const td_dataset *td_loader_dataset(const td_loader *ld);

/**
 * With as_bytes: the mean and deviation with which (x - mean[c]) / std[c], in float32, makes of
 * pixels the images that the loader would give without it, to the bit.  NULL: it gives images.  So
 * it does for ready rows (`tensors`, `synthetic`), TensorFlow's crop rules and SSD320, whose values
 * are no whole numbers before they are normalized.  Constant memory.
 */
TD_API const td_norm *td_loader_pixel_norm(const td_loader *ld);

/** Batches of an epoch. */
TD_API int64_t td_loader_batches(const td_loader *ld);

typedef struct {
    const char *path;
    const char *reason;
    int64_t sample;
    td_status st; /* what kind of failure: TD_ENOTFOUND, TD_EIO, TD_EFORMAT, ... */
} td_bad_image;

/**
 * The bad images found so far, each once, in the order of the batches that needed them; lent until
 * the next call on the loader.
 */
TD_API int64_t td_loader_bad(const td_loader *ld, const td_bad_image **out);

/** The number of bad images allowed; td_loader_next fails if one loader alone finds more. */
TD_API int64_t td_loader_bad_allowed(const td_loader *ld);

/** The same as a fraction of the images, 0 .. 1. */
TD_API double td_loader_bad_share(const td_loader *ld);

typedef struct {
    double median, min, max; /* images per second over the measured rounds */
    int64_t n_images;        /* in all of them */
    int threads;
} td_data_speed;

/**
 * Measure the training pipeline (decode, crop, flip, normalize) alone: `rounds` rounds (0: 10) of
 * about `round_s` seconds (0: 0.5) after a warm-up round. Options as for training.
 */
TD_API TD_CHECKED td_status td_data_benchmark(const td_dataset *ds, const td_loader_opts *opts,
                                              int rounds, double round_s, td_data_speed *out);

#ifdef __cplusplus
}
#endif
#endif
