/*
 * field_text.c -- reads and writes a whole struct as text, "{stride=2, path="a b"}", and as JSON
 *
 * A TEXT is written without quotes if it is one word, otherwise quoted; \u00XX in quotes is the
 * byte XX, as td_text_add_json writes bytes that are not UTF-8.  "path=" is a NULL TEXT, path="" an
 * empty one.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "options/field_parts.h"

#define BARE       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:%@-"
#define NAME_BYTES 64

/* --- writing --------------------------------------------------------------------------------- */

static const char *text_of(const td_field *f, const void *base)
{
    const char *text;
    memcpy(&text, (const char *)base + f->offset, sizeof text);
    return text;
}

static void print_quoted(const char *text, td_text *out)
{
    td_text_add(out, "\"");
    td_text_add_json(out, text);
    td_text_add(out, "\"");
}

static void print_value(const td_field *f, const void *base, td_text *out)
{
    const char *text = f->kind == TD_KIND_TEXT ? text_of(f, base) : NULL;
    if (text && (!*text || text[strspn(text, BARE)]))
        print_quoted(text, out);
    else
        td_field_get(f, base, out);
}

void td_fields_print(const td_field *fields, const void *base, td_text *out)
{
    const char *before = "{", *after = "";
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++) {
        if (td_field_is_default(f, base))
            continue;
        td_text_add(out, "%s%s=", before, f->name);
        print_value(f, base, out);
        before = ", ";
        after = "}";
    }
    td_text_add(out, "%s", after);
}

static void print_json(const td_field *f, const void *base, td_text *out)
{
    double real = 0;
    if (f->kind == TD_KIND_REAL)
        memcpy(&real, (const char *)base + f->offset, sizeof real);
    if (f->kind == TD_KIND_TEXT && !text_of(f, base)) {
        td_text_add(out, "null");
    } else if (f->kind == TD_KIND_TEXT) {
        print_quoted(text_of(f, base), out);
    } else if (f->kind == TD_KIND_ENUM || !isfinite(real)) { /* JSON has no infinity */
        td_text_add(out, "\"");
        td_field_get(f, base, out);
        td_text_add(out, "\"");
    } else {
        td_field_get(f, base, out);
    }
}

void td_fields_json(const td_field *fields, const void *base, td_text *out)
{
    const char *before = "";
    td_text_add(out, "{");
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++) {
        if (!td_field_has_member(f))
            continue;
        td_text_add(out, "%s\"%s\": ", before, f->name);
        print_json(f, base, out);
        before = ", ";
    }
    td_text_add(out, "}");
}

/* --- reading --------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    char lower = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : c;
    const char *p = lower ? strchr(digits, lower) : NULL;
    return p ? (int)(p - digits) : -1;
}

/*
 * reads one escape after its backslash; returns the position after it, NULL if it is not an escape
 * that we write
 */
static const char *read_escape(const char *p, td_text *out)
{
    if (*p == '"' || *p == '\\') {
        td_text_add_bytes(out, p, 1);
        return p + 1;
    }
    if (strncmp(p, "u00", 3) != 0 || hex_digit(p[3]) < 0 || hex_digit(p[4]) < 0)
        return NULL;
    char byte = (char)(hex_digit(p[3]) * 16 + hex_digit(p[4]));
    if (byte == '\0')
        return NULL;
    td_text_add_bytes(out, &byte, 1);
    return p + 5;
}

/* reads the rest of a quoted text after its first quote */
static const char *read_quoted(const char *p, td_text *out)
{
    while (p && *p && *p != '"') {
        if (*p == '\\')
            p = read_escape(p + 1, out);
        else
            td_text_add_bytes(out, p++, 1);
    }
    return p && *p == '"' ? p + 1 : NULL;
}

/* a parsed "name=value"; the value is unquoted */
typedef struct {
    char name[NAME_BYTES];
    td_text value;
    bool is_null; /* the value is empty and not quoted */
} pair;

static td_status read_pair(const char **text, pair *out)
{
    const char *p = *text;
    size_t n = strcspn(p, "=, \t\r\n");
    const char *equals = skip_blanks(p + n);
    if (n == 0 || n >= NAME_BYTES || *equals != '=')
        return td_error(TD_EFORMAT, "found '%.40s', wanted name=value", p);
    memcpy(out->name, p, n);
    out->name[n] = '\0';

    p = skip_blanks(equals + 1);
    out->is_null = false;
    if (*p == '"') {
        const char *end = read_quoted(p + 1, &out->value);
        if (!end)
            return td_error(TD_EFORMAT, "%s: bad quoted text %.40s", out->name, p);
        p = end;
    } else {
        n = strcspn(p, ", \t\r\n");
        td_text_add_bytes(&out->value, p, n);
        out->is_null = n == 0;
        p += n;
    }
    *text = skip_blanks(p);
    return td_text_status(&out->value);
}

static td_status unknown_name(const td_field *fields, const char *name)
{
    const char *near = NULL;
    int best = NAME_BYTES, distance;
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++)
        if (td_name_is_near(name, f->name, &distance) && distance < best) {
            best = distance;
            near = f->name;
        }
    return td_error(TD_EFORMAT, "unknown name '%s'%s%s%s", name, near ? ", did you mean '" : "",
                    near ? near : "", near ? "'?" : "");
}

/* a temporary value, parsed before the caller's struct is changed */
typedef union {
    int small;
    int64_t large;
    double real;
    bool flag;
    const char *text;
} trial;

static td_status set_pair(const td_field *fields, void *base, const pair *p, td_arena *arena)
{
    const td_field *found = td_field_find(fields, p->name);
    if (!found)
        return unknown_name(fields, p->name);
    trial scratch;
    td_field f = *found;
    if (!base) {
        f.offset = 0;
        base = &scratch;
    }
    if (p->is_null && f.kind == TD_KIND_TEXT) {
        const char *none = NULL;
        memcpy((char *)base + f.offset, &none, sizeof none);
        return TD_OK;
    }
    td_status st = td_field_set_as(&f, base, td_text_get(&p->value), arena, f.name);
    return st == TD_EUSAGE ? TD_EFORMAT : st;
}

/* parses all pairs into `base`; if that is NULL, only checks them */
static td_status parse_pairs(const td_field *fields, void *base, const char *text, td_arena *arena)
{
    const char *p = skip_blanks(text);
    while (*p) {
        pair pr = { 0 };
        td_status st = read_pair(&p, &pr);
        if (st == TD_OK)
            st = set_pair(fields, base, &pr, arena);
        td_text_release(&pr.value);
        TD_TRY(st);
        if (*p == '\0')
            break;
        if (*p != ',')
            return td_error(TD_EFORMAT, "found '%.40s', wanted ',' or the end", p);
        p = skip_blanks(p + 1);
        if (*p == '\0')
            return td_error(TD_EFORMAT, "a name is missing after the last ','");
    }
    return TD_OK;
}

td_status td_fields_parse(const td_field *fields, void *base, const char *text, td_arena *arena)
{
    TD_TRY(parse_pairs(fields, NULL, text, arena));
    return parse_pairs(fields, base, text, arena);
}
