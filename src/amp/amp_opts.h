/*
 * amp/amp_opts.h -- the values of the options of mixed precision (td_amp_opts), and their checks
 */
#ifndef TD_AMP_AMP_OPTS_H
#define TD_AMP_AMP_OPTS_H

#include "amp/amp_paint.h"
#include "tandem/amp.h"

/* td_amp_opts.level: TensorFlow's levels (td_amp_level), then policies decided op by op. */
enum {
    TD_AMP_LEVEL_AUTOCAST = TD_AMP_LEVEL_TREAT_INFER_AS_DENY + 1,
    TD_AMP_LEVEL_O0,
    TD_AMP_LEVEL_O1,
    TD_AMP_LEVEL_O2,
    TD_AMP_LEVEL_O3
};

/* td_amp_opts.precision */
enum {
    TD_PRECISION_DEFAULT,
    TD_PRECISION_FP32,
    TD_PRECISION_BF16,
    TD_PRECISION_FP16,
    TD_PRECISION_AUTO,
    TD_PRECISION_AMP,          /* as td_amp_opts.amp */
    TD_PRECISION_TF32,         /* float32: no device here has it */
    TD_PRECISION_TF32_EMULATED /* float32 with rounded factors: pass tf32 */
};
extern const char *const td_amp_precisions[]; /* their names */

/**
 * TD_EUSAGE: a name in a list of ops is neither our op nor TensorFlow's; `option` is named in the
 * message.
 */
td_status td_amp_check_list(const char *option, const char *list) TD_CHECKED;
td_status td_amp_check_lists(const td_amp_opts *o) TD_CHECKED; /* all eight of `o` */

/** Make the lists that the options describe; the caller frees them. */
td_status td_amp_lists_of(const td_amp_opts *o, td_amp_lists **out) TD_CHECKED;

/** The mode of the lists: bf16 as on the CPU, fp16 as on CUDA. */
td_amp_mode td_amp_mode_of(const td_amp_opts *o);

#endif
