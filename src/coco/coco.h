/*
 * coco/coco.h -- reads COCO instance annotations: images, categories and boxes
 *
 *     {"images":      [{"id": 9, "file_name": "a.jpg", "width": 640, "height": 480}, ...],
 *      "categories":  [{"id": 1, "name": "cat"}, ...],
 *      "annotations": [{"id": 5, "image_id": 9, "category_id": 1, "bbox": [x, y, w, h],
 *                       "area": 812.5, "iscrowd": 0}, ...]}
 *
 * The sections come in any order; other members (polygons, licences, ...) are skipped and not
 * stored, so memory grows with the boxes and not with the file: some 100 bytes per box.
 *
 * An invalid image, category or annotation is dropped and listed with a sentence; an invalid file
 * is an error.  Source: cocodataset.org, "Data format".
 */
#ifndef TD_COCO_COCO_H
#define TD_COCO_COCO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { TD_COCO_LISTED_MAX = 10000, TD_COCO_SIDE_MAX = 1000000 };

typedef struct {
    int64_t id;
    const char *file_name; /* relative, below the folder of images */
    int width, height;     /* pixels, 1 .. 1,000,000 */
} td_coco_image;

typedef struct {
    int64_t id;
    const char *name; /* unique: a second "cat" with id 7 becomes "cat (7)" */
} td_coco_category;

typedef struct {
    int64_t id;
    double x, y, width, height; /* pixels; x, y: the upper left corner */
    double area;                /* pixels; width * height if the file has none */
    int32_t image, category;    /* indexes below */
    bool is_crowd;
} td_coco_annotation;

/** The reason why an entry was dropped. */
typedef struct {
    const char *text; /* "annotation 17: its box is 0 x 12 pixels (byte 10233, line 1)" */
    int64_t id;       /* -1: it has none */
    int64_t byte;
} td_coco_bad;

typedef struct {
    td_coco_image *images; /* [n_images], in the order of the file */
    size_t n_images;
    td_coco_category *categories; /* [n_categories], by id */
    size_t n_categories;
    td_coco_annotation *annotations; /* [n_annotations], by image, then in the order of the file */
    size_t n_annotations;
    size_t *first; /* [n_images + 1]: annotations of image i are first[i] .. first[i + 1] - 1 */

    td_coco_bad *bad; /* [n_listed] in the order of the file, TD_COCO_LISTED_MAX at most */
    size_t n_listed;
    int64_t n_bad; /* including those not listed */
    td_arena arena;
} td_coco;

typedef struct {
    bool is_strict; /* the first bad entry is an error */
    /* Like pycocotools: keep boxes without area or outside their image; an image needs only an id
       (size 0, name ""), and so does a category, whose name is its id. */
    bool keeps_invalid;
} td_coco_opts;

/**
 * Read a file.
 *
 *   TD_ENOTFOUND, TD_EIO  no such file, unreadable
 *   TD_EFORMAT  not JSON, truncated; no list of images, categories or annotations, or two of one
 *               kind; no valid image or category; with is_strict, the first bad entry
 *   TD_ELIMIT   nested deeper than 64, names of more than 1 MiB, more than 2^31 - 1 entries of one
 *               kind
 *   TD_ENOMEM
 */
TD_CHECKED td_status td_coco_read(const char *path, const td_coco_opts *opts, td_coco **out);

/** The same from memory; `what` names it in messages. */
TD_CHECKED td_status td_coco_parse(const void *bytes, size_t n_bytes, const char *what,
                                   const td_coco_opts *opts, td_coco **out);

/** `c` may be NULL. */
void td_coco_free(td_coco *c);

#endif
