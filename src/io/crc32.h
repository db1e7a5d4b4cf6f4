/*
 * io/crc32.h -- CRC-32 (ISO-HDLC), as in zip archives and PNG files
 *
 * td_crc32("123456789", 9) is 0xcbf43926.
 */
#ifndef TD_IO_CRC32_H
#define TD_IO_CRC32_H

#include <stddef.h>
#include <stdint.h>

uint32_t td_crc32(const void *bytes, size_t n_bytes);

#endif
