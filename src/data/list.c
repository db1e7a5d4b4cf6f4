/*
 * list.c -- opens a list of images and labels
 *
 * Columns are found by their names if the first row has names of columns, otherwise they are image,
 * label and, if there is a third, split.  If all labels are decimal numbers they are the classes'
 * numbers; otherwise the classes are the labels in byte order.  Classes are those of all rows, so
 * that the splits of one list have the same.
 *
 * An image has several labels, or none, with a delimiter between them (opts->label_delimiter), or
 * if the first row has names of columns, but none for the label: all others are classes, 0 or 1.
 */
#include "data/list.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file_io.h"
#include "base/map.h"
#include "base/paths.h"
#include "data/labels.h"
#include "data/source.h"
#include "io/delimited.h"

enum { LIST_BYTES_MAX = 1 << 30, N_COLUMNS = 3 };

bool td_list_is(const char *path)
{
    return (td_text_ends(path, ".csv") || td_text_ends(path, ".tsv") ||
            td_text_ends(path, ".txt")) &&
           td_path_is_file(path);
}

/* --- columns ---------------------------------------------------------------------------------- */

enum { IMAGE, LABEL, SPLIT };

/* clang-format off */
static const char *const column_names[N_COLUMNS][8] = {
    [IMAGE] = { "image", "path", "file", "filename", "file_name", "image_path", "filepath", NULL },
    [LABEL] = { "label", "class", "category", "target", "class_name", "name", NULL },
    [SPLIT] = { "split", "set", "subset", "partition", NULL },
};

static const struct {
    const char *name, *split;
} splits[] = {
    { "train", "train" }, { "training", "train" },   { "val", "val" },   { "valid", "val" },
    { "validation", "val" }, { "test", "test" },     { "testing", "test" },
};
/* clang-format on */

typedef struct {
    const char *image;
    int64_t line;
    int64_t label; /* td_labels_add */
    int *labels;   /* [n_labels], with several labels: the same numbers */
    int n_labels;
    bool is_wanted;
} entry;

typedef struct {
    const td_dataset_opts *opts;
    td_dataset *ds;
    td_delimited rows;
    const char *folder; /* the one that contains the list */
    bool looks_for_files;
    int columns[N_COLUMNS]; /* -1: none */
    int n_columns;
    bool has_class_columns;           /* a column of 0 and 1 for each class, in place of LABEL */
    int numbers[TD_DELIMITED_FIELDS]; /* of the row's labels */
    entry *entries;
    size_t n, cap;
    td_labels labels;
    td_map images; /* path -> line */
} list;

static td_status wrong(const list *l, td_status st, const char *format, const char *value)
{
    td_text t = { 0 };
    td_text_add(&t, format, value);
    td_status failed = td_text_status(&t);
    if (failed == TD_OK)
        failed = td_error(st, "'%s' line %lld: %s", l->rows.what, (long long)l->rows.line,
                          td_text_get(&t));
    td_text_release(&t);
    return failed;
}

static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcasecmp(names[i], name) == 0)
            return i;
    return -1;
}

/* Is the row a header?  Then it names the columns of images and labels. */
static bool read_header(list *l)
{
    int found[N_COLUMNS] = { -1, -1, -1 };
    for (int i = 0; i < l->rows.n_fields; i++)
        for (int c = 0; c < N_COLUMNS; c++)
            if (found[c] < 0 && find_name(column_names[c], td_delimited_field(&l->rows, i)) >= 0)
                found[c] = i;
    const int n_others = l->rows.n_fields - 1 - (found[SPLIT] >= 0);
    l->has_class_columns = found[IMAGE] >= 0 && found[LABEL] < 0 && n_others > 1;
    if (found[IMAGE] < 0 || (found[LABEL] < 0 && !l->has_class_columns))
        return false;
    memcpy(l->columns, found, sizeof found);
    return true;
}

static bool is_class_column(const list *l, int i)
{
    return i != l->columns[IMAGE] && i != l->columns[SPLIT];
}

