/*
 * report_csv.c -- writes metrics as CSV; a resumed run keeps the earlier rows
 */
#include "loggers/report_csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/paths.h"
#include "base/text.h"
#include "io/atomic.h"
#include "loggers/report_metrics.h"

enum { MAX_COLUMNS = 64, MAX_FILE = 1 << 30 };

struct td_report_csv {
    FILE *f;
    char *path;
    int n_step, n;
    char name[MAX_COLUMNS][40];
    double value[MAX_COLUMNS]; /* NaN: empty */
};

static td_status add_column(void *ctx, const char *name, const td_metric *m)
{
    td_report_csv *c = ctx;
    if (m->level == TD_METRIC_JSON_ONLY)
        return TD_OK;
    if (c->n_step == 2 && !td_text_starts(name, "train.")) /* other metrics exist per epoch only */
        return TD_OK;
    TD_CHECK(c->n < MAX_COLUMNS);
    snprintf(c->name[c->n], sizeof c->name[0], "%s", name);
    c->value[c->n++] = (double)NAN;
    return TD_OK;
}

static void add_header(const td_report_csv *c, td_text *out)
{
    td_text_add(out, c->n_step == 1 ? "epoch" : "epoch,iteration");
    for (int i = 0; i < c->n; i++)
        td_text_add(out, ",%s", c->name[i]);
    td_text_add(out, "\n");
}

/* Is the row before the position at which the run resumes? */
static bool is_before(const td_report_csv *c, const char *row, const int64_t *at)
{
    char *end;
    const long long epoch = strtoll(row, &end, 10);
    if (end == row || *end != ',')
        return false;
    if (c->n_step == 1)
        return epoch < at[0];
    const long long iteration = strtoll(end + 1, NULL, 10);
    return epoch < at[0] || (epoch == at[0] && iteration <= at[1]);
}

/* Add the rows that a resumed run keeps: complete ones before its position. */
static td_status keep_rows(const td_report_csv *c, const int64_t *at, td_text *out)
{
    char *old;
    size_t n;
    if (!td_path_exists(c->path))
        return TD_OK;
    TD_TRY(td_file_read(c->path, MAX_FILE, &old, &n));
    td_status st = TD_OK;
    if (n > 0 && strncmp(old, td_text_get(out), out->len) != 0)
        TD_OUT(td_error(TD_EFORMAT,
                        "'%s' has different columns from this run: name another file, or remove it",
                        c->path));
    for (const char *row = old + (n ? out->len : 0), *end; (end = strchr(row, '\n')) != NULL;
         row = end + 1)
        if (is_before(c, row, at))
            td_text_add_bytes(out, row, (size_t)(end - row) + 1);
out:
    td_free(old);
    return st;
}

static td_status begin_file(td_report_csv *c, const td_report_csv_opts *o)
{
    td_text text = { 0 };
    td_status st = TD_OK;
    add_header(c, &text);
    TD_OUT(td_text_status(&text));
    if (o->continued_at) {
        TD_OUT(keep_rows(c, o->continued_at, &text));
        TD_OUT(td_text_status(&text));
        TD_OUT(td_atomic_save(c->path, td_text_get(&text), text.len));
    }
    c->f = fopen(c->path, o->continued_at ? "ae" : "we");
    if (!c->f)
        TD_OUT(td_error_errno(TD_EIO, "cannot write '%s'", c->path));
    if (!o->continued_at && (fputs(td_text_get(&text), c->f) < 0 || fflush(c->f) != 0))
        TD_OUT(td_error_errno(TD_EIO, "cannot write '%s'", c->path));
out:
    td_text_release(&text);
    return st;
}

td_status td_report_csv_open(const td_report_csv_opts *o, td_report_csv **out)
{
    td_status st = TD_OK;
    *out = NULL;
    td_report_csv *c = TD_NEW(td_report_csv);
    if (!c)
        return TD_ENOMEM;
    c->n_step = o->n_step;
    c->path = td_copy_text(o->path);
    if (!c->path)
        TD_OUT(TD_ENOMEM);
    const td_metric_choice choice = { .topk = o->topk,
                                      .has_l2_loss = o->has_l2_loss,
                                      .detects = o->detects,
                                      .has_grad_norm = o->has_grad_norm,
                                      .is_multi_label = o->is_multi_label };
    TD_OUT(td_metric_each(&choice, add_column, c));
    TD_OUT(begin_file(c, o));
    *out = c;
    return TD_OK;
out:
    if (c->f)
        fclose(c->f);
    td_free(c->path);
    td_free(c);
    return st;
}

void td_report_csv_set(td_report_csv *c, const char *metric, double value)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->name[i], metric) == 0)
            c->value[i] = value;
}

td_status td_report_csv_row(td_report_csv *c, const int64_t *step)
{
    td_text row = { 0 };
    for (int i = 0; i < c->n_step; i++)
        td_text_add(&row, i ? ",%lld" : "%lld", (long long)step[i]);
    for (int i = 0; i < c->n; i++) {
        td_text_add(&row, isfinite(c->value[i]) ? ",%.9g" : ",", c->value[i]);
        c->value[i] = (double)NAN;
    }
    td_text_add(&row, "\n");
    td_status st = td_text_status(&row);
    if (st == TD_OK && (fputs(td_text_get(&row), c->f) < 0 || fflush(c->f) != 0))
        st = td_error_errno(TD_EIO, "cannot write '%s'", c->path);
    td_text_release(&row);
    return st;
}

td_status td_report_csv_close(td_report_csv *c)
{
    td_status st = TD_OK;
    if (!c)
        return TD_OK;
    if (fclose(c->f) != 0)
        st = td_error_errno(TD_EIO, "cannot write '%s'", c->path);
    td_free(c->path);
    td_free(c);
    return st;
}
