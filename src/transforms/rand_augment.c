/*
 * rand_augment.c -- torchvision's AutoAugment (ImageNet), RandAugment and TrivialAugmentWide
 *
 * Sources: torchvision 0.29, transforms/autoaugment.py (spaces, policies, order of the operations);
 * Cubuk et al. 2018 and 2019; Mueller and Hutter 2021.  Strengths are float32, as torch.linspace
 * makes them.
 */
#include "transforms/rand_augment.h"

#include <math.h>

#define OP(name) TD_RAND_##name

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

typedef struct {
    double p; /* probability of being applied */
    td_rand_op op;
    int bin;
} policy_step;

/* clang-format off */
static const policy_step policies[TD_RAND_POLICIES][2] = {
    { { 0.4, OP(POSTERIZE), 8 }, { 0.6, OP(ROTATE),       9 } },
    { { 0.6, OP(SOLARIZE),  5 }, { 0.6, OP(AUTOCONTRAST), 0 } },
    { { 0.8, OP(EQUALIZE),  0 }, { 0.6, OP(EQUALIZE),     0 } },
    { { 0.6, OP(POSTERIZE), 7 }, { 0.6, OP(POSTERIZE),    6 } },
    { { 0.4, OP(EQUALIZE),  0 }, { 0.2, OP(SOLARIZE),     4 } },
    { { 0.4, OP(EQUALIZE),  0 }, { 0.8, OP(ROTATE),       8 } },
    { { 0.6, OP(SOLARIZE),  3 }, { 0.6, OP(EQUALIZE),     0 } },
    { { 0.8, OP(POSTERIZE), 5 }, { 1.0, OP(EQUALIZE),     0 } },
    { { 0.2, OP(ROTATE),    3 }, { 0.6, OP(SOLARIZE),     8 } },
    { { 0.6, OP(EQUALIZE),  0 }, { 0.4, OP(POSTERIZE),    6 } },
    { { 0.8, OP(ROTATE),    8 }, { 0.4, OP(COLOR),        0 } },
    { { 0.4, OP(ROTATE),    9 }, { 0.6, OP(EQUALIZE),     0 } },
    { { 0.0, OP(EQUALIZE),  0 }, { 0.8, OP(EQUALIZE),     0 } },
    { { 0.6, OP(INVERT),    0 }, { 1.0, OP(EQUALIZE),     0 } },
    { { 0.6, OP(COLOR),     4 }, { 1.0, OP(CONTRAST),     8 } },
    { { 0.8, OP(ROTATE),    8 }, { 1.0, OP(COLOR),        2 } },
    { { 0.8, OP(COLOR),     8 }, { 0.8, OP(SOLARIZE),     7 } },
    { { 0.4, OP(SHARPNESS), 7 }, { 0.6, OP(INVERT),       0 } },
    { { 0.6, OP(SHEAR_X),   5 }, { 1.0, OP(EQUALIZE),     0 } },
    { { 0.4, OP(COLOR),     0 }, { 0.6, OP(EQUALIZE),     0 } },
    { { 0.4, OP(EQUALIZE),  0 }, { 0.2, OP(SOLARIZE),     4 } },
    { { 0.6, OP(SOLARIZE),  5 }, { 0.6, OP(AUTOCONTRAST), 0 } },
    { { 0.6, OP(INVERT),    0 }, { 1.0, OP(EQUALIZE),     0 } },
    { { 0.6, OP(COLOR),     4 }, { 1.0, OP(CONTRAST),     8 } },
    { { 0.8, OP(EQUALIZE),  0 }, { 0.6, OP(EQUALIZE),     0 } },
};
/* clang-format on */

/* --- strengths -------------------------------------------------------------------------------- */

/* torch.linspace in float32: from both ends, rounded once */
static double spaced(double from, double to, int bins, int bin)
{
    const float a = (float)from, b = (float)to, step = (b - a) / (float)(bins - 1);
    return bin < bins / 2 ? fmaf(step, (float)bin, a) : fmaf(-step, (float)(bins - 1 - bin), b);
}

/* upper bits kept: 8, less up to `most` */
static double bits(double most, int bins, int bin)
{
    return 8 - rintf((float)bin / (float)((bins - 1) / most));
}

double td_rand_amount(td_auto_augment kind, td_rand_op op, int bins, int bin, int size)
{
    const bool is_wide = kind == TD_AUTO_AUGMENT_TA_WIDE;
    switch (op) {
    case TD_RAND_SHEAR_X:
    case TD_RAND_SHEAR_Y:
        return spaced(0, is_wide ? 0.99 : 0.3, bins, bin);
    case TD_RAND_TRANSLATE_X:
    case TD_RAND_TRANSLATE_Y:
        return spaced(0, is_wide ? 32 : 150.0 / 331.0 * size, bins, bin);
    case TD_RAND_ROTATE:
        return spaced(0, is_wide ? 135 : 30, bins, bin);
    case TD_RAND_BRIGHTNESS:
    case TD_RAND_COLOR:
    case TD_RAND_CONTRAST:
    case TD_RAND_SHARPNESS:
        return spaced(0, is_wide ? 0.99 : 0.9, bins, bin);
    case TD_RAND_POSTERIZE:
        return bits(is_wide ? 6 : 4, bins, bin);
    case TD_RAND_SOLARIZE:
        return spaced(255, 0, bins, bin);
    default:
        return 0;
    }
}

