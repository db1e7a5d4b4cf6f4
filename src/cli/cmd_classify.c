/*
 * cmd_classify.c -- tandem classify FILE...
 */
#include "cli/verb.h"
#include "tandem/train.h"

/* What the pictures' results go through. */
typedef struct {
    const td_call *call;
    int n_files, n_bad;
    td_text first_error; /* of the first bad picture */
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

static void each(void *ctx, const td_prediction *p)
{
    listing *l = ctx;
    td_text *out = l->call->out;
    if (p->st != TD_OK && l->n_bad++ == 0)
        td_text_add(&l->first_error, "'%s': %s", p->path,
                    p->message ? p->message : td_status_text(p->st));
    if (l->call->json) {
        td_text_add(out, l->n_files ? ", " : "");
        add_json(p, out);
    } else {
        add_text(p, out);
    }
    l->n_files++;
}

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_classify_opts *)opts)->amp);
}

static td_status run(const td_call *call)
{
    const td_classify_opts *o = call->opts;
    listing l = { .call = call };
    if (call->json)
        td_text_add(call->out, "{\"predictions\": [");
    td_status st = td_classify(o, call->n_args, call->args, each, &l);
    if (call->json)
        td_text_add(call->out, "]}\n");
    if (l.n_files == 0)
        td_text_release(call->out); /* it failed before the first picture */
    if (st == TD_OK && l.n_bad == call->n_args)
        st = td_error(TD_EFORMAT, "none of %d files can be read: %s", call->n_args,
                      td_text_get(&l.first_error));
    td_text_release(&l.first_error);
    return st;
}

const td_verb td_verb_classify = {
    .name = "classify",
    .arguments = "FILE...",
    .summary = "the most probable classes of pictures",
    .about =
        "For each picture its path and the best classes with their probabilities.  Network and "
        "class\n"
        "names come from the weight file where it has them.  A picture that cannot be read is\n"
        "listed with the reason and does not end the run, unless all are so.",
    .examples = "tandem classify --weights model_best.safetensors rose.jpg\n"
                "tandem classify --weights resnet50.safetensors --arch resnet50 --json *.jpg",
    .n_args_min = 1,
    .n_args_max = -1,
    .has_json = true,
    .opts_bytes = sizeof(td_classify_opts),
    .groups = groups,
    .check = check,
    .run = run,
};
