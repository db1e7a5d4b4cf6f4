/*
 * field_rows.c -- walks over the rows of several tables with their titles
 *
 * A row's title is its group's title, until a row of kind TITLE changes it.  The same title may
 * occur several times: help pages then show all its rows at the first one.
 */
#include <string.h>

#include "options/field_parts.h"

static const char *next_title(const td_field_group *g, const td_field *f, const char *present)
{
    if (f->kind == TD_KIND_TITLE)
        return f->help;
    return present ? present : g->title;
}

bool td_row_next(td_row_walk *w)
{
    for (; w->group->fields; w->group++, w->is_started = false, w->title = NULL) {
        w->field = w->is_started ? w->field + 1 : w->group->fields;
        w->is_started = true;
        for (; w->field->kind != TD_KIND_END; w->field++) {
            w->title = next_title(w->group, w->field, w->title);
            if (td_field_has_member(w->field))
                return true;
        }
    }
    return false;
}

bool td_row_opens_title(const td_field_group *groups, const td_row_walk *at,
                        bool (*wanted)(const td_row_walk *))
{
    td_row_walk w = { .group = groups };
    while (td_row_next(&w))
        if (strcmp(w.title, at->title) == 0 && wanted(&w))
            return w.group == at->group && w.field == at->field;
    return false;
}
