/*
 * delimited.c -- reads rows of fields, and writes a field
 *
 * A field that begins with a quote ends at the next single one; two stand for one, and line ends
 * are part of it.  Lines end in LF or CR LF.
 */
#include "io/delimited.h"

#include <string.h>

static td_status wrong(const td_delimited *d, td_status st, const char *what)
{
    return td_error(st, "'%s' line %lld: %s", d->what, (long long)d->line, what);
}

static char choose_delimiter(const td_delimited *d)
{
    const char *first = d->bytes + d->at;
    const char *end = memchr(first, '\n', d->n_bytes - d->at);
    const size_t n = end ? (size_t)(end - first) : d->n_bytes - d->at;
    const bool is_csv = td_text_ends(d->what, ".csv"), is_tsv = td_text_ends(d->what, ".tsv");
    if (is_tsv || (!is_csv && memchr(first, '\t', n)))
        return '\t';
    return is_csv || memchr(first, ',', n) ? ',' : ' ';
}

td_status td_delimited_begin(td_delimited *d, const char *bytes, size_t n_bytes, const char *what)
{
    static const char mark[] = "\xEF\xBB\xBF";
    *d = (td_delimited){ .what = what, .bytes = bytes, .n_bytes = n_bytes, .line = 1, .next = 1 };
    const char *zero = n_bytes ? memchr(bytes, '\0', n_bytes) : NULL;
    if (zero) {
        for (const char *p = bytes; p < zero; p++)
            d->line += *p == '\n';
        return wrong(d, TD_EFORMAT, "a zero byte: the file is not a text");
    }
    if (n_bytes >= 3 && memcmp(bytes, mark, 3) == 0)
        d->at = 3;
    d->delimiter = d->at < n_bytes ? choose_delimiter(d) : ',';
    return TD_OK;
}

void td_delimited_release(td_delimited *d)
{
    td_text_release(&d->text);
    *d = (td_delimited){ 0 };
}

const char *td_delimited_field(const td_delimited *d, int i)
{
    return d->text.data + d->fields[i];
}

/* The bytes of a line end at `at`: 0, 1 or 2. */
static size_t line_end(const td_delimited *d, size_t at)
{
    if (at < d->n_bytes && d->bytes[at] == '\n')
        return 1;
    return at + 1 < d->n_bytes && d->bytes[at] == '\r' && d->bytes[at + 1] == '\n' ? 2 : 0;
}

static bool is_end(const td_delimited *d, size_t at)
{
    return at >= d->n_bytes || line_end(d, at) > 0 || d->bytes[at] == d->delimiter;
}

static td_status begin_field(td_delimited *d)
{
    if (d->n_fields == TD_DELIMITED_FIELDS)
        return wrong(d, TD_ELIMIT, "more than 64 fields");
    d->fields[d->n_fields++] = d->text.len;
    return TD_OK;
}

static td_status end_field(td_delimited *d)
{
    if (d->text.len - d->fields[d->n_fields - 1] > TD_DELIMITED_FIELD_BYTES)
        return wrong(d, TD_ELIMIT, "a field has more than 65536 bytes");
    td_text_add_bytes(&d->text, "", 1);
    return td_text_status(&d->text);
}

static td_status read_quoted(td_delimited *d)
{
    for (d->at++;;) {
        const char *from = d->bytes + d->at;
        const char *quote = memchr(from, '"', d->n_bytes - d->at);
        if (!quote)
            return wrong(d, TD_EFORMAT, "a quoted field does not end");
        for (const char *p = from; p < quote; p++)
            d->next += *p == '\n';
        td_text_add_bytes(&d->text, from, (size_t)(quote - from));
        d->at += (size_t)(quote - from) + 1;
        if (d->at >= d->n_bytes || d->bytes[d->at] != '"')
            break;
        td_text_add_bytes(&d->text, "\"", 1);
        d->at++;
    }
    return is_end(d, d->at) ? TD_OK : wrong(d, TD_EFORMAT, "text after a quoted field");
}

static td_status read_plain(td_delimited *d)
{
    const size_t from = d->at;
    while (!is_end(d, d->at)) {
        if (d->bytes[d->at] == '"')
            return wrong(d, TD_EFORMAT, "a quote inside a field that does not begin with one");
        d->at++;
    }
    td_text_add_bytes(&d->text, d->bytes + from, d->at - from);
    return TD_OK;
}

static td_status read_fields(td_delimited *d)
{
    for (;;) {
        TD_TRY(begin_field(d));
        TD_TRY(d->at < d->n_bytes && d->bytes[d->at] == '"' ? read_quoted(d) : read_plain(d));
        TD_TRY(end_field(d));
        if (d->at >= d->n_bytes || d->bytes[d->at] != d->delimiter)
            return TD_OK;
        d->at++;
    }
}

/* "a name with blanks 3": the name and the label; a line without a blank is one field. */
static td_status read_two(td_delimited *d)
{
    size_t end = d->at;
    while (end < d->n_bytes && line_end(d, end) == 0)
        end++;
    const char *line = d->bytes + d->at;
    size_t n = end - d->at, cut;
    while (n > 0 && line[n - 1] == ' ')
        n--;
    for (cut = n; cut > 0 && line[cut - 1] != ' '; cut--)
        ;
    size_t name = cut;
    while (name > 0 && line[name - 1] == ' ')
        name--;
    d->at = end;
    TD_TRY(begin_field(d));
    td_text_add_bytes(&d->text, line, name ? name : n);
    TD_TRY(end_field(d));
    if (name == 0)
        return TD_OK;
    TD_TRY(begin_field(d));
    td_text_add_bytes(&d->text, line + cut, n - cut);
    return end_field(d);
}

td_status td_delimited_next(td_delimited *d)
{
    d->n_fields = 0;
    d->text.len = 0;
    for (size_t n; d->at < d->n_bytes && (n = line_end(d, d->at)) > 0; d->next++)
        d->at += n;
    d->line = d->next;
    if (d->at >= d->n_bytes)
        return TD_OK;
    td_status st = d->delimiter == ' ' ? read_two(d) : read_fields(d);
    if (st != TD_OK) {
        d->n_fields = 0;
        return st;
    }
    d->at += line_end(d, d->at);
    d->next++;
    return TD_OK;
}

void td_delimited_add(td_text *out, const char *field)
{
    if (!field[strcspn(field, ",\"\r\n")]) {
        td_text_add(out, "%s", field);
        return;
    }
    td_text_add(out, "\"");
    for (const char *s = field; *s; s++)
        td_text_add(out, *s == '"' ? "\"\"" : "%c", *s);
    td_text_add(out, "\"");
}
