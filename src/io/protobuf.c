/*
 * protobuf.c -- writes and reads keys, varints and lengths
 */
#include "io/protobuf.h"

#include <string.h>

#include "base/bytes.h"

enum { WIRE_VARINT = 0, WIRE_8 = 1, WIRE_BYTES = 2, WIRE_4 = 5 };

/* --- writing ---------------------------------------------------------------------------------- */

static void put_varint(td_text *t, uint64_t v)
{
    char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (v);
    td_text_add_bytes(t, bytes, n);
}

static void put_key(td_text *t, int field, int wire)
{
    put_varint(t, (uint64_t)field << 3 | (uint64_t)wire);
}

void td_pb_put_int(td_text *t, int field, int64_t value)
{
    put_key(t, field, WIRE_VARINT);
    put_varint(t, (uint64_t)value);
}

void td_pb_put_float(td_text *t, int field, float value)
{
    uint32_t bits;
    unsigned char bytes[4];
    memcpy(&bits, &value, sizeof bits);
    td_put_le(bytes, bits, sizeof bytes);
    put_key(t, field, WIRE_4);
    td_text_add_bytes(t, (const char *)bytes, sizeof bytes);
}

void td_pb_put_double(td_text *t, int field, double value)
{
    uint64_t bits;
    unsigned char bytes[8];
    memcpy(&bits, &value, sizeof bits);
    td_put_le(bytes, bits, sizeof bytes);
    put_key(t, field, WIRE_8);
    td_text_add_bytes(t, (const char *)bytes, sizeof bytes);
}

void td_pb_put_head(td_text *t, int field, size_t n_bytes)
{
    put_key(t, field, WIRE_BYTES);
    put_varint(t, n_bytes);
}

void td_pb_put_bytes(td_text *t, int field, const void *bytes, size_t n_bytes)
{
    td_pb_put_head(t, field, n_bytes);
    if (n_bytes)
        td_text_add_bytes(t, bytes, n_bytes);
}

void td_pb_put_text(td_text *t, int field, const char *text)
{
    td_pb_put_bytes(t, field, text, strlen(text));
}

void td_pb_put_message(td_text *t, int field, const td_text *inner)
{
    if (inner->st != TD_OK && t->st == TD_OK)
        t->st = inner->st;
    td_pb_put_bytes(t, field, td_text_get(inner), inner->len);
}

/* --- reading ---------------------------------------------------------------------------------- */

td_pb td_pb_open(const void *bytes, size_t n_bytes, const char *what)
{
    static const uint8_t nothing[1];
    const uint8_t *p = bytes ? bytes : nothing;
    return (td_pb){ .first = p, .at = p, .end = p + n_bytes, .what = what };
}

bool td_pb_more(const td_pb *r)
{
    return r->at < r->end;
}

static td_status bad(const td_pb *r, const uint8_t *at, const char *what)
{
    return td_error(TD_EFORMAT, "'%s': byte %zu: %s", r->what, (size_t)(at - r->first), what);
}

static td_status read_varint(td_pb *r, uint64_t *out)
{
    const uint8_t *from = r->at;
    *out = 0;
    for (int i = 0; i < 10; i++) {
        if (r->at == r->end)
            return bad(r, from, "the message ends inside a number");
        uint8_t b = *r->at++;
        if (i == 9 && b > 1)
            break;
        *out |= (uint64_t)(b & 0x7f) << 7 * i;
        if (!(b & 0x80))
            return TD_OK;
    }
    return bad(r, from, "a number of more than 64 bits");
}

static td_status read_fixed(td_pb *r, int n_bytes, uint64_t *out)
{
    if (r->end - r->at < n_bytes)
        return bad(r, r->at, "the message ends inside a number");
    *out = td_get_le(r->at, n_bytes);
    r->at += n_bytes;
    return TD_OK;
}

