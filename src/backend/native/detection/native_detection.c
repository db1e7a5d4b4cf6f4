/*
 * native_detection.c -- the losses of detectors and their gradients
 *
 *   sigmoid_focal_loss   rows of logits in blocks divided among the threads; in a block the loops
 *                        run over the negatives between the few positives.  Not per image, the
 *                        batch counts as one image
 *   huber_box_loss       reads only positives
 *   multibox_class_loss  all rows' losses; per image the selection of the k-th largest; then only
 *                        the selected ones
 *
 * Sums of blocks and images are added in order, for any number of threads.
 */
#include "backend/native/detection/native_detection.h"

#include <math.h>
#include <string.h>

#include "backend/native/common/native_division.h"
#include "backend/native/common/native_kernel.h"
#include "tandem/program.h"

#define BLOCK        128    /* rows of a block */
#define MASKED_LOGIT -200.F /* a logit whose loss and slope are 0 */

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

static td_status accepts_f32(const td_node *n)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    if (t->dtype != TD_DT_F32)
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(t->dtype));
    return TD_OK;
}

static int64_t count_positives(const int64_t *labels, int64_t n)
{
    int64_t positives = 0;
    for (int64_t i = 0; i < n; i++)
        positives += labels[i] > 0;
    return positives;
}

static int64_t count_all_positives(const anchors *s)
{
    int64_t positives = 0;
#pragma omp parallel for reduction(+ : positives) if (s->N * s->A > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < s->N * s->A; i++)
        positives += s->labels[i] > 0;
    return positives;
}

static double at_least_one(int64_t n)
{
    return n > 1 ? (double)n : 1;
}

/* the label's column, or 0 */
static int64_t column(int64_t label, int64_t columns)
{
    return label > 0 && label < columns ? label : 0;
}

/* --- sigmoid_focal_loss(scores, labels) ------------------------------------------------------- */

/* the loops for any number of negative logits */
static double focal_span(const td_native_detection_simd *f, int64_t n, const float *x)
{
    const int64_t whole = n / TD_NATIVE_STEP * TD_NATIVE_STEP;
    float rest[TD_NATIVE_STEP];
    for (int64_t i = 0; i < TD_NATIVE_STEP; i++)
        rest[i] = whole + i < n ? x[whole + i] : MASKED_LOGIT;
    return f->focal(whole, x) + f->focal(TD_NATIVE_STEP, rest);
}

static void focal_span_grad(const td_native_detection_simd *f, int64_t n, const float *x, float by,
                            float *dx)
{
    const int64_t whole = n / TD_NATIVE_STEP * TD_NATIVE_STEP;
    float rest[TD_NATIVE_STEP];
    for (int64_t i = 0; i < TD_NATIVE_STEP; i++)
        rest[i] = whole + i < n ? x[whole + i] : MASKED_LOGIT;
    f->focal_grad(whole, x, by, dx);
    f->focal_grad(TD_NATIVE_STEP, rest, by, rest);
    if (n > whole)
        memcpy(dx + whole, rest, (size_t)(n - whole) * sizeof *dx);
}

/* Is the row left out? */
static bool is_ignored(const td_focal_attr *a, const anchors *s, int64_t row)
{
    return a->per_image && s->labels[row] < 0;
}

/* The loss of a positive column is that of a negative column with logit -x. */
static double focal_block(const td_focal_attr *a, const anchors *s, int64_t from, int64_t end,
                          const float *x)
{
    const td_native_detection_simd *f = td_native_detection_simd_at(0);
    int64_t at = from * s->width;
    double hits = 0, rest = 0;
    for (int64_t i = from; i < end; i++) {
        const int64_t c = column(s->labels[i], s->width), k = i * s->width + c;
        if (is_ignored(a, s, i)) {
            rest += focal_span(f, k - at, x + at);
            at = k + s->width;
        }
        if (c == 0)
            continue;
        const float turned = -x[k];
        rest += focal_span(f, k - at, x + at);
        hits += focal_span(f, 1, &turned);
        at = k + 1;
    }
    rest += focal_span(f, end * s->width - at, x + at);
    return a->alpha * hits + (1 - a->alpha) * rest;
}

