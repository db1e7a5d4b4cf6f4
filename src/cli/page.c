/*
 * page.c -- prints help as text, Markdown and manual pages, and completion for three shells
 *
 * Everything is generated from the tables that also parse the command line.
 */
#include <stdio.h>
#include <string.h>

#include "cli/unused_options.h"
#include "cli/verb.h"
#include "tandem/graph.h"
#include "tandem/model.h"
#include "tandem/recipes.h"

static void add_words(const char *text, int indent, int columns, td_text *out)
{
    const td_wrap w = { indent, columns, "" };
    td_text_add_wrapped(out, text, strlen(text), &w);
}

static void text_overview(td_text *out)
{
    const int columns = td_help_columns();
    td_text_add(out, "tandem %s: train, evaluate and run image networks\n\n", td_version());
    td_text_add(out, "usage: tandem VERB [OPTIONS] [ARGUMENTS]\n\n");
    for (int i = 0; td_verb_at(i); i++) {
        td_text_add(out, "  %-10s ", td_verb_at(i)->name);
        add_words(td_verb_at(i)->summary, 13, columns, out);
    }
    td_text_add(out, "\n");
    add_words("'tandem help VERB' or 'tandem VERB --help' lists the options of a verb, 'tandem "
              "help presets' the recipes.",
              0, columns, out);
    add_words("Exit codes: 0 success, 1 failure, 2 wrong usage, 3 stopped by a signal after "
              "saving, 4 --require not met.",
              0, columns, out);
}

/*
 * Add paragraphs, separated by empty lines.  Their lines are wrapped again, except indented ones.
 */
static void add_paragraphs(const char *text, int columns, td_text *out)
{
    const td_wrap w = { 0, columns, "" };
    for (const char *s = text; *s;) {
        const char *end = strstr(s, "\n\n");
        const size_t n = end ? (size_t)(end - s) : strlen(s);
        if (*s == ' ')
            td_text_add(out, "%.*s\n", (int)n, s);
        else
            td_text_add_wrapped(out, s, n, &w);
        td_text_add(out, "\n");
        s += n + (end ? 2 : 0);
    }
}

static void add_text_page(const td_verb *v, const td_field_group *groups, td_text *out)
{
    const int columns = td_help_columns();
    const td_wrap example = { .indent = 6, .columns = columns, .mark = " \\" };
    td_text title = { 0 };
    td_text_add(&title, "tandem %s: %s", v->name, v->summary);
    add_words(td_text_get(&title), 4, columns, out);
    if (td_text_status(&title) != TD_OK && out->st == TD_OK)
        out->st = td_text_status(&title);
    td_text_release(&title);
    td_text_add(out, "\nusage: tandem %s [OPTIONS]%s%s\n\n", v->name, *v->arguments ? " " : "",
                v->arguments);
    add_paragraphs(v->about, columns, out);
    td_options_help(groups, v->usual, columns, out);
    if (v->examples)
        td_text_add(out, "\nExamples:\n");
    for (const char *s = v->examples; s && *s; s += strcspn(s, "\n"), s += *s == '\n') {
        td_text_add(out, "  ");
        td_text_add_wrapped(out, s, strcspn(s, "\n"), &example);
    }
}

