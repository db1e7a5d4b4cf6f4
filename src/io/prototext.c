/*
 * prototext.c -- parses in one pass, with one level of recursion per message
 */
#include "io/prototext.h"

#include <ctype.h>
#include <string.h>

enum { FIELDS_MAX = 4096, DEPTH_MAX = 32, PATH_BYTES = 256, VALUE_BYTES = 4096 };

typedef struct {
    const char *s, *end;
    int line;
    const char *what;
    td_prototext *out;
    size_t cap;
    char path[PATH_BYTES];
    size_t path_len;
    char value[VALUE_BYTES];
    size_t value_len;
} reader;

static td_status bad(const reader *r, const char *wanted)
{
    if (r->s >= r->end)
        return td_error(TD_EFORMAT, "%s: line %d: found the end of the text, wanted %s", r->what,
                        r->line, wanted);
    const char c = *r->s;
    if (isprint((unsigned char)c))
        return td_error(TD_EFORMAT, "%s: line %d: found '%c', wanted %s", r->what, r->line, c,
                        wanted);
    return td_error(TD_EFORMAT, "%s: line %d: found byte 0x%02x, wanted %s", r->what, r->line,
                    (unsigned)(unsigned char)c, wanted);
}

static void skip_space(reader *r)
{
    while (r->s < r->end) {
        if (*r->s == '#')
            while (r->s < r->end && *r->s != '\n')
                r->s++;
        else if (*r->s == '\n' || *r->s == ' ' || *r->s == '\t' || *r->s == '\r')
            r->line += *r->s++ == '\n';
        else
            break;
    }
}

/* consumes `c` if it is the next character after space and comments */
static bool take(reader *r, char c)
{
    skip_space(r);
    if (r->s >= r->end || *r->s != c)
        return false;
    r->s++;
    return true;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static td_status put(reader *r, char c)
{
    if (r->value_len + 1 >= VALUE_BYTES)
        return td_error(TD_ELIMIT, "%s: line %d: a value is longer than %d bytes", r->what, r->line,
                        VALUE_BYTES - 1);
    r->value[r->value_len++] = c;
    r->value[r->value_len] = '\0';
    return TD_OK;
}

/* --- fields ----------------------------------------------------------------------------------- */

static td_status add(reader *r, const char *value, int line, bool is_text)
{
    td_prototext *o = r->out;
    if (o->n == FIELDS_MAX)
        return td_error(TD_ELIMIT, "%s: line %d: more than %d fields", r->what, line, FIELDS_MAX);
    TD_TRY(td_reserve(&o->fields, &r->cap, o->n + 1, sizeof *o->fields));
    td_proto_field *f = &o->fields[o->n];
    *f = (td_proto_field){ .line = line, .is_text = is_text };
    f->path = td_arena_text(&o->arena, r->path);
    f->value = value ? td_arena_text(&o->arena, value) : NULL;
    if (!f->path || (value && !f->value))
        return TD_ENOMEM;
    o->n++;
    return TD_OK;
}

/* --- values ----------------------------------------------------------------------------------- */

static int digit_of(char c, int base)
{
    const int v = isdigit((unsigned char)c)    ? c - '0'
                  : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
                                               : 99;
    return v < base ? v : -1;
}

/* reads an escape after a backslash */
static td_status read_escape(reader *r)
{
    static const char from[] = "abfnrtv\\'\"?", to[] = "\a\b\f\n\r\t\v\\'\"?";
    if (r->s >= r->end)
        return bad(r, "the rest of an escape");
    const char c = *r->s;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        r->s++;
        return put(r, to[at - from]);
    }
    const bool is_hex = c == 'x' || c == 'X';
    const int base = is_hex ? 16 : 8;
    int value = 0, n = 0;
    r->s += is_hex;
    for (; n < (is_hex ? 2 : 3) && r->s < r->end && digit_of(*r->s, base) >= 0; n++)
        value = value * base + digit_of(*r->s++, base);
    if (n == 0 || value == 0 || value > 255)
        return bad(r, "an escape like \\n or \\x41");
    return put(r, (char)value);
}

static td_status read_quoted(reader *r)
{
    const char quote = *r->s++;
    while (r->s < r->end && *r->s != quote) {
        if (*r->s == '\n' || *r->s == '\0')
            return bad(r, "the end of the text in quotes");
        if (*r->s == '\\') {
            r->s++;
            TD_TRY(read_escape(r));
        } else {
            TD_TRY(put(r, *r->s++));
        }
    }
    if (r->s >= r->end)
        return bad(r, "a closing quote");
    r->s++;
    return TD_OK;
}

