/*
 * transforms/autoaugment.h -- AutoAugment's 25 policies for ImageNet
 *
 * A policy is two operations, each with a level 0 .. 10 and a probability.  One policy is drawn for
 * each image; each of its operations is applied with its probability, in order.
 *
 *     td_rng r = td_rng_make(seed, TD_RNG_AUGMENT, epoch, sample);
 *     td_autoaugment a = td_autoaugment_draw(&r);
 *     TD_TRY(td_autoaugment_apply(&a, &image, &scratch));
 */
#ifndef TD_TRANSFORMS_AUTOAUGMENT_H
#define TD_TRANSFORMS_AUTOAUGMENT_H

#include "image/image.h"

enum { TD_AUTOAUGMENT_POLICIES = 25, TD_AUTOAUGMENT_LEVELS = 11 };

/** The random choices for an image. */
typedef struct {
    int policy;          /* 0 .. 24 */
    bool is_done[2];     /* whether each operation is applied */
    bool is_negative[2]; /* shears, translations and rotations are negated */
} td_autoaugment;

td_autoaugment td_autoaugment_draw(td_rng *r);

/** Apply it.  The images' buffers may be exchanged.  TD_ENOMEM. */
TD_CHECKED td_status td_autoaugment_apply(const td_autoaugment *a, td_image *img,
                                          td_image *scratch);

/** The amount for td_image_augment that corresponds to a level 0 .. 10. */
double td_autoaugment_amount(td_augment_op op, int level);

#endif
