/*
 * timm_augment.c -- timm's RandAugment
 *
 * Source: timm 1.0, data/auto_augment.py (rand_augment_transform, _RAND_INCREASING_TRANSFORMS,
 * _RAND_TRANSFORMS and the functions from levels to arguments).
 */
#include "transforms/timm_augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* a fused multiply-add would change some amounts */
#endif

#define LEVELS        10.0 /* the magnitude of a full effect */
#define MAGNITUDE_MAX 30

/* --- the name of a policy --------------------------------------------------------------------- */

typedef struct {
    const char *key; /* a longer one before its beginning */
    double least, most;
    bool is_whole;
} part;

enum { MAGNITUDE_DEVIATION, MAGNITUDE_MOST, MAGNITUDE, OPS, PROBABILITY, INCREASING, PARTS };

static const part parts[PARTS] = {
    [MAGNITUDE_DEVIATION] = { "mstd", 0, 1000, false },
    [MAGNITUDE_MOST] = { "mmax", 1, MAGNITUDE_MAX, true },
    [MAGNITUDE] = { "m", 0, MAGNITUDE_MAX, true },
    [OPS] = { "n", 1, TD_TIMM_MAX, true },
    [PROBABILITY] = { "p", 0, 1, false },
    [INCREASING] = { "inc", 0, 1, true },
};

static td_status refuse_part(const char *text, const char *s, size_t n)
{
    return td_error(TD_EUSAGE,
                    "'%.60s': '%.*s' is no part of timm's RandAugment, wanted m0 to m30, n1 to "
                    "n16, p0 to p1, mstd0 to mstd1000, mmax1 to mmax30, inc0 or inc1",
                    text, n < 40 ? (int)n : 40, s);
}

/* Parse "mstd0.5", n characters. */
static td_status parse_part(const char *text, const char *s, size_t n, double values[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        const size_t k = strlen(parts[i].key);
        const bool is_digit = n > k && s[k] >= '0' && s[k] <= '9';
        if (!is_digit || strncmp(s, parts[i].key, k) != 0)
            continue;
        char *end;
        values[i] = strtod(s + k, &end);
        const bool is_whole = values[i] == floor(values[i]);
        if (end != s + n || k + strspn(s + k, "0123456789.") != n ||
            !(values[i] >= parts[i].least && values[i] <= parts[i].most) ||
            (parts[i].is_whole && !is_whole))
            break;
        return TD_OK;
    }
    return refuse_part(text, s, n);
}

td_status td_timm_rule_parse(const char *text, td_timm_rule *out)
{
    double values[PARTS] = {
        [MAGNITUDE_MOST] = LEVELS, [MAGNITUDE] = LEVELS, [OPS] = 2, [PROBABILITY] = 0.5
    };
    size_t n = strcspn(text, "-");
    *out = (td_timm_rule){ 0 };
    if (n != 4 || strncmp(text, "rand", n) != 0)
        return td_error(TD_EUSAGE,
                        "'%.60s' is no policy of timm's RandAugment, wanted a name such as "
                        "rand-m7-mstd0.5-inc1",
                        text);
    for (const char *s = text + n; *s; s += n) {
        n = strcspn(++s, "-");
        TD_TRY(parse_part(text, s, n, values));
    }
    *out = (td_timm_rule){ .n_ops = (int)values[OPS],
                           .magnitude = values[MAGNITUDE],
                           .deviation = values[MAGNITUDE_DEVIATION],
                           .most = values[MAGNITUDE_MOST],
                           .p = values[PROBABILITY],
                           .is_increasing = values[INCREASING] > 0 };
    return TD_OK;
}

/* --- amounts ---------------------------------------------------------------------------------- */

static double enhanced(bool is_increasing, double share, bool is_negative)
{
    if (!is_increasing)
        return share * 1.8 + 0.1;
    share *= 0.9;
    return fmax(0.1, 1.0 + (is_negative ? -share : share));
}

double td_timm_amount(td_timm_op op, bool is_increasing, double magnitude, bool is_negative)
{
    const double share = magnitude / LEVELS, sign = is_negative ? -1 : 1;
    switch (op) {
    case TD_TIMM_ROTATE:
        return sign * (share * 30);
    case TD_TIMM_POSTERIZE: /* bits kept; 8 and more change nothing */
        return is_increasing ? fmax(0, 4 - trunc(share * 4)) : trunc(share * 4);
    case TD_TIMM_SOLARIZE: {
        const double threshold = fmin(256, trunc(share * 256));
        return is_increasing ? 256 - threshold : threshold;
    }
    case TD_TIMM_SOLARIZE_ADD:
        return fmin(128, trunc(share * 110));
    case TD_TIMM_COLOR:
    case TD_TIMM_CONTRAST:
    case TD_TIMM_BRIGHTNESS:
    case TD_TIMM_SHARPNESS:
        return enhanced(is_increasing, share, is_negative);
    case TD_TIMM_SHEAR_X:
    case TD_TIMM_SHEAR_Y:
        return sign * (share * 0.3);
    case TD_TIMM_TRANSLATE_X:
    case TD_TIMM_TRANSLATE_Y:
        return sign * (share * 0.45);
    default:
        return 0;
    }
}

