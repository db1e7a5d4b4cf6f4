/*
 * report/run_chart.h -- one chart of a page: lines over epochs as inline SVG
 *
 * Colours and fonts come from the page's style sheet (classes c0 ... c7, axis, tick), so that the
 * same image works on light and dark pages.  It contains the title and a description for screen
 * readers; points of short lines show their values as tooltips.
 */
#ifndef TD_REPORT_RUN_CHART_H
#define TD_REPORT_RUN_CHART_H

#include "base/text.h"

enum { TD_CHART_COLOURS = 8, TD_CHART_DASHES = 3 };

typedef struct {
    const char *name; /* name of the line: "runs/a, validation" */
    double *x, *y;    /* [n] epochs, values; x ascends; owned by the caller */
    int n;
    int colour, dash; /* indices */
    bool is_thin;     /* the background of another line */
} td_chart_line;

typedef struct {
    const char *id, *title, *unit; /* id: prefix of the ids inside; unit "" for none */
    const td_chart_line *lines;
    int n;
    bool may_be_log; /* logarithmic if values span more than a factor of 30 */
} td_chart;

/** Append the chart; nothing if no line has a point. */
void td_chart_add(const td_chart *c, td_text *out);

/** Append `s` as HTML text; characters that HTML forbids become question marks. */
void td_html_add(td_text *out, const char *s);

/** A number with about four digits: "0.0123", "1234". */
void td_chart_add_number(td_text *out, double x);

#endif