static void focal_block_grad(const td_focal_attr *a, const anchors *s, double by, int64_t from,
                             int64_t end, const float *x, float *dx)
{
    const td_native_detection_simd *f = td_native_detection_simd_at(0);
    const float by_hit = (float)(-by * a->alpha), by_rest = (float)(by * (1 - a->alpha));
    int64_t at = from * s->width;
    for (int64_t i = from; i < end; i++) {
        const int64_t c = column(s->labels[i], s->width), k = i * s->width + c;
        if (is_ignored(a, s, i)) {
            focal_span_grad(f, k - at, x + at, by_rest, dx + at);
            memset(dx + k, 0, (size_t)s->width * sizeof *dx);
            at = k + s->width;
        }
        if (c == 0)
            continue;
        const float turned = -x[k];
        focal_span_grad(f, k - at, x + at, by_rest, dx + at);
        focal_span_grad(f, 1, &turned, by_hit, dx + k);
        at = k + 1;
    }
    focal_span_grad(f, end * s->width - at, x + at, by_rest, dx + at);
}

static int64_t n_blocks(int64_t rows)
{
    return (rows + BLOCK - 1) / BLOCK;
}

static td_status accepts_focal(const td_node *n)
{
    const td_focal_attr *at = n->attr;
    if (at->gamma != 2)
        return td_error(TD_ENOKERNEL, "gamma is %g", at->gamma);
    return accepts_f32(n);
}

static td_status prepare_focal(const td_node *n, td_prepared *out)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    out->scratch_bytes = (size_t)(t->dim[0] * (n_blocks(t->dim[1]) + 1)) * sizeof(double);
    return TD_OK;
}

/* the images that are summed by themselves: those of the batch, or the batch as one */
static anchors images_of(const td_focal_attr *at, anchors s)
{
    if (!at->per_image) {
        s.A *= s.N;
        s.N = 1;
    }
    return s;
}

/* the factors of the images' sums */
static void focal_shares(const anchors *s, double *share)
{
#pragma omp parallel for if (s->N * s->A > TD_NATIVE_PIECE && s->N > 1)
    for (int64_t i = 0; i < s->N; i++) {
        const anchors one = { 1, s->A, s->width, s->labels + i * s->A };
        const int64_t n = s->N > 1 ? count_positives(one.labels, one.A) : count_all_positives(&one);
        share[i] = 1 / ((double)s->N * at_least_one(n));
    }
}

static td_work_share share_rows(const td_node *n, int threads)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    const int64_t rows = t->dim[0] * t->dim[1], blocks = n_blocks(rows);
    td_work_share one = td_work_share_of(blocks, (double)(BLOCK * t->dim[2]), threads);
    one.mean = (double)(rows * t->dim[2]) / threads;
    return one;
}

static td_status run_focal(const td_prepared *p, void *const *args)
{
    const td_focal_attr *at = p->node->attr;
    const anchors s = images_of(at, anchors_of(p->node, 0, args[1]));
    const int64_t blocks = n_blocks(s.A), n = s.N * blocks;
    const float *x = args[0];
    double *share = args[3], *part = share + s.N, loss = 0;
    focal_shares(&s, share);
#pragma omp parallel for if (n > 1)
    for (int64_t i = 0; i < n; i++) {
        const int64_t end = (i / blocks + 1) * s.A, from = i / blocks * s.A + i % blocks * BLOCK;
        part[i] = focal_block(at, &s, from, smaller(from + BLOCK, end), x);
    }
    for (int64_t k = 0; k < s.N; k++) {
        double sum = 0;
        for (int64_t i = k * blocks; i < (k + 1) * blocks; i++)
            sum += part[i];
        loss += sum * share[k];
    }
    *(float *)args[2] = (float)loss;
    return TD_OK;
}

static td_status run_focal_grad(const td_prepared *p, void *const *args)
{
    const td_focal_attr *at = p->node->attr;
    const anchors s = images_of(at, anchors_of(p->node, 1, args[2]));
    const int64_t blocks = n_blocks(s.A), n = s.N * blocks;
    const double dloss = (double)*(const float *)args[0];
    const float *x = args[1];
    float *dx = args[3];
    double *share = args[4];
    focal_shares(&s, share);
#pragma omp parallel for if (n > 1)
    for (int64_t i = 0; i < n; i++) {
        const int64_t end = (i / blocks + 1) * s.A, from = i / blocks * s.A + i % blocks * BLOCK;
        focal_block_grad(at, &s, dloss * share[i / blocks], from, smaller(from + BLOCK, end), x,
                         dx);
    }
    return TD_OK;
}

/* --- huber_box_loss(deltas, target, labels) --------------------------------------------------- */

static float error_of(float predicted, float target)
{
    return isnan(target) ? 0 : predicted - target;
}

