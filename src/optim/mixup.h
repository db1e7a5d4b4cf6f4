/*
 * optim/mixup.h -- mixup and cutmix: coefficients, boxes and partners of a batch
 *
 * Both are drawn by a pure function of (seed, epoch, batch), so that a resumed run draws the same;
 * or read from a file, so that tests can give two programs the same values.
 */
#ifndef TD_OPTIM_MIXUP_H
#define TD_OPTIM_MIXUP_H

#include "base/rng.h"
#include "io/safetensors.h"
#include "tandem/train_opts.h"

typedef struct {
    td_mixup_mode mode;
    double alpha;      /* of the distribution Beta(alpha, alpha); 0: no mixup */
    double cut_alpha;  /* the same of cutmix */
    double cut_chance; /* with both: the probability that a batch is cut, not mixed */
    int batch;         /* N */
    int size;          /* side of the images, pixels; cutmix only */
    uint64_t seed;
    td_tensors *file; /* owned; NULL: values are drawn */
    const char *path; /* its path, borrowed */
    float *lambda;    /* [N], of the last batch drawn */
    int64_t *partner; /* [N] */
    float *share;     /* [N]: the target's coefficient; cutmix only, like: */
    int64_t *box;     /* [N, 4]: left, top, right, bottom of the partner's pixels */
} td_mixup;

/** A sample of Beta(a, a), a > 0. */
double td_beta(td_rng *r, double a);

/**
 * Allocate the arrays for m->batch samples; with `path` also open the file, which has lambda f32
 * [S] or [S, N] and perm i64 [S, N], with entries in [0, N), for S batches counted from the start
 * of the training.  TD_EFORMAT: the file does not match.  Always call td_mixup_close.
 */
td_status td_mixup_open(td_mixup *m, const char *path) TD_CHECKED;
void td_mixup_close(td_mixup *m);

/**
 * Set coefficients, boxes and partners of a batch, number `index` in a file.  TD_ENOTFOUND: the
 * file has fewer.
 */
td_status td_mixup_draw(td_mixup *m, int64_t epoch, int64_t batch, int64_t index) TD_CHECKED;

#endif
