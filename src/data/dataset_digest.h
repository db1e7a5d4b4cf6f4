/*
 * data/dataset_digest.h -- a digest of the content of a data set's files
 *
 * Ranks compare it before a run begins, to find a rank whose copy of the data differs although
 * names and counts agree.
 */
#ifndef TD_DATA_DATASET_DIGEST_H
#define TD_DATA_DATASET_DIGEST_H

#include <stdint.h>

#include "base/text.h"
#include "data/dataset.h"

/**
 * The digest (XXH3, 64 bits) of the images of a folder, or the one stored in a pack.  Reading is
 * bounded: the size and the first bytes of at most 4,096 evenly spread samples, 64 MiB in total.
 * Up to 4,096 files of equal size are therefore read completely if they total at most 64 MiB.  A
 * file that cannot be read counts as absent.  A data set without image files (tensors, synthetic)
 * has 0.  TD_ENOMEM.
 */
TD_CHECKED td_status td_dataset_digest(const td_dataset *ds, uint64_t *out);

/**
 * Add lines that are equal on ranks with the same data: the number of samples and classes, and
 * digests of the names and labels, the contents and the annotations.  A NULL data set adds none.
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_describe_data(const char *what, const td_dataset *ds, td_text *out);

#endif