/*
 * Few anchors are positive, so reading labels is most of the work.  An image's blocks of anchors
 * are divided among the threads: they count positives (huber_box_loss) and compute the gradient.
 * The sum of an image is added by one thread, in the order of the anchors: it reads only the blocks
 * that have positives.
 */
typedef struct {
    double *part;    /* [N] the sum of each image; the factor of its gradient */
    int32_t *counts; /* [N, blocks] positives */
    int64_t blocks;  /* of an image */
} huber;

static td_status prepare_huber(const td_node *n, td_prepared *out)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    out->scratch_bytes =
        (size_t)t->dim[0] * (sizeof(double) + (size_t)n_blocks(t->dim[1]) * sizeof(int32_t));
    return TD_OK;
}

static huber huber_at(const anchors *s, void *scratch)
{
    huber h = { .part = scratch, .blocks = n_blocks(s->A) };
    h.counts = (int32_t *)(void *)(h.part + s->N);
#pragma omp parallel for if (s->N * s->A > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < s->N * h.blocks; k++) {
        const int64_t from = k % h.blocks * BLOCK, image = k / h.blocks;
        const int64_t n = smaller(BLOCK, s->A - from);
        h.counts[k] = (int32_t)count_positives(s->labels + image * s->A + from, n);
    }
    return h;
}

static int64_t positives_of(const huber *h, int64_t from, int64_t n)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += h->counts[from + k];
    return sum;
}

/* the factor of image i's sum; `all`: positives of the batch */
static double factor_of(const td_huber_attr *at, const anchors *s, const huber *h, int64_t all,
                        int64_t i)
{
    if (!at->per_image)
        return 1 / (4 * at_least_one(all));
    const int64_t positives = positives_of(h, i * h->blocks, h->blocks);
    return positives > 0 ? 1 / ((double)s->N * (double)positives) : 0;
}

static double huber_image(const anchors *s, const huber *h, double delta, int64_t i,
                          const float *predicted, const float *target)
{
    double sum = 0;
    for (int64_t b = 0; b < h->blocks; b++) {
        const int64_t from = i * s->A + b * BLOCK, end = from + smaller(BLOCK, s->A - b * BLOCK);
        for (int64_t k = from; h->counts[i * h->blocks + b] && k < end; k++)
            for (int64_t c = 4 * k; s->labels[k] > 0 && c < 4 * k + 4; c++) {
                const double e = fabs((double)error_of(predicted[c], target[c])),
                             q = e > delta ? delta : e;
                sum += delta > 0 ? q * q / 2 + delta * (e - q) : e;
            }
    }
    return sum;
}

static void huber_block_grad(const anchors *s, float delta, double by, int64_t from, int64_t n,
                             const float *predicted, const float *target, float *dx)
{
    const float most = delta > 0 ? delta : 1; /* delta 0: the sign */
    for (int64_t k = from; k < from + n; k++)
        for (int64_t c = 4 * k; c < 4 * k + 4; c++) {
            const float e = error_of(predicted[c], target[c]);
            const float slope = e > delta ? most : e < -delta ? -most : e;
            dx[c] = s->labels[k] > 0 ? (float)(by * (double)slope) : 0;
        }
}

static td_status run_huber(const td_prepared *p, void *const *args)
{
    const td_huber_attr *at = p->node->attr;
    const anchors s = anchors_of(p->node, 0, args[2]);
    const huber h = huber_at(&s, args[4]);
    const int64_t all = positives_of(&h, 0, s.N * h.blocks);
    const float *predicted = args[0], *target = args[1];
    double sum = 0;
#pragma omp parallel for if (s.N * s.A > TD_NATIVE_PIECE)
    for (int64_t i = 0; i < s.N; i++)
        h.part[i] =
            huber_image(&s, &h, at->delta, i, predicted, target) * factor_of(at, &s, &h, all, i);
    for (int64_t i = 0; i < s.N; i++)
        sum += h.part[i];
    *(float *)args[3] = (float)sum;
    return TD_OK;
}

