/*
 * run_logger.c -- writes records to all outputs of a run
 */
#include "loggers/run_logger.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "loggers/report_csv.h"
#include "loggers/report_metrics.h"
#include "loggers/tensorboard.h"

enum { MAX_VALUES = 64 };

typedef struct {
    const char *name; /* `room`, or a class's metric */
    char room[48];
    const td_metric *metric; /* NULL: unknown metric */
    double value;
} record_value;

struct td_report {
    td_run_logger_opts o; /* its texts are used only while opening */
    FILE *f;              /* NULL: no JSON lines */
    char *path;
    td_tensorboard *events;
    td_report_csv *epochs, *iterations;
    int64_t start_ns; /* on the monotonic clock */
    int n_step;
    int64_t step[3];
    int n_classes;
    char **classes;       /* [n_classes] names of metrics */
    int n;                /* number of values in the current record */
    record_value *values; /* [MAX_VALUES + n_classes] */
};

/* --- time ------------------------------------------------------------------------------------- */

/* "2020-01-01 00:00:00.123456", local time. */
static void format_time(double wall_s, char *out, size_t n)
{
    char date[32] = "";
    const time_t seconds = (time_t)wall_s;
    struct tm parts;
    if (localtime_r(&seconds, &parts))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &parts);
    snprintf(out, n, "%s.%06d", date, (int)((wall_s - floor(wall_s)) * 1e6));
}

/* --- JSON lines ------------------------------------------------------------------------------- */

static td_status write_record(td_report *r, const char *type, const char *rest)
{
    char date[48];
    const double now = td_wall_s();
    if (!r->f)
        return TD_OK;
    format_time(now, date, sizeof date);
    int n = fprintf(r->f,
                    "DLLL {\"timestamp\": \"%.6f\", \"datetime\": \"%s\", "
                    "\"elapsedtime\": \"%.6f\", \"type\": \"%s\", %s}\n",
                    now, date, (double)(td_now_ns() - r->start_ns) * 1e-9, type, rest);
    if (n < 0 || fflush(r->f) != 0)
        return td_error_errno(TD_EIO, "cannot write report '%s'", r->path);
    return TD_OK;
}

static td_status write_metadata(void *ctx, const char *name, const td_metric *m)
{
    td_text t = { 0 };
    td_text_add(&t, "\"metric\": \"");
    td_text_add_json(&t, name);
    td_text_add(&t, "\", \"metadata\": {");
    if (m->unit)
        td_text_add(&t, *m->unit ? "\"unit\": \"%s\", " : "\"unit\": null, ", m->unit);
    td_text_add(&t, m->decimals < 0 ? "\"format\": \"{}\"}" : "\"format\": \"{:.%df}\"}",
                m->decimals);
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = write_record(ctx, "METADATA", td_text_get(&t));
    td_text_release(&t);
    return st;
}

static td_status write_json(td_report *r)
{
    td_text t = { 0 };
    td_text_add(&t, "\"step\": [");
    for (int i = 0; i < r->n_step; i++)
        td_text_add(&t, i ? ", %lld" : "%lld", (long long)r->step[i]);
    td_text_add(&t, "], \"data\": {");
    for (int i = 0; i < r->n; i++) {
        td_text_add(&t, i ? ", \"" : "\"");
        td_text_add_json(&t, r->values[i].name);
        td_text_add(&t, isfinite(r->values[i].value) ? "\": %.9g" : "\": null", r->values[i].value);
    }
    td_text_add(&t, "}");
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = write_record(r, "LOG", td_text_get(&t));
    td_text_release(&t);
    return st;
}

/*
 * Truncate the file after the last complete record: a killed run may have left an incomplete one.
 */
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

static td_status open_json(td_report *r)
{
    const bool is_continued = r->o.is_continued && !r->o.is_compat;
    if (!r->o.path)
        return TD_OK;
    r->path = td_copy_text(r->o.path);
    if (!r->path)
        return TD_ENOMEM;
    r->f = fopen(r->path, is_continued ? "a+e" : "we");
    if (!r->f)
        return td_error_errno(TD_EIO, "cannot write report '%s'", r->path);
    if (is_continued)
        TD_TRY(cut_half_record(r));
    const td_metric_choice c = { .topk = r->o.topk,
                                 .has_tf_names = r->o.has_tf_names,
                                 .has_l2_loss = r->o.has_l2_loss,
                                 .detects = r->o.detects,
                                 .is_benchmark = r->o.is_benchmark,
                                 .has_grad_norm = r->o.has_grad_norm,
                                 .is_multi_label = r->o.is_multi_label };
    TD_TRY(td_metric_each(&c, write_metadata, r));
    for (int i = 0; i < r->n_classes; i++)
        TD_TRY(write_metadata(r, r->classes[i], td_metric_find(r->classes[i])));
    return TD_OK;
}

