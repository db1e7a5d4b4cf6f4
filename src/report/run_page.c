/*
 * run_page.c -- writes the HTML page of runs
 *
 * The page loads nothing from the network and executes nothing: its security policy forbids it.
 * All text from a report is escaped.  With one run, each kind of line has a colour; with several,
 * each run has a colour, and kinds have dashes.
 */
#include "report/run_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/run_chart.h"
#include "report/run_classes.h"
#include "report/run_mistakes.h"
#include "report/run_seeds.h"
#include "report/run_table.h"

enum {
    MAX_POINTS = 300, /* points of a line over iterations; more are averaged */
    MAX_KINDS = 6,
    MAX_LINES = TD_RUN_PAGE_MAX * MAX_KINDS,
    MAX_NUMBER_ROWS = 400
};

extern const char td_embedded_run_page_css[];

/* --- lines ------------------------------------------------------------------------------------ */

/* A line of a chart: a metric over epochs, over iterations, or over iterations as a background. */
typedef struct {
    const char *metric, *name;
    enum { OF_EPOCHS, OF_ITERATIONS, BACKGROUND } source;
    int colour; /* used if there is only one run */
    int dash;
} kind;

typedef struct {
    td_chart_line lines[MAX_LINES];
    char names[MAX_LINES][160];
    int n;
} line_set;

static void release_lines(line_set *set)
{
    for (int i = 0; i < set->n; i++) {
        td_free(set->lines[i].x);
        td_free(set->lines[i].y);
    }
    td_free(set);
}

static double position_of(const td_run_log *run, const td_run_point *p)
{
    return p->iteration ? (double)p->epoch + (double)p->iteration / (double)run->epoch_batches
                        : (double)p->epoch + 1;
}

/* Fill a line with at most MAX_POINTS points, the means of neighboring points. */
static td_status fill_line(const td_run_log *run, const td_run_series *s, td_chart_line *l)
{
    const size_t group = (s->n + MAX_POINTS - 1) / MAX_POINTS;
    const size_t n = (s->n + group - 1) / group;
    TD_TRY(TD_ALLOC(l->x, n));
    TD_TRY(TD_ALLOC(l->y, n));
    for (size_t i = 0; i < s->n; i++) {
        const size_t first = i / group * group;
        const size_t many = first + group < s->n ? group : s->n - first;
        l->x[i / group] = position_of(run, &s->points[i]);
        l->y[i / group] += s->points[i].value / (double)many;
    }
    l->n = (int)n;
    return TD_OK;
}

static td_status add_line(line_set *set, const td_run_log *run, int i_run, bool is_only,
                          const kind *k)
{
    const bool of_iterations = k->source != OF_EPOCHS;
    const td_run_series *s =
        td_run_log_series(run, of_iterations ? TD_RUN_ITERATIONS : TD_RUN_EPOCHS, k->metric);
    if (!s && k->source == OF_ITERATIONS) /* not recorded per iteration */
        s = td_run_log_series(run, TD_RUN_EPOCHS, k->metric);
    if (!s || set->n == MAX_LINES)
        return TD_OK;
    td_chart_line *l = &set->lines[set->n];
    char *name = set->names[set->n];
    set->n++;
    snprintf(name, sizeof set->names[0], is_only ? "%s%s" : "%s, %s", is_only ? "" : run->label,
             k->name);
    *l = (td_chart_line){ .name = name,
                          .colour = is_only ? k->colour : i_run % TD_CHART_COLOURS,
                          .dash = is_only ? 0 : k->dash,
                          .is_thin = k->source == BACKGROUND };
    return fill_line(run, s, l);
}

/* --- a chart ---------------------------------------------------------------------------------- */

static bool is_shown(const line_set *set, const kind *k)
{
    for (int i = 0; i < set->n && k->metric && k->source != BACKGROUND; i++)
        if (td_text_ends(set->lines[i].name, k->name) && !set->lines[i].is_thin)
            return true;
    return false;
}

