/*
 * data/augment.h -- one picture file -> one row of a batch
 *
 *   training     read, choose a crop, decode (only) that, resize to S x S, maybe flip, normalise
 *   evaluation   read, decode, short side to S + padding, centre crop S x S, normalise
 *
 * Sizes, offsets and pixels agree with torchvision's RandomResizedCrop, Resize and CenterCrop on
 * PIL pictures; only the random numbers are our own.
 */
#ifndef TD_DATA_AUGMENT_H
#define TD_DATA_AUGMENT_H

#include "image/image.h"
#include "tandem/data.h"

/** How; all rows of a loader share it. */
typedef struct {
    bool is_training;
    int size;    /* S */
    int padding; /* evaluation */
    td_filter filter;
    bool ignore_orientation;
    bool is_fast; /* training: decode at reduced size and without smoothing of colours */
    uint64_t seed;
} td_transform;

/** Buffers of one thread, kept between pictures.  All zero is valid. */
typedef struct {
    char *bytes;
    size_t cap_bytes, n_bytes;
    td_image stored, decoded, cut, sized; /* in this order, those that are needed */
    td_resampler resampler;
} td_transformer;

void td_transformer_release(td_transformer *w);

/** Read a file into w->bytes.  TD_ENOTFOUND, TD_EIO, TD_ELIMIT (256 MiB), TD_ENOMEM. */
TD_CHECKED td_status td_transform_read(td_transformer *w, const char *path);

/** Transform a picture file's bytes and normalise into dst [3, size, size].  Errors of decoding. */
TD_CHECKED td_status td_transform_picture(td_transformer *w, const td_transform *t,
                                          const void *bytes, size_t n_bytes, int64_t epoch,
                                          int64_t sample, float *dst);

/** Read, transform and normalise into dst [3, size, size].  Errors of reading and decoding. */
TD_CHECKED td_status td_transform_file(td_transformer *w, const td_transform *t, const char *path,
                                       int64_t epoch, int64_t sample, float *dst);

/** The crop of torchvision's RandomResizedCrop: area 8..100 %, ratio 3/4..4/3, ten tries. */
td_box td_random_crop(td_rng *r, int width, int height);

/** The size whose short side is `to`, as torchvision's Resize computes it. */
void td_short_side(int width, int height, int to, int *out_width, int *out_height);

/** The box of torchvision's CenterCrop(size); width and height are at least size. */
td_box td_centre_crop(int width, int height, int size);

/** The TD_INTERPOLATE_ value as image.h names it; TD_EARG. */
TD_CHECKED td_status td_filter_of(td_interpolation i, td_filter *out);

#endif
