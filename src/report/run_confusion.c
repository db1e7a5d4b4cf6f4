/*
 * run_confusion.c -- parses the confusion record of a report
 */
#include "report/run_confusion.h"

#define MAX_COUNT 1000000000000000 /* 1e15 */

typedef struct {
    td_run_confusion *c;
    const char *where;
} reader;

static td_status read_count(const reader *rd, const td_json *j, const char *what, int64_t *out)
{
    if (td_json_as_int(j, out) == TD_OK && *out >= 0 && *out <= MAX_COUNT)
        return TD_OK;
    return td_error(TD_EFORMAT, "%s: '%s' is not a count", rd->where, what);
}

static td_status read_member_count(const reader *rd, const td_json *object, const char *key,
                                   int64_t *out)
{
    const td_json *j = td_json_get(object, key);
    if (!j)
        return td_error(TD_EFORMAT, "%s: '%s' is missing", rd->where, key);
    return read_count(rd, j, key, out);
}

static td_status keep_text(const reader *rd, const td_json *j, const char *what, const char **out)
{
    const char *text;
    if (!j || td_json_as_text(j, &text) != TD_OK)
        return td_error(TD_EFORMAT, "%s: '%s' is not a string", rd->where, what);
    *out = td_arena_text(&rd->c->arena, text);
    return *out ? TD_OK : TD_ENOMEM;
}

/* Check a list of at most `most` elements; a missing list is empty. */
static td_status count_list(const reader *rd, const td_json *list, const char *what, int most,
                            int *n)
{
    *n = 0;
    if (!list)
        return TD_OK;
    if (td_json_kind_of(list) != TD_JSON_ARRAY || td_json_count(list) > (size_t)most)
        return td_error(TD_EFORMAT, "%s: '%s' is not a list of at most %d", rd->where, what, most);
    *n = (int)td_json_count(list);
    return TD_OK;
}

static td_status read_matrix(const reader *rd, const td_json *data)
{
    td_run_confusion *c = rd->c;
    const td_json *classes = td_json_get(data, "classes"), *counts = td_json_get(data, "counts");
    int n, n_rows, n_columns;
    TD_TRY(count_list(rd, classes, "classes", TD_CONFUSION_CLASSES, &n));
    TD_TRY(count_list(rd, counts, "counts", TD_CONFUSION_CLASSES, &n_rows));
    if (n != n_rows)
        return td_error(TD_EFORMAT, "%s: found %d rows of counts for %d classes", rd->where, n_rows,
                        n);
    if (n == 0)
        return TD_OK;
    c->counts = td_arena_alloc(&c->arena, (size_t)n * (size_t)n, sizeof *c->counts);
    if (!c->counts)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++) {
        const td_json *row = td_json_at(counts, (size_t)i);
        TD_TRY(keep_text(rd, td_json_at(classes, (size_t)i), "classes", &c->classes[i]));
        TD_TRY(count_list(rd, row, "counts", TD_CONFUSION_CLASSES, &n_columns));
        if (n_columns != n)
            return td_error(TD_EFORMAT, "%s: found a row of %d counts for %d classes", rd->where,
                            n_columns, n);
        for (int k = 0; k < n; k++)
            TD_TRY(read_count(rd, td_json_at(row, (size_t)k), "counts",
                              &c->counts[(int64_t)i * n + k]));
    }
    c->n_classes = n;
    return TD_OK;
}

static td_status read_names(const reader *rd, const td_json *j, const char **actual,
                            const char **predicted)
{
    TD_TRY(keep_text(rd, td_json_get(j, "actual"), "actual", actual));
    return keep_text(rd, td_json_get(j, "predicted"), "predicted", predicted);
}

static td_status read_pairs(const reader *rd, const td_json *data)
{
    td_run_confusion *c = rd->c;
    const td_json *list = td_json_get(data, "pairs");
    TD_TRY(count_list(rd, list, "pairs", TD_CONFUSION_PAIRS, &c->n_pairs));
    for (int i = 0; i < c->n_pairs; i++) {
        const td_json *j = td_json_at(list, (size_t)i);
        TD_TRY(read_names(rd, j, &c->pairs[i].actual, &c->pairs[i].predicted));
        TD_TRY(read_member_count(rd, j, "count", &c->pairs[i].count));
    }
    return TD_OK;
}

static td_status read_mistakes(const reader *rd, const td_json *data)
{
    td_run_confusion *c = rd->c;
    const td_json *list = td_json_get(data, "mistakes");
    TD_TRY(count_list(rd, list, "mistakes", TD_CONFUSION_MISTAKES, &c->n_mistakes));
    for (int i = 0; i < c->n_mistakes; i++) {
        const td_json *j = td_json_at(list, (size_t)i);
        const td_json *p = td_json_get(j, "probability");
        td_run_mistake *m = &c->mistakes[i];
        TD_TRY(read_names(rd, j, &m->actual, &m->predicted));
        TD_TRY(keep_text(rd, td_json_get(j, "path"), "path", &m->path));
        TD_TRY(read_member_count(rd, j, "sample", &m->sample));
        if (!p || td_json_as_number(p, &m->probability) != TD_OK ||
            !(m->probability >= 0 && m->probability <= 1))
            return td_error(TD_EFORMAT, "%s: a probability is not in 0 .. 1", rd->where);
    }
    return TD_OK;
}

static td_status read_all(const reader *rd, const td_json *step, const td_json *data)
{
    td_run_confusion *c = rd->c;
    int n;
    if (!step || !data || td_json_kind_of(data) != TD_JSON_OBJECT)
        return td_error(TD_EFORMAT, "%s: the record has no step and data", rd->where);
    TD_TRY(count_list(rd, step, "step", 3, &n));
    if (n > 0)
        TD_TRY(read_count(rd, td_json_at(step, 0), "step", &c->epoch));
    TD_TRY(read_member_count(rd, data, "images", &c->n_images));
    TD_TRY(read_member_count(rd, data, "wrong", &c->n_wrong));
    TD_TRY(read_matrix(rd, data));
    TD_TRY(read_pairs(rd, data));
    return read_mistakes(rd, data);
}

td_status td_run_confusion_read(const td_json *step, const td_json *data, const char *where,
                                td_run_confusion **out)
{
    *out = NULL;
    td_run_confusion *c = TD_NEW(td_run_confusion);
    if (!c)
        return TD_ENOMEM;
    td_arena_init(&c->arena);
    c->epoch = -1;
    const td_status st = read_all(&(reader){ c, where }, step, data);
    if (st == TD_OK)
        *out = c;
    else
        td_run_confusion_free(c);
    return st;
}

void td_run_confusion_free(td_run_confusion *c)
{
    if (!c)
        return;
    td_arena_release(&c->arena);
    td_free(c);
}