/* Add the legend of dashes and colours, unless there is only one kind of line. */
static void add_key(const line_set *set, const kind *kinds, int n_kinds, bool is_only, td_text *out)
{
    int n_shown = 0;
    for (int k = 0; k < n_kinds; k++)
        n_shown += is_shown(set, &kinds[k]);
    if (n_shown < 2)
        return;
    td_text_add(out, "<ul class=\"key\">");
    for (int k = 0; k < n_kinds; k++) {
        if (!is_shown(set, &kinds[k]))
            continue;
        td_text_add(out,
                    "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><line class=\"line c%d "
                    "d%d\"%s x1=\"1\" y1=\"5\" x2=\"25\" y2=\"5\"/></svg>",
                    kinds[k].colour, is_only ? 0 : kinds[k].dash,
                    is_only ? "" : " style=\"stroke:var(--soft)\"");
        td_html_add(out, kinds[k].name);
        td_text_add(out, "</li>");
    }
    td_text_add(out, "</ul>\n");
}

/* The value of a line at the end of an epoch; NaN: none. */
static double value_at(const td_chart_line *l, double x)
{
    for (int k = 0; k < l->n; k++)
        if (fabs(l->x[k] - x) < 1e-9)
            return l->y[k];
    return (double)NAN;
}

static void add_number_row(const line_set *set, double x, td_text *out)
{
    bool is_any = false;
    for (int i = 0; i < set->n; i++)
        is_any |= !set->lines[i].is_thin && !isnan(value_at(&set->lines[i], x));
    if (!is_any)
        return;
    td_text_add(out, "<tr><th scope=\"row\">%.4g</th>", x);
    for (int i = 0; i < set->n; i++) {
        if (set->lines[i].is_thin)
            continue;
        const double y = value_at(&set->lines[i], x);
        td_text_add(out, "<td>");
        if (!isnan(y))
            td_chart_add_number(out, y);
        td_text_add(out, "</td>");
    }
    td_text_add(out, "</tr>\n");
}

/* Add the values of the lines as a table with a row per epoch. */
static void add_numbers(const line_set *set, const char *title, td_text *out)
{
    double last = 0;
    for (int i = 0; i < set->n; i++)
        if (set->lines[i].n)
            last = fmax(last, set->lines[i].x[set->lines[i].n - 1]);
    const double stride = ceil(last / MAX_NUMBER_ROWS) > 1 ? ceil(last / MAX_NUMBER_ROWS) : 1;
    td_text_add(out, "<details><summary>Numbers: ");
    td_html_add(out, title);
    td_text_add(out, "</summary><div class=\"scroll\"><table class=\"num\"><thead><tr>"
                     "<th scope=\"col\">epochs</th>");
    for (int i = 0; i < set->n; i++)
        if (!set->lines[i].is_thin) {
            td_text_add(out, "<th scope=\"col\">");
            td_html_add(out, set->lines[i].name);
            td_text_add(out, "</th>");
        }
    td_text_add(out, "</tr></thead><tbody>\n");
    for (double x = stride; x < last; x += stride)
        add_number_row(set, x, out);
    add_number_row(set, last, out);
    td_text_add(out, "</tbody></table></div></details>\n");
}

typedef struct {
    const char *id, *title, *unit, *note;
    bool may_be_log;
    kind kinds[MAX_KINDS];
    int n_kinds;
} chart_spec;

static td_status add_chart(const td_run_log *runs, int n, const chart_spec *spec, td_text *out)
{
    td_status st = TD_OK;
    line_set *set = TD_NEW(line_set);
    if (!set)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < spec->n_kinds; k++)
            if (spec->kinds[k].metric)
                TD_OUT(add_line(set, &runs[i], i, n == 1, &spec->kinds[k]));
    if (set->n == 0)
        goto out;
    const td_chart c = { .id = spec->id,
                         .title = spec->title,
                         .unit = spec->unit,
                         .lines = set->lines,
                         .n = set->n,
                         .may_be_log = spec->may_be_log };
    td_text_add(out, "<section class=\"card\"><h3>");
    td_html_add(out, spec->title);
    if (*spec->unit)
        td_text_add(out, ", %s", spec->unit);
    td_text_add(out, "</h3>\n");
    if (spec->note)
        td_text_add(out, "<p class=\"soft\">%s</p>", spec->note);
    add_key(set, spec->kinds, spec->n_kinds, n == 1, out);
    td_chart_add(&c, out);
    add_numbers(set, spec->title, out);
    td_text_add(out, "</section>\n");
out:
    release_lines(set);
    return st;
}

