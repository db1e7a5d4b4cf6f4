/*
 * cmd_convert.c -- tandem convert IN OUT
 */
#include "cli/verb.h"
#include "tandem/train.h"

static td_status run(const td_call *call)
{
    TD_TRY(td_convert(call->args[0], call->args[1]));
    if (call->json) {
        td_text_add(call->out, "{");
        td_json_add_text(call->out, "input", call->args[0]);
        td_json_add_text(call->out, "output", call->args[1]);
        td_text_add(call->out, "}\n");
    } else {
        td_text_add(call->out, "%s\n", call->args[1]);
    }
    return TD_OK;
}

const td_verb td_verb_convert = {
    .name = "convert",
    .arguments = "IN OUT",
    .summary = "a checkpoint to a weight file",
    .about =
        "Weights, running statistics and class names are kept; momentum and the state of training\n"
        "are left out.  OUT is replaced only once it is complete.",
    .examples = "tandem convert checkpoint.safetensors weights.safetensors",
    .n_args_min = 2,
    .n_args_max = 2,
    .has_json = true,
    .run = run,
};
