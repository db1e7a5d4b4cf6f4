/*
 * zip_layout.c -- checks the layout of a zip archive
 *
 *     | header, name, extra, data | header, ... | directory | zip64 end, locator | end record |
 *       ^ offset of entry 0                       ^ cd                             22 + comment
 *
 * Each row of the directory gives an entry's offset and size; its local header gives the lengths of
 * name and extra field, so that the entry's position and size in the file are known.  Sorted by
 * offset, spans must not overlap and must end before the directory.  Gaps are allowed: writers pad.
 *
 * Source: PKWARE, APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 to 4.3.16, 4.5.3.
 */
#include "pth/zip_layout.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"

enum {
    LOCAL_BYTES = 30,
    ROW_BYTES = 46,
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    COMMENT_MAX = 65535,
    DIRECTORY_MAX = 64 << 20,
    ZIP64_EXTRA = 1,
};

#define SIG_LOCAL   0x04034b50u
#define SIG_ROW     0x02014b50u
#define SIG_END     0x06054b50u
#define SIG_LOCATOR 0x07064b50u
#define SIG_END64   0x06064b50u

/* the content of the end records */
typedef struct {
    uint64_t n_entries, cd_at, cd_bytes;
    uint64_t end_at; /* start of the first end record: the directory must end there */
} ending;

typedef struct {
    uint64_t begin, end;
} span;

/* --- the end records -------------------------------------------------------------------------- */

static td_status read_end64(const td_blob *b, uint64_t end_at, bool is_saturated, ending *e)
{
    unsigned char locator[LOCATOR_BYTES], p[END64_BYTES];

    if (end_at < LOCATOR_BYTES + END64_BYTES)
        return is_saturated ? td_error(TD_EFORMAT, "'%s': its zip64 record is missing", b->what)
                            : TD_OK;
    TD_TRY(td_blob_read(b, end_at - LOCATOR_BYTES, sizeof locator, locator));
    if (td_get_le(locator, 4) != SIG_LOCATOR)
        return is_saturated ? td_error(TD_EFORMAT, "'%s': its zip64 record is missing", b->what)
                            : TD_OK;
    uint64_t at = td_get_le(locator + 8, 8);
    if (at != end_at - LOCATOR_BYTES - END64_BYTES)
        return td_error(TD_EFORMAT,
                        "'%s': the offset of its zip64 record is %" PRIu64 ", wanted %" PRIu64,
                        b->what, at, end_at - LOCATOR_BYTES - END64_BYTES);
    TD_TRY(td_blob_read(b, at, sizeof p, p));
    if (td_get_le(p, 4) != SIG_END64 || td_get_le(p + 4, 8) != END64_BYTES - 12)
        return td_error(TD_EFORMAT, "'%s': its zip64 record is malformed", b->what);
    ending wide = { td_get_le(p + 32, 8), td_get_le(p + 48, 8), td_get_le(p + 40, 8), at };
    if ((e->n_entries != 0xffff && e->n_entries != wide.n_entries) ||
        (e->cd_at != 0xffffffff && e->cd_at != wide.cd_at) ||
        (e->cd_bytes != 0xffffffff && e->cd_bytes != wide.cd_bytes))
        return td_error(TD_EFORMAT, "'%s': its zip64 record and its end record disagree", b->what);
    *e = wide;
    return TD_OK;
}

/* finds the last end record whose comment ends at the end of the file */
static td_status find_end(const td_blob *b, const unsigned char *tail, size_t n_tail, size_t *at)
{
    for (size_t i = n_tail - END_BYTES + 1; i-- > 0;)
        if (td_get_le(tail + i, 4) == SIG_END &&
            i + END_BYTES + td_get_le(tail + i + 20, 2) == n_tail) {
            *at = i;
            return TD_OK;
        }
    return td_error(TD_EFORMAT,
                    "'%s': the end of the zip archive is missing: the file may be truncated",
                    b->what);
}

static td_status read_ending(const td_blob *b, ending *e)
{
    td_status st = TD_OK;
    size_t n_tail =
        b->n_bytes < END_BYTES + COMMENT_MAX ? (size_t)b->n_bytes : (size_t)END_BYTES + COMMENT_MAX;
    size_t at = 0;
    unsigned char *tail = NULL;

    if (b->n_bytes < END_BYTES)
        return td_error(TD_EFORMAT, "'%s': %" PRIu64 " bytes, too short for a zip archive", b->what,
                        b->n_bytes);
    tail = td_alloc(n_tail, 1);
    if (!tail)
        return TD_ENOMEM;
    TD_OUT(td_blob_read(b, b->n_bytes - n_tail, n_tail, tail));
    TD_OUT(find_end(b, tail, n_tail, &at));
    const unsigned char *p = tail + at;
    *e = (ending){ td_get_le(p + 10, 2), td_get_le(p + 16, 4), td_get_le(p + 12, 4),
                   b->n_bytes - n_tail + at };
    if (td_get_le(p + 4, 2) != 0 || td_get_le(p + 6, 2) != 0 || td_get_le(p + 8, 2) != e->n_entries)
        TD_OUT(td_error(TD_EFORMAT, "'%s': a zip archive in several parts", b->what));
    TD_OUT(read_end64(b, e->end_at,
                      e->n_entries == 0xffff || e->cd_at == 0xffffffff || e->cd_bytes == 0xffffffff,
                      e));
    if (e->cd_at > e->end_at || e->cd_bytes != e->end_at - e->cd_at)
        TD_OUT(td_error(TD_EFORMAT,
                        "'%s': a zip directory of %" PRIu64 " bytes at %" PRIu64
                        ", wanted one that ends at %" PRIu64,
                        b->what, e->cd_bytes, e->cd_at, e->end_at));
    if (e->n_entries > TD_ZIP_ENTRIES_MAX || e->cd_bytes > DIRECTORY_MAX)
        TD_OUT(td_error(TD_ELIMIT,
                        "'%s': a zip directory of %" PRIu64 " entries and %" PRIu64
                        " bytes, at most %d and %d are read",
                        b->what, e->n_entries, e->cd_bytes, TD_ZIP_ENTRIES_MAX, DIRECTORY_MAX));
out:
    td_free(tail);
    return st;
}

