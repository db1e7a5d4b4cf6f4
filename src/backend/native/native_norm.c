/*
 * native_norm.c -- batch normalisation on channel blocks, forward and backward
 *
 *     for each channel block:   sums over the planes of all images   ->  its coefficients
 *                               each plane again: y (or dx)
 *
 * The second pass finds a small plane in the cache, so a thread finishes one channel block before
 * it takes the next.  If there are fewer blocks than threads, planes are divided instead, in two
 * phases.  Both ways add the planes' sums in the order of the images, in float64: the bits are the
 * same.
 */
#include <math.h>
#include <string.h>

#include "backend/native/native.h"
#include "tandem/program.h"

#define L TD_NATIVE_LANES_MAX

/* sums of one plane: mean and m2 in forward, sum and dot in backward */
typedef struct {
    double a[L], b[L];
} plane_sums;

typedef struct {
    const td_native_simd *simd;
    td_native_shape s;
    double eps;
    const void *x, *z, *dy, *dy2; /* dy2: added to dy; dz is the masked sum */
    const float *gamma, *beta, *mean_in, *var_in;
    const uint8_t *mask_in;
    void *y, *dx, *dz;
    float *mean, *var, *dgamma, *dbeta;
    float cap; /* upper bound; 0: no relu, INFINITY: relu */
    uint8_t *mask;
    plane_sums *sums; /* [CB, N] */
} job;

/* like td_native_shape_of, but plain order is accepted too */
static td_status shape_of(const td_type *t, td_native_shape *s)
{
    if (!td_native_knows(t->dtype) || t->rank != 4 || !td_type_is_plain(t))
        return td_native_shape_of(t, s);
    const int64_t area = t->dim[2] * t->dim[3];
    const int lanes = area % 16 == 0 ? 16 : 8;
    if (area % lanes)
        return td_error(TD_ENOKERNEL, "plain planes of %lld do not fill lanes of 8",
                        (long long)area);
    *s = (td_native_shape){
        .dtype = t->dtype,
        .each = (int64_t)td_dtype_bytes(t->dtype),
        .N = t->dim[0],
        .C = t->dim[1],
        .CB = t->dim[1],
        .H = t->dim[2],
        .W = t->dim[3],
        .lanes = lanes,
        .channels = 1,
        .plane = { .n_pixels = area / lanes, .stride = lanes },
        .image = t->dim[1] * area,
        .block = area,
    };
    return TD_OK;
}

/* the channel in a lane of a block */
static int64_t channel_of(const td_native_shape *s, int64_t cb, int lane)
{
    return cb * s->channels + lane % s->channels;
}

static job job_of(const td_node *n, const td_type *x, void *scratch)
{
    job j = { .eps = ((const td_norm_attr *)n->attr)->eps, .sums = scratch };
    TD_CHECK(shape_of(x, &j.s) == TD_OK);
    j.simd = td_native_simd_for(j.s.dtype, j.s.lanes);
    j.s.plane.is_streamed = td_native_is_plane_streamed(&j.s);
    return j;
}

/* --- dividing the work ------------------------------------------------------------------------ */

/* sum: one plane into *out;  join: a block's planes into its coefficients;  apply: one plane */
typedef struct {
    void (*sum)(const job *j, int64_t n, int64_t cb, plane_sums *out);
    void (*join)(const job *j, int64_t cb, td_native_coefs *c);
    void (*apply)(const job *j, int64_t n, int64_t cb, const td_native_coefs *c);
} steps;

static void run_block(const job *j, const steps *f, int64_t cb)
{
    td_native_coefs c;
    for (int64_t n = 0; n < j->s.N; n++)
        f->sum(j, n, cb, &j->sums[cb * j->s.N + n]);
    f->join(j, cb, &c);
    for (int64_t n = 0; n < j->s.N; n++)
        f->apply(j, n, cb, &c);
}

