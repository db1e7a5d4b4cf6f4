/*
 * data/bad_images.h -- the images that a loader could not use, and their limit
 *
 * A worker stores failures with the row that it fills (td_bad_notes).  The loader adds the notes of
 * a batch to its list (td_bad_images) when it returns the batch: in the order of batches, so that
 * the list does not depend on the speed of workers.
 */
#ifndef TD_DATA_BAD_IMAGES_H
#define TD_DATA_BAD_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"

/** An image that could not be used. */
typedef struct {
    int64_t sample;
    char *reason; /* td_alloc'ed */
    td_status st;
} td_bad_note;

/** All zero is empty. */
typedef struct {
    td_bad_note *notes;
    size_t n, cap;
} td_bad_notes;

/** Can the image cause this failure (unlike, for example, missing memory)? */
bool td_is_bad_image(td_status st);

/** Note the failure `why` of a sample, with td_error_message as the reason.  TD_ENOMEM. */
TD_CHECKED td_status td_bad_notes_add(td_bad_notes *b, const td_dataset *ds, int64_t sample,
                                      td_status why);

/** Forget the notes; the memory is kept for the next ones. */
void td_bad_notes_clear(td_bad_notes *b);
void td_bad_notes_release(td_bad_notes *b);

/** All zero is an empty list of a data set that has no images to decode. */
typedef struct {
    const td_dataset *ds; /* borrowed */
    uint8_t *is_listed;   /* one bit per sample */
    td_bad_image *list;   /* [n]; reasons are td_alloc'ed */
    size_t n, cap;
    double share; /* fraction allowed, 0 .. 1 */
    int64_t n_allowed;
} td_bad_images;

/** `share`: fraction of images that may be bad; 0: the default; negative: none.  TD_ENOMEM. */
TD_CHECKED td_status td_bad_images_init(td_bad_images *b, const td_dataset *ds, double share);
void td_bad_images_release(td_bad_images *b);

/** Add the notes to the list and log them, except images already listed.  TD_ENOMEM. */
TD_CHECKED td_status td_bad_images_add(td_bad_images *b, td_bad_notes *notes);

/** Returns TD_EFORMAT; the message has the number of bad images, the limit, and the first one. */
TD_CHECKED td_status td_bad_images_refuse(const td_bad_images *b);

#endif
