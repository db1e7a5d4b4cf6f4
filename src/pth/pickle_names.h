/*
 * pth/pickle_names.h -- the names that a pickle may use, and the value that a call of each makes
 */
#ifndef TD_PTH_PICKLE_NAMES_H
#define TD_PTH_PICKLE_NAMES_H

#include "pth/pickle.h"

/** Makes `out`, whose kind is TD_PICKLE_NONE, of a call's arguments; nothing is called. */
typedef td_status (*td_pickle_call)(const td_plist *args, td_pvalue *out);

struct td_pickle_name {
    const char *module, *name;
    td_pickle_call call; /* NULL: not to be called */
    td_dtype dtype;      /* of a storage class; TD_DT_NONE: a type not supported here */
    size_t n_bytes;      /* of an element */
    bool is_storage;
    bool is_opaque; /* its objects are opaque */
};

/** NULL: not in the table. */
const td_pickle_name *td_pickle_name_find(td_ptext module, td_ptext name);

#endif
