/*
 * pass/cast_cache.h -- one cast per value and type, shared by all readers
 */
#ifndef TD_PASS_CAST_CACHE_H
#define TD_PASS_CAST_CACHE_H

#include "ir/rewrite.h"

typedef struct td_cast_entry td_cast_entry;

/* All zero is an empty cache. */
typedef struct {
    td_cast_entry **of; /* [new values, grown] */
    size_t cap;
    td_arena arena;
    int n_casts;
} td_cast_cache;

/**
 * New value `v` as `to`: itself, the cast emitted before, or a new cast.  Values that are not
 * floats are returned unchanged; so is everything after the builder has failed.
 */
td_value *td_cast_shared(td_rewriter *rw, td_cast_cache *c, td_value *v, td_dtype to);

void td_cast_cache_release(td_cast_cache *c);

#endif