static void run_in_phases(const job *j, const steps *f)
{
#pragma omp parallel for collapse(2)
    for (int64_t cb = 0; cb < j->s.CB; cb++)
        for (int64_t n = 0; n < j->s.N; n++)
            f->sum(j, n, cb, &j->sums[cb * j->s.N + n]);
#pragma omp parallel for
    for (int64_t cb = 0; cb < j->s.CB; cb++) {
        td_native_coefs c;
        f->join(j, cb, &c);
        memcpy(&j->sums[cb * j->s.N], &c, sizeof c); /* the sums are no longer needed */
    }
#pragma omp parallel for collapse(2)
    for (int64_t cb = 0; cb < j->s.CB; cb++)
        for (int64_t n = 0; n < j->s.N; n++)
            f->apply(j, n, cb, (const td_native_coefs *)&j->sums[cb * j->s.N]);
}

_Static_assert(sizeof(td_native_coefs) <= sizeof(plane_sums),
               "run_in_phases keeps one in the other");

static void run_steps(const job *j, const steps *f)
{
    if (j->s.CB < td_threads()) {
        run_in_phases(j, f);
        return;
    }
#pragma omp parallel for
    for (int64_t cb = 0; cb < j->s.CB; cb++)
        run_block(j, f, cb);
}

/* --- forward ---------------------------------------------------------------------------------- */

static void forward_sum(const job *j, int64_t n, int64_t cb, plane_sums *out)
{
    j->simd->norm_stats(&j->s.plane, td_native_plane_at(&j->s, j->x, n, cb), out->a, out->b);
}

/* merges the statistics of planes of equal size: Chan et al. 1983 */
static void join_planes(const job *j, int64_t cb, double *mean, double *m2)
{
    const double area = (double)j->s.plane.n_pixels;
    const plane_sums *p = &j->sums[cb * j->s.N];
    memcpy(mean, p[0].a, sizeof p[0].a);
    memcpy(m2, p[0].b, sizeof p[0].b);
    for (int64_t n = 1; n < j->s.N; n++) {
        const double share = 1 / (double)(n + 1), weight = area * (double)n * share;
        for (int i = 0; i < j->s.lanes; i++) {
            const double gap = p[n].a[i] - mean[i];
            mean[i] += gap * share;
            m2[i] += p[n].b[i] + gap * gap * weight;
        }
    }
}

/* if lanes are pixels of one channel, merges the lanes too; every lane gets the channel's value */
static void join_lanes(const job *j, double *mean, double *m2)
{
    const double each = (double)(j->s.plane.n_pixels * j->s.N);
    double sum = 0, spread = 0;
    for (int i = 0; i < j->s.lanes; i++)
        sum += mean[i];
    const double centre = sum / j->s.lanes;
    for (int i = 0; i < j->s.lanes; i++)
        spread += m2[i] + each * (mean[i] - centre) * (mean[i] - centre);
    for (int i = 0; i < j->s.lanes; i++) {
        mean[i] = centre;
        m2[i] = spread;
    }
}

static void forward_join(const job *j, int64_t cb, td_native_coefs *c)
{
    const double total = (double)(j->s.H * j->s.W * j->s.N);
    double mean[L], m2[L];
    join_planes(j, cb, mean, m2);
    if (j->s.channels == 1)
        join_lanes(j, mean, m2);
    for (int i = 0; i < j->s.lanes; i++) {
        const int64_t k = channel_of(&j->s, cb, i);
        j->mean[k] = (float)mean[i];
        j->var[k] = (float)(m2[i] / total);
        c->mean[i] = (float)mean[i];
        /* from the stored variance, so that run_infer gives the same bits */
        c->scale[i] = (float)((double)j->gamma[k] / sqrt((double)j->var[k] + j->eps));
        c->shift[i] = j->beta[k];
    }
}

