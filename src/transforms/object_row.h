/*
 * transforms/object_row.h -- transforms an image with boxes into a row of a batch and its ground
 * truths
 *
 *              SSD320                                     SSD300
 *   training   flip, window, legacy bilinear to S x S,    window, flip, antialiased bilinear to
 *              colours when asked for, minus the mean     S x S, colours, minus mean, by deviation
 *   evaluation legacy bilinear, minus the mean            antialiased bilinear, mean, deviation
 *
 *              SSDLite
 *   training   window, flip, bilinear to S x S as PyTorch's interpolate, mean, deviation
 *   evaluation bilinear, mean, deviation
 *
 * RetinaNet is as SSDLite, but training has no window.  Training leaves out the boxes of crowds for
 * both; TensorFlow's and NVIDIA's programs train on them.
 *
 * The aspect ratio is not kept.  Windows and boxes: object_crop.h.
 *
 * An annotation file gives each image's size.  If that equals the stored size of the file, and not
 * its upright size after EXIF rotation, boxes refer to the stored image, which is then used;
 * otherwise the upright image is used.  If neither size matches (the image was shrunk later), boxes
 * are fractions of the upright image.
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

/** An image and its (epoch, sample), which determine the random numbers. */
typedef struct {
    const void *bytes;
    size_t n_bytes;
    td_scene scene;
    int64_t epoch, sample;
} td_object_source;

/** Was it annotated as stored, without its EXIF orientation? */
bool td_scene_is_stored(const td_scene *s, const td_image_info *info);

/**
 * Transform an image's bytes into dst f32[3, size, size], or u8[size, size, 3] with t->as_bytes
 * (td_transform_gives_bytes), and its ground truths into w->ground_truths,
 * *n of them.  Errors of decoding; TD_ENOMEM.
 */
TD_CHECKED td_status td_object_row(td_transformer *w, const td_transform *t,
                                   const td_object_source *from, void *dst, int *n);

/** A row in evaluation, from decoded pixels.  Errors of td_image_set. */
TD_CHECKED td_status td_object_pixels(td_transformer *w, const td_transform *t, const td_pixels *px,
                                      void *dst);

#endif
