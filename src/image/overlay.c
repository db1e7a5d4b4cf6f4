/*
 * overlay.c -- draws boxes with labels on an image
 *
 *       +-----------+
 *       | dog 0.93  |             the label: on the box's upper edge, or inside if there is no
 *       +===========+=======+     room above; moved left if it would leave the image
 *       |                   |
 *
 * A ground truth has its label below, or inside at the lower edge, so that it does not cover the
 * label of a detection.
 */
#include "image/overlay.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { FAR = 1 << 28, THICK_PART = 200, UNIT_PART = 300, QUALITY = 90 };

typedef struct {
    int64_t x0, y0, x1, y1; /* pixels, x0 <= x < x1 */
} span;

void td_overlay_colour(int64_t number, uint8_t rgb[3])
{
    /* successive hues differ by the golden ratio, so consecutive numbers never get similar hues */
    double hue = fmod(0.05 + 0.61803398874989484 * (double)(number % 10000), 1);
    hue = hue < 0 ? hue + 1 : hue;
    for (int c = 0; c < 3; c++) {
        double h = fmod(6 * hue + 2 * (3 - c), 6); /* 0 .. 6, shifted by a third for each channel */
        double part = fmin(fmax(fabs(h - 3) - 1, 0), 1);
        rgb[c] = (uint8_t)(255 * (0.2 + 0.75 * part) + 0.5);
    }
}

/* Rounds to a whole pixel; clamps coordinates far outside. */
static int64_t whole(double v)
{
    return (int64_t)floor(fmin(fmax(v, -FAR), FAR) + 0.5);
}

/* Converts a box to pixels; false: nothing to draw. */
static bool span_of(const double box[4], span *out)
{
    for (int i = 0; i < 4; i++) {
        if (!isfinite(box[i]))
            return false;
    }
    if (box[2] < 0 || box[3] < 0)
        return false;
    *out = (span){ whole(box[0]), whole(box[1]), whole(box[0] + box[2]), whole(box[1] + box[3]) };
    out->x1 += out->x1 == out->x0; /* at least one line */
    out->y1 += out->y1 == out->y0;
    return true;
}

static void draw_outline(td_image *img, const span *s, int thick, const uint8_t rgb[3])
{
    int64_t tall = s->y1 - s->y0 < thick ? s->y1 - s->y0 : thick;
    int64_t wide = s->x1 - s->x0 < thick ? s->x1 - s->x0 : thick;
    td_image_fill(img, s->x0, s->y0, s->x1, s->y0 + tall, rgb);
    td_image_fill(img, s->x0, s->y1 - tall, s->x1, s->y1, rgb);
    td_image_fill(img, s->x0, s->y0, s->x0 + wide, s->y1, rgb);
    td_image_fill(img, s->x1 - wide, s->y0, s->x1, s->y1, rgb);
}

/* black, white and a gap in turn, `dash` pixels each, starting at x0 or y0 of the whole box */
static void draw_dashes(td_image *img, const span *s, int thick, int dash)
{
    static const uint8_t inks[2][3] = { { 0, 0, 0 }, { 255, 255, 255 } };
    const int64_t x0 = s->x0 < 0 ? 0 : s->x0, x1 = s->x1 < img->width ? s->x1 : img->width;
    const int64_t y0 = s->y0 < 0 ? 0 : s->y0, y1 = s->y1 < img->height ? s->y1 : img->height;
    for (int64_t x = x0; x < x1; x++) {
        const int64_t ink = (x - s->x0) / dash % 3;
        if (ink < 2) {
            td_image_fill(img, x, s->y0, x + 1, s->y0 + thick, inks[ink]);
            td_image_fill(img, x, s->y1 - thick, x + 1, s->y1, inks[ink]);
        }
    }
    for (int64_t y = y0; y < y1; y++) {
        const int64_t ink = (y - s->y0) / dash % 3;
        if (ink < 2) {
            td_image_fill(img, s->x0, y, s->x0 + thick, y + 1, inks[ink]);
            td_image_fill(img, s->x1 - thick, y, s->x1, y + 1, inks[ink]);
        }
    }
}

