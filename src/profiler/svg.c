/*
 * svg.c -- writes SVG 1.1
 */
#include "profiler/svg.h"

#include <string.h>

/* the length of a leading character that XML 1.0 forbids, otherwise 0; `s` is valid UTF-8 */
static size_t forbidden(const char *s)
{
    const unsigned char *c = (const unsigned char *)s;
    if ((c[0] < 0x20 && !strchr("\t\n\r", c[0])) || c[0] == 0x7f)
        return 1;
    const bool is_no_character = c[0] == 0xef && c[1] == 0xbf && (c[2] & 0xfe) == 0xbe;
    return is_no_character ? 3 : 0;
}

static void add_escaped(td_text *out, const char *s)
{
    if (!td_text_is_utf8(s)) {
        td_text_add(out, "?");
        return;
    }
    for (size_t n; *s; s += n) {
        const size_t bad = forbidden(s);
        n = bad ? bad : 1;
        if (bad)
            td_text_add(out, "?");
        else if (*s == '&')
            td_text_add(out, "&amp;");
        else if (*s == '<')
            td_text_add(out, "&lt;");
        else if (*s == '>')
            td_text_add(out, "&gt;");
        else if (*s == '"')
            td_text_add(out, "&quot;");
        else
            td_text_add_bytes(out, s, 1);
    }
}

void td_svg_begin(td_text *out, double width, double height, const char *title)
{
    td_text_add(out,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                "viewBox=\"0 0 %g %g\" font-family=\"sans-serif\">\n<title>",
                width, height, width, height);
    add_escaped(out, title);
    td_text_add(out, "</title>\n");
    td_svg_rect(out, 0, 0, width, height, "#ffffff");
}

void td_svg_end(td_text *out)
{
    td_text_add(out, "</svg>\n");
}

void td_svg_rect(td_text *out, double x, double y, double w, double h, const char *fill)
{
    td_text_add(out, "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\" fill=\"%s\"/>\n",
                x, y, w, h, fill);
}

void td_svg_rect_titled(td_text *out, double x, double y, double w, double h, const char *fill,
                        const char *title)
{
    td_text_add(out,
                "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\" fill=\"%s\"><title>", x,
                y, w, h, fill);
    add_escaped(out, title);
    td_text_add(out, "</title></rect>\n");
}

void td_svg_polyline(td_text *out, const double *xs, const double *ys, int n, const char *stroke,
                     const char *dashes)
{
    td_text_add(out, "<polyline fill=\"none\" stroke=\"%s\"", stroke);
    if (dashes)
        td_text_add(out, " stroke-dasharray=\"%s\"", dashes);
    td_text_add(out, " points=\"");
    for (int i = 0; i < n; i++)
        td_text_add(out, i ? " %.6g,%.6g" : "%.6g,%.6g", xs[i], ys[i]);
    td_text_add(out, "\"/>\n");
}

void td_svg_outline_begin(td_text *out, const char *stroke, double width)
{
    td_text_add(out, "<g stroke=\"%s\" stroke-width=\"%g\">\n", stroke, width);
}

void td_svg_outline_end(td_text *out)
{
    td_text_add(out, "</g>\n");
}

void td_svg_line(td_text *out, double x1, double y1, double x2, double y2, const char *stroke)
{
    td_text_add(out, "<line x1=\"%.6g\" y1=\"%.6g\" x2=\"%.6g\" y2=\"%.6g\" stroke=\"%s\"/>\n", x1,
                y1, x2, y2, stroke);
}

void td_svg_text(td_text *out, double x, double y, const td_svg_font *font, const char *words)
{
    td_text_add(out, "<text x=\"%.6g\" y=\"%.6g\" font-size=\"%g\"", x, y, font->size);
    if (font->fill)
        td_text_add(out, " fill=\"%s\"", font->fill);
    if (font->anchor)
        td_text_add(out, " text-anchor=\"%s\"", font->anchor);
    if (font->is_bold)
        td_text_add(out, " font-weight=\"bold\"");
    if (font->rotation != 0)
        td_text_add(out, " transform=\"rotate(%g %.6g %.6g)\"", font->rotation, x, y);
    td_text_add(out, ">");
    add_escaped(out, words);
    td_text_add(out, "</text>\n");
}
