/*
 * fuzz_pack.c -- any bytes: an error in words, or a pack whose every name and image can be read
 *
 * Damage never passes the check values, so each input is tried a second time with right ones: what
 * stands behind them must hold too.  What parses is written again, and must then read the same.
 */
#include "io/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "io/digest.h"

enum { HEAD = 16, TAIL = 64, DIGESTED = 48 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* everything that a reader can see; an image may be damaged */
static uint64_t digest_of(const td_pack *p)
{
    td_digest d;
    td_pack_buffer buffer = { 0 };
    td_digest_init(&d);
    for (int i = 0; i < td_pack_metadata_of(p)->n_splits; i++) {
        const td_pack_split *s = td_pack_split_at(p, i);
        td_digest_add(&d, s->name, strlen(s->name) + 1);
        for (int c = 0; c < s->n_classes; c++)
            td_digest_add(&d, s->classes[c], strlen(s->classes[c]) + 1);
        for (uint64_t k = s->first; k < s->first + s->n_images; k++) {
            td_pack_image x = td_pack_image_at(p, k);
            const void *bytes;
            size_t n_bytes;
            TD_CHECK(x.label >= 0 && x.label < s->n_classes);
            td_digest_add(&d, x.name, strlen(x.name) + 1);
            td_digest_add(&d, &x.label, sizeof x.label);
            if (td_pack_read(p, k, &buffer, &bytes, &n_bytes) != TD_OK)
                continue;
            TD_CHECK(n_bytes == x.n_bytes);
            td_digest_add(&d, bytes, n_bytes);
            td_pack_read_ahead(p, k);
        }
    }
    td_free(buffer.bytes);
    return td_digest_value(&d);
}

/* write it again; false when an image is damaged */
static bool copy(const td_pack *p, const char *path)
{
    td_pack_writer *w;
    td_pack_metadata metadata;
    td_pack_buffer buffer = { 0 };
    bool is_whole = true;
    TD_CHECK(td_pack_create(path, 0, 0, false, &w) == TD_OK);
    for (int i = 0; is_whole && i < td_pack_metadata_of(p)->n_splits; i++) {
        const td_pack_split *s = td_pack_split_at(p, i);
        TD_CHECK(td_pack_begin_split(w, s->name, s->n_classes, s->classes) == TD_OK);
        for (uint64_t k = s->first; is_whole && k < s->first + s->n_images; k++) {
            td_pack_image x = td_pack_image_at(p, k);
            const void *bytes;
            size_t n_bytes;
            is_whole = td_pack_read(p, k, &buffer, &bytes, &n_bytes) == TD_OK;
            if (is_whole)
                TD_CHECK(td_pack_add(w, x.label, x.name, bytes, n_bytes) == TD_OK);
        }
    }
    if (is_whole)
        TD_CHECK(td_pack_finish(w, &metadata) == TD_OK);
    td_pack_writer_free(w);
    td_free(buffer.bytes);
    return is_whole;
}

static void try_one(const uint8_t *data, size_t n_bytes)
{
    static unsigned n_parsed;
    td_pack *p, *back;
    if (td_pack_parse(data, n_bytes, "input", &p) != TD_OK) {
        TD_CHECK(!p && *td_error_message());
        return;
    }
    uint64_t digest = digest_of(p);
    char path[64];
    snprintf(path, sizeof path, "/tmp/tandem-fuzz-pack-%ld", (long)getpid());
    if (n_parsed++ % 16 == 0 && copy(p, path)) { /* files are slow */
        TD_CHECK(td_pack_open(path, &back) == TD_OK);
        TD_CHECK(digest_of(back) == digest);
        td_pack_close(back);
        unlink(path);
    }
    td_pack_close(p);
}

/* the check values that belong to these bytes */
static void mend(uint8_t *data, size_t n_bytes)
{
    uint8_t *tail = data + n_bytes - TAIL;
    uint64_t at = td_get_le(tail, 8);
    if (at > n_bytes - TAIL)
        return;
    td_put_le(tail + 40, td_digest_of(data + at, (size_t)(n_bytes - TAIL - at)), 8);
    td_digest d;
    td_digest_init(&d);
    td_digest_add(&d, data, HEAD);
    td_digest_add(&d, tail, DIGESTED);
    td_put_le(tail + DIGESTED, td_digest_value(&d), 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    try_one(data, n_bytes);
    if (n_bytes < HEAD + TAIL)
        return 0;
    uint8_t *copied = malloc(n_bytes);
    TD_CHECK(copied);
    memcpy(copied, data, n_bytes);
    mend(copied, n_bytes);
    try_one(copied, n_bytes);
    free(copied);
    return 0;
}
