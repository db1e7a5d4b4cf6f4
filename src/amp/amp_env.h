/*
 * amp/amp_env.h -- mixed precision by environment variable: our names, TensorFlow's as aliases
 *
 *     td_amp_env e;
 *     TD_TRY(td_amp_env_read(NULL, NULL, &e));
 *     if (e.amp == TD_AMP_ON) ...
 *
 * Tandem's variables; values other than these are errors:
 *
 *   TANDEM_AMP                       0 off, 1 on, bf16 or fp16: on with this half type
 *   TANDEM_AMP_LEVEL                 default, tensor_cores_only, unsafe_force_all,
 *                                    treat_infer_as_deny; in upper or lower case
 *   TANDEM_AMP_RULE                  current, 2.15, classic
 *   TANDEM_AMP_{ALLOW,INFER,DENY,CLEAR}_{ADD,REMOVE}
 *                                    op names, Tandem's or TensorFlow's, separated by commas
 *   TANDEM_AMP_LOG_PATH              folder for graphs and lists
 *
 * TensorFlow's variables, used if Tandem's is not set (an empty variable counts as not set).  P
 * is short for TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE:
 *
 *   TF_ENABLE_AUTO_MIXED_PRECISION                 rewrite and loss scaling: 0, 1, false, true
 *   TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE   the rewrite alone; overrides the one above
 *   TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING    loss scaling alone; overrides likewise
 *   P_{ALLOW,INFER,DENY,CLEAR}LIST_{ADD,REMOVE}    applied first
 *   P_{WHITE,GRAY,BLACK}LIST_{ADD,REMOVE}          the older spelling, applied after them
 *   P_LEVEL                                        an unknown level is the default
 *   P_LOG_PATH
 *   P_EMULATE_FP16                                 half on the CPU with float32 kernels; default on
 *
 * Recognised without effect: P_IGNORE_PERFORMANCE and P_SIMULATE_GPU change TensorFlow's test of
 * the GPU, which does not exist here; TF_CPP_VMODULE, because `tandem inspect amp` shows every
 * decision; TF_ENABLE_{CUBLAS,CUDNN,CUDNN_RNN}_TENSOR_OP_MATH_FP32, because float32 is never
 * reduced here.
 */
#ifndef TD_AMP_AMP_ENV_H
#define TD_AMP_AMP_ENV_H

#include "amp/amp_lists.h"
#include "tandem/types.h"

typedef enum { TD_AMP_UNSET, TD_AMP_OFF, TD_AMP_ON } td_amp_switch;

/* All zero: no variable is set.  Texts point into the environment, and are valid until it is
   changed. */
typedef struct {
    td_amp_switch amp;          /* run the rewrite */
    td_amp_switch loss_scaling; /* set only by TensorFlow's variables */
    td_dtype half;              /* TD_DT_F16 or TD_DT_BF16; TD_DT_NONE: not set */
    bool has_level, has_rule;   /* otherwise the two below are defaults */
    td_amp_level level;
    td_amp_rule rule;
    td_amp_edit allow, infer, deny, clear;
    const char *log_path; /* NULL: not set */
    td_amp_switch emulate;
} td_amp_env;

/** Returns a variable's value, or NULL. */
typedef const char *(*td_amp_getenv)(void *ctx, const char *name);

/** Read the variables with `get`; NULL: the process's environment.  TD_EUSAGE: a malformed TANDEM_
    value. */
TD_CHECKED td_status td_amp_env_read(td_amp_getenv get, void *ctx, td_amp_env *out);

#endif
