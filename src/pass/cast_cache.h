/*
 * pass/cast_cache.h -- one cast per value and type, shared by all readers
 */
#ifndef TD_PASS_CAST_CACHE_H
#define TD_PASS_CAST_CACHE_H

#include "ir/rewrite.h"

typedef struct td_cast_entry td_cast_entry;

/* Zero-initialise for an empty cache. */
typedef struct {
    td_cast_entry **of; /* [new values, grown] */
    size_t cap;
    td_arena arena;
    int n_casts;
} td_cast_cache;

/**
 * The new value `v` as dtype `to`: `v` itself, an existing cast, or a new one.  Values that are not
 * floats, and all values after the builder has failed, are returned unchanged.
 */
td_value *td_cast_shared(td_rewriter *rw, td_cast_cache *c, td_value *v, td_dtype to);

void td_cast_cache_release(td_cast_cache *c);

#endif
