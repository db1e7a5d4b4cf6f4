/*
 * transforms/rand_augment.h -- torchvision's automatic augmentations of an image
 *
 *   imagenet   one of 25 policies, two operations with a probability each
 *   ra         RandAugment: a number of operations of one strength
 *   ta_wide    TrivialAugment: one operation of any strength
 *
 * Operations are drawn apart from their application, so that the random numbers of an image do not
 * depend on its content.
 */
#ifndef TD_TRANSFORMS_RAND_AUGMENT_H
#define TD_TRANSFORMS_RAND_AUGMENT_H

#include "base/rng.h"
#include "image/image.h"
#include "tandem/loader.h"

/* In torchvision's order, on which the draws depend. */
typedef enum {
    TD_RAND_IDENTITY,
    TD_RAND_SHEAR_X,
    TD_RAND_SHEAR_Y,
    TD_RAND_TRANSLATE_X,
    TD_RAND_TRANSLATE_Y,
    TD_RAND_ROTATE,
    TD_RAND_BRIGHTNESS,
    TD_RAND_COLOR,
    TD_RAND_CONTRAST,
    TD_RAND_SHARPNESS,
    TD_RAND_POSTERIZE,
    TD_RAND_SOLARIZE,
    TD_RAND_AUTOCONTRAST,
    TD_RAND_EQUALIZE,
    TD_RAND_INVERT, /* policies only */
    TD_RAND_OPS
} td_rand_op;

enum {
    TD_RAND_MAX = 16,  /* operations on one image */
    TD_RAND_BINS = 10, /* of the policies */
    TD_RAND_POLICIES = 25,
    TD_RAND_BINS_MAX = 1000
};

typedef struct {
    td_auto_augment kind;
    int n_ops;     /* ra */
    int bins;      /* ra, ta_wide: strengths, 2 .. TD_RAND_BINS_MAX */
    int magnitude; /* ra: which of them */
} td_rand_rule;

typedef struct {
    td_rand_op op;
    double amount; /* with its sign */
} td_rand_step;

typedef struct {
    int n;
    td_rand_step step[TD_RAND_MAX];
} td_rand_augment;

/** Strength `bin` of an operation on images of size x size, without its sign. */
double td_rand_amount(td_auto_augment kind, td_rand_op op, int bins, int bin, int size);

/** Draw the operations for an image. */
td_rand_augment td_rand_augment_draw(const td_rand_rule *rule, int size, td_rng *r);

/** Apply one operation; pixels equal torchvision's on a PIL image.  TD_ENOMEM. */
TD_CHECKED td_status td_rand_apply(td_rand_step step, td_filter filter, td_image *img,
                                   td_image *scratch);

/** Apply all of them.  Errors of td_rand_apply. */
TD_CHECKED td_status td_rand_augment_apply(const td_rand_augment *a, td_filter filter,
                                           td_image *img, td_image *scratch);

#endif