static void draw_ground_truth(td_image *img, const span *s, int thick, bool is_crowd)
{
    const int64_t low = s->y1 - s->y0 < s->x1 - s->x0 ? s->y1 - s->y0 : s->x1 - s->x0;
    const int wanted = (thick + 1) / 2, thin = low < wanted ? (int)low : wanted;
    draw_dashes(img, s, thin, (is_crowd ? 1 : 4) * (wanted + 1));
}

/* Black on bright colours, white on dark ones. */
static const uint8_t *ink_on(const uint8_t rgb[3])
{
    static const uint8_t black[3] = { 0, 0, 0 }, white[3] = { 255, 255, 255 };
    return 299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2] > 1000 * 120 ? black : white;
}

static void draw_label(td_image *img, const span *s, int unit, const uint8_t rgb[3],
                       const td_overlay_box *m)
{
    const char *label = m->label;
    int64_t width = (td_overlay_count_glyphs(label) * TD_GLYPH_WIDTH + 1) * unit;
    int64_t height = (int64_t)(TD_GLYPH_HEIGHT + 2) * unit;
    if (s->x1 <= 0 || s->y1 <= 0 || s->x0 >= img->width || s->y0 >= img->height)
        return; /* the box is outside the image */
    int64_t y = s->y0 - height, x = s->x0;
    if (m->style != TD_OVERLAY_FOUND) {
        const int64_t low = s->y1 < img->height ? s->y1 : img->height;
        y = s->y1 + height > img->height ? low - height : s->y1;
    }
    if (y < 0)
        y = s->y0 < 0 ? 0 : s->y0;
    if (x + width > img->width)
        x = img->width - width;
    x = x < 0 ? 0 : x;
    td_image_fill(img, x, y, x + width, y + height, rgb);
    td_image_draw_text(img, x + unit, y + unit, unit, ink_on(rgb), label);
}

void td_image_draw_overlay(td_image *img, const td_overlay_box *boxes, size_t n,
                           const td_overlay_opts *opts)
{
    int side = img->width < img->height ? img->width : img->height;
    int thick = opts->thick > 0 ? opts->thick : side / THICK_PART;
    int unit = opts->text_unit > 0 ? opts->text_unit : (side + UNIT_PART / 2) / UNIT_PART;
    thick = thick < 1 ? 1 : thick < FAR ? thick : FAR;
    unit = unit < 1 ? 1 : unit < FAR ? unit : FAR;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            uint8_t rgb[3] = { 255, 255, 255 };
            const td_overlay_box *m = &boxes[i];
            span s;
            if (!span_of(m->box, &s))
                continue;
            if (m->style == TD_OVERLAY_FOUND)
                td_overlay_colour(m->colour, rgb);
            if (pass == 1 && m->label && *m->label)
                draw_label(img, &s, unit, rgb, m);
            else if (pass == 0 && m->style == TD_OVERLAY_FOUND)
                draw_outline(img, &s, thick, rgb);
            else if (pass == 0)
                draw_ground_truth(img, &s, thick, m->style == TD_OVERLAY_CROWD);
        }
    }
}

td_status td_image_encode(const td_image *img, const char *name, int quality, td_text *out)
{
    const char *dot = strrchr(name, '.');
    const char *ending = dot && !strchr(dot, '/') ? dot : "";
    if (strcasecmp(ending, ".png") == 0)
        return td_image_encode_png(img, out);
    if (strcasecmp(ending, ".jpg") == 0 || strcasecmp(ending, ".jpeg") == 0)
        return td_image_encode_jpeg(img, quality ? quality : QUALITY, out);
    return td_error(TD_EUNSUPPORTED, "image name '%s' ends in '%s', wanted .png, .jpg or .jpeg",
                    name, ending);
}