static void forward_apply(const job *j, int64_t n, int64_t cb, const td_native_coefs *c)
{
    const td_native_shape *s = &j->s;
    j->simd->norm_apply(&s->plane, c, td_native_plane_at(s, j->x, n, cb),
                        j->z ? td_native_plane_at(s, j->z, n, cb) : NULL,
                        td_native_plane_to(s, j->y, n, cb), j->cap,
                        j->mask ? j->mask + td_native_offset(s, n, cb) / 8 : NULL);
}

static float cap_of(const td_node *n)
{
    return ((const td_norm_attr *)n->attr)->relu6 ? 6 : INFINITY;
}

static const steps forward_steps = { forward_sum, forward_join, forward_apply };

static td_status run_forward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    job j = job_of(n, td_in_type(n, 0), args[n->n_in + n->n_out]);
    j.x = args[0];
    j.gamma = args[1];
    j.beta = args[2];
    j.z = n->n_in > 3 ? args[3] : NULL;
    j.y = args[n->n_in];
    j.mean = args[n->n_in + 1];
    j.var = args[n->n_in + 2];
    j.cap = n->n_out > 3 ? cap_of(n) : 0;
    j.mask = n->n_out > 3 ? args[n->n_in + 3] : NULL;
    run_steps(&j, &forward_steps);
    return TD_OK;
}

