/*
 * tandem/data.h -- data sets and loaders: a folder of pictures in, normalised batches out
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
#ifndef TD_DATA_H
#define TD_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_dataset td_dataset;
typedef struct td_loader td_loader;

/* --- data sets -------------------------------------------------------------------------------- */

typedef enum {
    TD_DATA_FOLDER,    /* <path>/<split>/<class>/.../<picture>; or a pack made of that */
    TD_DATA_SYNTHETIC, /* one fixed batch of normal noise with random labels, made once */
    TD_DATA_TENSORS,   /* a .safetensors: images f32 [N,C,H,W], normalised; labels i64 [N] */
    TD_DATA_DALI_CPU,  /* a folder; jobs take DALI's rules with it */
    TD_DATA_DALI_GPU   /* the same: there is no GPU to do it */
} td_data_backend;

/**
 * By name: folder pytorch synthetic syntetic tensors dali-cpu dali-gpu.  TD_EUSAGE lists them.  The
 * back end of an open data set is one of the first three.
 */
TD_API TD_CHECKED td_status td_data_backend_parse(const char *name, td_data_backend *out);

/** All zero but `path` is a folder whose sub-folders are the classes. */
typedef struct {
    const char *path; /* the folder, pack or file; unused by synthetic */
    td_data_backend backend;
    const char *split; /* "train" or "val": use <path>/<split>; NULL: `path` itself */
    bool allow_root;   /* no <path>/<split>, but `path` holds class folders: use `path` */
    int n_classes;     /* synthetic: 0 means 1000; tensors: 0 means the largest label + 1 */
    int64_t n_images;  /* synthetic: pictures in an epoch; 0 means 1024 */

    /* pictures with boxes in place of classes: for detectors */
    bool has_boxes;          /* find the annotations in `path`; tensors, synthetic: with boxes */
    const char *annotations; /* COCO instances as JSON, pictures below `path`; implies has_boxes */
    bool keep_ids;           /* class = category id; else categories in order of id, 1 .. K */
    bool strict;             /* a bad annotation is an error; else it is listed and left out */
    bool skip_empty;         /* leave out pictures without a box, as SSD300 does in training */
} td_dataset_opts;

/**
 * Open a data set.  Nothing is decoded.  Folder: classes are the sub-folders in byte order; samples
 * are the files below one whose names end in .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp in any
 * case (torchvision's list and order; content decides the decoder).  Names starting with '.' are
 * skipped.  A pack (td_dataset_pack) is taken wherever a folder is, and gives the same samples.
 *
 * With boxes: the pictures that the annotation file names, in its order.  Without `annotations`
 * it is <path>/annotations/instances_<split>2017.json, .../instances_<split>.json,
 * <path>/<split>/_annotations.coco.json or <path>/annotations.json (docs/formats.md has all); the
 * pictures lie in <path>/<split>2017, <path>/<split>, <path>/images, <path> or beside the file.
 *
 *   TD_EARG      no path
 *   TD_ENOTFOUND path or split is absent; the message names the folders that are there.  No
 *                annotation file, or none of its first pictures is there
 *   TD_EFORMAT   no class, one class, a class without a picture, `images` or `labels` malformed;
 *                annotations that are no JSON, cut off, or without what they must have; with
 *                `strict`, a bad one
 *   TD_ELIMIT    folders nested deeper than 32 (a link that points upward)
 *   TD_EUNSUPPORTED  a pack of another version
 */
TD_API TD_CHECKED td_status td_dataset_open(const td_dataset_opts *opts, td_dataset **out);

/**
 * A data set of single files, labels -1, no classes; the paths are copied.  For prediction.  A
 * folder stands for the pictures below it (names as in td_dataset_open), by folder, then by name.
 *   TD_EARG     no paths
 *   TD_EFORMAT  a folder without a picture
 *   TD_ELIMIT   folders nested deeper than 32
 */
TD_API TD_CHECKED td_status td_dataset_from_files(const char *const *paths, int64_t n,
                                                  td_dataset **out);

/** Release it.  NULL is fine. */
TD_API void td_dataset_free(td_dataset *ds);

