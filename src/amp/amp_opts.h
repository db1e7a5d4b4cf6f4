/*
 * amp/amp_opts.h -- names of the options of mixed precision (td_amp_opts), and their checks
 */
#ifndef TD_AMP_AMP_OPTS_H
#define TD_AMP_AMP_OPTS_H

#include "amp/amp_propagate.h"
#include "tandem/amp.h"

extern const char *const td_amp_precisions[]; /* names of td_precision */

/**
 * TD_EUSAGE: a name in a list of ops is neither our op nor TensorFlow's; the message names
 * `option`.
 */
td_status td_amp_check_list(const char *option, const char *list) TD_CHECKED;
td_status td_amp_check_lists(const td_amp_opts *o) TD_CHECKED; /* all eight lists of `o` */

/** Make the lists that the options describe; the caller frees them. */
td_status td_amp_lists_of(const td_amp_opts *o, td_amp_lists **out) TD_CHECKED;

/** The mode of the lists: for bf16 that of the CPU, for fp16 that of CUDA. */
td_amp_mode td_amp_mode_of(const td_amp_opts *o);

#endif
