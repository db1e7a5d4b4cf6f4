/*
 * backend/native/simd/native_tile.h -- the tiles of AMX: 8 registers of 16 rows of 64 bytes
 */
#ifndef TD_BACKEND_NATIVE_SIMD_NATIVE_TILE_H
#define TD_BACKEND_NATIVE_SIMD_NATIVE_TILE_H

#include <immintrin.h>
#include <stdint.h>

#define HALVES "avx512f,avx512bw,avx512dq,avx512vl,fma,avx512bf16"
#define TILES  HALVES ",amx-tile,amx-bf16,amx-int8"

/* for loops with tiles: the compiler does not know what these read and write */
#define NOINLINE __attribute__((noinline))

enum {
    TILE_ROWS = 16,
    TILE_ROW_BYTES = 64,
    TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES,
    SQUARE_ROW_BYTES = 2 * TILE_ROW_BYTES
};

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* gcc does not know that these instructions read and write all 64 bytes (its PR 114098) */
static inline void use_memory(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* all tiles of 16 rows of 64 bytes; *before: what the thread had, as oneDNN may rely on it */
static inline __attribute__((target(TILES))) void use_tiles(tile_config *before)
{
    enum { N_TILES = 8 };
    tile_config c = { .palette = 1 };
    for (int i = 0; i < N_TILES; i++) {
        c.row_bytes[i] = TILE_ROW_BYTES;
        c.rows[i] = TILE_ROWS;
    }
    use_memory(before);
    _tile_storeconfig(before);
    use_memory(before);
    use_memory(&c);
    _tile_loadconfig(&c);
}

static inline __attribute__((target(TILES))) void restore_tiles(const tile_config *before)
{
    use_memory(before);
    if (before->palette)
        _tile_loadconfig(before);
    else
        _tile_release();
}

/* Stores tile i of 0 to 3, which are a square of 32 x 32 numbers of 4 bytes: `sums` [32][32]. */
#define STORE_SUMS(i, sums)                                                                        \
    _tile_stored(                                                                                  \
        i, (char *)(sums) + (i) / 2 * TILE_ROWS * SQUARE_ROW_BYTES + (i) % 2 * TILE_ROW_BYTES,     \
        SQUARE_ROW_BYTES)

#endif
