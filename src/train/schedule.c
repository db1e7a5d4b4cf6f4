/*
 * schedule.c -- learning-rate curves
 */
#include "train/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double step(const td_lr_opts *o, int epoch)
{
    static const int boundaries[] = { 30, 60, 80 };
    double lr = o->lr;
    for (int i = 0; i < 3; i++)
        if (epoch >= boundaries[i])
            lr *= 0.1;
    return lr;
}

double td_lr_at(const td_lr_opts *o, int epoch)
{
    if (epoch < o->warmup)
        return o->lr * (epoch + 1) / o->warmup;
    int length = o->epochs - o->warmup;
    double t = length > 0 ? (double)(epoch - o->warmup) / length : 0;
    switch (o->schedule) {
    case TD_LR_STEP:
        return step(o, epoch);
    case TD_LR_LINEAR:
        return o->lr * (1 - t);
    case TD_LR_COSINE:
        return o->end_lr + 0.5 * (1 + cos(pi * t)) * (o->lr - o->end_lr);
    }
    return o->lr;
}
