/*
 * io/digest.h -- a 64-bit check value over a stream of bytes
 *
 * Detects damage (flipped bits, truncation), not forgery.
 *
 *     td_digest d;  td_digest_init(&d);
 *     td_digest_add(&d, header, n);  td_digest_add(&d, data, m);
 *     uint64_t value = td_digest_value(&d);
 *
 * The value depends on the bytes only, not on how they were cut into pieces.
 * Source: XXH3, 64 bits, seed 0, of the xxHash library: agrees with `xxhsum -H3`.
 */
#ifndef TD_IO_DIGEST_H
#define TD_IO_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define TD_DIGEST_STATE_BYTES 576 /* XXH3_state_t; digest.c checks it */

/** Allocated by the caller; nothing to release.  A copy can continue with different data. */
typedef struct {
    _Alignas(64) unsigned char state[TD_DIGEST_STATE_BYTES];
} td_digest;

void td_digest_init(td_digest *d);

/** `bytes` may be NULL when n_bytes is 0. */
void td_digest_add(td_digest *d, const void *bytes, size_t n_bytes);

/** The value for all bytes so far; more bytes may be added afterwards. */
uint64_t td_digest_value(const td_digest *d);

/** The digest of one block. */
uint64_t td_digest_of(const void *bytes, size_t n_bytes);

#endif
