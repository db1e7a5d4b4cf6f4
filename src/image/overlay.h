/*
 * image/overlay.h -- boxes with names on an image, for people to look at
 *
 *     td_overlay_box m = { .box = { 12.5, 30, 80, 41 }, .label = "dog 0.93", .colour = 18 };
 *     td_image_draw_overlay(&img, &m, 1, &(td_overlay_opts){ 0 });
 *     TD_OUT(td_image_encode(&img, "out.png", 0, &bytes));
 *
 * Lines and letters grow with the image.  Outlines come first and labels over them, so that no
 * line crosses a name; of two boxes the later lies above.  Everything is clipped at the image's
 * edges, and a box that is cut by an edge has no line there.
 */
#ifndef TD_IMAGE_OVERLAY_H
#define TD_IMAGE_OVERLAY_H

#include "image/image.h"

/* Of something annotated: thin dashes of black, white and nothing, on any ground, and the label in
   black on white at the lower edge; short ones for a crowd. */
typedef enum { TD_OVERLAY_FOUND, TD_OVERLAY_GROUND_TRUTH, TD_OVERLAY_CROWD } td_overlay_style;

typedef struct {
    double box[4];     /* x, y, width, height in pixels of the image; edges lie between pixels */
    const char *label; /* NULL or "": none; what is no printable ASCII shows as '?' */
    int64_t colour;    /* the class, say: td_overlay_colour of it; a ground truth has none */
    td_overlay_style style;
} td_overlay_box;

/** All zero is a valid default. */
typedef struct {
    int thick;     /* of lines, pixels; 0: a 200th of the shorter side */
    int text_unit; /* pixels a dot of the letters; 0: by the shorter side, 1 up to 449 pixels */
} td_overlay_opts;

enum { TD_GLYPH_WIDTH = 6, TD_GLYPH_HEIGHT = 8 }; /* dots, the space between two included */

/** Draw.  A box that is not finite, or with a negative side, is left out with its label. */
void td_image_draw_overlay(td_image *img, const td_overlay_box *boxes, size_t n,
                           const td_overlay_opts *opts);

/** Letters with their upper left corner at (x, y), `unit` pixels a dot; clipped. */
void td_image_draw_text(td_image *img, int64_t x, int64_t y, int unit, const uint8_t rgb[3],
                        const char *text);

/** How many letters td_image_draw_text makes of this UTF-8 text. */
int64_t td_overlay_count_glyphs(const char *text);

/** Bright colours, far apart for neighbours; the same for the same number. */
void td_overlay_colour(int64_t number, uint8_t rgb[3]);

/**
 * Encode as the ending of `name` says: .png, .jpg or .jpeg (of `quality`, 0: 90); appended to *out.
 * TD_EUNSUPPORTED another ending; TD_EARG, TD_ENOMEM as td_image_encode_jpeg and _png.
 */
TD_CHECKED td_status td_image_encode(const td_image *img, const char *name, int quality,
                                     td_text *out);

#endif
