/*
 * profiler/amp_stats_file.h -- reads and draws the files of --amp-stats
 *
 *     td_stats_file f;
 *     TD_TRY(td_stats_read("stats.jsonl", &f));
 *     ... f.steps[f.n_steps - 1].tensors[0].half[TD_HALF_FP16].overflow ...
 *     td_stats_release(&f);
 */
#ifndef TD_PROFILER_AMP_STATS_FILE_H
#define TD_PROFILER_AMP_STATS_FILE_H

#include "base/arena.h"
#include "base/text.h"
#include "profiler/exponent_stats.h"

/* Shares of a tensor's elements. */
typedef struct {
    double overflow, below_subnormal, below_normal;
} td_stats_half;

typedef struct {
    const char *name, *label, *op, *kind, *dtype;
    const char *of; /* the parameter of this gradient, or NULL */
    int64_t elements, infinite, nan;
    double largest, zero; /* finite magnitude; share */
    td_stats_half half[TD_N_HALF];
    int n_bins, first; /* gradients: bin i counts 2^(first + i) <= |x| < twice that */
    int64_t *bins;
} td_stats_tensor;

typedef struct {
    int64_t step, epoch, iteration;
    const char *precision;
    double loss_scale;
    bool is_skipped;
    td_stats_tensor *tensors;
    int n_tensors;
} td_stats_step;

typedef struct {
    td_arena arena;
    td_stats_step *steps; /* at least one */
    size_t n_steps, cap_steps;
} td_stats_file;

/** Read a file; call td_stats_release after success.  TD_ENOTFOUND, TD_EIO, TD_EFORMAT with the
    line. */
td_status td_stats_read(const char *path, td_stats_file *out) TD_CHECKED;
void td_stats_release(td_stats_file *f);

/* All gradients of one step together. */
typedef struct {
    int64_t bins[TD_EXPONENT_BINS]; /* values in memory, scaled by the loss scale */
    int64_t elements, non_zero, infinite, nan;
    double largest; /* largest finite value in memory */
} td_stats_gradients;

void td_stats_sum_gradients(const td_stats_step *s, td_stats_gradients *out);

/** Draw histograms of the exponents of gradients as SVG: all together, by step, by layer. */
void td_stats_draw(const td_stats_file *f, td_text *svg);

#endif
