/*
 * tar.c -- reads the headers of a tar file
 *
 * A tar is a sequence of blocks of 512 bytes: a header, the content in whole blocks, the next
 * header, ..., two blocks of zeros.
 *
 *     0      100    108   124    136   148     156  157      257     263   345     500
 *     | name | mode | ... | size | ... | check | type | link | magic | ... | prefix |
 *
 * Numbers are octal digits, or with the first bit set binary.  Longer names are entries before
 * their file: of type L (GNU), or records "LENGTH path=NAME\n" in one of type x (pax), which may
 * also have the size.
 */
#include "io/tar.h"

#include <string.h>

enum {
    BLOCK = 512,
    NAME = 0,
    NAME_BYTES = 100,
    SIZE = 124,
    SIZE_BYTES = 12,
    CHECK = 148,
    CHECK_BYTES = 8,
    TYPE = 156,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_BYTES = 155,
    LONG_NAME_MAX = 1 << 16,
    PAX_MAX = 1 << 20
};

/* --- bytes ------------------------------------------------------------------------------------ */

static td_status refuse(const td_tar *t, td_status st, int64_t header, const char *why)
{
    return td_error(st, "'%s': %s (byte %lld)", t->file.what, why, (long long)header);
}

static int64_t size_of(const td_tar *t)
{
    return (int64_t)t->file.n_bytes;
}

/* A block, through the window: headers and small contents are close to each other. */
static td_status block_at(td_tar *t, int64_t at, const unsigned char **out)
{
    const int64_t left = size_of(t) - at;
    if (at < t->window_at || at + BLOCK > t->window_at + (int64_t)t->window_n) {
        const size_t n = left < TD_TAR_WINDOW ? (size_t)left : TD_TAR_WINDOW;
        t->window_n = 0;
        TD_TRY(td_blob_read(&t->file, (uint64_t)at, n, t->window));
        t->window_at = at;
        t->window_n = n;
    }
    *out = t->window + (at - t->window_at);
    return TD_OK;
}

td_status td_tar_open(const char *path, td_tar *out)
{
    memset(out, 0, sizeof *out);
    return td_blob_open(path, &out->file);
}

void td_tar_from(const void *bytes, size_t n_bytes, const char *what, td_tar *out)
{
    memset(out, 0, sizeof *out);
    out->file = td_blob_of(bytes, n_bytes, what);
}

void td_tar_close(td_tar *t)
{
    td_blob_close(&t->file);
    td_text_release(&t->name);
}

td_status td_tar_read(td_tar *t, const td_tar_entry *e, void *to)
{
    const int64_t end = t->window_at + (int64_t)t->window_n;
    if (e->offset >= t->window_at && e->offset + e->n_bytes <= end) {
        memcpy(to, t->window + (e->offset - t->window_at), (size_t)e->n_bytes);
        return TD_OK;
    }
    return td_blob_read(&t->file, (uint64_t)e->offset, (size_t)e->n_bytes, to);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Octal digits between blanks and up to a blank, a zero byte or the end. */
static bool read_octal(const unsigned char *p, size_t n, int64_t *out)
{
    size_t i = 0;
    int64_t v = 0;
    while (i < n && p[i] == ' ')
        i++;
    const size_t first = i;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v > INT64_MAX >> 3)
            return false;
        v = v << 3 | (p[i] - '0');
    }
    *out = v;
    return i > first && (i == n || p[i] == ' ' || p[i] == '\0');
}

/* With the first bit set: the rest is a number, highest byte first; negative ones are refused. */
static bool read_size(const unsigned char *p, int64_t *out)
{
    if (!(p[0] & 0x80))
        return read_octal(p, SIZE_BYTES, out);
    int64_t v = p[0] & 0x7f;
    for (int i = 1; i < SIZE_BYTES; i++) {
        if (v > INT64_MAX >> 8)
            return false;
        v = v << 8 | p[i];
    }
    *out = v;
    return true;
}

static bool is_check_right(const unsigned char *h)
{
    int64_t check, plain = 0, with_signs = 0;
    for (int i = 0; i < BLOCK; i++) {
        const bool is_check = i >= CHECK && i < CHECK + CHECK_BYTES;
        const unsigned char c = is_check ? ' ' : h[i];
        plain += c;
        with_signs += (signed char)c; /* some old programs */
    }
    return read_octal(h + CHECK, CHECK_BYTES, &check) && (check == plain || check == with_signs);
}

/* --- names ------------------------------------------------------------------------------------ */

/* What the entries before a file said about it. */
typedef struct {
    bool has_name, has_size;
    int64_t size;
} extra;

static void set_name(td_tar *t, const void *bytes, size_t n)
{
    t->name.len = 0;
    td_text_add_bytes(&t->name, bytes, n);
}

