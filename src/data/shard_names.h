/*
 * data/shard_names.h -- which tar files a data set of shards consists of
 */
#ifndef TD_DATA_SHARD_NAMES_H
#define TD_DATA_SHARD_NAMES_H

#include "data/dataset.h"

/** Paths in an arena.  Zero-initialise; release `paths` with td_free. */
typedef struct {
    td_arena *arena;
    const char **paths;
    size_t n, cap;
} td_shard_names;

/**
 * Expand a pattern: "{000..012}" counts, with as many digits; "{a,b}" lists.  TD_EFORMAT a brace
 * without an end, or what counts backward; TD_ELIMIT more than a million names; TD_ENOMEM.
 */
TD_CHECKED td_status td_shard_names_expand(const char *pattern, td_shard_names *out);

/**
 * The shards of a split: of <path>/<split>/, or those of `path` whose name has the split as a word
 * ("imagenet-train-003.tar"), or all.  *is_unsplit: they are not divided into splits.
 * TD_ENOTFOUND: there are none.
 */
TD_CHECKED td_status td_shard_names_find(const td_dataset_opts *opts, td_shard_names *out,
                                         bool *is_unsplit);

/** As td_shards_is. */
bool td_shard_names_are(const char *path);

#endif
