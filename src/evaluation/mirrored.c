/*
 * mirrored.c -- mean logits of images and their mirror images
 */
#include "evaluation/mirrored.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"

/* of what is exchanged as a whole */
static size_t value_bytes(const td_mirrored *m)
{
    return m->shape.is_pixels ? (size_t)m->shape.channels : sizeof(float);
}

/* rows of `size` such values in a batch */
static size_t n_rows(const td_mirrored *m)
{
    const size_t planes = m->shape.is_pixels ? 1 : (size_t)m->shape.channels;
    return (size_t)m->shape.batch * (size_t)m->shape.size * planes;
}

td_status td_mirrored_init(td_mirrored *m, const td_mirrored_shape *shape)
{
    *m = (td_mirrored){ .shape = *shape };
    m->images = td_alloc(n_rows(m) * (size_t)shape->size, value_bytes(m));
    m->logits = td_alloc((size_t)shape->batch * (size_t)shape->classes, sizeof *m->logits);
    m->losses = td_alloc((size_t)shape->batch, sizeof *m->losses);
    if (m->images && m->logits && m->losses)
        return TD_OK;
    td_mirrored_release(m);
    return TD_ENOMEM;
}

void td_mirrored_release(td_mirrored *m)
{
    td_free(m->images);
    td_free(m->logits);
    td_free(m->losses);
    *m = (td_mirrored){ 0 };
}

void td_mirrored_keep(td_mirrored *m, const float *logits)
{
    memcpy(m->logits, logits,
           (size_t)m->shape.batch * (size_t)m->shape.classes * sizeof *m->logits);
}

const void *td_mirrored_images(td_mirrored *m, const void *images)
{
    const size_t width = (size_t)m->shape.size, bytes = value_bytes(m), rows = n_rows(m);
#pragma omp parallel for
    for (size_t r = 0; r < rows; r++) {
        const char *from = (const char *)images + r * width * bytes;
        char *to = m->images + (r + 1) * width * bytes;
        for (size_t i = 0; i < width; i++)
            memcpy(to -= bytes, from + i * bytes, bytes);
    }
    return m->images;
}

/* -sum_k q_k log softmax(x)_k, q_k = (1 - smoothing) [k is the label] + smoothing / K */
static double cross_entropy(const float *x, int K, int64_t label, double smoothing)
{
    double max = x[0], exponentials = 0, sum = 0;
    if (label < 0 || label >= K)
        return 0;
    for (int k = 1; k < K; k++)
        max = x[k] > max ? x[k] : max;
    for (int k = 0; k < K; k++) {
        exponentials += exp(x[k] - max);
        sum += x[k];
    }
    return max + log(exponentials) - (1 - smoothing) * x[label] - smoothing * sum / K;
}

/* mean_k(softplus(x_k) - t_k x_k) */
static double binary_cross_entropy(const float *x, const float *targets, int K)
{
    double sum = 0;
    for (int k = 0; k < K; k++)
        sum += fmax(x[k], 0) + log1p(exp(-fabs(x[k]))) - (double)targets[k] * x[k];
    return sum / K;
}

static void average(td_mirrored *m, const float *logits)
{
    const size_t n = (size_t)m->shape.batch * (size_t)m->shape.classes;
    for (size_t i = 0; i < n; i++)
        m->logits[i] = 0.5f * (m->logits[i] + logits[i]);
}

void td_mirrored_finish(td_mirrored *m, const float *logits, const int64_t *labels,
                        double smoothing)
{
    const int K = m->shape.classes;
    average(m, logits);
    for (int n = 0; n < m->shape.batch; n++)
        m->losses[n] =
            (float)cross_entropy(m->logits + (size_t)n * (size_t)K, K, labels[n], smoothing);
}

void td_mirrored_finish_targets(td_mirrored *m, const float *logits, const float *targets)
{
    const size_t K = (size_t)m->shape.classes;
    average(m, logits);
    for (size_t n = 0; n < (size_t)m->shape.batch; n++)
        m->losses[n] =
            (float)binary_cross_entropy(m->logits + n * K, targets + n * K, m->shape.classes);
}
