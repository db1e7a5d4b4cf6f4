/*
 * optim/mixup.h -- what a batch is mixed with: coefficients and partners
 *
 * A pure function of (seed, epoch, batch), so that a resumed run draws the same.  Or they come from
 * a file, which is how a test gives two programs the same ones.
 */
#ifndef TD_OPTIM_MIXUP_H
#define TD_OPTIM_MIXUP_H

#include "base/rng.h"
#include "io/safetensors.h"

/* One coefficient a batch and a random partner; or one a sample and the batch in reverse order. */
typedef enum { TD_MIXUP_BATCH, TD_MIXUP_SAMPLE } td_mixup_mode;

typedef struct {
    td_mixup_mode mode;
    double alpha; /* of Beta(alpha, alpha) */
    int batch;    /* N */
    uint64_t seed;
    td_tensors *file; /* owned; NULL: drawn */
    const char *path; /* of it, lent */
    float *lambda;    /* [N], of the batch drawn last */
    int64_t *partner; /* [N] */
} td_mixup;

/** A sample of Beta(a, a), a > 0. */
double td_beta(td_rng *r, double a);

/**
 * Room for a batch of m->batch; with `path` also the file: lambda f32 [S] or [S, N] and perm i64
 * [S, N], whose entries are in [0, N), for S batches counted from the beginning of the training.
 * TD_EFORMAT: it is not of that kind.  td_mixup_close in any case.
 */
td_status td_mixup_open(td_mixup *m, const char *path) TD_CHECKED;
void td_mixup_close(td_mixup *m);

/**
 * Coefficients and partners of a batch, number `index` of all.  TD_ENOTFOUND: the file has fewer.
 */
td_status td_mixup_draw(td_mixup *m, int64_t epoch, int64_t batch, int64_t index) TD_CHECKED;

#endif
