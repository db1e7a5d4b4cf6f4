/*
 * io/blob.h -- random access to the bytes of a file or of memory
 *
 * For file format readers that need the size and parts of the content.  To access the whole
 * content, use io/mapping.h.
 *
 *     td_blob b;
 *     TD_TRY(td_blob_open("w.pth", &b));
 *     TD_OUT(td_blob_read(&b, 0, sizeof head, head));
 *     td_blob_close(&b);
 */
#ifndef TD_IO_BLOB_H
#define TD_IO_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    const char *what;           /* names it in messages; borrowed */
    const unsigned char *bytes; /* borrowed; NULL: a file */
    int fd;
    uint64_t n_bytes;
} td_blob;

/** TD_ENOTFOUND no such file; TD_EIO unreadable, or not a regular file.  `path` is borrowed. */
TD_CHECKED td_status td_blob_open(const char *path, td_blob *out);

/** A blob over memory, which must outlive it. */
td_blob td_blob_of(const void *bytes, size_t n_bytes, const char *what);

/** Does nothing for memory, or if opening failed. */
void td_blob_close(td_blob *b);

/**
 * Read exactly `n_bytes` at offset `at`.  TD_EIO: unreadable, or the file became shorter after it
 * was opened.
 */
TD_CHECKED td_status td_blob_read(const td_blob *b, uint64_t at, size_t n_bytes, void *to);

#endif
