/*
 * profiler/svg.h -- a small SVG writer: rectangles, lines, text
 *
 *     td_svg_begin(&t, 640, 480, "title");
 *     td_svg_rect(&t, 10, 10, 100, 50, "#4477aa");
 *     td_svg_text(&t, 12, 30, &(td_svg_font){ .size = 12 }, "words & <signs>");
 *     td_svg_end(&t);
 *
 * Lengths are pixels, y grows downwards.  The document refers to no other files.  Failures are kept
 * in the td_text.
 */
#ifndef TD_PROFILER_SVG_H
#define TD_PROFILER_SVG_H

#include "base/text.h"

typedef struct {
    double size;
    const char *fill;   /* NULL: black */
    const char *anchor; /* the part of the text at x: "start" (NULL), "middle", "end" */
    double rotation;    /* degrees, clockwise, around (x, y) */
    bool is_bold;
} td_svg_font;

void td_svg_begin(td_text *out, double width, double height, const char *title);
void td_svg_end(td_text *out);

void td_svg_rect(td_text *out, double x, double y, double w, double h, const char *fill);

/** A rectangle with a title, which viewers show when the pointer is over it. */
void td_svg_rect_titled(td_text *out, double x, double y, double w, double h, const char *fill,
                        const char *title);

/** Lines between `n` points (xs[i], ys[i]); `dashes` "4 3", or NULL for none. */
void td_svg_polyline(td_text *out, const double *xs, const double *ys, int n, const char *stroke,
                     const char *dashes);

/** Outline everything up to the end in this colour. */
void td_svg_outline_begin(td_text *out, const char *stroke, double width);
void td_svg_outline_end(td_text *out);

void td_svg_line(td_text *out, double x1, double y1, double x2, double y2, const char *stroke);

/** Characters that XML does not allow become question marks. */
void td_svg_text(td_text *out, double x, double y, const td_svg_font *font, const char *words);

#endif