static td_status check_name(const td_tar *t, int64_t header)
{
    TD_TRY(td_text_status(&t->name));
    if (!t->name.len)
        return refuse(t, TD_EFORMAT, header, "a file without a name");
    for (size_t i = 0; i < t->name.len; i++)
        if ((unsigned char)t->name.data[i] < ' ' || t->name.data[i] == 127)
            return refuse(t, TD_EFORMAT, header, "a name with a control character");
    return TD_OK;
}

static void name_from_header(td_tar *t, const unsigned char *h)
{
    const char *name = (const char *)h + NAME, *prefix = (const char *)h + PREFIX;
    const bool is_posix = memcmp(h + MAGIC, "ustar\0", 6) == 0;
    const size_t n = is_posix ? strnlen(prefix, PREFIX_BYTES) : 0;
    set_name(t, prefix, n);
    if (n)
        td_text_add_bytes(&t->name, "/", 1);
    td_text_add_bytes(&t->name, name, strnlen(name, NAME_BYTES));
}

static td_status read_text(td_tar *t, const td_tar_entry *e, size_t max, td_text *out)
{
    char part[BLOCK];
    if (e->n_bytes > (int64_t)max)
        return refuse(t, TD_ELIMIT, e->header, "a long name or its records have too many bytes");
    out->len = 0;
    for (int64_t at = 0; at < e->n_bytes; at += BLOCK) {
        const int64_t left = e->n_bytes - at;
        const td_tar_entry piece = { .offset = e->offset + at,
                                     .n_bytes = left < BLOCK ? left : BLOCK };
        TD_TRY(td_tar_read(t, &piece, part));
        td_text_add_bytes(out, part, (size_t)piece.n_bytes);
    }
    return td_text_status(out);
}

