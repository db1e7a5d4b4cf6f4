/*
 * verb.c -- what all verbs have in common: options, help pages, errors, exit codes, the result
 *
 * Options: defaults, then what a resumed checkpoint was made with, then --config, then the command
 * line.  The line is read twice, so that what it says wins over the files it names.
 */
#include "cli/verb.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    bool help, json;
    const char *config;
} common;

/* clang-format off */
static const td_field common_fields[] = {
    TD_BOOL_AS(common, help, "help", "h", false, "this page"),
    TD_TEXT   (common, config, NULL, "FILE", "options from 'name = value' lines, or JSON"),
    TD_END,
};

static const td_field json_fields[] = {
    TD_BOOL   (common, json, false, "the result as one JSON object"),
    TD_END,
};
/* clang-format on */

td_status td_verb_find(const char *name, const td_verb **out)
{
    const char *nearest = NULL;
    int best = INT_MAX;
    for (int i = 0; td_verb_at(i); i++) {
        *out = td_verb_at(i);
        if (strcmp((*out)->name, name) == 0)
            return TD_OK;
        int distance = td_text_distance(name, (*out)->name);
        if (distance < best) {
            best = distance;
            nearest = (*out)->name;
        }
    }
    *out = NULL;
    bool is_near = best <= (int)strlen(name) / 3 + 1;
    return td_error(TD_EUSAGE, "there is no verb '%s'%s%s%s", name,
                    is_near ? ", did you mean '" : "", is_near ? nearest : "", is_near ? "'?" : "");
}

/* --- tables ----------------------------------------------------------------------------------- */

/* the verb's tables and the common ones over `opts` and `c`; room for TD_GROUPS_MAX + 3 */
static void join_tables(const td_verb *verb, void *opts, common *c, td_field_group *groups)
{
    int n = 0;
    if (verb->groups)
        verb->groups(opts, groups);
    while (groups[n].fields)
        n++;
    if (verb->has_json)
        groups[n++] = (td_field_group){ "Result", json_fields, c };
    groups[n++] = (td_field_group){ "Common", common_fields, c };
    groups[n] = (td_field_group){ NULL, NULL, NULL };
}

static td_status check_args(const td_verb *verb, int n_args, const char **args)
{
    if (n_args < verb->n_args_min)
        return td_error(TD_EUSAGE, "%s wants %s", verb->name, verb->arguments);
    if (verb->n_args_max >= 0 && n_args > verb->n_args_max)
        return td_error(TD_EUSAGE, "%s does not know what to do with '%s'", verb->name,
                        args[verb->n_args_max]);
    return TD_OK;
}

/* options that a file named on the command line brings with it; NULL hook or NULL text: none */
static td_status take_stored(const td_verb *verb, void *opts, const td_field_group *groups,
                             td_arena *arena)
{
    char *json = NULL;
    if (!verb->stored)
        return TD_OK;
    TD_TRY(verb->stored(opts, &json));
    td_status st = json ? td_options_config_json(groups, json, "stored options", arena) : TD_OK;
    td_free(json);
    return st;
}

static td_status run(const td_verb *verb, int argc, char **argv, td_arena *arena, td_text *out)
{
    td_field_group groups[TD_GROUPS_MAX + 3] = { 0 };
    common c = { 0 };
    void *opts = td_arena_alloc(arena, 1, verb->opts_bytes + 1);
    const char **args = td_arena_alloc(arena, (size_t)argc + 1, sizeof *args);
    int n_args;
    if (!opts || !args)
        return TD_ENOMEM;

    join_tables(verb, opts, &c, groups);
    for (int i = 0; groups[i].fields; i++)
        td_fields_default(groups[i].fields, groups[i].base);
    TD_TRY(td_options_parse(groups, argc, argv, args, &n_args, arena));
    if (c.help)
        return td_verb_page(verb, false, out);
    if (verb->check)
        TD_TRY(verb->check(opts));
    TD_TRY(take_stored(verb, opts, groups, arena));
    if (c.config)
        TD_TRY(td_options_config(groups, c.config, arena));
    TD_TRY(td_options_parse(groups, argc, argv, args, &n_args, arena));
    TD_TRY(check_args(verb, n_args, args));
    td_call call = { .opts = opts, .args = args, .n_args = n_args, .json = c.json, .out = out };
    td_status st = verb->run(&call);
    return st == TD_OK ? td_text_status(out) : st;
}

