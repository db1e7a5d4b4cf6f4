/*
 * run_seeds_show.c -- the tables of seeds and of precisions: text, Markdown, JSON, the page
 *
 * A table is built once, as a grid of texts, and written in any form.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/run_chart.h"
#include "report/run_seeds.h"

enum { MAX_COLUMNS = 9, WORDS = 3 }; /* the first columns are texts, the others numbers */

static const char *const about_seeds =
    "Runs that differ in the seed alone; sd: of a sample, over n - 1.";
static const char *const about_pairs =
    "The same but for the precision; sd: of the seeds, both sides pooled; within: the means are at "
    "most one sd apart.";

/* --- a grid ----------------------------------------------------------------------------------- */

/* Rows of texts; the first is the header. */
typedef struct {
    char *(*rows)[MAX_COLUMNS];
    int n, n_columns;
    size_t cap;
    td_arena arena;
    td_status st;
} grid;

static void begin_row(grid *g)
{
    if (g->st == TD_OK)
        g->st = td_reserve(&g->rows, &g->cap, (size_t)g->n + 1, sizeof *g->rows);
    if (g->st == TD_OK)
        memset(g->rows[g->n++], 0, sizeof *g->rows);
}

static void put(grid *g, int column, const char *text)
{
    if (g->st != TD_OK)
        return;
    g->rows[g->n - 1][column] = td_arena_text(&g->arena, text);
    if (!g->rows[g->n - 1][column])
        g->st = TD_ENOMEM;
    g->n_columns = column >= g->n_columns ? column + 1 : g->n_columns;
}

static void put_head(grid *g, const char *const *titles)
{
    begin_row(g);
    for (int i = 0; titles[i]; i++)
        put(g, i, titles[i]);
}

static void put_real(grid *g, int column, double x, int decimals, bool has_sign)
{
    char text[40] = "-";
    if (isfinite(x))
        snprintf(text, sizeof text, has_sign ? "%+.*f" : "%.*f", decimals, x);
    put(g, column, text);
}

static void release(grid *g, td_text *out)
{
    if (out->st == TD_OK)
        out->st = g->st;
    td_free(g->rows);
    td_arena_release(&g->arena);
}

