/*
 * cmd_convert.c -- tandem convert IN OUT
 */
#include "cli/verb.h"
#include "tandem/train.h"

static void groups(void *opts, td_field_group *out)
{
    out[0] = (td_field_group){ "Conversion", td_convert_fields(), opts };
}

static void print_json(const td_call *call, const td_convert_result *r)
{
    td_text_add(call->out, "{");
    td_json_add_text(call->out, "input", call->args[0]);
    td_json_add_text(call->out, "output", call->args[1]);
    td_json_add(call->out, "tensors", (double)r->n_tensors);
    if (r->epoch >= 0)
        td_json_add(call->out, "epoch", (double)r->epoch);
    if (r->best_top1 >= 0)
        td_json_add(call->out, "best_top1", r->best_top1);
    td_text_add(call->out, "}\n");
}

static void print_text(const td_call *call, const td_convert_result *r)
{
    if (r->epoch >= 0)
        td_text_add(call->out, "epoch %lld\n", (long long)r->epoch);
    if (r->best_top1 >= 0)
        td_text_add(call->out, "best accuracy %.3f %%\n", r->best_top1);
    td_text_add(call->out, "%s\n", call->args[1]);
}

static td_status run(const td_call *call)
{
    td_convert_result r;
    TD_TRY(td_convert(call->args[0], call->args[1], call->opts, &r));
    if (call->json)
        print_json(call, &r);
    else
        print_text(call, &r);
    return TD_OK;
}

const td_verb td_verb_convert = {
    .name = "convert",
    .arguments = "IN OUT",
    .summary = "a checkpoint or PyTorch's weights to a weight file",
    .about = "IN is a .safetensors file or a file of PyTorch's (.pth, .pth.tar, .pt), whatever its "
             "name\n"
             "says; nothing in it is executed.  Weights, running statistics and class names are "
             "kept, bit\n"
             "for bit; momentum and the state of training are left out.  Tensors of PyTorch's "
             "files get\n"
             "the names of torchvision and timm.  OUT is replaced only once it is complete.",
    .examples = "tandem convert checkpoint.safetensors weights.safetensors\n"
                "tandem convert model_best.pth.tar weights.safetensors\n"
                "tandem convert --ema model_best.pth.tar averaged.safetensors",
    .n_args_min = 2,
    .n_args_max = 2,
    .has_json = true,
    .opts_bytes = sizeof(td_convert_opts),
    .groups = groups,
    .run = run,
};
