/*
 * json_tokens.c -- tokenizes JSON through a window over the file
 *
 *     file   ..............[ window ]..................      base: the file's byte at buf[0]
 *                          0   at   n                        buf[n] is 0
 *
 * Before a token begins the window is filled to at least 2 KiB, or to the end of the file.  So
 * numbers and words are contiguous and followed by a byte that is not part of a number; only texts
 * may be longer than the window, and they are read in pieces.  Line ends occur only between tokens;
 * they are counted there.
 */
#include "io/json_tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"

enum {
    WINDOW = 1 << 18,
    AHEAD = 2048,
    NUMBER_MAX = 1024,
    DEPTH_MAX = 64,
    TEXT_MAX = 1 << 20,
    WHAT_SHOWN = 40
};

struct td_tokens {
    char *what;
    int fd;           /* -1: from memory */
    const char *rest; /* memory not yet copied to the window */
    size_t n_rest;
    char *buf; /* [cap + 1] */
    size_t cap, at, n;
    bool is_at_end; /* the window holds the end of the input */
    int64_t base, line;
    int64_t token_byte, token_line;
    int depth;
    bool is_object[DEPTH_MAX];
    bool is_first; /* the next item is the innermost container's first: no comma before it */
    td_text text;
};

/* --- opening ---------------------------------------------------------------------------------- */

void td_tokens_free(td_tokens *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        (void)close(t->fd);
    td_free(t->what);
    td_free(t->buf);
    td_text_release(&t->text);
    td_free(t);
}

/* allocates a tokenizer for `n_bytes` of memory, or for a file */
static td_tokens *make(const char *what, size_t n_bytes)
{
    td_tokens *t = TD_NEW(td_tokens);
    if (!t)
        return NULL;
    t->fd = -1;
    t->line = 1;
    t->what = td_copy_text(what);
    t->cap = n_bytes < WINDOW ? n_bytes + 1 : WINDOW; /* one more byte, to detect the end */
    t->buf = t->what ? td_alloc(t->cap + 1, 1) : NULL;
    if (!t->buf) {
        td_tokens_free(t);
        return NULL;
    }
    return t;
}

static td_status open_file(td_tokens *t, const char *path)
{
    struct stat s;
    t->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (t->fd < 0)
        return td_error_errno(errno == ENOENT ? TD_ENOTFOUND : TD_EIO, "cannot open '%s'", path);
    if (fstat(t->fd, &s) != 0)
        return td_error_errno(TD_EIO, "cannot read '%s'", path);
    if (!S_ISREG(s.st_mode))
        return td_error(TD_EIO, "'%s' is not a regular file", path);
    return TD_OK;
}

/* the first window is filled before parsing, so it holds a whole byte order mark */
static td_status fill(td_tokens *t);

static td_status begin(td_tokens *t)
{
    TD_TRY(fill(t));
    if (t->n == 0)
        return td_error(TD_EFORMAT, "'%s' is empty, wanted JSON", t->what);
    if (td_text_is_utf16(t->buf, t->n))
        return td_error(TD_EFORMAT, "'%s' is UTF-16, wanted UTF-8", t->what);
    if (t->n >= 3 && memcmp(t->buf, "\xEF\xBB\xBF", 3) == 0)
        t->at = 3;
    return TD_OK;
}

td_status td_tokens_open(const char *path, td_tokens **out)
{
    td_status st;
    *out = NULL;
    td_tokens *t = make(path, WINDOW);
    if (!t)
        return TD_ENOMEM;
    TD_OUT(open_file(t, path));
    TD_OUT(begin(t));
    *out = t;
    t = NULL;
out:
    td_tokens_free(t);
    return st;
}

td_status td_tokens_parse(const void *bytes, size_t n_bytes, const char *what, td_tokens **out)
{
    td_status st;
    *out = NULL;
    td_tokens *t = make(what, n_bytes);
    if (!t)
        return TD_ENOMEM;
    t->rest = bytes;
    t->n_rest = n_bytes;
    TD_OUT(begin(t));
    *out = t;
    t = NULL;
out:
    td_tokens_free(t);
    return st;
}

