/*
 * multipart.c -- finds the file in a multipart form (RFC 7578, RFC 2046)
 *
 *     --boundary CRLF headers CRLF CRLF bytes CRLF --boundary CRLF ... --boundary--
 */
#include <string.h>
#include <strings.h>

#include "serve/api.h"

enum { BOUNDARY_BYTES = 70, HEADER_BYTES = 4096 };

/* gets the value of `name=` in a header line, with or without quotes; false if absent */
static bool parameter(const char *line, size_t n, const char *name, char *out, size_t room)
{
    size_t n_name = strlen(name);
    for (size_t i = 0; i + n_name + 1 <= n; i++) {
        bool begins = i > 0 && strchr("; \t", line[i - 1]) && line[i - 1];
        if (!begins || strncasecmp(line + i, name, n_name) != 0 || line[i + n_name] != '=')
            continue;
        size_t from = i + n_name + 1, len = 0;
        bool is_quoted = from < n && line[from] == '"';
        from += is_quoted;
        while (from + len < n &&
               (is_quoted ? line[from + len] != '"' : !strchr("; \t\r\n", line[from + len])))
            len++;
        if (len >= room)
            return false;
        memcpy(out, line + from, len);
        out[len] = '\0';
        return true;
    }
    return false;
}

/* the first `what` in [from, end), or NULL */
static const char *find(const char *from, const char *end, const char *what, size_t n)
{
    return from < end ? memmem(from, (size_t)(end - from), what, n) : NULL;
}

typedef struct {
    bool is_image, is_file;
} part_kind;

/* parses the Content-Disposition of a part */
static part_kind kind_of(const char *head, const char *end)
{
    static const char field[] = "content-disposition:";
    part_kind kind = { 0 };
    char name[64], file[1024];
    for (const char *line = head; line < end;) {
        const char *stop = find(line, end, "\r\n", 2);
        size_t n = (size_t)((stop ? stop : end) - line);
        if (n >= sizeof field - 1 && strncasecmp(line, field, sizeof field - 1) == 0) {
            kind.is_image =
                parameter(line, n, "name", name, sizeof name) && strcmp(name, "image") == 0;
            kind.is_file = parameter(line, n, "filename", file, sizeof file);
        }
        line = stop ? stop + 2 : end;
    }
    return kind;
}

/* moves from a boundary to the next line; NULL: the closing boundary, or truncated */
static const char *next_line(const char *at, const char *end)
{
    if (end - at < 2 || memcmp(at, "--", 2) == 0)
        return NULL;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return end - at >= 2 && memcmp(at, "\r\n", 2) == 0 ? at + 2 : NULL;
}

td_status td_multipart_find(const char *content_type, const char *body, size_t n_body,
                            const char **out, size_t *n_out)
{
    char mark[BOUNDARY_BYTES + 8] = "\r\n--";
    const char *end = body + n_body;
    *out = NULL;
    *n_out = 0;
    if (!parameter(content_type, strlen(content_type), "boundary", mark + 4, BOUNDARY_BYTES + 1) ||
        !mark[4])
        return td_error(TD_EFORMAT, "the form's Content-Type names no boundary");
    size_t n_mark = strlen(mark);
    /* the first boundary may start the body, without a line end before it */
    bool is_first = n_body >= n_mark - 2 && memcmp(body, mark + 2, n_mark - 2) == 0;
    const char *first = is_first ? body : find(body, end, mark, n_mark);
    const char *head = first ? next_line(first + n_mark - (is_first ? 2 : 0), end) : NULL;
    while (head) {
        const char *blank = find(head, end, "\r\n\r\n", 4);
        if (!blank || blank - head > HEADER_BYTES)
            return td_error(TD_EFORMAT, "a part of the form has no end of its headers");
        const char *bytes = blank + 4, *stop = find(bytes, end, mark, n_mark);
        if (!stop)
            return td_error(TD_EFORMAT, "the form ends inside a part, after %zu bytes", n_body);
        part_kind kind = kind_of(head, blank);
        if (kind.is_image || (kind.is_file && !*out)) {
            *out = bytes;
            *n_out = (size_t)(stop - bytes);
        }
        if (kind.is_image)
            break;
        head = next_line(stop + n_mark, end);
    }
    return *out ? TD_OK : td_error(TD_EFORMAT, "the form has no part 'image' and no file");
}
