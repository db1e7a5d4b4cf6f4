/*
 * tandem/dataset_tools.h -- check, draw, measure, pack and unpack whole data sets
 */
#ifndef TD_DATASET_TOOLS_H
#define TD_DATASET_TOOLS_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int threads;              /* 0 means one per CPU */
    const char *dump_tensors; /* a .safetensors to write: images f32 [N,C,S,S], preprocessed for
                                 evaluation (with boxes: SSD320's), labels i64 [N], with
                                 several labels an image f32 [N,K] (boxes, labels, n_boxes); bad
                                 images are skipped. NULL: none */
    int channels;             /* C: 3 (RGB) or 1 (gray); 0 means 3 */
    int image_size;           /* S; 0 means 224, with boxes 320 */
    int eval_padding;         /* as in td_loader_opts */
    td_interpolation interpolation;
    bool stored_orientation;
} td_check_opts;

typedef struct {
    int min, max;
    double median; /* mean of the middle two if their number is even */
} td_extent;

enum { TD_BOX_SIDES = 12 };

typedef struct {
    int64_t n_images, n_good, n_bad;
    int64_t n_jpeg, n_png, n_gray, n_cmyk, n_progressive, n_rotated; /* good ones; rotated: EXIF */
    int64_t n_webp, n_tiff, n_gif, n_bmp;                            /* good ones */
    td_extent width, height; /* pixels, as stored, of the good ones */
    int n_classes;
    bool is_multi_label;       /* an image counts for each of its classes ... */
    int64_t n_unlabeled;       /* ... and these have none */
    const int64_t *class_good; /* [n_classes] */
    const int64_t *class_bad;  /* [n_classes] */
    const td_bad_image *bad;   /* [n_bad], in the order of the data set */

    /* with boxes; skipped annotations: td_dataset_bad_annotations */
    int64_t n_boxes, n_crowds, n_empty; /* boxes, crowds among them; images without a box */
    const int64_t *class_boxes;         /* [n_classes] */
    int64_t side_boxes[TD_BOX_SIDES];   /* [i]: sqrt(width * height) in 2^i .. 2^(i+1) pixels;
                                           the first and the last include smaller and larger
                                           boxes */
    int64_t n_other_size;           /* good images whose size differs from the annotated one ... */
    const td_bad_image *other_size; /* ... with both sizes as the reason, [n_other_size] */
    double seconds;
} td_dataset_report;

/**
 * Decode every image of a folder data set and check its boxes. Unreadable images are results, not
 * errors. The caller frees *out.
 */
TD_API TD_CHECKED td_status td_dataset_check(const td_dataset *ds, const td_check_opts *opts,
                                             td_dataset_report **out);
TD_API void td_dataset_report_free(td_dataset_report *r);

typedef struct {
    int threads;    /* 0 means one per CPU */
    int channels;   /* 3, or 1: of the gray of the pixels; 0 means 3 */
    int image_size; /* side of the center crop that evaluation takes; 0: whole images, in which
                       case large images have more weight */
    td_interpolation interpolation;
    bool stored_orientation;
} td_stats_opts;

typedef struct {
    double mean[3], std[3];            /* [red, green, blue] or [gray]; pixel values are 0 to 1 */
    int64_t n_images, n_bad, n_pixels; /* n_bad: unreadable images, which do not count */
} td_pixel_stats;

/**
 * The mean and deviation of all pixels of a data set of image files; the same for any number of
 * threads.  TD_EFORMAT: no image can be read.
 */
TD_API TD_CHECKED td_status td_dataset_pixel_stats(const td_dataset *ds, const td_stats_opts *opts,
                                                   td_pixel_stats *out);

/** A data set to draw; all zero means 8 classes, 1600 + 400 images of 64 x 64. */
typedef struct {
    int classes;        /* 2 .. number of kinds; the kinds' names are the class names */
    int64_t train, val; /* total numbers of images, divided evenly among the classes */
    int size;           /* pixels, 16 .. 4096 */
    int quality;        /* JPEG, 1 .. 100; 0 means 90 */
    uint64_t seed;
    int threads; /* 0 means one per CPU */
    bool boxes;  /* for detectors: several objects per image, and a COCO file per split */
} td_draw_opts;

