/*
 * io/json_tokens.h -- reads JSON one value at a time, in constant memory
 *
 * base/json.h builds a tree, which takes twenty times the file's size: too much for a large
 * annotation file of 448 MB.  Here the caller walks through the text and keeps only the values that
 * it needs:
 *
 *     td_tokens *t;
 *     TD_TRY(td_tokens_open("boxes.json", &t));
 *     td_token v;
 *     TD_OUT(td_tokens_value(t, &v));                       v.kind == TD_TOKEN_OBJECT
 *     for (;;) {
 *         TD_OUT(td_tokens_key(t, &key, &more));            key is valid until the next call
 *         if (!more) break;                                 the object has ended
 *         if (strcmp(key, "area") == 0) TD_OUT(td_tokens_value(t, &v));
 *         else                          TD_OUT(td_tokens_skip(t));
 *     }
 *     TD_OUT(td_tokens_end(t));
 *     td_tokens_free(t);
 *
 * Skipped values are checked like kept ones.  Extensions of RFC 8259: NaN, Infinity and -Infinity
 * are numbers, since Python writes them; and a byte order mark is allowed.
 *
 * Errors of every call: TD_EFORMAT with the fault and its position (byte from 0 and line from 1);
 * TD_ELIMIT nesting beyond 64, a kept text above 1 MiB or a number above 1024 characters; TD_EIO;
 * TD_ENOMEM.  After a failure only td_tokens_free may be called.
 */
#ifndef TD_IO_JSON_TOKENS_H
#define TD_IO_JSON_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct td_tokens td_tokens;

typedef enum {
    TD_TOKEN_NULL,
    TD_TOKEN_BOOL,
    TD_TOKEN_NUMBER,
    TD_TOKEN_TEXT,
    TD_TOKEN_LIST,  /* entered: td_tokens_item comes next */
    TD_TOKEN_OBJECT /* entered: td_tokens_key comes next */
} td_token_kind;

typedef struct {
    td_token_kind kind;
    bool is_true;
    bool is_whole; /* no point, no exponent, and it fits into `whole` */
    int64_t whole;
    double number;    /* nearest double; may be infinite or NaN */
    const char *text; /* UTF-8 without zero bytes; valid until the next call */
} td_token;

/** Open a file.  TD_ENOTFOUND; TD_EIO unreadable or not a regular file; TD_ENOMEM. */
TD_CHECKED td_status td_tokens_open(const char *path, td_tokens **out);

/** The same from memory, borrowed until td_tokens_free; `what` names it in messages. */
TD_CHECKED td_status td_tokens_parse(const void *bytes, size_t n_bytes, const char *what,
                                     td_tokens **out);

/** `t` may be NULL. */
void td_tokens_free(td_tokens *t);

/** The path, or `what`; and the position of the last value or key. */
const char *td_tokens_what(const td_tokens *t);
int64_t td_tokens_byte(const td_tokens *t);
int64_t td_tokens_line(const td_tokens *t);

/** Read a value; of a list or an object, only its opening bracket. */
TD_CHECKED td_status td_tokens_value(td_tokens *t, td_token *out);

/** In a list: is there another value?  If not, the list is left. */
TD_CHECKED td_status td_tokens_item(td_tokens *t, bool *more);

/** In an object: the next key, or *more false and the object is left. */
TD_CHECKED td_status td_tokens_key(td_tokens *t, const char **key, bool *more);

/** Skip a value with everything in it. */
TD_CHECKED td_status td_tokens_skip(td_tokens *t);

/** Skip the rest of the innermost list or object; call where an item may begin. */
TD_CHECKED td_status td_tokens_leave(td_tokens *t);

/** Check that only white space follows. */
TD_CHECKED td_status td_tokens_end(td_tokens *t);

/** "a list", "the number 3.5", "the text 'abc'": for messages; text is cut after about 40 bytes. */
void td_token_describe(const td_token *v, char *out, size_t n);

/** Make an error at the position of the last value or key: "'FILE': <text> (byte 12, line 1)". */
td_status td_tokens_error(const td_tokens *t, const char *fmt, ...) TD_PRINTF(2, 3);

#endif
