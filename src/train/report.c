/*
 * report.c -- writing the report, and the one table of its metrics
 */
#include "train/report.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/os.h"

struct td_report {
    FILE *f;
    char *path;
    double start_s;
    td_text record; /* the data object being built */
    int n_data;
    int n_step;
    int64_t step[3];
};

/* clang-format off */
static const struct {
    const char *name, *unit, *format; /* unit NULL: none */
} metrics[] = {
    { "train.loss",                NULL,       "{:.5f}" },
    { "train.compute_ips",         "images/s", "{:.2f}" },
    { "train.total_ips",           "images/s", "{:.2f}" },
    { "train.data_time",           "s",        "{:.5f}" },
    { "train.compute_time",        "s",        "{:.5f}" },
    { "train.lr",                  NULL,       "{}" },
    { "train.grad_scale",          NULL,       "{}" },
    { "train.skipped_steps",       NULL,       "{}" },
    { "val.top1",                  "%",        "{:.2f}" },
    { "val.top5",                  "%",        "{:.2f}" },
    { "val.loss",                  NULL,       "{:.5f}" },
    { "val.compute_ips",           "images/s", "{:.2f}" },
    { "val.total_ips",             "images/s", "{:.2f}" },
    { "val.data_time",             "s",        "{:.5f}" },
    { "val.compute_latency",       "s",        "{:.5f}" },
    { "val.compute_latency_at95",  "s",        "{:.5f}" },
    { "val.compute_latency_at99",  "s",        "{:.5f}" },
    { "val.compute_latency_at100", "s",        "{:.5f}" },
};
/* clang-format on */

static td_status write_record(td_report *r, const char *type, const char *rest)
{
    char date[32] = "";
    double now = td_wall_s();
    time_t seconds = (time_t)now;
    struct tm parts;
    if (localtime_r(&seconds, &parts))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
    int n = fprintf(r->f,
                    "DLLL {\"timestamp\": \"%.6f\", \"datetime\": \"%s.%06d\", "
                    "\"elapsedtime\": \"%.6f\", \"type\": \"%s\", %s}\n",
                    now, date, (int)((now - floor(now)) * 1e6), now - r->start_s, type, rest);
    if (n < 0 || fflush(r->f) != 0)
        return td_error_errno(TD_EIO, "cannot write report '%s'", r->path);
    return TD_OK;
}

static td_status write_metadata(td_report *r)
{
    td_status st = TD_OK;
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        td_text t = { 0 };
        td_text_add(&t, "\"metric\": \"%s\", \"metadata\": {\"unit\": ", metrics[i].name);
        td_text_add(&t, metrics[i].unit ? "\"%s\"" : "%s",
                    metrics[i].unit ? metrics[i].unit : "null");
        td_text_add(&t, ", \"format\": \"%s\"}", metrics[i].format);
        st = td_text_status(&t);
        if (st == TD_OK)
            st = write_record(r, "METADATA", td_text_get(&t));
        td_text_release(&t);
        if (st != TD_OK)
            return st;
    }
    return TD_OK;
}

/* a run that was killed may have left half a record: end after the last whole one */
static td_status cut_half_record(td_report *r)
{
    char part[4096];
    off_t end = lseek(fileno(r->f), 0, SEEK_END), whole = 0;
    for (off_t at = end; at > 0 && !whole;) {
        const off_t n = at < (off_t)sizeof part ? at : (off_t)sizeof part;
        at -= n;
        if (pread(fileno(r->f), part, (size_t)n, at) != n)
            return td_error_errno(TD_EIO, "cannot read report '%s'", r->path);
        for (off_t i = n; i > 0 && !whole; i--)
            if (part[i - 1] == '\n')
                whole = at + i;
    }
    if (end > whole && ftruncate(fileno(r->f), whole) != 0)
        return td_error_errno(TD_EIO, "cannot write report '%s'", r->path);
    return TD_OK;
}

td_status td_report_open(const char *path, bool goes_on, td_report **out)
{
    td_status st = TD_OK;
    *out = NULL;
    if (!path)
        return TD_OK;
    td_report *r = TD_NEW(td_report);
    if (!r)
        return TD_ENOMEM;
    r->start_s = td_wall_s();
    r->path = td_copy_text(path);
    if (!r->path)
        TD_OUT(TD_ENOMEM);
    r->f = fopen(path, goes_on ? "a+e" : "we");
    if (!r->f)
        TD_OUT(td_error_errno(TD_EIO, "cannot write report '%s'", path));
    if (goes_on)
        TD_OUT(cut_half_record(r));
    TD_OUT(write_metadata(r));
    *out = r;
    return TD_OK;
out:
    if (r->f)
        fclose(r->f);
    td_free(r->path);
    td_free(r);
    return st;
}

td_status td_report_parameters(td_report *r, const char *json)
{
    if (!r)
        return TD_OK;
    td_text t = { 0 };
    td_text_add(&t, "\"step\": \"PARAMETER\", \"data\": %s", json);
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = write_record(r, "LOG", td_text_get(&t));
    td_text_release(&t);
    return st;
}

void td_report_begin(td_report *r, int n, const int64_t *step)
{
    if (!r)
        return;
    td_text_release(&r->record);
    td_text_add(&r->record, "\"step\": [");
    for (int i = 0; i < n; i++)
        td_text_add(&r->record, i ? ", %lld" : "%lld", (long long)step[i]);
    td_text_add(&r->record, "], \"data\": {");
    r->n_data = 0;
}

void td_report_add(td_report *r, const char *metric, double value)
{
    if (!r)
        return;
    td_text_add(&r->record, r->n_data++ ? ", \"%s\": " : "\"%s\": ", metric);
    td_text_add(&r->record, isfinite(value) ? "%.9g" : "null", value);
}

td_status td_report_end(td_report *r)
{
    if (!r)
        return TD_OK;
    td_text_add(&r->record, "}");
    TD_TRY(td_text_status(&r->record));
    return write_record(r, "LOG", td_text_get(&r->record));
}

td_status td_report_close(td_report *r)
{
    if (!r)
        return TD_OK;
    td_status st = TD_OK;
    if (fclose(r->f) != 0)
        st = td_error_errno(TD_EIO, "cannot write report '%s'", r->path);
    td_text_release(&r->record);
    td_free(r->path);
    td_free(r);
    return st;
}