static void add_markdown_page(const td_verb *v, const td_field_group *groups, td_text *out)
{
    td_text_add(out, "# tandem %s\n\n%s.\n\n    tandem %s [OPTIONS]%s%s\n\n%s\n\n## Options\n\n",
                v->name, v->summary, v->name, *v->arguments ? " " : "", v->arguments, v->about);
    td_options_markdown(groups, v->usual, out);
    if (v->examples)
        td_text_add(out, "\n## Examples\n\n");
    for (const char *s = v->examples; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
        td_text_add(out, "    %.*s\n", (int)strcspn(s, "\n"), s);
    td_text_add(out, "\n*Made by `tandem help --markdown %s`.*\n", v->name);
}

/* --- manual pages ----------------------------------------------------------------------------- */

static void man_head(const char *name, const char *summary, td_text *out)
{
    td_text_add(out, ".\\\" made by 'tandem help --man'\n.TH %s 1 \"\" \"tandem %s\" \"\"\n", name,
                td_version());
    td_text_add(out, ".SH NAME\n");
    td_text_add_man(out, name);
    td_text_add(out, " \\- ");
    td_text_add_man(out, summary);
    td_text_add(out, "\n.SH SYNOPSIS\n");
}

static void man_lines(const char *title, const char *lines, td_text *out)
{
    td_text_add(out, ".SH %s\n.nf\n", title);
    td_text_add_man(out, lines);
    td_text_add(out, "\n.fi\n");
}

static const char exit_codes[] = "0 success; 1 failure; 2 wrong usage; 3 stopped by a signal after "
                                 "saving;\n4 --require not met.";

static void man_overview(td_text *out)
{
    man_head("tandem", "train, evaluate and run image networks", out);
    td_text_add(out, ".B tandem\n.I VERB\n[OPTIONS] [ARGUMENTS]\n.SH VERBS\n");
    for (int i = 0; td_verb_at(i); i++) {
        td_text_add(out, ".TP\n.B %s\n", td_verb_at(i)->name);
        td_text_add_man(out, td_verb_at(i)->summary);
        td_text_add(out, "; see\n.BR tandem\\-%s (1)\n", td_verb_at(i)->name);
    }
    man_lines("EXIT STATUS", exit_codes, out);
}

static void add_man_page(const td_verb *v, const td_field_group *groups, td_text *out)
{
    char name[80];
    snprintf(name, sizeof name, "tandem-%s", v->name);
    man_head(name, v->summary, out);
    td_text_add(out, ".B tandem %s\n[OPTIONS] ", v->name);
    td_text_add_man(out, v->arguments);
    td_text_add(out, "\n.SH DESCRIPTION\n");
    for (const char *s = v->about; *s;) { /* empty lines separate paragraphs */
        const char *end = strstr(s, "\n\n");
        size_t n = end ? (size_t)(end - s) : strlen(s);
        td_text part = { 0 };
        td_text_add_bytes(&part, s, n);
        td_text_add_man(out, td_text_get(&part));
        td_text_add(out, end ? "\n.PP\n" : "\n");
        if (td_text_status(&part) != TD_OK && out->st == TD_OK)
            out->st = td_text_status(&part);
        td_text_release(&part);
        s += n + (end ? 2 : 0);
    }
    td_text_add(out, ".SH OPTIONS\n");
    td_options_man(groups, v->usual, out);
    if (v->examples)
        man_lines("EXAMPLES", v->examples, out);
    man_lines("EXIT STATUS", exit_codes, out);
    td_text_add(out, ".SH SEE ALSO\n.BR tandem (1)\n");
}

/* --- any form --------------------------------------------------------------------------------- */

void td_verb_overview(td_page form, td_text *out)
{
    if (form == TD_PAGE_MAN)
        man_overview(out);
    else
        text_overview(out);
}

/* Copy a table without the options that the verb does not read and their aliases. */
static td_status keep_read(const td_verb *verb, const td_field **fields, td_arena *arena)
{
    size_t n = 0;
    const td_field *f = *fields;
    while (f[n].kind != TD_KIND_END)
        n++;
    td_field *kept = td_arena_alloc(arena, n + 1, sizeof *kept);
    if (!kept)
        return TD_ENOMEM;
    *fields = kept;
    for (; f->kind != TD_KIND_END; f++)
        if (f->kind == TD_KIND_TITLE ||
            !td_unused_options_has(verb, f->kind == TD_KIND_ALIAS ? f->def_text : f->name))
            *kept++ = *f;
    *kept = *f;
    return TD_OK;
}

/* Call `add` with the verb's tables; the struct of options is a dummy. */
static td_status call_with_tables(const td_verb *verb, td_text *out, const void *detail,
                                  void (*add)(const td_verb *, const td_field_group *, const void *,
                                              td_text *))
{
    td_field_group groups[TD_TABLES_MAX] = { 0 };
    td_common c = { 0 };
    td_arena arena;
    td_arena_init(&arena);
    void *opts = td_arena_alloc(&arena, 1, verb->opts_bytes + 1);
    td_status st = opts ? TD_OK : TD_ENOMEM;
    if (st == TD_OK)
        td_verb_tables(verb, opts, &c, groups);
    for (int i = 0; groups[i].fields && st == TD_OK; i++)
        st = keep_read(verb, &groups[i].fields, &arena);
    if (st == TD_OK)
        add(verb, groups, detail, out);
    td_arena_release(&arena);
    return st == TD_OK ? td_text_status(out) : st;
}

static void add_page(const td_verb *v, const td_field_group *groups, const void *detail,
                     td_text *out)
{
    const td_page form = *(const td_page *)detail;
    if (form == TD_PAGE_MAN)
        add_man_page(v, groups, out);
    else if (form == TD_PAGE_MARKDOWN)
        add_markdown_page(v, groups, out);
    else
        add_text_page(v, groups, out);
}

td_status td_verb_page(const td_verb *verb, td_page form, td_text *out)
{
    return call_with_tables(verb, out, &form, add_page);
}

/* --- completion ------------------------------------------------------------------------------- */

static const char bash_head[] =
    "# bash completion for tandem, made by 'tandem help --completion bash'\n"
    "_tandem() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local verb=${COMP_WORDS[1]} words='' values=''\n"
    "    COMPREPLY=()\n"
    "    [ \"$before\" = = ] && before=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    [ \"$word\" = = ] && word=''\n"
    "    if [ \"$COMP_CWORD\" -le 1 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$_tandem_verbs\" -- \"$word\"))\n"
    "        return\n"
    "    fi\n"
    "    case $verb in\n";

static const char bash_tail[] =
    "    help) words='--markdown --man --completion' values=$_tandem_verbs ;;\n"
    "    esac\n"
    "    case $values in\n"
    "    %any) return ;;\n"
    "    %folders) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- \"$word\")); "
    "return ;;\n"
    "    %files) values='' ;;\n"
    "    ?*) [ \"${word#-}\" = \"$word\" ] && COMPREPLY=($(compgen -W \"$values\" -- "
    "\"$word\"))\n"
    "        [ \"${word#-}\" = \"$word\" ] && return ;;\n"
    "    esac\n"
    "    case $word in\n"
    "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
    "    *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _tandem tandem\n";

static void add_verbs(td_text *out)
{
    for (int i = 0; td_verb_at(i); i++)
        td_text_add(out, "%s%s", i ? " " : "", td_verb_at(i)->name);
}

static void completion_head(int shell, td_text *out)
{
    if (shell == TD_SHELL_BASH) {
        td_text_add(out, "_tandem_verbs='");
        add_verbs(out);
        td_text_add(out, "'\n%s", bash_head);
    } else if (shell == TD_SHELL_ZSH) {
        td_text_add(out, "#compdef tandem\n# made by 'tandem help --completion zsh'\n"
                         "_tandem() {\n    local -a options\n"
                         "    if (( CURRENT == 2 )); then\n        compadd ");
        add_verbs(out);
        td_text_add(out, "\n        return\n    fi\n    case $words[2] in\n");
    } else {
        td_text_add(out, "# fish completion for tandem, made by 'tandem help --completion fish'\n");
        for (int i = 0; td_verb_at(i); i++)
            td_text_add(out, "complete -c tandem -n __fish_use_subcommand -x -a %s -d \"%s\"\n",
                        td_verb_at(i)->name, td_verb_at(i)->summary);
    }
}

typedef struct {
    td_shell shell;
    td_option_values lists[3]; /* values of --arch and --preset */
} completion;

static void add_completion(const td_verb *v, const td_field_group *groups, const void *detail,
                           td_text *out)
{
    const completion *c = detail;
    td_options_completion(groups, c->shell, v->name, c->lists, out);
}

static void add_arches(td_text *out)
{
    for (int i = 0; td_arch_name_at(i); i++)
        td_text_add(out, "%s%s", i ? " " : "", td_arch_name_at(i));
}

static void completion_tail(int shell, td_text *out)
{
    if (shell == TD_SHELL_BASH)
        td_text_add(out, "%s", bash_tail);
    else if (shell == TD_SHELL_ZSH)
        td_text_add(out, "    esac\n    shift words\n    (( CURRENT-- ))\n"
                         "    _arguments -s $options '*:file:_files'\n}\n_tandem \"$@\"\n");
}

td_status td_verb_completion(int shell, td_text *out)
{
    td_status st = TD_OK;
    td_text arches = { 0 };
    char *presets = NULL;
    add_arches(&arches);
    TD_OUT(td_text_status(&arches));
    TD_OUT(td_train_preset_names(&presets));
    const completion c = { (td_shell)shell,
                           { { "arch", td_text_get(&arches) }, { "preset", presets } } };
    completion_head(shell, out);
    for (int i = 0; td_verb_at(i); i++)
        if (shell != TD_SHELL_BASH || strcmp(td_verb_at(i)->name, "help") != 0)
            TD_OUT(call_with_tables(td_verb_at(i), out, &c, add_completion));
    completion_tail(shell, out);
    st = td_text_status(out);
out:
    td_text_release(&arches);
    td_text_free(presets);
    return st;
}