const char *td_tokens_what(const td_tokens *t)
{
    return t->what;
}

int64_t td_tokens_byte(const td_tokens *t)
{
    return t->token_byte;
}

int64_t td_tokens_line(const td_tokens *t)
{
    return t->token_line;
}

/* --- the window ------------------------------------------------------------------------------- */

static td_status more_bytes(td_tokens *t, char *to, size_t room, size_t *n)
{
    if (t->fd < 0) {
        *n = room < t->n_rest ? room : t->n_rest;
        if (*n > 0)
            memcpy(to, t->rest, *n);
        t->rest += *n;
        t->n_rest -= *n;
        return TD_OK;
    }
    for (;;) {
        ssize_t got = read(t->fd, to, room);
        if (got >= 0) {
            *n = (size_t)got;
            return TD_OK;
        }
        if (errno != EINTR)
            return td_error_errno(TD_EIO, "cannot read '%s'", t->what);
    }
}

/* moves the unread bytes to the front and reads until the window is full */
static td_status fill(td_tokens *t)
{
    size_t left = t->n - t->at;
    memmove(t->buf, t->buf + t->at, left);
    t->base += (int64_t)t->at;
    t->at = 0;
    t->n = left;
    while (!t->is_at_end && t->n < t->cap) {
        size_t n;
        TD_TRY(more_bytes(t, t->buf + t->n, t->cap - t->n, &n));
        t->is_at_end = n == 0;
        t->n += n;
    }
    t->buf[t->n] = '\0';
    return TD_OK;
}

static inline td_status look_ahead(td_tokens *t)
{
    return t->n - t->at >= AHEAD || t->is_at_end ? TD_OK : fill(t);
}

/* the next byte; 0 at the end (and for a zero byte, which is always an error) */
static inline char next(const td_tokens *t)
{
    return t->buf[t->at];
}

/* --- messages --------------------------------------------------------------------------------- */

static td_status fail_at(const td_tokens *t, int64_t byte, const char *found, const char *wanted)
{
    return td_error(TD_EFORMAT, "'%s': byte %" PRId64 " (line %" PRId64 "): found %s, wanted %s",
                    t->what, byte, t->line, found, wanted);
}

/* reports that the next byte is not what was expected */
static td_status unexpected(const td_tokens *t, const char *wanted)
{
    char found[32];
    unsigned char c = (unsigned char)next(t);
    int64_t byte = t->base + (int64_t)t->at;
    if (t->at >= t->n)
        return td_error(TD_EFORMAT,
                        "'%s' ends at byte %" PRId64 " (line %" PRId64
                        "), wanted %s: the file may be truncated",
                        t->what, byte, t->line, wanted);
    if (c > ' ' && c < 127)
        (void)snprintf(found, sizeof found, "'%c'", c);
    else
        (void)snprintf(found, sizeof found, "a byte 0x%02x", c);
    return fail_at(t, byte, found, wanted);
}

td_status td_tokens_error(const td_tokens *t, const char *fmt, ...)
{
    enum { BYTES = 512 };
    char text[BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return td_error(TD_EFORMAT, "'%s': %s (byte %" PRId64 ", line %" PRId64 ")", t->what, text,
                    t->token_byte, t->token_line);
}

void td_token_describe(const td_token *v, char *out, size_t n)
{
    switch (v->kind) {
    case TD_TOKEN_NULL:
        (void)snprintf(out, n, "null");
        return;
    case TD_TOKEN_BOOL:
        (void)snprintf(out, n, "%s", v->is_true ? "true" : "false");
        return;
    case TD_TOKEN_NUMBER:
        (void)snprintf(out, n, "the number %.17g", v->number);
        return;
    case TD_TOKEN_TEXT:
        (void)snprintf(out, n, "the string '%.*s'%s", WHAT_SHOWN, v->text,
                       strlen(v->text) > WHAT_SHOWN ? "..." : "");
        return;
    case TD_TOKEN_LIST:
        (void)snprintf(out, n, "a list");
        return;
    case TD_TOKEN_OBJECT:
        (void)snprintf(out, n, "an object");
        return;
    }
}

/* --- space ------------------------------------------------------------------------------------ */

/* skips white space, to the start of the next token */
static td_status skip_space(td_tokens *t)
{
    for (;;) {
        TD_TRY(look_ahead(t));
        while (next(t) == ' ' || next(t) == '\n' || next(t) == '\r' || next(t) == '\t') {
            t->line += next(t) == '\n';
            t->at++;
        }
        if (t->at < t->n || t->is_at_end)
            break;
    }
    TD_TRY(look_ahead(t));
    t->token_byte = t->base + (int64_t)t->at;
    t->token_line = t->line;
    return TD_OK;
}

/* --- texts ------------------------------------------------------------------------------------ */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* reads four hex digits */
static td_status take_hex(td_tokens *t, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, t->at++) {
        int v = hex_value(next(t));
        if (v < 0)
            return unexpected(t, "a hexadecimal digit of '\\uXXXX'");
        *out = *out * 16 + (unsigned)v;
    }
    return TD_OK;
}

