/*
 * pth/pickle_names.h -- the names that a pickle may use, and what stands for a call of each
 */
#ifndef TD_PTH_PICKLE_NAMES_H
#define TD_PTH_PICKLE_NAMES_H

#include "pth/pickle.h"

/** Makes `out`, whose kind is TD_PICKLE_NONE, of a call's arguments; nothing is called. */
typedef td_status (*td_pickle_call)(const td_plist *args, td_pvalue *out);

struct td_pickle_name {
    const char *module, *name;
    td_pickle_call call; /* NULL: not to be called */
    td_dtype dtype;      /* of a storage class; TD_DT_NONE: not one that is computed with */
    size_t n_bytes;      /* of an element of it */
    bool is_storage;
    bool is_opaque; /* its objects are never looked into */
};

/** NULL: not in the table. */
const td_pickle_name *td_pickle_name_find(td_ptext module, td_ptext name);

#endif
