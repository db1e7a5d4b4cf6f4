/*
 * options_complete.c -- the tables as what bash, zsh and fish have to know to complete them
 *
 * Offered are the long names and their short and other spellings, the values of an ENUM, and files
 * or folders where the row's `meta` says so.  Hidden rows are left out.
 */
#include <string.h>

#include "base/field_parts.h"

static bool takes_folders(const td_field *f)
{
    return strcmp(td_field_meta(f), "FOLDER") == 0;
}

static bool takes_files(const td_field *f)
{
    static const char *const metas[] = { "FILE", "PATH" };
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++)
        if (strcmp(td_field_meta(f), metas[i]) == 0)
            return true;
    return takes_folders(f);
}

/* each first spelling of an ENUM's values with `between` between them */
static void add_values(const td_field *f, const char *between, td_text *out)
{
    for (int i = 0; f->names && f->names[i]; i++)
        td_text_add(out, "%s%.*s", i ? between : "", (int)strcspn(f->names[i], "|"), f->names[i]);
}

/* --- spellings ------------------------------------------------------------------------------- */

/* the row's name, then its aliases; NULL after the last */
typedef struct {
    const td_field *field;
    const char *rest;
    bool is_started;
} spellings;

static const char *next(spellings *s, size_t *n)
{
    if (s->is_started)
        return td_name_next(&s->rest, n);
    s->is_started = true;
    s->rest = s->field->alias;
    *n = strlen(s->field->name);
    return s->field->name;
}

/* all spellings, "--batch-size -b", negated ones too where asked for */
static void add_words(const td_field *f, bool with_no, const char *between, td_text *out)
{
    char word[TD_OPTION_BYTES];
    spellings s = { .field = f };
    size_t n;
    const char *gap = "";
    for (const char *name; (name = next(&s, &n));)
        for (int no = 0; no <= (with_no && td_field_has_no(f) && n > 1); no++) {
            td_option_spell(name, n, no != 0, word);
            td_text_add(out, "%s%s", gap, word);
            gap = between;
        }
}

static bool is_offered(const td_row_walk *w)
{
    return w->field->help != NULL;
}

/* --- bash ------------------------------------------------------------------------------------ */

/* "--lr-schedule) words 'step linear cosine' ;;" */
static void bash_values(const td_field *f, td_text *out)
{
    td_text_add(out, "        ");
    add_words(f, false, "|", out);
    if (f->kind == TD_KIND_ENUM) {
        td_text_add(out, ") values='");
        add_values(f, " ", out);
        td_text_add(out, "' ;;\n");
    } else {
        td_text_add(out, ") values=%s ;;\n",
                    takes_folders(f) ? "%folders"
                    : takes_files(f) ? "%files"
                                     : "%any");
    }
}

static void add_bash(const td_field_group *groups, const char *verb, td_text *out)
{
    td_row_walk w = { .group = groups };
    td_text_add(out, "    %s)\n        case $before in\n", verb);
    while (td_row_next(&w))
        if (is_offered(&w) && w.field->kind != TD_KIND_BOOL)
            bash_values(w.field, out);
    td_text_add(out, "        esac\n        words='");
    w = (td_row_walk){ .group = groups };
    while (td_row_next(&w))
        if (is_offered(&w)) {
            add_words(w.field, true, " ", out);
            td_text_add(out, " ");
        }
    td_text_add(out, "' ;;\n");
}

/* --- zsh ------------------------------------------------------------------------------------- */

/* inside '...[...]:...': quotes, brackets and colons have meanings */
static void add_zsh_text(const char *text, td_text *out)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            td_text_add(out, "'\\''");
        else if (strchr("[]:\\", *p))
            td_text_add(out, "\\%c", *p);
        else
            td_text_add_bytes(out, p, 1);
    }
}

static void zsh_option(const td_field *f, const char *word, td_text *out)
{
    td_text_add(out, "            '*%s", word);
    if (f->kind != TD_KIND_BOOL && strncmp(word, "--", 2) == 0)
        td_text_add(out, "=");
    td_text_add(out, "[");
    add_zsh_text(f->help, out);
    td_text_add(out, "]");
    if (f->kind == TD_KIND_ENUM) {
        td_text_add(out, ":value:(");
        add_values(f, " ", out);
        td_text_add(out, ")");
    } else if (f->kind != TD_KIND_BOOL) {
        td_text_add(out, ":%s:%s", td_field_meta(f),
                    takes_folders(f) ? "_files -/"
                    : takes_files(f) ? "_files"
                                     : "");
    }
    td_text_add(out, "'\n");
}

static void add_zsh(const td_field_group *groups, const char *verb, td_text *out)
{
    char word[TD_OPTION_BYTES];
    td_row_walk w = { .group = groups };
    td_text_add(out, "    %s)\n        options=(\n", verb);
    while (td_row_next(&w)) {
        if (!is_offered(&w))
            continue;
        spellings s = { .field = w.field };
        size_t n;
        for (const char *name; (name = next(&s, &n));)
            for (int no = 0; no <= (td_field_has_no(w.field) && n > 1); no++) {
                td_option_spell(name, n, no != 0, word);
                zsh_option(w.field, word, out);
            }
    }
    td_text_add(out, "        ) ;;\n");
}

/* --- fish ------------------------------------------------------------------------------------ */

static void add_fish_text(const char *text, td_text *out)
{
    td_text_add(out, "'");
    for (const char *p = text; *p; p++) {
        if (*p == '\'' || *p == '\\')
            td_text_add(out, "\\");
        td_text_add_bytes(out, p, 1);
    }
    td_text_add(out, "'");
}

static void fish_option(const td_field *f, const char *verb, const char *word, td_text *out)
{
    bool is_long = strncmp(word, "--", 2) == 0;
    td_text_add(out, "complete -c tandem -n '__fish_seen_subcommand_from %s' %s %s", verb,
                is_long ? "-l" : "-s", word + (is_long ? 2 : 1));
    if (f->kind == TD_KIND_ENUM) {
        td_text_add(out, " -x -a '");
        add_values(f, " ", out);
        td_text_add(out, "'");
    } else if (f->kind != TD_KIND_BOOL) {
        td_text_add(out, takes_files(f) ? " -r -F" : " -x");
    }
    td_text_add(out, " -d ");
    add_fish_text(f->help, out);
    td_text_add(out, "\n");
}

static void add_fish(const td_field_group *groups, const char *verb, td_text *out)
{
    char word[TD_OPTION_BYTES];
    td_row_walk w = { .group = groups };
    while (td_row_next(&w)) {
        if (!is_offered(&w))
            continue;
        spellings s = { .field = w.field };
        size_t n;
        for (const char *name; (name = next(&s, &n));)
            for (int no = 0; no <= (td_field_has_no(w.field) && n > 1); no++) {
                td_option_spell(name, n, no != 0, word);
                fish_option(w.field, verb, word, out);
            }
    }
}

void td_options_completion(const td_field_group *groups, td_shell shell, const char *verb,
                           td_text *out)
{
    switch (shell) {
    case TD_SHELL_BASH:
        add_bash(groups, verb, out);
        break;
    case TD_SHELL_ZSH:
        add_zsh(groups, verb, out);
        break;
    case TD_SHELL_FISH:
        add_fish(groups, verb, out);
        break;
    }
}
