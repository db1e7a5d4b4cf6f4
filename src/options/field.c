/*
 * field.c -- operations on one field table: defaults, text to values, values to text, comparison
 *
 * Every function here is a loop over rows or a switch over the kinds.  The text and JSON forms of a
 * whole struct are in field_text.c.
 */
#include "options/field.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options/field_parts.h"

#define TWO_63 0x1p63

/* a member of any kind, to check a value before it is stored */
typedef union {
    int small;
    int64_t large;
    double real;
    bool flag;
    const char *text;
} member;

static void *at(const td_field *f, void *base)
{
    return (char *)base + f->offset;
}

static const void *at_const(const td_field *f, const void *base)
{
    return (const char *)base + f->offset;
}

/* a BOOL whose member holds the opposite of the option's value (TD_BOOL_NOT) */
static bool is_opposite(const td_field *f)
{
    return f->min > f->max;
}

/* --- names ----------------------------------------------------------------------------------- */

bool td_name_equal(const char *a, size_t n_a, const char *b, size_t n_b)
{
    if (n_a != n_b)
        return false;
    for (size_t i = 0; i < n_a; i++)
        if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]))
            return false;
    return true;
}

const char *td_name_next(const char **rest, size_t *n)
{
    const char *piece = *rest;
    if (!piece || !*piece)
        return NULL;
    *n = strcspn(piece, "|");
    *rest = piece[*n] ? piece + *n + 1 : piece + *n;
    return piece;
}

static bool is_in_list(const char *list, const char *word)
{
    size_t n, n_word = strlen(word);
    for (const char *piece; (piece = td_name_next(&list, &n));)
        if (td_name_equal(piece, n, word, n_word))
            return true;
    return false;
}

const td_field *td_field_find(const td_field *fields, const char *name)
{
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++)
        if (td_name_equal(f->name, strlen(f->name), name, strlen(name)) ||
            is_in_list(f->alias, name))
            return f;
    return NULL;
}

bool td_name_is_near(const char *wrong, const char *name, int *distance)
{
    *distance = td_text_distance(wrong, name);
    size_t n = strlen(wrong);
    return (size_t)*distance <= (n < 5 ? 1 : n < 7 ? 2 : 3) && (size_t)*distance < n;
}

bool td_field_has_member(const td_field *f)
{
    return f->kind != TD_KIND_END && f->kind < TD_KIND_TITLE;
}

bool td_field_is_path(const td_field *f)
{
    static const char *const others[] = { "NAME",           "OPS",           "LIST",
                                          "PATTERN,...",    TD_META_NUMBERS, "EPOCH:SIZE,...",
                                          "FLAG",           "SPEC",          "METRIC>=X",
                                          "NAME=VALUE,...", "B,C,S,H",       "C",
                                          "R,G,B",          "POLICY" };
    if (f->kind != TD_KIND_TEXT)
        return false;
    for (size_t i = 0; f->meta && i < sizeof others / sizeof *others; i++)
        if (strcmp(f->meta, others[i]) == 0)
            return false;
    return true;
}

/* --- values to text -------------------------------------------------------------------------- */

void td_real_print(double x, td_text *out)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) { /* 17 are always sufficient */
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    td_text_add(out, "%s", text);
}

static int count_names(const td_field *f)
{
    int n = 0;
    while (f->names && f->names[n])
        n++;
    return n;
}

/* the first spelling of an ENUM's value */
static void print_name(const td_field *f, int value, td_text *out)
{
    if (value < 0 || value >= count_names(f)) {
        td_text_add(out, "%d", value);
        return;
    }
    td_text_add(out, "%.*s", (int)strcspn(f->names[value], "|"), f->names[value]);
}