int td_verb_main(const td_verb *verb, int argc, char **argv)
{
    td_arena arena;
    td_text out = { 0 };
    td_arena_init(&arena);
    td_status st = run(verb, argc, argv, &arena, &out);
    int code = st == TD_OK ? 0 : td_verb_failed(verb, st);
    code = td_verb_print(&out, code);
    td_text_release(&out);
    td_arena_release(&arena);
    return code;
}

/* --- stderr and stdout ------------------------------------------------------------------------ */

int td_verb_failed(const td_verb *verb, td_status st)
{
    const char *message = td_error_message();
    fprintf(stderr, "tandem: %s: %s\n", st == TD_ESTOPPED ? "stopped" : "error",
            *message ? message : td_status_text(st));
    if (st == TD_EUSAGE && verb)
        fprintf(stderr, "usage: tandem %s [OPTIONS]%s%s; 'tandem help %s' lists the options\n",
                verb->name, *verb->arguments ? " " : "", verb->arguments, verb->name);
    else if (st == TD_EUSAGE)
        fprintf(stderr,
                "usage: tandem VERB [OPTIONS] [ARGUMENTS]; 'tandem help' lists the verbs\n");
    switch (st) {
    case TD_EUSAGE:
        return 2;
    case TD_ESTOPPED:
        return 3;
    case TD_EREQUIRED:
        return 4;
    default:
        return 1;
    }
}

int td_verb_print(const td_text *out, int code)
{
    size_t n = out->len;
    if ((n == 0 || fwrite(out->data, 1, n, stdout) == n) && fflush(stdout) == 0)
        return code;
    fprintf(stderr, "tandem: error: the result cannot be written to standard output\n");
    return 1;
}

/* --- help ------------------------------------------------------------------------------------- */

void td_verb_overview(td_text *out)
{
    td_text_add(out, "tandem %s: trains, evaluates and runs image networks\n\n", td_version());
    td_text_add(out, "usage: tandem VERB [OPTIONS] [ARGUMENTS]\n\n");
    for (int i = 0; td_verb_at(i); i++)
        td_text_add(out, "  %-10s %s\n", td_verb_at(i)->name, td_verb_at(i)->summary);
    td_text_add(out,
                "\n'tandem help VERB' or 'tandem VERB --help' shows a verb's options.  Exit codes: "
                "0 done, 1 failed,\n2 usage, 3 stopped by a signal after saving, 4 below "
                "--require.\n");
}

static void add_text_page(const td_verb *v, const td_field_group *groups, td_text *out)
{
    td_text_add(out, "tandem %s: %s\n\nusage: tandem %s [OPTIONS]%s%s\n\n%s\n\n", v->name,
                v->summary, v->name, *v->arguments ? " " : "", v->arguments, v->about);
    td_options_help(groups, out);
    if (v->examples)
        td_text_add(out, "\nExamples:\n");
    for (const char *s = v->examples; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
        td_text_add(out, "  %.*s\n", (int)strcspn(s, "\n"), s);
}

static void add_markdown_page(const td_verb *v, const td_field_group *groups, td_text *out)
{
    td_text_add(out, "# tandem %s\n\n%s.\n\n    tandem %s [OPTIONS]%s%s\n\n%s\n\n## Options\n\n",
                v->name, v->summary, v->name, *v->arguments ? " " : "", v->arguments, v->about);
    td_options_markdown(groups, out);
    if (v->examples)
        td_text_add(out, "\n## Examples\n\n");
    for (const char *s = v->examples; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
        td_text_add(out, "    %.*s\n", (int)strcspn(s, "\n"), s);
    td_text_add(out, "\n*Made by `tandem help --markdown %s`.*\n", v->name);
}

td_status td_verb_page(const td_verb *verb, bool markdown, td_text *out)
{
    td_field_group groups[TD_GROUPS_MAX + 3] = { 0 };
    common c = { 0 };
    td_arena arena;
    td_arena_init(&arena);
    void *opts = td_arena_alloc(&arena, 1, verb->opts_bytes + 1);
    if (!opts)
        return TD_ENOMEM;
    join_tables(verb, opts, &c, groups);
    if (markdown)
        add_markdown_page(verb, groups, out);
    else
        add_text_page(verb, groups, out);
    td_arena_release(&arena);
    return td_text_status(out);
}