static td_status run_infer(const td_prepared *p, void *const *args)
{
    job j = job_of(p->node, td_in_type(p->node, 0), NULL);
    const float *mean = args[3], *var = args[4];
    j.x = args[0];
    j.gamma = args[1];
    j.beta = args[2];
    j.z = p->node->n_in > 5 ? args[5] : NULL;
    j.y = args[p->node->n_in];
    j.cap = p->node->op != &td_op_batch_norm_infer ? cap_of(p->node) : 0;
#pragma omp parallel for collapse(2)
    for (int64_t n = 0; n < j.s.N; n++)
        for (int64_t cb = 0; cb < j.s.CB; cb++) {
            td_native_coefs c;
            for (int i = 0; i < j.s.lanes; i++) {
                const int64_t k = channel_of(&j.s, cb, i);
                c.mean[i] = mean[k];
                c.scale[i] = (float)((double)j.gamma[k] / sqrt((double)var[k] + j.eps));
                c.shift[i] = j.beta[k];
            }
            forward_apply(&j, n, cb, &c);
        }
    return TD_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

static const uint8_t *mask_at(const job *j, int64_t n, int64_t cb)
{
    return j->mask_in && !j->dy2 ? j->mask_in + td_native_offset(&j->s, n, cb) / 8 : NULL;
}

/*
 * With two gradients dz is computed first and is used instead of dy and the mask.  dx is written
 * after a block's dy and dy2 were last read, so dx may overwrite one of them and dz the other.
 */
static void join_gradients(const job *j, int64_t n, int64_t cb)
{
    const td_native_shape *s = &j->s;
    j->simd->add_masked(
        &s->plane, td_native_plane_at(s, j->dy, n, cb), td_native_plane_at(s, j->dy2, n, cb),
        j->mask_in + td_native_offset(s, n, cb) / 8, td_native_plane_to(s, j->dz, n, cb));
}

static void backward_sum(const job *j, int64_t n, int64_t cb, plane_sums *out)
{
    const td_native_shape *s = &j->s;
    td_native_coefs c;
    if (j->dy2)
        join_gradients(j, n, cb);
    for (int i = 0; i < s->lanes; i++)
        c.mean[i] = j->mean_in[channel_of(s, cb, i)];
    j->simd->norm_grad_sums(&s->plane, &c, td_native_plane_at(s, j->dy2 ? j->dz : j->dy, n, cb),
                            mask_at(j, n, cb), td_native_plane_at(s, j->x, n, cb), out->a, out->b);
}

static void add_lanes(const job *j, double *x)
{
    double sum = 0;
    for (int i = 0; i < j->s.lanes; i++)
        sum += x[i];
    for (int i = 0; i < j->s.lanes; i++)
        x[i] = sum;
}

static void backward_join(const job *j, int64_t cb, td_native_coefs *c)
{
    const double total = (double)(j->s.H * j->s.W * j->s.N);
    double sum[L] = { 0 }, dot[L] = { 0 };
    for (int64_t n = 0; n < j->s.N; n++)
        for (int i = 0; i < j->s.lanes; i++) {
            sum[i] += j->sums[cb * j->s.N + n].a[i];
            dot[i] += j->sums[cb * j->s.N + n].b[i];
        }
    if (j->s.channels == 1) {
        add_lanes(j, sum);
        add_lanes(j, dot);
    }
    for (int i = 0; i < j->s.lanes; i++) {
        const int64_t k = channel_of(&j->s, cb, i);
        const double rstd = 1 / sqrt((double)j->var_in[k] + j->eps);
        j->dbeta[k] = (float)sum[i];
        j->dgamma[k] = (float)(dot[i] * rstd);
        c->mean[i] = j->mean_in[k];
        c->scale[i] = (float)((double)j->gamma[k] * rstd);
        c->shift[i] = (float)(sum[i] / total);
        c->slope[i] = (float)(dot[i] * rstd * rstd / total);
    }
}

static void backward_apply(const job *j, int64_t n, int64_t cb, const td_native_coefs *c)
{
    const td_native_shape *s = &j->s;
    j->simd->norm_grad_apply(&s->plane, c, td_native_plane_at(s, j->dy2 ? j->dz : j->dy, n, cb),
                             mask_at(j, n, cb), td_native_plane_at(s, j->x, n, cb),
                             td_native_plane_to(s, j->dx, n, cb),
                             j->dz && !j->dy2 ? td_native_plane_to(s, j->dz, n, cb) : NULL);
}

static const steps backward_steps = { backward_sum, backward_join, backward_apply };

/* (dy, x, gamma, mean, var), or with a mask after dy and, optionally, another dy at the end */
static td_status run_backward(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const int m = n->n_in > 5; /* 1 if there is a mask */
    job j = job_of(n, td_in_type(n, 0), args[n->n_in + n->n_out]);
    j.dy = args[0];
    j.mask_in = m ? args[1] : NULL;
    j.dy2 = n->n_in > 6 ? args[6] : NULL;
    j.x = args[1 + m];
    j.gamma = args[2 + m];
    j.mean_in = args[3 + m];
    j.var_in = args[4 + m];
    j.dx = args[n->n_in];
    j.dgamma = args[n->n_in + 1];
    j.dbeta = args[n->n_in + 2];
    j.dz = n->n_out > 3 ? args[n->n_in + 3] : NULL;
    run_steps(&j, &backward_steps);
    return TD_OK;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static td_status accepts(const td_node *n)
{
    td_native_shape s;
    TD_TRY(shape_of(td_in_type(n, 0), &s));
    return td_native_check_alike(n, td_in_type(n, 0));
}

static td_status prepare(const td_node *n, td_prepared *out)
{
    td_native_shape s;
    TD_TRY(shape_of(td_in_type(n, 0), &s));
    out->scratch_bytes = (size_t)(s.N * s.CB) * sizeof(plane_sums);
    return TD_OK;
}

TD_NATIVE_KERNEL(batch_norm, accepts, prepare, run_forward);
TD_NATIVE_KERNEL(batch_norm_relu, accepts, prepare, run_forward);
TD_NATIVE_KERNEL(batch_norm_add_relu, accepts, prepare, run_forward);
TD_NATIVE_KERNEL(batch_norm_grad, accepts, prepare, run_backward);
TD_NATIVE_KERNEL(batch_norm_relu_grad, accepts, prepare, run_backward);
TD_NATIVE_KERNEL(batch_norm_add_relu_grad, accepts, prepare, run_backward);
TD_NATIVE_KERNEL(batch_norm_infer, accepts, prepare, run_infer);
TD_NATIVE_KERNEL(batch_norm_relu_infer, accepts, prepare, run_infer);
TD_NATIVE_KERNEL(batch_norm_add_relu_infer, accepts, prepare, run_infer);
