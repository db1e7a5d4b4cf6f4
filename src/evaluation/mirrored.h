/*
 * evaluation/mirrored.h -- test-time augmentation: mean logits of images and their mirror images
 *
 *     TD_TRY(td_mirrored_init(&m, &(td_mirrored_shape){ ... }));
 *     for each batch:  run the program on the images
 *                      td_mirrored_keep(&m, logits)
 *                      run it on td_mirrored_images(&m, images)
 *                      td_mirrored_finish(&m, logits, labels, smoothing)   -> m.logits, m.losses
 *                      or td_mirrored_finish_targets(&m, logits, targets)
 */
#ifndef TD_EVALUATION_MIRRORED_H
#define TD_EVALUATION_MIRRORED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int batch, classes, channels, size; /* size: of a side of the images */
    bool is_pixels; /* u8[batch, size, size, C]; otherwise f32[batch, C, size, size] */
} td_mirrored_shape;

typedef struct {
    td_mirrored_shape shape;
    char *images;  /* [batch] mirror images */
    float *logits; /* [batch, classes] */
    float *losses; /* [batch] */
} td_mirrored;

/** TD_ENOMEM. */
TD_CHECKED td_status td_mirrored_init(td_mirrored *m, const td_mirrored_shape *shape);
void td_mirrored_release(td_mirrored *m);

/** Copy the logits [batch, classes] of the images as they are. */
void td_mirrored_keep(td_mirrored *m, const float *logits);

/** The images with left and right exchanged; lent until the next call. */
const void *td_mirrored_images(td_mirrored *m, const void *images);

/**
 * m->logits becomes the mean of the kept logits and these; m->losses the cross-entropy of softmax
 * of the mean with label smoothing, 0 for labels outside of [0, classes).
 */
void td_mirrored_finish(td_mirrored *m, const float *logits, const int64_t *labels,
                        double smoothing);

/** The same of several labels for an image, targets [batch, classes]: binary cross-entropies. */
void td_mirrored_finish_targets(td_mirrored *m, const float *logits, const float *targets);

#endif