/* --- draws ------------------------------------------------------------------------------------ */

static double draw_magnitude(const td_timm_rule *rule, td_rng *r)
{
    double m = rule->magnitude;
    if (rule->deviation > 100)
        m *= td_rng_uniform(r);
    else if (rule->deviation > 0)
        m += rule->deviation * td_rng_normal(r);
    return fmax(0, fmin(m, rule->most));
}

td_timm_augment td_timm_draw(const td_timm_rule *rule, const td_filter *filter, td_rng *r)
{
    td_timm_augment a = { 0 };
    for (int i = 0; i < rule->n_ops && i < TD_TIMM_MAX; i++) {
        const td_timm_op op = (td_timm_op)td_rng_below(r, TD_TIMM_OPS);
        if (!(td_rng_uniform(r) < rule->p))
            continue;
        const double magnitude = draw_magnitude(rule, r);
        const bool is_negative = td_rng_below(r, 2) == 0;
        const td_filter drawn = td_rng_below(r, 2) == 0 ? TD_BILINEAR : TD_BICUBIC;
        a.step[a.n++] = (td_timm_step){ .op = op,
                                        .amount = td_timm_amount(op, rule->is_increasing, magnitude,
                                                                 is_negative),
                                        .filter = filter ? *filter : drawn };
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

/* rotations, shears around the upper left corner, translations by parts of pixels */
static td_status move(td_timm_step s, const uint8_t fill[3], td_image *img, td_image *scratch)
{
    double m[6] = { 1, 0, 0, 0, 1, 0 };
    if (s.op == TD_TIMM_ROTATE) {
        TD_TRY(td_image_rotate(img, s.amount, s.filter, fill, scratch));
        swap(img, scratch);
        return TD_OK;
    }
    if (s.op == TD_TIMM_SHEAR_X)
        m[1] = s.amount;
    else if (s.op == TD_TIMM_SHEAR_Y)
        m[3] = s.amount;
    else if (s.op == TD_TIMM_TRANSLATE_X)
        m[2] = s.amount * img->width;
    else
        m[5] = s.amount * img->height;
    TD_TRY(td_image_affine(img, m, s.filter, fill, scratch));
    swap(img, scratch);
    return TD_OK;
}

td_status td_timm_step_apply(td_timm_step s, const uint8_t fill[3], td_image *img,
                             td_image *scratch)
{
    static const td_augment_op same[TD_TIMM_OPS] = {
        [TD_TIMM_AUTOCONTRAST] = TD_AUGMENT_AUTOCONTRAST,
        [TD_TIMM_EQUALIZE] = TD_AUGMENT_EQUALIZE,
        [TD_TIMM_INVERT] = TD_AUGMENT_INVERT,
        [TD_TIMM_POSTERIZE] = TD_AUGMENT_POSTERIZE,
        [TD_TIMM_SOLARIZE] = TD_AUGMENT_SOLARIZE,
        [TD_TIMM_SOLARIZE_ADD] = TD_AUGMENT_SOLARIZE_ADD,
        [TD_TIMM_COLOR] = TD_AUGMENT_COLOR,
        [TD_TIMM_CONTRAST] = TD_AUGMENT_CONTRAST,
        [TD_TIMM_BRIGHTNESS] = TD_AUGMENT_BRIGHTNESS,
        [TD_TIMM_SHARPNESS] = TD_AUGMENT_SHARPNESS,
    };
    if (s.op == TD_TIMM_POSTERIZE && s.amount >= 8)
        return TD_OK;
    if (s.op != TD_TIMM_ROTATE && s.op < TD_TIMM_SHEAR_X)
        return td_image_augment(img, same[s.op], s.amount, scratch);
    return s.amount == 0 ? TD_OK : move(s, fill, img, scratch);
}

td_status td_timm_apply(const td_timm_augment *a, const uint8_t fill[3], td_image *img,
                        td_image *scratch)
{
    for (int i = 0; i < a->n; i++)
        TD_TRY(td_timm_step_apply(a->step[i], fill, img, scratch));
    return TD_OK;
}
