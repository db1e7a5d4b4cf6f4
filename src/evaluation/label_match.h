/*
 * evaluation/label_match.h -- maps each class of a data set to an output of a network
 *
 *     --label-map FILE     by the file
 *     --labels-by-order    folder i is output i
 *     the outputs' names   by name: the weight file's, or those of --classes FILE
 *     1000 outputs         folders with the WordNet ids of ILSVRC 2012, or ImageNet's names: by
 *                          these lists
 *     neither              in order, if there are as many folders as outputs
 *
 * An ambiguous case is an error: with wrong outputs, a good network would get bad scores.
 */
#ifndef TD_EVALUATION_LABEL_MATCH_H
#define TD_EVALUATION_LABEL_MATCH_H

#include "checkpoint/class_names.h"
#include "tandem/dataset.h"

typedef struct {
    const char *weights;         /* path of the weight file, for messages */
    const td_class_names *names; /* names of the outputs */
    int n_outputs;
    const char *label_map; /* --label-map FILE; NULL: none */
    bool by_order;         /* --labels-by-order */
} td_label_match;

/**
 * Number the classes of `ds` as the outputs; afterwards it has n_outputs classes.  A data set whose
 * labels are numbers (tensors, synthetic) is not changed.  Logs one line unless each class has the
 * number of its output.
 *
 *   TD_EUSAGE   --label-map or --labels-by-order for labels that are numbers
 *   TD_ESHAPE   more or fewer classes than outputs, and no mapping is given
 *   TD_EFORMAT  a class matches no output or is missing in the map; a malformed map
 *   TD_ENOTFOUND, TD_EIO, TD_ELIMIT, TD_ENOMEM
 */
td_status td_label_match_apply(const td_label_match *m, td_dataset *ds) TD_CHECKED;

#endif
