/*
 * ir/type.h -- the type of a tensor: dtype, shape, layout; sizes in bytes
 */
#ifndef TD_IR_TYPE_H
#define TD_IR_TYPE_H

#include "base/text.h"
#include "tandem/graph.h"

td_type td_type_scalar(td_dtype d);
td_type td_type_1d(td_dtype d, int64_t a);
td_type td_type_2d(td_dtype d, int64_t a, int64_t b);
td_type td_type_4d(td_dtype d, int64_t n, int64_t c, int64_t h, int64_t w);

bool td_type_same_shape(const td_type *a, const td_type *b);
bool td_type_equal(const td_type *a, const td_type *b); /* dtype, shape and layout */
bool td_type_is_plain(const td_type *t);
bool td_dtype_is_float(td_dtype d);
bool td_dtype_is_half(td_dtype d); /* bf16, f16 */

/** A copy with another dtype. */
td_type td_type_as(const td_type *t, td_dtype d);

/** A copy in plain layout. */
td_type td_type_plain(const td_type *t);

/* A tensor above 1 TiB is an invalid size; the sum of a million of them still fits an int64_t. */
#define TD_TYPE_BYTES_MAX ((int64_t)1 << 40)

/**
 * Bytes in memory, including a layout's padding; 0 if the layout does not fit the shape, a
 * dimension is below 1, or the size exceeds TD_TYPE_BYTES_MAX.
 */
int64_t td_type_bytes(const td_type *t);

/** Elements in memory, including a layout's padding. */
int64_t td_type_padded_count(const td_type *t);

/** a * b, INT64_MAX on overflow: for operation counts in reports. */
int64_t td_mul_capped(int64_t a, int64_t b);

/**
 * A parsed layout: dimensions (with a group split first), outer order, inner blocks.
 * "32gAbcde16a" on [K,C,R,S]: groups 32, dims {32, K/32, C, R, S}.
 */
typedef struct {
    int rank; /* length of dim; the type's rank, +1 with groups */
    int64_t dim[TD_RANK_MAX + 1];
    int order[TD_RANK_MAX + 1]; /* outer dimensions, slowest first */
    int n_blocks;
    int block_dim[8]; /* inner blocks, slowest first */
    int64_t block[8];
    int64_t padded[TD_RANK_MAX + 1]; /* dim rounded up to the product of its blocks */
} td_blocking;

/** False if the text is not a layout or does not fit the shape. */
bool td_type_blocking(const td_type *t, td_blocking *out);

/** Offset in elements of the element at plain index `at` (in the type's own dimensions). */
int64_t td_blocking_offset(const td_blocking *bl, const td_type *t, const int64_t *at);

/** "f32[8,3,32,32]@aBcd16b" */
void td_type_print(const td_type *t, td_text *out);

/** Parse the output of td_type_print; *end is set to the position after it.  False if malformed. */
bool td_type_parse(const char *s, td_type *out, const char **end);

/** Output size of a convolution or pooling in one dimension; <= 0: no output.  pads: the sum of
    both ends. */
int64_t td_windows(int64_t in, int64_t kernel, int64_t stride, int64_t pads, int64_t dilation);

#endif
