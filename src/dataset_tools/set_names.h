/*
 * dataset_tools/set_names.h -- names of files and class folders for data sets of any kind
 *
 * A folder's or a pack's own names are such; those of lists, tar files and TFRecords need not be.
 */
#ifndef TD_DATASET_TOOLS_SET_NAMES_H
#define TD_DATASET_TOOLS_SET_NAMES_H

#include "base/map.h"
#include "dataset_tools/split_sets.h"

/** A text as the name of one file or folder that is not hidden; NULL: no memory. */
char *td_file_name(td_arena *a, const char *text) TD_CHECKED;

bool td_has_image_ending(const char *name);

/** A split's data set, or, if the classes are numbers, the one with the most classes: a small split
    may lack the last ones. */
const td_dataset *td_named_set(const td_split_sets *s, const td_dataset *ds);

/**
 * The folders [n_classes of td_named_set] of the classes: their names if these then have the order
 * of the classes; else the number with as many digits as the largest.
 */
td_status td_class_folders(td_arena *a, const td_split_sets *s, const td_dataset *ds,
                           const char ***out) TD_CHECKED;

/** A name for sample i, below `folder`, that is not yet among those `taken`, which it joins. */
td_status td_unique_name(td_arena *a, td_map *taken, const char *folder, const char *base,
                         const char *ending, int64_t i, const char **out) TD_CHECKED;

#endif
