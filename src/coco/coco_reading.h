/*
 * coco/coco_reading.h -- shared by readers of annotations (coco.c, data/record_boxes.c) and
 * coco_check.c, which checks them
 *
 * Reading keeps each entry that is valid by itself.  An annotation may refer to entries later in
 * the file, so references are resolved after reading.
 */
#ifndef TD_COCO_COCO_READING_H
#define TD_COCO_COCO_READING_H

#include "coco/coco.h"

/** The position of an entry in the file. */
typedef struct {
    int64_t byte, line;
    const char *file; /* one of several, which have no lines; NULL: the reading's */
} td_coco_place;

/** An annotation as read: its `image` and `category` are not set yet. */
typedef struct {
    td_coco_annotation a;
    int64_t image_id, category_id;
    td_coco_place at;
} td_coco_raw;

typedef struct {
    td_coco *out;
    const char *what;
    td_coco_opts opts;
    size_t cap_bad;

    td_coco_place *image_at; /* [out->n_images] */
    size_t cap_images, cap_image_at;
    td_coco_place *category_at; /* [out->n_categories] */
    size_t cap_categories, cap_category_at;
    td_coco_raw *raw; /* [n_raw] */
    size_t n_raw, cap_raw;
} td_coco_reading;

/** The subject of a message; `number` counts from 0 in its section, if there is no id. */
typedef struct {
    const char *kind; /* "annotation" */
    int64_t id;       /* -1: none */
    int64_t number;
    td_coco_place at;
} td_coco_subject;

/** List a bad entry with a sentence "its box is ...".  TD_EFORMAT with is_strict. */
TD_CHECKED td_status td_coco_list(td_coco_reading *r, const td_coco_subject *about, const char *fmt,
                                  ...) TD_PRINTF(3, 4);

/** Keep an entry that is valid by itself.  TD_ELIMIT, TD_ENOMEM. */
TD_CHECKED td_status td_coco_keep_image(td_coco_reading *r, const td_coco_image *image,
                                        td_coco_place at);
TD_CHECKED td_status td_coco_keep_category(td_coco_reading *r, int64_t id, const char *name,
                                           td_coco_place at);
TD_CHECKED td_status td_coco_keep_annotation(td_coco_reading *r, const td_coco_raw *x);

/** After reading: drop invalid entries and fill `out`. */
TD_CHECKED td_status td_coco_resolve(td_coco_reading *r);

/** Release everything, `out` too unless it was taken. */
void td_coco_reading_release(td_coco_reading *r);

#endif
