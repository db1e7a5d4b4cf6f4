/*
 * serve/encoding.h -- compressed bodies of requests (Content-Encoding: gzip, deflate)
 */
#ifndef TD_SERVE_ENCODING_H
#define TD_SERVE_ENCODING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum { TD_ENCODING_NONE, TD_ENCODING_DEFLATED, TD_ENCODING_UNKNOWN } td_encoding;

/** The encoding in a Content-Encoding header; `value` is NULL if there is none. */
td_encoding td_encoding_of(const char *value);

/**
 * Decompress a gzip or zlib stream; *out is td_alloc'ed.  TD_EFORMAT the stream is damaged,
 * truncated or followed by other bytes; TD_ELIMIT the output exceeds `max` bytes; TD_ENOMEM.
 */
TD_CHECKED td_status td_encoding_expand(const void *bytes, size_t n, size_t max, char **out,
                                        size_t *n_out);

#endif