/* The header's other columns are the classes, in this order. */
static td_status read_class_columns(list *l)
{
    td_dataset *ds = l->ds;
    int64_t number;
    if (l->opts->label_delimiter)
        return td_error(TD_EUSAGE,
                        "'%s' line %lld has no column of labels, which --list-delimiter requires",
                        l->rows.what, (long long)l->rows.line);
    for (int i = 0; i < l->rows.n_fields; i++) {
        const char *name = td_delimited_field(&l->rows, i);
        if (!is_class_column(l, i))
            continue;
        if (!*name)
            return td_error(TD_EFORMAT, "'%s' line %lld: column %d has no name", l->rows.what,
                            (long long)l->rows.line, i + 1);
        const size_t before = l->labels.n;
        TD_TRY(td_labels_add(&l->labels, &ds->arena, name, &number));
        if (l->labels.n == before)
            return wrong(l, TD_EFORMAT, "two columns are named '%s'", name);
    }
    TD_TRY(TD_ALLOC(ds->class_names, l->labels.n));
    memcpy(ds->class_names, l->labels.names, l->labels.n * sizeof *l->labels.names);
    ds->n_classes = (int)l->labels.n;
    ds->has_class_names = true;
    return TD_OK;
}

static td_status choose_columns(list *l, bool *is_header)
{
    l->n_columns = l->rows.n_fields;
    *is_header = read_header(l);
    if (*is_header)
        return TD_OK;
    if (l->n_columns != 2 && l->n_columns != 3)
        return td_error(TD_EFORMAT,
                        "'%s' line %lld has %d columns, wanted image, label and perhaps split, or "
                        "a first line with the names of the columns",
                        l->rows.what, (long long)l->rows.line, l->n_columns);
    l->columns[IMAGE] = 0;
    l->columns[LABEL] = 1;
    l->columns[SPLIT] = l->n_columns == 3 ? 2 : -1;
    return TD_OK;
}

td_status td_list_delimiter(const char *text, char *out)
{
    *out = text ? *text : '\0';
    if (!text || (strlen(text) == 1 && *text != '"' && *text != '\n' && *text != '\r'))
        return TD_OK;
    return td_error(TD_EUSAGE, "--list-delimiter '%.20s', wanted one character, such as ; or |",
                    text);
}

bool td_list_is_label_column(const char *name)
{
    return find_name(column_names[LABEL], name) >= 0;
}

/* --- fields ----------------------------------------------------------------------------------- */

static bool leaves_folder(const char *path)
{
    if (*path == '/')
        return true;
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}

static td_status read_image(list *l, entry *e)
{
    const char *path = td_delimited_field(&l->rows, l->columns[IMAGE]);
    td_arena *arena = &l->ds->arena;
    if (!*path)
        return wrong(l, TD_EFORMAT, "the image is missing%s", "");
    if (leaves_folder(path) && !l->opts->allow_outside)
        return wrong(l, TD_EFORMAT,
                     "'%s' is outside of the list's folder, which requires --list-outside", path);
    e->image = *path == '/' || !*l->folder ? td_arena_text(arena, path)
                                           : td_path_append(arena, l->folder, path);
    if (!e->image)
        return TD_ENOMEM;
    const intptr_t before = (intptr_t)td_map_get(&l->images, e->image);
    if (before)
        return td_error(TD_EFORMAT, "'%s' line %lld: '%s' is in line %lld, too", l->rows.what,
                        (long long)l->rows.line, path, (long long)before);
    TD_TRY(td_map_set(&l->images, e->image, (void *)(intptr_t)l->rows.line));
    if (l->looks_for_files && e->is_wanted && !td_path_exists(e->image))
        return wrong(l, TD_ENOTFOUND, "file '%s' does not exist", e->image);
    return TD_OK;
}

static td_status keep_labels(list *l, entry *e, int n)
{
    e->label = -1;
    e->n_labels = n;
    e->labels = td_arena_alloc(&l->ds->arena, (size_t)n + 1, sizeof *e->labels);
    if (!e->labels)
        return TD_ENOMEM;
    memcpy(e->labels, l->numbers, (size_t)n * sizeof *e->labels);
    return TD_OK;
}

