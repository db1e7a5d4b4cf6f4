/*
 * options.c -- command lines and config files over several tables at once
 *
 * An option is looked for in this order: any spelling exactly; "no-" before a BOOL's spelling; the
 * only option that starts so.  What a table calls "no-checkpoints" is found by the first rule.
 */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/field_parts.h"
#include "base/json.h"
#include "base/os.h"

#define WORD_BYTES     80
#define MAX_CANDIDATES 8
#define CONFIG_BYTES   ((size_t)1 << 20)

/* an option that was found: its row, its struct, and whether "no-" stood before its name */
typedef struct {
    const td_field *field;
    void *base;
    bool is_negated;
} option;

static bool is_short(size_t n)
{
    return n == 1;
}

/* --- walking over every spelling of every row ------------------------------------------------ */

typedef struct {
    const td_field_group *group;
    const td_field *field;
    const char *rest;
    bool is_started;
} walk;

/* the next spelling, the row's name before its aliases; NULL at the end */
static const char *next_spelling(walk *w, size_t *n)
{
    for (; w->group->fields; w->group++, w->field = NULL) {
        if (!w->field) {
            w->field = w->group->fields;
            w->is_started = false;
        }
        for (; w->field->kind != TD_KIND_END; w->field++, w->is_started = false) {
            if (!w->is_started) {
                w->is_started = true;
                w->rest = w->field->alias;
                *n = strlen(w->field->name);
                return w->field->name;
            }
            const char *piece = td_name_next(&w->rest, n);
            if (piece)
                return piece;
        }
    }
    return NULL;
}

static void spell(const char *name, size_t n, bool is_negated, char out[WORD_BYTES])
{
    snprintf(out, WORD_BYTES, "%s%s%.*s", is_short(n) ? "-" : "--", is_negated ? "no-" : "", (int)n,
             name);
    for (char *p = out; *p; p++)
        if (*p == '_')
            *p = '-';
}

static bool find_exact(const td_field_group *groups, const char *name, size_t n, option *out)
{
    walk w = { .group = groups };
    size_t m;
    for (const char *s; (s = next_spelling(&w, &m));)
        if (td_name_equal(s, m, name, n)) {
            *out = (option){ .field = w.field, .base = w.group->base };
            return true;
        }
    return false;
}

static bool is_no(const char *name, size_t n)
{
    return n > 3 && td_name_equal(name, 3, "no-", 3);
}

static bool find_negated(const td_field_group *groups, const char *name, size_t n, option *out)
{
    if (!is_no(name, n) || is_short(n - 3) || !find_exact(groups, name + 3, n - 3, out) ||
        out->field->kind != TD_KIND_BOOL)
        return false;
    out->is_negated = true;
    return true;
}

/* --- prefixes and suggestions ---------------------------------------------------------------- */

typedef struct {
    option options[MAX_CANDIDATES];
    char words[MAX_CANDIDATES][WORD_BYTES];
    int n; /* may be more than there is room for */
} candidates;

static void add_candidate(candidates *c, const walk *w, const char *name, size_t n, bool is_negated)
{
    for (int i = 0; i < c->n && i < MAX_CANDIDATES; i++)
        if (c->options[i].field == w->field && c->options[i].is_negated == is_negated)
            return; /* another spelling of the same */
    if (c->n < MAX_CANDIDATES) {
        c->options[c->n] = (option){ w->field, w->group->base, is_negated };
        spell(name, n, is_negated, c->words[c->n]);
    }
    c->n++;
}

static void find_prefix(const td_field_group *groups, const char *name, size_t n, candidates *c)
{
    walk w = { .group = groups };
    size_t m;
    for (const char *s; (s = next_spelling(&w, &m));) {
        if (is_short(m))
            continue;
        if (m > n && td_name_equal(s, n, name, n))
            add_candidate(c, &w, s, m, false);
        if (is_no(name, n) && w.field->kind == TD_KIND_BOOL && m > n - 3 &&
            td_name_equal(s, n - 3, name + 3, n - 3))
            add_candidate(c, &w, s, m, true);
    }
}

static td_status ambiguous(const char *word, const candidates *c)
{
    td_text list = { 0 };
    int shown = c->n < MAX_CANDIDATES ? c->n : MAX_CANDIDATES;
    for (int i = 0; i < shown; i++)
        td_text_add(&list, "%s%s", i ? ", " : "", c->words[i]);
    td_status st = td_text_status(&list);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "option '%s' is ambiguous: %s%s", word, td_text_get(&list),
                      c->n > shown ? ", ..." : "");
    td_text_release(&list);
    return st;
}

