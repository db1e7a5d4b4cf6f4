/*
 * options/field_parts.h -- internals shared by field.c, options.c and options_help.c
 */
#ifndef TD_OPTIONS_FIELD_PARTS_H
#define TD_OPTIONS_FIELD_PARTS_H

#include "options/field.h"

/** Are the names equal, with '_' equal to '-'? */
bool td_name_equal(const char *a, size_t n_a, const char *b, size_t n_b);

/**
 * Walk over a list "a|b|c": returns the next piece and its length, NULL at the end.  Start with
 * *rest = list; a NULL list is empty.
 */
const char *td_name_next(const char **rest, size_t *n);

/** "1 to 65536", "0 or more", "any"; the names of an ENUM, "a, b, c"; "" for BOOL and TEXT. */
void td_field_range(const td_field *f, td_text *out);

/** Is `wrong` close enough to `name` to be a typing error?  Sets the edit distance. */
bool td_name_is_near(const char *wrong, const char *name, int *distance);

/** Append a real with the fewest digits that are read back exactly. */
void td_real_print(double x, td_text *out);

/* --- rows of several tables ------------------------------------------------------------------ */

/** Does the row have a member, or is it one of the kinds without one? */
bool td_field_has_member(const td_field *f);

/** To start, set `group` and leave the rest zero. */
typedef struct {
    const td_field_group *group;
    const td_field *field; /* the present row */
    const char *title;     /* the title of that row */
    bool is_started;
} td_row_walk;

/** The next row with a member; false at the end. */
bool td_row_next(td_row_walk *w);

/** Is this the first row under its title for which `wanted` holds? */
bool td_row_opens_title(const td_field_group *groups, const td_row_walk *at,
                        bool (*wanted)(const td_row_walk *));

/** An option that was found: its row, its struct, and whether "no-" preceded its name. */
typedef struct {
    const td_field *field;
    void *base;
    bool is_negated;
    const td_field *fields; /* the row's table */
} td_option;

/* --- which options were given (tandem/options.h) ---------------------------------------------- */

void td_given_clear(const td_field *fields, void *base);

/** Set the bit of a row, if the struct has a td_given. */
void td_given_note(const td_field *fields, const td_field *f, void *base, bool is_line);

/** Find an option by any exact spelling; follows rows of kind ALIAS. */
bool td_option_find(const td_field_group *groups, const char *name, size_t n, td_option *out);

/**
 * Returns TD_EUSAGE with a message that names the nearest spelling.  `word` is the user's text up
 * to '='; `dashes` false: a name in a config file.
 */
TD_CHECKED td_status td_option_unknown(const td_field_group *groups, const char *word, bool dashes);

/** Set an option from text; ACCEPTED rows do nothing, REFUSED rows fail with their reason
    (TD_EUSAGE). */
TD_CHECKED td_status td_option_set(const td_option *o, const char *value, td_arena *arena,
                                   const char *subject);

/** Spell an option: "--batch-size" for "batch_size", "-b" for "b", "--no-x" if negated. */
#define TD_OPTION_BYTES 80
void td_option_spell(const char *name, size_t n, bool is_negated, char out[TD_OPTION_BYTES]);

/** The name of the value in a page, "N", "FILE"; "" for a BOOL. */
const char *td_field_meta(const td_field *f);

/** Is the row shown with "[no-]" in help pages? */
bool td_field_has_no(const td_field *f);

/** "images in a step (default 256, 1 to 65536)" */
void td_field_meaning(const td_field *f, td_text *out);

#endif
