/*
 * cmd_report.c -- tandem report RUN...
 */
#include "cli/verb.h"
#include "tandem/graph.h"
#include "tandem/report.h"

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Report", td_run_report_fields(), opts };
}

static td_status run(const td_call *call)
{
    td_run_report_opts *o = call->opts;
    char *text;
    o->json = call->json;
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
        "what differs between the runs; of detectors the AP of each class; of classifiers what\n"
        "they confuse in the last validation, and the surest mistakes, with --images drawn.\n"
        "A run that was killed or still goes on can be shown.\n\n"
        "Runs that differ in the seed alone (outputs and the machine do not count) are a group: "
        "of\n"
        "each result, best and final, n, mean, standard deviation, least, most and median.  "
        "Groups\n"
        "that differ in nothing but the precision are set side by side: the difference of the "
        "means\n"
        "against the deviation of the seeds.  Runs that have not ended are named and left out.  "
        "All\n"
        "forms but csv have these tables.",
    .examples = "tandem report run -o report.html\n"
                "tandem report run -o report.html --images flowers\n"
                "tandem report runs/a runs/b runs/c -o comparison.html --title 'label smoothing'\n"
                "tandem report runs/* --format markdown\n"
                "tandem report fp32-1 fp32-2 fp32-3 bf16-1 bf16-2 bf16-3 --json\n"
                "tandem report evaluation.json --format csv -o results.csv",
    .n_args_min = 1,
    .n_args_max = -1,
    .has_json = true,
    .opts_bytes = sizeof(td_run_report_opts),
    .groups = groups,
    .run = run,
};