/* `word` is what the user wrote, up to '='; `dashes` false: a name in a config file */
static td_status unknown(const td_field_group *groups, const char *word, bool dashes)
{
    walk w = { .group = groups };
    char best_word[WORD_BYTES] = "", full[WORD_BYTES];
    const char *bare = word + strspn(word, "-");
    int best = INT_MAX, distance;
    size_t n;
    for (const char *s; (s = next_spelling(&w, &n));)
        for (int is_negated = 0; is_negated <= (w.field->kind == TD_KIND_BOOL); is_negated++) {
            spell(s, n, is_negated, full);
            if (is_short(n))
                continue;
            bool is_near = td_name_is_near(bare, full + 2, &distance);
            if (strlen(bare) > 2 &&
                td_text_starts(full + 2, bare)) { /* config files: no prefixes */
                is_near = true;
                distance = 0;
            }
            if (is_near && distance < best) {
                best = distance;
                snprintf(best_word, sizeof best_word, "%s", dashes ? full : full + 2);
            }
        }
    return td_error(TD_EUSAGE, "unknown option '%s'%s%s%s", word,
                    *best_word ? ", did you mean '" : "", best_word, *best_word ? "'?" : "");
}

/* --- command lines --------------------------------------------------------------------------- */

typedef struct {
    const td_field_group *groups;
    int argc, next;
    char **argv;
    td_arena *arena;
} line;

static bool looks_numeric(const char *s)
{
    s += *s == '-' || *s == '+';
    s += *s == '.';
    return isdigit((unsigned char)*s) || strcmp(s, "inf") == 0;
}

/* would this argument be taken for an option rather than a value? */
static bool looks_like_option(const td_field_group *groups, const char *arg)
{
    option found;
    if (arg[0] != '-' || arg[1] == '\0')
        return false;
    return arg[1] == '-' || (!looks_numeric(arg) && find_exact(groups, arg + 1, 1, &found));
}

static td_status set(line *l, const option *o, const char *value, const char *subject)
{
    return td_field_set_as(o->field, o->base, value, l->arena, subject);
}

static td_status set_from_next(line *l, const option *o, const char *subject)
{
    if (l->next < l->argc && !looks_like_option(l->groups, l->argv[l->next]))
        return set(l, o, l->argv[l->next++], subject);
    td_text range = { 0 };
    td_field_range(o->field, &range);
    td_status st = td_text_status(&range);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "%s: the value is missing%s%s", subject,
                      range.len ? ", wanted " : "", td_text_get(&range));
    td_text_release(&range);
    return st;
}

static td_status find_long(const td_field_group *groups, const char *name, size_t n,
                           const char *word, option *out)
{
    if (!is_short(n) && (find_exact(groups, name, n, out) || find_negated(groups, name, n, out)))
        return TD_OK;
    candidates c = { .n = 0 };
    if (n > 0)
        find_prefix(groups, name, n, &c);
    if (c.n > 1)
        return ambiguous(word, &c);
    if (c.n == 0)
        return unknown(groups, word, true);
    *out = c.options[0];
    return TD_OK;
}

/* "--name", "--name=value", "--no-name" */
static td_status parse_long(line *l, const char *arg)
{
    option o;
    char word[WORD_BYTES], subject[WORD_BYTES];
    const char *name = arg + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;

    snprintf(word, sizeof word, "%.*s", n + 2 < WORD_BYTES ? (int)n + 2 : WORD_BYTES - 1, arg);
    TD_TRY(find_long(l->groups, name, n, word, &o));
    spell(o.field->name, strlen(o.field->name), o.is_negated, subject);
    if (o.is_negated && value)
        return td_error(TD_EUSAGE, "%s: takes no value, found '%s'", subject, value);
    if (value)
        return set(l, &o, value, subject);
    if (o.field->kind == TD_KIND_BOOL)
        return set(l, &o, o.is_negated ? "false" : "true", subject);
    return set_from_next(l, &o, subject);
}

/* "-b8", "-b=8", "-b 8", and flags together, "-xv" */
static td_status parse_short(line *l, const char *arg)
{
    for (const char *p = arg + 1; *p; p++) {
        option o;
        char subject[WORD_BYTES], letter[3] = { '-', *p, '\0' };
        if (!find_exact(l->groups, p, 1, &o))
            return unknown(l->groups, p == arg + 1 ? arg : letter, true);
        spell(o.field->name, strlen(o.field->name), false, subject);
        bool has_equals = p[1] == '=';
        if (has_equals || (o.field->kind != TD_KIND_BOOL && p[1]))
            return set(l, &o, p + 1 + has_equals, subject);
        if (o.field->kind != TD_KIND_BOOL)
            return set_from_next(l, &o, subject);
        TD_TRY(set(l, &o, "true", subject));
    }
    return TD_OK;
}

td_status td_options_parse(const td_field_group *groups, int argc, char **argv, const char **rest,
                           int *n_rest, td_arena *arena)
{
    line l = { .groups = groups, .argc = argc, .argv = argv, .arena = arena };
    bool is_over = false;
    *n_rest = 0;
    while (l.next < argc) {
        const char *arg = argv[l.next++];
        bool is_plain = is_over || arg[0] != '-' || arg[1] == '\0';
        option digit;
        if (!is_plain && arg[1] != '-' && looks_numeric(arg))
            is_plain = !find_exact(groups, arg + 1, 1, &digit);
        if (is_plain)
            rest[(*n_rest)++] = arg;
        else if (strcmp(arg, "--") == 0)
            is_over = true;
        else if (arg[1] == '-')
            TD_TRY(parse_long(&l, arg));
        else
            TD_TRY(parse_short(&l, arg));
    }
    return TD_OK;
}