/* Does any run have a loss scale other than 1? */
static bool has_scale(const td_run_log *runs, int n)
{
    for (int i = 0; i < n; i++)
        for (int level = 0; level < TD_RUN_LEVELS; level++) {
            const td_run_series *s =
                td_run_log_series(&runs[i], (td_run_level)level, "train.grad_scale");
            for (size_t k = 0; s && k < s->n; k++)
                if (s->points[k].value != 1)
                    return true;
        }
    return false;
}

static const char *first_topk(const td_run_log *runs, int n, const char *prefix)
{
    for (int i = 0; i < n; i++)
        if (td_run_log_topk(&runs[i], prefix))
            return td_run_log_topk(&runs[i], prefix);
    return NULL;
}

static td_status add_charts(const td_run_log *runs, int n, td_text *out)
{
    const char *topk = first_topk(runs, n, "val."), *ema = first_topk(runs, n, "val_ema.");
    char topk_title[40] = "";
    if (topk)
        snprintf(topk_title, sizeof topk_title, "Top-%s accuracy", topk + strlen("val.top"));
    const chart_spec specs[] = {
        { "loss",
          "Loss",
          "",
          NULL,
          true,
          { { "train.loss", "training, between two lines", BACKGROUND, 0, 0 },
            { "train.loss", "training", OF_EPOCHS, 0, 0 },
            { "val.loss", "validation", OF_EPOCHS, 1, 1 },
            { "val_ema.loss", "validation, EMA", OF_EPOCHS, 2, 2 } },
          4 },
        { "top1",
          "Top-1 accuracy",
          "%",
          NULL,
          false,
          { { "val.top1", "validation", OF_EPOCHS, 1, 0 },
            { "val_ema.top1", "EMA", OF_EPOCHS, 2, 2 } },
          2 },
        { "topk",
          topk_title,
          "%",
          NULL,
          false,
          { { topk, "validation", OF_EPOCHS, 1, 0 }, { ema, "EMA", OF_EPOCHS, 2, 2 } },
          2 },
        { "ap",
          "Average precision",
          "",
          NULL,
          false,
          { { "val.AP50", "IoU 0.50", OF_EPOCHS, 1, 0 }, { "val.AP", "AP", OF_EPOCHS, 0, 1 } },
          2 },
        { "map",
          "Mean average precision",
          "",
          NULL,
          false,
          { { "val.mAP", "validation", OF_EPOCHS, 1, 0 },
            { "val_ema.mAP", "EMA", OF_EPOCHS, 2, 2 } },
          2 },
        { "f1",
          "F1 scores",
          "",
          NULL,
          false,
          { { "val.micro_f1", "micro", OF_EPOCHS, 1, 0 },
            { "val.macro_f1", "macro", OF_EPOCHS, 0, 1 } },
          2 },
        { "lr",
          "Learning rate",
          "",
          NULL,
          false,
          { { "train.lr", "learning rate", OF_ITERATIONS, 3, 0 } },
          1 },
        { "scale",
          "Loss scale",
          "",
          NULL,
          true,
          { { "train.grad_scale", "loss scale", OF_ITERATIONS, 4, 0 } },
          1 },
        { "rate",
          "Training speed",
          "images/s",
          NULL,
          false,
          { { "train.total_ips", "with waits for data", OF_ITERATIONS, 0, 0 },
            { "train.compute_ips", "without", OF_ITERATIONS, 5, 1 } },
          2 },
        { "inference",
          "Inference speed",
          "images/s",
          NULL,
          false,
          { { "val.total_ips", "validation", OF_EPOCHS, 1, 0 } },
          1 },
    };
    td_text_add(out, "<h2>Curves</h2>\n<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        if (strcmp(specs[i].id, "scale") != 0 || has_scale(runs, n))
            TD_TRY(add_chart(runs, n, &specs[i], out));
    td_text_add(out, "</div>\n");
    return TD_OK;
}

/* --- results ---------------------------------------------------------------------------------- */

static void add_title(const td_run_log *runs, int n, int row, td_text *out)
{
    td_text title = { 0 };
    td_run_table_title(runs, n, row, &title);
    td_html_add(out, td_text_get(&title));
    td_text_release_into(&title, out);
}

static void add_tile(const td_run_log *run, const char *row_name, td_text *out)
{
    for (int row = 0; row < td_run_table_rows(); row++) {
        td_text cell = { 0 };
        if (strcmp(td_run_table_name(row), row_name) != 0)
            continue;
        td_run_table_cell(run, row, &cell);
        if (cell.len) {
            td_text_add(out, "<div class=\"tile\"><b>");
            td_html_add(out, td_text_get(&cell));
            td_text_add(out, "</b><span>");
            add_title(run, 1, row, out);
            td_text_add(out, "</span></div>\n");
        }
        td_text_release_into(&cell, out);
    }
}

static void add_swatch(int i, td_text *out)
{
    td_text_add(out,
                "<svg class=\"swatch\" viewBox=\"0 0 26 10\" aria-hidden=\"true\">"
                "<line class=\"line c%d\" style=\"stroke-width:4\" x1=\"2\" y1=\"5\" x2=\"24\" "
                "y2=\"5\"/></svg>",
                i % TD_CHART_COLOURS);
}

static void add_run_heads(const td_run_log *runs, int n, const char *first, td_text *out)
{
    td_text_add(out, "<thead><tr><th scope=\"col\">%s</th>", first);
    for (int i = 0; i < n; i++) {
        td_text_add(out, "<th scope=\"col\">");
        if (n > 1)
            add_swatch(i, out);
        td_html_add(out, runs[i].label);
        td_text_add(out, "</th>");
    }
    td_text_add(out, "</tr></thead><tbody>\n");
}

static void add_results(const td_run_log *runs, int n, td_text *out)
{
    td_text_add(out, "<h2>Results</h2>\n<div class=\"scroll\"><table class=\"num\">");
    add_run_heads(runs, n, "", out);
    for (int row = 0; row < td_run_table_rows(); row++) {
        td_text line = { 0 };
        bool is_any = false;
        for (int i = 0; i < n; i++) {
            td_text cell = { 0 };
            td_run_table_cell(&runs[i], row, &cell);
            is_any |= cell.len > 0;
            const bool is_best = td_run_table_is_best(runs, n, row, i);
            td_text_add(&line, is_best ? "<td class=\"best\">" : "<td>");
            td_html_add(&line, td_text_get(&cell));
            td_text_add(&line, "</td>");
            td_text_release_into(&cell, out);
        }
        if (is_any) {
            td_text_add(out, "<tr><th scope=\"row\">");
            add_title(runs, n, row, out);
            td_text_add(out, "</th>%s</tr>\n", td_text_get(&line));
        }
        td_text_release_into(&line, out);
    }
    td_text_add(out, "</tbody></table></div>\n");
    if (n > 1)
        td_text_add(out, "<p class=\"soft\">The best of a row is marked.</p>\n");
}

/* --- seeds ------------------------------------------------------------------------------------ */

static td_status add_seeds(const td_run_log *runs, int n, td_text *out)
{
    td_seeds seeds;
    const td_status st = td_seeds_find(runs, n, &seeds);
    if (st == TD_OK)
        td_seeds_html(&seeds, out);
    td_seeds_release(&seeds);
    return st;
}

/* --- settings --------------------------------------------------------------------------------- */

/* The settings of all runs, each once. */
typedef struct {
    const char **name;
    size_t n, cap;
} name_list;

static td_status collect_names(const td_run_log *runs, int n, name_list *out)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].n_settings; k++) {
            bool is_seen = false;
            for (size_t b = 0; b < out->n && !is_seen; b++)
                is_seen = strcmp(out->name[b], runs[i].settings[k].name) == 0;
            if (is_seen)
                continue;
            TD_TRY(td_reserve(&out->name, &out->cap, out->n + 1, sizeof *out->name));
            out->name[out->n++] = runs[i].settings[k].name;
        }
    return TD_OK;
}

