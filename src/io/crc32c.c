/*
 * crc32c.c -- CRC-32C with a table of 16 entries, two look-ups per byte
 *
 * Event files grow by some kilobytes a minute, so this is fast enough.
 */
#include "io/crc32c.h"

/* the remainder of each half byte; polynomial 0x1edc6f41, reflected */
static const uint32_t nibble[16] = { 0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                     0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                     0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75 };

uint32_t td_crc32c(const void *bytes, size_t n_bytes)
{
    const unsigned char *p = bytes;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}

uint32_t td_crc32c_masked(const void *bytes, size_t n_bytes)
{
    const uint32_t crc = td_crc32c(bytes, n_bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