static bool has_sign(td_rand_op op)
{
    return op >= TD_RAND_SHEAR_X && op <= TD_RAND_SHARPNESS;
}

static bool has_strength(td_rand_op op)
{
    return op >= TD_RAND_SHEAR_X && op <= TD_RAND_SOLARIZE;
}

/* --- draws ------------------------------------------------------------------------------------ */

static void add(td_rand_augment *a, td_rand_op op, double amount, td_rng *r)
{
    const bool is_negative = has_sign(op) && td_rng_below(r, 2) == 0;
    a->step[a->n++] = (td_rand_step){ op, is_negative ? -amount : amount };
}

static td_rand_augment draw_policy(int size, td_rng *r)
{
    td_rand_augment a = { 0 };
    const policy_step *policy = policies[td_rng_below(r, TD_RAND_POLICIES)];
    for (int i = 0; i < 2; i++) {
        const policy_step *s = &policy[i];
        if (td_rng_uniform(r) < s->p)
            add(&a, s->op,
                td_rand_amount(TD_AUTO_AUGMENT_IMAGENET, s->op, TD_RAND_BINS, s->bin, size), r);
    }
    return a;
}

td_rand_augment td_rand_augment_draw(const td_rand_rule *rule, int size, td_rng *r)
{
    td_rand_augment a = { 0 };
    if (rule->kind == TD_AUTO_AUGMENT_IMAGENET)
        return draw_policy(size, r);
    const bool is_wide = rule->kind == TD_AUTO_AUGMENT_TA_WIDE;
    const int n = is_wide ? 1 : rule->n_ops;
    while (a.n < n) {
        const td_rand_op op = (td_rand_op)td_rng_below(r, TD_RAND_INVERT);
        int bin = rule->magnitude;
        if (is_wide)
            bin = has_strength(op) ? (int)td_rng_below(r, (uint64_t)rule->bins) : 0;
        add(&a, op, td_rand_amount(rule->kind, op, rule->bins, bin, size), r);
    }
    return a;
}

/* --- application ------------------------------------------------------------------------------ */

static void swap(td_image *a, td_image *b)
{
    const td_image c = *a;
    *a = *b;
    *b = c;
}

/* the angle, with torchvision's roundings: math.radians(math.degrees(math.atan(v))) */
static double angle_of(double v)
{
    const double pi = 3.14159265358979323846;
    return atan(v) * (180.0 / pi) * (pi / 180.0);
}

/* shears around the upper left corner, translations by whole pixels: to the right, downwards */
static td_status move(td_rand_step s, td_filter filter, td_image *img, td_image *scratch)
{
    double m[6] = { 1, 0, 0, 0, 1, 0 };
    if (s.op == TD_RAND_SHEAR_X) {
        m[1] = tan(angle_of(s.amount));
    } else if (s.op == TD_RAND_SHEAR_Y) {
        const double angle = angle_of(s.amount);
        m[3] = sin(angle) / cos(angle);
    } else if (s.op == TD_RAND_TRANSLATE_X) {
        m[2] = -trunc(s.amount);
    } else {
        m[5] = -trunc(s.amount);
    }
    TD_TRY(td_image_affine(img, m, filter, NULL, scratch));
    swap(img, scratch);
    return TD_OK;
}

static td_status rotate(double degrees, td_filter filter, td_image *img, td_image *scratch)
{
    TD_TRY(td_image_rotate(img, degrees, filter, NULL, scratch));
    swap(img, scratch);
    return TD_OK;
}

td_status td_rand_apply(td_rand_step s, td_filter filter, td_image *img, td_image *scratch)
{
    static const td_augment_op same[TD_RAND_OPS] = {
        [TD_RAND_BRIGHTNESS] = TD_AUGMENT_BRIGHTNESS,
        [TD_RAND_COLOR] = TD_AUGMENT_COLOR,
        [TD_RAND_CONTRAST] = TD_AUGMENT_CONTRAST,
        [TD_RAND_SHARPNESS] = TD_AUGMENT_SHARPNESS,
        [TD_RAND_POSTERIZE] = TD_AUGMENT_POSTERIZE,
        [TD_RAND_SOLARIZE] = TD_AUGMENT_SOLARIZE,
        [TD_RAND_AUTOCONTRAST] = TD_AUGMENT_AUTOCONTRAST,
        [TD_RAND_EQUALIZE] = TD_AUGMENT_EQUALIZE,
        [TD_RAND_INVERT] = TD_AUGMENT_INVERT,
    };
    if (s.op == TD_RAND_IDENTITY || (has_sign(s.op) && s.amount == 0))
        return TD_OK;
    if (s.op == TD_RAND_ROTATE)
        return rotate(s.amount, filter, img, scratch);
    if (s.op < TD_RAND_ROTATE)
        return move(s, filter, img, scratch);
    const double amount = s.op <= TD_RAND_SHARPNESS ? 1 + s.amount : s.amount;
    return td_image_augment(img, same[s.op], amount, scratch);
}

td_status td_rand_augment_apply(const td_rand_augment *a, td_filter filter, td_image *img,
                                td_image *scratch)
{
    for (int i = 0; i < a->n; i++)
        TD_TRY(td_rand_apply(a->step[i], filter, img, scratch));
    return TD_OK;
}
