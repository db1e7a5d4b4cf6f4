/*
 * native_division.h -- how kernels divide their work among threads
 *
 *     pieces    elements of flat tensors:  [ piece | piece | ... | rest ]  in OpenMP's static order
 *     spans     pixels of planes:          [ plane | plane | plane | ... ]
 *                                          thread 0 |  thread 1  | thread 2     as even as possible
 *     grids     tiles of pixels by blocks of channels
 *     turns     jobs of any kind, which threads take as they become free
 *
 * All divide what is independent, or sums at the places where they are added in float64 anyway: a
 * result has the same bits for every division.  The kernels' `share` is computed from the same
 * structs as the division itself.
 */
#ifndef TD_BACKEND_NATIVE_COMMON_NATIVE_DIVISION_H
#define TD_BACKEND_NATIVE_COMMON_NATIVE_DIVISION_H

#include "runtime/kernel.h"

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/** a / b, rounded up. */
static inline int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Elements in one job: enough to stream, few enough to divide the work evenly. */
#define TD_NATIVE_PIECE 16384

/* Elements in the smallest job that is worth another thread. */
#define TD_NATIVE_PIECE_MIN 2048

/* Pixels of a plane that one thread computes if nothing is summed: whole cache lines. */
#define TD_NATIVE_GRAIN 16

/* `n` pieces of `each` elements; the last one may be shorter. */
typedef struct {
    int64_t count, each, n;
} td_native_pieces;

/**
 * Divide `count` elements, in multiples of `unit` (at most TD_NATIVE_PIECE): into pieces of
 * TD_NATIVE_PIECE, or smaller ones if these cannot be distributed evenly.
 */
td_native_pieces td_native_divide(int64_t count, int64_t unit, int threads);

/** The number of elements in the piece that begins at element `from`. */
static inline int64_t td_native_piece_at(const td_native_pieces *p, int64_t from)
{
    return p->count - from < p->each ? p->count - from : p->each;
}

td_work_share td_native_pieces_share(const td_native_pieces *p, int threads);

/* Planes of `area` pixels, divided among threads in multiples of `grain` pixels of a plane. */
typedef struct {
    int64_t n_planes, area, grain;
    int threads;
} td_native_planes;

/*
 * The share of thread t, a part of one plane after the other:
 *
 *     for (td_native_span s = td_native_span_first(&d, t); td_native_span_next(&d, &s);)
 *         ...pixels [s.from, s.from + s.n) of plane s.plane...
 */
typedef struct {
    int64_t plane, from, n;
    int64_t next, end; /* in pixels of all planes */
} td_native_span;

td_native_span td_native_span_first(const td_native_planes *d, int t);
bool td_native_span_next(const td_native_planes *d, td_native_span *s);

/** In pixels. */
td_work_share td_native_planes_share(const td_native_planes *d);

/* Tiles of pixels by blocks of channels: job (i, j) of a x b, or thread (i, j) where each has one,
   is part i of a of the tiles and part j of b of the blocks. */
typedef struct {
    int64_t tiles, blocks;
    int tile_parts, block_parts; /* a, b */
} td_native_grid;

/* One job. */
typedef struct {
    int64_t from, to; /* tiles */
    int64_t block_from, block_to;
} td_native_cell;

/** Of all divisions the one with the least work of a thread, then with the least traffic:
    `tile_bytes` of all tiles are read for each part of the blocks, and the reverse. */
td_native_grid td_native_grid_divide(int64_t tiles, int64_t blocks, double tile_bytes,
                                     double block_bytes, int threads);

/* What a grid's tiles read (all of x), its blocks (all of w), and both write, in bytes. */
typedef struct {
    double x, w, y;
} td_native_grid_bytes;

/**
 * Of all divisions the one whose slowest thread ends first.  `cycles`: of one tile of one block.
 * Blocks are read from memory by every part of the tiles.  x was written, and y is read, by threads
 * that have the same share of all tiles: what is not a thread's own comes from the cache of another
 * core, which takes much longer if these cores have no last-level cache in common.
 */
td_native_grid td_native_grid_divide_by_time(int64_t tiles, int64_t blocks, double cycles,
                                             const td_native_grid_bytes *bytes, int threads);

/** Job t, less than tile_parts x block_parts; it may be empty. */
td_native_cell td_native_grid_cell(const td_native_grid *d, int t);

/** `each`: work for one tile of one block. */
td_work_share td_native_grid_share(const td_native_grid *d, double each, int threads);

/* Jobs that threads take in turn: each its own share first, whose data may be in its cache, then
   those that others have not begun.  A core that other processes disturb delays the rest by one job
   at most. */
typedef struct {
    int jobs, threads;
    void (*run)(const void *context, int job, int thread);
    const void *context;
} td_native_turns;

/** Scratch of td_native_take_turns, at a multiple of 64 bytes. */
size_t td_native_turns_bytes(int threads);

/** Run all jobs; no job may wait for another.  `thread` is less than `threads`, and no two jobs
    that run at the same time have the same one: it may choose their scratch. */
void td_native_take_turns(const td_native_turns *t, void *scratch);

#endif
