/*
 * autoaugment.c -- the policies of AutoAugment
 *
 * Source: Cubuk et al. 2018, "AutoAugment: learning augmentation policies from data", the policies
 * found on ImageNet in the form of NVIDIA's DeepLearningExamples (levels 0 .. 10, uncovered pixels
 * 128).
 */
#include "transforms/autoaugment.h"

#include <math.h>

typedef struct {
    double p; /* probability of being applied */
    td_augment_op op;
    int level;
} step;

#define OP(name) TD_AUGMENT_##name

/* clang-format off */
static const step policies[TD_AUTOAUGMENT_POLICIES][2] = {
    { { 0.8, OP(EQUALIZE),  1 }, { 0.8, OP(SHEAR_Y),      4 } },
    { { 0.4, OP(COLOR),     9 }, { 0.6, OP(EQUALIZE),     3 } },
    { { 0.4, OP(COLOR),     1 }, { 0.6, OP(ROTATE),       8 } },
    { { 0.8, OP(SOLARIZE),  3 }, { 0.4, OP(EQUALIZE),     7 } },
    { { 0.4, OP(SOLARIZE),  2 }, { 0.6, OP(SOLARIZE),     2 } },
    { { 0.2, OP(COLOR),     0 }, { 0.8, OP(EQUALIZE),     8 } },
    { { 0.4, OP(EQUALIZE),  8 }, { 0.8, OP(SOLARIZE_ADD), 3 } },
    { { 0.2, OP(SHEAR_X),   9 }, { 0.6, OP(ROTATE),       8 } },
    { { 0.6, OP(COLOR),     1 }, { 1.0, OP(EQUALIZE),     2 } },
    { { 0.4, OP(INVERT),    9 }, { 0.6, OP(ROTATE),       0 } },
    { { 1.0, OP(EQUALIZE),  9 }, { 0.6, OP(SHEAR_Y),      3 } },
    { { 0.4, OP(COLOR),     7 }, { 0.6, OP(EQUALIZE),     0 } },
    { { 0.4, OP(POSTERIZE), 6 }, { 0.4, OP(AUTOCONTRAST), 7 } },
    { { 0.6, OP(SOLARIZE),  8 }, { 0.6, OP(COLOR),        9 } },
    { { 0.2, OP(SOLARIZE),  4 }, { 0.8, OP(ROTATE),       9 } },
    { { 1.0, OP(ROTATE),    7 }, { 0.8, OP(TRANSLATE_Y),  9 } },
    { { 0.0, OP(SHEAR_X),   0 }, { 0.8, OP(SOLARIZE),     4 } },
    { { 0.8, OP(SHEAR_Y),   0 }, { 0.6, OP(COLOR),        4 } },
    { { 1.0, OP(COLOR),     0 }, { 0.6, OP(ROTATE),       2 } },
    { { 0.8, OP(EQUALIZE),  4 }, { 0.0, OP(EQUALIZE),     8 } },
    { { 1.0, OP(EQUALIZE),  4 }, { 0.6, OP(AUTOCONTRAST), 2 } },
    { { 0.4, OP(SHEAR_Y),   7 }, { 0.6, OP(SOLARIZE_ADD), 7 } },
    { { 0.8, OP(POSTERIZE), 2 }, { 0.6, OP(SOLARIZE),    10 } },
    { { 0.6, OP(SOLARIZE),  8 }, { 0.6, OP(EQUALIZE),     1 } },
    { { 0.8, OP(COLOR),     6 }, { 0.4, OP(ROTATE),       5 } },
};
/* clang-format on */

/* from ... to in ten steps, like numpy.linspace */
static double spaced(double from, double to, int level)
{
    return level == 10 ? to : from + level * ((to - from) / 10);
}

double td_autoaugment_amount(td_augment_op op, int level)
{
    switch (op) {
    case TD_AUGMENT_SHEAR_X:
    case TD_AUGMENT_SHEAR_Y:
        return spaced(0, 0.3, level);
    case TD_AUGMENT_TRANSLATE_X:
    case TD_AUGMENT_TRANSLATE_Y:
        return spaced(0, 250, level);
    case TD_AUGMENT_ROTATE:
        return spaced(0, 30, level);
    case TD_AUGMENT_COLOR:
    case TD_AUGMENT_CONTRAST:
    case TD_AUGMENT_BRIGHTNESS:
    case TD_AUGMENT_SHARPNESS:
        return spaced(0.1, 1.9, level);
    case TD_AUGMENT_POSTERIZE:
        return rint(spaced(0, 4, level));
    case TD_AUGMENT_SOLARIZE:
        return spaced(0, 256, level);
    case TD_AUGMENT_SOLARIZE_ADD:
        return spaced(0, 110, level);
    default:
        return 0;
    }
}

static bool has_sign(td_augment_op op)
{
    return op <= TD_AUGMENT_ROTATE;
}

td_autoaugment td_autoaugment_draw(td_rng *r)
{
    td_autoaugment a = { .policy = (int)td_rng_below(r, TD_AUTOAUGMENT_POLICIES) };
    for (int i = 0; i < 2; i++) {
        const step *s = &policies[a.policy][i];
        a.is_done[i] = td_rng_uniform(r) < s->p;
        a.is_negative[i] = a.is_done[i] && has_sign(s->op) && td_rng_below(r, 2) == 0;
    }
    return a;
}

td_status td_autoaugment_apply(const td_autoaugment *a, td_image *img, td_image *scratch)
{
    for (int i = 0; i < 2; i++) {
        const step *s = &policies[a->policy][i];
        if (!a->is_done[i])
            continue;
        double amount = td_autoaugment_amount(s->op, s->level);
        if (a->is_negative[i] && has_sign(s->op))
            amount = -amount;
        TD_TRY(td_image_augment(img, s->op, amount, scratch));
    }
    return TD_OK;
}
