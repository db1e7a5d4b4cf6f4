/*
 * tandem/dataset.h -- data sets: a folder of images, a pack, tensors or synthetic samples
 */
#ifndef TD_DATASET_H
#define TD_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct td_dataset td_dataset;

typedef enum {
    TD_DATA_FOLDER,    /* <path>/<split>/<class>/.../<image>; or a pack made of that */
    TD_DATA_SYNTHETIC, /* one fixed batch of normal noise with random labels, made once */
    TD_DATA_TENSORS,   /* a .safetensors: images f32 [N,C,H,W], normalized; labels i64 [N] */
    TD_DATA_DALI_CPU,  /* a folder; jobs use DALI's crop and resize rules with it */
    TD_DATA_DALI_GPU,  /* the same, computed on the CPU */
    TD_DATA_LIST,      /* a CSV, TSV or text file of images and labels */
    TD_DATA_SHARDS,    /* WebDataset: tar files with images and labels */
    TD_DATA_RECORDS    /* TFRecords of images with classes or boxes */
} td_data_backend;

/**
 * By name: folder pytorch synthetic syntetic tensors dali-cpu dali-gpu list webdataset
 * tfrecord. TD_EUSAGE lists them.
 * The backend of an open data set is one of the first three.
 */
TD_API TD_CHECKED td_status td_data_backend_parse(const char *name, td_data_backend *out);

/** All zero but `path` is a folder whose sub-folders are the classes. */
typedef struct {
    const char *path; /* the folder, pack or file; unused by synthetic */
    td_data_backend backend;
    const char *split;     /* "train" or "val": use <path>/<split>; NULL: `path` itself */
    bool allow_root;       /* no <path>/<split>, but `path` holds class folders: use `path` */
    bool allow_outside;    /* a list: it may name files outside of its folder */
    int n_classes;         /* synthetic: 0 means 1000; tensors: 0 means the largest label + 1 */
    int64_t n_images;      /* synthetic: images in an epoch; 0 means 1024 */
    bool labels_from_zero; /* TFRecords: the first class is 0 and not 1 */
    char label_delimiter;  /* a list: an image has any number of labels, with this between them; 0:
                              one, or a column of 0 and 1 for each class */

    /* for detectors: images with boxes instead of classes */
    bool has_boxes; /* find the annotations in `path`; tensors, synthetic: samples with boxes */
    const char *annotations; /* COCO instances as JSON, images below `path`; implies has_boxes */
    bool keep_ids;           /* class = category id; otherwise 1 .. K in order of category ids */
    bool strict;             /* a bad annotation is an error; otherwise it is listed and skipped */
    bool skip_empty;         /* skip images without a box, as SSD300 does in training */
} td_dataset_opts;

/** What --list-delimiter names: one character; NULL: 0.  TD_EUSAGE: another text, or a quote. */
TD_API TD_CHECKED td_status td_list_delimiter(const char *text, char *out);

/**
 * Open a data set. Nothing is decoded. Folder: classes are the sub-folders in byte order; samples
 * are the files below one whose names end in .jpg .jpeg .png .webp .tif .tiff .gif .bmp in any
 * case, and others that begin like one of these (content decides the decoder). Names starting with
 * '.' are skipped. A pack (td_dataset_pack) can be used in place of a folder and gives the same
 * samples.
 *
 * A file whose name ends in .csv, .tsv or .txt is a list of images and labels, with a column of
 * splits or without (docs/formats/datasets.md). A tar file, a pattern such as
 * "train-{000..009}.tar", or a folder of tar files is a data set of shards (WebDataset); a TFRecord
 * file, a pattern such as "train-*", or a folder of such files is a data set of TFRecords.
 *
 * With boxes, the samples are the images listed in the annotation file, in its order. If
 * `annotations` is NULL, the file is <path>/annotations/instances_<split>2017.json,
 * .../instances_<split>.json, <path>/<split>/_annotations.coco.json or <path>/annotations.json
 * (docs/formats/annotations.md has all); images are in <path>/<split>2017, <path>/<split>,
 * <path>/images, <path> or its folder.
 *
 *   TD_EARG      no path
 *   TD_ENOTFOUND path or split is absent; the message names the folders that are there.  No
 *                annotation file, or none of its first images is there
 *   TD_EFORMAT   no class, one class, a class without an image, `images` or `labels` malformed;
 *                annotations that are no JSON, cut off, or without what they must have; with
 *                `strict`, a bad one
 *   TD_ELIMIT    folders nested deeper than 32 (a link that points upward)
 *   TD_EUNSUPPORTED  a pack of another version
 *   TD_EUSAGE    `label_delimiter` or `allow_outside`, and `path` is no list; `label_delimiter` for
 *                a list without a column of labels; `labels_from_zero`, and `path` is no TFRecords
 *                with classes
 */