TD_API int64_t td_dataset_count(const td_dataset *ds);
TD_API int td_dataset_classes(const td_dataset *ds);

/** The name of class `i` ("0", "1", ... where there are none); lent until td_dataset_free. */
TD_API const char *td_dataset_class_name(const td_dataset *ds, int i);
TD_API int64_t td_dataset_label(const td_dataset *ds, int64_t sample);

/** The file of a sample; in a pack, its place there; NULL when it has none (synthetic, tensors). */
TD_API const char *td_dataset_path(const td_dataset *ds, int64_t sample);

/** The folder or file it was read from; "synthetic" for synthetic. */
TD_API const char *td_dataset_root(const td_dataset *ds);
TD_API td_data_backend td_dataset_backend(const td_dataset *ds);

/** Channels, height and width of all pictures; 0 where the loader decides (folder, synthetic). */
TD_API void td_dataset_shape(const td_dataset *ds, int *channels, int *height, int *width);

/**
 * Number the classes as `names` does (a training set's, or a checkpoint's); labels follow.  With
 * `allow_subset` the data set may hold fewer.  One without class names may have n at most.
 *   TD_EFORMAT   a class is missing or unknown; the message names the first
 */
TD_API TD_CHECKED td_status td_dataset_use_classes(td_dataset *ds, int n, const char *const *names,
                                                   bool allow_subset);

/* --- boxes ------------------------------------------------------------------------------------ */

/** One annotated object of a picture. */
typedef struct {
    double x, y, width, height; /* pixels, as annotated; x, y: the upper left corner */
    double area;                /* pixels, as annotated: of the outline; without one, of the box */
    int64_t id;                 /* of the annotation */
    int label;                  /* class, 1 .. td_dataset_classes; class_name(label - 1) */
    bool is_crowd;
} td_annotation;

/** What an annotation file says of a picture.  In `tensors` and `synthetic` the id is the row. */
typedef struct {
    int64_t id;
    int width, height; /* pixels that the annotations are in */
} td_annotated;

/** An annotation, picture or category that is not used, and why: one clear sentence. */
typedef struct {
    const char *text; /* "annotation 17: box is 0 wide (byte 10233, line 1)" */
    int64_t id;       /* of the annotation, picture or category; -1: it has none */
    int64_t byte;     /* of the file, where it begins */
} td_bad_annotation;

/** Does it hold boxes (opened with has_boxes, from annotations or a pack of them)? */
TD_API bool td_dataset_has_boxes(const td_dataset *ds);

/** The annotation file, or what was found instead of one; NULL without boxes. */
TD_API const char *td_dataset_annotation_file(const td_dataset *ds);

/** The objects of a picture in the order of the file, *n of them; lent. */
TD_API const td_annotation *td_dataset_annotations(const td_dataset *ds, int64_t sample, int *n);
TD_API td_annotated td_dataset_annotated(const td_dataset *ds, int64_t sample);

/** The category id of class `label`, 1 .. td_dataset_classes; -1 where this data set has none. */
TD_API int64_t td_dataset_category(const td_dataset *ds, int label);

/**
 * What was left out, in the order of the file; returns how many there are, of which *n_listed are
 * in *out (10,000 at most).
 */
TD_API int64_t td_dataset_bad_annotations(const td_dataset *ds, const td_bad_annotation **out,
                                          int64_t *n_listed);

/**
 * Files in the class folders that are no images: neither JPEG nor PNG, by their first bytes, nor
 * named as such.  Returns how many there are, of which *n_listed paths are in *out (20 at most).
 */
TD_API int64_t td_dataset_other_files(const td_dataset *ds, const char *const **out, int *n_listed);

/** Would td_dataset_open with has_boxes find annotations (of this split) in folder or pack? */
TD_API bool td_dataset_is_annotated(const char *path, const char *split);

/* --- loaders ---------------------------------------------------------------------------------- */

/* With antialiasing bilinear is PIL's, a triangle as wide as what becomes one pixel; triangular is
   that everywhere, where crop rules or options turn antialiasing off for the others. */