/* --- lines of text ---------------------------------------------------------------------------- */

static void add_prefix(td_text *t)
{
    char date[48];
    format_time(td_wall_s(), date, sizeof date);
    td_text_add(t, "DLL %s - ", date);
}

static void add_step(const td_report *r, td_text *t)
{
    if (r->n_step == 0)
        td_text_add(t, "Summary:");
    if (r->n_step > 0)
        td_text_add(t, "Epoch: %lld ", (long long)r->step[0]);
    if (r->n_step > 1)
        td_text_add(t, "Iteration: %lld ", (long long)r->step[1]);
    if (r->n_step > 2)
        td_text_add(t, " Validation Iteration: %lld ", (long long)r->step[2]);
}

static void log_text(td_text *t)
{
    if (td_text_status(t) == TD_OK)
        td_log(TD_LOG_INFO, NULL, "%s", td_text_get(t));
    td_text_release(t);
}

/* Log the metrics of one level in one line, if there are any. */
static void log_metrics(const td_report *r, int level)
{
    td_text t = { 0 };
    int n = 0;
    add_prefix(&t);
    add_step(r, &t);
    for (int i = 0; i < r->n; i++) {
        const record_value *v = &r->values[i];
        const char *unit = v->metric ? v->metric->unit : NULL;
        if ((v->metric ? v->metric->level : 0) != level)
            continue;
        td_text_add(&t, " %s : ", v->name);
        td_metric_add_value(&t, v->metric, v->value);
        td_text_add(&t, " %s", !unit ? "" : *unit ? unit : "None");
        n++;
    }
    if (n)
        log_text(&t);
    else
        td_text_release(&t);
}

/* Add a value of a JSON object as Python prints it. */
static void add_setting(td_text *t, const td_json *j)
{
    bool flag;
    double x;
    int64_t n;
    const char *text;
    if (td_json_as_bool(j, &flag) == TD_OK)
        td_text_add(t, flag ? "True" : "False");
    else if (td_json_as_int(j, &n) == TD_OK)
        td_text_add(t, "%lld", (long long)n);
    else if (td_json_as_number(j, &x) == TD_OK)
        td_metric_add_real(t, x);
    else if (td_json_as_text(j, &text) == TD_OK)
        td_text_add(t, "%s", text);
    else
        td_text_add(t, "None");
}

static void log_parameters(const td_json *doc)
{
    td_text t = { 0 };
    add_prefix(&t);
    td_text_add(&t, "PARAMETER");
    for (size_t i = 0; i < td_json_count(doc); i++) {
        td_text_add(&t, " %s : ", td_json_key(doc, i));
        add_setting(&t, td_json_member(doc, i));
        td_text_add(&t, " ");
    }
    log_text(&t);
}

void td_report_log(td_report *r, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    if (!td_report_has_text(r))
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    td_log(TD_LOG_INFO, NULL, "%s", line);
}

/* --- TensorBoard and CSV ---------------------------------------------------------------------- */

/*
 * The tag of a value, CARD/CURVE: "train/loss", "val/top1"; the card is the part of the name before
 * the first point.  Sums over an epoch of training have another card, "train_epoch/loss".
 */
static void event_tag(const char *name, int n_step, char *out, size_t n)
{
    const char *dot = strchr(name, '.');
    if (!dot)
        snprintf(out, n, "%s/%s", n_step == 1 ? "epoch" : "iteration", name);
    else
        snprintf(out, n, "%.*s%s/%s", (int)(dot - name), name,
                 n_step == 1 && td_text_starts(name, "train.") ? "_epoch" : "", dot + 1);
}

/*
 * Write points of curves, over epochs or over all iterations of the run.  The record of the whole
 * run is not written: it would be a single point.
 */
