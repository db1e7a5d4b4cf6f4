/*
 * amp_stats_draw.c -- draws histograms of the exponents of gradients
 *
 *     all gradients of the last step   bars
 *     all gradients, step by step      heat map, a row per step
 *     layer by layer, last step        heat map, a row per tensor
 *
 * All three have the same axis: the exponent e of the number in memory, 2^e <= |x| < 2^(e + 1).
 * With a loss scale S the true gradient's exponent is e - log2 S.
 */
#include "profiler/amp_stats_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiler/svg.h"

enum {
    WIDTH = 1000,
    LEFT = 270,   /* left end of the axis */
    AXIS = 690,   /* length of the axis */
    TOP = 70,     /* top of the bars */
    BARS = 220,   /* height of the bars */
    GAP = 78,     /* between two panels, for an axis and a title */
    ROW = 12,     /* height of a row in a heat map */
    STEPS = 60,   /* maximum rows of the second panel */
    LEVELS = 7,   /* number of colours */
    OVERFLOW = 16 /* numbers from 2^16 on do not fit into fp16 */
};

static const char grey[] = "#666666", grid[] = "#dddddd", bar[] = "#2b6ca3", mark[] = "#c0392b";

/* colours[i] is for shares of at least 10^-(LEVELS - 1 - i); dark means a large share */
static const char *const colours[LEVELS] = { "#e3eef9", "#c6dbef", "#9ecae1", "#6baed6",
                                             "#4292c6", "#2171b5", "#084594" };

static const struct {
    int from, to;
    const char *fill, *name;
} ranges[] = {
    { TD_EXPONENT_MIN, -24, "#fbe3e0", "zero" },
    { -24, -14, "#fdf3dc", "subnormal" },
    { -14, OVERFLOW, "#eef7ee", "normal" },
    { OVERFLOW, TD_EXPONENT_MAX + 1, "#fbe3e0", "infinite" },
};

#define N_RANGES (sizeof ranges / sizeof *ranges)

typedef struct {
    td_text *out;
    int lowest, end; /* range of the axis */
    bool is_cut;     /* there are numbers below the axis */
    double y;        /* top of the next panel */
} drawing;

static double at(const drawing *d, int exponent)
{
    return LEFT + (double)AXIS * (exponent - d->lowest) / (d->end - d->lowest);
}

static void words(const drawing *d, double x, double y, const char *anchor, const char *fill,
                  const char *text)
{
    td_svg_text(d->out, x, y, &(td_svg_font){ .size = 11, .anchor = anchor, .fill = fill }, text);
}

static void heading(const drawing *d, double y, const char *text)
{
    td_svg_text(d->out, LEFT, y, &(td_svg_font){ .size = 14, .is_bold = true }, text);
}

/* --- the axis --------------------------------------------------------------------------------- */

/*
 * The axis covers at least 2^-28 to 2^19, and up to the largest number.  Downwards it covers all
 * gradients but one in 10,000; its first column then also counts smaller numbers.
 */
static void choose_axis(const td_stats_file *f, drawing *d)
{
    td_stats_gradients g;
    int64_t bins[TD_EXPONENT_BINS] = { 0 }, all = 0, below = 0;
    for (size_t i = 0; i < f->n_steps; i++) {
        td_stats_sum_gradients(&f->steps[i], &g);
        for (int k = 0; k < TD_EXPONENT_BINS; k++)
            bins[k] += g.bins[k];
        all += g.non_zero;
    }
    for (int k = 0; k < TD_EXPONENT_BINS; k++) {
        const int exponent = k + TD_EXPONENT_MIN;
        below += bins[k];
        if (below > all / 10000 && exponent < d->lowest)
            d->lowest = exponent;
        if (bins[k] && exponent >= d->end)
            d->end = exponent + 1;
    }
    below = 0;
    for (int k = 0; k + TD_EXPONENT_MIN < d->lowest; k++)
        below += bins[k];
    d->is_cut = below > 0;
}

/* a row's bins on the axis; smaller values go into the first column */
static void place(const drawing *d, const int64_t *bins, int first, int n_bins,
                  int64_t columns[TD_EXPONENT_BINS])
{
    memset(columns, 0, TD_EXPONENT_BINS * sizeof *columns);
    for (int i = 0; i < n_bins; i++) {
        const int column = first + i - d->lowest;
        columns[column > 0 ? column : 0] += bins[i];
    }
}

/* draws the background: the ranges of fp16 */
static void shade(const drawing *d, double y, double height)
{
    for (size_t i = 0; i < N_RANGES; i++) {
        int from = ranges[i].from > d->lowest ? ranges[i].from : d->lowest;
        int to = ranges[i].to < d->end ? ranges[i].to : d->end;
        td_svg_rect(d->out, at(d, from), y, at(d, to) - at(d, from), height, ranges[i].fill);
    }
}