/* One column for each class: 0 or 1. */
static td_status read_class_values(list *l, entry *e)
{
    int n = 0, number = 0;
    for (int i = 0; i < l->rows.n_fields; i++) {
        const char *value = td_delimited_field(&l->rows, i);
        if (!is_class_column(l, i))
            continue;
        const bool is_one = strcmp(value, "1") == 0 || strcmp(value, "1.0") == 0;
        if (!is_one && strcmp(value, "0") != 0 && strcmp(value, "0.0") != 0)
            return td_error(TD_EFORMAT,
                            "'%s' line %lld: class '%.60s' is '%.60s', wanted 0 or 1: without a "
                            "column of labels every column is a class",
                            l->rows.what, (long long)l->rows.line, l->labels.names[number], value);
        if (is_one)
            l->numbers[n++] = number;
        number++;
    }
    return keep_labels(l, e, n);
}

/* "cat;dog", or nothing; blanks around a label do not count */
static td_status read_several(list *l, entry *e)
{
    const char *at = td_delimited_field(&l->rows, l->columns[LABEL]);
    td_text word = { 0 };
    td_status st = TD_OK;
    int n = 0;
    while (*at) {
        const char *end = strchr(at, l->opts->label_delimiter), *from = at;
        int64_t number;
        end = end ? end : at + strlen(at);
        at = *end ? end + 1 : end;
        while (from < end && *from == ' ')
            from++;
        while (from < end && end[-1] == ' ')
            end--;
        if (from == end)
            continue;
        word.len = 0;
        td_text_add(&word, "%.*s", (int)(end - from), from);
        TD_OUT(td_text_status(&word));
        if (n == TD_DELIMITED_FIELDS)
            TD_OUT(wrong(l, TD_ELIMIT, "too many labels%s", ""));
        TD_OUT(td_labels_add(&l->labels, &l->ds->arena, td_text_get(&word), &number));
        for (int i = 0; i < n; i++)
            if (l->numbers[i] == number)
                TD_OUT(wrong(l, TD_EFORMAT, "label '%s' occurs twice", td_text_get(&word)));
        l->numbers[n++] = (int)number;
    }
    st = keep_labels(l, e, n);
out:
    td_text_release(&word);
    return st;
}

static td_status read_label(list *l, entry *e)
{
    if (l->has_class_columns)
        return read_class_values(l, e);
    if (l->opts->label_delimiter)
        return read_several(l, e);
    const char *label = td_delimited_field(&l->rows, l->columns[LABEL]);
    if (!*label)
        return wrong(l, TD_EFORMAT, "the label is missing%s", "");
    TD_TRY_MSG(td_labels_add(&l->labels, &l->ds->arena, label, &e->label), "'%s' line %lld",
               l->rows.what, (long long)l->rows.line);
    return TD_OK;
}

/* Is the row of the wanted split?  Without such a column, all are. */
static td_status read_split(list *l, entry *e)
{
    e->is_wanted = true;
    if (l->columns[SPLIT] < 0 || !l->opts->split)
        return TD_OK;
    const char *value = td_delimited_field(&l->rows, l->columns[SPLIT]);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        if (strcasecmp(value, splits[i].name) == 0) {
            e->is_wanted = strcmp(splits[i].split, l->opts->split) == 0;
            return TD_OK;
        }
    return wrong(l, TD_EFORMAT, "split '%s' is none of train, val and test", value);
}

static td_status read_row(list *l)
{
    entry e = { .line = l->rows.line };
    if (l->rows.n_fields != l->n_columns)
        return td_error(TD_EFORMAT, "'%s' line %lld has %d fields, wanted %d", l->rows.what,
                        (long long)l->rows.line, l->rows.n_fields, l->n_columns);
    TD_TRY(read_split(l, &e));
    TD_TRY(read_image(l, &e));
    TD_TRY(read_label(l, &e));
    TD_TRY(td_reserve(&l->entries, &l->cap, l->n + 1, sizeof *l->entries));
    l->entries[l->n++] = e;
    return TD_OK;
}

static td_status read_rows(list *l)
{
    bool is_header;
    TD_TRY(td_delimited_next(&l->rows));
    if (l->rows.n_fields == 0)
        return td_error(TD_EFORMAT, "'%s' is empty, wanted images and labels", l->rows.what);
    TD_TRY(choose_columns(l, &is_header));
    l->ds->is_multi_label = l->has_class_columns || l->opts->label_delimiter;
    if (l->has_class_columns)
        TD_TRY(read_class_columns(l));
    if (is_header)
        TD_TRY(td_delimited_next(&l->rows));
    while (l->rows.n_fields > 0) {
        TD_TRY(read_row(l));
        TD_TRY(td_delimited_next(&l->rows));
    }
    return TD_OK;
}