/* --- the directory ---------------------------------------------------------------------------- */

/* the 64-bit values of a row, in their fixed order */
static bool read_wide(const unsigned char *extra, size_t n, uint64_t *full, uint64_t *packed,
                      uint64_t *at)
{
    uint64_t *const wanted[] = { full, packed, at };
    for (size_t i = 0; i + 4 <= n;) {
        size_t n_field = (size_t)td_get_le(extra + i + 2, 2);
        const unsigned char *p = extra + i + 4, *end = p + n_field;
        if (n_field > n - i - 4)
            return false;
        i += 4 + n_field;
        if (td_get_le(p - 4, 2) != ZIP64_EXTRA)
            continue;
        for (int k = 0; k < 3; k++) {
            if (*wanted[k] != 0xffffffff)
                continue;
            if (end - p < 8)
                return false;
            *wanted[k] = td_get_le(p, 8);
            p += 8;
        }
        return true;
    }
    return *full != 0xffffffff && *packed != 0xffffffff && *at != 0xffffffff;
}

/* the bytes of the file that entry `i` occupies */
static td_status span_of(const td_blob *b, const ending *e, const unsigned char *row, uint64_t i,
                         span *out)
{
    uint64_t packed = td_get_le(row + 20, 4), full = td_get_le(row + 24, 4),
             at = td_get_le(row + 42, 4);
    size_t n_name = (size_t)td_get_le(row + 28, 2), n_extra = (size_t)td_get_le(row + 30, 2);
    unsigned char local[LOCAL_BYTES];

    if (!read_wide(row + ROW_BYTES + n_name, n_extra, &full, &packed, &at))
        return td_error(TD_EFORMAT, "'%s': entry %" PRIu64 " has a malformed extra field", b->what,
                        i);
    if (at > e->cd_at || e->cd_at - at < LOCAL_BYTES)
        return td_error(TD_EFORMAT,
                        "'%s': entry %" PRIu64 " begins at %" PRIu64
                        ", after the start of the directory at %" PRIu64,
                        b->what, i, at, e->cd_at);
    TD_TRY(td_blob_read(b, at, sizeof local, local));
    if (td_get_le(local, 4) != SIG_LOCAL)
        return td_error(TD_EFORMAT, "'%s': no entry begins at %" PRIu64, b->what, at);
    uint64_t head = LOCAL_BYTES + td_get_le(local + 26, 2) + td_get_le(local + 28, 2);
    if (head > e->cd_at - at || packed > e->cd_at - at - head)
        return td_error(TD_EFORMAT,
                        "'%s': entry %" PRIu64 " of %" PRIu64 " bytes at %" PRIu64
                        " reaches into the directory at %" PRIu64,
                        b->what, i, packed, at, e->cd_at);
    *out = (span){ at, at + head + packed };
    return TD_OK;
}

static int by_begin(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static td_status read_spans(const td_blob *b, const ending *e, const unsigned char *cd, span *spans)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < e->n_entries; i++) {
        const unsigned char *row = cd + at;
        if (e->cd_bytes - at < ROW_BYTES || td_get_le(row, 4) != SIG_ROW)
            return td_error(TD_EFORMAT,
                            "'%s': its directory has %" PRIu64 " entries, wanted %" PRIu64, b->what,
                            i, e->n_entries);
        uint64_t n =
            ROW_BYTES + td_get_le(row + 28, 2) + td_get_le(row + 30, 2) + td_get_le(row + 32, 2);
        if (n > e->cd_bytes - at)
            return td_error(TD_EFORMAT, "'%s': entry %" PRIu64 " of its directory is truncated",
                            b->what, i);
        TD_TRY(span_of(b, e, row, i, &spans[i]));
        at += n;
    }
    if (at != e->cd_bytes)
        return td_error(TD_EFORMAT, "'%s': %" PRIu64 " bytes after the last entry of its directory",
                        b->what, e->cd_bytes - at);
    return TD_OK;
}

static td_status check_overlap(const td_blob *b, span *spans, uint64_t n)
{
    qsort(spans, (size_t)n, sizeof *spans, by_begin);
    for (uint64_t i = 1; i < n; i++)
        if (spans[i].begin < spans[i - 1].end)
            return td_error(TD_EFORMAT,
                            "'%s': the entry at %" PRIu64 " overlaps the one that ends at %" PRIu64,
                            b->what, spans[i].begin, spans[i - 1].end);
    return TD_OK;
}

td_status td_zip_check_layout(const td_blob *b, uint64_t *n_entries)
{
    td_status st = TD_OK;
    ending e = { 0 };
    unsigned char *cd = NULL;
    span *spans = NULL;

    TD_TRY(read_ending(b, &e));
    cd = td_alloc((size_t)e.cd_bytes + 1, 1);
    spans = td_alloc((size_t)e.n_entries + 1, sizeof *spans);
    if (!cd || !spans)
        TD_OUT(TD_ENOMEM);
    TD_OUT(td_blob_read(b, e.cd_at, (size_t)e.cd_bytes, cd));
    TD_OUT(read_spans(b, &e, cd, spans));
    TD_OUT(check_overlap(b, spans, e.n_entries));
    *n_entries = e.n_entries;
out:
    td_free(cd);
    td_free(spans);
    return st;
}
