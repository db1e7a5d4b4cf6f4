/*
 * pth/pickle_names.h -- the names that a pickle may use, and the values that calls of them create
 */
#ifndef TD_PTH_PICKLE_NAMES_H
#define TD_PTH_PICKLE_NAMES_H

#include "pth/pickle.h"

/** Creates the value of a call from its arguments, without calling anything; out->kind is
    TD_PICKLE_NONE on entry. */
typedef td_status (*td_pickle_call)(const td_plist *args, td_pvalue *out);

struct td_pickle_name {
    const char *module, *name;
    td_pickle_call call; /* NULL: must not be called */
    td_dtype dtype;      /* storage classes: dtype; TD_DT_NONE: not supported here */
    size_t n_bytes;      /* bytes per element */
    bool is_storage;
    bool is_opaque; /* its objects are opaque */
};

/** Look up a name; NULL: not in the table. */
const td_pickle_name *td_pickle_name_find(td_ptext module, td_ptext name);

#endif