static td_status write_events(td_report *r)
{
    const int64_t step = r->n_step == 1 ? r->step[0] : r->step[0] * r->o.batches + r->step[1];
    if (!r->events || r->n_step < 1 || r->n_step > 2)
        return TD_OK;
    for (int i = 0; i < r->n; i++) {
        char tag[300];
        if (r->values[i].metric && r->values[i].metric->level == TD_METRIC_JSON_ONLY)
            continue;
        event_tag(r->values[i].name, r->n_step, tag, sizeof tag);
        if (isfinite(r->values[i].value))
            TD_TRY(td_tensorboard_scalar(r->events, tag, step, r->values[i].value));
    }
    return td_tensorboard_flush(r->events);
}

static td_status write_table(td_report *r)
{
    td_report_csv *c = r->n_step == 1 ? r->epochs : r->n_step == 2 ? r->iterations : NULL;
    if (!c)
        return TD_OK;
    for (int i = 0; i < r->n; i++)
        td_report_csv_set(c, r->values[i].name, r->values[i].value);
    return td_report_csv_row(c, r->step);
}

/* Add a text to a row of a Markdown table, without line ends and bars. */
static void add_markdown(td_text *t, const char *s)
{
    for (; *s; s++)
        td_text_add_bytes(t, *s == '|' || *s == '\n' ? " " : s, 1);
}

static td_status show_parameters(td_report *r, const td_json *doc)
{
    td_text t = { 0 };
    td_text_add(&t, "| option | value |\n|---|---|\n");
    for (size_t i = 0; i < td_json_count(doc); i++) {
        td_text value = { 0 };
        add_setting(&value, td_json_member(doc, i));
        td_text_add(&t, "| ");
        add_markdown(&t, td_json_key(doc, i));
        td_text_add(&t, " | ");
        add_markdown(&t, td_text_get(&value));
        td_text_add(&t, " |\n");
        td_text_release(&value);
    }
    td_status st = td_text_status(&t);
    const char *key = td_json_count(doc) ? td_json_key(doc, 0) : "";
    const char *tag = td_text_starts(key, "model.") ? "model"
                      : td_text_starts(key, "run.") ? "run"
                                                    : "options";
    if (st == TD_OK)
        st = td_tensorboard_text(r->events, tag, td_text_get(&t));
    if (st == TD_OK)
        st = td_tensorboard_flush(r->events);
    td_text_release(&t);
    return st;
}

static td_status open_tables(td_report *r)
{
    const bool is_continued = r->o.is_continued && !r->o.is_compat;
    const td_report_csv_opts epochs = { r->o.csv,           1,
                                        r->o.topk,          r->o.has_l2_loss,
                                        r->o.detects,       is_continued ? r->o.at : NULL,
                                        r->o.has_grad_norm, r->o.is_multi_label };
    const td_report_csv_opts iterations = { r->o.csv_iterations, 2,
                                            r->o.topk,           r->o.has_l2_loss,
                                            r->o.detects,        is_continued ? r->o.at : NULL,
                                            r->o.has_grad_norm,  r->o.is_multi_label };
    if (epochs.path)
        TD_TRY(td_report_csv_open(&epochs, &r->epochs));
    if (iterations.path)
        TD_TRY(td_report_csv_open(&iterations, &r->iterations));
    if (r->o.tensorboard)
        TD_TRY(td_tensorboard_open(r->o.tensorboard, &r->events));
    if (r->events && r->o.is_continued)
        TD_TRY(td_tensorboard_restart(r->events, r->o.at[0] * r->o.batches + r->o.at[1] + 1));
    return TD_OK;
}

/* --- the report ------------------------------------------------------------------------------- */

static td_status name_classes(td_report *r, int n, const char *const *classes)
{
    td_text t = { 0 };
    TD_TRY(TD_ALLOC(r->classes, (size_t)n + 1));
    for (; r->n_classes < n; r->n_classes++) {
        td_text_add(&t, TD_METRIC_CLASS "%s", classes[r->n_classes]);
        TD_TRY(td_text_take(&t, TD_OK, &r->classes[r->n_classes]));
        t = (td_text){ 0 };
    }
    return TD_OK;
}

