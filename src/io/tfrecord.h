/*
 * io/tfrecord.h -- the records of a TFRecord file, in order, with the place of their data
 *
 *     td_tfrecords t;
 *     td_tfrecord r;
 *     TD_OUT(td_tfrecords_open("train-00000-of-01024", &t));
 *     for (;;) {
 *         TD_OUT(td_tfrecords_next(&t, &r));
 *         if (r.offset == 0)
 *             break;
 *         ... r.n_bytes bytes at r.offset of the file ...
 *     }
 *     td_tfrecords_close(&t);
 *
 * A record is its length (u64), the masked CRC-32C of these 8 bytes (u32), the data, and the masked
 * CRC-32C of the data (u32), all lowest byte first.  Walking reads the lengths and checks their
 * CRCs; data are skipped, td_tfrecord_check checks those that were read.  The file is not trusted.
 * Source: TensorFlow, core/lib/io/record_writer.h.
 */
#ifndef TD_IO_TFRECORD_H
#define TD_IO_TFRECORD_H

#include <stdbool.h>

#include "io/blob.h"

enum { TD_TFRECORD_HEAD = 12, TD_TFRECORD_FOOT = 4, TD_TFRECORD_WINDOW = 4096 };

typedef struct {
    int64_t at;              /* byte at which the record begins, for messages */
    int64_t offset, n_bytes; /* its data; offset 0: the end of the file */
} td_tfrecord;

typedef struct {
    td_blob file;
    int64_t at;        /* the next record */
    int64_t window_at; /* the part of the file in `window` */
    size_t window_n;
    unsigned char window[TD_TFRECORD_WINDOW];
} td_tfrecords;

/** Could a file of n_bytes, whose first n bytes are `head`, consist of records? */
bool td_tfrecord_begins(const void *head, size_t n, uint64_t n_bytes);

/** Is it a regular file that begins with a record?  Errors are ignored. */
bool td_tfrecord_is(const char *path);

/**
 * Open a file; `path` is borrowed.  TD_ENOTFOUND; TD_EIO unreadable, no regular file.  Close it
 * after a failure, too.
 */
TD_CHECKED td_status td_tfrecords_open(const char *path, td_tfrecords *out);

/** The same for bytes in memory, borrowed. */
void td_tfrecords_from(const void *bytes, size_t n_bytes, const char *what, td_tfrecords *out);

/**
 * The next record.  TD_EFORMAT a wrong CRC of a length, a record that is longer than the file;
 * TD_EUNSUPPORTED a compressed file; each with the byte.  TD_EIO.
 */
TD_CHECKED td_status td_tfrecords_next(td_tfrecords *t, td_tfrecord *out);

/** Copy bytes of the file, which the caller has checked to be in it.  TD_EIO. */
TD_CHECKED td_status td_tfrecords_read(td_tfrecords *t, int64_t at, size_t n, void *to);

void td_tfrecords_close(td_tfrecords *t);

/**
 * Check a record's data, n_bytes with the 4 bytes of their CRC after them; `at` is the record's
 * place.  TD_EFORMAT.
 */
TD_CHECKED td_status td_tfrecord_check(const void *data, size_t n_bytes, const char *what,
                                       int64_t at);

#endif