/* draws the limits over the data, and labels below them */
static void limits(const drawing *d, double y, double height)
{
    static const int ends[] = { -24, -14, OVERFLOW };
    char text[32];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        td_svg_line(d->out, at(d, ends[i]), y, at(d, ends[i]), y + height + 4, mark);
    int step = 4;
    while (at(d, step) - at(d, 0) < 40)
        step *= 2;
    for (int e = d->lowest; e <= d->end; e++) {
        bool is_limit = e == -24 || e == -14 || e == OVERFLOW;
        bool is_near = abs(e + 24) < 3 || abs(e + 14) < 3 || abs(e - OVERFLOW) < 3;
        if (!is_limit && (e % step || is_near))
            continue;
        snprintf(text, sizeof text, "2^%d", e);
        words(d, at(d, e), y + height + 16, "middle", is_limit ? mark : grey, text);
    }
}

/* writes the names of the ranges, once */
static void name_ranges(const drawing *d, double y)
{
    for (size_t i = 0; i < N_RANGES; i++) {
        int from = ranges[i].from > d->lowest ? ranges[i].from : d->lowest;
        int to = ranges[i].to < d->end ? ranges[i].to : d->end;
        words(d, (at(d, from) + at(d, to)) / 2, y, "middle", grey, ranges[i].name);
    }
}

static void name_axis(const drawing *d, double y, double scale)
{
    char text[200];
    const char *cut = d->is_cut ? "; the first column holds all below, too" : "";
    if (scale > 1)
        snprintf(text, sizeof text,
                 "magnitude in memory: gradient x loss scale %g; the unscaled one is 2^%.4g times "
                 "that%s",
                 scale, -log2(scale), cut);
    else
        snprintf(text, sizeof text, "magnitude of the gradient; no loss scale%s", cut);
    words(d, LEFT + AXIS / 2.0, y, "middle", "#000000", text);
}

/* --- bars ------------------------------------------------------------------------------------- */

static void bars(const drawing *d, const td_stats_gradients *g)
{
    char text[48];
    int64_t columns[TD_EXPONENT_BINS], most = 1;
    place(d, g->bins, TD_EXPONENT_MIN, TD_EXPONENT_BINS, columns);
    for (int i = 0; i < d->end - d->lowest; i++)
        most = columns[i] > most ? columns[i] : most;
    const double top = (double)most / (double)(g->non_zero ? g->non_zero : 1);
    for (int i = 0; i <= 4; i++) {
        const double y = d->y + BARS - BARS * i / 4.0;
        td_svg_line(d->out, LEFT, y, LEFT + AXIS, y, grid);
        snprintf(text, sizeof text, "%.3g %%", 100 * top * i / 4);
        words(d, LEFT - 8, y + 4, "end", grey, text);
    }
    td_svg_text(d->out, LEFT - 70, d->y + BARS / 2.0,
                &(td_svg_font){ .size = 11, .anchor = "middle", .rotation = -90 },
                "share of elements that are not zero");
    for (int e = d->lowest; e < d->end; e++) {
        const int64_t n = columns[e - d->lowest];
        const double height = BARS * (double)n / (double)most;
        if (n)
            td_svg_rect(d->out, at(d, e) + 0.5, d->y + BARS - height, at(d, e + 1) - at(d, e) - 1,
                        height, bar);
    }
}

static void draw_all(drawing *d, const td_stats_step *s)
{
    char text[200];
    td_stats_gradients g;
    td_stats_sum_gradients(s, &g);
    snprintf(text, sizeof text,
             "Gradients of step %lld (epoch %lld, %s): %lld numbers, %.3g %% zero",
             (long long)s->step, (long long)s->epoch, s->precision, (long long)g.elements,
             g.elements
                 ? 100 * (double)(g.elements - g.non_zero - g.infinite - g.nan) / (double)g.elements
                 : 0);
    heading(d, d->y - 30, text);
    words(d, LEFT - 8, d->y - 8, "end", grey, "as fp16:");
    name_ranges(d, d->y - 8);
    shade(d, d->y, BARS);
    bars(d, &g);
    limits(d, d->y, BARS);
    name_axis(d, d->y + BARS + 32, s->loss_scale);
    d->y += BARS + GAP;
}

/* --- heat maps -------------------------------------------------------------------------------- */

static const char *colour_of(double share)
{
    const int level = LEVELS - 1 + (int)floor(log10(share) + 1e-9);
    return colours[level < 0 ? 0 : level >= LEVELS ? LEVELS - 1 : level];
}

