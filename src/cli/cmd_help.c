/*
 * cmd_help.c -- tandem help [VERB], tandem version
 */
#include "cli/verb.h"

typedef struct {
    bool markdown;
} options;

/* clang-format off */
static const td_field fields[] = {
    TD_BOOL(options, markdown, false, "the page as Markdown"),
    TD_END,
};
/* clang-format on */

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Form", fields, opts };
}

static td_status help(const td_call *call)
{
    const options *o = call->opts;
    const td_verb *verb;
    if (call->n_args == 0) {
        td_verb_overview(call->out);
        return TD_OK;
    }
    TD_TRY(td_verb_find(call->args[0], &verb));
    return td_verb_page(verb, o->markdown, call->out);
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
    .arguments = "[VERB]",
    .summary = "the list of verbs, or the page of one",
    .about = "Pages are made from the same tables that read the command line.",
    .examples = "tandem help\ntandem help train\ntandem help --markdown train",
    .n_args_max = 1,
    .opts_bytes = sizeof(options),
    .groups = groups,
    .run = help,
};

const td_verb td_verb_version = {
    .name = "version",
    .arguments = "",
    .summary = "the version of the command and its library",
    .about = "One line: the name and the version.  'tandem doctor' has the versions of libraries.",
    .has_json = true,
    .run = version,
};
