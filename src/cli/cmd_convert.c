/*
 * cmd_convert.c -- tandem convert IN [OUT]
 */
#include <string.h>

#include "cli/verb.h"
#include "tandem/convert.h"
#include "tandem/model.h"
#include "tandem/onnx.h"

typedef enum { BY_NAME, TO_SAFETENSORS, TO_ONNX, TO_PTH } target;

typedef struct {
    target to;
    const char *in, *out; /* as options of checkpoint2model.py and model2onnx.py */
    bool overwrite;
    td_convert_opts weights;
    td_onnx_opts onnx;
} options;

/* clang-format off */
static const char *const formats[] = { "auto", "safetensors", "onnx", "pth", NULL };

static const td_field fields[] = {
    TD_ENUM(options, to, BY_NAME, formats, "output format; auto: by the extension of OUT"),
    TD_TEXT_AS(options, in, "checkpoint_path", "pretrained-weights|pretrained-from-file",
               NULL, "FILE", "same as IN"),
    TD_TEXT_AS(options, out, "weight_path", "output", NULL, "FILE", "same as OUT"),
    TD_BOOL(options, overwrite, false, "overwrite OUT if it exists"),
    TD_ACCEPTED("device", "NAME", "conversion does not depend on the device"),
    TD_ACCEPTED("trt", "FLAG", "use --se-layers to choose the form of squeeze-and-excitation"),
    TD_END,
};
/* clang-format on */

static void groups(void *opts, td_field_group *out)
{
    options *o = opts;
    out[0] = (td_field_group){ "Conversion", fields, o };
    out[1] = (td_field_group){ "Weights", td_convert_fields(), &o->weights };
    out[2] = (td_field_group){ "Network, for ONNX", td_model_fields(), &o->onnx.model };
    out[3] = (td_field_group){ "ONNX", td_onnx_fields(), &o->onnx };
}

/* Store an argument that may also be given as an option: the two must be equal. */
static td_status take_argument(const td_call *call, int i, const char *option, const char **value)
{
    if (call->n_args <= i)
        return TD_OK;
    if (*value && strcmp(*value, call->args[i]) != 0)
        return td_error(TD_EUSAGE, "'%s' and %s '%s' exclude each other", call->args[i], option,
                        *value);
    *value = call->args[i];
    return TD_OK;
}

/* Set IN and OUT from the arguments; with --checkpoint-path, a single argument is OUT. */
static td_status resolve(const td_call *call)
{
    options *o = call->opts;
    if (o->in && !o->out && call->n_args == 1 && strcmp(o->in, call->args[0]) != 0)
        return take_argument(call, 0, "--weight-path", &o->out);
    TD_TRY(take_argument(call, 0, "--checkpoint-path", &o->in));
    return take_argument(call, 1, "--weight-path", &o->out);
}

static bool is_to_onnx(const options *o)
{
    return o->to == TO_ONNX || (o->to == BY_NAME && o->out && td_text_ends(o->out, ".onnx"));
}

/* --- ONNX ------------------------------------------------------------------------------------- */

static void print_onnx_json(const td_call *call, const td_onnx_result *r)
{
    const options *o = call->opts;
    td_text_add(call->out, "{");
    td_json_add_text(call->out, "input", o->in);
    td_json_add_text(call->out, "output", r->output);
    td_json_add_text(call->out, "arch", r->arch);
    td_json_add(call->out, "opset", r->opset);
    td_json_add(call->out, "nodes", r->n_nodes);
    td_json_add(call->out, "bytes", (double)r->bytes);
    td_json_add(call->out, "image_size", r->image_size);
    td_json_add(call->out, "parameters", (double)r->parameters);
    td_json_add(call->out, "macs", (double)r->macs);
    td_json_add(call->out, "flops", 2 * (double)r->macs);
    if (r->was_verified)
        td_json_add(call->out, "difference", r->difference);
    td_text_add(call->out, "}\n");
}

