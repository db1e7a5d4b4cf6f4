/*
 * cmd_classify.c -- tandem classify FILE...
 */
#include "cli/files.h"
#include "tandem/amp.h"
#include "tandem/inference.h"
#include "tandem/model.h"

/* Context of the callback that prints each image's result. */
typedef struct {
    const td_call *call;
    bool is_lines;
    td_cli_outcome outcome;
} listing;

static void groups(void *opts, td_field_group *out)
{
    td_classify_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[2] = (td_field_group){ "Classification", td_classify_fields(), o };
}

static void add_json(const td_prediction *p, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "path", p->path);
    if (p->st != TD_OK)
        td_json_add_text(out, "error", p->message);
    td_text_add(out, ", \"classes\": [");
    for (int i = 0; i < p->n; i++) {
        td_text_add(out, i ? ", {" : "{");
        td_json_add(out, "label", p->label[i]);
        td_json_add_text(out, "name", p->name[i]);
        td_json_add(out, "probability", p->probability[i]);
        td_text_add(out, "}");
    }
    td_text_add(out, "]}");
}

static void add_text(const td_prediction *p, td_text *out)
{
    td_text_add(out, "%s\n", p->path);
    for (int i = 0; i < p->n; i++)
        td_text_add(out, "  %s: %.1f%%\n", p->name[i], 100 * p->probability[i]);
    if (p->st != TD_OK)
        td_text_add(out, "  unreadable: %s\n", p->message);
}

static td_status each(void *ctx, const td_prediction *p)
{
    listing *l = ctx;
    td_text *out = l->call->out;
    if (l->is_lines || l->call->json) {
        if (l->outcome.n && !l->is_lines)
            td_text_add(out, ", ");
        add_json(p, out);
        if (l->is_lines)
            td_text_add(out, "\n");
    } else {
        add_text(p, out);
    }
    td_cli_outcome_add(&l->outcome, p->path, p->st, p->message);
    return td_cli_outcome_show(&l->outcome, out);
}

/* --- the verb --------------------------------------------------------------------------------- */

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_classify_opts *)opts)->amp);
}

static td_status classify(const td_call *call, const td_cli_files *files)
{
    const td_classify_opts *o = call->opts;
    listing l = { .call = call, .is_lines = o->json_lines };
    bool is_object = call->json && !o->json_lines;
    if (is_object)
        td_text_add(call->out, "{\"predictions\": [");
    td_status st = td_classify(o, (int)files->n, files->items, each, &l);
    if (is_object)
        td_text_add(call->out, "]}\n");
    return td_cli_outcome_end(&l.outcome, st, is_object || o->json_lines, call->out);
}

static td_status run(const td_call *call)
{
    const td_classify_opts *o = call->opts;
    td_cli_files files = { 0 };
    td_status st = td_cli_files_gather(call, "classify", o->image, &files);
    if (st == TD_OK)
        st = classify(call, &files);
    td_cli_files_release(&files);
    return st;
}

const td_verb td_verb_classify = {
    .name = "classify",
    .arguments = "FILE|FOLDER|-...",
    .summary = "classify images",
    .about = "Prints the path of each image and its most probable classes. FOLDER means all\n"
             "images below it, sorted by folder and name; - reads a list of paths from standard\n"
             "input, one per line. The network and the class names are taken from the weight file\n"
             "if it has them. An image that cannot be read is reported with the reason and does\n"
             "not end the run; the exit code is 1 only if no image could be read.",
    .examples = "tandem classify --weights model_best.safetensors rose.jpg\n"
                "tandem classify --weights resnet50.safetensors --arch resnet50 --json *.jpg\n"
                "tandem classify --weights model_best.safetensors --json-lines holiday/\n"
                "find . -name '*.jpg' | tandem classify --weights model_best.safetensors -",
    .n_args_max = -1,
    .has_json = true,
    .opts_bytes = sizeof(td_classify_opts),
    .groups = groups,
    .check = check,
    .run = run,
};