static int columns_of(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* Add a cell; spaces replace characters that would break a line or a cell. */
static void add_cell(const char *s, int width, bool is_right, bool is_markdown, td_text *out)
{
    const int pad = width > columns_of(s) ? width - columns_of(s) : 0;
    td_text_add(out, "%*s", is_right ? pad : 0, "");
    for (; *s; s++) {
        const bool is_bad = (unsigned char)*s < 0x20 || (is_markdown && *s == '|');
        td_text_add_bytes(out, is_bad ? " " : s, 1);
    }
    td_text_add(out, "%*s", is_right ? 0 : pad, "");
}

static void add_line(const grid *g, int row, const int *width, bool is_markdown, td_text *out)
{
    td_text_add(out, is_markdown ? "| " : "");
    for (int c = 0; c < g->n_columns; c++) {
        const bool is_last = c + 1 == g->n_columns;
        add_cell(g->rows[row][c], width[c], c >= WORDS, is_markdown, out);
        td_text_add(out, "%s", is_markdown ? (is_last ? " |" : " | ") : is_last ? "" : "  ");
    }
    td_text_add(out, "\n");
}

static void add_grid(const grid *g, const char *about, td_run_table_form form, td_text *out)
{
    const bool is_markdown = form == TD_RUN_MARKDOWN;
    int width[MAX_COLUMNS] = { 0 };
    if (g->st != TD_OK)
        return;
    for (int row = 0; row < g->n; row++)
        for (int c = 0; c < g->n_columns; c++)
            if (columns_of(g->rows[row][c]) > width[c])
                width[c] = columns_of(g->rows[row][c]);
    td_text_add(out, "\n%s\n\n", about);
    for (int row = 0; row < g->n; row++) {
        add_line(g, row, width, is_markdown, out);
        if (row > 0 || !is_markdown)
            continue;
        td_text_add(out, "|");
        for (int c = 0; c < g->n_columns; c++)
            td_text_add(out, c < WORDS ? "---|" : "--:|");
        td_text_add(out, "\n");
    }
}

static void add_html(const grid *g, const char *title, const char *about, td_text *out)
{
    if (g->st != TD_OK)
        return;
    td_text_add(out, "<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, about);
    td_text_add(out, "<div class=\"scroll\"><table class=\"num\"><thead><tr>");
    for (int c = 0; c < g->n_columns; c++)
        td_text_add(out, "<th scope=\"col\">%s</th>", g->rows[0][c]);
    td_text_add(out, "</tr></thead><tbody>\n");
    for (int row = 1; row < g->n; row++) {
        for (int c = 0; c < g->n_columns; c++) {
            td_text_add(out, c ? "<td>" : "<tr><th scope=\"row\">");
            td_html_add(out, g->rows[row][c]);
            td_text_add(out, c ? "</td>" : "</th>");
        }
        td_text_add(out, "</tr>\n");
    }
    td_text_add(out, "</tbody></table></div>\n");
}

/* --- contents --------------------------------------------------------------------------------- */

static int decimals_of(int metric)
{
    return metric < 2 || metric == 5 ? 5 : 3; /* AP, AP50, mAP; percentages */
}

static void put_words(grid *g, const td_seeds *s, int group, int metric, int selection)
{
    static const char *const titles[] = { "AP", "AP50", "top1, %", NULL, "top1 of EMA, %", "mAP" };
    char topk[64];
    td_text label = { 0 };
    snprintf(topk, sizeof topk, "%s, %%", s->metric[metric] + strlen("val."));
    td_seeds_label(s, group, &label);
    if (g->st == TD_OK)
        g->st = td_text_status(&label);
    put(g, 0, td_text_get(&label));
    put(g, 1, metric == 3 ? topk : titles[metric]);
    put(g, 2, td_seed_selections[selection]);
    td_text_release(&label);
}

static void put_group(grid *g, const td_seeds *s, int group)
{
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int k = 0; s->metric[m] && k < TD_SEED_SELECTIONS; k++) {
            const td_spread *x = &s->groups[group].spread[m][k];
            const double values[] = { x->mean, x->sd, x->min, x->max, x->median };
            begin_row(g);
            put_words(g, s, group, m, k);
            put_real(g, WORDS, x->n, 0, false);
            for (int i = 0; i < 5; i++)
                put_real(g, WORDS + 1 + i, values[i], decimals_of(m), false);
        }
}

static void put_pair(grid *g, const td_seeds *s, const td_seed_pair *p)
{
    char against[64];
    snprintf(against, sizeof against, "%.20s - %.20s", td_seeds_precision(s, p->group),
             td_seeds_precision(s, p->base));
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int k = 0; s->metric[m] && k < TD_SEED_SELECTIONS; k++) {
            const double d = p->difference[m][k], sd = p->sd[m][k];
            begin_row(g);
            put_words(g, s, p->group, m, k);
            put(g, WORDS, against);
            put_real(g, WORDS + 1, d, decimals_of(m), true);
            put_real(g, WORDS + 2, sd, decimals_of(m), false);
            put_real(g, WORDS + 3, fabs(d) / sd, 2, false);
            put(g, WORDS + 4,
                isnan(d) || isnan(sd)        ? "-"
                : td_seed_is_within(p, m, k) ? "yes"
                                             : "no");
        }
}

static void make_seeds(const td_seeds *s, grid *g)
{
    static const char *const titles[] = { "group", "result", "of",  "n",      "mean",
                                          "sd",    "min",    "max", "median", NULL };
    put_head(g, titles);
    for (int i = 0; i < s->n_groups; i++)
        if (s->groups[i].is_shown)
            put_group(g, s, i);
}

static void make_pairs(const td_seeds *s, grid *g)
{
    static const char *const titles[] = { "group", "result", "of",     "precisions", "difference",
                                          "sd",    "in sd",  "within", NULL };
    put_head(g, titles);
    for (int i = 0; i < s->n_pairs; i++)
        put_pair(g, s, &s->pairs[i]);
}

/* Add the runs left out, "'runs/a', 'runs/b'", in the order of the report; returns their number. */
static int add_left_out(const td_seeds *s, td_text *out)
{
    int n = 0;
    for (int i = 0; i < s->n_groups; i++)
        for (int k = 0; s->groups[i].is_shown && k < s->groups[i].n_runs; k++)
            if (s->groups[i].is_left_out[k]) {
                td_text_add(out, "%s'%s'", n ? ", " : "", s->runs[s->groups[i].runs[k]].label);
                n++;
            }
    return n;
}

/* --- the forms -------------------------------------------------------------------------------- */

void td_seeds_text(const td_seeds *s, td_run_table_form form, td_text *out)
{
    grid seeds = { .n = 0 }, pairs = { .n = 0 };
    td_text left_out = { 0 };
    if (!td_seeds_any(s))
        return;
    make_seeds(s, &seeds);
    add_grid(&seeds, about_seeds, form, out);
    if (add_left_out(s, &left_out)) {
        td_text_add(out, "\nNot ended, or ended early, and left out: ");
        add_cell(td_text_get(&left_out), 0, false, form == TD_RUN_MARKDOWN, out);
        td_text_add(out, "\n");
    }
    if (s->n_pairs) {
        make_pairs(s, &pairs);
        add_grid(&pairs, about_pairs, form, out);
    }
    td_text_release_into(&left_out, out);
    release(&seeds, out);
    release(&pairs, out);
}