/* reads a scalar; 'a' "b" are one text; other scalars are words: a number, true, RELU_6 */
static td_status read_scalar(reader *r)
{
    skip_space(r);
    const int line = r->line;
    r->value_len = 0;
    r->value[0] = '\0';
    if (r->s < r->end && (*r->s == '"' || *r->s == '\'')) {
        while (r->s < r->end && (*r->s == '"' || *r->s == '\'')) {
            TD_TRY(read_quoted(r));
            skip_space(r);
        }
        return add(r, r->value, line, true);
    }
    while (r->s < r->end && (is_name(*r->s) || *r->s == '.' || *r->s == '-' || *r->s == '+'))
        TD_TRY(put(r, *r->s++));
    if (r->value_len == 0)
        return bad(r, "a value");
    return add(r, r->value, line, false);
}

/* --- messages --------------------------------------------------------------------------------- */

static td_status read_fields(reader *r, char until, int depth);

static td_status read_message(reader *r, int depth)
{
    const char open = *r->s;
    if (depth == DEPTH_MAX)
        return td_error(TD_ELIMIT, "%s: line %d: messages nested deeper than %d", r->what, r->line,
                        DEPTH_MAX);
    TD_TRY(add(r, NULL, r->line, false));
    r->s++;
    TD_TRY(read_fields(r, open == '{' ? '}' : '>', depth + 1));
    r->s++;
    return TD_OK;
}

static bool is_message(const reader *r)
{
    return r->s < r->end && (*r->s == '{' || *r->s == '<');
}

static td_status read_one(reader *r, int depth)
{
    skip_space(r);
    return is_message(r) ? read_message(r, depth) : read_scalar(r);
}

/* "[a, b]", "[]" */
static td_status read_list(reader *r, int depth)
{
    if (take(r, ']'))
        return TD_OK;
    do
        TD_TRY(read_one(r, depth));
    while (take(r, ','));
    return take(r, ']') ? TD_OK : bad(r, "',' or ']'");
}

static td_status read_field(reader *r, int depth)
{
    const size_t before = r->path_len;
    size_t n = 0;
    while (r->s + n < r->end && is_name(r->s[n]))
        n++;
    if (n == 0 || isdigit((unsigned char)*r->s))
        return bad(r, "the name of a field");
    if (before + n + 2 > PATH_BYTES)
        return td_error(TD_ELIMIT, "%s: line %d: names add up to more than %d bytes", r->what,
                        r->line, PATH_BYTES - 1);
    if (before)
        r->path[r->path_len++] = '.';
    memcpy(r->path + r->path_len, r->s, n);
    r->path_len += n;
    r->path[r->path_len] = '\0';
    r->s += n;
    const bool has_colon = take(r, ':');
    skip_space(r);
    if (has_colon && take(r, '['))
        TD_TRY(read_list(r, depth));
    else if (has_colon || is_message(r))
        TD_TRY(read_one(r, depth));
    else
        return bad(r, "':' or '{'");
    r->path_len = before;
    r->path[before] = '\0';
    return TD_OK;
}

/* reads fields up to `until`, which is not consumed; 0: up to the end */
static td_status read_fields(reader *r, char until, int depth)
{
    for (;;) {
        skip_space(r);
        if (r->s >= r->end)
            return until ? bad(r, until == '}' ? "'}'" : "'>'") : TD_OK;
        if (until && *r->s == until)
            return TD_OK;
        TD_TRY(read_field(r, depth));
        if (!take(r, ','))
            (void)take(r, ';');
    }
}

td_status td_prototext_parse(const char *text, size_t n, const char *what, td_prototext *out)
{
    *out = (td_prototext){ 0 };
    td_arena_init(&out->arena);
    if (n > TD_PROTOTEXT_BYTES_MAX)
        return td_error(TD_ELIMIT, "%s: %zu bytes are more than %d", what, n,
                        TD_PROTOTEXT_BYTES_MAX);
    reader *r = TD_NEW(reader);
    if (!r)
        return TD_ENOMEM;
    *r = (reader){ .s = text, .end = text + n, .line = 1, .what = what, .out = out };
    const td_status st = read_fields(r, 0, 0);
    td_free(r);
    if (st != TD_OK)
        td_prototext_release(out);
    return st;
}

void td_prototext_release(td_prototext *p)
{
    td_free(p->fields);
    td_arena_release(&p->arena);
    *p = (td_prototext){ 0 };
}
