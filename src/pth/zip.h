/*
 * pth/zip.h -- reads uncompressed entries of a zip archive
 *
 * libzip reads the directory and the entries.  Before that this module checks the layout, which
 * libzip does not: the directory must end where its end record says, and no two entries may share a
 * byte of the file.  Compressed or encrypted entries are an error, so that an archive never yields
 * more bytes than it has.  So are duplicate names and names that lead out of the folder.
 *
 *     td_zip *z;
 *     TD_TRY(td_zip_open(&blob, &z));
 *     size_t i;
 *     if (td_zip_find(z, "archive/data.pkl", &i))
 *         TD_OUT(td_zip_read(z, i, to));        reads td_zip_bytes(z, i) bytes
 *     td_zip_close(z);
 */
#ifndef TD_PTH_ZIP_H
#define TD_PTH_ZIP_H

#include <stdbool.h>

#include "io/blob.h"

typedef struct td_zip td_zip;

/**
 * `b` is borrowed until td_zip_close.
 *
 *   TD_EFORMAT       malformed, overlapping entries, a duplicate name, a name with ".."
 *   TD_EUNSUPPORTED  an entry is compressed or encrypted
 *   TD_ELIMIT        more than 100,000 entries
 *   TD_EIO, TD_ENOMEM
 */
TD_CHECKED td_status td_zip_open(const td_blob *b, td_zip **out);
void td_zip_close(td_zip *z);

size_t td_zip_count(const td_zip *z);
const char *td_zip_name(const td_zip *z, size_t i);
uint64_t td_zip_bytes(const td_zip *z, size_t i); /* at most the file's size */
bool td_zip_find(const td_zip *z, const char *name, size_t *i);

/** Read a whole entry and check its CRC: TD_EFORMAT "... was damaged". */
TD_CHECKED td_status td_zip_read(td_zip *z, size_t i, void *to);

#endif
