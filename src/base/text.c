/*
 * text.c -- growing strings and checks on strings
 */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void td_text_release(td_text *t)
{
    td_free(t->data);
    *t = (td_text){ 0 };
}

void td_text_free(char *text)
{
    td_free(text);
}

static bool make_room(td_text *t, size_t more)
{
    if (t->st != TD_OK)
        return false;
    t->st = td_reserve(&t->data, &t->cap, t->len + more + 1, 1);
    return t->st == TD_OK;
}

void td_text_add_bytes(td_text *t, const char *bytes, size_t n)
{
    if (!make_room(t, n))
        return;
    if (n > 0) /* bytes may be NULL */
        memcpy(t->data + t->len, bytes, n);
    t->len += n;
    t->data[t->len] = '\0';
}

void td_text_add(td_text *t, const char *fmt, ...)
{
    char small[256];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n < sizeof small) {
        td_text_add_bytes(t, small, (size_t)n);
        return;
    }
    if (!make_room(t, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(t->data + t->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->len += (size_t)n;
}

/* length of the UTF-8 sequence at s, 0 if it is invalid */
static size_t utf8_length(const unsigned char *s)
{
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc2 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf5 ? 4
                             : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((n == 3 && s[0] == 0xe0 && s[1] < 0xa0) || (n == 3 && s[0] == 0xed && s[1] > 0x9f) ||
        (n == 4 && s[0] == 0xf0 && s[1] < 0x90) || (n == 4 && s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

void td_text_add_json(td_text *t, const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8_length(p);
        if (*p == '"' || *p == '\\')
            td_text_add(t, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f || n == 0)
            td_text_add(t, "\\u%04x", *p);
        else
            td_text_add_bytes(t, (const char *)p, n);
        p += n ? n : 1;
    }
}

/* the code point of a valid sequence of n bytes */
static unsigned utf8_value(const unsigned char *s, size_t n)
{
    static const unsigned char first[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    unsigned c = s[0] & first[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3f);
    return c;
}

/* C1 controls, which some terminals execute; bidirectional controls; line separators */
static bool is_deceptive(unsigned c)
{
    return (c >= 0x80 && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void td_text_add_visible(td_text *t, const char *s, bool keeps_lines)
{
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        const size_t n = utf8_length(p);
        if (*p == '\n' && !keeps_lines)
            td_text_add(t, "\\n");
        else if ((*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f || n == 0)
            td_text_add(t, "\\x%02x", *p);
        else if (n > 1 && is_deceptive(utf8_value(p, n)))
            td_text_add(t, "\\u%04x", utf8_value(p, n));
        else
            td_text_add_bytes(t, (const char *)p, n);
        p += n ? n : 1;
    }
}

static void json_name(td_text *t, const char *name)
{
    bool is_first = t->len == 0 || t->data[t->len - 1] == '{';
    td_text_add(t, "%s\"%s\": ", is_first ? "" : ", ", name);
}

void td_json_add(td_text *t, const char *name, double value)
{
    json_name(t, name);
    if (isfinite(value)) /* whole numbers with all digits: counts, bytes */
        td_text_add(t, value == floor(value) && fabs(value) < 1e15 ? "%.0f" : "%.10g", value);
    else
        td_text_add(t, "null");
}

void td_json_add_text(td_text *t, const char *name, const char *value)
{
    json_name(t, name);
    td_text_add(t, value ? "\"" : "null");
    if (!value)
        return;
    td_text_add_json(t, value);
    td_text_add(t, "\"");
}

bool td_text_is_utf8(const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8_length(p);
        if (n == 0)
            return false;
        p += n;
    }
    return true;
}

void td_text_make_printable(char *s)
{
    const bool is_utf8 = td_text_is_utf8(s);
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        const bool is_c1 = is_utf8 && p[0] == 0xc2 && p[1] < 0xa0;
        if (*p < 0x20 || *p == 0x7f || is_c1 || (!is_utf8 && *p > 0x7f))
            *p = '?';
        if (is_c1)
            *++p = '?';
    }
}

bool td_text_is_utf16(const void *bytes, size_t n)
{
    return n >= 2 && (memcmp(bytes, "\xFF\xFE", 2) == 0 || memcmp(bytes, "\xFE\xFF", 2) == 0);
}

td_status td_text_status(const td_text *t)
{
    return t->st;
}

td_status td_text_take(td_text *t, td_status st, char **out)
{
    if (st == TD_OK)
        st = t->st;
    if (st == TD_OK) {
        *out = t->data;
        *t = (td_text){ 0 };
    } else {
        td_text_release(t);
    }
    return st;
}

const char *td_text_get(const td_text *t)
{
    return t->data ? t->data : "";
}

bool td_text_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool td_text_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

bool td_text_glob(const char *pattern, const char *s)
{
    const char *star = NULL, *from = NULL;
    while (*s) {
        if (*pattern == '*') {
            star = pattern++;
            from = s;
        } else if (*pattern == '?' || *pattern == *s) {
            pattern++;
            s++;
        } else if (star) {
            pattern = star + 1;
            s = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool td_text_in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; s && *s;) {
        size_t len = strcspn(s, ",");
        if (len == n && strncmp(s, word, n) == 0)
            return true;
        s += len + (s[len] == ',');
    }
    return false;
}

#define DISTANCE_MAX 64 /* longer words are never similar */

int td_text_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n >= DISTANCE_MAX || m >= DISTANCE_MAX)
        return DISTANCE_MAX;

    int d[3][DISTANCE_MAX + 1]; /* rows i-2, i-1, i of the edit table */
    for (size_t j = 0; j <= m; j++)
        d[1][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        d[2][0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = d[1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[1][j] + 1 < best ? d[1][j] + 1 : best;
            best = d[2][j - 1] + 1 < best ? d[2][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = d[0][j - 2] + 1 < best ? d[0][j - 2] + 1 : best;
            d[2][j] = best;
        }
        memcpy(d[0], d[1], sizeof d[0]);
        memcpy(d[1], d[2], sizeof d[1]);
    }
    return d[1][m];
}

bool td_text_to_int(const char *s, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end || errno || isspace((unsigned char)*s))
        return false;
    *out = v;
    return true;
}

bool td_text_to_real(const char *s, double *out)
{
    /* the program never calls setlocale, so strtod reads the C locale */
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end || isspace((unsigned char)*s) || v != v)
        return false;
    *out = v;
    return true;
}

const char *td_real_word(double x, int decimals, char room[TD_REAL_WORD])
{
    if (isnan(x))
        return "not a number";
    if (isinf(x))
        return x > 0 ? "infinite" : "minus infinite";
    snprintf(room, TD_REAL_WORD, fabs(x) < 1e15 ? "%.*f" : "%.*g", decimals, x);
    return room;
}