/* --- samples ---------------------------------------------------------------------------------- */

static td_status make_samples(list *l, const int64_t *class_of)
{
    td_dataset *ds = l->ds;
    TD_TRY(TD_ALLOC(ds->samples, l->n));
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->entries[i];
        for (int k = 0; class_of && k < e->n_labels; k++)
            e->labels[k] = (int)class_of[e->labels[k]];
        if (e->is_wanted)
            ds->samples[ds->n++] =
                (td_sample){ .path = e->image,
                             .label = ds->is_multi_label ? -1 : class_of[e->label],
                             .labels = e->labels,
                             .n_labels = e->n_labels };
    }
    return TD_OK;
}

/* Without a column of splits, a list is the training set, or what is evaluated (allow_root). */
static td_status check_split(list *l)
{
    const char *split = l->opts->split;
    l->ds->is_unsplit = l->columns[SPLIT] < 0;
    if (split && l->ds->is_unsplit && strcmp(split, "train") != 0 && !l->opts->allow_root)
        return td_error(TD_ENOTFOUND, "'%s' has no column of splits", l->rows.what);
    if (l->ds->n == 0)
        return td_error(TD_ENOTFOUND, "'%s' has no image of split '%s'", l->rows.what,
                        split ? split : "");
    return TD_OK;
}

/* --- the list --------------------------------------------------------------------------------- */

static td_status read_list(list *l)
{
    int64_t *class_of = NULL;
    td_status st;
    TD_OUT(read_rows(l));
    if (!l->has_class_columns)
        TD_OUT(td_labels_finish(&l->labels, l->rows.what, l->ds, &class_of));
    TD_OUT(make_samples(l, class_of));
    st = check_split(l);
out:
    td_free(class_of);
    return st;
}

static td_status find_folder(list *l, const char *path)
{
    const size_t n = (size_t)(td_path_base(path) - path);
    char *folder = td_copy_text(path);
    if (!folder)
        return TD_ENOMEM;
    folder[n > 1 ? n - 1 : n] = '\0'; /* without the slash, but "/" */
    l->folder = td_arena_text(&l->ds->arena, folder);
    td_free(folder);
    return l->folder ? TD_OK : TD_ENOMEM;
}

td_status td_list_parse(const char *bytes, size_t n_bytes, const td_dataset_opts *opts,
                        bool looks_for_files, td_dataset *ds)
{
    list l = {
        .opts = opts, .ds = ds, .looks_for_files = looks_for_files, .columns = { -1, -1, -1 }
    };
    td_status st;
    ds->is_list = true;
    ds->root = td_arena_text(&ds->arena, opts->path);
    TD_OUT(ds->root ? TD_OK : TD_ENOMEM);
    TD_OUT(find_folder(&l, opts->path));
    TD_OUT(td_delimited_begin(&l.rows, bytes, n_bytes, ds->root));
    st = read_list(&l);
out:
    td_delimited_release(&l.rows);
    td_labels_release(&l.labels);
    td_map_release(&l.images);
    td_free(l.entries);
    return st;
}

td_status td_list_open(const td_dataset_opts *opts, td_dataset *ds)
{
    char *bytes;
    size_t n_bytes;
    if (!td_path_exists(opts->path))
        return td_error(TD_ENOTFOUND, "data set '%s' does not exist", opts->path);
    if (!td_path_is_file(opts->path))
        return td_error(TD_EFORMAT, "'%s' is no regular file, wanted a list of images", opts->path);
    if (opts->has_boxes || opts->annotations)
        return td_error(TD_EFORMAT,
                        "'%s' is a list of images with classes, wanted images with "
                        "boxes",
                        opts->path);
    TD_TRY(td_file_read(opts->path, LIST_BYTES_MAX, &bytes, &n_bytes));
    td_status st = td_list_parse(bytes, n_bytes, opts, true, ds);
    td_free(bytes);
    return st;
}
