/*
 * crc32.c -- four bytes at a time with four tables, computed at each call: 1,024 entries are cheap
 * compared with the megabytes of a weight file.  About 1 GB/s.
 */
#include "io/crc32.h"

#include "base/bytes.h"

#define POLYNOMIAL 0xedb88320u /* reflected */

/* table[k][b]: the remainder of byte b with k zero bytes after it */
static void make_tables(uint32_t table[4][256])
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int i = 0; i < 8; i++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 4; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
}

uint32_t td_crc32(const void *bytes, size_t n_bytes)
{
    uint32_t table[4][256], crc = 0xffffffff;
    const unsigned char *p = bytes;
    make_tables(table);
    for (; n_bytes >= 4; p += 4, n_bytes -= 4) {
        crc ^= (uint32_t)td_get_le(p, 4);
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^
              table[0][crc >> 24];
    }
    for (; n_bytes > 0; p++, n_bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}
