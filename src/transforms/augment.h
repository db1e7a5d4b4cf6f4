/*
 * transforms/augment.h -- transforms an image file into a row of a batch
 *
 *   training     read, choose a crop, decode only that, resize to S x S, random flip, optional
 *                operations on the image and colours, normalise, optional erased box
 *   evaluation   read, decode, short side to S + padding, centre crop S x S, normalise
 *
 * A gray image is that of PIL's convert("L") after decoding, as torchvision's Grayscale; up to the
 * last step it has three equal channels, which every operation on colours keeps equal.
 *
 * Resizing rounds to bytes, as PIL does, so a row may also be those bytes, to be normalised later:
 * td_transform_gives_bytes.
 *
 * Sizes, offsets and pixels agree with torchvision's RandomResizedCrop, Resize and CenterCrop on
 * PIL images, or with the other rules of crop.h; only the random numbers differ.
 */
#ifndef TD_TRANSFORMS_AUGMENT_H
#define TD_TRANSFORMS_AUGMENT_H

#include "boxes/anchors.h"
#include "io/pack.h"
#include "transforms/color_changes.h"
#include "transforms/crop.h"
#include "transforms/rand_augment.h"
#include "transforms/timm_augment.h"

/** The settings of a transform; all rows of a loader share them. */
typedef struct {
    bool is_training;
    int channels; /* C: 1 for gray images, otherwise 3 */
    int size;     /* S */
    int padding;  /* evaluation only */
    td_filter filter;
    bool
        is_filter_drawn; /* training: bilinear or bicubic, for each image and operation of timm's */
    td_crop_rules rules;
    bool is_point; /* resize without antialiasing; TensorFlow's rules use their own resize */
    bool is_tf_norm;
    td_norm norm; /* a data set's own; std[0] 0: none */
    bool is_autoaugmented;
    bool stored_orientation;
    int64_t max_pixels; /* as in td_decode_opts, like the next two: limits for untrusted files */
    int max_scans;
    bool by_library;
    bool is_fast;              /* training: decode at reduced size, with nearest-sample chroma */
    td_detector detector;      /* if set: rows as in object_row.h, no crop rules */
    bool is_jittered;          /* in training: jitter colours */
    double jitter[TD_JITTERS]; /* classifiers: how much */
    td_rand_rule rand;         /* torchvision's augmentation */
    td_timm_rule timm;         /* timm's */
    double erase;              /* probability of an erased box */
    bool as_bytes;             /* rows are u8[size, size, C], not normalised */
    uint64_t seed;
} td_transform;

/** Buffers of one thread, kept between images.  Zero-initialise. */
typedef struct {
    char *bytes;
    size_t cap_bytes, n_bytes;
    td_pack_buffer packed;
    td_image stored, decoded, cut, sized; /* stages in this order, if needed */
    td_resampler resampler;
    td_taps taps;
    float *values; /* float pixels, [size, size, 3] */
    size_t cap_values;
    td_ground_truth *ground_truths; /* the row's transformed ground truths */
    size_t cap_ground_truths;
    void *scratch; /* for td_targets_assign; owned by the loader */
} td_transformer;

void td_transformer_release(td_transformer *w);

/** Read a file into w->bytes.  TD_ENOTFOUND, TD_EIO, TD_ELIMIT (256 MiB), TD_ENOMEM. */
TD_CHECKED td_status td_transform_read(td_transformer *w, const char *path);

/**
 * Are the values of a row bytes until they are normalised?  Not with TensorFlow's crop rules and
 * for SSD320, SSDLite and RetinaNet, which resize to floats; nor with random erasing, whose 0 is
 * the mean, no byte.
 */
bool td_transform_gives_bytes(const td_transform *t);

/** C, and the values of a row: C * size * size. */
static inline int td_transform_channels(const td_transform *t)
{
    return t->channels == 1 ? 1 : 3;
}

static inline size_t td_transform_values(const td_transform *t)
{
    return (size_t)td_transform_channels(t) * (size_t)t->size * (size_t)t->size;
}

/** The mean and deviation by which rows are normalised. */
const td_norm *td_transform_norm(const td_transform *t);

/**
 * A row from an image of size x size: normalised into dst f32[C, size, size] or, with t->as_bytes,
 * copied into dst u8[size, size, C]; for C = 1 the image is one of td_image_to_gray.  `flip`:
 * mirrored; the image may be, too.
 */
void td_transform_row(const td_transform *t, td_image *img, bool flip, void *dst);

/** Normalise a row u8[size, size, C] into dst f32[C, size, size]. */
void td_transform_normalise(const td_transform *t, const uint8_t *row, float *dst);

/**
 * Transform an image file's bytes and normalise into dst f32[C, size, size]; with t->as_bytes, into
 * u8[size, size, C].  Errors of decoding.
 */
TD_CHECKED td_status td_transform_image(td_transformer *w, const td_transform *t, const void *bytes,
                                        size_t n_bytes, int64_t epoch, int64_t sample, void *dst);

/** As td_transform_image in evaluation, from decoded pixels.  Errors of td_image_set. */
TD_CHECKED td_status td_transform_pixels(td_transformer *w, const td_transform *t,
                                         const td_pixels *px, void *dst);

/** Read and transform a file.  Errors of reading and decoding. */
TD_CHECKED td_status td_transform_file(td_transformer *w, const td_transform *t, const char *path,
                                       int64_t epoch, int64_t sample, void *dst);

/**
 * Set rules, filter, antialiasing, constants and augmentation from a loader's options. TD_EARG:
 * unknown values, or values that exclude each other.
 */
TD_CHECKED td_status td_transform_choose(td_transform *t, const td_loader_opts *opts);

/** The filter of image.h for a TD_INTERPOLATE_ value; TD_EARG. */
TD_CHECKED td_status td_filter_of(td_interpolation i, td_filter *out);

#endif