static td_status run_huber_grad(const td_prepared *p, void *const *args)
{
    const td_huber_attr *at = p->node->attr;
    const anchors s = anchors_of(p->node, 1, args[3]);
    const huber h = huber_at(&s, args[5]);
    const int64_t all = positives_of(&h, 0, s.N * h.blocks);
    const double dloss = (double)*(const float *)args[0];
    for (int64_t i = 0; i < s.N; i++)
        h.part[i] = dloss * factor_of(at, &s, &h, all, i);
#pragma omp parallel for if (s.N * s.A > TD_NATIVE_PIECE)
    for (int64_t k = 0; k < s.N * h.blocks; k++) {
        const int64_t from = k % h.blocks * BLOCK, i = k / h.blocks;
        huber_block_grad(&s, (float)at->delta, h.part[i], i * s.A + from,
                         smaller(BLOCK, s.A - from), args[1], args[2], args[4]);
    }
    return TD_OK;
}

/* the blocks of each image; of the loss, the labels, which are most of what is read */
static td_work_share share_huber(const td_node *n, int threads)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    td_work_share one = td_work_share_of(t->dim[0] * n_blocks(t->dim[1]), BLOCK, threads);
    one.mean = (double)(t->dim[0] * t->dim[1]) / threads;
    return one;
}

/* --- multibox_class_loss(scores, labels) ------------------------------------------------------ */

/* scratch, for every row: largest logit, log of the sum of exponentials, sort key, whether its loss
   counts */
typedef struct {
    float *largest, *log_sum;
    uint64_t *key;
    uint8_t *is_taken;
    double *of_image;   /* [N] each image's loss; the factor of its gradient */
    int64_t *positives; /* [N] */
} multibox;

static size_t multibox_rows(const td_node *n)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    return (size_t)(t->dim[0] * t->dim[1]);
}

static td_status prepare_multibox(const td_node *n, td_prepared *out)
{
    const td_type *t = td_in_type(n, n->n_in - 2);
    out->scratch_bytes =
        multibox_rows(n) * (sizeof(uint64_t) + 2 * sizeof(float) + sizeof(uint8_t)) +
        (size_t)t->dim[0] * (sizeof(double) + sizeof(int64_t));
    return TD_OK;
}

static multibox multibox_at(const td_node *n, void *scratch)
{
    const size_t rows = multibox_rows(n);
    const int64_t images = td_in_type(n, n->n_in - 2)->dim[0];
    multibox m = { .of_image = scratch };
    m.positives = (int64_t *)(void *)(m.of_image + images);
    m.key = (uint64_t *)(m.positives + images);
    m.largest = (float *)(void *)(m.key + rows);
    m.log_sum = m.largest + rows;
    m.is_taken = (uint8_t *)(m.log_sum + rows);
    return m;
}

/* cross-entropy of row k for column c: never negative, or NaN */
static float loss_at(const multibox *m, const anchors *s, const float *x, int64_t k, int64_t c)
{
    return m->log_sum[k] + (m->largest[k] - x[k * s->width + c]);
}

/* larger losses have larger keys, and NaN the largest; of equal losses, the lower anchor */
static uint64_t key_of(float loss, int64_t anchor)
{
    uint32_t bits;
    if (isnan(loss))
        loss = INFINITY;
    memcpy(&bits, &loss, sizeof bits);
    return (uint64_t)bits << 32 | ~(uint32_t)anchor;
}

/* Hoare's selection: the k-th largest of n different keys, k from 0; changes their order */
static uint64_t select_key(uint64_t *key, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        const uint64_t pivot = key[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (key[i] > pivot)
                i++;
            while (key[j] < pivot)
                j--;
            if (i <= j) {
                const uint64_t t = key[i];
                key[i++] = key[j];
                key[j--] = t;
            }
        }
        if (k <= j)
            hi = j;
        else if (k >= i)
            lo = i;
        else
            return pivot;
    }
    return key[k];
}

/* for one image: sets is_taken and the number of positives */
static void select_negatives(const multibox *m, const anchors *s, int64_t image, int ratio,
                             const float *x)
{
    const int64_t from = image * s->A;
    uint64_t *key = m->key + from, bound = 0;
    int64_t positives = 0;
    for (int64_t i = 0; i < s->A; i++) {
        const int64_t c = column(s->labels[from + i], s->width);
        key[i] = key_of(c > 0 ? 0 : loss_at(m, s, x, from + i, 0), i);
        m->is_taken[from + i] = c > 0;
        positives += c > 0;
    }
    m->positives[image] = positives;
    const int64_t wanted = smaller(ratio * positives, s->A);
    if (wanted == 0)
        return;
    bound = select_key(key, s->A, wanted - 1);
    for (int64_t i = 0; i < s->A; i++)
        if (key[i] >= bound)
            m->is_taken[from + (int64_t)(uint32_t) ~(uint32_t)key[i]] = 1;
}

