/*
 * dataset_tools/split_sets.h -- the splits of a data set that is packed or unpacked
 */
#ifndef TD_DATASET_TOOLS_SPLIT_SETS_H
#define TD_DATASET_TOOLS_SPLIT_SETS_H

#include "data/dataset.h"

typedef struct {
    td_dataset *sets[2];
    const char *names[2]; /* "" for data without splits */
    int n;
    bool has_boxes;
} td_split_sets;

/**
 * Open the split opts->split; with NULL `train` and `val`, those that exist; if none does, the data
 * itself.  opts->has_boxes has no effect: annotations beside the images are found.  The errors of
 * td_dataset_open.  Release *out after a failure, too.
 */
td_status td_split_sets_open(const td_dataset_opts *opts, td_split_sets *out) TD_CHECKED;
void td_split_sets_release(td_split_sets *s);

#endif
