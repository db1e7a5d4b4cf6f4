/*
 * checkpoint/class_names.h -- the names of a network's outputs
 *
 * --classes FILE wins over the names in the weight file; a classifier with 1000 outputs and neither
 * of them is assumed to have ImageNet's classes, which is logged (td_class_names_log).
 *
 *     td_class_names names;
 *     TD_TRY(td_class_names_open(&(td_class_names_opts){ .weights = t, .path = "w.safetensors",
 *                                                        .n_outputs = 1000 }, &names));
 *     td_class_names_release(&names);
 *
 * A file of names is UTF-8 text with a name on each line, or JSON: a list of names; or an object
 * that maps numbers to names or to pairs [id, name] (Keras's imagenet_class_index.json), or names
 * to numbers (class_to_idx of torchvision).
 */
#ifndef TD_CHECKPOINT_CLASS_NAMES_H
#define TD_CHECKPOINT_CLASS_NAMES_H

#include "io/safetensors.h"
#include "tandem/model.h"

typedef enum {
    TD_NAMES_NONE,
    TD_NAMES_WEIGHTS, /* from the weight file */
    TD_NAMES_FILE,    /* from --classes FILE */
    TD_NAMES_IMAGENET /* assumed, because there are 1000 outputs */
} td_names_source;

/** All zero is empty.  There may be fewer names than outputs; names may repeat. */
typedef struct {
    int n;
    char **names; /* [n] owned */
    td_names_source source;
} td_class_names;

typedef struct {
    const td_tensors *weights;
    const char *path;           /* path of the weight file, for messages */
    const char *classes;        /* --classes FILE; NULL: none */
    const td_model_opts *model; /* a classifier */
    int n_outputs;              /* number of outputs of the network; 0: unknown, not checked */
} td_class_names_opts;

/**
 * Find the names of a classifier's outputs.
 *   TD_ESHAPE   the number of names in FILE is not the number of outputs (the last of the
 *               TensorFlow variant's 1001 outputs needs no name), or the weight file has more names
 *               than outputs
 *   TD_EFORMAT  the file is malformed
 *   TD_ENOTFOUND, TD_EIO, TD_ELIMIT, TD_ENOMEM
 */
td_status td_class_names_open(const td_class_names_opts *opts, td_class_names *out) TD_CHECKED;
void td_class_names_release(td_class_names *c);

/** Log one line if the names are assumed. */
void td_class_names_log(const td_class_names *c, const char *weights);

/** The number of outputs by the options of a network: num_classes, or the graph's, or 1000. */
int td_class_names_outputs(const td_model_opts *model);

/**
 * Read a file of names.  `first`: the number of the first name in JSON objects, 0, or 1 for
 * detectors.  Errors as above except TD_ESHAPE.
 */
td_status td_class_names_read(const char *path, int first, td_class_names *out) TD_CHECKED;

/** The same from `n` bytes followed by a NUL byte; modifies them. */
td_status td_class_names_parse(char *text, size_t n, const char *path, int first,
                               td_class_names *out) TD_CHECKED;

/**
 * Store the names of --classes FILE in the metadata of `t`, the weights of a classifier or detector
 * with n_outputs classes.  Errors as for td_class_names_open; TD_EUNSUPPORTED: n_outputs is 0,
 * unknown.
 */
td_status td_class_names_put(const char *classes, const char *path, const td_model_opts *model,
                             int n_outputs, td_tensors *t) TD_CHECKED;

/**
 * Return TD_ESHAPE with a message: the file `path` has `n` names, but the network of `weights` has
 * n_outputs outputs.
 */
td_status td_class_names_differ(const char *path, int n, const char *weights,
                                int n_outputs) TD_CHECKED;

#endif
