/*
 * io/protobuf.h -- the wire format of Protocol Buffers: a writer and a bounded reader
 *
 * A message is a sequence of fields, each a key (number << 3 | wire type) and a value:
 *
 *     wire 0   varint: 7 bits a byte, lowest first, at most 10 bytes
 *     wire 1   8 bytes      wire 5   4 bytes      both lowest byte first
 *     wire 2   length as a varint, then that many bytes: a text, a message, or packed numbers
 *
 * Writing appends to a td_text, which records the first failure.  Reading walks borrowed bytes and
 * allocates nothing:
 *
 *     td_pb r = td_pb_open(bytes, n_bytes, "net.onnx");
 *     td_pb_field f;
 *     while (td_pb_more(&r)) {
 *         TD_TRY(td_pb_next(&r, &f));
 *         if (f.number == 7) {
 *             td_pb inner;
 *             TD_TRY(td_pb_enter(&r, &f, &inner));
 *
 * Source: protobuf.dev, "Encoding".  Groups (wire types 3 and 4) are an error.
 */
#ifndef TD_IO_PROTOBUF_H
#define TD_IO_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/text.h"

/* --- writing ---------------------------------------------------------------------------------- */

void td_pb_put_int(td_text *t, int field, int64_t value);
void td_pb_put_float(td_text *t, int field, float value);
void td_pb_put_double(td_text *t, int field, double value);
void td_pb_put_bytes(td_text *t, int field, const void *bytes, size_t n_bytes);
void td_pb_put_text(td_text *t, int field, const char *text);

/** Append `inner` as a field of `t`; a failure of `inner` is copied to `t`. */
void td_pb_put_message(td_text *t, int field, const td_text *inner);

/** Append only key and length: the caller writes the n_bytes that follow. */
void td_pb_put_head(td_text *t, int field, size_t n_bytes);

/* --- reading ---------------------------------------------------------------------------------- */

#define TD_PB_DEPTH_MAX 16

/** A reader's position in one message. */
typedef struct {
    const uint8_t *first; /* start of the whole input, for positions in messages */
    const uint8_t *at, *end;
    const char *what; /* names the input in messages; borrowed */
    int depth;
} td_pb;

typedef struct {
    int number;           /* 1 .. 2^29 - 1 */
    int wire;             /* 0, 1, 2 or 5 */
    uint64_t value;       /* wire 0, 1 and 5 */
    const uint8_t *bytes; /* wire 2 */
    size_t n_bytes;
} td_pb_field;

td_pb td_pb_open(const void *bytes, size_t n_bytes, const char *what);
bool td_pb_more(const td_pb *r);

/**
 * Read the next field.  TD_EFORMAT with the place: a varint of more than 64 bits, a length beyond
 * the message's end, a field number 0, an unknown wire type.
 */
td_status td_pb_next(td_pb *r, td_pb_field *f) TD_CHECKED;

/**
 * Read a field as a message.  TD_EFORMAT: it is not one; TD_ELIMIT: nested deeper than the limit.
 */
td_status td_pb_enter(const td_pb *r, const td_pb_field *f, td_pb *inner) TD_CHECKED;

/** Read a field as a number (wire 0).  TD_EFORMAT: another wire type. */
td_status td_pb_int(const td_pb *r, const td_pb_field *f, int64_t *out) TD_CHECKED;

/** Read a field as a float (wire 5). */
td_status td_pb_float(const td_pb *r, const td_pb_field *f, float *out) TD_CHECKED;

/** Read a field as text, copied to `arena`.  TD_EFORMAT: not text, not UTF-8, or has a NUL. */
td_status td_pb_text(const td_pb *r, const td_pb_field *f, td_arena *arena,
                     const char **out) TD_CHECKED;

/**
 * Append a repeated number, packed or not, to out[*n] ..; *n also counts numbers beyond `room`.
 */
td_status td_pb_ints(const td_pb *r, const td_pb_field *f, int64_t *out, size_t room,
                     size_t *n) TD_CHECKED;

#endif
