/*
 * runtime/tune_cache.h -- the file of timings measured on this machine: text -> number
 *
 *     tandem-tune 1
 *     machine AMD EPYC 9B14; avx512_bf16; 2 threads; oneDNN 3.2.0
 *     0.00158 time dnnl_conv_grad_w conv2d_grad_w ...
 *     end 8f14e45fceea167a
 *
 * The last line holds the FNV-1a hash of all bytes before it.  A file that is damaged, of another
 * machine or of another version is left out with a warning; the next save replaces it.
 */
#ifndef TD_RUNTIME_TUNE_CACHE_H
#define TD_RUNTIME_TUNE_CACHE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct td_tune_cache td_tune_cache;

/**
 * The numbers of `path` if it is of `machine`; else none.  `path` is copied; "" keeps nothing.
 * TD_ENOMEM only: a file that cannot be used is warned about, one that is not there is not.
 */
TD_CHECKED td_status td_tune_cache_open(const char *path, const char *machine, td_tune_cache **out);
void td_tune_cache_free(td_tune_cache *c);

bool td_tune_cache_is_empty(const td_tune_cache *c);

/** false: nothing is known of `key`. */
bool td_tune_cache_get(const td_tune_cache *c, const char *key, double *out);

/** Set key, one line without control bytes, to value. */
TD_CHECKED td_status td_tune_cache_put(td_tune_cache *c, const char *key, double value);

/** Write the file, with its folder, if anything was put since; TD_EIO. */
TD_CHECKED td_status td_tune_cache_save(td_tune_cache *c);

/** "$XDG_CACHE_HOME/tandem/tune-HASH.txt", or in ~/.cache; "" where neither is known; owned by the
    caller.  NULL: no memory. */
char *td_tune_cache_default(const char *machine) TD_CHECKED;

#endif