static td_status read_bytes(td_pb *r, td_pb_field *f)
{
    const uint8_t *from = r->at;
    uint64_t n;
    TD_TRY(read_varint(r, &n));
    if (n > (uint64_t)(r->end - r->at))
        return td_error(TD_EFORMAT, "'%s': byte %zu: a length of %llu, %zu bytes are left", r->what,
                        (size_t)(from - r->first), (unsigned long long)n, (size_t)(r->end - r->at));
    f->bytes = r->at;
    f->n_bytes = (size_t)n;
    r->at += n;
    return TD_OK;
}

td_status td_pb_next(td_pb *r, td_pb_field *f)
{
    const uint8_t *from = r->at;
    uint64_t key;
    *f = (td_pb_field){ 0 };
    TD_TRY(read_varint(r, &key));
    if (key >> 3 == 0 || key >> 3 >= 1u << 29)
        return bad(r, from, "an invalid field number");
    f->number = (int)(key >> 3);
    f->wire = (int)(key & 7);
    if (f->wire == WIRE_VARINT)
        return read_varint(r, &f->value);
    if (f->wire == WIRE_BYTES)
        return read_bytes(r, f);
    if (f->wire == WIRE_4 || f->wire == WIRE_8)
        return read_fixed(r, f->wire == WIRE_4 ? 4 : 8, &f->value);
    return bad(r, from, "an invalid wire type");
}

static td_status wrong_wire(const td_pb *r, const td_pb_field *f, const char *wanted)
{
    return td_error(TD_EFORMAT, "'%s': before byte %zu: field %d is not a %s", r->what,
                    (size_t)(r->at - r->first), f->number, wanted);
}

td_status td_pb_enter(const td_pb *r, const td_pb_field *f, td_pb *inner)
{
    if (f->wire != WIRE_BYTES)
        return wrong_wire(r, f, "message");
    if (r->depth + 1 > TD_PB_DEPTH_MAX)
        return td_error(TD_ELIMIT, "'%s': messages nested more than %d deep", r->what,
                        TD_PB_DEPTH_MAX);
    *inner = (td_pb){ .first = r->first,
                      .at = f->bytes,
                      .end = f->bytes + f->n_bytes,
                      .what = r->what,
                      .depth = r->depth + 1 };
    return TD_OK;
}

td_status td_pb_int(const td_pb *r, const td_pb_field *f, int64_t *out)
{
    if (f->wire != WIRE_VARINT)
        return wrong_wire(r, f, "integer");
    *out = (int64_t)f->value;
    return TD_OK;
}

td_status td_pb_float(const td_pb *r, const td_pb_field *f, float *out)
{
    uint32_t bits = (uint32_t)f->value;
    if (f->wire != WIRE_4)
        return wrong_wire(r, f, "float");
    memcpy(out, &bits, sizeof bits);
    return TD_OK;
}

td_status td_pb_text(const td_pb *r, const td_pb_field *f, td_arena *arena, const char **out)
{
    if (f->wire != WIRE_BYTES)
        return wrong_wire(r, f, "text");
    char *copy = td_arena_alloc(arena, f->n_bytes + 1, 1);
    if (!copy)
        return TD_ENOMEM;
    if (f->n_bytes)
        memcpy(copy, f->bytes, f->n_bytes);
    if (strlen(copy) != f->n_bytes || !td_text_is_utf8(copy))
        return wrong_wire(r, f, "UTF-8 text");
    *out = copy;
    return TD_OK;
}

td_status td_pb_ints(const td_pb *r, const td_pb_field *f, int64_t *out, size_t room, size_t *n)
{
    td_pb packed;
    uint64_t v;
    if (f->wire == WIRE_VARINT) {
        if (*n < room)
            out[*n] = (int64_t)f->value;
        (*n)++;
        return TD_OK;
    }
    TD_TRY(td_pb_enter(r, f, &packed));
    while (td_pb_more(&packed)) {
        TD_TRY(read_varint(&packed, &v));
        if (*n < room)
            out[*n] = (int64_t)v;
        (*n)++;
    }
    return TD_OK;
}
