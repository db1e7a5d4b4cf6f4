/*
 * base/rng.h -- counter-based random numbers
 *
 * A stream is a pure function of (seed, purpose, a, b).  No state is shared, so the numbers do
 * not depend on worker threads, ranks or resuming.  `a` and `b` are usually (epoch, sample).
 *
 *     td_rng r = td_rng_make(seed, TD_RNG_CROP, epoch, sample);
 *     double u = td_rng_uniform(&r);
 *
 * Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", Philox4x32-10; agrees
 * with the known-answer vectors of that paper's Random123 library.
 */
#ifndef TD_BASE_RNG_H
#define TD_BASE_RNG_H

#include <stdint.h>

/* The purpose of a stream; never renumber: checkpoints and reproducible runs depend on it. */
typedef enum {
    TD_RNG_INIT = 1,    /* a = parameter's name hash */
    TD_RNG_SHUFFLE = 2, /* a = epoch */
    TD_RNG_CROP = 3,    /* a = epoch, b = sample; crop box and flip */
    TD_RNG_SYNTH = 4,   /* a = batch or 0, b = sample: synthetic images and labels */
    TD_RNG_DRAW = 5,    /* a = image index: drawn data sets */
    TD_RNG_MIXUP = 6,
    TD_RNG_TEST = 7,
    TD_RNG_DROPOUT = 8,
    TD_RNG_AUGMENT = 9,  /* a = epoch, b = sample: operations on the image; like the next two */
    TD_RNG_JITTER = 10,  /* colours */
    TD_RNG_ERASE = 11,   /* the erased box */
    TD_RNG_CUTMIX = 12,  /* a = epoch, b = batch; also whether it is mixed or cut */
    TD_RNG_BALANCE = 13, /* a = epoch: classes and samples, drawn with replacement */
    TD_RNG_FILTER = 14   /* a = epoch, b = sample: interpolation of the resize */
} td_rng_purpose;

typedef struct {
    uint32_t key[2];
    uint32_t ctr[4]; /* ctr[0] counts blocks of four; [1] = purpose and b's high bits; see rng.c */
    uint32_t out[4];
    int n_left;
    int has_normal;
    double next_normal;
} td_rng;

td_rng td_rng_make(uint64_t seed, td_rng_purpose purpose, uint64_t a, uint64_t b);

uint32_t td_rng_u32(td_rng *r);
uint64_t td_rng_u64(td_rng *r);

/** Uniform in [0, 1) with 53 bits. */
double td_rng_uniform(td_rng *r);

/** Uniform integer in [0, n), n >= 1, without bias. */
uint64_t td_rng_below(td_rng *r, uint64_t n);

/** Standard normal (Box-Muller). */
double td_rng_normal(td_rng *r);

/** The n numbers 0 .. n-1 in random order (Fisher-Yates). */
void td_rng_permute(td_rng *r, int64_t *items, int64_t n);

/** One block of Philox4x32-10, for the known-answer test. */
void td_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

#endif