static td_status convert_onnx(const td_call *call)
{
    options *o = call->opts;
    td_onnx_result r;
    if (o->weights.names != TD_CONVERT_NAMES_AUTO)
        return td_error(TD_EUSAGE, "--names requires a PyTorch file as OUT, not an ONNX file");
    o->onnx.overwrite = o->overwrite;
    o->onnx.use_ema = o->weights.ema;
    o->onnx.classes = o->weights.classes;
    TD_TRY(td_onnx_export(o->in, o->out, &o->onnx, &r));
    if (call->json) {
        print_onnx_json(call, &r);
        return TD_OK;
    }
    if (r.was_verified)
        td_text_add(call->out, "read back: the %s differ by %.1e of the largest value\n",
                    r.is_detector ? "codes and logits" : "logits", r.difference);
    td_text_add(call->out, "%lld parameters, %.3f GMAC (%.3f GFLOP) per image\n",
                (long long)r.parameters, (double)r.macs / 1e9, 2 * (double)r.macs / 1e9);
    if (r.image_size)
        td_text_add(call->out, "images of %d x %d%s%s\n", r.image_size, r.image_size,
                    *r.fixed_by ? ": " : "", r.fixed_by);
    else
        td_text_add(call->out, "images of any height and width\n");
    td_text_add(call->out, "%s\n", r.output);
    return TD_OK;
}

/* --- weights ---------------------------------------------------------------------------------- */

static void print_json(const td_call *call, const td_convert_result *r)
{
    const options *o = call->opts;
    td_text_add(call->out, "{");
    td_json_add_text(call->out, "input", o->in);
    td_json_add_text(call->out, "output", o->out);
    td_json_add(call->out, "tensors", (double)r->n_tensors);
    if (r->epoch >= 0)
        td_json_add(call->out, "epoch", (double)r->epoch);
    if (r->best_top1 >= 0)
        td_json_add(call->out, "best_top1", r->best_top1);
    if (r->best_map >= 0)
        td_json_add(call->out, "best_mAP", r->best_map);
    td_text_add(call->out, "}\n");
}

static void print_text(const td_call *call, const td_convert_result *r)
{
    if (r->epoch >= 0)
        td_text_add(call->out, "epoch %lld\n", (long long)r->epoch);
    if (r->best_top1 >= 0)
        td_text_add(call->out, "best accuracy %.3f %%\n", r->best_top1);
    if (r->best_map >= 0)
        td_text_add(call->out, "best mAP %.4f\n", r->best_map);
    td_text_add(call->out, "%s\n", ((const options *)call->opts)->out);
}

static td_status convert_weights(const td_call *call)
{
    options *o = call->opts;
    td_onnx_opts defaults;
    td_convert_result r;
    td_onnx_defaults(&defaults);
    if (!o->out)
        return td_error(TD_EUSAGE, "convert requires IN OUT; with --to onnx OUT is optional");
    if (!td_fields_equal(td_onnx_fields(), &o->onnx, &defaults))
        return td_error(TD_EUSAGE, "ONNX options require an .onnx file as OUT, found '%s'", o->out);
    o->weights.overwrite = o->overwrite;
    o->weights.image_size = o->onnx.model.image_size;
    o->weights.model_output = o->onnx.model.output;
    o->weights.format = o->to == TO_PTH           ? TD_CONVERT_PTH
                        : o->to == TO_SAFETENSORS ? TD_CONVERT_SAFETENSORS
                                                  : TD_CONVERT_BY_ENDING;
    TD_TRY(td_convert(o->in, o->out, &o->weights, &r));
    if (call->json)
        print_json(call, &r);
    else
        print_text(call, &r);
    return TD_OK;
}

/* --- weights of an ONNX file ------------------------------------------------------------------ */

static td_status restore(const td_call *call)
{
    const options *o = call->opts;
    td_onnx_opts defaults;
    td_convert_result r = { .epoch = -1, .best_top1 = -1, .best_map = -1 };
    td_onnx_defaults(&defaults);
    if (!o->out)
        return td_error(TD_EUSAGE, "convert requires IN OUT");
    if (o->to == TO_ONNX || o->to == TO_PTH || !td_text_ends(o->out, ".safetensors"))
        return td_error(TD_EUSAGE, "'%s' becomes a .safetensors file, not '%s'", o->in, o->out);
    if (o->weights.ema || o->weights.classes || o->weights.names != TD_CONVERT_NAMES_AUTO ||
        o->onnx.model.image_size || o->onnx.model.output ||
        !td_fields_equal(td_onnx_fields(), &o->onnx, &defaults))
        return td_error(TD_EUSAGE, "'%s' is read as it is: only --overwrite, --to and --json apply",
                        o->in);
    TD_TRY(td_onnx_restore(o->in, o->out, o->overwrite, &r.n_tensors));
    if (call->json)
        print_json(call, &r);
    else
        print_text(call, &r);
    return TD_OK;
}