static void all_log_sums(const multibox *m, const anchors *s, const float *x)
{
    const int64_t rows = s->N * s->A;
    const td_native_detection_simd *f = td_native_detection_simd_at(0);
#pragma omp parallel for if (rows > BLOCK)
    for (int64_t i = 0; i < rows; i += BLOCK)
        f->log_sums(smaller(BLOCK, rows - i), s->width, x + i * s->width, m->largest + i,
                    m->log_sum + i);
}

static double multibox_image(const multibox *m, const anchors *s, int ratio, int64_t i,
                             const float *x)
{
    double sum = 0;
    select_negatives(m, s, i, ratio, x);
    for (int64_t k = i * s->A; k < (i + 1) * s->A; k++)
        if (m->is_taken[k])
            sum += (double)loss_at(m, s, x, k, column(s->labels[k], s->width));
    return sum;
}

/* the share of image i in the loss: v over its positives and the images, or over all positives */
static double multibox_share(const td_multibox_attr *at, const multibox *m, int64_t n, int64_t i,
                             double v)
{
    int64_t all = 0;
    if (!at->whole_batch)
        return m->positives[i] > 0 ? v / (double)m->positives[i] / (double)n : 0;
    for (int64_t k = 0; k < n; k++)
        all += m->positives[k];
    return v / at_least_one(all);
}

static td_status run_multibox(const td_prepared *p, void *const *args)
{
    const td_multibox_attr *at = p->node->attr;
    const anchors s = anchors_of(p->node, 0, args[1]);
    const multibox m = multibox_at(p->node, args[3]);
    const float *x = args[0];
    double sum = 0;
    all_log_sums(&m, &s, x);
#pragma omp parallel for if (s.N * s.A > BLOCK)
    for (int64_t i = 0; i < s.N; i++)
        m.of_image[i] = multibox_image(&m, &s, at->ratio, i, x);
    for (int64_t i = 0; i < s.N; i++)
        sum += multibox_share(at, &m, s.N, i, m.of_image[i]);
    *(float *)args[2] = (float)sum;
    return TD_OK;
}

static void multibox_row_grad(const multibox *m, const anchors *s, int64_t k, float by,
                              const float *x, float *dx)
{
    float *row = dx + k * s->width;
    if (!m->is_taken[k] || by == 0) {
        memset(row, 0, (size_t)s->width * sizeof *row);
        return;
    }
    td_native_detection_simd_at(0)->softmax(s->width, x + k * s->width, m->largest[k],
                                            m->log_sum[k], by, row);
    row[column(s->labels[k], s->width)] -= by;
}

static td_status run_multibox_grad(const td_prepared *p, void *const *args)
{
    const td_multibox_attr *at = p->node->attr;
    const anchors s = anchors_of(p->node, 1, args[2]);
    const multibox m = multibox_at(p->node, args[4]);
    const double dloss = (double)*(const float *)args[0];
    const float *x = args[1];
    float *dx = args[3];
    all_log_sums(&m, &s, x);
#pragma omp parallel for if (s.N * s.A > BLOCK)
    for (int64_t i = 0; i < s.N; i++)
        select_negatives(&m, &s, i, at->ratio, x);
    for (int64_t i = 0; i < s.N; i++)
        m.of_image[i] = multibox_share(at, &m, s.N, i, dloss);
#pragma omp parallel for if (s.N * s.A > BLOCK)
    for (int64_t k = 0; k < s.N * s.A; k++)
        multibox_row_grad(&m, &s, k, (float)m.of_image[k / s.A], x, dx);
    return TD_OK;
}

/* --- the kernels ------------------------------------------------------------------------------ */

TD_NATIVE_KERNEL(sigmoid_focal_loss, accepts_focal, prepare_focal, run_focal, share_rows);
TD_NATIVE_KERNEL(sigmoid_focal_loss_grad, accepts_focal, prepare_focal, run_focal_grad, share_rows);
TD_NATIVE_KERNEL(huber_box_loss, accepts_f32, prepare_huber, run_huber, share_huber);
TD_NATIVE_KERNEL(huber_box_loss_grad, accepts_f32, prepare_huber, run_huber_grad, share_huber);
TD_NATIVE_KERNEL(multibox_class_loss, accepts_f32, prepare_multibox, run_multibox, share_rows);
TD_NATIVE_KERNEL(multibox_class_loss_grad, accepts_f32, prepare_multibox, run_multibox_grad,
                 share_rows);
