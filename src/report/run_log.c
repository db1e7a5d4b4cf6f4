/*
 * run_log.c -- reads a run's report, one JSON document per line
 */
#include "report/run_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_io.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/text.h"
#include "loggers/report_metrics.h"
#include "loggers/run_logger.h"
#include "report/run_confusion.h"

enum {
    MAX_BYTES = 1 << 30,
    MAX_SERIES = 512,
    MAX_SETTINGS = 512,
    MAX_TEXT = 1000 /* bytes of a setting's value */
};
#define MAX_STEP  1e15
#define MAX_VALUE 1e100 /* largest value of a metric that a chart can show */

typedef struct {
    td_run_log *run;
    const char *path;
    long long line;
    double last_s; /* time of the previous record; NaN: none */
} reader;

/* --- settings --------------------------------------------------------------------------------- */

static const char *setting_text(reader *rd, const td_json *value)
{
    td_text t = { 0 };
    const char *text;
    double x;
    int64_t n;
    bool flag;
    if (td_json_as_bool(value, &flag) == TD_OK)
        td_text_add(&t, flag ? "true" : "false");
    else if (td_json_as_int(value, &n) == TD_OK)
        td_text_add(&t, "%lld", (long long)n);
    else if (td_json_as_number(value, &x) == TD_OK)
        td_metric_add_real(&t, x);
    else if (td_json_as_text(value, &text) == TD_OK)
        td_text_add_bytes(&t, text, strlen(text) < MAX_TEXT ? strlen(text) : MAX_TEXT);
    else
        td_text_add(&t, td_json_kind_of(value) == TD_JSON_NULL ? "" : "...");
    const char *copy =
        td_text_status(&t) == TD_OK ? td_arena_text(&rd->run->arena, td_text_get(&t)) : NULL;
    td_text_release(&t);
    return copy;
}

static td_status read_settings(reader *rd, const td_json *data)
{
    td_run_log *run = rd->run;
    for (size_t i = 0; i < td_json_count(data); i++) {
        const char *name = td_json_key(data, i);
        size_t at = 0;
        while (at < run->n_settings && strcmp(run->settings[at].name, name) != 0)
            at++;
        if (at == MAX_SETTINGS)
            return td_error(TD_ELIMIT, "'%s' has more than %d settings", rd->path, MAX_SETTINGS);
        TD_TRY(td_reserve(&run->settings, &run->cap_settings, at + 1, sizeof *run->settings));
        const char *value = setting_text(rd, td_json_member(data, i));
        const char *kept =
            at < run->n_settings ? run->settings[at].name : td_arena_text(&run->arena, name);
        if (!value || !kept)
            return TD_ENOMEM;
        run->settings[at] = (td_run_setting){ kept, value };
        run->n_settings = at < run->n_settings ? run->n_settings : at + 1;
    }
    return TD_OK;
}

/* --- metrics ---------------------------------------------------------------------------------- */

static td_status find_series(reader *rd, td_run_level level, const char *metric,
                             td_run_series **out)
{
    td_run_log *run = rd->run;
    size_t i = 0;
    while (i < run->n_series[level] && strcmp(run->series[level][i].metric, metric) != 0)
        i++;
    if (i == MAX_SERIES)
        return td_error(TD_ELIMIT, "'%s' has more than %d metrics", rd->path, MAX_SERIES);
    if (i == run->n_series[level]) {
        TD_TRY(td_reserve(&run->series[level], &run->cap_series[level], i + 1,
                          sizeof *run->series[level]));
        const char *name = td_arena_text(&run->arena, metric);
        if (!name)
            return TD_ENOMEM;
        run->series[level][i] = (td_run_series){ .metric = name };
        run->n_series[level]++;
    }
    *out = &run->series[level][i];
    return TD_OK;
}

static bool is_before(const td_run_point *a, const td_run_point *b)
{
    return a->epoch < b->epoch || (a->epoch == b->epoch && a->iteration < b->iteration);
}

static td_status add_point(td_run_series *s, const td_run_point *p)
{
    while (s->n && !is_before(&s->points[s->n - 1], p)) /* the run resumed before this point */
        s->n--;
    TD_TRY(td_reserve(&s->points, &s->cap, s->n + 1, sizeof *s->points));
    s->points[s->n++] = *p;
    return TD_OK;
}

static td_status read_place(reader *rd, const td_json *step, td_run_point *p)
{
    int64_t at[2] = { 0, 0 };
    for (size_t i = 0; i < td_json_count(step) && i < 2; i++)
        if (td_json_as_int(td_json_at(step, i), &at[i]) != TD_OK || at[i] < 0 ||
            (double)at[i] > MAX_STEP)
            return td_error(TD_EFORMAT, "'%s', line %lld: step is not a list of counts", rd->path,
                            rd->line);
    *p = (td_run_point){ .epoch = at[0], .iteration = at[1] };
    return TD_OK;
}

