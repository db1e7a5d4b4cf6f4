/*
 * image/overlay.h -- draws boxes with labels on an image
 *
 *     td_overlay_box m = { .box = { 12.5, 30, 80, 41 }, .label = "dog 0.93", .colour = 18 };
 *     td_image_draw_overlay(&img, &m, 1, &(td_overlay_opts){ 0 });
 *     TD_OUT(td_image_encode(&img, "out.png", 0, &bytes));
 *
 * Lines and text grow with the image.  Outlines are drawn first and labels over them, so that no
 * line crosses a label; a later box covers an earlier one.  Everything is clipped at the image's
 * edges, and a box cut by an edge has no line there.
 */
#ifndef TD_IMAGE_OVERLAY_H
#define TD_IMAGE_OVERLAY_H

#include "image/image.h"

/* Ground truths have thin dashes of black, white and gaps, visible on any background, and the label
   in black on white at the lower edge; short dashes for a crowd. */
typedef enum { TD_OVERLAY_FOUND, TD_OVERLAY_GROUND_TRUTH, TD_OVERLAY_CROWD } td_overlay_style;

typedef struct {
    double box[4];     /* x, y, width, height in pixels of the image; edges lie between pixels */
    const char *label; /* NULL or "": none; characters that are not printable ASCII become '?' */
    int64_t colour;    /* for td_overlay_colour, e.g. the class; unused for ground truths */
    td_overlay_style style;
} td_overlay_box;

/** Zero-initialise for the defaults. */
typedef struct {
    int thick;     /* line width, pixels; 0: a 200th of the shorter side */
    int text_unit; /* pixels per font dot; 0: by the shorter side, 1 up to 449 pixels */
} td_overlay_opts;

enum { TD_GLYPH_WIDTH = 6, TD_GLYPH_HEIGHT = 8 }; /* dots, including the space between two */

/** Draw the boxes.  Skips a box that is not finite or has a negative side. */
void td_image_draw_overlay(td_image *img, const td_overlay_box *boxes, size_t n,
                           const td_overlay_opts *opts);

/** Draw text with its upper left corner at (x, y), `unit` pixels per dot; clipped. */
void td_image_draw_text(td_image *img, int64_t x, int64_t y, int unit, const uint8_t rgb[3],
                        const char *text);

/** The number of glyphs td_image_draw_text draws for this UTF-8 text. */
int64_t td_overlay_count_glyphs(const char *text);

/** A bright colour for a number; neighbouring numbers get very different ones. */
void td_overlay_colour(int64_t number, uint8_t rgb[3]);

/**
 * Encode by the extension of `name`: .png, .jpg or .jpeg (`quality`, 0: 90); appends to *out.
 * TD_EUNSUPPORTED another extension; TD_EARG, TD_ENOMEM as td_image_encode_jpeg and _png.
 */
TD_CHECKED td_status td_image_encode(const td_image *img, const char *name, int quality,
                                     td_text *out);

#endif
