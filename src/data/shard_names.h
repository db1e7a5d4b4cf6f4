/*
 * data/shard_names.h -- which tar or TFRecord files a data set of shards consists of
 */
#ifndef TD_DATA_SHARD_NAMES_H
#define TD_DATA_SHARD_NAMES_H

#include "data/dataset.h"

typedef enum { TD_SHARDS_TAR, TD_SHARDS_RECORD } td_shard_kind;

/** "tar file", "TFRecord file" */
const char *td_shard_word(td_shard_kind kind);

/** Paths in an arena.  Zero-initialise but arena and kind; release `paths` with td_free. */
typedef struct {
    td_arena *arena;
    td_shard_kind kind;
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
 * ("imagenet-train-003.tar"), or all; `path` may be a pattern, with '*' and '?' in
 * its last part.  *is_unsplit: they are not divided into splits.  TD_ENOTFOUND: there are none.
 */
TD_CHECKED td_status td_shard_names_find(const td_dataset_opts *opts, td_shard_names *out,
                                         bool *is_unsplit);

/** Is it a file of this kind, a pattern of such files, or a folder that consists of them? */
bool td_shard_names_are(const char *path, td_shard_kind kind);

#endif
