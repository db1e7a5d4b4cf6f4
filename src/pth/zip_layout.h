/*
 * pth/zip_layout.h -- checks the layout of a zip archive before a library reads it
 */
#ifndef TD_PTH_ZIP_LAYOUT_H
#define TD_PTH_ZIP_LAYOUT_H

#include "io/blob.h"

#define TD_ZIP_ENTRIES_MAX 100000

/**
 * Check that the archive is unambiguous: one end record, at the end; a directory that fills its
 * declared space; entries within the file, before the directory, without overlap.  A zip64 record
 * must agree with the plain one.  *n_entries is their number.
 * TD_EFORMAT, TD_ELIMIT (more than TD_ZIP_ENTRIES_MAX, a directory above 64 MB), TD_EIO, TD_ENOMEM.
 */
TD_CHECKED td_status td_zip_check_layout(const td_blob *b, uint64_t *n_entries);

#endif