td_status td_report_open(const td_run_logger_opts *o, td_report **out)
{
    td_status st = TD_OK;
    *out = NULL;
    if (!o->path && !o->to_log && !o->tensorboard && !o->csv && !o->csv_iterations)
        return TD_OK;
    td_report *r = TD_NEW(td_report);
    if (!r)
        return TD_ENOMEM;
    r->o = *o;
    r->o.topk = o->topk ? o->topk : 5;
    r->start_ns = td_now_ns();
    const int n = o->n_classes < TD_METRIC_CLASSES_MAX ? o->n_classes : TD_METRIC_CLASSES_MAX;
    TD_OUT(name_classes(r, o->is_compat ? 0 : n, o->classes));
    r->values = td_alloc(MAX_VALUES + (size_t)r->n_classes, sizeof *r->values);
    if (!r->values)
        TD_OUT(TD_ENOMEM);
    TD_OUT(open_json(r));
    TD_OUT(open_tables(r));
    *out = r;
    return TD_OK;
out:
    if (td_report_close(r) != TD_OK) {
        /* return the first failure */
    }
    return st;
}

td_status td_report_parameters(td_report *r, const char *json)
{
    td_json *doc = NULL;
    td_text t = { 0 };
    td_status st = TD_OK;
    if (!r)
        return TD_OK;
    td_text_add(&t, "\"step\": \"PARAMETER\", \"data\": %s", json);
    TD_OUT(td_text_status(&t));
    TD_OUT(write_record(r, "LOG", td_text_get(&t)));
    if (!r->o.to_log && !r->events)
        goto out;
    TD_OUT(td_json_parse(json, strlen(json), "the settings", &doc));
    if (r->o.to_log)
        log_parameters(doc);
    if (r->events)
        TD_OUT(show_parameters(r, doc));
out:
    td_json_free(doc);
    td_text_release(&t);
    return st;
}

bool td_report_has_text(const td_report *r)
{
    return r && r->o.to_log;
}

bool td_report_is_compat(const td_report *r)
{
    return r && r->o.is_compat;
}

bool td_report_has_tf_names(const td_report *r)
{
    return r && r->o.has_tf_names;
}

void td_report_begin(td_report *r, int n, const int64_t *step)
{
    if (!r)
        return;
    r->n_step = n;
    for (int i = 0; i < n; i++)
        r->step[i] = step[i];
    r->n = 0;
}

void td_report_add(td_report *r, const char *metric, double value)
{
    if (!r)
        return;
    TD_CHECK(r->n < MAX_VALUES + r->n_classes);
    record_value *v = &r->values[r->n++];
    snprintf(v->room, sizeof v->room, "%s", metric);
    v->name = v->room;
    v->metric = td_metric_find(metric);
    v->value = value;
}

void td_report_add_class(td_report *r, int i, double ap)
{
    if (!r || i >= r->n_classes)
        return;
    td_report_add(r, TD_METRIC_CLASS, ap);
    r->values[r->n - 1].name = r->classes[i];
}

td_status td_report_end(td_report *r)
{
    if (!r)
        return TD_OK;
    if (r->o.to_log) {
        log_metrics(r, 0);
        if (r->n_step < 2) /* at ends of epochs and of the run */
            log_metrics(r, 1);
    }
    TD_TRY(write_json(r));
    TD_TRY(write_events(r));
    return write_table(r);
}

td_status td_report_record(td_report *r, const char *type, int64_t epoch, const char *data)
{
    td_text t = { 0 };
    if (!r)
        return TD_OK;
    td_text_add(&t, epoch < 0 ? "\"step\": []" : "\"step\": [%lld]", (long long)epoch);
    td_text_add(&t, ", \"data\": {%s}", data);
    td_status st = td_text_status(&t);
    if (st == TD_OK)
        st = write_record(r, type, td_text_get(&t));
    td_text_release(&t);
    return st;
}

td_status td_report_close(td_report *r)
{
    td_status st = TD_OK;
    if (!r)
        return TD_OK;
    if (r->f && fclose(r->f) != 0)
        st = td_error_errno(TD_EIO, "cannot write report '%s'", r->path);
    const td_status closed[] = { td_tensorboard_close(r->events), td_report_csv_close(r->epochs),
                                 td_report_csv_close(r->iterations) };
    for (int i = 0; i < 3; i++)
        st = st != TD_OK ? st : closed[i];
    td_texts_free(r->classes, (size_t)r->n_classes);
    td_free(r->values);
    td_free(r->path);
    td_free(r);
    return st;
}
