/*
 * ref_detection.c -- the losses of detectors, as ops/detection.c defines them
 */
#include <math.h>
#include <stdlib.h>

#include "backend/ref/ref.h"

/* predictions [N, A, width] and their labels */
typedef struct {
    int64_t N, A, width;
    const int64_t *labels;
} anchors;

static anchors anchors_of(const td_node *n, int predictions, const void *labels)
{
    const td_type *t = td_in_type(n, predictions);
    return (anchors){ t->dim[0], t->dim[1], t->dim[2], labels };
}

static int64_t count_positives(const int64_t *labels, int64_t n)
{
    int64_t positives = 0;
    for (int64_t i = 0; i < n; i++)
        positives += labels[i] > 0;
    return positives;
}

/* the label's column, or 0 */
static int64_t column(int64_t label, int64_t columns)
{
    return label > 0 && label < columns ? label : 0;
}

static double at_least_one(int64_t n)
{
    return n > 1 ? (double)n : 1;
}

/* --- sigmoid_focal_loss ----------------------------------------------------------------------- */

/* -ln sigmoid(x) */
static double log_loss(double x)
{
    return (x < 0 ? -x : 0) + log1p(exp(-fabs(x)));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* the loss of a positive column with logit x, or of a negative column with logit -x */
static double focal(double x, double gamma)
{
    return pow(sigmoid(-x), gamma) * log_loss(x);
}

static double focal_slope(double x, double gamma)
{
    const double miss = sigmoid(-x);
    return -pow(miss, gamma) * (miss + gamma * sigmoid(x) * log_loss(x));
}

/* what the sum over image i is divided by */
static double focal_divisor(const td_focal_attr *at, const anchors *s, int64_t i)
{
    if (!at->per_image)
        return at_least_one(count_positives(s->labels, s->N * s->A));
    return (double)s->N * at_least_one(count_positives(s->labels + i * s->A, s->A));
}

static void sigmoid_focal_loss(const td_node *n, void *const *a)
{
    const td_focal_attr *at = n->attr;
    const anchors s = anchors_of(n, 0, a[1]);
    const double *x = a[0];
    double *loss = a[2];
    *loss = 0;
    for (int64_t i = 0; i < s.N; i++) {
        double hits = 0, rest = 0;
        for (int64_t k = i * s.A * s.width; k < (i + 1) * s.A * s.width; k++) {
            const int64_t label = s.labels[k / s.width], c = k % s.width;
            if (at->per_image && label < 0)
                continue;
            if (c == column(label, s.width) && c > 0)
                hits += focal(x[k], at->gamma);
            else
                rest += focal(-x[k], at->gamma);
        }
        *loss += (at->alpha * hits + (1 - at->alpha) * rest) / focal_divisor(at, &s, i);
    }
}

static void sigmoid_focal_loss_grad(const td_node *n, void *const *a)
{
    const td_focal_attr *at = n->attr;
    const anchors s = anchors_of(n, 1, a[2]);
    const double *x = a[1];
    double *dx = a[3];
    for (int64_t i = 0; i < s.N; i++) {
        const double by = *(double *)a[0] / focal_divisor(at, &s, i);
#pragma omp parallel for if (s.A * s.width > 65536)
        for (int64_t k = i * s.A * s.width; k < (i + 1) * s.A * s.width; k++) {
            const int64_t label = s.labels[k / s.width], c = k % s.width;
            if (at->per_image && label < 0)
                dx[k] = 0;
            else if (c == column(label, s.width) && c > 0)
                dx[k] = by * at->alpha * focal_slope(x[k], at->gamma);
            else
                dx[k] = -by * (1 - at->alpha) * focal_slope(-x[k], at->gamma);
        }
    }
}

/* --- huber_box_loss --------------------------------------------------------------------------- */

static double error_of(double predicted, double target)
{
    return isnan(target) ? 0 : predicted - target;
}

/* the factor of image i's sum */
static double share(const td_huber_attr *at, const anchors *s, int64_t i)
{
    if (!at->per_image)
        return 1 / (4 * at_least_one(count_positives(s->labels, s->N * s->A)));
    const int64_t positives = count_positives(s->labels + i * s->A, s->A);
    return positives > 0 ? 1 / ((double)s->N * (double)positives) : 0;
}

static void huber_box_loss(const td_node *n, void *const *a)
{
    const td_huber_attr *at = n->attr;
    const anchors s = anchors_of(n, 0, a[2]);
    const double *predicted = a[0], *target = a[1];
    double *loss = a[3];
    *loss = 0;
    for (int64_t i = 0; i < s.N; i++) {
        double sum = 0;
        for (int64_t k = i * s.A * 4; k < (i + 1) * s.A * 4; k++) {
            const double e = fabs(error_of(predicted[k], target[k]));
            const double q = e > at->delta ? at->delta : e;
            if (s.labels[k / 4] > 0)
                sum += at->delta > 0 ? q * q / 2 + at->delta * (e - q) : e;
        }
        *loss += sum == 0 ? 0 : sum * share(at, &s, i);
    }
}

static void huber_box_loss_grad(const td_node *n, void *const *a)
{
    const td_huber_attr *at = n->attr;
    const anchors s = anchors_of(n, 1, a[3]);
    const double *predicted = a[1], *target = a[2];
    double *dx = a[4];
    for (int64_t i = 0; i < s.N; i++) {
        const double by = *(double *)a[0] * share(at, &s, i);
        for (int64_t k = i * s.A * 4; k < (i + 1) * s.A * 4; k++) {
            const double e = error_of(predicted[k], target[k]);
            const double end = at->delta > 0 ? at->delta : 1; /* delta 0: the sign */
            const double slope = e > at->delta ? end : e < -at->delta ? -end : e;
            dx[k] = s.labels[k / 4] > 0 ? by * slope : 0;
        }
    }
}

/* --- multibox_class_loss ---------------------------------------------------------------------- */

/* log of the sum of exponentials */
static double log_sum(const double *x, int64_t columns)
{
    double max = x[0], sum = 0;
    for (int64_t c = 1; c < columns; c++)
        max = x[c] > max ? x[c] : max;
    for (int64_t c = 0; c < columns; c++)
        sum += exp(x[c] - max);
    return max + log(sum);
}

/* an anchor, to be sorted by loss */
typedef struct {
    double loss;
    double index;
} ranked;

/* by decreasing loss, NaN first; equal losses by increasing index */
static int compare(const void *p, const void *q)
{
    const ranked *a = p, *b = q;
    const double x = isnan(a->loss) ? INFINITY : a->loss, y = isnan(b->loss) ? INFINITY : b->loss;
    if (x != y)
        return x > y ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/*
 * For one image: computes loss[A] and sets is_taken[A] to 1 for the anchors that count.  `order`
 * has room for A.  Returns the number of positives.
 */
static int64_t select_negatives(const double *x, const int64_t *labels, const anchors *s, int ratio,
                                ranked *order, double *loss, double *is_taken)
{
    int64_t positives = 0;
    for (int64_t i = 0; i < s->A; i++) {
        const int64_t c = column(labels[i], s->width);
        loss[i] = log_sum(x + i * s->width, s->width) - x[i * s->width + c];
        order[i] = (ranked){ c > 0 ? 0 : loss[i], (double)i };
        is_taken[i] = c > 0;
        positives += c > 0;
    }
    qsort(order, (size_t)s->A, sizeof *order, compare);
    for (int64_t i = 0; i < s->A && i < ratio * positives; i++)
        is_taken[(int64_t)order[i].index] = 1;
    return positives;
}

/* a share of image i in the loss: v over its positives and the images, or over all positives */
static double multibox_share(const td_multibox_attr *at, const anchors *s, int64_t positives,
                             double v)
{
    int64_t all = 0;
    if (!at->whole_batch)
        return positives > 0 ? v / (double)positives / (double)s->N : 0;
    for (int64_t i = 0; i < s->N * s->A; i++)
        all += column(s->labels[i], s->width) > 0;
    return v / at_least_one(all);
}

/* for order, loss and is_taken */
static int64_t multibox_work(const td_node *n)
{
    return 4 * td_in_type(n, n->n_in - 2)->dim[1];
}

static void multibox_class_loss(const td_node *n, void *const *a)
{
    const td_multibox_attr *at = n->attr;
    const anchors s = anchors_of(n, 0, a[1]);
    const double *x = a[0];
    double *loss = a[2], *each = (double *)a[3] + 2 * s.A, *is_taken = each + s.A;
    *loss = 0;
    for (int64_t i = 0; i < s.N; i++) {
        const int64_t positives = select_negatives(x + i * s.A * s.width, s.labels + i * s.A, &s,
                                                   at->ratio, a[3], each, is_taken);
        double sum = 0;
        for (int64_t k = 0; k < s.A; k++)
            sum += is_taken[k] != 0 ? each[k] : 0;
        *loss += multibox_share(at, &s, positives, sum);
    }
}

static void multibox_class_loss_grad(const td_node *n, void *const *a)
{
    const td_multibox_attr *at = n->attr;
    const anchors s = anchors_of(n, 1, a[2]);
    double *each = (double *)a[4] + 2 * s.A, *is_taken = each + s.A;
    for (int64_t i = 0; i < s.N; i++) {
        const int64_t *labels = s.labels + i * s.A;
        const double *x = (double *)a[1] + i * s.A * s.width;
        double *dx = (double *)a[3] + i * s.A * s.width;
        const int64_t positives = select_negatives(x, labels, &s, at->ratio, a[4], each, is_taken);
        const double by = multibox_share(at, &s, positives, *(double *)a[0]);
        for (int64_t k = 0; k < s.A; k++) {
            const int64_t label = column(labels[k], s.width);
            const double log_of_sum = each[k] + x[k * s.width + label];
            for (int64_t c = 0; c < s.width; c++) {
                const double p = exp(x[k * s.width + c] - log_of_sum);
                dx[k * s.width + c] = is_taken[k] != 0 ? by * (p - (c == label)) : 0;
            }
        }
    }
}

const td_ref_kernel td_ref_sigmoid_focal_loss = TD_REF(sigmoid_focal_loss, sigmoid_focal_loss);
const td_ref_kernel td_ref_sigmoid_focal_loss_grad =
    TD_REF(sigmoid_focal_loss_grad, sigmoid_focal_loss_grad);
const td_ref_kernel td_ref_huber_box_loss = TD_REF(huber_box_loss, huber_box_loss);
const td_ref_kernel td_ref_huber_box_loss_grad = TD_REF(huber_box_loss_grad, huber_box_loss_grad);
const td_ref_kernel td_ref_multibox_class_loss =
    TD_REF_WORK(multibox_class_loss, multibox_class_loss, multibox_work);
const td_ref_kernel td_ref_multibox_class_loss_grad =
    TD_REF_WORK(multibox_class_loss_grad, multibox_class_loss_grad, multibox_work);
