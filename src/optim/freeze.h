/*
 * optim/freeze.h -- weights of a network that are not trained
 *
 * A list of patterns, "conv1*,layer1.*", selects them: '*' matches any characters, dots included,
 * '?' matches one.  The gradient of a frozen weight is not computed, nor any value needed only for
 * it; the weight has no momentum buffer, no average and no decay.
 *
 * Norms with frozen scale and shift still use batch statistics and update their running statistics,
 * as in PyTorch with requires_grad = False; td_freeze_norms changes both.
 */
#ifndef TD_OPTIM_FREEZE_H
#define TD_OPTIM_FREEZE_H

#include "io/safetensors.h"
#include "tandem/graph.h"
#include "tandem/train.h"

/** Does one of the patterns match?  NULL or "": none does. */
bool td_is_frozen(const char *patterns, const char *name);

typedef struct {
    int n, of;                   /* frozen weights, and all weights */
    int64_t n_values, of_values; /* their elements */
    int n_norms;                 /* norms whose running statistics are frozen */
} td_freeze_counts;

/**
 * Count the frozen weights of a training graph.  TD_EUSAGE: a pattern that is empty or matches no
 * weight (the message suggests the nearest name); no weight left to train; with `norms`, no norm to
 * freeze.
 */
td_status td_freeze_count(const td_graph *g, const char *patterns, bool norms,
                          td_freeze_counts *out) TD_CHECKED;

/**
 * Rewrite the training graph: norms whose scale and shift are both frozen use their running
 * statistics, which do not change and have no averages.  Caller frees *out.
 */
td_status td_freeze_norms(const td_graph *g, const char *patterns, td_graph **out) TD_CHECKED;

/**
 * Check a run resumed from `file`: *then receives the patterns of the run that wrote it (td_free;
 * NULL: none).  Logs a change of patterns.  TD_EARG: a change inside an optimizer step, whose
 * gradient sums would be incomplete.
 */
td_status td_freeze_resume(const td_tensors *file, const char *path, const td_train_opts *o,
                           bool is_inside_step, char **then) TD_CHECKED;

#endif
