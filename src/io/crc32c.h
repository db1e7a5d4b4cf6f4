/*
 * io/crc32c.h -- CRC-32C (Castagnoli), as in RFC 3720, and its masked form in TFRecord files
 *
 * td_crc32c("123456789", 9) is 0xe3069283.
 */
#ifndef TD_IO_CRC32C_H
#define TD_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t td_crc32c(const void *bytes, size_t n_bytes);

/** The CRC rotated and offset, as in TFRecord: CRCs of data that contains CRCs are problematic. */
uint32_t td_crc32c_masked(const void *bytes, size_t n_bytes);

#endif
