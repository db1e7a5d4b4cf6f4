/*
 * checkpoint/weights.h -- copy weights between files and programs, under the names of torchvision
 * and timm
 *
 * Names read: torchvision's and timm's, also after "module." or "module.1."; the reference code's
 * "layers.N.", ".squeeze.squeeze." and ".squeeze.expand."; SE weights as [D, C] or [D, C, 1, 1].
 * Names written: torchvision's and timm's, with <bn>.num_batches_tracked as i64.
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

/** Options of a load. */
typedef struct {
    bool with_momentum; /* also load momentum buffers and the other state of a run */
    bool use_ema;       /* load averages, "ema." + name, instead of weights and statistics */
    bool keep_set;      /* leave parameters that have a value (td_program_param_is_set) */
    const td_model_opts
        *model;          /* the network, for messages and for its first filter; NULL: unknown */
    const char *skip[2]; /* parameters not to load, "fc.weight"; NULL: none */
    /* patterns of frozen weights (freeze.h): the file has no state of those in frozen_before;
       state of those in frozen_now is ignored */
    const char *frozen_before, *frozen_now;
} td_load_opts;

/**
 * Fill a program's parameters.  TD_EFORMAT: a parameter has no tensor, a tensor has no parameter,
 * or a shape differs; TD_EARG: a tensor holds a NaN or an infinity (state of an unfinished step
 * may).  The message names the file, the tensor, both shapes.  Nothing is set in these cases.
 * Averages and state of an unfinished step may be missing or superfluous.  The first filter
 * [K, 3, R, S] of a network for RGB images becomes that of one for gray images by a sum over the
 * channels, as timm's in_chans=1, unless with_momentum is set.
 */
td_status td_weights_load(const td_tensors *t, const char *path, const td_load_opts *opts,
                          td_program *p) TD_CHECKED;

/** Check as td_weights_load does, with its errors, without setting anything. */
td_status td_weights_check(const td_tensors *t, const char *path, const td_load_opts *opts,
                           const td_program *p) TD_CHECKED;

/**
 * Initialize a detector from a file: load the weights and statistics that match by name and shape,
 * where a classifier's names match the backbone's.  The other parameters are not changed; the log
 * lists them.  TD_EFORMAT: nothing matches; TD_EARG: values are not finite.
 */
td_status td_weights_load_matching(const td_tensors *t, const char *path, td_program *p) TD_CHECKED;

/*
 * State to save with weights and statistics: the optimizer's state; averages; the current step's
 * sums.
 */
enum { TD_SAVE_STATE = 1, TD_SAVE_EMA = 2, TD_SAVE_STEP = 4 };

/**
 * How many batches each norm has tracked, as PyTorch counts them: the count in the file from which
 * the run started, plus the run's batches unless the norm's statistics are frozen.
 */
typedef struct td_tracked {
    td_map from_file;         /* that file's: "bn1.num_batches_tracked" -> count + 1 as a pointer */
    int64_t batches_at_start; /* batches_tracked at the start of the run */
    const char *frozen_norms; /* patterns of scale and shift of frozen norms, or NULL */
} td_tracked;

/** Read `from_file`; release it even after a failure. */
td_status td_tracked_read(const td_tensors *t, int64_t batches_at_start,
                          td_tracked *out) TD_CHECKED;
void td_tracked_release(td_tracked *k);

/**
 * Append a program's weights, and the state selected by `what`, to a set, which owns the bytes.  If
 * there are averages, a frozen weight is its own average.  `tracked` NULL: all norms have tracked
 * batches_tracked batches.
 */
td_status td_weights_save(td_program *p, unsigned what, int64_t batches_tracked,
                          const td_tracked *tracked, td_tensors *t) TD_CHECKED;

/**
 * TD_ENUMERIC: a tensor of the set holds a NaN or an infinity; the message names the first.  State
 * of an unfinished step is checked only `with_step`: with loss scaling it may overflow and is
 * discarded.
 */
td_status td_weights_check_finite(const td_tensors *t, bool with_step) TD_CHECKED;

/**
 * Initialize state that `file` (already loaded, or NULL) does not have: averages with the averaged
 * values, pending statistics with the current ones.
 */
td_status td_weights_init_missing(td_program *p, const td_tensors *file) TD_CHECKED;

/** The length of the prefix of a parameter's name, "momentum.", "ema.", ...; 0: none. */
size_t td_weight_prefix(const char *name);

/** Batches that the file's norms have tracked; 0 if unknown. */
int64_t td_weights_batches(const td_tensors *t);

/**
 * Copy to every parameter of `to` the parameter `prefix` + name of `from` (prefix "" or "ema."), or
 * the one without prefix for a frozen weight.
 */
td_status td_weights_copy(td_program *from, const char *prefix, td_program *to) TD_CHECKED;

/** The number of rows of a matrix or filter, by our name; 0: the file does not have it. */
int td_weights_rows(const td_tensors *t, const char *wanted);

/**
 * The side of the images that weights with position embeddings fit; 0: the network has none, or
 * the file's belong to no square image.
 */
int td_weights_side(const td_tensors *t, const td_model_opts *model);

/**
 * Channels of the images that a weight file's network reads, by its metadata or by the shape of its
 * first filter; 0: unknown.
 */
int td_weights_channels(const td_tensors *t, const td_model_opts *model);

/** The number of classes of a weight file: rows of the network's last layer; 0: unknown. */
int td_weights_classes(const td_tensors *t, const td_model_opts *model);

#endif
