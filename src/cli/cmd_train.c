/*
 * cmd_train.c -- tandem train DATA
 */
#include <math.h>
#include <string.h>

#include "cli/evaluation.h"
#include "cli/verb.h"
#include "tandem/train.h"

#define TRAINING_REPORT "experiment_raport.json" /* the default of --raport-file */

static void groups(void *opts, td_field_group *out)
{
    td_train_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Data", td_input_fields(), &o->input };
    out[2] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[3] = (td_field_group){ "Training", td_train_fields(), o };
}

static td_status check(const void *opts)
{
    return td_train_check_line(opts);
}

/* --resume goes on with the checkpoint's options */
static td_status stored(const void *opts, char **json)
{
    const td_train_opts *o = opts;
    return o->resume ? td_train_stored_options(o->resume, json) : TD_OK;
}

static void add_json(const td_train_opts *o, const td_train_result *r, td_text *out)
{
    td_text_add(out, "{");
    td_json_add_text(out, "arch", r->arch);
    td_json_add(out, "epoch", (double)r->epoch);
    td_json_add(out, "steps", (double)r->steps);
    td_json_add(out, "train_loss", r->train_loss);
    td_json_add(out, "val_loss", r->top1 < 0 ? NAN : r->val_loss);
    td_cli_add_accuracy(out, r->top1 < 0 ? NAN : r->top1, r->top1 < 0 ? NAN : r->topk, o->topk);
    td_json_add(out, "best_top1", r->top1 < 0 ? NAN : r->best_top1);
    td_json_add(out, "images_per_s", r->images_per_s);
    td_json_add(out, "skipped_steps", (double)r->skipped);
    td_json_add(out, "loss_scale", r->loss_scale);
    td_text_add(out, ", \"was_stopped\": %s", r->was_stopped ? "true" : "false");
    td_json_add_text(out, "checkpoint", *r->checkpoint ? r->checkpoint : NULL);
    if (r->profile)
        td_text_add(out, ", \"profile\": %s", r->profile);
    td_text_add(out, "}\n");
}

static void add_text(const td_train_opts *o, const td_train_result *r, td_text *out)
{
    td_text_add(out, "epoch         %lld\n", (long long)r->epoch);
    td_text_add(out, "steps         %lld\n", (long long)r->steps);
    if (r->skipped || r->loss_scale != 1)
        td_text_add(out, "skipped       %lld, loss scale %g\n", (long long)r->skipped,
                    r->loss_scale);
    td_text_add(out, "train loss    %.5f\n", r->train_loss);
    if (r->top1 >= 0) {
        td_text_add(out, "val loss      %.5f\n", r->val_loss);
        td_text_add(out, "top1          %.2f %% (best %.2f %%)\n", r->top1, r->best_top1);
        td_text_add(out, "top%-10d %.2f %%\n", o->topk, r->topk);
    }
    td_text_add(out, "images/s      %.2f\n", r->images_per_s);
    if (*r->checkpoint)
        td_text_add(out, "checkpoint    %s\n", r->checkpoint);
    if (r->profile)
        td_text_add(out, "\n%s", r->profile);
}

/* --evaluate: the options that validation has, under evaluate's own names */
static td_status evaluate_only(const td_train_opts *o, const td_call *call)
{
    td_evaluate_opts e;
    if (!o->resume && !o->pretrained_weights)
        return td_error(TD_EUSAGE, "--evaluate needs --resume or --pretrained-weights FILE");
    td_evaluate_defaults(&e);
    e.model = o->model;
    e.input = o->input;
    e.amp = td_train_amp(o);
    e.batch_size = o->batch_size;
    e.weights = o->resume ? o->resume : o->pretrained_weights;
    e.topk = o->topk;
    e.label_smoothing = o->label_smoothing;
    e.seed = o->seed;
    e.device = o->device;
    e.threads = o->threads;
    e.skip_passes = o->skip_passes;
    e.dump_after = o->dump_after;
    e.require = o->require;
    e.log = o->log;
    e.print_freq = o->print_freq;
    e.log_format = o->log_format;
    e.raport_compat = o->raport_compat;
    e.raport_names = o->raport_names;
    e.raport_warmup = o->raport_warmup;
    e.prof = o->prof;
    e.workspace = o->workspace;
    /* the default name is that of the training's report, which stays unless its ways are wanted */
    if (o->raport_compat || strcmp(o->raport_file, TRAINING_REPORT) != 0)
        e.raport_file = o->raport_file;
    return td_cli_evaluate(&e, call);
}

static td_status run(const td_call *call)
{
    td_train_opts *o = call->opts;
    td_train_result r;
    TD_TRY(td_cli_data(&o->input, call));
    TD_TRY(td_train_check(o));
    if (o->evaluate)
        return evaluate_only(o, call);

    o->json = call->json;
    td_status st = td_train(o, &r);
    if (st != TD_OK && st != TD_EREQUIRED)
        return st;
    if (call->json)
        add_json(o, &r, call->out);
    else
        add_text(o, &r, call->out);
    td_text_free(r.profile);
    if (!r.was_stopped)
        return st;
    return *r.checkpoint ? td_error(TD_ESTOPPED, "a signal came; saved '%s' after step %lld",
                                    r.checkpoint, (long long)r.steps)
                         : td_error(TD_ESTOPPED, "a signal came after step %lld; nothing was saved",
                                    (long long)r.steps);
}

const td_verb td_verb_train = {
    .name = "train",
    .arguments = "DATA",
    .summary = "train a network on a folder of pictures",
    .about =
        "DATA holds train/ and val/, and in each a folder of pictures for every class; or it is a\n"
        ".safetensors file for --data-backend tensors; synthetic data need none.\n"
        "Ctrl-C once finishes the step, saves and exits 3; --resume goes on from there to the\n"
        "same weights, bit by bit, as if the run had never stopped.",
    .examples = "tandem train flowers --arch resnet18 --epochs 10 --lr-schedule cosine --warmup 1\n"
                "tandem train flowers --resume checkpoint.safetensors\n"
                "tandem train flowers --pretrained-weights resnet50.safetensors --lr 0.01\n"
                "tandem train --data-backend synthetic --arch resnet50 -b 32 --prof 10",
    .n_args_max = 1,
    .has_json = true,
    .opts_bytes = sizeof(td_train_opts),
    .groups = groups,
    .stored = stored,
    .check = check,
    .run = run,
};
