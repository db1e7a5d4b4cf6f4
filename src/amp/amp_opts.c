/*
 * amp_opts.c -- the options of mixed precision: names, defaults, checks of op names
 */
#include "amp/amp_opts.h"

#include <string.h>

#include "base/status.h"
#include "ops/ops.h"
#include "options/field.h"

const char *const td_amp_precisions[] = { "default", "fp32", "bf16",          "fp16", "auto",
                                          "amp",     "tf32", "tf32-emulated", "int8", NULL };
/* also as the dtypes of PyTorch */
static const char *const precisions[] = {
    "default", "fp32|float32", "bf16|bfloat16", "fp16|float16", "auto",
    "amp",     "tf32",         "tf32-emulated", "int8",         NULL
};
static const char *const rules[] = { "current|2.21", "2.15", "classic|1.15", NULL };
static const char *const levels[] = { "default",
                                      "tensor-cores-only",
                                      "unsafe-force-all",
                                      "treat-infer-as-deny",
                                      "autocast",
                                      "O0",
                                      "O1",
                                      "O2",
                                      "O3",
                                      NULL };

/* clang-format off */
#define LIST(m, text) TD_TEXT_AS(td_amp_opts, m, "amp_" #m, NULL, NULL, "OPS", text)

static const td_field fields[] = {
    TD_GIVEN(td_amp_opts, given),
    TD_BOOL_ONLY(td_amp_opts, amp, "amp", "use-tf-amp", false,
                 "use mixed precision; --precision selects bf16 or fp16"),
    TD_BOOL_AS(td_amp_opts, force_float32, "no-amp", "no-use-tf-amp", false,
               "use float32 regardless of TANDEM_AMP and the saved run"),
    TD_ENUM   (td_amp_opts, precision, TD_PRECISION_DEFAULT, precisions,
               "numeric precision; auto: the faster of fp32 and bf16, measured, and fp16 on a GPU; "
               "default: set by TANDEM_AMP, or fp32; amp: same as --amp; tf32: fp32 with products "
               "of TF32 on a GPU, the same as fp32 on a CPU; tf32-emulated: fp32 with the factors "
               "of products rounded to TF32's 10 fraction bits; int8: convolutions of 8-bit "
               "integers, with weights of 'tandem quantize', for which it is the default"),
    TD_ENUM_AS(td_amp_opts, rule, "amp_rule", NULL, TD_AMP_RULE_CURRENT, rules,
               "type propagation rule; current: TensorFlow 2.21; 2.15: TensorFlow 2.15; "
               "classic: TensorFlow 1.15"),
    TD_ENUM_AS(td_amp_opts, level, "amp_level", NULL, TD_AMP_LEVEL_DEFAULT, levels,
               "mixed precision level: TensorFlow's levels, PyTorch's autocast, or APEX's O0 to "
               "O3"),
    LIST(allow_add,    "ops to add to the allow list (run in bf16 or fp16), by "
                       "Tandem's or TensorFlow's name: conv2d, Conv2D"),
    LIST(allow_remove, "ops to remove from the allow list"),
    LIST(infer_add,    "ops to add to the infer list (run in bf16 or fp16 next to ops that do)"),
    LIST(infer_remove, "ops to remove from the infer list"),
    LIST(deny_add,     "ops to add to the deny list (run in float32, as do the ops after them)"),
    LIST(deny_remove,  "ops to remove from the deny list"),
    LIST(clear_add,    "ops to add to the clear list (use the type of adjacent ops)"),
    LIST(clear_remove, "ops to remove from the clear list"),
    TD_TEXT_AS(td_amp_opts, log_path, "amp_log_path", NULL, NULL, "FOLDER",
               "write the graph before and after mixed precision, and the four lists, to this "
               "folder"),
    TD_END,
};
/* clang-format on */

const td_field *td_amp_fields(void)
{
    return fields;
}

void td_amp_defaults(td_amp_opts *opts)
{
    *opts = (td_amp_opts){ 0 };
    td_fields_default(fields, opts);
}

/* is nothing computed in a half type? */
static bool is_wide(td_precision p)
{
    return p == TD_PRECISION_FP32 || p == TD_PRECISION_TF32 || p == TD_PRECISION_TF32_EMULATED ||
           p == TD_PRECISION_INT8;
}

