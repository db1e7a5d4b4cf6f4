/*
 * data/shards.h -- WebDataset: shards, tar files with the images and labels of samples
 *
 *     train-000.tar:  n01/7.jpg   n01/7.cls     "3"
 *                     n01/8.png   n01/8.json    {"label": 3, ...}
 *
 * The files of a sample follow each other and have the same name up to the first dot.
 */
#ifndef TD_DATA_SHARDS_H
#define TD_DATA_SHARDS_H

#include "data/dataset.h"

/**
 * Is it a tar file by its name, a pattern of them ("train-{000..009}.tar"), or a folder whose only
 * content, or that of its train or val, is such files?
 */
bool td_shards_is(const char *path);

/**
 * Open them: lists the members of every tar; nothing is unpacked.  TD_EFORMAT, TD_EUNSUPPORTED and
 * TD_ELIMIT with file, sample and byte: a malformed tar (io/tar.h), a sample without image or
 * label, with two, or that occurs twice; TD_ENOTFOUND no shard of the split.
 */
TD_CHECKED td_status td_shards_open(const td_dataset_opts *opts, td_dataset *ds);

/** The same from the bytes of one tar, whose images cannot be read.  For tests. */
TD_CHECKED td_status td_shards_parse(const void *bytes, size_t n_bytes, const char *what,
                                     td_dataset *ds);

#endif
