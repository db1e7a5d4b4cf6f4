/*
 * tandem/amp.h -- options of automatic mixed precision, for td_compile and the jobs
 */
#ifndef TD_AMP_H
#define TD_AMP_H

#include <stdbool.h>

#include "tandem/options.h"
#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_field;

typedef enum {
    TD_PRECISION_DEFAULT, /* fp32, or as TANDEM_AMP says */
    TD_PRECISION_FP32,
    TD_PRECISION_BF16,
    TD_PRECISION_FP16,
    TD_PRECISION_AUTO,          /* the fastest of fp32 and bf16 */
    TD_PRECISION_AMP,           /* as td_amp_opts.amp */
    TD_PRECISION_TF32,          /* fp32, factors of TF32; fp32 on a CPU */
    TD_PRECISION_TF32_EMULATED, /* fp32, factors rounded to 10 bits of fraction: pass tf32 */
    TD_PRECISION_INT8           /* inference: fp32, but convolutions of 8-bit integers */
} td_precision;

/** Which release's behaviour: they differ in lists, steps and names. */
typedef enum {
    TD_AMP_RULE_CURRENT, /* TensorFlow 2.20 and later: follow pass in every mode */
    TD_AMP_RULE_2_15,    /* follow pass in bf16 mode only */
    TD_AMP_RULE_CLASSIC  /* 1.15, which the published recipes ran on: no follow, no force-down */
} td_amp_rule;

/** TensorFlow's levels, then policies decided op by op: PyTorch's autocast, APEX's O0 to O3. */
typedef enum {
    TD_AMP_LEVEL_DEFAULT,
    TD_AMP_LEVEL_TENSOR_CORES_ONLY,   /* the allow list alone; bf16 mode ignores it */
    TD_AMP_LEVEL_UNSAFE_FORCE_ALL,    /* everything that can be forced; bf16 modes refuse it */
    TD_AMP_LEVEL_TREAT_INFER_AS_DENY, /* infer ops deny; the classic rule ignores it */
    TD_AMP_LEVEL_AUTOCAST,
    TD_AMP_LEVEL_O0,
    TD_AMP_LEVEL_O1,
    TD_AMP_LEVEL_O2,
    TD_AMP_LEVEL_O3
} td_amp_level;

/**
 * A convolution that runs with 8-bit integers, by the name of its weight.  `input` and `output` are
 * magnitudes: values in -input .. input (0 .. input if none is negative) are represented, larger
 * ones are clipped.  `output` is that after bias, residual and relu.
 */
typedef struct {
    const char *weight; /* "layer1.0.conv1.weight" */
    float input, output;
    bool is_wide; /* keep it in float32 */
} td_activation_range;

/** The ranges of a network. */
typedef struct {
    int n;
    const td_activation_range *ranges; /* [n] */
} td_activation_ranges;

/**
 * Automatic mixed precision: how td_compile rewrites a float32 graph.  The field table
 * (td_amp_fields) holds names, defaults and ranges; all zero is float32.  Sources: TensorFlow's
 * auto_mixed_precision, PyTorch's autocast, APEX.
 */
typedef struct td_amp_opts {
    td_given given;
    bool amp;           /* mixed precision; the half type is measured unless `precision` sets it */
    bool force_float32; /* float32, regardless of the environment and the options of a saved run */
    td_precision precision;
    td_amp_rule rule;
    td_amp_level level;
    const char *allow_add, *allow_remove; /* ops by Tandem's or TensorFlow's names: "relu,Sum" */
    const char *infer_add, *infer_remove;
    const char *deny_add, *deny_remove;
    const char *clear_add, *clear_remove;
    const char *log_path; /* folder for the graph before and after, and the lists; NULL: none */
    bool is_silent;       /* do not log the rewrite */

    const td_activation_ranges *ranges; /* of int8, borrowed; NULL: none */
} td_amp_opts;

TD_API const struct td_field *td_amp_fields(void);
TD_API void td_amp_defaults(td_amp_opts *opts);

/** TD_EUSAGE: options that contradict each other, such as amp and precision fp32. */
TD_API TD_CHECKED td_status td_amp_check(const td_amp_opts *opts);

/** "fp32", "bf16", "fp16", "tf32", "tf32-emulated" or "int8" of resolved options. */
TD_API const char *td_amp_precision_name(const td_amp_opts *opts);

/** Whether the options require float32, regardless of the environment. */
TD_API bool td_amp_is_off(const td_amp_opts *opts);

/** The half type of resolved options; TD_DT_F32 if there is none. */
TD_API td_dtype td_amp_dtype(const td_amp_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
