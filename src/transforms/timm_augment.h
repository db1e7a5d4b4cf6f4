/*
 * transforms/timm_augment.h -- timm's RandAugment
 *
 * A policy is named as timm names it, "rand-m7-mstd0.5-inc1": parts in any order after "rand",
 *
 *   mN      magnitude, 0 to 30: 10
 *   nN      operations on an image, 1 to 16: 2
 *   pX      probability of each of them: 0.5
 *   mstdX   standard deviation of the magnitude: 0; above 100 it is uniform, from 0 to mN
 *   mmaxN   upper bound of the magnitude, 1 to 30: 10
 *   inc1    the effect of every operation increases with the magnitude; inc0: not of some
 *
 * Operations are drawn apart from their application, so that the random numbers of an image do not
 * depend on its content.
 */
#ifndef TD_TRANSFORMS_TIMM_AUGMENT_H
#define TD_TRANSFORMS_TIMM_AUGMENT_H

#include "base/rng.h"
#include "image/image.h"

/* In timm's order, on which the draws depend. */
typedef enum {
    TD_TIMM_AUTOCONTRAST,
    TD_TIMM_EQUALIZE,
    TD_TIMM_INVERT,
    TD_TIMM_ROTATE,
    TD_TIMM_POSTERIZE,
    TD_TIMM_SOLARIZE,
    TD_TIMM_SOLARIZE_ADD,
    TD_TIMM_COLOR,
    TD_TIMM_CONTRAST,
    TD_TIMM_BRIGHTNESS,
    TD_TIMM_SHARPNESS,
    TD_TIMM_SHEAR_X,
    TD_TIMM_SHEAR_Y,
    TD_TIMM_TRANSLATE_X,
    TD_TIMM_TRANSLATE_Y,
    TD_TIMM_OPS
} td_timm_op;

enum { TD_TIMM_MAX = 16 /* operations on one image */ };

typedef struct {
    int n_ops; /* 0: no augmentation */
    double magnitude, deviation, most;
    double p;
    bool is_increasing;
} td_timm_rule;

typedef struct {
    td_timm_op op;
    double amount; /* degrees, bits, a threshold, an addend, a factor, a shear, a share of a side */
    td_filter filter; /* of rotations, shears and translations */
} td_timm_step;

typedef struct {
    int n;
    td_timm_step step[TD_TIMM_MAX];
} td_timm_augment;

/** Parse the name of a policy.  TD_EUSAGE: another policy, or an unknown part. */
TD_CHECKED td_status td_timm_rule_parse(const char *text, td_timm_rule *out);

/** The amount of an operation at a magnitude; is_negative: with the other of its two signs. */
double td_timm_amount(td_timm_op op, bool is_increasing, double magnitude, bool is_negative);

/** Draw the operations for an image; `filter` NULL: bilinear or bicubic for each operation. */
td_timm_augment td_timm_draw(const td_timm_rule *rule, const td_filter *filter, td_rng *r);

/**
 * Apply one operation; pixels equal timm's on a PIL image.  Uncovered ones have the color `fill`.
 * `scratch` is another image, whose buffer may be exchanged with img's.  TD_ENOMEM.
 */
TD_CHECKED td_status td_timm_step_apply(td_timm_step step, const uint8_t fill[3], td_image *img,
                                        td_image *scratch);

/** Apply all of them. */
TD_CHECKED td_status td_timm_apply(const td_timm_augment *a, const uint8_t fill[3], td_image *img,
                                   td_image *scratch);

#endif
