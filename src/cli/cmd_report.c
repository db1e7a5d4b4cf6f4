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
    if (text) {
        td_text_add(call->out, "%s", text);
    } else if (call->json) {
        td_text_add(call->out, "{");
        td_json_add_text(call->out, "output", o->output);
        td_text_add(call->out, "}\n");
    } else {
        td_text_add(call->out, "%s\n", o->output);
    }
    td_text_free(text);
    return TD_OK;
}

const td_verb td_verb_report = {
    .name = "report",
    .arguments = "RUN...",
    .summary = "summarize training runs as a page with curves or as tables",
    .about =
        "RUN is the workspace of a training, or a report written by --raport-file or by one\n"
        "of the reference programs. The page is a single file without external resources. It\n"
        "has curves of loss, accuracy, learning rate, loss scale and speed, the results, and\n"
        "the options with the differences between runs; for detectors the AP of each class;\n"
        "for classifiers the confusion matrix of the last validation and the most confident\n"
        "mistakes, with images if --images is given. Runs that were killed or are still\n"
        "running can be shown.\n\n"
        "Runs that differ only in the seed (outputs and machine options are ignored) form a\n"
        "group. For each result, best and final, the tables give n, mean, standard deviation,\n"
        "minimum, maximum and median. Groups that differ only in precision are compared: the\n"
        "difference of the means relative to the standard deviation. Unfinished runs are\n"
        "listed and left out. All formats but csv contain these tables.\n\n"
        "--json is --format json: with -o FILE.json the tables are in the file, and standard\n"
        "output has its name. A FILE that ends in .html, .md or .csv is refused.",
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
