/*
 * backend/native/common/native_planes.h -- tensors as planes of pixels or as
 * pieces of elements, and their division among threads
 *
 * native_simd.h describes planes.
 */
#ifndef TD_BACKEND_NATIVE_COMMON_NATIVE_PLANES_H
#define TD_BACKEND_NATIVE_COMMON_NATIVE_PLANES_H

#include "backend/native/common/native_division.h"
#include "backend/native/simd/native_simd.h"
#include "ir/graph.h"

typedef struct {
    td_dtype dtype;
    int64_t each; /* bytes of an element */
    int64_t N, C, CB, H, W;
    int lanes;
    int channels; /* in a block: `lanes`, or 1 if the lanes are pixels (native_norm.c) */
    td_native_plane plane;
    int64_t image, block; /* elements from one image (channel block) to the next */
} td_native_shape;

/**
 * TD_ENOKERNEL if `t` does not consist of planes: dtype, layout, or C not a multiple of the lanes.
 */
td_status td_native_shape_of(const td_type *t, td_native_shape *out) TD_CHECKED;

/**
 * td_native_shape_of, but the last block of aBcd16b and aBcd8b may have fewer channels than lanes:
 * the others are zeros, and a kernel leaves them so.  C counts the channels, CB all blocks.
 */
td_status td_native_padded_shape_of(const td_type *t, td_native_shape *out) TD_CHECKED;

/** The channels of block cb. */
static inline int td_native_lanes_in(const td_native_shape *s, int64_t cb)
{
    const int64_t left = (s->C - cb * s->channels) * (s->lanes / s->channels);
    return left < s->lanes ? (int)left : s->lanes;
}

/**
 * TD_ENOKERNEL unless every other tensor that `n` reads has t's layout or plain order, and every
 * float tensor has t's dtype, except that those of rank 1 (gamma, mean, ...) are f32.
 */
td_status td_native_check_alike(const td_node *n, const td_type *t) TD_CHECKED;

/** td_native_shape_of, then td_native_check_alike. */
td_status td_native_accepts(const td_node *n, const td_type *t) TD_CHECKED;

/** td_native_padded_shape_of, then td_native_check_alike. */
td_status td_native_accepts_padded(const td_node *n, const td_type *t) TD_CHECKED;

/** The offset of plane (n, cb) in elements. */
static inline int64_t td_native_offset(const td_native_shape *s, int64_t n, int64_t cb)
{
    return n * s->image + cb * s->block;
}

/** All planes, in the order of images and blocks, divided among the threads; `grain` in pixels. */
td_native_planes td_native_planes_of(const td_native_shape *s, int64_t grain, int threads);

/** The same division's share in elements. */
td_work_share td_native_shape_share(const td_native_shape *s, int64_t grain, int threads);

/* A part of plane (n, cb). */
typedef struct {
    int64_t n, cb;
    int64_t at;            /* offset in elements */
    td_native_plane plane; /* its pixels */
} td_native_part;

/** The part that `span` of td_native_planes_of describes. */
td_native_part td_native_part_of(const td_native_shape *s, const td_native_span *span);

/** Address of plane (n, cb) of `tensor`. */
static inline const void *td_native_plane_at(const td_native_shape *s, const void *tensor,
                                             int64_t n, int64_t cb)
{
    return (const char *)tensor + td_native_offset(s, n, cb) * s->each;
}

/** The same, writable. */
static inline void *td_native_plane_to(const td_native_shape *s, void *tensor, int64_t n,
                                       int64_t cb)
{
    return (char *)tensor + td_native_offset(s, n, cb) * s->each;
}

/* A number for each channel of a block, of type `dtype`. */
typedef struct {
    float lanes[TD_NATIVE_LANES_MAX]; /* as large as any */
} td_native_room;

/**
 * The numbers of block cb and image n in `tensor`, [N, C] or [N, C, 1, 1] of type t, plain or like
 * the planes; those that plain order lacks are zeros in `room`.
 */
const void *td_native_block_at(const td_native_shape *s, const td_type *t, const void *tensor,
                               int64_t n, int64_t cb, td_native_room *room);

/** Stores `lanes` numbers there, or as many as there are channels. */
void td_native_block_put(const td_native_shape *s, const td_type *t, void *tensor, int64_t n,
                         int64_t cb, const td_native_room *lanes);

/** td_native_is_streamed for a result of planes: false if a pixel is smaller than a cache line. */
bool td_native_is_plane_streamed(const td_native_shape *s);

/* --- flat tensors: elements in any order ------------------------------------------------------ */

/** TD_ENOKERNEL unless all tensors of `n` have one type and layout, f32 or a half type. */
td_status td_native_accepts_flat(const td_node *n) TD_CHECKED;

/** The share of kernels that divide such tensors by td_native_divide_tensor. */
td_work_share td_native_share_flat(const td_node *n, int threads);

/** All elements of a tensor in pieces of whole cache lines, padding included. */
td_native_pieces td_native_divide_tensor(const td_type *t, int threads);

#endif
