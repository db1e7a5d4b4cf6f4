/*
 * cmd_report.c -- tandem report RUN...
 */
#include "cli/verb.h"
#include "tandem/train.h"

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Report", td_run_report_fields(), opts };
}

static td_status run(const td_call *call)
{
    const td_run_report_opts *o = call->opts;
    char *text;
    TD_TRY(td_run_report(o, call->n_args, call->args, &text));
    td_text_add(call->out, "%s", text ? text : o->output);
    td_text_add(call->out, text ? "" : "\n");
    td_text_free(text);
    return TD_OK;
}

const td_verb td_verb_report = {
    .name = "report",
    .arguments = "RUN...",
    .summary = "what runs came to: a page with curves, or a table",
    .about =
        "RUN is the workspace of a training, or a file that --raport-file wrote; those of the\n"
        "reference programs can be read too.  The page is one file that loads nothing: curves of\n"
        "loss, accuracy, learning rate, loss scale and speed, the results, and the options with\n"
        "what differs between the runs.  A run that was killed or still goes on can be shown.",
    .examples = "tandem report run -o report.html\n"
                "tandem report runs/a runs/b runs/c -o comparison.html --title 'label smoothing'\n"
                "tandem report runs/* --format markdown\n"
                "tandem report evaluation.json --format csv -o results.csv",
    .n_args_min = 1,
    .n_args_max = -1,
    .opts_bytes = sizeof(td_run_report_opts),
    .groups = groups,
    .run = run,
};
