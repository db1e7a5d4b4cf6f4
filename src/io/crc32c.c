/*
 * crc32c.c -- CRC-32C: eight bytes at a time by an instruction, or else with a table of
 * 16 entries, two look-ups per byte
 */
#include "io/crc32c.h"

#include <string.h>

/* the remainder of each half byte; polynomial 0x1edc6f41, reflected */
static const uint32_t nibble[16] = { 0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1,
                                     0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
                                     0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75 };

static uint32_t add_bytes(uint32_t crc, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t add_words(uint32_t crc, const unsigned char *p,
                                                            size_t n)
{
    uint64_t x = crc, word;
    for (size_t i = 0; i < n; i += sizeof word) {
        memcpy(&word, p + i, sizeof word);
        x = __builtin_ia32_crc32di(x, word);
    }
    return (uint32_t)x;
}
#endif

uint32_t td_crc32c(const void *bytes, size_t n_bytes)
{
    const unsigned char *p = bytes;
    uint32_t crc = 0xffffffff;
    size_t done = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) {
        done = n_bytes & ~(size_t)7;
        crc = add_words(crc, p, done);
    }
#endif
    return ~add_bytes(crc, p + done, n_bytes - done);
}

uint32_t td_crc32c_masked(const void *bytes, size_t n_bytes)
{
    const uint32_t crc = td_crc32c(bytes, n_bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
