/*
 * native_norm_args.c -- operands and results of batch normalisations, in the order of ops/norm.c
 */
#include "backend/native/norm/native_norm_args.h"

#include <math.h>

/* --- operands --------------------------------------------------------------------------------- */

static td_native_norm_args args_of(const td_node *n)
{
    return (td_native_norm_args){ .eps = ((const td_norm_attr *)n->attr)->eps };
}

static float cap_of(const td_node *n)
{
    return ((const td_norm_attr *)n->attr)->relu6 ? 6 : INFINITY;
}

/* (x, gamma, beta [, z]) */
td_native_norm_args td_native_norm_forward(const td_node *n, void *const *args)
{
    td_native_norm_args a = args_of(n);
    a.x = args[0];
    a.gamma = args[1];
    a.beta = args[2];
    a.z = n->n_in > 3 ? args[3] : NULL;
    a.y = args[n->n_in];
    a.mean = args[n->n_in + 1];
    a.var = args[n->n_in + 2];
    a.cap = n->n_out > 3 ? cap_of(n) : 0;
    a.mask = n->n_out > 3 ? args[n->n_in + 3] : NULL;
    return a;
}

/* (x, gamma, beta, mean, var [, z]) */
td_native_norm_args td_native_norm_infer(const td_node *n, void *const *args)
{
    td_native_norm_args a = args_of(n);
    a.x = args[0];
    a.gamma = args[1];
    a.beta = args[2];
    a.mean_in = args[3];
    a.var_in = args[4];
    a.z = n->n_in > 5 ? args[5] : NULL;
    a.y = args[n->n_in];
    a.cap = n->op != &td_op_batch_norm_infer ? cap_of(n) : 0;
    return a;
}

/* (dy, x, gamma, mean, var), or with a mask after dy and, optionally, another dy at the end */
td_native_norm_args td_native_norm_backward(const td_node *n, void *const *args)
{
    const int m = n->n_in > 5; /* 1 if there is a mask */
    td_native_norm_args a = args_of(n);
    a.dy = args[0];
    a.mask_in = m ? args[1] : NULL;
    a.dy2 = n->n_in > 6 ? args[6] : NULL;
    a.x = args[1 + m];
    a.gamma = args[2 + m];
    a.mean_in = args[3 + m];
    a.var_in = args[4 + m];
    a.dx = args[n->n_in];
    a.dgamma = args[n->n_in + 1];
    a.dbeta = args[n->n_in + 2];
    a.dz = n->n_out > 3 ? args[n->n_in + 3] : NULL;
    return a;
}

/* --- channels --------------------------------------------------------------------------------- */

td_native_norm_channel td_native_norm_given(const td_native_norm_args *a, int64_t k, float mean,
                                            float var)
{
    const double scale = (double)a->gamma[k] / sqrt((double)var + a->eps);
    return (td_native_norm_channel){ mean, (float)scale, a->beta[k], 0 };
}

td_native_norm_channel td_native_norm_end_forward(const td_native_norm_args *a, int64_t k,
                                                  double mean, double m2, double total)
{
    a->mean[k] = (float)mean;
    a->var[k] = (float)(m2 / total);
    return td_native_norm_given(a, k, a->mean[k], a->var[k]);
}

td_native_norm_channel td_native_norm_end_backward(const td_native_norm_args *a, int64_t k,
                                                   double sum, double dot, double total)
{
    const double rstd = 1 / sqrt((double)a->var_in[k] + a->eps);
    a->dbeta[k] = (float)sum;
    a->dgamma[k] = (float)(dot * rstd);
    return (td_native_norm_channel){ a->mean_in[k], (float)((double)a->gamma[k] * rstd),
                                     (float)(sum / total), (float)(dot * rstd * rstd / total) };
}
