/*
 * run_chart.c -- draws charts: scales, ticks and lines
 *
 *     +------------------------------+ TOP
 *     | y |                          |
 *     |   |__________________________| HEIGHT - BOTTOM
 *     |            epochs            |
 *     +------------------------------+
 *     0   LEFT             WIDTH - RIGHT
 */
#include "report/run_chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH     460.0
#define HEIGHT    250.0
#define LEFT      52.0
#define RIGHT     10.0
#define TOP       12.0
#define BOTTOM    34.0
#define LOG_RATIO 30.0 /* largest / smallest value that a linear scale still shows well */

enum { MAX_TICKS = 12, MAX_MARKS = 40 /* lines with more points have no marks */ };

typedef struct {
    double from, to; /* range of the data; logarithms if is_log */
    bool is_log;
    double tick[MAX_TICKS]; /* values */
    int n_ticks;
} scale;

/* --- text ------------------------------------------------------------------------------------- */

void td_html_add(td_text *out, const char *s)
{
    const bool is_utf8 = td_text_is_utf8(s);
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '&')
            td_text_add(out, "&amp;");
        else if (c == '<')
            td_text_add(out, "&lt;");
        else if (c == '>')
            td_text_add(out, "&gt;");
        else if (c == '"')
            td_text_add(out, "&quot;");
        else if (c == '\'')
            td_text_add(out, "&#39;");
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || (c > 0x7f && !is_utf8))
            td_text_add(out, "?");
        else
            td_text_add_bytes(out, s, 1);
    }
}

void td_chart_add_number(td_text *out, double x)
{
    const double a = fabs(x);
    if (a != 0 && (a < 1e-4 || a >= 1e7))
        td_text_add(out, "%.3g", x);
    else
        td_text_add(out, "%.*f", a >= 1000 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : a >= 0.1 ? 4 : 6, x);
}

/* Add a tick's label, as short as possible. */
static void add_tick(td_text *out, double x)
{
    if (fabs(x) >= 1e4 && fmod(x, 1000) == 0 && fabs(x) < 1e6)
        td_text_add(out, "%gk", x / 1000);
    else if (fabs(x) >= 1e6 && fmod(x, 1e5) == 0 && fabs(x) < 1e9)
        td_text_add(out, "%gM", x / 1e6);
    else
        td_text_add(out, "%.4g", x);
}

/* --- scales ----------------------------------------------------------------------------------- */

/* The smallest 1, 2 or 5 times a power of ten that is at least x. */
static double round_step(double x)
{
    const double power = pow(10, floor(log10(x)));
    const double digit = x / power;
    return power * (digit <= 1.0001 ? 1 : digit <= 2.0001 ? 2 : digit <= 5.0001 ? 5 : 10);
}

static void linear_ticks(scale *s, int wanted, bool is_whole)
{
    double step = round_step((s->to - s->from) / wanted);
    if (is_whole && step < 1)
        step = 1;
    for (double t = ceil(s->from / step - 1e-9) * step;
         t <= s->to + step * 1e-9 && s->n_ticks < MAX_TICKS; t += step)
        s->tick[s->n_ticks++] = fabs(t) < step * 1e-9 ? 0 : t;
}

/* Ticks at 1, 2, 5 of every decade, or with many decades only at 1. */
static void log_ticks(scale *s)
{
    static const double digits[] = { 1, 2, 5 };
    const double decades = s->to - s->from;
    const int n_digits = decades > 2.2 ? 1 : 3, stride = (int)(decades / 8) + 1;
    for (int e = (int)floor(s->from); e <= (int)ceil(s->to); e += stride)
        for (int d = 0; d < n_digits; d++) {
            const double t = digits[d] * pow(10, e), at = log10(t);
            if (at >= s->from - 1e-9 && at <= s->to + 1e-9 && s->n_ticks < MAX_TICKS)
                s->tick[s->n_ticks++] = t;
        }
}

static bool range_of(const td_chart *c, bool of_x, double *from, double *to)
{
    bool is_any = false;
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->lines[i].n; k++) {
            const double v = of_x ? c->lines[i].x[k] : c->lines[i].y[k];
            *from = is_any ? fmin(*from, v) : v;
            *to = is_any ? fmax(*to, v) : v;
            is_any = true;
        }
    return is_any;
}

static void scale_y(const td_chart *c, double from, double to, scale *s)
{
    s->is_log = c->may_be_log && from > 0 && to / from > LOG_RATIO;
    s->from = s->is_log ? log10(from) : from;
    s->to = s->is_log ? log10(to) : to;
    double room = (s->to - s->from) * 0.05;
    if (room <= 0)
        room = s->from != 0 ? fabs(s->from) * 0.1 : 1;
    const bool is_share = strcmp(c->unit, "%") == 0;
    s->from = from >= 0 && !s->is_log && s->from - room < 0 ? 0 : s->from - room;
    s->to = is_share && s->to + room > 100 ? 100 : s->to + room;
    if (s->is_log)
        log_ticks(s);
    if (s->n_ticks < 2) {
        s->n_ticks = 0;
        if (s->is_log) { /* the range has no two ticks: use a linear scale */
            s->is_log = false;
            s->from = pow(10, s->from);
            s->to = pow(10, s->to);
        }
        linear_ticks(s, 5, false);
    }
}

