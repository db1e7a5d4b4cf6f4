/*
 * data/record_sets.h -- fills data sets from the records of TFRecord files
 */
#ifndef TD_DATA_RECORD_SETS_H
#define TD_DATA_RECORD_SETS_H

#include "data/record_walk.h"

/** Fill `ds`, whose root is set, with images with classes or with boxes.  As td_records_open. */
TD_CHECKED td_status td_record_classes(const td_record_source *s, const td_dataset_opts *opts,
                                       td_dataset *ds);
TD_CHECKED td_status td_record_boxes(const td_record_source *s, const td_dataset_opts *opts,
                                     td_dataset *ds);

#endif
