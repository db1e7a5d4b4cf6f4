/*
 * runtime/tune_cache.h -- the file of timings measured on this machine: text -> number
 *
 *     tandem-tune 1
 *     machine AMD EPYC 9B14; avx512_bf16; 2 threads; oneDNN 3.2.0
 *     0.00158 time dnnl_conv_grad_w conv2d_grad_w ...
 *     end 8f14e45fceea167a
 *
 * The last line holds the FNV-1a hash of all bytes before it.  A file that is damaged, from another
 * machine or from another version is ignored with a warning; the next save replaces it.
 */
#ifndef TD_RUNTIME_TUNE_CACHE_H
#define TD_RUNTIME_TUNE_CACHE_H

#include <stdbool.h>

#include "base/status.h"

typedef struct td_tune_cache td_tune_cache;

/**
 * Read the numbers in `path` if it belongs to `machine`; otherwise start with none.  `path` is
 * copied; "" means no file.  The only error is TD_ENOMEM: an unusable file causes a warning, a
 * missing one does not.
 */
TD_CHECKED td_status td_tune_cache_open(const char *path, const char *machine, td_tune_cache **out);
void td_tune_cache_free(td_tune_cache *c);

bool td_tune_cache_is_empty(const td_tune_cache *c);

/** False if there is no value for `key`. */
bool td_tune_cache_get(const td_tune_cache *c, const char *key, double *out);

/** Set key, one line without control bytes, to value. */
TD_CHECKED td_status td_tune_cache_put(td_tune_cache *c, const char *key, double value);

/** Write the file, and create its folder, if anything was put since the last save; TD_EIO. */
TD_CHECKED td_status td_tune_cache_save(td_tune_cache *c);

/** "$XDG_CACHE_HOME/tandem/tune-HASH.txt", or in ~/.cache; "" if neither is known; owned by the
    caller.  NULL: no memory. */
char *td_tune_cache_default(const char *machine) TD_CHECKED;

#endif
