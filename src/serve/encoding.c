/*
 * encoding.c -- decompresses request bodies
 *
 * The output is limited during decompression, so a small body cannot expand to gigabytes.
 */
#include "serve/encoding.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/arena.h"

enum { ANY_HEADER = 32 + MAX_WBITS, ROOM_BYTES = 64 * 1024 };

td_encoding td_encoding_of(const char *value)
{
    static const char *const known[] = { "gzip", "x-gzip", "deflate" };
    if (!value || !*value || strcasecmp(value, "identity") == 0)
        return TD_ENCODING_NONE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasecmp(value, known[i]) == 0)
            return TD_ENCODING_DEFLATED;
    return TD_ENCODING_UNKNOWN;
}

static void *get(void *ctx, unsigned n, unsigned each)
{
    (void)ctx;
    return td_alloc(n, each);
}

static void free_block(void *ctx, void *p)
{
    (void)ctx;
    td_free(p);
}

static td_status zlib_error(const z_stream *z, int code)
{
    if (code == Z_MEM_ERROR)
        return TD_ENOMEM;
    if (code == Z_BUF_ERROR || code == Z_OK)
        return td_error(TD_EFORMAT, "the compressed body ends early");
    if (code == Z_STREAM_END)
        return td_error(TD_EFORMAT, "the compressed body has %u bytes after its end", z->avail_in);
    return td_error(TD_EFORMAT, "the compressed body is damaged: %s",
                    z->msg ? z->msg : "not a gzip or zlib stream");
}

/* decompresses until the stream ends, or until the output exceeds `max` */
static td_status inflate_all(z_stream *z, size_t max, char **out, size_t *n_out)
{
    size_t cap = 0, n = 0;
    int code = Z_OK;
    while (code == Z_OK) {
        if (n > max)
            return td_error(TD_ELIMIT, "the body expands to more than %zu bytes", max);
        if (n == cap)
            TD_TRY(td_reserve(out, &cap, n + ROOM_BYTES, 1));
        size_t room = cap - n < max + 1 - n ? cap - n : max + 1 - n;
        room = room < UINT_MAX ? room : UINT_MAX;
        z->next_out = (Bytef *)*out + n;
        z->avail_out = (unsigned)room;
        code = inflate(z, Z_NO_FLUSH);
        n += room - z->avail_out;
        if (code == Z_OK && z->avail_in == 0 && z->avail_out > 0)
            break;
    }
    if (code != Z_STREAM_END || z->avail_in > 0)
        return zlib_error(z, code);
    if (n > max)
        return td_error(TD_ELIMIT, "the body expands to more than %zu bytes", max);
    *n_out = n;
    return TD_OK;
}

td_status td_encoding_expand(const void *bytes, size_t n, size_t max, char **out, size_t *n_out)
{
    z_stream z = { .zalloc = get, .zfree = free_block };
    *out = NULL;
    *n_out = 0;
    if (n > UINT_MAX)
        return td_error(TD_ELIMIT, "a compressed body of %zu bytes is too long", n);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (unsigned)n;
    if (inflateInit2(&z, ANY_HEADER) != Z_OK)
        return td_error(TD_ENOMEM, "cannot expand the body: out of memory");
    td_status st = inflate_all(&z, max, out, n_out);
    inflateEnd(&z);
    if (st != TD_OK) {
        td_free(*out);
        *out = NULL;
    }
    return st;
}
