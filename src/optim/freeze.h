/*
 * optim/freeze.h -- weights of a network that are not trained
 *
 * A list of patterns, "conv1*,layer1.*", names them: '*' stands for any characters, dots too, '?'
 * for one.  No gradient is asked for what is frozen, so nothing of the step that only such a
 * gradient would need is there; it has no momentum buffer, no average and no decay.
 *
 * Norms whose scale and shift are frozen go on to normalise by the batch, and their running
 * statistics to move, as in PyTorch with requires_grad = False; td_freeze_norms changes both.
 */
#ifndef TD_OPTIM_FREEZE_H
#define TD_OPTIM_FREEZE_H

#include "io/safetensors.h"
#include "tandem/graph.h"
#include "tandem/train.h"

/** Does one of the patterns match?  NULL or "": none does. */
bool td_is_frozen(const char *patterns, const char *name);

typedef struct {
    int n, of;                   /* weights frozen, and all */
    int64_t n_values, of_values; /* the same in numbers */
    int n_norms;                 /* norms whose statistics stay */
} td_freeze_counts;

/**
 * Count what is frozen in a training graph.  TD_EUSAGE: a pattern that is empty or matches no
 * weight (the message has the nearest name), nothing left to train, and with `norms` no norm whose
 * statistics stay.
 */
td_status td_freeze_count(const td_graph *g, const char *patterns, bool norms,
                          td_freeze_counts *out) TD_CHECKED;

/**
 * The training graph again, in which norms whose scale and shift are both frozen normalise by their
 * running statistics, which stay as they are and have no averages.  Caller frees *out.
 */
td_status td_freeze_norms(const td_graph *g, const char *patterns, td_graph **out) TD_CHECKED;

/**
 * A run that goes on from `file`: the patterns it was made with (*then, td_free; NULL: none).  Says
 * so where they are others now.  TD_EARG: others, and inside an optimiser step, whose sums do not
 * fit any more.
 */
td_status td_freeze_resume(const td_tensors *file, const char *path, const td_train_opts *o,
                           bool is_inside_step, char **then) TD_CHECKED;

#endif
