/*
 * weight_average.c -- the factor of the averages of weights for each batch
 */
#include "optim/weight_average.h"

#include <math.h>

double td_weight_average_decay(const td_weight_average *o)
{
    const double alpha = (1 - o->decay) * (o->step_images * o->every / o->epochs);
    return 1 - fmin(1, alpha);
}

static double torchvision(const td_weight_average *o, const td_weight_average_place *at)
{
    if (!at->is_last || at->step % o->every != 0)
        return 1;
    if (at->epoch < o->warmup || (at->epoch == o->warmup && at->step == 0))
        return 0;
    return td_weight_average_decay(o);
}

double td_weight_average_factor(const td_weight_average *o, const td_weight_average_place *at)
{
    if (o->rule == TD_EMA_TORCHVISION)
        return torchvision(o, at);
    const double t = (double)at->batch;
    return fmin(o->decay, (1 + t) / (10 + t));
}
