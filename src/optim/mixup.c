/*
 * mixup.c -- draws coefficients, boxes and partners of mixup and cutmix, or reads those of mixup
 *            from a file
 */
#include "optim/mixup.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"

/* --- Beta(a, a) ------------------------------------------------------------------------------- */

/* A uniform number other than 0, whose logarithm is infinite. */
static double positive(td_rng *r)
{
    return 1 - td_rng_uniform(r);
}

/* a <= 1: Johnk 1964, with logarithms, since u^(1/a) underflows for small a. */
static double beta_small(td_rng *r, double a)
{
    for (;;) {
        const double x = log(positive(r)) / a, y = log(positive(r)) / a;
        const double top = x > y ? x : y, sum = top + log(exp(x - top) + exp(y - top));
        if (sum <= 0)
            return exp(x - sum);
    }
}

/* Marsaglia and Tsang 2000; a >= 1 */
static double gamma_of(td_rng *r, double a)
{
    const double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = td_rng_normal(r), t = 1 + c * x, v = t * t * t;
        if (t > 0 && log(positive(r)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

double td_beta(td_rng *r, double a)
{
    if (a <= 1)
        return beta_small(r, a);
    const double x = gamma_of(r, a), y = gamma_of(r, a);
    return x / (x + y);
}

/* --- the file --------------------------------------------------------------------------------- */

static td_status check_file(const td_mixup *m)
{
    const td_tensor *lambda = td_tensors_get(m->file, "lambda"),
                    *perm = td_tensors_get(m->file, "perm");
    if (!lambda || lambda->dtype != TD_DT_F32 || lambda->rank < 1 || lambda->rank > 2 ||
        (lambda->rank == 2 && lambda->dim[1] != m->batch))
        return td_error(TD_EFORMAT,
                        "'%s' has no tensor 'lambda' of type f32 and shape [S] or [S, %d]", m->path,
                        m->batch);
    if (!perm || perm->dtype != TD_DT_I64 || perm->rank != 2 || perm->dim[1] != m->batch ||
        perm->dim[0] != lambda->dim[0])
        return td_error(TD_EFORMAT, "'%s' has no tensor 'perm' of type i64 and shape [%lld, %d]",
                        m->path, (long long)lambda->dim[0], m->batch);
    for (int64_t i = 0; i < perm->dim[0] * m->batch; i++) {
        int64_t p;
        memcpy(&p, (const char *)perm->data + i * 8, sizeof p);
        if (p < 0 || p >= m->batch)
            return td_error(TD_EFORMAT,
                            "'%s': perm contains partner %lld, wanted 0 to less than %d", m->path,
                            (long long)p, m->batch);
    }
    return TD_OK;
}

td_status td_mixup_open(td_mixup *m, const char *path)
{
    m->path = path;
    TD_TRY(TD_ALLOC(m->lambda, (size_t)m->batch));
    TD_TRY(TD_ALLOC(m->partner, (size_t)m->batch));
    TD_TRY(TD_ALLOC(m->share, (size_t)m->batch));
    TD_TRY(TD_ALLOC(m->box, (size_t)m->batch * 4));
    if (!path)
        return TD_OK;
    TD_TRY(td_tensors_read(path, &m->file));
    return check_file(m);
}

void td_mixup_close(td_mixup *m)
{
    td_tensors_free(m->file);
    td_free(m->lambda);
    td_free(m->partner);
    td_free(m->share);
    td_free(m->box);
    *m = (td_mixup){ 0 };
}

static td_status take(td_mixup *m, int64_t index)
{
    const td_tensor *lambda = td_tensors_get(m->file, "lambda"),
                    *perm = td_tensors_get(m->file, "perm");
    const int64_t n = m->batch;
    if (index >= lambda->dim[0])
        return td_error(TD_ENOTFOUND,
                        "'%s' has %lld batches, but the training has reached batch number %lld",
                        m->path, (long long)lambda->dim[0], (long long)index);
    memcpy(m->partner, (const char *)perm->data + index * n * 8, (size_t)n * 8);
    if (lambda->rank == 2) {
        memcpy(m->lambda, (const char *)lambda->data + index * n * 4, (size_t)n * 4);
        return TD_OK;
    }
    memcpy(m->lambda, (const char *)lambda->data + index * 4, 4);
    for (int64_t i = 1; i < n; i++)
        m->lambda[i] = m->lambda[0];
    return TD_OK;
}

static void choose_partners(td_mixup *m, td_rng *r)
{
    if (m->mode == TD_MIXUP_BATCH)
        td_rng_permute(r, m->partner, m->batch);
    for (int i = 0; i < m->batch && m->mode == TD_MIXUP_SAMPLE; i++)
        m->partner[i] = m->batch - 1 - i;
}

/*
 * The box of a coefficient: its centre is uniform, its sides are sqrt(1 - lambda) of the image's,
 * cut off at the edges.  Source: torchvision's CutMix.  Returns the share that is left.
 */
static float draw_box(td_rng *r, double lambda, int size, int64_t box[4])
{
    const int half = (int)(0.5 * sqrt(1 - lambda) * size);
    for (int axis = 0; axis < 2; axis++) {
        const int centre = (int)td_rng_below(r, (uint64_t)size);
        box[axis] = centre > half ? centre - half : 0;
        box[axis + 2] = centre + half < size ? centre + half : size;
    }
    const double area = (double)(box[2] - box[0]) * (double)(box[3] - box[1]);
    return (float)(1 - area / ((double)size * size));
}

static void draw_cut(td_mixup *m, td_rng *r)
{
    for (int i = 0; i < m->batch; i++) {
        m->lambda[i] = 1;
        if (i && m->mode == TD_MIXUP_BATCH) {
            memcpy(m->box + 4 * (size_t)i, m->box, 4 * sizeof *m->box);
            m->share[i] = m->share[0];
        } else {
            m->share[i] = draw_box(r, td_beta(r, m->cut_alpha), m->size, m->box + 4 * (size_t)i);
        }
    }
    choose_partners(m, r);
}

static void draw_mix(td_mixup *m, int64_t epoch, int64_t batch)
{
    td_rng r = td_rng_make(m->seed, TD_RNG_MIXUP, (uint64_t)epoch, (uint64_t)batch);
    for (int i = 0; i < m->batch; i++)
        m->lambda[i] = i && m->mode == TD_MIXUP_BATCH ? m->lambda[0] : (float)td_beta(&r, m->alpha);
    choose_partners(m, &r);
    memcpy(m->share, m->lambda, (size_t)m->batch * sizeof *m->share);
    memset(m->box, 0, 4 * (size_t)m->batch * sizeof *m->box);
}

td_status td_mixup_draw(td_mixup *m, int64_t epoch, int64_t batch, int64_t index)
{
    if (m->file)
        return take(m, index);
    td_rng r = td_rng_make(m->seed, TD_RNG_CUTMIX, (uint64_t)epoch, (uint64_t)batch);
    const bool is_chosen = td_rng_uniform(&r) < m->cut_chance;
    if (m->cut_alpha > 0 && (is_chosen || m->alpha <= 0))
        draw_cut(m, &r);
    else
        draw_mix(m, epoch, batch);
    return TD_OK;
}
