/*
 * base/bytes.h -- numbers in files: unsigned, lowest byte first, 1 to 8 bytes
 *
 *     unsigned char head[12], *p = td_put_le(head, n_rows, 8);
 *     td_put_le(p, version, 4);
 *     uint64_t n = td_get_le(head, 8);
 */
#ifndef TD_BASE_BYTES_H
#define TD_BASE_BYTES_H

#include <stdint.h>

static inline uint64_t td_get_le(const unsigned char *p, int n_bytes)
{
    uint64_t x = 0;
    for (int i = n_bytes - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

/** Store the lowest n_bytes of x; returns the address after them. */
static inline unsigned char *td_put_le(unsigned char *p, uint64_t x, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        p[i] = (unsigned char)(x >> 8 * i);
    return p + n_bytes;
}

#endif