void td_field_get(const td_field *f, const void *base, td_text *out)
{
    const void *p = at_const(f, base);
    switch (f->kind) {
    case TD_KIND_INT:
        td_text_add(out, "%d", *(const int *)p);
        break;
    case TD_KIND_LONG:
        td_text_add(out, "%lld", (long long)*(const int64_t *)p);
        break;
    case TD_KIND_REAL:
        td_real_print(*(const double *)p, out);
        break;
    case TD_KIND_BOOL:
        td_text_add(out, "%s", *(const bool *)p != is_opposite(f) ? "true" : "false");
        break;
    case TD_KIND_ENUM:
        print_name(f, *(const int *)p, out);
        break;
    case TD_KIND_TEXT:
        if (*(const char *const *)p)
            td_text_add(out, "%s", *(const char *const *)p);
        break;
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
}

static bool is_whole(const td_field *f)
{
    return f->kind == TD_KIND_INT || f->kind == TD_KIND_LONG;
}

static bool has_low(const td_field *f)
{
    return f->kind == TD_KIND_REAL  ? f->min > -INFINITY
           : f->kind == TD_KIND_INT ? f->min > INT_MIN
                                    : f->min > -TWO_63;
}

static bool has_high(const td_field *f)
{
    return f->kind == TD_KIND_REAL  ? f->max < INFINITY
           : f->kind == TD_KIND_INT ? f->max < INT_MAX
                                    : f->max < TWO_63;
}

static void print_bound(const td_field *f, double bound, td_text *out)
{
    if (is_whole(f))
        td_text_add(out, "%.0f", bound);
    else
        td_real_print(bound, out);
}

void td_field_range(const td_field *f, td_text *out)
{
    if (f->kind == TD_KIND_ENUM)
        for (int i = 0; i < count_names(f); i++) {
            td_text_add(out, "%s", i ? ", " : "");
            print_name(f, i, out);
        }
    if (!is_whole(f) && f->kind != TD_KIND_REAL)
        return;
    if (!has_low(f) && !has_high(f))
        td_text_add(out, "any");
    if (!has_low(f) && has_high(f))
        td_text_add(out, "at most ");
    if (has_low(f))
        print_bound(f, f->min, out);
    if (has_low(f))
        td_text_add(out, has_high(f) ? " to " : " or more");
    if (has_high(f))
        print_bound(f, f->max, out);
}

/* --- text to values -------------------------------------------------------------------------- */

static td_status out_of_range(const td_field *f, const char *subject, const char *value)
{
    td_text range = { 0 };
    td_field_range(f, &range);
    td_status st = td_text_status(&range);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "%s: %s is out of range, wanted %s", subject, value,
                      td_text_get(&range));
    td_text_release(&range);
    return st;
}

static bool is_in_range(const td_field *f, double low, double high)
{
    return low >= f->min && high <= f->max;
}

/*
 * Like is_in_range, but exact beyond 2^53: a limit of 2^63, or INT64_MAX rounded up to it, means no
 * limit.
 */
static bool is_whole_in_range(const td_field *f, int64_t v)
{
    if (f->kind == TD_KIND_INT && (v < INT_MIN || v > INT_MAX))
        return false;
    bool is_above = f->min < TWO_63 && (f->min < -TWO_63 || v >= (int64_t)f->min);
    bool is_below = f->max >= TWO_63 || (f->max >= -TWO_63 && v <= (int64_t)f->max);
    return is_above && is_below;
}

/* K, KB, M, ... are powers of 1000, Ki, KiB, Mi, ... of 1024, in upper or lower case */
static int64_t suffix_factor(const char *suffix)
{
    /* clang-format off */
    static const struct { const char *suffix; int64_t factor; } table[] = {
        { "",    1 },
        { "K",   1000 },             { "KB",  1000 },             { "KI",  INT64_C(1) << 10 },
        { "KIB", INT64_C(1) << 10 }, { "M",   1000000 },          { "MB",  1000000 },
        { "MI",  INT64_C(1) << 20 }, { "MIB", INT64_C(1) << 20 }, { "G",   1000000000 },
        { "GB",  1000000000 },       { "GI",  INT64_C(1) << 30 }, { "GIB", INT64_C(1) << 30 },
        { "T",   1000000000000 },    { "TB",  1000000000000 },    { "TI",  INT64_C(1) << 40 },
        { "TIB", INT64_C(1) << 40 },
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcasecmp(suffix, table[i].suffix) == 0)
            return table[i].factor;
    return 0;
}

/* parses "1.5G", a fraction of a unit, if the result is a whole number */
static bool is_part_of_unit(const char *value, int64_t *out)
{
    char digits[32];
    double x;
    const size_t n = strspn(value, "0123456789.");
    const int64_t factor = suffix_factor(value + n);
    if (n == 0 || n >= sizeof digits || factor <= 1 || !memchr(value, '.', n))
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)n, value);
    if (!td_text_to_real(digits, &x) || x * (double)factor >= 9007199254740992.0)
        return false;
    *out = (int64_t)(x * (double)factor);
    return (double)*out == x * (double)factor;
}

