/*
 * fill.h -- weights, images and labels from a formula: the fill of the golden cases
 *
 * Every number depends on the tensor's full name (prefix followed by name) and the element's index
 * only: FNV-1a of the name seeds splitmix64, the upper 24 bits of an output are u in [0, 1).
 *
 *   plain    an ordinary random initialisation, badly conditioned in float32
 *   margin   batch-norm parameters such that ReLU inputs keep away from zero: for float32 runs
 *   calm     of ssd320: batch-norm parameters such that no input of a relu6 comes near 0 or 6
 *
 * Values are computed in double and rounded once.  Source: tests/golden/classification/README.md,
 * sections 1 and 2; tests/oracle/fill.py is the same in Python.
 */
#ifndef TD_TEST_FILL_H
#define TD_TEST_FILL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum { TD_FILL_PLAIN, TD_FILL_MARGIN, TD_FILL_CALM } td_fill_kind;

/** "plain", "margin" or "calm"; false for anything else. */
bool td_fill_kind_parse(const char *text, td_fill_kind *out);

/** Are the architecture's blocks basic ones (resnet18, resnet34), which end with bn2, not bn3? */
bool td_fill_has_basic_blocks(const char *arch);

/**
 * What stands before the names of files without a `prefix` of their own: $TANDEM_GOLDEN_PREFIX, or
 * "".
 */
const char *td_fill_prefix(void);

/** The seed of a tensor. */
uint64_t td_fill_seed(const char *prefix, const char *name);

/** u of element i, a multiple of 2^-24 in [0, 1). */
double td_fill_u(uint64_t seed, int64_t i);

/**
 * A weight or statistic, by its canonical name ("layer1.0.bn1.weight").
 *
 *   out  [dim[0], ..., dim[rank - 1]]  float32, C order; zeros for num_batches_tracked
 */
void td_fill_tensor(td_fill_kind kind, bool is_basic, const char *prefix, const char *name,
                    int rank, const int64_t *dim, float *out);

/** lo + (hi - lo) u; out [n] float32. */
void td_fill_range(const char *prefix, const char *name, double lo, double hi, int64_t n,
                   float *out);

/** 2 (2u - 1); `name` is "images", "images.0", ...; out [n] float32. */
void td_fill_images(const char *prefix, const char *name, int64_t n, float *out);

/** floor(u classes); out [n]. */
void td_fill_labels(const char *prefix, const char *name, int64_t n, int64_t classes, int64_t *out);

#endif
