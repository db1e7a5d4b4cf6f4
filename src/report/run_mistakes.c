/*
 * run_mistakes.c -- confusion matrices and mistakes, as HTML
 */
#include "report/run_mistakes.h"

#include "report/run_chart.h"
#include "report/run_confusion.h"
#include "report/thumbnail.h"

static void add_cell_text(const char *open, const char *text, const char *close, td_text *out)
{
    td_text_add(out, "%s", open);
    td_html_add(out, text);
    td_text_add(out, "%s", close);
}

/* --- the matrix ------------------------------------------------------------------------------- */

/* Add a cell with a count, shaded by its share of the actual class. */
static void add_count(int64_t count, int64_t of_row, bool is_right, td_text *out)
{
    if (count == 0) {
        td_text_add(out, "<td class=\"soft\">0</td>");
        return;
    }
    td_text_add(out, "<td style=\"background:rgba(%s,%.2f)\">%lld</td>",
                is_right ? "31,140,80" : "207,74,18", 0.08 + 0.42 * (double)count / (double)of_row,
                (long long)count);
}

static void add_matrix_row(const td_run_confusion *c, int i, td_text *out)
{
    const int64_t *row = c->counts + (int64_t)i * c->n_classes;
    int64_t sum = 0;
    for (int k = 0; k < c->n_classes; k++)
        sum += row[k];
    add_cell_text("<tr><th scope=\"row\">", c->classes[i], "</th>", out);
    for (int k = 0; k < c->n_classes; k++)
        add_count(row[k], sum, k == i, out);
    td_text_add(out, "</tr>\n");
}

static void add_matrix(const td_run_confusion *c, td_text *out)
{
    td_text_add(out, "<div class=\"scroll\"><table class=\"num matrix\"><caption>Confusion matrix: "
                     "row = actual class, column = predicted class; shaded by the share of the "
                     "row</caption><thead><tr><th scope=\"col\">actual \\ predicted</th>");
    for (int k = 0; k < c->n_classes; k++)
        add_cell_text("<th scope=\"col\"><span>", c->classes[k], "</span></th>", out);
    td_text_add(out, "</tr></thead><tbody>\n");
    for (int i = 0; i < c->n_classes; i++)
        add_matrix_row(c, i, out);
    td_text_add(out, "</tbody></table></div>\n");
}

static void add_pairs(const td_run_confusion *c, td_text *out)
{
    td_text_add(out, "<div class=\"scroll\"><table class=\"num\"><caption>The pairs of classes "
                     "that are confused most</caption><thead><tr><th scope=\"col\">actual</th>"
                     "<th scope=\"col\">predicted</th><th scope=\"col\">images</th></tr></thead>"
                     "<tbody>\n");
    for (int i = 0; i < c->n_pairs; i++) {
        add_cell_text("<tr><th scope=\"row\">", c->pairs[i].actual, "</th>", out);
        add_cell_text("<td>", c->pairs[i].predicted, "</td>", out);
        td_text_add(out, "<td>%lld</td></tr>\n", (long long)c->pairs[i].count);
    }
    td_text_add(out, "</tbody></table></div>\n");
}

/* --- the mistakes ----------------------------------------------------------------------------- */

static td_status add_mistake(const td_run_mistake *m, const char *images, td_text *out)
{
    td_text uri = { 0 };
    td_status st = images ? td_thumbnail_add(images, m->path, &uri) : TD_OK;
    TD_OUT(st);
    TD_OUT(td_text_status(&uri));
    td_text_add(out, "<li>");
    if (uri.len) {
        td_text_add(out, "<img alt=\"");
        td_html_add(out, m->path);
        td_text_add(out, "\" src=\"%s\"/>", td_text_get(&uri));
    }
    add_cell_text("<div><b>", m->actual, "</b> taken for ", out);
    add_cell_text("<b>", m->predicted, "</b>", out);
    td_text_add(out, ", %.1f %%<br><span class=\"soft\">", m->probability * 100);
    if (*m->path)
        td_html_add(out, m->path);
    else
        td_text_add(out, "sample %lld", (long long)m->sample);
    td_text_add(out, "</span></div></li>\n");
out:
    td_text_release(&uri);
    return st;
}

static td_status add_mistakes(const td_run_confusion *c, const char *images, td_text *out)
{
    if (c->n_mistakes == 0)
        return TD_OK;
    td_text_add(out, "<h3>The surest mistakes</h3>\n<ul class=\"mistakes\">\n");
    for (int i = 0; i < c->n_mistakes; i++)
        TD_TRY(add_mistake(&c->mistakes[i], images, out));
    td_text_add(out, "</ul>\n");
    return TD_OK;
}

/* --- a run ------------------------------------------------------------------------------------ */

static td_status add_run(const td_run_log *run, bool is_only, const char *images, td_text *out)
{
    const td_run_confusion *c = run->confusion;
    if (!is_only) {
        td_text_add(out, "<details><summary>");
        td_html_add(out, run->label);
        td_text_add(out, "</summary>\n");
    }
    td_text_add(out, "<p class=\"soft\">%lld of %lld images are wrong", (long long)c->n_wrong,
                (long long)c->n_images);
    if (c->epoch >= 0)
        td_text_add(out, ", in the validation of epoch %lld", (long long)c->epoch + 1);
    td_text_add(out, ".</p>\n");
    if (c->n_classes)
        add_matrix(c, out);
    if (c->n_pairs)
        add_pairs(c, out);
    TD_TRY(add_mistakes(c, images, out));
    td_text_add(out, is_only ? "" : "</details>\n");
    return TD_OK;
}

td_status td_run_mistakes_html(const td_run_log *runs, int n, const char *images, td_text *out)
{
    bool is_any = false;
    for (int i = 0; i < n; i++) {
        if (!runs[i].confusion)
            continue;
        if (!is_any)
            td_text_add(out, "<h2>Mistakes</h2>\n");
        is_any = true;
        TD_TRY(add_run(&runs[i], n == 1, images, out));
    }
    return TD_OK;
}