static td_status set_whole(const td_field *f, member *m, const char *value, const char *subject)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    bool is_too_large = errno == ERANGE;
    int64_t factor = suffix_factor(end);
    double ignored;
    int64_t product;
    if (is_part_of_unit(value, &product)) {
        v = product;
        factor = 1;
    } else if (end == value || factor == 0 || isspace((unsigned char)*value))
        return td_text_to_real(value, &ignored)
                   ? td_error(TD_EUSAGE, "%s: %s is not an integer", subject, value)
                   : td_error(TD_EUSAGE, "%s: '%s' is not a number", subject, value);
    if (is_too_large || __builtin_mul_overflow((int64_t)v, factor, &product) ||
        !is_whole_in_range(f, product))
        return out_of_range(f, subject, value);
    if (f->kind == TD_KIND_INT)
        m->small = (int)product;
    else
        m->large = product;
    return TD_OK;
}

static td_status set_real(const td_field *f, member *m, const char *value, const char *subject)
{
    double v;
    if (!td_text_to_real(value, &v))
        return td_error(TD_EUSAGE, "%s: '%s' is not a number", subject, value);
    if (!is_in_range(f, v, v))
        return out_of_range(f, subject, value);
    m->real = v;
    return TD_OK;
}

static td_status set_bool(const td_field *f, member *m, const char *value, const char *subject)
{
    static const char *const words[2][5] = { { "false", "no", "off", "0", NULL },
                                             { "true", "yes", "on", "1", NULL } };
    for (int truth = 0; truth < 2; truth++)
        for (int i = 0; words[truth][i]; i++)
            if (strcasecmp(value, words[truth][i]) == 0) {
                m->flag = (truth != 0) != is_opposite(f);
                return TD_OK;
            }
    return td_error(TD_EUSAGE, "%s: '%s' is not a Boolean, wanted true or false", subject, value);
}

/* the name of a value nearest to a wrong one, or NULL */
static const char *nearest_name(const td_field *f, const char *value, char room[64])
{
    int best = INT_MAX, distance;
    char word[64];
    size_t n;
    for (int i = 0; i < count_names(f); i++) {
        const char *rest = f->names[i];
        for (const char *piece; (piece = td_name_next(&rest, &n));) {
            snprintf(word, sizeof word, "%.*s", (int)n, piece);
            const bool is_start = strlen(value) > 2 && td_text_starts(word, value);
            if ((td_name_is_near(value, word, &distance) || is_start) && distance < best) {
                best = distance;
                memcpy(room, word, sizeof word);
            }
        }
    }
    return best < INT_MAX ? room : NULL;
}