/**
 * Write <path>/{train,val}/<kind>/NNNNN.jpg: shapes, textures, letters.  The same options give the
 * same bytes.  With `boxes`: <path>/{train,val}/NNNNN.jpg of 1 .. 4 shapes, and
 * <path>/annotations/instances_{train,val}.json; 0 then means 3 classes, 800 + 100 images of 320.
 *   TD_EARG  an option is out of range, or `path` exists and is not an empty folder
 */
TD_API TD_CHECKED td_status td_dataset_draw(const char *path, const td_draw_opts *opts);

/** How to pack; all zero means all existing splits, images unchanged. */
typedef struct {
    const char *split;       /* pack only this split; NULL: train and val, or the folder itself */
    const char *annotations; /* annotation file to use instead of the one found */
    int short_side; /* shrink larger images to this shorter side, antialiased bilinear; 0: none */
    int quality;    /* JPEG quality of shrunk images; 0 means 90 */
    int threads;    /* for shrinking; 0 means one per CPU */
    bool overwrite; /* a file `out` is replaced; else it is TD_EARG */
    bool allow_outside, labels_from_zero; /* as in td_dataset_opts, like the next */
    char label_delimiter;
} td_pack_opts;

typedef struct {
    int64_t n_images, n_bytes; /* number of images; size of the pack */
    int64_t n_shrunk;
    int64_t n_unreadable; /* images to be shrunk that cannot be decoded: packed unchanged */
    uint64_t digest;
    double seconds;
} td_pack_result;

/**
 * Put all images of a data set of any kind (a folder, a pack, tar files, TFRecords, a list) into
 * the one file `out`, which is written completely or not at all; those of lists, tar files and
 * TFRecords class after class, with names as td_dataset_unpack would give. If there are
 * annotations (td_dataset_is_annotated) the boxes are included. If images are unchanged, training
 * on the pack gives the same bits as training on the folder. Shrunk images are rotated by their
 * EXIF orientation first. SIGINT, SIGTERM and SIGUSR1 are caught.
 *
 *   as td_dataset_open, for `path`
 *   TD_EARG      an option out of range, or `out` is `path`, or a file and not to be overwritten
 *   TD_EIO       an image cannot be read, `out` cannot be written
 *   TD_ENOTFOUND, TD_ELIMIT  an image was deleted, or is larger than 256 MiB
 *   TD_EUNSUPPORTED  several labels for an image; a class without images
 *   TD_ESTOPPED  stopped by a signal
 */
TD_API TD_CHECKED td_status td_dataset_pack(const char *path, const char *out,
                                            const td_pack_opts *opts, td_pack_result *result);

/** How to unpack; all zero means all existing splits. */
typedef struct {
    const char *split;       /* only this split; NULL: train and val, or all if there are none */
    const char *annotations; /* annotation file to use instead of the one found */
    bool allow_outside, labels_from_zero; /* as in td_dataset_opts, like the next */
    char label_delimiter;
} td_unpack_opts;

typedef struct {
    int64_t n_images, n_bytes;
} td_unpack_result;

/**
 * Write the images of a data set of any kind (a pack, tar files, TFRecords, a list) unchanged to
 * out/SPLIT/CLASS/NAME or, with boxes, to out/SPLIT/NAME and
 * out/annotations/instances_SPLIT.json. With several labels for an image: to out/SPLIT/NAME and the
 * list out/labels.csv. Classes whose names do not sort in their order have
 * numbers as folders; out/classes.txt then has the names. SIGINT, SIGTERM and SIGUSR1 are caught.
 *
 *   as td_dataset_open, for `path`
 *   TD_EARG      `out` is not a new or empty folder
 *   TD_EIO, TD_EFORMAT  an image cannot be read, or not written
 *   TD_EUNSUPPORTED  a class whose name cannot be that of a column, or too many for columns
 *   TD_ESTOPPED  stopped by a signal; the folder is incomplete
 */
TD_API TD_CHECKED td_status td_dataset_unpack(const char *path, const char *out,
                                              const td_unpack_opts *opts, td_unpack_result *result);

#ifdef __cplusplus
}
#endif
#endif