typedef enum {
    TD_INTERPOLATE_BILINEAR,
    TD_INTERPOLATE_BICUBIC,
    TD_INTERPOLATE_TRIANGULAR
} td_interpolation;

/** Whose random crops, resizing and centre crops; docs/formats.md has them side by side. */
typedef enum {
    TD_RULES_TORCHVISION, /* antialiased, as PIL */
    TD_RULES_DALI,        /* 100 tries; not antialiased */
    TD_RULES_TF           /* TensorFlow 1: area from 10 %, bilinear without half-pixel shift */
} td_crop_rules;

/** Means and deviations: torchvision's, or those of TensorFlow's ResNet. */
typedef enum { TD_NORMALIZE_TORCH, TD_NORMALIZE_TF } td_normalization;

/** Order and shares of the ranks in training; docs/formats.md. */
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
    bool ignore_orientation; /* leave EXIF-rotated pictures as stored, as torchvision does */
    bool fast_decode;        /* training: pixels may differ a little from torchvision's, see docs */
    int workers;             /* threads; 0 means one per CPU */
    int prefetch;            /* batches prepared ahead of the lent one; 0 means 2 */
    int nice;                /* lower the workers' priority by so many steps */
    uint64_t seed;
    int64_t start_epoch; /* the first epoch, counted from 0 ... */
    int64_t start_batch; /* ... and the first batch of it: to resume in its middle */
    int rank, world;     /* this rank of so many; world 0 means 1 */
    double max_bad;      /* share that may be bad; 0: 0.01, at least one picture; negative: none */

    /* detectors: how pictures become rows is theirs, not of the crop rules above */
    int detector;      /* td_arch_info's: whose pictures and targets to make; 0: none.  Training
                          wants boxes; without them, no anchor has a truth */
    bool color_jitter; /* training: hue, saturation, contrast, brightness; SSD300 has its own */
} td_loader_opts;

/**
 * One batch.  Batch i of an epoch holds rows [(i W + r) B, (i W + r + 1) B) of the epoch's order,
 * for rank r of W.  Lent until the next call on its loader.  n is batch_size; less in evaluation,
 * even 0, at the end of the epoch and where bad pictures were left out.
 */
typedef struct {
    const float *images;          /* [n, channels, height, width], normalised */
    const int64_t *labels;        /* [n] class, 0 .. classes - 1; -1 where unknown */
    const int64_t *samples;       /* [n] index in the data set of the picture that is there */
    const int64_t *anchor_labels; /* detectors: [n, n_anchors] class 1 .. K, 0 none; else NULL */
    const float *anchor_targets;  /* detectors: [n, n_anchors, 4] codes, 0 where none; else NULL */
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
 * A picture that cannot be read is noted (td_loader_bad).  In training it is replaced by the
 * next good one of the data set (index + 1, + 2, ...) with that one's label; in evaluation it is
 * left out, so that counts stay true.
 *   TD_EFORMAT  more bad pictures than max_bad allows; the message has the count and a reason.  In
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
} td_bad_picture;

/** Bad pictures met so far, each once, in the order of the batches that wanted them; lent until the
    next call on the loader. */
TD_API int64_t td_loader_bad(const td_loader *ld, const td_bad_picture **out);

/** How many there may be; td_loader_next fails where one loader alone met more. */
TD_API int64_t td_loader_bad_allowed(const td_loader *ld);

/* --- whole data sets -------------------------------------------------------------------------- */

typedef struct {
    int threads;              /* 0 means one per CPU */
    const char *dump_tensors; /* a .safetensors to write: images f32 [N,3,S,S] as evaluation sees
                                 them (with boxes: SSD320's), labels i64 [N] (boxes, labels,
                                 n_boxes); bad pictures are left out.  NULL: none */
    int image_size;           /* S; 0 means 224, with boxes 320 */
    int eval_padding;         /* as in td_loader_opts */
    td_interpolation interpolation;
    bool ignore_orientation;
} td_check_opts;

typedef struct {
    int min, median, max;
} td_extent;

enum { TD_BOX_SIDES = 12 };

