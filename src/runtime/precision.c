/*
 * precision.c -- resolves the half type: by the options, then the environment, then a measurement
 *
 * `auto` runs one typical convolution (3x3, 256 channels, 14x14, batch 4) forward and both
 * gradients in float32 and in bfloat16, and takes bfloat16 if it is faster.  On a CPU fp16 is never
 * chosen: it is half storage around float32 arithmetic, which costs time.  On GPUs it always is.
 */
#include <string.h>

#include "amp/amp_env.h"
#include "base/log.h"
#include "ops/ops.h"
#include "options/field.h"
#include "pass/amp.h"
#include "runtime/program_parts.h"

#define PROBE_RUNS 8

/* --- measuring -------------------------------------------------------------------------------- */

static td_status probe_graph(td_graph **out)
{
    td_builder *b = td_build_begin();
    td_value *x = td_input(b, "x", td_type_4d(TD_DT_F32, 4, 256, 14, 14));
    td_value *w = td_param(b, "w", TD_DT_F32, 4, (int64_t[]){ 256, 256, 3, 3 }, NULL);
    td_value *v = td_param(b, "v", TD_DT_F32, 4, (int64_t[]){ 256, 256, 3, 3 }, NULL);
    td_value *y = td_conv2d(b, td_conv2d(b, x, w, "pad=1"), v, "pad=1");
    td_value *loss = td_sum(b, td_mul(b, y, y));
    td_output(b, "dw", td_gradient(b, loss, w));
    td_output(b, "dv", td_gradient(b, loss, v));
    return td_build_end(b, out);
}

/*
 * The total time of the convolutions of a few runs, in seconds.  A mean, not the minimum: on a
 * machine with other busy processes some bf16 kernels wait for each other, which would slow down
 * the training too.
 */
static td_status probe(td_device *dev, const td_graph *g, td_precision precision, double *mean)
{
    td_status st = TD_OK;
    td_program *p = NULL;
    td_amp_opts amp = { .precision = precision, .is_silent = true };
    float *x = td_alloc((size_t)4 * 256 * 14 * 14, sizeof *x);
    if (!x)
        return TD_ENOMEM;
    *mean = 0;
    TD_OUT(td_program_new(g, dev, &(td_compile_opts){ .amp = &amp }, &p));
    TD_OUT(td_program_init(p, 1));
    TD_OUT(td_program_bind(p, "x", x));
    TD_OUT(td_program_run(p));
    td_program_profile(p, true);
    for (int i = 0; i < PROBE_RUNS; i++)
        TD_OUT(td_program_run(p));
    for (int i = 0; i < td_program_node_count(p); i++) {
        td_node_report r = td_program_node(p, i);
        *mean += r.macs ? r.seconds / PROBE_RUNS : 0;
    }
out:
    td_program_free(p);
    td_free(x);
    return st;
}

static td_status measure(td_device *dev, td_precision *precision)
{
    td_status st = TD_OK;
    td_graph *g = NULL;
    double wide, half;
    *precision = TD_PRECISION_FP32;
    if (strcmp(dev->name, "cuda") == 0) { /* Tensor Cores compute both half types equally fast */
        *precision = TD_PRECISION_FP16;
        td_log(TD_LOG_INFO, "amp", "precision: fp16, for Tensor Cores");
        return TD_OK;
    }
    if (strcmp(dev->name, "cpu") != 0) {
        td_log(TD_LOG_INFO, "amp", "precision: fp32, because device %s is not optimized for speed",
               dev->name);
        return TD_OK;
    }
    TD_OUT(probe_graph(&g));
    TD_OUT(probe(dev, g, TD_PRECISION_FP32, &wide));
    TD_OUT(probe(dev, g, TD_PRECISION_BF16, &half));
    *precision = half < wide ? TD_PRECISION_BF16 : TD_PRECISION_FP32;
    td_log(TD_LOG_INFO, "amp",
           "precision: %s, convolutions take %.1f ms in bf16 and %.1f ms in fp32",
           td_amp_precisions[*precision], half * 1e3, wide * 1e3);
out:
    td_graph_free(g);
    return st;
}

/* --- the environment -------------------------------------------------------------------------- */

/* applies an edit of an op list unless an option made it; if both spellings of a variable are set,
   the newer one counts */
static void apply_edit(const char **option, const char *const edit[2], const char *what)
{
    if (*option || (!edit[0] && !edit[1]))
        return;
    *option = edit[0] ? edit[0] : edit[1];
    if (edit[0] && edit[1])
        td_log(TD_LOG_WARN, "amp",
               "%s: both spellings of the variable are set, using the newer one", what);
    if (td_amp_check_list(what, *option) != TD_OK) /* may name other TensorFlow ops */
        td_log(TD_LOG_WARN, "amp", "environment: %s", td_error_message());
}

/* was the option given on the command line, even with its default value?  It overrides the
   environment */
static bool is_given(const td_amp_opts *o, const char *name)
{
    const td_field *fields = td_amp_fields();
    return td_field_is_given(fields, td_field_find(fields, name), o);
}

