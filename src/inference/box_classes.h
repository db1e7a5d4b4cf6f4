/*
 * inference/box_classes.h -- a detector's classes, from its weight file
 *
 *     td_box_classes c;
 *     TD_TRY(td_box_classes_read(weights, path, 80, NULL, &c));
 *     td_found_box b = td_box_classes_found(&c, &detection, width, height, room);
 *     td_box_classes_release(&c);
 */
#ifndef TD_INFERENCE_BOX_CLASSES_H
#define TD_INFERENCE_BOX_CLASSES_H

#include "boxes/nms.h"
#include "io/safetensors.h"
#include "tandem/inference.h"

/** Labels are 1 .. n; the file may name fewer classes, or none.  All zero is empty. */
typedef struct {
    const char *path; /* the weight file's, borrowed, for messages */
    int n;
    int n_names, n_categories;
    char **names;
    int64_t *categories; /* ids in the annotations of the training data */
} td_box_classes;

/**
 * Read the file's n classes; `classes` (--classes FILE, class_names.h), if not NULL, replaces their
 * names.  A file with 80 or 90 classes and without names is assumed to be for COCO, which is
 * logged: 80 classes are its categories in order; with 90, the class is the category's id.
 *   TD_EFORMAT  malformed metadata
 *   TD_ESHAPE   `classes` has another number of names
 */
td_status td_box_classes_read(const td_tensors *weights, const char *path, int n,
                              const char *classes, td_box_classes *out) TD_CHECKED;
void td_box_classes_release(td_box_classes *c);

/**
 * "RBC,WBC" -> *out [n + 1] by label (td_free): the classes to keep.  A class whose name contains a
 * comma is given by its category's number.  TD_EUSAGE: no such class.
 */
td_status td_box_classes_choose(const td_box_classes *c, const char *list, bool **out) TD_CHECKED;

/** The box in pixels of an image of this size; the class's name may be written to `room`. */
td_found_box td_box_classes_found(const td_box_classes *c, const td_detection *d, int width,
                                  int height, char room[24]);

/** Set the members of `f` that describe classes. */
void td_box_classes_describe(const td_box_classes *c, td_found *f);

#endif
