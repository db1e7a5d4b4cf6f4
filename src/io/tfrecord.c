/*
 * tfrecord.c -- walks the records of a TFRecord file
 */
#include "io/tfrecord.h"

#include <string.h>

#include "base/bytes.h"
#include "io/crc32c.h"

bool td_tfrecord_begins(const void *head, size_t n, uint64_t n_bytes)
{
    const unsigned char *h = head;
    return n >= TD_TFRECORD_HEAD && n_bytes >= TD_TFRECORD_HEAD + TD_TFRECORD_FOOT &&
           td_get_le(h, 8) <= n_bytes - TD_TFRECORD_HEAD - TD_TFRECORD_FOOT &&
           td_crc32c_masked(h, 8) == (uint32_t)td_get_le(h + 8, 4);
}

bool td_tfrecord_is(const char *path)
{
    unsigned char head[TD_TFRECORD_HEAD];
    td_blob b;
    bool is = false;
    if (td_blob_open(path, &b) == TD_OK) {
        is = b.n_bytes >= sizeof head && td_blob_read(&b, 0, sizeof head, head) == TD_OK &&
             td_tfrecord_begins(head, sizeof head, b.n_bytes);
        td_blob_close(&b);
    }
    if (!is)
        td_error_clear();
    return is;
}

td_status td_tfrecords_open(const char *path, td_tfrecords *out)
{
    memset(out, 0, sizeof *out);
    return td_blob_open(path, &out->file);
}

void td_tfrecords_from(const void *bytes, size_t n_bytes, const char *what, td_tfrecords *out)
{
    memset(out, 0, sizeof *out);
    out->file = td_blob_of(bytes, n_bytes, what);
}

void td_tfrecords_close(td_tfrecords *t)
{
    td_blob_close(&t->file);
}

td_status td_tfrecords_read(td_tfrecords *t, int64_t at, size_t n, void *to)
{
    const uint64_t left = t->file.n_bytes - (uint64_t)at;
    if (n > TD_TFRECORD_WINDOW)
        return td_blob_read(&t->file, (uint64_t)at, n, to);
    if (at < t->window_at || at + (int64_t)n > t->window_at + (int64_t)t->window_n) {
        const size_t room = left < TD_TFRECORD_WINDOW ? (size_t)left : TD_TFRECORD_WINDOW;
        t->window_n = 0;
        TD_TRY(td_blob_read(&t->file, (uint64_t)at, room, t->window));
        t->window_at = at;
        t->window_n = room;
    }
    memcpy(to, t->window + (at - t->window_at), n);
    return TD_OK;
}

/* --- records ---------------------------------------------------------------------------------- */

static td_status truncated(const td_tfrecords *t)
{
    return td_error(TD_EFORMAT,
                    "'%s' is truncated: the record at byte %lld is incomplete, the "
                    "file ends after %llu bytes",
                    t->file.what, (long long)t->at, (unsigned long long)t->file.n_bytes);
}

static td_status refuse_head(const td_tfrecords *t, const unsigned char *head)
{
    const unsigned first = (unsigned)head[0] << 8 | head[1];
    if (t->at == 0 && (first == 0x1f8b || (head[0] == 0x78 && first % 31 == 0)))
        return td_error(TD_EUNSUPPORTED,
                        "'%s' is compressed, which cannot be read in place: write it without "
                        "compression",
                        t->file.what);
    if (t->at == 0)
        return td_error(TD_EFORMAT,
                        "'%s' is not a TFRecord file: the checksum of the first length is wrong "
                        "(byte 8)",
                        t->file.what);
    return td_error(TD_EFORMAT,
                    "'%s': the checksum of the length of the record at byte %lld is wrong",
                    t->file.what, (long long)t->at);
}

td_status td_tfrecords_next(td_tfrecords *t, td_tfrecord *out)
{
    unsigned char head[TD_TFRECORD_HEAD];
    const uint64_t left = t->file.n_bytes - (uint64_t)t->at;
    *out = (td_tfrecord){ 0 };
    if (left == 0)
        return TD_OK;
    if (left < TD_TFRECORD_HEAD + TD_TFRECORD_FOOT)
        return truncated(t);
    TD_TRY(td_tfrecords_read(t, t->at, sizeof head, head));
    if (td_crc32c_masked(head, 8) != (uint32_t)td_get_le(head + 8, 4))
        return refuse_head(t, head);
    const uint64_t n = td_get_le(head, 8);
    if (n > left - TD_TFRECORD_HEAD - TD_TFRECORD_FOOT)
        return truncated(t);
    *out = (td_tfrecord){ t->at, t->at + TD_TFRECORD_HEAD, (int64_t)n };
    t->at = out->offset + (int64_t)n + TD_TFRECORD_FOOT;
    return TD_OK;
}

td_status td_tfrecord_check(const void *data, size_t n_bytes, const char *what, int64_t at)
{
    const unsigned char *p = data;
    if (td_crc32c_masked(p, n_bytes) == (uint32_t)td_get_le(p + n_bytes, TD_TFRECORD_FOOT))
        return TD_OK;
    return td_error(TD_EFORMAT, "'%s': the checksum of the record at byte %lld is wrong", what,
                    (long long)at);
}