static td_status read_metrics(reader *rd, const td_json *step, const td_json *data)
{
    static const td_run_level levels[] = { TD_RUN_END, TD_RUN_EPOCHS, TD_RUN_ITERATIONS };
    const size_t n = td_json_count(step);
    td_run_point p;
    if (n > 2) /* a record inside a validation */
        return TD_OK;
    TD_TRY(read_place(rd, step, &p));
    if (n == 2 && p.iteration > rd->run->epoch_batches)
        rd->run->epoch_batches = p.iteration;
    for (size_t i = 0; i < td_json_count(data); i++) {
        td_run_series *s;
        if (td_json_as_number(td_json_member(data, i), &p.value) != TD_OK ||
            !(fabs(p.value) <= MAX_VALUE))
            continue; /* null: not measured */
        TD_TRY(find_series(rd, levels[n], td_json_key(data, i), &s));
        TD_TRY(add_point(s, &p));
    }
    return TD_OK;
}

/* --- records ---------------------------------------------------------------------------------- */

static td_status read_time(reader *rd, const td_json *record)
{
    const char *text;
    double now;
    if (td_json_text(record, "timestamp", &text) == TD_OK && td_text_to_real(text, &now) &&
        isfinite(now)) {
        if (now > rd->last_s)
            rd->run->seconds += now - rd->last_s;
        rd->last_s = now;
    }
    if (!*rd->run->began && td_json_text(record, "datetime", &text) == TD_OK) {
        char date[20];
        snprintf(date, sizeof date, "%s", text); /* without fractions of a second */
        rd->run->began = td_arena_text(&rd->run->arena, date);
        if (!rd->run->began)
            return TD_ENOMEM;
    }
    return TD_OK;
}

/* Read a confusion record; the last one of a resumed run counts. */
static td_status read_confusion(reader *rd, const td_json *step, const td_json *data)
{
    char where[300];
    td_run_confusion *c;
    snprintf(where, sizeof where, "'%s', line %lld", rd->path, rd->line);
    TD_TRY(td_run_confusion_read(step, data, where, &c));
    td_run_confusion_free(rd->run->confusion);
    rd->run->confusion = c;
    return TD_OK;
}

static td_status read_record(reader *rd, const td_json *record)
{
    const char *type, *word;
    const td_json *step = td_json_get(record, "step"), *data = td_json_get(record, "data");
    if (td_json_text(record, "type", &type) != TD_OK)
        return td_error(TD_EFORMAT, "'%s', line %lld: the record has no type", rd->path, rd->line);
    if (strcmp(type, TD_CONFUSION_RECORD) == 0)
        return read_confusion(rd, step, data);
    if (strcmp(type, "LOG") != 0)
        return TD_OK;
    if (!step || !data || td_json_kind_of(data) != TD_JSON_OBJECT)
        return td_error(TD_EFORMAT, "'%s', line %lld: the record has no step and data", rd->path,
                        rd->line);
    if (td_json_kind_of(step) == TD_JSON_ARRAY) {
        TD_TRY(read_time(rd, record));
        rd->run->has_ended = td_json_count(step) == 0;
        return read_metrics(rd, step, data);
    }
    if (td_json_as_text(step, &word) == TD_OK && strcmp(word, "PARAMETER") == 0) {
        rd->last_s = (double)NAN; /* the run starts or resumes: do not count the pause */
        rd->run->has_ended = false;
        TD_TRY(read_time(rd, record));
        return read_settings(rd, data);
    }
    return TD_OK;
}

static td_status read_line(reader *rd, const char *line, size_t n)
{
    char what[300];
    td_json *record;
    const size_t skip = n >= 5 && memcmp(line, "DLLL ", 5) == 0 ? 5 : 0;
    if (n == skip)
        return TD_OK;
    if (line[skip] != '{')
        return td_error(TD_EFORMAT,
                        "'%s', line %lld: found '%.*s', wanted a record of a report, 'DLLL {...}'",
                        rd->path, rd->line, (int)(n < 20 ? n : 20), line);
    snprintf(what, sizeof what, "'%s', line %lld", rd->path, rd->line);
    TD_TRY(td_json_parse(line + skip, n - skip, what, &record));
    const td_status st = read_record(rd, record);
    td_json_free(record);
    return st;
}

static td_status read_lines(reader *rd, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        const size_t len = end ? (size_t)(end - line) : n - at;
        rd->line++;
        const td_status st = read_line(rd, line, len && line[len - 1] == '\r' ? len - 1 : len);
        if (st == TD_EFORMAT && !end && rd->line > 1) { /* the run was killed while writing */
            rd->run->is_cut = true;
            return TD_OK;
        }
        TD_TRY(st);
        at += len + 1;
    }
    return TD_OK;
}

