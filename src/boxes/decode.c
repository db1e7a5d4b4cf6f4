/*
 * decode.c -- box coders, in float32 and in the references' order of operations
 *
 * Source: Ren et al. 2015 (Faster R-CNN), equation 2.
 */
#include "boxes/decode.h"

#include <math.h>
#include <stddef.h>

#include "boxes/detector_rules.h"

#define TF_TINY 1e-8F /* keeps the logarithm of an empty box finite */

typedef td_detector_rules rules;

static void encode_tf(const rules *r, const td_centre *a, td_rect box, float deltas[4])
{
    const float h = box.ymax - box.ymin, w = box.xmax - box.xmin;
    const float y = box.ymin + h / 2, x = box.xmin + w / 2;
    const float ha = a->h + TF_TINY, wa = a->w + TF_TINY;

    deltas[0] = (y - a->y) / ha * r->centre;
    deltas[1] = (x - a->x) / wa * r->centre;
    deltas[2] = logf((h + TF_TINY) / ha) * r->scale;
    deltas[3] = logf((w + TF_TINY) / wa) * r->scale;
}

static td_rect decode_tf(const rules *r, const td_centre *a, const float deltas[4])
{
    const float h = expf(deltas[2] / r->scale) * a->h, w = expf(deltas[3] / r->scale) * a->w;
    const float y = deltas[0] / r->centre * a->h + a->y;
    const float x = deltas[1] / r->centre * a->w + a->x;

    return (td_rect){ y - h / 2, x - w / 2, y + h / 2, x + w / 2 };
}

static void encode_nvidia(const td_centre *a, td_rect box, float deltas[4])
{
    const float x = 0.5F * (box.xmin + box.xmax), y = 0.5F * (box.ymin + box.ymax);
    const float w = box.xmax - box.xmin, h = box.ymax - box.ymin;

    deltas[0] = 10.0F * (x - a->x) / a->w;
    deltas[1] = 10.0F * (y - a->y) / a->h;
    deltas[2] = 5.0F * logf(w / a->w);
    deltas[3] = 5.0F * logf(h / a->h);
}

static td_rect decode_nvidia(const rules *r, const td_centre *a, const float deltas[4])
{
    const float x = r->centre * deltas[0] * a->w + a->x;
    const float y = r->centre * deltas[1] * a->h + a->y;
    const float w = expf(r->scale * deltas[2]) * a->w, h = expf(r->scale * deltas[3]) * a->h;

    return (td_rect){ y - 0.5F * h, x - 0.5F * w, y + 0.5F * h, x + 0.5F * w };
}

static void encode_torch(const rules *r, const td_centre *a, td_rect box, float deltas[4])
{
    const float w = box.xmax - box.xmin, h = box.ymax - box.ymin;
    const float x = box.xmin + 0.5F * w, y = box.ymin + 0.5F * h;

    deltas[0] = r->centre * (x - a->x) / a->w;
    deltas[1] = r->centre * (y - a->y) / a->h;
    deltas[2] = r->scale * logf(w / a->w);
    deltas[3] = r->scale * logf(h / a->h);
}

/* NaN stays */
static float at_most(float v, float limit)
{
    return v > limit ? limit : v;
}

static td_rect decode_torch(const rules *r, const td_centre *a, const float deltas[4])
{
    const float x = deltas[0] / r->centre * a->w + a->x, y = deltas[1] / r->centre * a->h + a->y;
    const float w = expf(at_most(deltas[2] / r->scale, TD_TORCH_LARGEST)) * a->w;
    const float h = expf(at_most(deltas[3] / r->scale, TD_TORCH_LARGEST)) * a->h;

    return (td_rect){ y - 0.5F * h, x - 0.5F * w, y + 0.5F * h, x + 0.5F * w };
}

/* a rectangle in units of 1 / `by` of its own */
static td_rect scaled(td_rect r, float by)
{
    return (td_rect){ r.ymin * by, r.xmin * by, r.ymax * by, r.xmax * by };
}

void td_box_encode(const td_anchors *a, int i, td_rect box, float deltas[4])
{
    const rules *r = td_detector_rules_of(a->kind);
    if (r->coder == TD_CODER_TF)
        encode_tf(r, &a->centre[i], box, deltas);
    else if (r->coder == TD_CODER_NVIDIA)
        encode_nvidia(&a->centre[i], box, deltas);
    else
        encode_torch(r, &a->centre[i], scaled(box, td_anchors_unit(a)), deltas);
}

td_rect td_box_decode(const td_anchors *a, int i, const float deltas[4])
{
    const rules *r = td_detector_rules_of(a->kind);
    if (r->coder == TD_CODER_TF)
        return decode_tf(r, &a->centre[i], deltas);
    if (r->coder == TD_CODER_NVIDIA)
        return decode_nvidia(r, &a->centre[i], deltas);
    return decode_torch(r, &a->centre[i], deltas);
}

void td_boxes_decode(const td_anchors *a, const float *deltas, td_rect *boxes)
{
    const float unit = td_anchors_unit(a);
    for (int i = 0; i < a->n; i++)
        boxes[i] = td_rect_fraction(td_box_decode(a, i, deltas + 4 * (size_t)i), unit);
}
