/*
 * io/blob.h -- bytes of a file or of memory, read at any place
 *
 * What a reader of a file format needs: how many bytes there are, and some of them.  Whoever wants
 * all of them takes io/mapping.h.
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

/** TD_ENOTFOUND no such file; TD_EIO unreadable, or no regular file.  `path` is borrowed. */
TD_CHECKED td_status td_blob_open(const char *path, td_blob *out);

/** Memory that outlives the blob. */
td_blob td_blob_of(const void *bytes, size_t n_bytes, const char *what);

/** Fine for memory, and when opening failed. */
void td_blob_close(td_blob *b);

/** Exactly `n_bytes` from `at`.  TD_EIO: unreadable, or the file became shorter meanwhile. */
TD_CHECKED td_status td_blob_read(const td_blob *b, uint64_t at, size_t n_bytes, void *to);

#endif
