/*
 * given.c -- records which options of a struct were given: a bit for each row of its table
 *
 * The row TD_GIVEN(T, given) gives the offset of the bits in the struct.  A table without it has no
 * bits.
 */
#include <string.h>

#include "options/field_parts.h"

/* the bits of `base`, or NULL */
static td_given *bits_of(const td_field *fields, const void *base)
{
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++)
        if (f->kind == TD_KIND_GIVEN)
            return (td_given *)((char *)(uintptr_t)base + f->offset);
    return NULL;
}

static bool has_bit(const uint64_t *words, ptrdiff_t row)
{
    return row < TD_OPTIONS_MAX && (words[row / 64] >> (row % 64) & 1);
}

void td_given_clear(const td_field *fields, void *base)
{
    td_given *given = bits_of(fields, base);
    if (given)
        *given = (td_given){ 0 };
}

void td_given_note(const td_field *fields, const td_field *f, void *base, bool is_line)
{
    td_given *given = bits_of(fields, base);
    const ptrdiff_t row = f - fields;
    if (!given || row >= TD_OPTIONS_MAX)
        return;
    given->any[row / 64] |= (uint64_t)1 << (row % 64);
    if (is_line)
        given->line[row / 64] |= (uint64_t)1 << (row % 64);
}

bool td_options_given(const td_field *fields, const void *opts, const char *name)
{
    const td_given *given = bits_of(fields, opts);
    const td_field *f = td_field_find(fields, name);
    return f && given && has_bit(given->any, f - fields);
}

bool td_options_chosen(const td_field *fields, const void *opts, const char *name)
{
    const td_field *f = td_field_find(fields, name);
    return f && (td_options_given(fields, opts, name) || !td_field_is_default(f, opts));
}

bool td_options_given_on_line(const td_field *fields, const void *opts, const char *name)
{
    const td_given *given = bits_of(fields, opts);
    const td_field *f = td_field_find(fields, name);
    return f && given && has_bit(given->line, f - fields);
}

bool td_field_is_given(const td_field *fields, const td_field *f, const void *base)
{
    const td_given *given = bits_of(fields, base);
    return td_field_has_member(f) &&
           ((given && has_bit(given->line, f - fields)) || !td_field_is_default(f, base));
}

void td_options_mark(const td_field *fields, void *opts, const char *name)
{
    const td_field *f = td_field_find(fields, name);
    if (f)
        td_given_note(fields, f, opts, false);
}

void td_options_unmark(const td_field *fields, void *opts, const char *name)
{
    td_given *given = bits_of(fields, opts);
    const td_field *f = td_field_find(fields, name);
    const ptrdiff_t row = f ? f - fields : TD_OPTIONS_MAX;
    if (given && row < TD_OPTIONS_MAX)
        given->any[row / 64] &= ~((uint64_t)1 << (row % 64));
}