static bool differs(const td_run_log *runs, int n, const char *name)
{
    const char *first = td_run_log_setting(&runs[0], name);
    for (int i = 1; i < n; i++) {
        const char *other = td_run_log_setting(&runs[i], name);
        if (!first != !other || (first && strcmp(first, other) != 0))
            return true;
    }
    return false;
}

enum { MACHINE, OPTIONS, DIFFERENT };

static bool is_in_part(const td_run_log *runs, int n, const char *name, int part)
{
    const bool is_machine = td_text_starts(name, "run.");
    if (part == DIFFERENT)
        return differs(runs, n, name);
    return part == MACHINE ? is_machine : !is_machine;
}

static void add_settings(const td_run_log *runs, int n, const name_list *names, int part,
                         const char *title, td_text *out)
{
    td_text body = { 0 };
    for (size_t at = 0; at < names->n; at++) {
        const char *name = names->name[at];
        if (!is_in_part(runs, n, name, part))
            continue;
        const bool is_marked = part != DIFFERENT && differs(runs, n, name);
        td_text_add(&body, "<tr%s><th scope=\"row\">", is_marked ? " class=\"diff\"" : "");
        td_html_add(&body, part == MACHINE ? name + strlen("run.") : name);
        td_text_add(&body, "</th>");
        for (int i = 0; i < n; i++) {
            const char *value = td_run_log_setting(&runs[i], name);
            td_text_add(&body, "<td>");
            td_html_add(&body, value ? value : "");
            td_text_add(&body, "</td>");
        }
        td_text_add(&body, "</tr>\n");
    }
    if (body.len) {
        td_text_add(out,
                    "<details%s><summary>%s</summary><div class=\"scroll\"><table "
                    "class=\"set\">",
                    part == OPTIONS ? "" : " open", title);
        add_run_heads(runs, n, "", out);
        td_text_add(out, "%s</tbody></table></div></details>\n", td_text_get(&body));
    }
    td_text_release_into(&body, out);
}

