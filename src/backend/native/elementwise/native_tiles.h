/*
 * backend/native/elementwise/native_tiles.h -- conversion between blocked layouts with the same
 * tiles
 */
#ifndef TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_TILES_H
#define TD_BACKEND_NATIVE_ELEMENTWISE_NATIVE_TILES_H

#include "backend/native/common/native_division.h"
#include "ir/graph.h"

/* Where the tiles of one blocked layout are in another. */
typedef struct {
    int tile; /* elements */
    int64_t n_tiles;
    int32_t *place;                    /* [n_tiles] offset of a tile, in elements */
    uint16_t *order;                   /* [tile] offset of an element within it */
    struct td_native_shuffle *shuffle; /* the same for AVX-512, or NULL */
} td_native_tiles;

/** TD_ENOKERNEL: one of them has padding, or their tiles differ. */
td_status td_native_tiles_check(const td_type *from, const td_type *to) TD_CHECKED;

/** Make the tables for layouts that passed the check; dtypes do not matter. */
td_status td_native_tiles_make(const td_type *from, const td_type *to,
                               td_native_tiles *out) TD_CHECKED;
void td_native_tiles_release(td_native_tiles *t);

/** Elements of a tile of a type that passed the check. */
int td_native_tile_of(const td_type *t);

/** The tensor's elements in pieces of whole tiles. */
td_native_pieces td_native_tiles_divide(int64_t tile, const td_type *t, int threads);

/** Copy n tiles from tile `first` on: `from` points to tile `first`, `to` to the whole other
    tensor. */
void td_native_tiles_put(const td_native_tiles *t, int64_t first, int64_t n, const uint16_t *from,
                         uint16_t *to);

#endif
