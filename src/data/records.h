/*
 * data/records.h -- data sets of TFRecords, as TensorFlow's programs write them
 *
 *     records.c          opens them
 *     record_walk.c      walks the records of files
 *     record_classes.c   ImageNet: images with classes
 *     record_boxes.c     COCO: images with boxes
 */
#ifndef TD_DATA_RECORDS_H
#define TD_DATA_RECORDS_H

#include "data/dataset.h"

/**
 * Is it a TFRecord file, a pattern of such files ("train-*", "train-{00000..01023}-of-01024"), or a
 * folder with such files, or its train or val?
 */
bool td_records_is(const char *path);

/**
 * Open them: reads every record but its image.  TD_EFORMAT, TD_EUNSUPPORTED and TD_ELIMIT with file
 * and byte: a malformed file (io/tfrecord.h, tf_example.h), a record without image, or without
 * label or size; TD_ENOTFOUND no file of the split.
 */
TD_CHECKED td_status td_records_open(const td_dataset_opts *opts, td_dataset *ds);

/** The same from the bytes of one file, whose images cannot be read.  For tests. */
TD_CHECKED td_status td_records_parse(const void *bytes, size_t n_bytes, const char *what,
                                      const td_dataset_opts *opts, td_dataset *ds);

/** Are there records of this split (NULL: any), and does the first have boxes and no class? */
bool td_records_is_annotated(const char *path, const char *split);

#endif
