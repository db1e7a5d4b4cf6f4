/*
 * cmd_init.c -- tandem init: fresh weights
 */
#include "cli/verb.h"
#include "tandem/convert.h"
#include "tandem/model.h"

typedef struct {
    td_model_opts model;
    int64_t seed;
    const char *output;
    bool overwrite;
} options;

/* clang-format off */
static const td_field fields[] = {
    TD_LONG   (options, seed, 0, 0, 9e15,
               "random seed; the same seed gives the same file on every machine"),
    TD_TEXT_AS(options, output, "output", "o", NULL, "FILE",
               "output file (.safetensors); required"),
    TD_BOOL   (options, overwrite, false, "replace the output file if it exists"),
    TD_END,
};
/* clang-format on */

static void groups(void *opts, td_field_group *out)
{
    options *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Weights", fields, o };
}

static td_status run(const td_call *call)
{
    const options *o = call->opts;
    if (!o->output)
        return td_error(TD_EUSAGE, "--output is required");
    TD_TRY(td_init_weights(&o->model, (uint64_t)o->seed, o->output, o->overwrite));
    if (call->json) {
        td_text_add(call->out, "{");
        td_json_add_text(call->out, "output", o->output);
        td_text_add(call->out, "}\n");
    } else {
        td_text_add(call->out, "%s\n", o->output);
    }
    return TD_OK;
}

const td_verb td_verb_init = {
    .name = "init",
    .arguments = "",
    .summary = "initialize the weights of a network from a seed",
    .about = "Writes float32 tensors with the names and shapes of torchvision and timm, which\n"
             "these libraries load with strict=True.",
    .examples = "tandem init --arch resnet50 --num-classes 10 --seed 1 -o resnet50.safetensors",
    .has_json = true,
    .opts_bytes = sizeof(options),
    .groups = groups,
    .run = run,
};