static td_status run(const td_call *call)
{
    const options *o = call->opts;
    if (!o->in)
        return td_error(TD_EUSAGE, "convert requires IN [OUT]");
    if (td_text_ends(o->in, ".onnx")) {
        bool is_ours;
        TD_TRY(td_onnx_is_export(o->in, &is_ours));
        if (is_ours)
            return restore(call);
    }
    return is_to_onnx(o) ? convert_onnx(call) : convert_weights(call);
}

static const char *job(const td_call *call)
{
    return is_to_onnx(call->opts) ? NULL : "weights";
}

const td_verb td_verb_convert = {
    .name = "convert",
    .arguments = "IN [OUT]",
    .summary = "convert a checkpoint or weights to a safetensors, PyTorch or ONNX file",
    .about =
        "IN is a .safetensors or PyTorch file (.pth, .pth.tar, .pt), whose format is detected\n"
        "from its contents, or an .onnx file that tandem convert has written. No code in it is\n"
        "executed. Weights and running statistics are\n"
        "kept bit for bit, as are the description of the network (its name or graph), image\n"
        "size and class names, unless --image-size or --classes replace them. Momentum\n"
        "buffers and training state are dropped. Tensors of PyTorch files get the names of\n"
        "torchvision and timm. An existing OUT is an error unless --overwrite is given; it is\n"
        "then replaced once the new file is complete.\n\n"
        "OUT.pth, OUT.pth.tar or --to pth writes a file that torch.load reads with\n"
        "weights_only=True. Weights are written as a state_dict. A checkpoint is written in\n"
        "the format that the reference program's main.py saves and resumes: state_dict,\n"
        "optimizer, epoch, best_prec1 and state_dict_ema. The description of the network is\n"
        "written to the dict 'tandem'; the seed and all options except the optimizer's are\n"
        "dropped with a warning.\n\n"
        "An ONNX file has the input images [N,3,H,W] and the output logits. Height and width\n"
        "are not fixed, unless --image-size is given or the network does not allow it (vision\n"
        "transformers, VGG, detectors), as the command then says. For a detector the file\n"
        "has the outputs detection_boxes [N,K,4] (ymin, xmin, ymax, xmax relative to the\n"
        "image size), detection_scores, detection_classes (from 1) and num_detections, the\n"
        "same as evaluate finds with the same limits; with --no-nms, the boxes and scores of\n"
        "all anchors instead. Before OUT is replaced, the file is read back by an independent\n"
        "reader, run, and compared with the network. The numbers of parameters and\n"
        "multiplications are printed. With --to onnx and without OUT, the output is written\n"
        "to the current folder under the name of IN with the extension .onnx. Quantized\n"
        "weights ('tandem quantize') are written as integers in QDQ form, unless --no-qdq is\n"
        "given; 'tandem convert NET.onnx OUT.safetensors' makes quantized weights of such a\n"
        "file, and float32 weights of others.",
    .examples = "tandem convert checkpoint.safetensors weights.safetensors\n"
                "tandem convert model_best.pth.tar weights.safetensors\n"
                "tandem convert --ema model_best.pth.tar averaged.safetensors\n"
                "tandem convert checkpoint.safetensors checkpoint.pth.tar\n"
                "tandem convert --checkpoint-path model_best.pth.tar --weight-path w.safetensors\n"
                "tandem convert weights.safetensors network.onnx\n"
                "tandem convert network.onnx weights.safetensors\n"
                "tandem convert weights.safetensors --to onnx --export-preprocessing bytes "
                "--probabilities\n"
                "tandem convert detector.safetensors detector.onnx --min-score 0.05 --max-boxes 20",
    .n_args_max = 2,
    .has_json = true,
    .opts_bytes = sizeof(options),
    .groups = groups,
    .resolve = resolve,
    .job = job,
    .run = run,
};
