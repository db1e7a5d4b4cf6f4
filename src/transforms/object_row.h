/*
 * transforms/object_row.h -- one image with boxes -> one row of a batch, and its ground truths
 *
 *              SSD320                                     SSD300
 *   training   flip, window, legacy bilinear to S x S,    window, flip, antialiased bilinear to
 *              colours when asked for, minus the mean     S x S, colours, minus mean, by deviation
 *   evaluation legacy bilinear, minus the mean            antialiased bilinear, mean, deviation
 *
 * The aspect is not kept.  Windows and boxes: object_crop.h.
 *
 * An annotation file gives each image's size.  Where that is the size of the file as it is
 * stored, and not turned upright by its EXIF orientation, boxes were drawn on the stored image,
 * and that is what is used; else the upright one.  Where neither fits (an image that was shrunk
 * later), boxes are shares of the upright one all the same.
 */
#ifndef TD_TRANSFORMS_OBJECT_ROW_H
#define TD_TRANSFORMS_OBJECT_ROW_H

#include "transforms/augment.h"

/** The ground truths of an image and the size they were annotated at. */
typedef struct {
    const td_ground_truth *ground_truths;
    int n;
    int width, height; /* 0: unknown */
} td_scene;

/** An image and whose row it becomes: random numbers are those of (epoch, sample). */
typedef struct {
    const void *bytes;
    size_t n_bytes;
    td_scene scene;
    int64_t epoch, sample;
} td_object_source;

/** Was it annotated as it is stored, against its EXIF orientation? */
bool td_scene_is_stored(const td_scene *s, const td_image_info *info);

/**
 * Transform an image's bytes into dst [3, size, size] and its ground truths into w->ground truths,
 * *n of them. Errors of decoding; TD_ENOMEM.
 */
TD_CHECKED td_status td_object_row(td_transformer *w, const td_transform *t,
                                   const td_object_source *from, float *dst, int *n);

#endif
