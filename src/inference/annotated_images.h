/*
 * inference/annotated_images.h -- writes a folder of images with boxes drawn on them
 *
 *     td_annotated_images *m;
 *     TD_TRY(td_annotated_images_new(ds, "drawn", false, n, &m));  overwrites nothing
 *     TD_OUT(td_make_folder("drawn"));
 *     TD_OUT(td_annotated_images_save(m, sample, bytes, n_bytes, false, marks, n_boxes, &path));
 *
 * Every image is written completely or not at all, as .jpg, .jpeg or .png according to its name;
 * names with other endings get .png.
 */
#ifndef TD_INFERENCE_ANNOTATED_IMAGES_H
#define TD_INFERENCE_ANNOTATED_IMAGES_H

#include "image/overlay.h"
#include "tandem/dataset.h"

typedef struct td_annotated_images td_annotated_images;

/**
 * Choose names for the first n images of `ds` (borrowed).  With `keeps_folders`, they keep their
 * folders of the data set; otherwise all are in one folder, and a second "beach.jpg" is
 * "beach.2.jpg".
 *   TD_EARG  an image of `ds` would be overwritten; the message names it
 */
td_status td_annotated_images_new(const td_dataset *ds, const char *folder, bool keeps_folders,
                                  int64_t n, td_annotated_images **out) TD_CHECKED;
void td_annotated_images_free(td_annotated_images *m);

/**
 * Decode a sample's bytes, draw and write.  *path: valid until td_annotated_images_free.  Messages
 * name the file.
 */
td_status td_annotated_images_save(td_annotated_images *m, int64_t sample, const void *bytes,
                                   size_t n_bytes, bool stored_orientation,
                                   const td_overlay_box *boxes, size_t n_boxes,
                                   const char **path) TD_CHECKED;

#endif