static td_status apply_environment(td_amp_opts *o)
{
    td_amp_env e;
    TD_TRY(td_amp_env_read(NULL, NULL, &e));
    if (o->precision == TD_PRECISION_DEFAULT && !o->amp && e.amp == TD_AMP_ON) {
        o->amp = e.half != TD_DT_F16 && e.half != TD_DT_BF16;
        o->precision = e.half == TD_DT_F16    ? TD_PRECISION_FP16
                       : e.half == TD_DT_BF16 ? TD_PRECISION_BF16
                                              : TD_PRECISION_DEFAULT;
    }
    if (e.has_level && !is_given(o, "amp_level"))
        o->level = e.level;
    if (e.has_rule && !is_given(o, "amp_rule"))
        o->rule = e.rule;
    if (!o->log_path)
        o->log_path = e.log_path;
    apply_edit(&o->allow_add, e.allow.add, "amp-allow-add");
    apply_edit(&o->allow_remove, e.allow.remove, "amp-allow-remove");
    apply_edit(&o->infer_add, e.infer.add, "amp-infer-add");
    apply_edit(&o->infer_remove, e.infer.remove, "amp-infer-remove");
    apply_edit(&o->deny_add, e.deny.add, "amp-deny-add");
    apply_edit(&o->deny_remove, e.deny.remove, "amp-deny-remove");
    apply_edit(&o->clear_add, e.clear.add, "amp-clear-add");
    apply_edit(&o->clear_remove, e.clear.remove, "amp-clear-remove");
    return TD_OK;
}

/* --- resolving -------------------------------------------------------------------------------- */

/* an error if TensorFlow's rewrite would give up, or if the run would stay in float32 */
static td_status check_propagation(const td_amp_opts *o)
{
    td_amp_lists *lists;
    if (o->level >= TD_AMP_LEVEL_AUTOCAST)
        return TD_OK;
    if (o->level == TD_AMP_LEVEL_UNSAFE_FORCE_ALL && o->precision == TD_PRECISION_BF16)
        return td_error(
            TD_EUSAGE,
            "--amp-level unsafe-force-all requires fp16; TensorFlow's bf16 rewrite refuses it");
    TD_TRY(td_amp_lists_of(o, &lists));
    td_status st = td_amp_lists_check(lists);
    td_amp_lists_free(lists);
    return st == TD_OK
               ? TD_OK
               : td_error(TD_EUSAGE,
                          "mixed precision: %s; a TensorFlow name must be added to one list and "
                          "removed from the other, our op names (relu) are moved automatically",
                          td_error_message());
}

/* resolves conflicts between options of the command line and of a checkpoint, which td_amp_check
   has not seen */
static void resolve(td_amp_opts *o, const td_device *dev)
{
    if (o->precision == TD_PRECISION_TF32 && !dev->target.has_tf32) {
        o->precision = TD_PRECISION_FP32;
        if (!o->is_silent)
            td_log(TD_LOG_INFO, "amp",
                   "tf32: not available on this device, using float32; --precision tf32-emulated "
                   "emulates its rounding");
    } else if (o->precision == TD_PRECISION_AMP) {
        o->precision = TD_PRECISION_DEFAULT;
        o->amp = true;
    }
    if (o->force_float32) {
        o->amp = o->force_float32 = false;
        o->precision = TD_PRECISION_FP32;
    } else if (o->amp && td_amp_is_off(o)) {
        o->precision = TD_PRECISION_DEFAULT;
    }
}

/* considers only options: the environment variables may be meant for other programs */
static bool has_amp_options(const td_amp_opts *o)
{
    return o->rule || o->level || o->allow_add || o->allow_remove || o->infer_add ||
           o->infer_remove || o->deny_add || o->deny_remove || o->clear_add || o->clear_remove ||
           o->log_path;
}

td_status td_amp_resolve(td_amp_opts *o, td_device *dev)
{
    const bool has_options = has_amp_options(o);
    resolve(o, dev);
    if (o->precision == TD_PRECISION_INT8 && !o->ranges)
        return td_error(TD_EUSAGE,
                        "--precision int8 requires weights that 'tandem quantize' wrote, to run "
                        "inference");
    TD_TRY(td_amp_check_lists(o));
    TD_TRY(apply_environment(o));
    TD_TRY(check_propagation(o));
    bool is_policy = o->level >= TD_AMP_LEVEL_O0; /* naming one requests mixed precision */
    if (o->precision == TD_PRECISION_DEFAULT && !o->amp &&
        !(is_policy && o->level != TD_AMP_LEVEL_O0))
        o->precision = TD_PRECISION_FP32;
    if (o->precision == TD_PRECISION_DEFAULT || o->precision == TD_PRECISION_AUTO)
        TD_TRY(measure(dev, &o->precision));
    if (has_options && td_amp_dtype(o) == TD_DT_F32 && o->level != TD_AMP_LEVEL_O0 && !o->is_silent)
        td_log(TD_LOG_WARN, "amp", "the precision is %s: the other --amp options have no effect",
               td_amp_precision_name(o));
    return TD_OK;
}