static void heat_row(const drawing *d, double y, const char *name, const int64_t *bins, int first,
                     int n_bins)
{
    int64_t columns[TD_EXPONENT_BINS], sum = 0;
    place(d, bins, first, n_bins, columns);
    for (int i = 0; i < n_bins; i++)
        sum += bins[i];
    for (int e = d->lowest; e < d->end; e++) {
        const int64_t n = columns[e - d->lowest];
        if (n)
            td_svg_rect(d->out, at(d, e), y, at(d, e + 1) - at(d, e), ROW - 1,
                        colour_of((double)n / (double)sum));
    }
    td_svg_text(d->out, LEFT - 8, y + ROW - 3,
                &(td_svg_font){ .size = 9, .anchor = "end", .fill = "#333333" }, name);
}

static void legend(const drawing *d, double y)
{
    char text[32];
    words(d, LEFT + AXIS - 7 * 62 - 8, y, "end", grey, "share of the row that is not zero, from");
    for (int i = 0; i < LEVELS; i++) {
        const double x = LEFT + AXIS - (LEVELS - i) * 62;
        td_svg_rect(d->out, x, y - 10, 14, 12, colours[i]);
        snprintf(text, sizeof text,
                 i == LEVELS - 1 ? "all"
                 : i             ? "10^%d"
                                 : "less",
                 i - (LEVELS - 1));
        words(d, x + 18, y, NULL, grey, text);
    }
}

static void draw_steps(drawing *d, const td_stats_file *f)
{
    char text[64];
    const int n = f->n_steps < STEPS ? (int)f->n_steps : STEPS;
    td_stats_gradients g;
    if (n < 2)
        return;
    heading(d, d->y - 12, "Step by step: all gradients, and the loss scale they have");
    shade(d, d->y, n * ROW);
    for (int i = 0; i < n; i++) { /* a sample of many steps, with first and last */
        const td_stats_step *s = &f->steps[(size_t)i * (f->n_steps - 1) / (size_t)(n - 1)];
        td_stats_sum_gradients(s, &g);
        snprintf(text, sizeof text, "step %lld, x %g%s", (long long)s->step, s->loss_scale,
                 s->is_skipped ? ", skipped" : "");
        heat_row(d, d->y + i * ROW, text, g.bins, TD_EXPONENT_MIN, TD_EXPONENT_BINS);
    }
    limits(d, d->y, n * ROW);
    d->y += n * ROW + GAP;
}

/* casts and reorders are not drawn: they look like their operands */
static bool is_drawn(const td_stats_tensor *t)
{
    return t->bins && (t->of || (strcmp(t->op, "cast") != 0 && strcmp(t->op, "reorder") != 0));
}

static int count_drawn(const td_stats_step *s)
{
    int n = 0;
    for (int i = 0; i < s->n_tensors; i++)
        n += is_drawn(&s->tensors[i]);
    return n;
}

static void draw_layers(drawing *d, const td_stats_step *s)
{
    char text[120];
    double y = d->y;
    snprintf(text, sizeof text, "Layer by layer: gradients of step %lld, first computed first",
             (long long)s->step);
    heading(d, y - 12, text);
    shade(d, y, count_drawn(s) * ROW);
    for (int i = 0; i < s->n_tensors; i++) {
        const td_stats_tensor *t = &s->tensors[i];
        if (!is_drawn(t))
            continue;
        snprintf(text, sizeof text, "%.60s (%.30s)", t->of ? t->of : t->label, t->op);
        heat_row(d, y, text, t->bins, t->first, t->n_bins);
        y += ROW;
    }
    limits(d, d->y, y - d->y);
    d->y = y + GAP;
}

/* --- the drawing ------------------------------------------------------------------------------ */

static double height_of(const td_stats_file *f)
{
    const int n = f->n_steps < STEPS ? (int)f->n_steps : STEPS;
    const int layers = count_drawn(&f->steps[f->n_steps - 1]);
    return TOP + BARS + GAP + (n < 2 ? 0 : n * ROW + GAP) + layers * ROW + GAP;
}

void td_stats_draw(const td_stats_file *f, td_text *svg)
{
    const td_stats_step *last = &f->steps[f->n_steps - 1];
    drawing d = { .out = svg, .lowest = -28, .end = OVERFLOW + 3, .y = TOP };
    choose_axis(f, &d);
    td_svg_begin(svg, WIDTH, height_of(f), "Exponents of gradients and the range of fp16");
    draw_all(&d, last);
    draw_steps(&d, f);
    draw_layers(&d, last);
    legend(&d, d.y - 18);
    td_svg_end(svg);
}
