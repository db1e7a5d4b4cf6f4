/*
 * run_report.c -- tandem report: reads the reports of runs and writes their results
 */
#include <stdio.h>

#include "base/log.h"
#include "base/paths.h"
#include "io/atomic.h"
#include "options/field.h"
#include "options/rows.h"
#include "report/run_log.h"
#include "report/run_page.h"
#include "report/run_seeds.h"
#include "tandem/report.h"

static const char *const formats[] = { "auto", "html", "text", "markdown|md", "csv", "json", NULL };

/* clang-format off */
static const td_field fields[] = {
    TD_TEXT_AS(td_run_report_opts, output, "output", "o", NULL, "FILE",
               "output file; default: standard output"),
    TD_BOOL   (td_run_report_opts, overwrite, false, "replace the output file if it exists"),
    TD_ENUM   (td_run_report_opts, format, TD_RUN_REPORT_AUTO, formats,
               "html: page with curves; others: tables of results; auto: by the extension of "
               "--output, or text"),
    TD_TEXT   (td_run_report_opts, title, NULL, "TEXT", "title of the page"),
    TD_TEXT   (td_run_report_opts, images, NULL, "FOLDER",
               "data set of the run; the page shows misclassified images from it"),
    TD_LOG_ROW(td_run_report_opts),
    TD_END,
};
/* clang-format on */

const td_field *td_run_report_fields(void)
{
    return fields;
}

void td_run_report_defaults(td_run_report_opts *opts)
{
    *opts = (td_run_report_opts){ 0 };
    td_fields_default(fields, opts);
}

/* What the ending of the output file says; AUTO: nothing. */
static td_run_report_format format_of_ending(const char *output)
{
    static const struct {
        const char *end;
        td_run_report_format format;
    } ends[] = { { ".html", TD_RUN_REPORT_HTML },
                 { ".htm", TD_RUN_REPORT_HTML },
                 { ".md", TD_RUN_REPORT_MARKDOWN },
                 { ".csv", TD_RUN_REPORT_CSV },
                 { ".json", TD_RUN_REPORT_JSON } };
    for (size_t i = 0; output && i < sizeof ends / sizeof *ends; i++)
        if (td_text_ends(output, ends[i].end))
            return ends[i].format;
    return TD_RUN_REPORT_AUTO;
}

static td_run_report_format format_of(const td_run_report_opts *o)
{
    if (o->format != TD_RUN_REPORT_AUTO || o->json)
        return o->json ? TD_RUN_REPORT_JSON : o->format;
    const td_run_report_format ending = format_of_ending(o->output);
    return ending == TD_RUN_REPORT_AUTO ? TD_RUN_REPORT_TEXT : ending;
}

/* Append the table of results and, except for TD_RUN_REPORT_CSV, those of seeds and precisions. */
static td_status write_tables(const td_run_log *runs, int n, td_run_report_format format,
                              td_text *out)
{
    static const td_run_table_form forms[] = { [TD_RUN_REPORT_TEXT] = TD_RUN_TEXT,
                                               [TD_RUN_REPORT_MARKDOWN] = TD_RUN_MARKDOWN,
                                               [TD_RUN_REPORT_CSV] = TD_RUN_CSV,
                                               [TD_RUN_REPORT_JSON] = TD_RUN_JSON };
    td_seeds seeds;
    td_status st = td_seeds_find(runs, n, &seeds);
    TD_OUT(st);
    td_text_add(out, format == TD_RUN_REPORT_JSON ? "{\"runs\": " : "");
    TD_OUT(td_run_table(runs, n, forms[format], out));
    if (format == TD_RUN_REPORT_JSON) {
        td_text_add(out, ", ");
        td_seeds_json(&seeds, out);
        td_text_add(out, "}\n");
    } else if (format != TD_RUN_REPORT_CSV) {
        td_seeds_text(&seeds, forms[format], out);
    }
    st = td_text_status(out);
out:
    td_seeds_release(&seeds);
    return st;
}

static td_status write_all(const td_run_report_opts *o, const td_run_log *runs, int n, td_text *out)
{
    td_text title = { 0 };
    const td_run_report_format format = format_of(o);
    if (format != TD_RUN_REPORT_HTML)
        return write_tables(runs, n, format, out);
    if (o->title)
        td_text_add(&title, "%s", o->title);
    else if (n == 1)
        td_text_add(&title, "%s", runs[0].label);
    else
        td_text_add(&title, "%d runs", n);
    td_status st = td_text_status(&title);
    if (st == TD_OK)
        st = td_run_page(runs, n, td_text_get(&title), o->images, out);
    td_text_release(&title);
    return st;
}

static td_status check(const td_run_report_opts *o, int n)
{
    const int most = format_of(o) == TD_RUN_REPORT_HTML ? TD_RUN_PAGE_MAX : TD_SEED_RUNS;
    if (o->json && o->format != TD_RUN_REPORT_AUTO && o->format != TD_RUN_REPORT_JSON)
        return td_error(TD_EUSAGE, "--json and --format %s exclude each other",
                        o->format == TD_RUN_REPORT_MARKDOWN ? "markdown" : formats[o->format]);
    const td_run_report_format ending = format_of_ending(o->output);
    if (o->json && ending != TD_RUN_REPORT_AUTO && ending != TD_RUN_REPORT_JSON)
        return td_error(TD_EUSAGE,
                        "--json would write JSON into '%s': leave it out, or use -o FILE.json",
                        o->output);
    if (o->images && format_of(o) != TD_RUN_REPORT_HTML)
        return td_error(TD_EUSAGE, "--images requires --format html or -o FILE.html");
    if (o->images && !td_path_is_folder(o->images))
        return td_error(TD_ENOTFOUND, "--images: '%s' is not a folder", o->images);
    if (n <= most)
        return TD_OK;
    return td_error(TD_EUSAGE, "%s accepts at most %d runs, found %d",
                    most == TD_SEED_RUNS ? "report" : "a page", most, n);
}

td_status td_run_report(const td_run_report_opts *opts, int n, const char *const *paths,
                        char **text)
{
    td_status st = TD_OK;
    td_text out = { 0 };
    int n_read = 0;
    *text = NULL;
    TD_TRY(td_log_configure(opts->log));
    TD_TRY(check(opts, n));
    td_run_log *runs = td_alloc((size_t)n + 1, sizeof *runs);
    if (!runs)
        return TD_ENOMEM;
    for (; n_read < n; n_read++) {
        st = td_run_log_read(paths[n_read], &runs[n_read]);
        if (st == TD_OK && opts->output && td_path_is_same(opts->output, runs[n_read].file))
            st = td_error(TD_EUSAGE, "--output: '%s' is one of the input reports", opts->output);
        if (st != TD_OK) {
            td_run_log_release(&runs[n_read]);
            goto out;
        }
        if (runs[n_read].is_cut)
            td_log(TD_LOG_WARN, "report", "'%s': ignoring the last line, which is truncated",
                   paths[n_read]);
    }
    if (opts->output)
        TD_OUT(td_output_check_new(opts->output, opts->overwrite));
    TD_OUT(write_all(opts, runs, n, &out));
    if (opts->output)
        TD_OUT(td_atomic_save(opts->output, td_text_get(&out), out.len));
out:
    for (int i = 0; i < n_read; i++)
        td_run_log_release(&runs[i]);
    td_free(runs);
    if (opts->output || st != TD_OK) {
        td_text_release(&out);
        return st;
    }
    return td_text_take(&out, st, text);
}