static void scale_x(double from, double to, scale *s)
{
    s->from = from < 2 ? 0 : floor(from);
    s->to = to > s->from ? to : s->from + 1;
    linear_ticks(s, 7, s->to - s->from >= 3);
}

static double place_x(const scale *s, double x)
{
    return LEFT + (x - s->from) / (s->to - s->from) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const scale *s, double y)
{
    const double v = s->is_log ? log10(y) : y;
    return HEIGHT - BOTTOM - (v - s->from) / (s->to - s->from) * (HEIGHT - TOP - BOTTOM);
}

/* --- parts ------------------------------------------------------------------------------------ */

static void add_axes(const td_chart *c, const scale *sx, const scale *sy, td_text *out)
{
    for (int i = 0; i < sy->n_ticks; i++) {
        const double y = place_y(sy, sy->tick[i]);
        td_text_add(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                    LEFT, y, WIDTH - RIGHT, y);
        td_text_add(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                    LEFT - 6, y + 4);
        add_tick(out, sy->tick[i]);
        td_text_add(out, "</text>");
    }
    td_text_add(out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (int i = 0; i < sx->n_ticks; i++) {
        td_text_add(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                    place_x(sx, sx->tick[i]), HEIGHT - BOTTOM + 15);
        add_tick(out, sx->tick[i]);
        td_text_add(out, "</text>");
    }
    td_text_add(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">epochs",
                (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4);
    td_text_add(out, sy->is_log ? ", logarithmic scale</text>\n" : "</text>\n");
    (void)c;
}

static void add_mark(const td_chart *c, const td_chart_line *l, int k, const scale *sx,
                     const scale *sy, td_text *out)
{
    td_text_add(out, "<circle class=\"mark f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"><title>",
                l->colour, place_x(sx, l->x[k]), place_y(sy, l->y[k]));
    td_html_add(out, l->name);
    td_text_add(out, ", epoch %.4g: ", l->x[k]);
    td_chart_add_number(out, l->y[k]);
    td_text_add(out, *c->unit ? " " : "");
    td_html_add(out, c->unit);
    td_text_add(out, "</title></circle>");
}

static void add_line(const td_chart *c, const td_chart_line *l, const scale *sx, const scale *sy,
                     td_text *out)
{
    if (l->n > 1) {
        td_text_add(out, "<polyline class=\"line c%d d%d%s\" points=\"", l->colour, l->dash,
                    l->is_thin ? " thin" : "");
        for (int k = 0; k < l->n; k++)
            td_text_add(out, k ? " %.1f,%.1f" : "%.1f,%.1f", place_x(sx, l->x[k]),
                        place_y(sy, l->y[k]));
        td_text_add(out, "\"/>\n");
    }
    if (l->is_thin && l->n > 1)
        return;
    for (int k = 0; l->n <= MAX_MARKS && k < l->n; k++)
        add_mark(c, l, k, sx, sy, out);
    td_text_add(out, "\n");
}

/* Text for screen readers: the start, end and extremes of each line. */
static void add_description(const td_chart *c, td_text *out)
{
    for (int i = 0; i < c->n; i++) {
        const td_chart_line *l = &c->lines[i];
        if (l->n == 0 || l->is_thin)
            continue;
        double least = l->y[0], most = l->y[0];
        for (int k = 1; k < l->n; k++) {
            least = fmin(least, l->y[k]);
            most = fmax(most, l->y[k]);
        }
        td_html_add(out, l->name);
        td_text_add(out, ": from ");
        td_chart_add_number(out, l->y[0]);
        td_text_add(out, " to ");
        td_chart_add_number(out, l->y[l->n - 1]);
        td_text_add(out, ", least ");
        td_chart_add_number(out, least);
        td_text_add(out, ", most ");
        td_chart_add_number(out, most);
        td_text_add(out, ". ");
    }
}

void td_chart_add(const td_chart *c, td_text *out)
{
    double from, to;
    scale sx = { 0 }, sy = { 0 };
    if (!range_of(c, true, &from, &to))
        return;
    scale_x(from, to, &sx);
    range_of(c, false, &from, &to);
    scale_y(c, from, to, &sy);
    td_text_add(out,
                "<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
                "aria-labelledby=\"%s-t %s-d\">\n<title id=\"%s-t\">",
                WIDTH, HEIGHT, c->id, c->id, c->id);
    td_html_add(out, c->title);
    td_text_add(out, "</title>\n<desc id=\"%s-d\">", c->id);
    add_description(c, out);
    td_text_add(out, "</desc>\n");
    add_axes(c, &sx, &sy, out);
    for (int is_front = 0; is_front < 2; is_front++) /* backgrounds first */
        for (int i = 0; i < c->n; i++)
            if (c->lines[i].is_thin == !is_front)
                add_line(c, &c->lines[i], &sx, &sy, out);
    td_text_add(out, "</svg>\n");
}