/* --- the file --------------------------------------------------------------------------------- */

/* The label: "runs/a" for "runs/a/" and "runs/a/experiment_raport.json". */
static const char *label_of(td_arena *arena, const char *path)
{
    char *label = td_arena_text(arena, path);
    if (!label)
        return NULL;
    size_t n = strlen(label);
    if (td_text_ends(label, "/" TD_REPORT_NAME))
        n -= strlen(TD_REPORT_NAME);
    while (n > 1 && label[n - 1] == '/')
        n--;
    label[n] = '\0';
    return label;
}

static td_status read_text(reader *rd, const char *text, size_t n)
{
    size_t n_series = 0;
    int64_t batches;
    if (n == 0)
        return td_error(TD_EFORMAT, "'%s' is empty, wanted the records of a report", rd->path);
    if (td_text_is_utf16(text, n))
        return td_error(TD_EFORMAT, "'%s' is UTF-16, wanted UTF-8", rd->path);
    TD_TRY(read_lines(rd, text, n));
    for (int i = 0; i < TD_RUN_LEVELS; i++)
        n_series += rd->run->n_series[i];
    if (n_series == 0)
        return td_error(TD_EFORMAT,
                        "'%s' contains no metrics: the run ended before its first record",
                        rd->path);
    const char *known = td_run_log_setting(rd->run, "run.epoch_batches");
    if (known && td_text_to_int(known, &batches) && batches > rd->run->epoch_batches &&
        (double)batches < MAX_STEP)
        rd->run->epoch_batches = batches;
    return TD_OK;
}

static td_status read_file(reader *rd, const char *path)
{
    char *joined = NULL, *text = NULL;
    size_t n;
    td_status st = TD_OK;
    if (td_path_is_folder(path)) {
        joined = td_path_join(path, TD_REPORT_NAME);
        if (!joined)
            TD_OUT(TD_ENOMEM);
        if (!td_path_exists(joined))
            TD_OUT(td_error(TD_ENOTFOUND, "'%s' has no %s; give the path of the report file", path,
                            TD_REPORT_NAME));
    }
    rd->path = joined ? joined : path;
    rd->run->file = td_arena_text(&rd->run->arena, rd->path);
    if (!rd->run->file)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_file_read(rd->path, MAX_BYTES, &text, &n));
    st = read_text(rd, text, n);
out:
    td_free(joined);
    td_free(text);
    return st;
}

static td_status begin(const char *path, td_run_log *out)
{
    *out = (td_run_log){ .path = path, .began = "", .epoch_batches = 1 };
    td_arena_init(&out->arena);
    out->label = label_of(&out->arena, path);
    return out->label ? TD_OK : TD_ENOMEM;
}

td_status td_run_log_read(const char *path, td_run_log *out)
{
    reader rd = { .run = out, .path = path, .last_s = (double)NAN };
    TD_TRY(begin(path, out));
    return read_file(&rd, path);
}

td_status td_run_log_parse(const char *text, size_t n, const char *path, td_run_log *out)
{
    reader rd = { .run = out, .path = path, .last_s = (double)NAN };
    TD_TRY(begin(path, out));
    return read_text(&rd, text, n);
}

void td_run_log_release(td_run_log *run)
{
    for (int level = 0; level < TD_RUN_LEVELS; level++) {
        for (size_t i = 0; i < run->n_series[level]; i++)
            td_free(run->series[level][i].points);
        td_free(run->series[level]);
    }
    td_free(run->settings);
    td_run_confusion_free(run->confusion);
    td_arena_release(&run->arena);
    *run = (td_run_log){ 0 };
}

const td_run_series *td_run_log_series(const td_run_log *run, td_run_level level,
                                       const char *metric)
{
    for (size_t i = 0; metric && i < run->n_series[level]; i++)
        if (strcmp(run->series[level][i].metric, metric) == 0)
            return run->series[level][i].n ? &run->series[level][i] : NULL;
    return NULL;
}

const char *td_run_log_topk(const td_run_log *run, const char *prefix)
{
    for (int level = TD_RUN_EPOCHS; level < TD_RUN_LEVELS; level++)
        for (size_t i = 0; i < run->n_series[level]; i++) {
            const char *name = run->series[level][i].metric;
            if (!td_text_starts(name, prefix))
                continue;
            const char *rest = name + strlen(prefix);
            if (td_text_starts(rest, "top") && rest[3] != '\0' &&
                strspn(rest + 3, "0123456789") == strlen(rest + 3) && strcmp(rest, "top1") != 0)
                return name;
        }
    return NULL;
}

const char *td_run_log_setting(const td_run_log *run, const char *name)
{
    for (size_t i = 0; i < run->n_settings; i++)
        if (strcmp(run->settings[i].name, name) == 0)
            return run->settings[i].value;
    return NULL;
}