static td_status add_configuration(const td_run_log *runs, int n, td_text *out)
{
    name_list names = { 0 };
    const td_status st = collect_names(runs, n, &names);
    if (st == TD_OK) {
        td_text_add(out, "<h2>Configuration</h2>\n");
        if (n > 1)
            add_settings(runs, n, &names, DIFFERENT, "What differs", out);
        add_settings(runs, n, &names, MACHINE, "Machine and data", out);
        add_settings(runs, n, &names, OPTIONS, "All options", out);
    }
    td_free(names.name);
    return st;
}

/* --- the page --------------------------------------------------------------------------------- */

static void add_head(const td_run_log *runs, int n, const char *title, td_text *out)
{
    td_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                     "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                     "style-src 'unsafe-inline'; img-src data:\">\n<title>");
    td_html_add(out, title);
    td_text_add(out, "</title>\n<style>%s</style></head>\n<body><main>\n<h1>",
                td_embedded_run_page_css);
    td_html_add(out, title);
    td_text_add(out, "</h1>\n");
    if (n == 1 && *runs[0].began) {
        td_text_add(out, "<p class=\"soft\">begun ");
        td_html_add(out, runs[0].began);
        td_text_add(out, "</p>\n");
    }
    for (int i = 0; i < n; i++)
        if (runs[i].is_cut) {
            td_text_add(out, "<p class=\"warn\">The last line of ");
            td_html_add(out, runs[i].path);
            td_text_add(
                out,
                " is truncated and was ignored: that run was killed, or is still running.</p>\n");
        }
}

td_status td_run_page(const td_run_log *runs, int n, const char *title, const char *images,
                      td_text *out)
{
    static const char *const tiles[] = {
        "top1",       "topk",     "ema_top1", "ap",         "ap50",
        "map",        "micro_f1", "val_loss", "train_loss", "train_images_per_s",
        "latency_ms", "epochs",   "seconds"
    };
    add_head(runs, n, title, out);
    if (n == 1) {
        td_text_add(out, "<div class=\"tiles\">\n");
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
            add_tile(&runs[0], tiles[i], out);
        td_text_add(out, "</div>\n");
    } else {
        td_text_add(out, "<ul class=\"key\">");
        for (int i = 0; i < n; i++) {
            td_text_add(out, "<li>");
            add_swatch(i, out);
            td_html_add(out, runs[i].label);
            td_text_add(out, "</li>");
        }
        td_text_add(out, "</ul>\n");
        add_results(runs, n, out);
        TD_TRY(add_seeds(runs, n, out));
    }
    TD_TRY(add_charts(runs, n, out));
    if (n == 1)
        add_results(runs, n, out);
    TD_TRY(td_run_classes_html(runs, n, out));
    TD_TRY(td_run_mistakes_html(runs, n, images, out));
    TD_TRY(add_configuration(runs, n, out));
    td_text_add(out, "</main></body></html>\n");
    return td_text_status(out);
}
