/*
 * base/field_parts.h -- what field.c, options.c and options_help.c share; nobody else's business
 */
#ifndef TD_BASE_FIELD_PARTS_H
#define TD_BASE_FIELD_PARTS_H

#include "base/field.h"

/** Equal, with '_' and '-' the same. */
bool td_name_equal(const char *a, size_t n_a, const char *b, size_t n_b);

/**
 * Walk over a list "a|b|c": returns the next piece and its length, NULL at the end.  Start with
 * *rest = list; a NULL list is empty.
 */
const char *td_name_next(const char **rest, size_t *n);

/**
 * Set a member; messages start with `subject` ("--lr", "lr").  TD_EUSAGE, TD_ENOMEM.
 */
TD_CHECKED td_status td_field_set_as(const td_field *f, void *base, const char *value,
                                     td_arena *arena, const char *subject);

/** "1 to 65536", "0 or more", "any"; the names of an ENUM, "a, b, c"; "" for BOOL and TEXT. */
void td_field_range(const td_field *f, td_text *out);

/** How many edits between `wrong` and `name` still look like a slip; false when too many. */
bool td_name_is_near(const char *wrong, const char *name, int *distance);

/** A real in the fewest digits that read back as the same. */
void td_real_print(double x, td_text *out);

#endif
