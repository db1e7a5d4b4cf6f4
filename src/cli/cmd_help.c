/*
 * cmd_help.c -- tandem help [VERB], tandem version
 */
#include <string.h>

#include "cli/verb.h"
#include "tandem/graph.h"
#include "tandem/recipes.h"

typedef struct {
    bool markdown, man;
    int completion;
} options;

static const char *const shells[] = { "none", "bash", "zsh", "fish", NULL };

/* clang-format off */
static const td_field fields[] = {
    TD_BOOL(options, markdown, false, "print the page as Markdown"),
    TD_BOOL(options, man, false, "print a manual page, for man -l"),
    TD_ENUM(options, completion, 0, shells, "print a completion script for this shell"),
    TD_END,
};
/* clang-format on */

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Form", fields, opts };
}

static td_status presets(td_text *out)
{
    char *text;
    TD_TRY(td_train_presets(NULL, &text));
    td_text_add(out, "%s", text);
    td_text_free(text);
    return TD_OK;
}

/* List all options of all verbs. */
static td_status options_of_all(td_text *out)
{
    td_status st = TD_OK;
    td_arena arena;
    td_arena_init(&arena);
    td_text_add(out, "verb\toption\tkind\tdefault\tspellings\n");
    for (int i = 0; td_verb_at(i) && st == TD_OK; i++) {
        const td_verb *verb = td_verb_at(i);
        td_field_group groups[TD_TABLES_MAX] = { 0 };
        td_common c = { 0 };
        void *opts = td_arena_alloc(&arena, 1, verb->opts_bytes + 1);
        st = opts ? TD_OK : TD_ENOMEM;
        if (st != TD_OK)
            break;
        td_verb_tables(verb, opts, &c, groups);
        for (int k = 0; groups[k].fields; k++)
            td_fields_default(groups[k].fields, groups[k].base);
        td_options_list(groups, verb->name, out);
    }
    td_arena_release(&arena);
    return st;
}

static td_status help(const td_call *call)
{
    const options *o = call->opts;
    const td_verb *verb;
    const td_page form = o->man ? TD_PAGE_MAN : o->markdown ? TD_PAGE_MARKDOWN : TD_PAGE_TEXT;
    if (o->man && o->markdown)
        return td_error(TD_EUSAGE, "--man and --markdown exclude each other");
    if (o->completion)
        return td_verb_completion(o->completion - 1, call->out);
    if (call->n_args == 0) {
        td_verb_overview(form, call->out);
        return TD_OK;
    }
    if (strcmp(call->args[0], "presets") == 0)
        return presets(call->out);
    if (strcmp(call->args[0], "options") == 0)
        return options_of_all(call->out);
    TD_TRY(td_verb_find(call->args[0], &verb));
    return td_verb_page(verb, form, call->out);
}

static td_status version(const td_call *call)
{
    if (call->json) {
        td_text_add(call->out, "{");
        td_json_add_text(call->out, "version", td_version());
        td_text_add(call->out, "}\n");
    } else {
        td_text_add(call->out, "tandem %s\n", td_version());
    }
    return TD_OK;
}

const td_verb td_verb_help = {
    .name = "help",
    .arguments = "[VERB | presets | options]",
    .summary = "list all verbs, or print the page of one",
    .about = "Help pages, manual pages and completion scripts are generated from the tables that\n"
             "parse the command line. 'presets' lists the recipes for 'tandem train --preset'.\n"
             "'options' lists every option of every verb: a header line, then one line each with\n"
             "the tab-separated fields verb, option, kind, default and all spellings.",
    .examples = "tandem help\ntandem help train\ntandem help presets\n"
                "tandem help --man train | man -l -\n"
                "source <(tandem help --completion bash)",
    .n_args_max = 1,
    .opts_bytes = sizeof(options),
    .groups = groups,
    .run = help,
};

const td_verb td_verb_version = {
    .name = "version",
    .arguments = "",
    .summary = "print the version",
    .about = "Prints the name and the version. 'tandem doctor' prints the versions of libraries.",
    .has_json = true,
    .run = version,
};
