/*
 * cmd_evaluate.c -- tandem evaluate DATA
 */
#include "cli/evaluation.h"

#define SYNTHETIC 1 /* td_input_opts.data_backend */

static void groups(void *opts, td_field_group *out)
{
    td_evaluate_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    out[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[3] = (td_field_group){ "Evaluation", td_evaluate_fields(), o };
}

td_status td_cli_data(td_input_opts *input, const td_call *call)
{
    if (call->n_args > 0)
        input->data = call->args[0];
    if (!input->data && input->data_backend != SYNTHETIC)
        return td_error(TD_EUSAGE, "no DATA is named");
    return TD_OK;
}

void td_cli_add_accuracy(td_text *out, double top1, double topk, int k)
{
    td_text name = { 0 };
    td_text_add(&name, "top%d", k);
    td_json_add(out, "top1", top1);
    if (k > 1 && td_text_status(&name) == TD_OK)
        td_json_add(out, td_text_get(&name), topk);
    td_text_release(&name);
}

static void add_json(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "arch", r->arch);
    td_json_add(out, "n", (double)r->n);
    td_json_add(out, "n_top1", (double)r->n_top1);
    td_json_add(out, "n_topk", (double)r->n_topk);
    td_json_add(out, "n_bad", (double)r->n_bad);
    td_json_add(out, "k", r->topk_k);
    td_cli_add_accuracy(out, r->top1, r->topk, r->topk_k);
    td_json_add(out, "loss", r->loss);
    td_json_add(out, "images_per_s", r->images_per_s);
    td_json_add(out, "latency_ms", r->latency_ms);
    td_text_add(out, "}\n");
}

static void add_text(const td_evaluate_result *r, td_text *out)
{
    td_text_add(out, "pictures      %lld\n", (long long)r->n);
    if (r->n_bad)
        td_text_add(out, "unreadable    %lld\n", (long long)r->n_bad);
    td_text_add(out, "top1          %.2f %% (%lld)\n", r->top1, (long long)r->n_top1);
    td_text_add(out, "top%-10d %.2f %% (%lld)\n", r->topk_k, r->topk, (long long)r->n_topk);
    td_text_add(out, "loss          %.5f\n", r->loss);
    td_text_add(out, "images/s      %.2f\n", r->images_per_s);
    td_text_add(out, "latency       %.2f ms a batch\n", r->latency_ms);
}

td_status td_cli_evaluate(const td_evaluate_opts *opts, const td_call *call)
{
    td_evaluate_result r;
    td_status st = td_evaluate(opts, &r);
    if (st != TD_OK && st != TD_EREQUIRED)
        return st;
    if (call->json)
        add_json(&r, call->out);
    else
        add_text(&r, call->out);
    return st;
}

static td_status settle(const td_call *call)
{
    td_evaluate_opts *o = call->opts;
    if (call->n_args > 0)
        o->input.data = call->args[0];
    return TD_OK;
}

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_evaluate_opts *)opts)->amp);
}

static td_status run(const td_call *call)
{
    td_evaluate_opts *o = call->opts;
    TD_TRY(td_cli_data(&o->input, call));
    return td_cli_evaluate(o, call);
}

const td_verb td_verb_evaluate = {
    .name = "evaluate",
    .arguments = "DATA",
    .summary = "top-1, top-k and loss of a network on a data set",
    .about =
        "DATA holds val/, and in it a folder of pictures for every class; or it is such a folder "
        "of\n"
        "classes itself; or a .safetensors file for --data-backend tensors.  Counts are exact:\n"
        "every picture counts once, unreadable ones are left out and counted apart.",
    .examples = "tandem evaluate flowers --weights model_best.safetensors\n"
                "tandem evaluate flowers --weights model_best.safetensors --require 'top1>=95'\n"
                "tandem evaluate batch.safetensors --data-backend tensors --weights w.safetensors "
                "--logits out.safetensors",
    .n_args_max = 1,
    .has_json = true,
    .opts_bytes = sizeof(td_evaluate_opts),
    .groups = groups,
    .check = check,
    .settle = settle,
    .run = run,
};
