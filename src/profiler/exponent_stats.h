/*
 * profiler/exponent_stats.h -- counts the exponents of a tensor's elements, and those that a half
 * type cannot represent
 *
 *     td_magnitudes m;
 *     TD_TRY(td_magnitudes_count(&type, data, &m));
 *     ... m.n_over[TD_HALF_FP16] of m.n elements do not fit into fp16 ...
 *
 * The bounds are those of mixed-precision training: NVIDIA's "Training with Mixed Precision" draws
 * the same histogram of a network's gradients.
 */
#ifndef TD_PROFILER_EXPONENT_STATS_H
#define TD_PROFILER_EXPONENT_STATS_H

#include "tandem/program.h"

/* The half types and their ranges. */
typedef enum { TD_HALF_FP16, TD_HALF_BF16, TD_N_HALF } td_half_type;

typedef struct {
    const char *name;      /* "fp16" */
    double largest;        /* the largest finite number */
    int normal, subnormal; /* the smallest ones are 2^normal and 2^subnormal */
} td_half_range;

extern const td_half_range td_half_ranges[TD_N_HALF];

/* Exponents of float32: bin i counts 2^(i + TD_EXPONENT_MIN) <= |x| < twice that. */
#define TD_EXPONENT_MIN  (-149)
#define TD_EXPONENT_MAX  127
#define TD_EXPONENT_BINS (TD_EXPONENT_MAX - TD_EXPONENT_MIN + 1)

/* Exact counts, excluding the padding of a layout. */
typedef struct {
    int64_t n, n_zero, n_infinite, n_nan;
    double largest;                     /* finite magnitude; 0 if none */
    int64_t n_over[TD_N_HALF];          /* above the type's largest, including infinity */
    int64_t n_lost[TD_N_HALF];          /* not zero, below its smallest subnormal */
    int64_t n_below_normal[TD_N_HALF];  /* not zero, below its smallest normal, including n_lost */
    int64_t exponent[TD_EXPONENT_BINS]; /* of finite non-zero elements */
} td_magnitudes;

/**
 * Count the elements of `data`, of type `type`; float64 is rounded to float32 first.
 * TD_EARG: no float type; TD_ENOMEM.
 */
td_status td_magnitudes_count(const td_type *type, const void *data, td_magnitudes *out) TD_CHECKED;

#endif
