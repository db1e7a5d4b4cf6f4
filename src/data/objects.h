/*
 * data/objects.h -- the annotated objects in the images of a data set, for detectors
 *
 *     int n;
 *     const td_ground_truth *t = td_dataset_ground_truths(ds, i, &n);  fractions, for training
 *     const td_annotation *a = td_dataset_annotations(ds, i, &n);   the same in pixels, exact
 *
 *   images     [n]            first  [n + 1]
 *   annotations  of image 0 | of image 1 | ... ground truths the same, both in the file's order
 */
#ifndef TD_DATA_OBJECTS_H
#define TD_DATA_OBJECTS_H

#include "boxes/box.h"
#include "coco/coco.h"
#include "data/dataset.h"
#include "transforms/object_row.h"

struct td_objects {
    const char *file;               /* in the data set's arena */
    td_annotated *images;           /* [n] */
    int64_t *first;                 /* [n + 1] */
    td_annotation *annotations;     /* [first[n]] */
    td_ground_truth *ground_truths; /* [first[n]] */
    int64_t *categories;            /* [n_classes] category id of class i + 1, -1: none */
    td_bad_annotation *bad;         /* [n_listed], texts in the arena */
    int64_t n_listed, n_bad;
};

/**
 * The objects of a sample, borrowed, in the order of td_dataset_annotations; NULL and *n 0 without
 * boxes.
 */
const td_ground_truth *td_dataset_ground_truths(const td_dataset *ds, int64_t sample, int *n);

/** The same as a scene, the input of transforms; empty without boxes. */
td_scene td_dataset_scene(const td_dataset *ds, int64_t sample);

/**
 * Fill ds from an annotation file: ds->objects, classes and samples, whose paths are
 * "<folder>/<file name>".  `places` [c->n_images] receives the index in `c` of each sample, which
 * differs from the sample's number if skip_empty skips some; NULL: not needed.  TD_EFORMAT: ids
 * that cannot be classes, no image left; TD_ENOMEM.
 */
TD_CHECKED td_status td_objects_take(td_dataset *ds, const td_dataset_opts *opts, const td_coco *c,
                                     const char *file, const char *folder, int64_t *places);

/**
 * Allocate `n_images` images, `n` objects in total and `n_classes` classes, all zero.  TD_ENOMEM.
 */
TD_CHECKED td_status td_objects_new(int64_t n_images, int64_t n, int n_classes,
                                    struct td_objects **out);
/** An annotation as fractions of its image of width x height pixels. */
td_ground_truth td_ground_truth_of(const td_annotation *a, int width, int height);

void td_objects_free(struct td_objects *o);

/** Change class l to new_label[l - 1] + 1, of `n` classes; NULL: only add classes.  TD_ENOMEM. */
TD_CHECKED td_status td_objects_renumber(td_dataset *ds, int n_old, int n,
                                         const int64_t *new_label);

#endif