static size_t put_utf8(unsigned c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* reads one character after "\u", which may need a second escape */
static td_status take_unicode(td_tokens *t, char *out, size_t *n)
{
    unsigned c, low;
    int64_t byte = t->base + (int64_t)t->at - 2;
    TD_TRY(take_hex(t, &c));
    if (c == 0)
        return fail_at(t, byte, "'\\u0000'", "a string without zero bytes");
    if (c >= 0xDC00 && c <= 0xDFFF)
        return fail_at(t, byte, "the second half of a surrogate pair", "a first half before it");
    if (c >= 0xD800 && c <= 0xDBFF) {
        if (next(t) != '\\' || t->buf[t->at + 1] != 'u')
            return unexpected(t, "'\\u', the second half of a surrogate pair");
        t->at += 2;
        TD_TRY(take_hex(t, &low));
        if (low < 0xDC00 || low > 0xDFFF)
            return fail_at(t, byte, "half a surrogate pair", "a second half after it");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    *n = put_utf8(c, out);
    return TD_OK;
}

/* reads an escape after the backslash */
static td_status take_escape(td_tokens *t, char *out, size_t *n)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = next(t);
    const char *at = c ? strchr(names, c) : NULL;
    if (c == 'u') {
        t->at++;
        return take_unicode(t, out, n);
    }
    if (!at)
        return unexpected(t, "one of \"\\/bfnrtu after a backslash");
    *out = meant[at - names];
    *n = 1;
    t->at++;
    return TD_OK;
}

static td_status keep(td_tokens *t, const char *bytes, size_t n)
{
    if (n > TEXT_MAX - t->text.len)
        return td_error(TD_ELIMIT,
                        "'%s': byte %" PRId64 " (line %" PRId64
                        "): a string is longer than %d bytes",
                        t->what, t->token_byte, t->token_line, TEXT_MAX);
    td_text_add_bytes(&t->text, bytes, n);
    return td_text_status(&t->text);
}

/* reads a text from its opening quote on; stores it in t->text if `keeps` */
static td_status take_text(td_tokens *t, bool keeps)
{
    char escaped[4];
    size_t n_escaped = 0;
    t->text.len = 0;
    t->at++;
    for (;;) {
        TD_TRY(look_ahead(t));
        size_t from = t->at;
        while ((unsigned char)next(t) >= ' ' && next(t) != '"' && next(t) != '\\')
            t->at++;
        if (keeps)
            TD_TRY(keep(t, t->buf + from, t->at - from));
        if (next(t) == '"')
            break;
        if (t->at >= t->n && !t->is_at_end)
            continue; /* the window ended, not the text */
        if (next(t) != '\\')
            return unexpected(t, "the end of a string, '\"'");
        TD_TRY(look_ahead(t));
        t->at++;
        TD_TRY(take_escape(t, escaped, &n_escaped));
        if (keeps)
            TD_TRY(keep(t, escaped, n_escaped));
    }
    t->at++;
    if (!keeps)
        return TD_OK;
    TD_TRY(keep(t, "", 0));
    if (!td_text_is_utf8(td_text_get(&t->text)))
        return td_tokens_error(t, "a string is not UTF-8");
    return TD_OK;
}

/* --- numbers and words ------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool take_word(td_tokens *t, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(t->buf + t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* reads digits, at least one */
static td_status take_digits(td_tokens *t)
{
    if (!is_digit(next(t)))
        return unexpected(t, "a digit");
    while (is_digit(next(t)))
        t->at++;
    return TD_OK;
}

/* skips a number, checking the grammar; *is_whole: it has no point and no exponent */
static td_status pass_number(td_tokens *t, bool *is_whole)
{
    size_t from = t->at;
    *is_whole = true;
    t->at += next(t) == '-';
    if (next(t) == '0')
        t->at++;
    else
        TD_TRY(take_digits(t));
    if (next(t) == '.') {
        *is_whole = false;
        t->at++;
        TD_TRY(take_digits(t));
    }
    if (next(t) == 'e' || next(t) == 'E') {
        *is_whole = false;
        t->at++;
        t->at += next(t) == '+' || next(t) == '-';
        TD_TRY(take_digits(t));
    }
    if (t->at - from > NUMBER_MAX)
        return td_error(TD_ELIMIT,
                        "'%s': byte %" PRId64 " (line %" PRId64
                        "): a number has more than %d characters",
                        t->what, t->token_byte, t->token_line, NUMBER_MAX);
    return TD_OK;
}

/* fast path for plain decimals such as "473.07": up to 15 digits are exact with one division */
static bool quick_number(const char *s, size_t n, double *out)
{
    static const double tens[] = { 1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15 };
    enum { DIGITS = 15 };
    int64_t digits = 0;
    int n_digits = 0, n_places = 0;
    bool is_negative = *s == '-', is_behind = false;
    for (size_t i = is_negative; i < n; i++) {
        if (s[i] == '.') {
            is_behind = true;
            continue;
        }
        if (!is_digit(s[i]) || ++n_digits > DIGITS)
            return false;
        digits = digits * 10 + (s[i] - '0');
        n_places += is_behind;
    }
    *out = (is_negative ? -1.0 : 1.0) * ((double)digits / tens[n_places]);
    return true;
}

static td_status take_number(td_tokens *t, td_token *out)
{
    char copy[NUMBER_MAX + 1];
    const char *s = t->buf + t->at;
    TD_TRY(pass_number(t, &out->is_whole));
    size_t n = (size_t)(t->buf + t->at - s);
    out->kind = TD_TOKEN_NUMBER;
    bool is_quick = quick_number(s, n, &out->number);
    if (is_quick) {
        out->whole = (int64_t)out->number; /* used only if is_whole */
        return TD_OK;
    }
    memcpy(copy, s, n);
    copy[n] = '\0';
    if (out->is_whole)
        out->is_whole = td_text_to_int(copy, &out->whole);
    if (!td_text_to_real(copy, &out->number))
        out->number = *copy == '-' ? -HUGE_VAL : HUGE_VAL;
    return TD_OK;
}

/* --- values ----------------------------------------------------------------------------------- */

static td_status enter(td_tokens *t, bool is_object)
{
    if (t->depth == DEPTH_MAX)
        return td_error(TD_ELIMIT,
                        "'%s': byte %" PRId64 " (line %" PRId64
                        "): lists and objects are nested deeper than %d",
                        t->what, t->token_byte, t->token_line, DEPTH_MAX);
    t->is_object[t->depth++] = is_object;
    t->is_first = true;
    t->at++;
    return TD_OK;
}

static void leave(td_tokens *t)
{
    TD_CHECK(t->depth > 0);
    t->depth--;
    t->is_first = false;
    t->at++;
}

/* reads null, true, false, and Python's NaN, Infinity and -Infinity */
static td_status take_constant(td_tokens *t, td_token *out)
{
    static const struct {
        const char *word;
        td_token value;
    } words[] = {
        { "null", { .kind = TD_TOKEN_NULL } },
        { "true", { .kind = TD_TOKEN_BOOL, .is_true = true } },
        { "false", { .kind = TD_TOKEN_BOOL } },
        { "NaN", { .kind = TD_TOKEN_NUMBER, .number = NAN } },
        { "Infinity", { .kind = TD_TOKEN_NUMBER, .number = INFINITY } },
        { "-Infinity", { .kind = TD_TOKEN_NUMBER, .number = -INFINITY } },
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (take_word(t, words[i].word)) {
            *out = words[i].value;
            return TD_OK;
        }
    }
    return unexpected(t, "a JSON value");
}

/* reads a value; `keeps`: texts and numbers are stored, not only checked */
static td_status take_value(td_tokens *t, bool keeps, td_token *out)
{
    bool is_whole;
    *out = (td_token){ .kind = TD_TOKEN_NUMBER };
    TD_TRY(skip_space(t));
    char c = next(t);
    if (c == '{' || c == '[') {
        out->kind = c == '{' ? TD_TOKEN_OBJECT : TD_TOKEN_LIST;
        return enter(t, c == '{');
    }
    t->is_first = false;
    if (c == '"') {
        out->kind = TD_TOKEN_TEXT;
        TD_TRY(take_text(t, keeps));
        out->text = td_text_get(&t->text);
        return TD_OK;
    }
    if (is_digit(c) || (c == '-' && t->buf[t->at + 1] != 'I'))
        return keeps ? take_number(t, out) : pass_number(t, &is_whole);
    return take_constant(t, out);
}

td_status td_tokens_value(td_tokens *t, td_token *out)
{
    return take_value(t, true, out);
}

td_status td_tokens_item(td_tokens *t, bool *more)
{
    TD_TRY(skip_space(t));
    *more = next(t) != ']';
    if (!*more) {
        leave(t);
        return TD_OK;
    }
    if (t->is_first)
        return TD_OK;
    if (next(t) != ',')
        return unexpected(t, "',' or the end of a list, ']'");
    t->at++;
    TD_TRY(skip_space(t));
    return next(t) == ']' ? unexpected(t, "a JSON value after ','") : TD_OK;
}

static td_status pass_key(td_tokens *t, bool keeps, bool *more)
{
    TD_TRY(skip_space(t));
    *more = next(t) != '}';
    if (!*more) {
        leave(t);
        return TD_OK;
    }
    if (!t->is_first) {
        if (next(t) != ',')
            return unexpected(t, "',' or the end of an object, '}'");
        t->at++;
        TD_TRY(skip_space(t));
    }
    if (next(t) != '"')
        return unexpected(t, "a key in quotes");
    t->is_first = false;
    TD_TRY(take_text(t, keeps));
    int64_t byte = t->token_byte, line = t->token_line;
    TD_TRY(skip_space(t));
    if (next(t) != ':')
        return unexpected(t, "':' after a key");
    t->at++;
    t->token_byte = byte;
    t->token_line = line;
    return TD_OK;
}

td_status td_tokens_key(td_tokens *t, const char **key, bool *more)
{
    TD_TRY(pass_key(t, true, more));
    *key = td_text_get(&t->text);
    return TD_OK;
}

/* skips values and closing brackets until the depth is `depth` again */
static td_status pass_until(td_tokens *t, int depth)
{
    td_token v;
    bool more;
    while (t->depth > depth) {
        if (t->is_object[t->depth - 1])
            TD_TRY(pass_key(t, false, &more));
        else
            TD_TRY(td_tokens_item(t, &more));
        if (more)
            TD_TRY(take_value(t, false, &v));
    }
    return TD_OK;
}

td_status td_tokens_skip(td_tokens *t)
{
    td_token v;
    int depth = t->depth;
    TD_TRY(take_value(t, false, &v));
    return pass_until(t, depth);
}

td_status td_tokens_leave(td_tokens *t)
{
    TD_CHECK(t->depth > 0);
    return pass_until(t, t->depth - 1);
}

td_status td_tokens_end(td_tokens *t)
{
    TD_TRY(skip_space(t));
    return t->at < t->n ? unexpected(t, "the end of the file") : TD_OK;
}