/* the value of a name, compared exactly, then in lower case; -1: unknown */
static int find_name(const td_field *f, const char *value)
{
    char small[64];
    for (int i = 0; i < count_names(f); i++)
        if (is_in_list(f->names[i], value))
            return i;
    snprintf(small, sizeof small, "%s", value);
    for (char *p = small; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    for (int i = 0; strlen(value) < sizeof small && i < count_names(f); i++)
        if (is_in_list(f->names[i], small))
            return i;
    return -1;
}

static td_status set_enum(const td_field *f, member *m, const char *value, const char *subject)
{
    int found = find_name(f, value);
    if (found >= 0) {
        m->small = found;
        return TD_OK;
    }
    char room[64];
    const char *near = nearest_name(f, value, room);
    td_text names = { 0 };
    td_field_range(f, &names);
    td_status st = td_text_status(&names);
    if (st == TD_OK)
        st = td_error(TD_EUSAGE, "%s: '%s' is not one of %s%s%s%s", subject, value,
                      td_text_get(&names), near ? "; did you mean '" : "", near ? near : "",
                      near ? "'?" : "");
    td_text_release(&names);
    return st;
}

static td_status read_member(const td_field *f, member *m, const char *value, td_arena *arena,
                             const char *subject)
{
    switch (f->kind) {
    case TD_KIND_INT:
    case TD_KIND_LONG:
        return set_whole(f, m, value, subject);
    case TD_KIND_REAL:
        return set_real(f, m, value, subject);
    case TD_KIND_BOOL:
        return set_bool(f, m, value, subject);
    case TD_KIND_ENUM:
        return set_enum(f, m, value, subject);
    case TD_KIND_TEXT:
        m->text = td_arena_text(arena, value);
        return m->text ? TD_OK : TD_ENOMEM;
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
    td_bug(__FILE__, __LINE__, "a field of a known kind");
}

static void store(const td_field *f, void *base, const member *m)
{
    void *p = at(f, base);
    switch (f->kind) {
    case TD_KIND_INT:
    case TD_KIND_ENUM:
        *(int *)p = m->small;
        break;
    case TD_KIND_LONG:
        *(int64_t *)p = m->large;
        break;
    case TD_KIND_REAL:
        *(double *)p = m->real;
        break;
    case TD_KIND_BOOL:
        *(bool *)p = m->flag;
        break;
    case TD_KIND_TEXT:
        *(const char **)p = m->text;
        break;
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
}

td_status td_field_set_as(const td_field *f, void *base, const char *value, td_arena *arena,
                          const char *subject)
{
    member m = { 0 };
    TD_TRY(read_member(f, &m, value, arena, subject));
    store(f, base, &m);
    return TD_OK;
}

/* the option of a row: "--batch-size" */
static void spell_option(const td_field *f, char out[80])
{
    snprintf(out, 80, "--%s", f->name);
    for (char *p = out; *p; p++)
        if (*p == '_')
            *p = '-';
}

td_status td_field_set(const td_field *f, void *base, const char *value, td_arena *arena)
{
    char option[80];
    spell_option(f, option);
    return td_field_set_as(f, base, value, arena, option);
}

/* --- defaults, comparison, checks ------------------------------------------------------------ */

static member default_of(const td_field *f)
{
    member m = { 0 };
    switch (f->kind) {
    case TD_KIND_INT:
    case TD_KIND_ENUM:
        m.small = (int)f->def;
        break;
    case TD_KIND_LONG:
        m.large = (int64_t)f->def;
        break;
    case TD_KIND_REAL:
        m.real = f->def;
        break;
    case TD_KIND_BOOL:
        m.flag = (f->def != 0) != is_opposite(f);
        break;
    case TD_KIND_TEXT:
        m.text = f->def_text;
        break;
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
    return m;
}

void td_fields_default(const td_field *fields, void *base)
{
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++) {
        member m = default_of(f);
        if (td_field_has_member(f))
            store(f, base, &m);
    }
    td_given_clear(fields, base);
}

static bool is_same(td_field_kind kind, const void *a, const void *b)
{
    switch (kind) {
    case TD_KIND_INT:
    case TD_KIND_ENUM:
        return *(const int *)a == *(const int *)b;
    case TD_KIND_LONG:
        return *(const int64_t *)a == *(const int64_t *)b;
    case TD_KIND_REAL:
        return *(const double *)a == *(const double *)b;
    case TD_KIND_BOOL:
        return *(const bool *)a == *(const bool *)b;
    case TD_KIND_TEXT: {
        const char *s = *(const char *const *)a, *t = *(const char *const *)b;
        return s && t ? strcmp(s, t) == 0 : s == t;
    }
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
    return true;
}

bool td_field_is_default(const td_field *f, const void *base)
{
    member m = default_of(f);
    return !td_field_has_member(f) || is_same(f->kind, at_const(f, base), &m);
}

bool td_fields_equal(const td_field *fields, const void *a, const void *b)
{
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++)
        if (td_field_has_member(f) && !is_same(f->kind, at_const(f, a), at_const(f, b)))
            return false;
    return true;
}

static bool is_valid(const td_field *f, const void *base)
{
    const void *p = at_const(f, base);
    switch (f->kind) {
    case TD_KIND_INT:
        return is_whole_in_range(f, *(const int *)p);
    case TD_KIND_LONG:
        return is_whole_in_range(f, *(const int64_t *)p);
    case TD_KIND_REAL:
        return is_in_range(f, *(const double *)p, *(const double *)p);
    case TD_KIND_ENUM:
        return *(const int *)p >= 0 && *(const int *)p < count_names(f);
    case TD_KIND_BOOL:
    case TD_KIND_TEXT:
    case TD_KIND_TITLE:
    case TD_KIND_ALIAS:
    case TD_KIND_ACCEPTED:
    case TD_KIND_REFUSED:
    case TD_KIND_GIVEN:
    case TD_KIND_END:
        break;
    }
    return true;
}

td_status td_fields_check(const td_field *fields, const void *base)
{
    for (const td_field *f = fields; f->kind != TD_KIND_END; f++) {
        if (is_valid(f, base))
            continue;
        char option[80];
        td_text value = { 0 };
        spell_option(f, option);
        td_field_get(f, base, &value);
        td_status st = td_text_status(&value);
        if (st == TD_OK)
            st = out_of_range(f, option, td_text_get(&value));
        td_text_release(&value);
        return st;
    }
    return TD_OK;
}
