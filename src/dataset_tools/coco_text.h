/*
 * dataset_tools/coco_text.h -- the boxes of a data set as an annotation file
 */
#ifndef TD_DATASET_TOOLS_COCO_TEXT_H
#define TD_DATASET_TOOLS_COCO_TEXT_H

#include "data/dataset.h"

/** The file name of a sample in the annotations. */
typedef const char *td_file_name_fn(const void *ctx, int64_t sample);

/**
 * Add COCO instances: images, annotations and categories.  Skipped entries and members that are not
 * used are not written.  The digits are read again as the same numbers.
 */
void td_coco_text_add(const td_dataset *ds, td_file_name_fn *name, const void *ctx, td_text *t);

#endif
