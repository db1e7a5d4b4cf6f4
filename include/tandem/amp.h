/*
 * tandem/amp.h -- options of automatic mixed precision, for td_compile and the jobs
 */
#ifndef TD_AMP_H
#define TD_AMP_H

#include <stdbool.h>

#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct td_field;

/**
 * Automatic mixed precision: how td_compile rewrites a float32 graph.  The field table
 * (td_amp_fields) holds names, defaults and ranges; all zero is float32.  Sources: TensorFlow's
 * auto_mixed_precision, PyTorch's autocast, APEX.
 */
typedef struct td_amp_opts {
    bool amp;      /* mixed precision; the half type is measured unless `precision` sets it */
    bool no_amp;   /* float32, regardless of the environment and the options of a saved run */
    int precision; /* 0 "default": set by TANDEM_AMP, otherwise fp32; 1 "fp32", 2 "bf16",
                      3 "fp16", 4 "auto": the faster of fp32 and bf16, 5 "amp": as `amp`,
                      6 "tf32": fp32, 7 "tf32-emulated": fp32, factors rounded to 10 bits */
    int rule;      /* generation of TensorFlow's rule: 0 "current", 1 "2.15", 2 "classic" (1.15) */
    int level;     /* 0 "default", 1 "tensor-cores-only", 2 "unsafe-force-all",
                      3 "treat-infer-as-deny", 4 "autocast", 5..8 "O0" .. "O3" */
    const char *allow_add, *allow_remove; /* ops by Tandem's or TensorFlow's names: "relu,Sum" */
    const char *infer_add, *infer_remove;
    const char *deny_add, *deny_remove;
    const char *clear_add, *clear_remove;
    const char *log_path; /* folder for the graph before and after, and the lists; NULL: none */
    bool is_silent;       /* do not log the rewrite */
} td_amp_opts;

TD_API const struct td_field *td_amp_fields(void);
TD_API void td_amp_defaults(td_amp_opts *opts);

/** TD_EUSAGE: options that contradict each other, such as amp and precision fp32. */
TD_API TD_CHECKED td_status td_amp_check(const td_amp_opts *opts);

/** "fp32", "bf16", "fp16" or "tf32-emulated" of resolved options. */
TD_API const char *td_amp_precision_name(const td_amp_opts *opts);

/** Whether the options require float32, regardless of the environment. */
TD_API bool td_amp_is_off(const td_amp_opts *opts);

/** The half type of resolved options; TD_DT_F32 if there is none. */
TD_API td_dtype td_amp_dtype(const td_amp_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
