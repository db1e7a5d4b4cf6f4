/*
 * lr_schedule.c -- learning-rate curves
 */
#include "optim/lr_schedule.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* lr, multiplied by `factor` at each drop up to an epoch */
static double dropped(const td_lr_drops *drops, double lr, double factor, int64_t epoch)
{
    for (int i = 0; i < drops->n; i++)
        if (epoch >= drops->epochs[i])
            lr *= factor;
    return lr;
}

static double step(const td_lr_curve *o, int epoch)
{
    static const td_lr_drops usual = { 3, { 30, 60, 80 } };
    return dropped(o->drops ? o->drops : &usual, o->lr, o->decay > 0 ? o->decay : 0.1, epoch);
}

static double exponential(const td_lr_curve *o, int epoch)
{
    const int every = o->decay_epochs > 0 ? o->decay_epochs : 1;
    const int times = (o->epochs - o->warmup) / every;
    double factor = o->decay;
    if (factor <= 0)
        factor = times > 0 ? pow(0.001, 1.0 / times) : 1;
    return o->lr * pow(factor, (epoch - o->warmup) / every);
}

static double warming(const td_lr_curve *o, int epoch)
{
    if (!o->warms_from)
        return o->lr * (epoch + 1) / o->warmup;
    if (o->warmup_form == TD_WARMUP_CONSTANT)
        return o->warmup_start;
    return o->warmup_start + (o->lr - o->warmup_start) * epoch / o->warmup;
}

double td_lr_at(const td_lr_curve *o, int epoch)
{
    if (epoch < o->warmup)
        return warming(o, epoch);
    const int start = o->counts_warmup ? 0 : o->warmup, length = o->epochs - start;
    const double t = length > 0 ? (double)(epoch - start) / length : 0;
    switch (o->schedule) {
    case TD_LR_STEP:
        return step(o, epoch);
    case TD_LR_LINEAR:
        return o->lr * (1 - t);
    case TD_LR_COSINE:
        return o->end_lr + 0.5 * (1 + cos(pi * t)) * (o->lr - o->end_lr);
    case TD_LR_EXPONENTIAL:
        return exponential(o, epoch);
    case TD_LR_POLYNOMIAL:
        return o->end_lr + (o->lr - o->end_lr) * pow(1 - t, o->power);
    case TD_LR_ONE_CYCLE:
        break;
    }
    return o->lr;
}

static double anneal(td_anneal form, double from, double to, double t)
{
    if (form == TD_ANNEAL_LINEAR)
        return from + (to - from) * t;
    return to + 0.5 * (1 + cos(pi * t)) * (from - to);
}

/* the value of step t of a curve from `first` to `middle`, at the peak of the rate, to `end` */
static double in_cycle(const td_lr_cycle *o, int64_t t, double first, double middle, double end)
{
    const double last = (double)(o->steps - 1);
    const double peak = o->start * (double)o->steps - 1, at = (double)t;
    if (at <= peak && peak > 0)
        return anneal(o->form, first, middle, at / peak);
    return anneal(o->form, middle, end, at < last ? (at - peak) / (last - peak) : 1);
}

double td_lr_one_cycle(const td_lr_cycle *o, int64_t t)
{
    const double first = o->lr / o->div;
    return in_cycle(o, t, first, o->lr, first / o->end_div);
}

double td_momentum_one_cycle(const td_lr_cycle *o, double base, double most, int64_t t)
{
    return in_cycle(o, t, most, base, most);
}

double td_lr_at_step(const td_lr_curve *o, int64_t t, double steps_per_epoch, int64_t batch)
{
    static const struct {
        int epoch;
        double factor;
    } boundaries[] = { { 30, 0.1 }, { 60, 0.01 }, { 80, 1e-3 }, { 90, 1e-4 } };
    const double base = o->lr * (double)batch / 256;
    const int64_t warmup = (int64_t)(steps_per_epoch * o->warmup);
    if (t < warmup)
        return base * (double)t / (double)warmup;
    if (o->schedule != TD_LR_STEP) {
        const double total = steps_per_epoch * o->epochs, at = (double)t;
        return base * 0.5 * (1 + cos(pi * (at < total ? at / total : 1)));
    }
    double factor = 1;
    for (int i = 0; i < 4; i++)
        if (t > (int64_t)(steps_per_epoch * boundaries[i].epoch))
            factor = boundaries[i].factor;
    return base * factor;
}

double td_lr_ssd320(const td_lr_steps *o, int64_t t)
{
    if (t < o->warmup)
        return o->begin + (o->lr - o->begin) / (double)o->warmup * (double)t;
    if (t >= o->steps)
        return 0;
    const double length = (double)(o->steps - o->warmup);
    return 0.5 * o->lr * (1 + cos(pi * (double)(t - o->warmup) / length));
}

double td_lr_ssd300(const td_lr_steps *o, int64_t t, int64_t epoch)
{
    if (t < o->warmup)
        return o->lr * (double)t / (double)o->warmup;
    return dropped(&o->drops, o->lr, 0.1, epoch);
}

double td_lr_torchvision(const td_lr_steps *o, const td_lr_curve *curve, int64_t t, int epoch)
{
    if (t < o->warmup)
        return o->begin + (o->lr - o->begin) / (double)o->warmup * (double)t;
    return td_lr_at(curve, epoch);
}

td_status td_lr_drops_parse(const char *text, td_lr_drops *o)
{
    const char *s = text;
    o->n = 0;
    while (*s) {
        char *end;
        const size_t digits = strspn(s, "0123456789");
        const long long epoch = digits && digits < 10 ? strtoll(s, &end, 10) : -1;
        const bool is_rising = o->n == 0 || epoch > o->epochs[o->n - 1];
        if (epoch < 0 || !is_rising || (*end && (*end != ',' || !end[1])))
            return td_error(TD_EUSAGE, "'%s' is not a list of rising epochs like 43,54", text);
        if (o->n == TD_LR_DROPS_MAX)
            return td_error(TD_EUSAGE, "'%s' has more than %d epochs", text, TD_LR_DROPS_MAX);
        o->epochs[o->n++] = epoch;
        s = *end ? end + 1 : end;
    }
    return TD_OK;
}