TD_API TD_CHECKED td_status td_dataset_open(const td_dataset_opts *opts, td_dataset **out);

/**
 * A data set of single files, labels -1, no classes; the paths are copied. For prediction. A folder
 * means all images below it (names as in td_dataset_open), sorted by folder, then by name.
 *   TD_EARG     no paths
 *   TD_EFORMAT  a folder without an image
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
/** Has an image any number of classes?  Then td_dataset_label is -1. */
TD_API bool td_dataset_is_multi_label(const td_dataset *ds);
TD_API int64_t td_dataset_label(const td_dataset *ds, int64_t sample);

/** The file of a sample; in a pack, its place there; NULL when it has none (synthetic, tensors). */
TD_API const char *td_dataset_path(const td_dataset *ds, int64_t sample);

/** The folder or file it was read from; "synthetic" for synthetic. */
TD_API const char *td_dataset_root(const td_dataset *ds);
TD_API td_data_backend td_dataset_backend(const td_dataset *ds);

/** Channels, height and width of all images; 0 where the loader decides (folder, synthetic). */
TD_API void td_dataset_shape(const td_dataset *ds, int *channels, int *height, int *width);

/**
 * Number the classes in the order of `names` (of a training set or checkpoint) and change the
 * labels accordingly. With `allow_subset` the data set may have fewer classes. A data set without
 * class names may have at most n.
 *   TD_EFORMAT   a class is missing or unknown; the message names the first
 */
TD_API TD_CHECKED td_status td_dataset_use_classes(td_dataset *ds, int n, const char *const *names,
                                                   bool allow_subset);

/* --- boxes ------------------------------------------------------------------------------------ */

/** One annotated object of an image. */
typedef struct {
    double x, y, width, height; /* pixels, as annotated; x, y: the upper left corner */
    double area; /* pixels, as annotated: area of the outline; without one, of the box */
    int64_t id;  /* annotation id */
    int label;   /* class, 1 .. td_dataset_classes; class_name(label - 1) */
    bool is_crowd;
} td_annotation;

/** An image in an annotation file. In `tensors` and `synthetic` the id is the row. */
typedef struct {
    int64_t id;
    int width, height; /* size in pixels that the annotations refer to */
} td_annotated;

/** An annotation, image or category that is not used, and the reason. */
typedef struct {
    const char *text; /* "annotation 17: box is 0 wide (byte 10233, line 1)" */
    int64_t id;       /* id of the annotation, image or category; -1: none */
    int64_t byte;     /* byte offset in the file at which it begins */
} td_bad_annotation;

/**
 * Whether the data set has boxes (opened with has_boxes, from annotations or a pack with boxes).
 */
TD_API bool td_dataset_has_boxes(const td_dataset *ds);

/**
 * The annotation file, or the pack or tensors file that has the annotations; NULL without boxes.
 */
TD_API const char *td_dataset_annotation_file(const td_dataset *ds);

/** The objects of an image in the order of the file, *n of them; lent. */
TD_API const td_annotation *td_dataset_annotations(const td_dataset *ds, int64_t sample, int *n);
TD_API td_annotated td_dataset_annotated(const td_dataset *ds, int64_t sample);

/** The category id of class `label`, 1 .. td_dataset_classes; -1 if this data set has none. */
TD_API int64_t td_dataset_category(const td_dataset *ds, int label);

/**
 * The skipped annotations, in the order of the file. Returns their number; *out has the first
 * *n_listed of them (at most 10,000).
 */
TD_API int64_t td_dataset_bad_annotations(const td_dataset *ds, const td_bad_annotation **out,
                                          int64_t *n_listed);

/**
 * Files that are no samples: those next to the class folders, and those in them that are no
 * images by their first bytes, nor named as such. Returns their number; *out has the first
 * *n_listed paths (at most 20).
 */
TD_API int64_t td_dataset_other_files(const td_dataset *ds, const char *const **out, int *n_listed);

/**
 * Whether td_dataset_open with has_boxes finds annotations (of this split) in the folder or pack.
 */
TD_API bool td_dataset_is_annotated(const char *path, const char *split);

#ifdef __cplusplus
}
#endif
#endif
