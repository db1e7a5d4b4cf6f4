/*
 * run_classes.c -- AP of each class over the epochs, as HTML
 */
#include "report/run_classes.h"

#include <math.h>
#include <string.h>

#include "loggers/report_metrics.h"
#include "report/run_chart.h"

/* The classes of all runs, each once, in the order of the reports. */
typedef struct {
    const char **metric;
    size_t n, cap;
} class_list;

static td_status collect(const td_run_log *runs, int n, class_list *out)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].n_series[TD_RUN_EPOCHS]; k++) {
            const char *name = runs[i].series[TD_RUN_EPOCHS][k].metric;
            bool is_new = td_text_starts(name, TD_METRIC_CLASS);
            for (size_t c = 0; is_new && c < out->n; c++)
                is_new = strcmp(out->metric[c], name) != 0;
            if (!is_new)
                continue;
            TD_TRY(td_reserve(&out->metric, &out->cap, out->n + 1, sizeof *out->metric));
            out->metric[out->n++] = name;
        }
    return TD_OK;
}

static const char *class_name(const char *metric)
{
    return metric + strlen(TD_METRIC_CLASS);
}

/* --- curves ----------------------------------------------------------------------------------- */

static td_status fill_line(const td_run_series *s, td_chart_line *l)
{
    TD_TRY(TD_ALLOC(l->x, s->n));
    TD_TRY(TD_ALLOC(l->y, s->n));
    for (size_t i = 0; i < s->n; i++) {
        l->x[i] = (double)s->points[i].epoch + 1;
        l->y[i] = s->points[i].value;
    }
    l->n = (int)s->n;
    return TD_OK;
}

static void add_key(const td_chart_line *lines, int n, td_text *out)
{
    td_text_add(out, "<ul class=\"key\">");
    for (int i = 0; i < n; i++) {
        td_text_add(out,
                    "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><line class=\"line c%d\" "
                    "x1=\"1\" y1=\"5\" x2=\"25\" y2=\"5\"/></svg>",
                    lines[i].colour);
        td_html_add(out, lines[i].name);
        td_text_add(out, "</li>");
    }
    td_text_add(out, "</ul>\n");
}

static td_status add_chart(const td_run_log *run, const class_list *classes, td_text *out)
{
    td_status st = TD_OK;
    td_chart_line lines[TD_CHART_COLOURS] = { { 0 } };
    int n = 0;
    for (size_t i = 0; i < classes->n; i++) {
        const td_run_series *s = td_run_log_series(run, TD_RUN_EPOCHS, classes->metric[i]);
        if (!s)
            continue;
        lines[n] = (td_chart_line){ .name = class_name(classes->metric[i]), .colour = n };
        TD_OUT(fill_line(s, &lines[n++]));
    }
    const td_chart c = {
        .id = "ap-classes", .title = "AP by class", .unit = "", .lines = lines, .n = n
    };
    td_text_add(out, "<div class=\"charts\">\n<section class=\"card\">\n");
    add_key(lines, n, out);
    td_chart_add(&c, out);
    td_text_add(out, "</section>\n</div>\n");
out:
    for (int i = 0; i < TD_CHART_COLOURS; i++) {
        td_free(lines[i].x);
        td_free(lines[i].y);
    }
    return st;
}

/* --- the table -------------------------------------------------------------------------------- */

static void add_ap(double ap, td_text *out)
{
    td_text_add(out, "<td>");
    if (!isnan(ap))
        td_text_add(out, "%.4f", ap);
    td_text_add(out, "</td>");
}

static void add_row(const td_run_log *runs, int n, const char *metric, td_text *out)
{
    td_text_add(out, "<tr><th scope=\"row\">");
    td_html_add(out, class_name(metric));
    td_text_add(out, "</th>");
    for (int i = 0; i < n; i++) {
        const td_run_series *s = td_run_log_series(&runs[i], TD_RUN_EPOCHS, metric);
        double best = (double)NAN;
        for (size_t k = 0; s && k < s->n; k++)
            best = fmax(best, s->points[k].value);
        add_ap(s ? s->points[s->n - 1].value : (double)NAN, out);
        add_ap(best, out);
    }
    td_text_add(out, "</tr>\n");
}

static void add_heads(const td_run_log *runs, int n, td_text *out)
{
    td_text_add(out, "<thead><tr><th scope=\"col\">class</th>");
    for (int i = 0; i < n; i++)
        for (int best = 0; best < 2; best++) {
            td_text_add(out, "<th scope=\"col\">");
            td_html_add(out, n > 1 ? runs[i].label : "");
            td_text_add(out, "%s%s</th>", n > 1 ? ", " : "", best ? "best" : "last");
        }
    td_text_add(out, "</tr></thead><tbody>\n");
}

td_status td_run_classes_html(const td_run_log *runs, int n, td_text *out)
{
    td_status st = TD_OK;
    class_list classes = { 0 };
    TD_OUT(collect(runs, n, &classes));
    if (classes.n == 0)
        goto out;
    td_text_add(out, "<h2>AP by class</h2>\n");
    if (n == 1 && classes.n <= TD_CHART_COLOURS)
        TD_OUT(add_chart(&runs[0], &classes, out));
    td_text_add(out, "<div class=\"scroll\"><table class=\"num\">");
    add_heads(runs, n, out);
    for (size_t i = 0; i < classes.n; i++)
        add_row(runs, n, classes.metric[i], out);
    td_text_add(out, "</tbody></table></div>\n");
out:
    td_free(classes.metric);
    return st;
}
