/*
 * io/delimited.h -- reads rows of fields: CSV and TSV by RFC 4180, or a name and a label by line;
 * writes fields of CSV
 *
 *     td_delimited d;
 *     TD_OUT(td_delimited_begin(&d, bytes, n_bytes, "list.csv"));
 *     for (;;) {
 *         TD_OUT(td_delimited_next(&d));
 *         if (d.n_fields == 0)
 *             break;
 *         ... d.line, td_delimited_field(&d, 0) ...
 *     }
 *     td_delimited_release(&d);
 */
#ifndef TD_IO_DELIMITED_H
#define TD_IO_DELIMITED_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

enum { TD_DELIMITED_FIELDS = 1024, TD_DELIMITED_FIELD_BYTES = 1 << 16 };

/** All zero is released.  Bytes and names are borrowed. */
typedef struct {
    const char *what; /* the file, in messages */
    const char *bytes;
    size_t n_bytes, at;
    char delimiter;                     /* comma, tab; blank: two fields, cut at the last blank */
    int64_t line, next;                 /* line of the row, and of the next one, from 1 */
    int n_fields;                       /* of the row; 0: the end */
    size_t fields[TD_DELIMITED_FIELDS]; /* offsets in `text` */
    td_text text;
} td_delimited;

/**
 * Begin.  The delimiter is a tab if `what` ends in .tsv or the first line has one; otherwise a
 * comma if `what` ends in .csv or the first line has one; otherwise a blank.  A byte order mark is
 * skipped.  TD_EFORMAT a zero byte (with its line).
 */
TD_CHECKED td_status td_delimited_begin(td_delimited *d, const char *bytes, size_t n_bytes,
                                        const char *what);

/**
 * Read the next row that is not empty.  TD_EFORMAT, with the line: a quoted field without an end,
 * or with text after it, a quote inside an unquoted field; TD_ELIMIT more fields or a longer field
 * than the limits above; TD_ENOMEM.
 */
TD_CHECKED td_status td_delimited_next(td_delimited *d);

/** Field i of the row, valid until the next row. */
const char *td_delimited_field(const td_delimited *d, int i);

void td_delimited_release(td_delimited *d);

/** Add a field of a CSV file, quoted where it must be. */
void td_delimited_add(td_text *out, const char *field);

#endif
