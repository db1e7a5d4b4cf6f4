/*
 * base/text.h -- a string that grows, and a few checks on strings
 *
 * Appending never returns an error: the first failure is recorded, later calls do nothing, and
 * td_text_status (or td_text_take) returns it at the end.
 *
 *     td_text t = { 0 };
 *     td_text_add(&t, "%s=%d", name, value);
 *     TD_OUT(td_text_status(&t));
 *     td_text_release(&t);
 */
#ifndef TD_BASE_TEXT_H
#define TD_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/** Zero-initialise for an empty text. */
typedef struct {
    char *data; /* NUL-terminated; NULL if nothing was added */
    size_t len; /* without the NUL */
    size_t cap;
    td_status st;
} td_text;

void td_text_release(td_text *t);
void td_text_add(td_text *t, const char *fmt, ...) TD_PRINTF(2, 3);
void td_text_add_bytes(td_text *t, const char *bytes, size_t n);

/** Add `s` as the content of a JSON string; escapes '"', '\', control bytes and bad UTF-8. */
void td_text_add_json(td_text *t, const char *s);

/**
 * Add `s` for display, for example a file name in a message: escape characters that a terminal
 * would execute or hide.  Control bytes and bytes that are not UTF-8 become \x1b, a line end \n
 * (kept as it is with `keeps_lines`), controls and direction marks beyond ASCII \u202e.
 */
void td_text_add_visible(td_text *t, const char *s, bool keeps_lines);

/**
 * Add a member of a JSON object, with a comma before it unless the text ends in '{': "name": value.
 * A number that is not finite, or a NULL text, becomes null.
 */
void td_json_add(td_text *t, const char *name, double value);
void td_json_add_text(td_text *t, const char *name, const char *value);

/** Do the bytes begin with the byte order mark of UTF-16? */
bool td_text_is_utf16(const void *bytes, size_t n);

td_status td_text_status(const td_text *t) TD_CHECKED;

/**
 * Move the text to *out (the caller frees it), unless `st`, the status of the work on it, or the
 * text's status is a failure: then release it, leave *out unchanged and return the failure.
 */
td_status td_text_take(td_text *t, td_status st, char **out) TD_CHECKED;

/** The text, never NULL. */
const char *td_text_get(const td_text *t);

/** Is `word` one of the comma-separated words of `list`?  `list` may be NULL. */
bool td_text_in_list(const char *list, const char *word);

bool td_text_starts(const char *s, const char *prefix);
bool td_text_ends(const char *s, const char *suffix);

/** Is it valid UTF-8 (complete, shortest-form sequences only)? */
bool td_text_is_utf8(const char *s);

/**
 * Replace characters that a terminal could execute by '?': control characters, including C1 in
 * UTF-8, and, if `s` is not UTF-8, every byte above 126.  For text from another process or machine.
 */
void td_text_make_printable(char *s);

/** Does `s` match a shell pattern with '*' and '?'? */
bool td_text_glob(const char *pattern, const char *s);

/** Edits (insert, delete, change, swap of neighbours) between two words; for "did you mean". */
int td_text_distance(const char *a, const char *b);

/** Parse a decimal integer with nothing after it. */
bool td_text_to_int(const char *s, int64_t *out);

enum { TD_REAL_WORD = 32 };

/** The number for display, with `decimals` (0 .. 9) digits, or "not a number", "infinite". */
const char *td_real_word(double x, int decimals, char room[TD_REAL_WORD]);

/** Parse a finite or infinite decimal number with nothing after it; independent of the locale. */
bool td_text_to_real(const char *s, double *out);

#endif
