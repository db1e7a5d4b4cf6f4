/*
 * options_list.c -- lists every row of tables in a machine-readable form
 */
#include <string.h>

#include "options/field_parts.h"

static const char *kind_name(const td_field *f)
{
    static const char *const names[] = {
        [TD_KIND_INT] = "int",     [TD_KIND_LONG] = "int",          [TD_KIND_REAL] = "number",
        [TD_KIND_BOOL] = "switch", [TD_KIND_ENUM] = "choice",       [TD_KIND_TEXT] = "text",
        [TD_KIND_ALIAS] = "alias", [TD_KIND_ACCEPTED] = "accepted", [TD_KIND_REFUSED] = "refused",
    };
    return names[f->kind];
}

static void add_spelling(const char *name, size_t n, td_text *out)
{
    char spelled[TD_OPTION_BYTES];
    td_option_spell(name, n, false, spelled);
    td_text_add(out, "%s", spelled);
}

/* its own name, its aliases, and the rows of kind ALIAS that name it */
static void add_spellings(const td_field_group *groups, const td_field *f, td_text *out)
{
    const char *rest = f->alias, *piece;
    size_t n;
    add_spelling(f->name, strlen(f->name), out);
    while ((piece = td_name_next(&rest, &n))) {
        td_text_add(out, " ");
        add_spelling(piece, n, out);
    }
    for (; groups->fields; groups++)
        for (const td_field *a = groups->fields; a->kind != TD_KIND_END; a++)
            if (a->kind == TD_KIND_ALIAS &&
                td_name_equal(a->def_text, strlen(a->def_text), f->name, strlen(f->name))) {
                td_text_add(out, " ");
                add_spelling(a->name, strlen(a->name), out);
            }
}

static void add_value(const td_field_group *g, const td_field *f, td_text *out)
{
    td_text value = { 0 };
    if (td_field_has_member(f))
        td_field_get(f, g->base, &value);
    else if (f->kind == TD_KIND_ALIAS)
        td_text_add(&value, "%s", f->def_text);
    td_text_add(out, "=%s", value.len ? td_text_get(&value) : "x");
    td_text_release(&value);
}

void td_options_list(const td_field_group *groups, const char *verb, td_text *out)
{
    for (const td_field_group *g = groups; g->fields; g++)
        for (const td_field *f = g->fields; f->kind != TD_KIND_END; f++) {
            if (f->kind == TD_KIND_TITLE || f->kind == TD_KIND_GIVEN)
                continue;
            td_text_add(out, "%s\t", verb);
            add_spelling(f->name, strlen(f->name), out);
            td_text_add(out, "\t%s\t", kind_name(f));
            add_value(g, f, out);
            td_text_add(out, "\t");
            add_spellings(groups, f, out);
            td_text_add(out, "\n");
        }
}
