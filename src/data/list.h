/*
 * data/list.h -- a list of images and labels: CSV, TSV or text
 *
 *     image,label,split            images/7.jpg 3
 *     images/7.jpg,rose,train      "images/a b.jpg" needs no quotes here: the last blank separates
 *     "images/8, 9.jpg",tulip,val
 */
#ifndef TD_DATA_LIST_H
#define TD_DATA_LIST_H

#include "data/dataset.h"

/** Is a column of this name, in the first row, that of the labels? */
bool td_list_is_label_column(const char *name);

/** Is it a regular file whose name ends in .csv, .tsv or .txt? */
bool td_list_is(const char *path);

/**
 * Open a list.  TD_EFORMAT a malformed row, a label or a path that is empty, a path outside of the
 * list's folder, a file that occurs twice, one class; TD_ENOTFOUND a file that does not exist, no
 * row of the split; each with its line.  TD_ELIMIT, TD_EIO, TD_ENOMEM.
 */
TD_CHECKED td_status td_list_open(const td_dataset_opts *opts, td_dataset *ds);

/** The same from the list's bytes; files are not looked for.  For tests. */
TD_CHECKED td_status td_list_parse(const char *bytes, size_t n_bytes, const td_dataset_opts *opts,
                                   bool looks_for_files, td_dataset *ds);

#endif
