/*
 * options_complete.c -- generates completion code for bash, zsh and fish from the tables
 *
 * Completes the long names and their other spellings, the values of an ENUM and of the options that
 * the caller lists, and files or folders if the row's `meta` is one.  Hidden rows are omitted.
 */
#include <string.h>

#include "options/field_parts.h"

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

/* the caller's list of values for the row, or NULL */
static const char *listed_values(const td_field *f, const td_option_values *lists)
{
    for (; lists && lists->option; lists++)
        if (strcmp(lists->option, f->name) == 0)
            return lists->values;
    return NULL;
}

/* adds a row's values, separated by spaces; an ENUM's in their first spelling */
static void add_values(const td_field *f, const td_option_values *lists, td_text *out)
{
    const char *listed = listed_values(f, lists);
    if (listed)
        td_text_add(out, "%s", listed);
    for (int i = 0; f->names && f->names[i]; i++)
        td_text_add(out, "%s%.*s", i ? " " : "", (int)strcspn(f->names[i], "|"), f->names[i]);
}

static bool has_values(const td_field *f, const td_option_values *lists)
{
    return f->names || listed_values(f, lists);
}

/* --- spellings ------------------------------------------------------------------------------- */

/* walks over a row's name, then its aliases, each followed by its negation if requested and
   possible */
typedef struct {
    const td_field *field;
    bool with_no, is_no; /* include negations; the current one is a negation */
    const char *rest, *name;
    size_t n_name;
    char word[TD_OPTION_BYTES]; /* "--no-nesterov" */
} words;

/* the next word; false after the last */
static bool next_word(words *w)
{
    w->is_no = w->name && !w->is_no && w->with_no && td_field_has_no(w->field) && w->n_name > 1;
    if (!w->is_no && w->name) {
        w->name = td_name_next(&w->rest, &w->n_name);
    } else if (!w->name) {
        w->rest = w->field->alias;
        w->name = w->field->name;
        w->n_name = strlen(w->name);
    }
    if (w->name)
        td_option_spell(w->name, w->n_name, w->is_no, w->word);
    return w->name != NULL;
}

/* all spellings, "--batch-size -b" */
static void add_words(words w, const char *between, td_text *out)
{
    for (const char *gap = ""; next_word(&w); gap = between)
        td_text_add(out, "%s%s", gap, w.word);
}

static bool is_offered(const td_row_walk *w)
{
    return w->field->help != NULL;
}

/* --- bash ------------------------------------------------------------------------------------ */

/* "--lr-schedule) words 'step linear cosine' ;;" */
static void bash_values(const td_field *f, const td_option_values *lists, td_text *out)
{
    td_text_add(out, "        ");
    add_words((words){ .field = f }, "|", out);
    if (has_values(f, lists)) {
        td_text_add(out, ") values='");
        add_values(f, lists, out);
        td_text_add(out, "' ;;\n");
    } else {
        td_text_add(out, ") values=%s ;;\n",
                    takes_folders(f) ? "%folders"
                    : takes_files(f) ? "%files"
                                     : "%any");
    }
}

static void add_bash(const td_field_group *groups, const char *verb, const td_option_values *lists,
                     td_text *out)
{
    td_row_walk w = { .group = groups };
    td_text_add(out, "    %s)\n        case $before in\n", verb);
    while (td_row_next(&w))
        if (is_offered(&w) && w.field->kind != TD_KIND_BOOL)
            bash_values(w.field, lists, out);
    td_text_add(out, "        esac\n        words='");
    w = (td_row_walk){ .group = groups };
    while (td_row_next(&w))
        if (is_offered(&w)) {
            add_words((words){ .field = w.field, .with_no = true }, " ", out);
            td_text_add(out, " ");
        }
    td_text_add(out, "' ;;\n");
}

/* --- zsh ------------------------------------------------------------------------------------- */

/* escapes text for '...[...]:...', where quotes, brackets and colons have a meaning */
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

static void zsh_option(const td_field *f, const char *word, const td_option_values *lists,
                       td_text *out)
{
    td_text_add(out, "            '*%s", word);
    if (f->kind != TD_KIND_BOOL && strncmp(word, "--", 2) == 0)
        td_text_add(out, "=");
    td_text_add(out, "[");
    add_zsh_text(f->help, out);
    td_text_add(out, "]");
    if (has_values(f, lists)) {
        td_text_add(out, ":value:(");
        add_values(f, lists, out);
        td_text_add(out, ")");
    } else if (f->kind != TD_KIND_BOOL) {
        td_text_add(out, ":%s:%s", td_field_meta(f),
                    takes_folders(f) ? "_files -/"
                    : takes_files(f) ? "_files"
                                     : "");
    }
    td_text_add(out, "'\n");
}

static void add_zsh(const td_field_group *groups, const char *verb, const td_option_values *lists,
                    td_text *out)
{
    td_row_walk w = { .group = groups };
    td_text_add(out, "    %s)\n        options=(\n", verb);
    while (td_row_next(&w)) {
        words each = { .field = w.field, .with_no = true };
        while (is_offered(&w) && next_word(&each))
            zsh_option(w.field, each.word, lists, out);
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

static void fish_option(const td_field *f, const char *verb, const char *word,
                        const td_option_values *lists, td_text *out)
{
    bool is_long = strncmp(word, "--", 2) == 0;
    td_text_add(out, "complete -c tandem -n '__fish_seen_subcommand_from %s' %s %s", verb,
                is_long ? "-l" : "-s", word + (is_long ? 2 : 1));
    if (has_values(f, lists)) {
        td_text_add(out, " -x -a '");
        add_values(f, lists, out);
        td_text_add(out, "'");
    } else if (f->kind != TD_KIND_BOOL) {
        td_text_add(out, takes_files(f) ? " -r -F" : " -x");
    }
    td_text_add(out, " -d ");
    add_fish_text(f->help, out);
    td_text_add(out, "\n");
}

static void add_fish(const td_field_group *groups, const char *verb, const td_option_values *lists,
                     td_text *out)
{
    td_row_walk w = { .group = groups };
    while (td_row_next(&w)) {
        words each = { .field = w.field, .with_no = true };
        while (is_offered(&w) && next_word(&each))
            fish_option(w.field, verb, each.word, lists, out);
    }
}

void td_options_completion(const td_field_group *groups, td_shell shell, const char *verb,
                           const td_option_values *lists, td_text *out)
{
    switch (shell) {
    case TD_SHELL_BASH:
        add_bash(groups, verb, lists, out);
        break;
    case TD_SHELL_ZSH:
        add_zsh(groups, verb, lists, out);
        break;
    case TD_SHELL_FISH:
        add_fish(groups, verb, lists, out);
        break;
    }
}