void td_seeds_html(const td_seeds *s, td_text *out)
{
    grid seeds = { .n = 0 }, pairs = { .n = 0 };
    td_text left_out = { 0 };
    if (!td_seeds_any(s))
        return;
    make_seeds(s, &seeds);
    add_html(&seeds, "Spread over seeds", about_seeds, out);
    if (add_left_out(s, &left_out)) {
        td_text_add(out, "<p class=\"warn\">Not ended, or ended early, and left out: ");
        td_html_add(out, td_text_get(&left_out));
        td_text_add(out, "</p>\n");
    }
    if (s->n_pairs) {
        make_pairs(s, &pairs);
        add_html(&pairs, "Precisions", about_pairs, out);
    }
    td_text_release_into(&left_out, out);
    release(&seeds, out);
    release(&pairs, out);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_label(const td_seeds *s, int group, const char *name, td_text *out)
{
    td_text label = { 0 };
    td_seeds_label(s, group, &label);
    td_json_add_text(out, name, td_text_get(&label));
    td_text_release_into(&label, out);
}

static void json_runs(const td_seeds *s, const td_seed_group *g, td_text *out)
{
    td_text_add(out, ", \"runs\": [");
    for (int i = 0; i < g->n_runs; i++) {
        const td_run_log *run = &s->runs[g->runs[i]];
        td_text_add(out, i ? ", {" : "{");
        td_json_add_text(out, "run", run->label);
        td_json_add_text(out, "seed", td_run_log_setting(run, "seed"));
        td_text_add(out, ", \"is_left_out\": %s}", g->is_left_out[i] ? "true" : "false");
    }
    td_text_add(out, "]");
}

static void json_group(const td_seeds *s, int group, td_text *out)
{
    const td_seed_group *g = &s->groups[group];
    bool is_first = true;
    td_text_add(out, "{");
    json_label(s, group, "group", out);
    td_json_add_text(out, "precision", td_seeds_precision(s, group));
    json_runs(s, g, out);
    td_text_add(out, ", \"results\": [");
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int k = 0; s->metric[m] && k < TD_SEED_SELECTIONS; k++) {
            const td_spread *x = &g->spread[m][k];
            td_text_add(out, is_first ? "{" : ", {");
            td_json_add_text(out, "metric", s->metric[m]);
            td_json_add_text(out, "of", td_seed_selections[k]);
            td_json_add(out, "n", x->n);
            td_json_add(out, "mean", x->mean);
            td_json_add(out, "sd", x->sd);
            td_json_add(out, "min", x->min);
            td_json_add(out, "max", x->max);
            td_json_add(out, "median", x->median);
            td_text_add(out, "}");
            is_first = false;
        }
    td_text_add(out, "]}");
}

static void json_pair(const td_seeds *s, const td_seed_pair *p, td_text *out)
{
    bool is_first = true;
    td_text_add(out, "{");
    json_label(s, p->group, "group", out);
    json_label(s, p->base, "base", out);
    td_json_add_text(out, "precision", td_seeds_precision(s, p->group));
    td_json_add_text(out, "base_precision", td_seeds_precision(s, p->base));
    td_text_add(out, ", \"results\": [");
    for (int m = 0; m < TD_SEED_METRICS; m++)
        for (int k = 0; s->metric[m] && k < TD_SEED_SELECTIONS; k++) {
            const double d = p->difference[m][k], sd = p->sd[m][k];
            td_text_add(out, is_first ? "{" : ", {");
            td_json_add_text(out, "metric", s->metric[m]);
            td_json_add_text(out, "of", td_seed_selections[k]);
            td_json_add(out, "difference", d);
            td_json_add(out, "sd", sd);
            td_json_add(out, "in_sd", fabs(d) / sd);
            td_text_add(out, ", \"is_within\": %s}",
                        isnan(d) || isnan(sd)        ? "null"
                        : td_seed_is_within(p, m, k) ? "true"
                                                     : "false");
            is_first = false;
        }
    td_text_add(out, "]}");
}

void td_seeds_json(const td_seeds *s, td_text *out)
{
    bool is_first = true;
    td_text_add(out, "\"seeds\": [");
    for (int i = 0; i < s->n_groups; i++)
        if (s->groups[i].is_shown) {
            td_text_add(out, "%s", is_first ? "" : ", ");
            json_group(s, i, out);
            is_first = false;
        }
    td_text_add(out, "], \"precisions\": [");
    for (int i = 0; i < s->n_pairs; i++) {
        td_text_add(out, "%s", i ? ", " : "");
        json_pair(s, &s->pairs[i], out);
    }
    td_text_add(out, "]");
}