td_status td_amp_check(const td_amp_opts *o)
{
    if (o->amp && is_wide(o->precision))
        return td_error(TD_EUSAGE, "--amp and --precision %s exclude each other",
                        td_amp_precisions[o->precision]);
    if (o->amp && o->force_float32)
        return td_error(TD_EUSAGE, "--amp and --no-amp exclude each other");
    if (o->force_float32 && o->precision != TD_PRECISION_DEFAULT &&
        o->precision != TD_PRECISION_FP32 && o->precision != TD_PRECISION_TF32)
        return td_error(TD_EUSAGE, "--no-amp and --precision %s exclude each other",
                        td_amp_precisions[o->precision]);
    return TD_OK;
}

bool td_amp_is_off(const td_amp_opts *o)
{
    return o->force_float32 || is_wide(o->precision);
}

td_dtype td_amp_dtype(const td_amp_opts *o)
{
    if (o->level == TD_AMP_LEVEL_O0)
        return TD_DT_F32;
    return o->precision == TD_PRECISION_BF16   ? TD_DT_BF16
           : o->precision == TD_PRECISION_FP16 ? TD_DT_F16
                                               : TD_DT_F32;
}

const char *td_amp_precision_name(const td_amp_opts *o)
{
    return td_amp_dtype(o) != TD_DT_F32 || is_wide(o->precision) ? td_amp_precisions[o->precision]
                                                                 : "fp32";
}

/* --- names in lists --------------------------------------------------------------------------- */

static bool is_tf_name(const char *name)
{
    int n;
    const td_op *const *all = td_op_all(&n);
    for (int i = 0; i < n; i++)
        if (all[i]->tf_op && strcmp(all[i]->tf_op, name) == 0)
            return true;
    return false;
}

td_status td_amp_check_list(const char *option, const char *list)
{
    char name[64];
    for (const char *s = list; s && *s;) {
        size_t len = strcspn(s, ",");
        if (len >= sizeof name)
            return td_error(TD_EUSAGE, "--%s: '%.*s...' is not an op name", option, 40, s);
        memcpy(name, s, len);
        name[len] = '\0';
        if (!td_op_find(name) && !is_tf_name(name))
            return td_error(TD_EUSAGE,
                            "--%s: '%s' is not a known op or TensorFlow op name (tandem inspect "
                            "ops lists them)",
                            option, name);
        s += len + (s[len] == ',');
    }
    return TD_OK;
}

td_status td_amp_check_lists(const td_amp_opts *o)
{
    TD_TRY(td_amp_check_list("amp-allow-add", o->allow_add));
    TD_TRY(td_amp_check_list("amp-allow-remove", o->allow_remove));
    TD_TRY(td_amp_check_list("amp-infer-add", o->infer_add));
    TD_TRY(td_amp_check_list("amp-infer-remove", o->infer_remove));
    TD_TRY(td_amp_check_list("amp-deny-add", o->deny_add));
    TD_TRY(td_amp_check_list("amp-deny-remove", o->deny_remove));
    TD_TRY(td_amp_check_list("amp-clear-add", o->clear_add));
    return td_amp_check_list("amp-clear-remove", o->clear_remove);
}

static td_amp_edit edit_of(const char *add, const char *remove)
{
    return (td_amp_edit){ .add = { add }, .remove = { remove } };
}

td_status td_amp_lists_of(const td_amp_opts *o, td_amp_lists **out)
{
    td_amp_list_opts l = { .rule = o->rule,
                           .mode = td_amp_mode_of(o),
                           .level = o->level,
                           .allow = edit_of(o->allow_add, o->allow_remove),
                           .infer = edit_of(o->infer_add, o->infer_remove),
                           .deny = edit_of(o->deny_add, o->deny_remove),
                           .clear = edit_of(o->clear_add, o->clear_remove) };
    return td_amp_lists_new(&l, out);
}

td_amp_mode td_amp_mode_of(const td_amp_opts *o)
{
    return td_amp_dtype(o) == TD_DT_BF16 ? TD_AMP_MODE_BF16 : TD_AMP_MODE_FP16;
}
