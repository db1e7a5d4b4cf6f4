/*
 * io/tar.h -- the entries of a tar file, in order, with the place of their contents
 *
 *     td_tar t;
 *     td_tar_entry e;
 *     TD_OUT(td_tar_open("train-000.tar", &t));
 *     for (;;) {
 *         TD_OUT(td_tar_next(&t, &e));
 *         if (!e.name)
 *             break;
 *         ... e.n_bytes bytes at e.offset of the file ...
 *     }
 *     td_tar_close(&t);
 *
 * libarchive reads the headers: the formats ustar, pax and GNU.  Folders are skipped.  The file is
 * not trusted: checksums, sizes, names, places and the end are checked.
 */
#ifndef TD_IO_TAR_H
#define TD_IO_TAR_H

#include <locale.h>

#include "base/text.h"
#include "io/blob.h"

enum { TD_TAR_WINDOW = 4096 };

/** A regular file in a tar. */
typedef struct {
    const char *name; /* valid until the next call; NULL: the end */
    int64_t header;   /* byte at which its header begins, for messages */
    int64_t offset, n_bytes;
} td_tar_entry;

typedef struct {
    td_blob file;
    struct archive *archive; /* libarchive's; made by the first td_tar_next */
    locale_t utf8;           /* for names; 0: not supported */
    int64_t next;            /* byte at which the next header must begin */
    int64_t read_at;         /* next byte for libarchive */
    td_status st;            /* failure of reading, which libarchive does not pass on */
    int64_t window_at;       /* the part of the file in `window` */
    size_t window_n;
    unsigned char window[TD_TAR_WINDOW];
} td_tar;

/**
 * Open a file; `path` is borrowed.  TD_ENOTFOUND; TD_EIO unreadable, no regular file.  Close it
 * after a failure, too.
 */
TD_CHECKED td_status td_tar_open(const char *path, td_tar *out);

/** The same for bytes in memory, borrowed. */
void td_tar_from(const void *bytes, size_t n_bytes, const char *what, td_tar *out);

/**
 * The next file.  TD_EFORMAT no tar, a wrong checksum or number, a name that is missing or has
 * control characters, a truncated file, bytes after the end; TD_EUNSUPPORTED a link, a device, a
 * sparse file, a compressed tar; TD_ELIMIT a name longer than 64 KiB; each with the byte of its
 * header.  TD_EIO, TD_ENOMEM.
 */
TD_CHECKED td_status td_tar_next(td_tar *t, td_tar_entry *out);

/** Read the content of an entry into `to`, which has room for its bytes.  TD_EIO. */
TD_CHECKED td_status td_tar_read(td_tar *t, const td_tar_entry *e, void *to);

void td_tar_close(td_tar *t);

#endif
