/*
 * token.c -- reads and compares the bearer token
 */
#include "serve/token.h"

#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/file_io.h"

enum { FILE_BYTES_MAX = 4096 };

td_status td_token_read(const char *path, char **out)
{
    size_t n;
    char *text;
    *out = NULL;
    TD_TRY_MSG(td_file_read(path, FILE_BYTES_MAX, &text, &n), "--token-file");
    size_t from = strspn(text, " \t\r\n");
    while (n > from && strchr(" \t\r\n", text[n - 1]) && text[n - 1])
        n--;
    bool is_good = n > from;
    for (size_t i = from; i < n; i++)
        is_good = is_good && text[i] > ' ' && text[i] <= '~';
    if (!is_good) {
        td_free(text);
        return td_error(TD_EFORMAT,
                        "'%s' contains no token, wanted one line of visible ASCII without blanks",
                        path);
    }
    memmove(text, text + from, n - from);
    text[n - from] = '\0';
    *out = text;
    return TD_OK;
}

bool td_token_matches(const char *token, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *given = authorization + sizeof scheme - 1;
    given += strspn(given, " ");
    const size_t n = strlen(token), n_given = strlen(given);
    volatile unsigned char differs = n != n_given;
    for (size_t i = 0; i < n_given; i++)
        differs = (unsigned char)(differs | (unsigned char)(given[i] ^ token[i % n]));
    return !differs;
}
