/*
 * checkpoint/weights.h -- copies weights between files and programs, under torchvision's / timm's
 * names
 *
 * Names read: torchvision's and timm's; with "module." or "module.1." in front; the reference
 * code's "layers.N.", ".squeeze.squeeze." and ".squeeze.expand."; SE weights as [D, C] or [D, C,
 * 1, 1]. Names written: torchvision's and timm's, with <bn>.num_batches_tracked as i64.
 */
#ifndef TD_CHECKPOINT_WEIGHTS_H
#define TD_CHECKPOINT_WEIGHTS_H

#include "base/map.h"
#include "base/text.h"
#include "io/safetensors.h"
#include "tandem/model.h"
#include "tandem/program.h"

/** The canonical name of a tensor in a file; `out` has room for 256 bytes. */
void td_weight_name(const char *name, char out[256]);

/** What a load may omit. */
typedef struct {
    bool with_momentum; /* momentum buffers and the rest of a run's state are loaded too */
    bool use_ema;       /* the averages, "ema." + name, in place of weights and statistics */
    const td_model_opts *model; /* the network, for messages; NULL: it has no name */
    const char *skip[2];        /* parameters that keep what they have, "fc.weight"; NULL: none */
    /* patterns of frozen weights, of which no state is kept: when the file was written, when it was
       not wanted; now, when it is left over (freeze.h) */
    const char *frozen_then, *frozen_now;
} td_load_opts;

/**
 * Fill a program's parameters.  TD_EFORMAT: a parameter is missing, a tensor is left over, or a
 * shape differs; TD_EARG: a tensor holds a NaN or an infinity (sums of a step under way may).  The
 * message names the file, the tensor, both shapes.  Nothing is set in these cases.
 * Averages and what belongs to a step under way may be missing or left over.
 */
td_status td_weights_load(const td_tensors *t, const char *path, const td_load_opts *opts,
                          td_program *p) TD_CHECKED;

/** Check as td_weights_load does, with its errors, without setting anything. */
td_status td_weights_check(const td_tensors *t, const char *path, const td_load_opts *opts,
                           const td_program *p) TD_CHECKED;

/**
 * To begin a detector with: whatever a file has of its weights and statistics, by name and shape,
 * where a classifier's names mean its backbone.  The rest is left as it is; a line in the log says
 * what.  TD_EFORMAT: there was nothing; TD_EARG: values that are no finite numbers.
 */
td_status td_weights_load_matching(const td_tensors *t, const char *path, td_program *p) TD_CHECKED;

/* Besides weights and statistics: the optimizer's state; averages; the current step's sums. */
enum { TD_SAVE_STATE = 1, TD_SAVE_EMA = 2, TD_SAVE_STEP = 4 };

/**
 * How many batches each norm has seen, as PyTorch counts them: those of the file that a run began
 * with, and of the run's own if the norm learned its statistics from them.
 */
typedef struct td_tracked {
    td_map own;        /* of that file, "bn1.num_batches_tracked" -> count + 1 as a pointer */
    int64_t begin;     /* batches_tracked when the run began */
    const char *still; /* patterns of norms, scale and shift, that keep their statistics, or NULL */
} td_tracked;

/** Read `own`, empty so far, from a file; release it whatever happens. */
td_status td_tracked_read(const td_tensors *t, int64_t begin, td_tracked *out) TD_CHECKED;
void td_tracked_release(td_tracked *k);

/**
 * Append a program's weights, and what else `what` names, to a set; the set owns the bytes.  Where
 * there are averages, what has none, being frozen, is its own.  `tracked` NULL: all norms have seen
 * batches_tracked.
 */
td_status td_weights_save(td_program *p, unsigned what, int64_t batches_tracked,
                          const td_tracked *tracked, td_tensors *t) TD_CHECKED;

/**
 * TD_ENUMERIC: a tensor of the set holds a NaN or an infinity; the message names the first.  Sums
 * of a step under way count only `with_step`: with loss scaling they may overflow, and are dropped.
 */
td_status td_weights_check_finite(const td_tensors *t, bool with_step) TD_CHECKED;

/**
 * Begin what a file may lack: averages as what they are averages of, and what is pending as what it
 * will become.  `file` (loaded before) or NULL.
 */
td_status td_weights_begin(td_program *p, const td_tensors *file) TD_CHECKED;

/** "momentum.", "ema.", ...: the length of the prefix before a parameter's name; 0: none. */
size_t td_weight_prefix(const char *name);

/** Batches that the file's norms have seen; 0 when unknown. */
int64_t td_weights_batches(const td_tensors *t);

/**
 * Copy into every parameter of `to` that of `from` with its name after `prefix` ("", "ema."), or
 * for a frozen one, without `prefix`.
 */
td_status td_weights_share(td_program *from, const char *prefix, td_program *to) TD_CHECKED;

/** Class names as a JSON array, and back; *names is an array of td_alloc'ed texts, one block. */
td_status td_classes_to_json(int n, const char *const *names, td_text *out) TD_CHECKED;
td_status td_classes_from_json(const char *json, const char *path, int *n,
                               char ***names) TD_CHECKED;
void td_classes_free(int n, char **names);

/** Rows of a matrix or a filter, by our name; 0: the file has none. */
int td_weights_rows(const td_tensors *t, const char *wanted);

/** Classes of the head in a weight file: rows of fc.weight; 0 unknown. */
int td_weights_classes(const td_tensors *t);

#endif
