/*
 * options_help.c -- prints the tables as a help page, a Markdown page and a manual page
 *
 *     Optimiser:
 *       -b, --batch-size N       images in a step (default 256, 1 to 65536)
 *           --lr X               learning rate (default 0.1, 0 to 1000)
 *           --[no-]nesterov      look ahead
 */
#include <stdio.h>
#include <string.h>

#include "base/file_io.h"
#include "options/field_parts.h"

#define HELP_COLUMN 32 /* the column of the descriptions */

enum { COLUMNS = 80, COLUMNS_MIN = 60, COLUMNS_MAX = 120 }; /* longer lines are hard to read */

const char *td_field_meta(const td_field *f)
{
    if (f->meta)
        return f->meta;
    switch (f->kind) {
    case TD_KIND_INT:
    case TD_KIND_LONG:
        return "N";
    case TD_KIND_REAL:
        return "X";
    case TD_KIND_ENUM:
        return "NAME";
    case TD_KIND_TEXT:
        return "TEXT";
    case TD_KIND_BOOL:
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
    return "";
}

static void add_name(const char *name, size_t n, td_text *out)
{
    for (size_t i = 0; i < n; i++)
        td_text_add_bytes(out, name[i] == '_' ? "-" : &name[i], 1);
}

/* is it a BOOL shown without "[no-]": because its name begins with "no-", or because there is a row
   for that? */
static bool is_one_way(const td_field *f)
{
    return f->meta || strncmp(f->name, "no-", 3) == 0 || strncmp(f->name, "no_", 3) == 0;
}

bool td_field_has_no(const td_field *f)
{
    return f->kind == TD_KIND_BOOL && !is_one_way(f);
}

static void add_long(const td_field *f, const char *name, size_t n, td_text *out)
{
    td_text_add(out, td_field_has_no(f) ? "--[no-]" : "--");
    add_name(name, n, out);
}

/* all single letters, or all longer aliases, each followed by `after` */
static void add_aliases(const td_field *f, bool want_short, const char *before, const char *after,
                        td_text *out)
{
    size_t n;
    const char *rest = f->alias;
    for (const char *piece; (piece = td_name_next(&rest, &n));) {
        if ((n == 1) != want_short)
            continue;
        td_text_add(out, "%s", before);
        if (want_short)
            td_text_add(out, "-%c", *piece);
        else
            add_long(f, piece, n, out);
        td_text_add(out, "%s", after);
    }
}

static bool has_short(const td_field *f)
{
    size_t n;
    const char *rest = f->alias;
    while (td_name_next(&rest, &n))
        if (n == 1)
            return true;
    return false;
}

/* "-b, --batch-size, --bs N" */
static void add_spellings(const td_field *f, td_text *out)
{
    add_aliases(f, true, "", ", ", out);
    add_long(f, f->name, strlen(f->name), out);
    add_aliases(f, false, ", ", "", out);
    if (f->kind != TD_KIND_BOOL)
        td_text_add(out, " %s", td_field_meta(f));
}

static bool has_default(const td_field *f)
{
    return f->kind == TD_KIND_BOOL ? f->def != 0 : f->kind != TD_KIND_TEXT || f->def_text;
}

static void add_default(const td_field *f, td_text *out)
{
    union {
        int small;
        int64_t large;
        double real;
        bool flag;
        const char *text;
    } value;
    td_field rows[2] = { *f, TD_END };
    rows[0].offset = 0;
    td_fields_default(rows, &value);
    td_field_get(&rows[0], &value, out);
}

void td_field_meaning(const td_field *f, td_text *out)
{
    td_text range = { 0 };
    td_field_range(f, &range);
    bool has_range = range.len > 0 && strcmp(td_text_get(&range), "any") != 0;
    td_text_add(out, "%s", f->help);
    if (has_default(f) || has_range)
        td_text_add(out, " (");
    if (has_default(f)) {
        td_text_add(out, "default ");
        add_default(f, out);
    }
    if (has_range)
        td_text_add(out, "%s%s",
                    !has_default(f)           ? ""
                    : f->kind == TD_KIND_ENUM ? "; "
                                              : ", ",
                    td_text_get(&range));
    if (has_default(f) || has_range)
        td_text_add(out, ")");
    if (td_text_status(&range) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&range);
    td_text_release(&range);
}

int td_help_columns(void)
{
    const int n = td_terminal_columns();
    return n == 0 ? COLUMNS : n < COLUMNS_MIN ? COLUMNS_MIN : n > COLUMNS_MAX ? COLUMNS_MAX : n;
}

void td_text_add_wrapped(td_text *out, const char *text, size_t n_text, const td_wrap *w)
{
    size_t column = (size_t)w->indent;
    const char *end = text + n_text;
    bool is_first = true;
    for (const char *p = text; p < end;) {
        size_t n = 0;
        while (p + n < end && p[n] != ' ' && p[n] != '\n')
            n++;
        if (!is_first && column + 1 + n + strlen(w->mark) > (size_t)w->columns) {
            td_text_add(out, "%s\n%*s", w->mark, w->indent, "");
            column = (size_t)w->indent;
            is_first = true;
        }
        td_text_add(out, "%s%.*s", is_first ? "" : " ", (int)n, p);
        column += n + !is_first;
        is_first = false;
        for (p += n; p < end && (*p == ' ' || *p == '\n');)
            p++;
    }
    td_text_add(out, "\n");
}

static void add_row(const td_field *f, int columns, td_text *out)
{
    const td_wrap wrap = { .indent = HELP_COLUMN, .columns = columns, .mark = "" };
    size_t start = out->len;
    td_text_add(out, has_short(f) ? "  " : "      ");
    add_spellings(f, out);
    size_t width = out->len - start;
    if (width + 2 > HELP_COLUMN) {
        td_text_add(out, "\n");
        width = 0;
    }
    td_text_add(out, "%*s", (int)(HELP_COLUMN - width), "");

    td_text meaning = { 0 };
    td_field_meaning(f, &meaning);
    td_text_add_wrapped(out, td_text_get(&meaning), meaning.len, &wrap);
    if (td_text_status(&meaning) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&meaning);
    td_text_release(&meaning);
}

static bool is_visible(const td_row_walk *w)
{
    return w->field->help != NULL;
}

/* a page format: functions that write a title and a row */
typedef struct {
    void (*head)(const char *title, const char *gap, td_text *out);
    void (*row)(const td_field *, int columns, td_text *out);
    const char *usual; /* names of the rows shown first, under their own title */
    int columns;
} page_form;

/* the next name of a list with commas; NULL at the end */
static const char *next_usual(const char **rest, size_t *n)
{
    const char *name = *rest;
    if (!name || !*name)
        return NULL;
    *n = strcspn(name, ",");
    *rest = name + *n + (name[*n] == ',');
    return name;
}

static bool is_usual(const td_field *f, const char *usual)
{
    size_t n;
    for (const char *name; (name = next_usual(&usual, &n));)
        if (strlen(f->name) == n && strncmp(f->name, name, n) == 0)
            return true;
    return false;
}

static void walk_usual(const td_field_group *groups, const page_form *form, td_text *out)
{
    size_t n;
    const char *rest = form->usual;
    form->head("Usual options", "", out);
    for (const char *name; (name = next_usual(&rest, &n));) {
        td_row_walk w = { .group = groups };
        while (td_row_next(&w))
            if (is_visible(&w) && strlen(w.field->name) == n && !strncmp(w.field->name, name, n))
                form->row(w.field, form->columns, out);
    }
}

/* writes every visible row, the usual ones first, then title by title */
static void walk(const td_field_group *groups, const page_form *form, td_text *out)
{
    const char *gap = form->usual ? "\n" : "";
    td_row_walk w = { .group = groups };
    if (form->usual)
        walk_usual(groups, form, out);
    while (td_row_next(&w)) {
        if (!is_visible(&w) || !td_row_opens_title(groups, &w, is_visible))
            continue;
        form->head(w.title, gap, out);
        td_row_walk r = { .group = groups };
        while (td_row_next(&r))
            if (is_visible(&r) && strcmp(r.title, w.title) == 0 && !is_usual(r.field, form->usual))
                form->row(r.field, form->columns, out);
        gap = "\n";
    }
}

static void text_head(const char *title, const char *gap, td_text *out)
{
    td_text_add(out, "%s%s:\n", gap, title);
}

void td_options_help(const td_field_group *groups, const char *usual, int columns, td_text *out)
{
    const page_form form = { text_head, add_row, usual, columns };
    walk(groups, &form, out);
}

/* --- Markdown -------------------------------------------------------------------------------- */

/* adds a table cell, escaping '|', which would end it, and '<', which would start a tag */
static void add_cell(const char *text, td_text *out)
{
    for (const char *p = text; *p; p++) {
        if (*p == '|' || *p == '<')
            td_text_add(out, "\\");
        td_text_add_bytes(out, p, 1);
    }
}

static void add_markdown_row(const td_field *f, int columns, td_text *out)
{
    (void)columns;
    td_text range = { 0 };
    td_field_range(f, &range);
    td_text_add(out, "| `");
    add_spellings(f, out);
    td_text_add(out, "` | ");
    if (has_default(f)) {
        td_text_add(out, "`");
        add_default(f, out);
        td_text_add(out, "`");
    }
    td_text_add(out, " | ");
    add_cell(td_text_get(&range), out);
    td_text_add(out, " | ");
    add_cell(f->help, out);
    td_text_add(out, " |\n");
    if (td_text_status(&range) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&range);
    td_text_release(&range);
}

static void markdown_head(const char *title, const char *gap, td_text *out)
{
    td_text_add(out, "%s### %s\n\n| option | default | range | meaning |\n|---|---|---|---|\n", gap,
                title);
}

void td_options_markdown(const td_field_group *groups, const char *usual, td_text *out)
{
    const page_form form = { markdown_head, add_markdown_row, usual, 0 };
    walk(groups, &form, out);
}

/* --- troff ----------------------------------------------------------------------------------- */

void td_text_add_man(td_text *out, const char *text)
{
    bool is_line_start = true;
    for (const char *p = text; *p; p++) {
        if (is_line_start && (*p == '.' || *p == '\''))
            td_text_add(out, "\\&");
        if (*p == '\\')
            td_text_add(out, "\\e");
        else if (*p == '-')
            td_text_add(out, "\\-");
        else
            td_text_add_bytes(out, p, 1);
        is_line_start = *p == '\n';
    }
}

/* escapes text written by another function */
static void add_escaped(void (*write)(const td_field *, td_text *), const td_field *f, td_text *out)
{
    td_text part = { 0 };
    write(f, &part);
    td_text_add_man(out, td_text_get(&part));
    if (td_text_status(&part) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&part);
    td_text_release(&part);
}

static void add_man_row(const td_field *f, int columns, td_text *out)
{
    (void)columns;
    td_text_add(out, ".TP\n.B ");
    add_escaped(add_spellings, f, out);
    td_text_add(out, "\n");
    add_escaped(td_field_meaning, f, out);
    td_text_add(out, "\n");
}

static void man_head(const char *title, const char *gap, td_text *out)
{
    (void)gap;
    td_text_add(out, ".SS %s\n", title);
}

void td_options_man(const td_field_group *groups, const char *usual, td_text *out)
{
    const page_form form = { man_head, add_man_row, usual, 0 };
    walk(groups, &form, out);
}