typedef struct {
    int64_t n_pictures, n_good, n_bad;
    int64_t n_jpeg, n_png, n_gray, n_cmyk, n_progressive, n_rotated; /* good ones; rotated: EXIF */
    td_extent width, height; /* pixels, as stored, of the good ones */
    int n_classes;
    const int64_t *class_good; /* [n_classes] */
    const int64_t *class_bad;  /* [n_classes] */
    const td_bad_picture *bad; /* [n_bad], in the order of the data set */

    /* with boxes; what the annotation file has of no use: td_dataset_bad_annotations */
    int64_t n_boxes, n_crowds, n_empty; /* boxes, crowds among them; pictures without a box */
    const int64_t *class_boxes;         /* [n_classes] */
    int64_t side_boxes[TD_BOX_SIDES];   /* [i]: sqrt(width * height) in 2^i .. 2^(i+1) pixels; the
                                           first and the last take what is beyond */
    int64_t n_other_size;               /* good pictures of another size than is annotated ... */
    const td_bad_picture *other_size;   /* ... and what both sizes are, [n_other_size] */
    double seconds;
} td_dataset_report;

/**
 * Decode every picture of a folder data set, and look at its boxes.  Bad ones are results, not
 * errors.  You free *out.
 */
TD_API TD_CHECKED td_status td_dataset_check(const td_dataset *ds, const td_check_opts *opts,
                                             td_dataset_report **out);
TD_API void td_dataset_report_free(td_dataset_report *r);

/** A set to draw; all zero means 8 classes, 1600 + 400 pictures of 64 x 64. */
typedef struct {
    int classes;        /* 2 .. the kinds there are; their names are the class names */
    int64_t train, val; /* pictures in all, spread evenly over the classes */
    int size;           /* pixels, 16 .. 4096 */
    int quality;        /* JPEG, 1 .. 100; 0 means 90 */
    uint64_t seed;
    int threads; /* 0 means one per CPU */
    bool boxes;  /* several objects a picture and a COCO file of each split: for detectors */
} td_draw_opts;

/**
 * Write <path>/{train,val}/<kind>/NNNNN.jpg: shapes, textures, letters.  The same options give the
 * same bytes.  With `boxes`: <path>/{train,val}/NNNNN.jpg of 1 .. 4 shapes, and
 * <path>/annotations/instances_{train,val}.json; 0 then means 3 classes, 800 + 100 pictures of 320.
 *   TD_EARG  out of range, or `path` is there and not an empty folder
 */
TD_API TD_CHECKED td_status td_dataset_draw(const char *path, const td_draw_opts *opts);

/** How to pack; all zero means every split there is, pictures untouched. */
typedef struct {
    const char *split;       /* only this one; NULL: train and val, or the folder itself */
    const char *annotations; /* pictures with boxes: of this file, instead of those found */
    int short_side; /* shrink larger pictures to it, antialiased bilinear; 0: touch nothing */
    int quality;    /* of the JPEG that those become; 0 means 90 */
    int threads;    /* for shrinking; 0 means one per CPU */
} td_pack_opts;

typedef struct {
    int64_t n_pictures, n_bytes; /* in the pack; of the pack */
    int64_t n_shrunk;
    int64_t n_unreadable; /* wanted shrinking but cannot be decoded: packed as they are */
    uint64_t digest;
    double seconds;
} td_pack_result;

/**
 * Put all pictures of the folder (or pack) `path` into the one file `out`, which appears whole or
 * not at all.  Where there are annotations (td_dataset_is_annotated) the boxes go with them.  Where
 * pictures are untouched, training on it is training on the folder, bit for bit.  Shrunk ones are
 * turned upright first.  SIGINT, SIGTERM and SIGUSR1 are caught.
 *
 *   as td_dataset_open, for `path`
 *   TD_EARG      an option out of range, or `out` is `path`
 *   TD_EIO       a picture cannot be read, `out` cannot be written
 *   TD_ENOTFOUND, TD_ELIMIT  a picture is gone, or larger than 256 MiB
 *   TD_ESTOPPED  a signal came
 */
TD_API TD_CHECKED td_status td_dataset_pack(const char *path, const char *out,
                                            const td_pack_opts *opts, td_pack_result *result);

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
