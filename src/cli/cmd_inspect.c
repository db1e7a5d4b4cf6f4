/*
 * cmd_inspect.c -- tandem inspect THING [PATH]
 */
#include "cli/verb.h"
#include "tandem/amp.h"
#include "tandem/graph.h"
#include "tandem/inspect.h"
#include "tandem/model.h"

static void groups(void *opts, td_field_group *out)
{
    td_inspect_opts *o = opts;
    out[0] = (td_field_group){ "Network", td_model_fields(), &o->model };
    out[1] = (td_field_group){ "Precision", td_amp_fields(), &o->amp };
    out[2] = (td_field_group){ "Inspection", td_inspect_fields(), o };
}

static td_status check(const void *opts)
{
    return td_amp_check(&((const td_inspect_opts *)opts)->amp);
}

static td_status run(const td_call *call)
{
    td_inspect_opts *o = call->opts;
    char *text;
    o->json = call->json;
    TD_TRY(td_inspect(call->n_args > 0 ? call->args[0] : NULL, o,
                      call->n_args > 1 ? call->args[1] : NULL, &text));
    td_text_add(call->out, "%s", text);
    td_text_free(text);
    return TD_OK;
}

static const char *job(const td_call *call)
{
    return call->n_args > 0 ? call->args[0] : NULL;
}

const td_verb td_verb_inspect = {
    .name = "inspect",
    .arguments = "THING [PATH]",
    .summary = "show networks, compiler decisions, memory plans, checkpoints and data sets",
    .about = "THING is one of:\n\n"
             "    model        layers, shapes, parameters and multiply-accumulates\n"
             "    graph        the network as text; with --training, the training step\n"
             "    amp          the type that mixed precision gives to each node, and why;\n"
             "                 with --training, for the whole training step\n"
             "    amp-stats    PATH is a file of train --amp-stats: possible loss scales and\n"
             "                 the tensors that lose most in fp16; --svg draws a chart\n"
             "    kernels      the kernel chosen for each node, and why others were rejected;\n"
             "                 --device cuda needs no GPU; --describe adds cuDNN's engines\n"
             "    memory       bytes of parameters and of the memory plan; --svg draws the\n"
             "                 lifetime and place of each buffer\n"
             "    checkpoint   PATH: metadata and tensors of a checkpoint or weight file\n"
             "    quantization PATH: ranges and errors of each layer of a quantized file\n"
             "    dataset      PATH: splits, classes and counts of a data set\n"
             "    ops          every op of the graph format\n"
             "    gpu          properties of this machine's GPU, for --describe elsewhere\n"
             "    backends     backends and passes",
    .examples = "tandem inspect model --arch resnet50\n"
                "tandem inspect model --weights run/model_best.safetensors\n"
                "tandem inspect graph --arch resnet18 --num-classes 10 >net.td\n"
                "tandem inspect amp --arch resnet50 --precision fp16 --amp-rule classic\n"
                "tandem inspect amp-stats stats.jsonl --svg gradients.svg\n"
                "tandem inspect kernels --arch resnet50 -b 32 --training\n"
                "tandem inspect kernels --arch resnet50 --device cuda --precision fp16\n"
                "tandem inspect gpu >h200.json\n"
                "tandem inspect kernels --arch resnet50 --device cuda --describe h200.json\n"
                "tandem inspect memory --arch resnet50 -b 32 --training --svg plan.svg\n"
                "tandem inspect checkpoint checkpoint.safetensors",
    .n_args_max = 2,
    .has_json = true,
    .opts_bytes = sizeof(td_inspect_opts),
    .groups = groups,
    .check = check,
    .job = job,
    .run = run,
};