/* One record, "LENGTH KEY=VALUE\n", of n bytes in total. */
static td_status read_record(td_tar *t, const char *record, size_t n, int64_t header, extra *x)
{
    const char *key = memchr(record, ' ', n), *end = record + n - 1;
    const char *value = key ? memchr(key, '=', (size_t)(end - key)) : NULL;
    if (!value || *end != '\n')
        return refuse(t, TD_EFORMAT, header, "a malformed pax record");
    const size_t n_key = (size_t)(value - ++key), n_value = (size_t)(end - ++value);
    if (n_key >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return refuse(t, TD_EUNSUPPORTED, header, "a sparse file");
    if (n_key == 4 && memcmp(key, "path", 4) == 0) {
        if (n_value > LONG_NAME_MAX)
            return refuse(t, TD_ELIMIT, header, "a name of more than 65536 bytes");
        set_name(t, value, n_value);
        x->has_name = true;
    }
    if (n_key == 4 && memcmp(key, "size", 4) == 0) {
        int64_t size = 0;
        for (size_t i = 0; i < n_value; i++) {
            if (value[i] < '0' || value[i] > '9' || size > INT64_MAX / 16)
                return refuse(t, TD_EFORMAT, header, "a pax record with a malformed size");
            size = 10 * size + (value[i] - '0');
        }
        if (!n_value)
            return refuse(t, TD_EFORMAT, header, "a pax record with a malformed size");
        x->has_size = true;
        x->size = size;
    }
    return TD_OK;
}

static td_status read_records(td_tar *t, const char *text, size_t n, int64_t header, extra *x)
{
    for (size_t at = 0; at < n;) {
        size_t length = 0, i = at;
        for (; i < n && text[i] >= '0' && text[i] <= '9' && length <= n; i++)
            length = 10 * length + (size_t)(text[i] - '0');
        if (i == at || i == n || text[i] != ' ' || length > n - at || length <= i - at + 2)
            return refuse(t, TD_EFORMAT, header, "a malformed pax record");
        TD_TRY(read_record(t, text + at, length, header, x));
        at += length;
    }
    return TD_OK;
}

static td_status read_pax(td_tar *t, const td_tar_entry *e, extra *x)
{
    td_text records = { 0 };
    td_status st;
    TD_OUT(read_text(t, e, PAX_MAX, &records));
    st = read_records(t, td_text_get(&records), records.len, e->header, x);
out:
    td_text_release(&records);
    return st;
}

static td_status read_long_name(td_tar *t, const td_tar_entry *e, extra *x)
{
    TD_TRY(read_text(t, e, LONG_NAME_MAX, &t->name));
    while (t->name.len && t->name.data[t->name.len - 1] == '\0')
        t->name.len--;
    x->has_name = true;
    return TD_OK;
}

/* --- entries ---------------------------------------------------------------------------------- */

static bool is_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* After a block of zeros there is nothing but zeros. */
static td_status check_end(td_tar *t)
{
    const int64_t end = t->at;
    const unsigned char *block;
    for (; size_of(t) - t->at >= BLOCK; t->at += BLOCK) {
        TD_TRY(block_at(t, t->at, &block));
        if (!is_zero(block, BLOCK))
            return td_error(TD_EFORMAT,
                            "'%s': bytes at %lld follow the end of the tar (byte %lld): files of "
                            "several tars are not read",
                            t->file.what, (long long)t->at, (long long)end);
    }
    t->at = size_of(t);
    return TD_OK;
}

static const char *foreign(const unsigned char *h)
{
    if (h[0] == 0x1f && h[1] == 0x8b)
        return "it is compressed by gzip, which cannot be read in place: unpack it with gzip -d";
    if (memcmp(h, "BZh", 3) == 0 ||
        memcmp(h,
               "\xfd"
               "7zXZ",
               5) == 0 ||
        memcmp(h, "\x28\xb5\x2f\xfd", 4) == 0)
        return "it is compressed, which cannot be read in place: unpack it";
    return NULL;
}

static td_status refuse_header(const td_tar *t, const unsigned char *h)
{
    const char *why = t->at == 0 ? foreign(h) : NULL;
    if (why)
        return refuse(t, TD_EUNSUPPORTED, 0, why);
    return refuse(t, TD_EFORMAT, t->at,
                  t->at ? "the checksum of a header is wrong" : "it is not a tar file");
}

/* The sizes and places of the entry whose header is at t->at. */
static td_status measure(td_tar *t, const unsigned char *h, const extra *x, td_tar_entry *e)
{
    *e = (td_tar_entry){ .header = t->at, .offset = t->at + BLOCK };
    if (!read_size(h + SIZE, &e->n_bytes))
        return refuse(t, TD_EFORMAT, t->at, "a malformed size");
    if (x->has_size && (h[TYPE] == '0' || h[TYPE] == '\0'))
        e->n_bytes = x->size;
    if (e->n_bytes > size_of(t) - e->offset)
        return td_error(TD_EFORMAT,
                        "'%s' is truncated: the entry at byte %lld has %lld bytes, the file ends "
                        "after %lld",
                        t->file.what, (long long)t->at, (long long)e->n_bytes,
                        (long long)size_of(t));
    return TD_OK;
}

/* Links, devices and folders have no content, whatever their size says. */
static bool has_content(unsigned char type)
{
    return !(type >= '1' && type <= '6');
}

static td_status refuse_type(const td_tar *t, unsigned char type)
{
    static const char *const names[] = { "a hard link", "a symbolic link", "a device", "a device",
                                         NULL,          "a fifo" };
    if (type >= '1' && type <= '6' && names[type - '1'])
        return refuse(t, TD_EUNSUPPORTED, t->at, names[type - '1']);
    return refuse(t, TD_EUNSUPPORTED, t->at,
                  type == 'S' ? "a sparse file" : "an entry of unknown type");
}

/* Read the header at t->at and go to the next one.  *is_file: `e` is complete. */
static td_status step(td_tar *t, extra *x, td_tar_entry *e, bool *is_file)
{
    const unsigned char *h;
    TD_TRY(block_at(t, t->at, &h));
    if (!is_check_right(h))
        return refuse_header(t, h);
    const unsigned char type = h[TYPE];
    TD_TRY(measure(t, h, x, e));
    *is_file = type == '0' || type == '\0' || type == '7';
    if (*is_file && !x->has_name)
        name_from_header(t, h);
    else if (type == 'L')
        TD_TRY(read_long_name(t, e, x));
    else if (type == 'x')
        TD_TRY(read_pax(t, e, x));
    else if (type == '5')
        *x = (extra){ 0 };
    else if (!*is_file && type != 'g' && type != 'K') /* of all files, of links */
        return refuse_type(t, type);
    if (*is_file)
        TD_TRY(check_name(t, e->header));
    if (*is_file && td_text_ends(td_text_get(&t->name), "/")) { /* a folder, before ustar */
        *is_file = false;
        *x = (extra){ 0 };
    }
    const int64_t content = has_content(type) ? e->n_bytes : 0;
    t->at = e->offset + content + (BLOCK - content % BLOCK) % BLOCK;
    return TD_OK;
}

td_status td_tar_next(td_tar *t, td_tar_entry *out)
{
    extra x = { 0 };
    bool is_file = false;
    const unsigned char *h;
    *out = (td_tar_entry){ 0 };
    while (!is_file) {
        if (size_of(t) - t->at < BLOCK)
            return refuse(t, TD_EFORMAT, t->at,
                          size_of(t) < BLOCK ? "it is not a tar file"
                                             : "it is truncated: the end is missing");
        TD_TRY(block_at(t, t->at, &h));
        if (is_zero(h, BLOCK))
            return check_end(t);
        TD_TRY(step(t, &x, out, &is_file));
    }
    out->name = td_text_get(&t->name);
    return TD_OK;
}
