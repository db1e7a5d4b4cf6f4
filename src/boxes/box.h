/*
 * boxes/box.h -- rectangles, ground truths, and the overlap of two rectangles
 *
 * Coordinates are normalised by the image's height and width unless a comment says pixels.
 * All arithmetic here is float32 in the order written, without fused multiply-adds: exact ties are
 * common in matching, so that one bit may decide which anchor a ground truth gets.
 */
#ifndef TD_BOXES_BOX_H
#define TD_BOXES_BOX_H

#include <stdbool.h>
#include <stdint.h>

/** Corners: row before column. */
typedef struct {
    float ymin, xmin, ymax, xmax;
} td_rect;

/** The same in centre form. */
typedef struct {
    float y, x, h, w;
} td_centre;

/** One annotated object. */
typedef struct {
    td_rect box;
    int64_t label; /* class 1 .. K */
    bool is_crowd;
    double area; /* from the annotation, in pixels of the original image; 0: unknown */
} td_ground_truth;

/** Height times width; negative or NaN when the corners are. */
static inline float td_rect_area(td_rect r)
{
    return (r.ymax - r.ymin) * (r.xmax - r.xmin);
}

/** Area of the intersection, 0 when they do not overlap. */
static inline float td_rect_common(td_rect a, td_rect b)
{
    float ih = (a.ymax < b.ymax ? a.ymax : b.ymax) - (a.ymin > b.ymin ? a.ymin : b.ymin);
    float iw = (a.xmax < b.xmax ? a.xmax : b.xmax) - (a.xmin > b.xmin ? a.xmin : b.xmin);
    return (ih > 0 ? ih : 0) * (iw > 0 ? iw : 0);
}

/** A rectangle whose coordinates are from 0 to `unit` over the image, in fractions of the image. */
static inline td_rect td_rect_fraction(td_rect r, float unit)
{
    return (td_rect){ r.ymin / unit, r.xmin / unit, r.ymax / unit, r.xmax / unit };
}

/** Intersection over union, 0 when they do not overlap (two empty boxes too). */
static inline float td_rect_iou(td_rect a, td_rect b)
{
    float common = td_rect_common(a, b);
    float both = (td_rect_area(a) + td_rect_area(b)) - common;
    return common == 0 ? 0 : common / both;
}

#endif
