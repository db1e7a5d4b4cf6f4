/*
 * ref_update.c -- optimiser steps, element by element
 */
#include <math.h>

#include "backend/ref/ref.h"

/* half copies are rounded from w as it is stored */
static double round_to_storage(const td_type *t, double x)
{
    return t->dtype == TD_DT_F32 ? (double)(float)x : x;
}

/* operand 3 is the rate, or the rate and the momentum */
static double momentum_of(const td_node *n, double *const *a, double attr)
{
    return td_update_has_momentum(n) ? a[3][1] : attr;
}

static void sgd(const td_node *n, int64_t count, double *const *a)
{
    const td_sgd_attr *at = n->attr;
    const double lr = a[3][0], inverse = n->n_in > 4 ? a[4][0] : 1;
    const double momentum = momentum_of(n, a, at->momentum);
    double *w = a[0], *v = a[1];
    if (n->n_in > 5 && a[5][0] == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double g = inverse * a[2][i] + at->decay * w[i];
        v[i] = momentum * v[i] + g;
        w[i] -= lr * (at->nesterov ? g + momentum * v[i] : v[i]);
        for (int k = 6; k < n->n_in; k++)
            a[k][i] = round_to_storage(td_in_type(n, 0), w[i]);
    }
}

const td_ref_kernel td_ref_sgd = TD_REF_EACH(sgd, sgd);

static void rmsprop(const td_node *n, int64_t count, double *const *t)
{
    const td_rmsprop_attr *at = n->attr;
    const double lr = t[3][0], inverse = n->n_in > 5 ? t[5][0] : 1;
    const double momentum = momentum_of(n, t, at->momentum);
    double *w = t[0], *u = t[1], *a = t[4];
    if (n->n_in > 6 && t[6][0] == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double g = inverse * t[2][i] + at->decay * w[i];
        a[i] = at->alpha * a[i] + (1 - at->alpha) * g * g;
        u[i] = momentum * u[i] + g / (sqrt(a[i]) + at->eps);
        w[i] -= lr * u[i];
        for (int k = 7; k < n->n_in; k++)
            t[k][i] = round_to_storage(td_in_type(n, 0), w[i]);
    }
}

static void adam(const td_node *n, int64_t count, double *const *t)
{
    const td_adam_attr *at = n->attr;
    const double lr = t[3][0], rest1 = t[5][0], rest2 = t[6][0];
    const double inverse = n->n_in > 7 ? t[7][0] : 1, coupled = at->decoupled ? 0 : at->decay;
    const double beta1 = momentum_of(n, t, at->beta1);
    double *w = t[0], *m = t[1], *v = t[4];
    if (n->n_in > 8 && t[8][0] == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double g = inverse * t[2][i] + coupled * w[i];
        w[i] -= at->decoupled ? lr * at->decay * w[i] : 0;
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = at->beta2 * v[i] + (1 - at->beta2) * g * g;
        w[i] -= lr / rest1 * m[i] / (sqrt(v[i]) / sqrt(rest2) + at->eps);
        for (int k = 9; k < n->n_in; k++)
            t[k][i] = round_to_storage(td_in_type(n, 0), w[i]);
    }
}

const td_ref_kernel td_ref_adam = TD_REF_EACH(adam, adam);

/* the direction of weight i, decay included */
static double lamb_direction(const td_adam_attr *at, double *const *t, int64_t i)
{
    return t[1][i] / t[5][0] / (sqrt(t[4][i]) / sqrt(t[6][0]) + at->eps) + at->decay * t[0][i];
}

static void lamb(const td_node *n, void *const *args)
{
    const td_adam_attr *at = n->attr;
    double *const *t = (double *const *)args;
    const int64_t count = td_type_count(td_in_type(n, 0));
    const double inverse = n->n_in > 7 ? t[7][0] : 1, beta1 = momentum_of(n, t, at->beta1);
    double *w = t[0], *m = t[1], *v = t[4], weights = 0, directions = 0;
    if (n->n_in > 8 && t[8][0] == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        const double g = inverse * t[2][i];
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = at->beta2 * v[i] + (1 - at->beta2) * g * g;
        const double u = lamb_direction(at, t, i);
        weights += w[i] * w[i];
        directions += u * u;
    }
    const bool is_scaled = at->decay > 0 && weights > 0 && directions > 0;
    const double ratio = is_scaled ? sqrt(weights / directions) : 1;
    for (int64_t i = 0; i < count; i++) {
        w[i] -= t[3][0] * ratio * lamb_direction(at, t, i);
        for (int k = 9; k < n->n_in; k++)
            t[k][i] = round_to_storage(td_in_type(n, 0), w[i]);
    }
}

const td_ref_kernel td_ref_lamb = TD_REF(lamb, lamb);

/* --- gradients accumulated over several batches ----------------------------------------------- */

static void accumulate(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[2][i] = a[0][i] + a[1][i];
}

static void carry(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = a[3][0] != 0 ? 0 : a[2][i];
}

static void commit(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count && a[2][0] != 0; i++)
        if (a[3][0] != 0)
            a[0][i] = a[1][i];
        else
            a[1][i] = a[0][i];
}

/* --- averages --------------------------------------------------------------------------------- */

static void ema(const td_node *n, int64_t count, double *const *a)
{
    if ((n->n_in > 4 && a[4][0] == 0) || (a[2][0] == 1 && a[3][0] == 0))
        return;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = a[2][0] * a[1][i] + a[3][0] * a[0][i];
}

const td_ref_kernel td_ref_rmsprop = TD_REF_EACH(rmsprop, rmsprop);
const td_ref_kernel td_ref_accumulate = TD_REF_EACH(accumulate, accumulate);

/* one rank: start + x */
static void all_reduce(const td_node *n, int64_t count, double *const *a)
{
    for (int64_t i = 0; i < count; i++)
        a[n->n_in][i] = (n->n_in > 2 ? a[2][i] : 0) + a[0][i];
}

const td_ref_kernel td_ref_all_reduce = TD_REF_EACH(all_reduce, all_reduce);
const td_ref_kernel td_ref_carry = TD_REF_EACH(carry, carry);
const td_ref_kernel td_ref_commit = TD_REF_EACH(commit, commit);
const td_ref_kernel td_ref_ema = TD_REF_EACH(ema, ema);

/* --- limits of gradients ---------------------------------------------------------------------- */

static void grad_norm(const td_node *n, void *const *args)
{
    double *const *t = (double *const *)args;
    double sum = n->n_in > 2 ? t[2][0] * t[2][0] : 0;
    for (int64_t i = 0; i < td_type_count(td_in_type(n, 0)); i++)
        sum += t[1][0] * t[0][i] * (t[1][0] * t[0][i]);
    t[n->n_in][0] = sqrt(sum);
}

static void limit_grad(const td_node *n, int64_t count, double *const *t)
{
    const double limit = ((const td_limit_grad_attr *)n->attr)->limit;
    for (int64_t i = 0; i < count; i++) {
        const double g = t[1][0] * t[0][i];
        t[2][i] = g > limit ? limit : g < -limit ? -limit : g;
    }
}

const td_ref_kernel td_ref_grad_norm = TD_REF(grad_norm, grad_norm);
const td_ref_kernel td_ref_limit_grad = TD_REF_EACH(limit_grad, limit_grad);
