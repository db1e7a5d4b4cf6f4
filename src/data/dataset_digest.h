/*
 * data/dataset_digest.h -- a digest of the content of a data set's files
 *
 * Ranks compare it before a run begins, so that a rank whose copy of the data differs is found even
 * where names and counts agree.
 */
#ifndef TD_DATA_DATASET_DIGEST_H
#define TD_DATA_DATASET_DIGEST_H

#include <stdint.h>

#include "base/text.h"
#include "data/dataset.h"

/**
 * The digest (XXH3, 64 bits) of the images of a folder, or the one stored in a pack.  Reading is
 * bounded: of at most 4,096 samples, spread evenly, the size and the first bytes, 64 MiB in all.  A
 * set of up to 64 MiB in up to 4,096 equal files is thus read in full.  A file that cannot be read
 * counts as absent.  A data set without image files (tensors, synthetic) has 0.  TD_ENOMEM.
 */
TD_CHECKED td_status td_dataset_digest(const td_dataset *ds, uint64_t *out);

/**
 * Lines that are equal on ranks with the same data: the number of samples and classes, and digests
 * of the names and labels, the contents and the annotations.  A NULL data set adds none.
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_describe_data(const char *what, const td_dataset *ds, td_text *out);

#endif
