/*
 * tar.c -- lists the files of a tar with libarchive
 *
 * libarchive reads a stream; after the headers of an entry, the bytes that it has consumed are the
 * place of the content.  That is checked: the next entry must begin where the content ends.
 * Reading and skipping go through a window, because headers and small contents are close.
 */
#include "io/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>

enum { BLOCK = 512, LONG_NAME_MAX = 1 << 16 };

static td_status refuse(const td_tar *t, td_status st, int64_t header, const char *why)
{
    return td_error(st, "'%s': %s (byte %lld)", t->file.what, why, (long long)header);
}

static int64_t size_of(const td_tar *t)
{
    return (int64_t)t->file.n_bytes;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Read the part of the file that begins at a byte into the window. */
static td_status fill(td_tar *t, int64_t at)
{
    const int64_t left = size_of(t) - at;
    const size_t n = left < TD_TAR_WINDOW ? (size_t)left : TD_TAR_WINDOW;
    t->window_n = 0;
    TD_TRY(td_blob_read(&t->file, (uint64_t)at, n, t->window));
    t->window_at = at;
    t->window_n = n;
    return TD_OK;
}

static la_ssize_t read_window(struct archive *a, void *ctx, const void **out)
{
    td_tar *t = ctx;
    t->st = fill(t, t->read_at);
    if (t->st != TD_OK) {
        archive_set_error(a, EIO, "unreadable");
        return ARCHIVE_FATAL;
    }
    *out = t->window;
    t->read_at += (int64_t)t->window_n;
    return (la_ssize_t)t->window_n;
}

static la_int64_t skip(struct archive *a, void *ctx, la_int64_t n)
{
    (void)a;
    td_tar *t = ctx;
    const int64_t left = size_of(t) - t->read_at, skipped = n < left ? n : left;
    t->read_at += skipped;
    return skipped;
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
    if (t->archive)
        archive_read_free(t->archive);
    if (t->utf8)
        freelocale(t->utf8);
    t->archive = NULL;
    t->utf8 = (locale_t)0;
    td_blob_close(&t->file);
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

/* --- messages --------------------------------------------------------------------------------- */

static const char *compression(const unsigned char *h)
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

/* libarchive cannot read the headers at t->next. */
static td_status refuse_headers(td_tar *t)
{
    unsigned char h[8] = { 0 };
    if (t->st != TD_OK)
        return t->st;
    if (t->next == 0 && size_of(t) >= (int64_t)sizeof h)
        TD_TRY(td_blob_read(&t->file, 0, sizeof h, h));
    const char *why = t->next == 0 ? compression(h) : NULL;
    if (why)
        return refuse(t, TD_EUNSUPPORTED, 0, why);
    if (t->next && size_of(t) - t->next < BLOCK)
        return refuse(t, TD_EFORMAT, t->next, "it is truncated: the end is missing");
    const char *said = archive_error_string(t->archive);
    return td_error(TD_EFORMAT, "'%s': %s: %s (byte %lld)", t->file.what,
                    t->next ? "a header cannot be read" : "it is not a tar file",
                    said ? said : "no reason is known", (long long)t->next);
}

static td_status refuse_type(const td_tar *t, struct archive_entry *e, int64_t header)
{
    const char *what =
        archive_entry_hardlink(e)               ? "a hard link"
        : archive_entry_filetype(e) == AE_IFLNK ? "a symbolic link"
        : archive_entry_filetype(e) == AE_IFIFO ? "a fifo"
        : archive_entry_filetype(e) == AE_IFCHR || archive_entry_filetype(e) == AE_IFBLK
            ? "a device"
            : "an entry of unknown type";
    return refuse(t, TD_EUNSUPPORTED, header, what);
}

/*
 * Names in pax records are UTF-8, which libarchive converts to the characters of the locale: with
 * those of UTF-8 they stay as they are, and a warning is about a malformed record.
 */
static int next_header(const td_tar *t, struct archive_entry **out)
{
    const locale_t before = t->utf8 ? uselocale(t->utf8) : (locale_t)0;
    const int result = archive_read_next_header(t->archive, out);
    if (t->utf8)
        (void)uselocale(before);
    return result;
}

/* --- entries ---------------------------------------------------------------------------------- */

static td_status begin(td_tar *t)
{
    struct archive *a = t->archive = archive_read_new();
    if (!a)
        return td_error(TD_ENOMEM, "no memory to read '%s'", t->file.what);
    if (archive_read_support_format_tar(a) != ARCHIVE_OK ||
        archive_read_set_read_callback(a, read_window) != ARCHIVE_OK ||
        archive_read_set_skip_callback(a, skip) != ARCHIVE_OK ||
        archive_read_set_callback_data(a, t) != ARCHIVE_OK)
        return td_error(TD_EIO, "cannot read '%s': %s", t->file.what, archive_error_string(a));
    t->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    return archive_read_open1(a) == ARCHIVE_OK ? TD_OK : refuse_headers(t);
}

/* After the last entry there is a block of zeros, and nothing but zeros. */
static td_status check_end(td_tar *t)
{
    static const unsigned char zeros[BLOCK];
    const int64_t size = size_of(t);
    if (size - t->next < BLOCK)
        return refuse(t, TD_EFORMAT, t->next,
                      size < BLOCK ? "it is not a tar file"
                                   : "it is truncated: the end is missing");
    for (int64_t at = t->next; at < size; at += TD_TAR_WINDOW) {
        TD_TRY(fill(t, at));
        for (size_t i = 0; i + BLOCK <= t->window_n; i += BLOCK)
            if (memcmp(t->window + i, zeros, BLOCK) != 0)
                return td_error(TD_EFORMAT,
                                "'%s': bytes at %lld follow the end of the tar (byte %lld): files "
                                "of several tars are not read",
                                t->file.what, (long long)at + (long long)i, (long long)t->next);
    }
    return TD_OK;
}

static td_status check_name(const td_tar *t, int64_t header, const char *name)
{
    if (!name || !*name)
        return refuse(t, TD_EFORMAT, header, "a file without a name");
    if (strlen(name) > LONG_NAME_MAX)
        return refuse(t, TD_ELIMIT, header, "a name of more than 65536 bytes");
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127)
            return refuse(t, TD_EFORMAT, header, "a name with a control character");
    return TD_OK;
}

/* The place of an entry, and that of the next one. */
static td_status measure(td_tar *t, struct archive_entry *entry, td_tar_entry *e)
{
    const bool is_file = archive_entry_filetype(entry) == AE_IFREG;
    *e = (td_tar_entry){ .header = archive_read_header_position(t->archive),
                         .offset = archive_filter_bytes(t->archive, 0),
                         .n_bytes = is_file ? archive_entry_size(entry) : 0 };
    if (e->header != t->next || e->offset < e->header + BLOCK || e->offset % BLOCK)
        return refuse(t, TD_EFORMAT, t->next, "its entries do not follow each other");
    if (e->n_bytes < 0)
        return refuse(t, TD_EFORMAT, t->next, "a malformed size");
    if (e->offset > size_of(t) || e->n_bytes > size_of(t) - e->offset)
        return td_error(TD_EFORMAT,
                        "'%s' is truncated: the entry at byte %lld has %lld bytes, the file ends "
                        "after %lld",
                        t->file.what, (long long)t->next, (long long)e->n_bytes,
                        (long long)size_of(t));
    t->next = e->offset + e->n_bytes + (BLOCK - e->n_bytes % BLOCK) % BLOCK;
    return TD_OK;
}

td_status td_tar_next(td_tar *t, td_tar_entry *out)
{
    struct archive_entry *entry;
    *out = (td_tar_entry){ 0 };
    if (!t->archive)
        TD_TRY(begin(t));
    for (;;) {
        const int result = next_header(t, &entry);
        if (result == ARCHIVE_EOF)
            return check_end(t);
        if (result != ARCHIVE_OK)
            return refuse_headers(t);
        if (archive_entry_sparse_count(entry))
            return refuse(t, TD_EUNSUPPORTED, t->next, "a sparse file");
        const bool is_folder = archive_entry_filetype(entry) == AE_IFDIR;
        if (!is_folder &&
            (archive_entry_hardlink(entry) || archive_entry_filetype(entry) != AE_IFREG))
            return refuse_type(t, entry, t->next);
        TD_TRY(measure(t, entry, out));
        if (is_folder)
            continue;
        out->name = archive_entry_pathname(entry);
        return check_name(t, out->header, out->name);
    }
}