/* --- config files ---------------------------------------------------------------------------- */

static td_status set_named(const td_field_group *groups, const char *name, const char *value,
                           td_arena *arena)
{
    option o;
    if (!find_exact(groups, name, strlen(name), &o))
        return unknown(groups, name, false);
    return td_field_set_as(o.field, o.base, value, arena, name);
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s))
        s++;
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    s[n] = '\0';
    return s;
}

/* the value without its quotes, or up to a '#' that follows a blank */
static char *bare_value(char *value)
{
    char *s = trim(value);
    char *end = *s == '"' ? strchr(s + 1, '"') : NULL;
    char *after = end ? trim(end + 1) : NULL;
    if (after && (*after == '\0' || *after == '#')) {
        *end = '\0';
        return s + 1;
    }
    for (char *p = s; *p; p++)
        if (*p == '#' && (p == s || isspace((unsigned char)p[-1]))) {
            *p = '\0';
            break;
        }
    return trim(s);
}

static td_status read_line(const td_field_group *groups, char *text, td_arena *arena)
{
    char *s = trim(text);
    if (*s == '\0' || *s == '#')
        return TD_OK;
    char *equals = strchr(s, '=');
    if (!equals || equals == s)
        return td_error(TD_EFORMAT, "found '%.60s', wanted name = value", s);
    *equals = '\0';
    return set_named(groups, trim(s), bare_value(equals + 1), arena);
}

static td_status read_lines(const td_field_group *groups, char *text, const char *path,
                            td_arena *arena)
{
    int number = 1;
    for (char *s = text, *next; s; s = next, number++) {
        next = strchr(s, '\n');
        if (next)
            *next++ = '\0';
        TD_TRY_MSG(read_line(groups, s, arena), "'%s', line %d", path, number);
    }
    return TD_OK;
}

/* a JSON value as td_field_set reads it */
static td_status json_value(const td_json *j, const char *path, const char *name, td_text *out)
{
    int64_t whole = 0;
    double real = 0;
    const char *text = NULL;
    bool flag = false;
    switch (td_json_kind_of(j)) {
    case TD_JSON_INT:
        TD_TRY(td_json_as_int(j, &whole));
        td_text_add(out, "%lld", (long long)whole);
        break;
    case TD_JSON_REAL:
        TD_TRY(td_json_as_number(j, &real));
        td_real_print(real, out);
        break;
    case TD_JSON_TEXT:
        TD_TRY(td_json_as_text(j, &text));
        td_text_add(out, "%s", text);
        break;
    case TD_JSON_BOOL:
        TD_TRY(td_json_as_bool(j, &flag));
        td_text_add(out, "%s", flag ? "true" : "false");
        break;
    case TD_JSON_NULL:
    case TD_JSON_ARRAY:
    case TD_JSON_OBJECT:
        return td_error(TD_EFORMAT, "'%s': '%s' is neither number, text nor truth value", path,
                        name);
    }
    return td_text_status(out);
}

static td_status read_member(const td_field_group *groups, const char *name, const td_json *j,
                             const char *path, td_arena *arena)
{
    option o;
    if (td_json_kind_of(j) == TD_JSON_NULL && find_exact(groups, name, strlen(name), &o) &&
        o.field->kind == TD_KIND_TEXT) {
        const char *none = NULL;
        memcpy((char *)o.base + o.field->offset, &none, sizeof none);
        return TD_OK;
    }
    td_text value = { 0 };
    td_status st = json_value(j, path, name, &value);
    if (st == TD_OK)
        st = set_named(groups, name, td_text_get(&value), arena);
    td_text_release(&value);
    return st;
}

static td_status read_json(const td_field_group *groups, const char *text, size_t n,
                           const char *path, td_arena *arena)
{
    td_json *doc;
    TD_TRY(td_json_parse(text, n, path, &doc));
    td_status st = TD_OK;
    for (size_t i = 0; i < td_json_count(doc) && st == TD_OK; i++) {
        st = read_member(groups, td_json_key(doc, i), td_json_member(doc, i), path, arena);
        if (st == TD_EUSAGE)
            st = td_error_context(st, "'%s'", path);
    }
    td_json_free(doc);
    return st;
}

td_status td_options_config_json(const td_field_group *groups, const char *json, const char *what,
                                 td_arena *arena)
{
    return read_json(groups, json, strlen(json), what, arena);
}

td_status td_options_config(const td_field_group *groups, const char *path, td_arena *arena)
{
    char *text;
    size_t n;
    TD_TRY(td_file_read(path, CONFIG_BYTES, &text, &n));
    td_status st;
    if (memchr(text, '\0', n))
        st = td_error(TD_EFORMAT, "'%s' is no text file", path);
    else if (text[strspn(text, " \t\r\n")] == '{')
        st = read_json(groups, text, n, path, arena);
    else
        st = read_lines(groups, text, path, arena);
    td_free(text);
    return st;
}
