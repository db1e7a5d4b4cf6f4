/*
 * decode.c -- box coder of both detectors, in float32 and in the references' order of operations
 *
 * Source: Ren et al. 2015 (Faster R-CNN), equation 2.
 */
#include "boxes/decode.h"

#include <math.h>
#include <stddef.h>

#define SSD320_CENTRE 10.0F
#define SSD320_SIZE   5.0F
#define SSD320_TINY   1e-8F /* keeps the logarithm of an empty box finite */
#define SSD300_CENTRE 0.1F
#define SSD300_SIZE   0.2F

static void encode_320(const td_centre *a, td_rect box, float deltas[4])
{
    const float h = box.ymax - box.ymin, w = box.xmax - box.xmin;
    const float y = box.ymin + h / 2, x = box.xmin + w / 2;
    const float ha = a->h + SSD320_TINY, wa = a->w + SSD320_TINY;

    deltas[0] = (y - a->y) / ha * SSD320_CENTRE;
    deltas[1] = (x - a->x) / wa * SSD320_CENTRE;
    deltas[2] = logf((h + SSD320_TINY) / ha) * SSD320_SIZE;
    deltas[3] = logf((w + SSD320_TINY) / wa) * SSD320_SIZE;
}

static td_rect decode_320(const td_centre *a, const float deltas[4])
{
    const float h = expf(deltas[2] / SSD320_SIZE) * a->h, w = expf(deltas[3] / SSD320_SIZE) * a->w;
    const float y = deltas[0] / SSD320_CENTRE * a->h + a->y;
    const float x = deltas[1] / SSD320_CENTRE * a->w + a->x;

    return (td_rect){ y - h / 2, x - w / 2, y + h / 2, x + w / 2 };
}

static void encode_300(const td_centre *a, td_rect box, float deltas[4])
{
    const float x = 0.5F * (box.xmin + box.xmax), y = 0.5F * (box.ymin + box.ymax);
    const float w = box.xmax - box.xmin, h = box.ymax - box.ymin;

    deltas[0] = 10.0F * (x - a->x) / a->w;
    deltas[1] = 10.0F * (y - a->y) / a->h;
    deltas[2] = 5.0F * logf(w / a->w);
    deltas[3] = 5.0F * logf(h / a->h);
}

static td_rect decode_300(const td_centre *a, const float deltas[4])
{
    const float x = SSD300_CENTRE * deltas[0] * a->w + a->x;
    const float y = SSD300_CENTRE * deltas[1] * a->h + a->y;
    const float w = expf(SSD300_SIZE * deltas[2]) * a->w, h = expf(SSD300_SIZE * deltas[3]) * a->h;

    return (td_rect){ y - 0.5F * h, x - 0.5F * w, y + 0.5F * h, x + 0.5F * w };
}

void td_box_encode(const td_anchors *a, int i, td_rect box, float deltas[4])
{
    if (a->kind == TD_DETECTOR_SSD320)
        encode_320(&a->centre[i], box, deltas);
    else
        encode_300(&a->centre[i], box, deltas);
}

td_rect td_box_decode(const td_anchors *a, int i, const float deltas[4])
{
    if (a->kind == TD_DETECTOR_SSD320)
        return decode_320(&a->centre[i], deltas);
    return decode_300(&a->centre[i], deltas);
}

void td_boxes_decode(const td_anchors *a, const float *deltas, td_rect *boxes)
{
    for (int i = 0; i < a->n; i++)
        boxes[i] = td_box_decode(a, i, deltas + 4 * (size_t)i);
}
