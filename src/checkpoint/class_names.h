/*
 * checkpoint/class_names.h -- the names of a network's outputs
 *
 * --classes FILE wins over the names in the weight file; a classifier of 1000 outputs without
 * either is assumed to be one of ImageNet, with a line in the log (td_class_names_log).
 *
 *     td_class_names names;
 *     TD_TRY(td_class_names_open(&(td_class_names_opts){ .weights = t, .path = "w.safetensors",
 *                                                        .n_outputs = 1000 }, &names));
 *     td_class_names_release(&names);
 *
 * A file of names is UTF-8 text with a name on each line, or JSON: a list of names; or an object
 * from numbers to names or to pairs [id, name] (Keras's imagenet_class_index.json), or from names
 * to numbers (class_to_idx of torchvision).
 */
#ifndef TD_CHECKPOINT_CLASS_NAMES_H
#define TD_CHECKPOINT_CLASS_NAMES_H

#include "io/safetensors.h"
#include "tandem/model.h"

typedef enum {
    TD_NAMES_NONE,
    TD_NAMES_WEIGHTS, /* of the weight file */
    TD_NAMES_FILE,    /* of --classes FILE */
    TD_NAMES_IMAGENET /* assumed, because there are 1000 outputs */
} td_names_source;

/** All zero is empty.  May name fewer than there are outputs; names may repeat. */
typedef struct {
    int n;
    char **names; /* [n] owned */
    td_names_source source;
} td_class_names;

typedef struct {
    const td_tensors *weights;
    const char *path;           /* the weight file's, for messages */
    const char *classes;        /* --classes FILE; NULL: none */
    const td_model_opts *model; /* a classifier */
    int n_outputs;              /* classes of the network; 0: unknown, and nothing is checked */
} td_class_names_opts;

/**
 * The names of a classifier.
 *   TD_ESHAPE   FILE has another number of names than the network has outputs (of the 1001 outputs
 *               of the TensorFlow variant the last may go without), or the weight file has more
 *   TD_EFORMAT  a file that cannot be understood
 *   TD_ENOTFOUND, TD_EIO, TD_ELIMIT, TD_ENOMEM
 */
td_status td_class_names_open(const td_class_names_opts *opts, td_class_names *out) TD_CHECKED;
void td_class_names_release(td_class_names *c);

/** Log one line if names are assumed. */
void td_class_names_log(const td_class_names *c, const char *weights);

/** The classes that a network has by its options: num_classes, or the graph's, or 1000. */
int td_class_names_outputs(const td_model_opts *model);

/**
 * Read a file of names alone.  `first`: the number of the first one in JSON objects, 0, or of
 * detectors 1.  Errors as above without TD_ESHAPE.
 */
td_status td_class_names_read(const char *path, int first, td_class_names *out) TD_CHECKED;

/** The same from `n` bytes, which are written to, with a NUL byte after them. */
td_status td_class_names_parse(char *text, size_t n, const char *path, int first,
                               td_class_names *out) TD_CHECKED;

/**
 * Put the names of --classes FILE into the metadata of `t`, the weights of a network, classifier or
 * detector, with n_outputs classes.  Errors as of td_class_names_open; TD_EUNSUPPORTED: n_outputs
 * is 0, unknown.
 */
td_status td_class_names_put(const char *classes, const char *path, const td_model_opts *model,
                             int n_outputs, td_tensors *t) TD_CHECKED;

/** TD_ESHAPE: the file `path` has `n` names, the network of `weights` another number of outputs. */
td_status td_class_names_differ(const char *path, int n, const char *weights,
                                int n_outputs) TD_CHECKED;

#endif
