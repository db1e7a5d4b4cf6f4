/*
 * detection.cu -- the losses of detectors and their gradients
 *
 * blockIdx.y is an image.  Blocks write partial sums in float64, which one block adds: the order
 * depends on the shape only.  multibox_loss takes the negatives of an image by a radix selection.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/row.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem {
namespace {

/* --- anchors ---------------------------------------------------------------------------------- */

/* the label's column, or 0 */
__device__ inline int64_t column(const td_gpu_anchors &a, int64_t row)
{
    const int64_t label = a.labels[row];
    return label > 0 && label < a.columns ? label : 0;
}

/* blocks of an image with `threads` threads of work, at most `most` */
dim3 image_grid(const td_gpu_anchors &a, int64_t threads, unsigned most)
{
    const unsigned blocks = blocks_for(threads), images = blocks_for(a.images * THREADS);
    return dim3(blocks < most ? blocks : most, images);
}

constexpr unsigned PARTS = TD_GPU_PARTS;

/* blocks of an image in gradients, of which each adds up the positives of all images first */
unsigned enough_blocks(const td_gpu_anchors &a)
{
    const int64_t wanted = 4096 / (a.images > 0 ? a.images : 1); /* 4096 blocks for all images */
    return static_cast<unsigned>(wanted > PARTS ? wanted : PARTS);
}

/* scratch memory of focal_loss and huber_loss */
struct partial_sums {
    int64_t *positives; /* [images] */
    double *part;       /* [images, number of blocks] */
};

partial_sums partial_sums_of(const td_gpu_anchors &a)
{
    int64_t *positives = static_cast<int64_t *>(a.scratch);
    return { positives, reinterpret_cast<double *>(positives + a.images) };
}

/* a block for each image */
__global__ void count_kernel(td_gpu_anchors a, int64_t *positives)
{
    for (int64_t image = blockIdx.x; image < a.images; image += gridDim.x) {
        int64_t n = 0;
        for (int64_t i = threadIdx.x; i < a.anchors; i += blockDim.x)
            n += a.labels[image * a.anchors + i] > 0;
        n = row_sum<THREADS>(n);
        if (threadIdx.x == 0)
            positives[image] = n;
    }
}

void count_positives(const td_gpu_anchors &a, int64_t *positives)
{
    TD_LAUNCH(count_kernel, blocks_for(a.images * THREADS), THREADS, 0, queue(), a, positives);
}

/* the factors of the images' sums: 1 / (images * own positives), or `by` / all positives; an image
   without positives has the factor 0, or as with one positive */
struct shares {
    const int64_t *positives;
    int64_t images;
    bool is_per_image;
    double by;
    bool counts_one;
};

/* the second factor; all threads of a block of THREADS call it */
__device__ inline double batch_share(const shares &s)
{
    int64_t n = 0;
    for (int64_t i = threadIdx.x; i < s.images; i += THREADS)
        n += s.positives[i];
    n = row_sum<THREADS>(n);
    return s.by / static_cast<double>(n > 1 ? n : 1);
}

__device__ inline double share_of(const shares &s, int64_t image, double of_batch)
{
    if (!s.is_per_image)
        return of_batch;
    const int64_t own = s.positives[image];
    const double n = static_cast<double>(own > 0 || !s.counts_one ? own : 1);
    return n > 0 ? 1 / (static_cast<double>(s.images) * n) : 0;
}

/* one block: y = the sum of part[images, parts], each times its image's share */
__global__ void total_kernel(td_gpu_anchors a, shares s, const double *part, unsigned parts)
{
    const double of_batch = batch_share(s);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.images * parts; i += THREADS)
        sum += part[i] * share_of(s, i / parts, of_batch);
    sum = row_sum<THREADS>(sum);
    if (threadIdx.x == 0)
        store(a.y, a.dtype, 0, static_cast<float>(sum));
}

void add_parts(const td_gpu_anchors &a, const shares &s, const double *part, unsigned parts)
{
    TD_LAUNCH(total_kernel, 1, THREADS, 0, queue(), a, s, part, parts);
}

/* --- sigmoid_focal_loss ----------------------------------------------------------------------- */

__device__ inline float power(float x, float exponent)
{
    return exponent == 2 ? x * x : powf(x, exponent);
}

/* sigmoid(x), sigmoid(-x) and -ln sigmoid(x), by one exponential */
struct logit {
    float hit, miss, loss;
};

__device__ inline logit logit_of(float x)
{
    const float e = expf(-fabsf(x)), large = 1 / (1 + e), small = e * large;
    return { x > 0 ? large : small, x > 0 ? small : large, fmaxf(-x, 0) + log1pf(e) };
}

/* the loss of a positive column with logit x, or of a negative column with logit -x */
__device__ inline float focal(float x, float gamma)
{
    const logit l = logit_of(x);
    return power(l.miss, gamma) * l.loss;
}

__device__ inline float focal_slope(float x, float gamma)
{
    const logit l = logit_of(x);
    return -power(l.miss, gamma) * (l.miss + gamma * l.hit * l.loss);
}

/* per image, rows with a negative label do not count */
__device__ inline bool is_ignored(const td_gpu_focal_loss &f, int64_t row)
{
    return f.per_image && f.a.labels[row] < 0;
}

/* a warp reads AHEAD * WARP columns of its anchor's row before it uses one */
constexpr int AHEAD = 4;

/* columns c, c + WARP, ... of a row */
template <typename T>
__device__ inline void fetch_columns(const td_gpu_anchors &a, int64_t row, int64_t c,
                                     elements<T, 1> (&x)[AHEAD])
{
    TD_UNROLL
    for (int u = 0; u < AHEAD; u++)
        x[u] = c + u * WARP < a.columns ? fetch<T, 1>(a.x, row * a.columns + c + u * WARP)
                                        : elements<T, 1>{};
}

/* f(column, logit) for this thread's columns of a row */
template <typename T, typename F>
__device__ inline void each_column(const td_gpu_anchors &a, int64_t row, const F &f)
{
    for (int64_t c = threadIdx.x % WARP; c < a.columns; c += AHEAD * WARP) {
        elements<T, 1> x[AHEAD];
        fetch_columns(a, row, c, x);
        TD_UNROLL
        for (int u = 0; u < AHEAD; u++)
            if (c + u * WARP < a.columns)
                f(c + u * WARP, to_float(x[u].one));
    }
}

/* a warp for each anchor */
template <typename T> __global__ void focal_kernel(td_gpu_focal_loss f, double *part)
{
    const td_gpu_anchors &a = f.a;
    for (int64_t image = blockIdx.y; image < a.images; image += gridDim.y) {
        double sum = 0;
        for (int64_t k = row_index<WARP>(); k < a.anchors; k += row_count<WARP>()) {
            const int64_t row = image * a.anchors + k, hit = column(a, row);
            float of_row = 0;
            if (is_ignored(f, row))
                continue;
            each_column<T>(a, row, [&](int64_t c, float x) {
                const bool is_hit = c > 0 && c == hit;
                of_row += (is_hit ? f.alpha : f.rest) * focal(is_hit ? x : -x, f.gamma);
            });
            sum += of_row;
        }
        sum = row_sum<THREADS>(sum);
        if (threadIdx.x == 0)
            part[image * gridDim.x + blockIdx.x] = sum;
    }
}

template <typename T> __global__ void focal_grad_kernel(td_gpu_focal_loss f, shares s)
{
    const td_gpu_anchors &a = f.a;
    const double dloss = load(a.dloss, a.dtype, 0), of_batch = batch_share(s);
    for (int64_t image = blockIdx.y; image < a.images; image += gridDim.y) {
        const float by = static_cast<float>(dloss * share_of(s, image, of_batch));
        for (int64_t k = row_index<WARP>(); k < a.anchors; k += row_count<WARP>()) {
            const int64_t row = image * a.anchors + k, hit = column(a, row);
            const bool counts = !is_ignored(f, row);
            each_column<T>(a, row, [&](int64_t c, float x) {
                const bool is_hit = c > 0 && c == hit;
                const float slope = focal_slope(is_hit ? x : -x, f.gamma);
                const float dx = counts ? (is_hit ? f.alpha : -f.rest) * slope : 0;
                static_cast<T *>(a.y)[row * a.columns + c] = from_float<T>(by * dx);
            });
        }
    }
}

/* --- huber_box_loss --------------------------------------------------------------------------- */

/* the error of delta k; 0 where the anchor is not positive */
__device__ inline float error_at(const td_gpu_huber_loss &h, int64_t k)
{
    if (h.a.labels[k / 4] <= 0)
        return 0;
    const float target = load(h.target, h.a.dtype, k);
    return target != target ? 0 : load(h.a.x, h.a.dtype, k) - target;
}

/* a thread for each delta */
__global__ void huber_kernel(td_gpu_huber_loss h, double *part)
{
    const int64_t count = h.a.anchors * 4;
    for (int64_t image = blockIdx.y; image < h.a.images; image += gridDim.y) {
        double sum = 0;
        for (int64_t k = thread_index(); k < count; k += thread_count()) {
            const float e = fabsf(error_at(h, image * count + k));
            const float q = e > h.delta ? h.delta : e;
            sum += h.delta > 0 ? q * q / 2 + h.delta * (e - q) : e;
        }
        sum = row_sum<THREADS>(sum);
        if (threadIdx.x == 0)
            part[image * gridDim.x + blockIdx.x] = sum;
    }
}

__global__ void huber_grad_kernel(td_gpu_huber_loss h, shares s)
{
    const int64_t count = h.a.anchors * 4;
    const double dloss = load(h.a.dloss, h.a.dtype, 0), of_batch = batch_share(s);
    for (int64_t image = blockIdx.y; image < h.a.images; image += gridDim.y) {
        const float by = static_cast<float>(dloss * share_of(s, image, of_batch));
        for (int64_t k = thread_index(); k < count; k += thread_count()) {
            const float e = error_at(h, image * count + k);
            const float most = h.delta > 0 ? h.delta : 1; /* delta 0: the sign */
            const float slope = e > h.delta ? most : e < -h.delta ? -most : e;
            const bool is_box = h.a.labels[image * h.a.anchors + k / 4] > 0;
            store(h.a.y, h.a.dtype, image * count + k, is_box ? by * slope : 0);
        }
    }
}

/* --- multibox_class_loss ---------------------------------------------------------------------- */

/* scratch memory: of images, and the cross-entropies of anchors */
struct selection {
    int64_t *positives;
    double *sum;
    unsigned long long *lowest; /* the lowest key that counts */
    float *loss;                /* [images, anchors] */
};

selection selection_of(const td_gpu_anchors &a)
{
    int64_t *positives = static_cast<int64_t *>(a.scratch);
    double *sum = reinterpret_cast<double *>(positives + a.images);
    auto *lowest = reinterpret_cast<unsigned long long *>(sum + a.images);
    return { positives, sum, lowest, reinterpret_cast<float *>(lowest + a.images) };
}

/* a warp for each anchor */
__global__ void multibox_rows_kernel(td_gpu_anchors a, float *loss)
{
    const int64_t rows = a.images * a.anchors;
    for (int64_t row = row_index<WARP>(); row < rows; row += row_count<WARP>()) {
        const int64_t at = row * a.columns;
        const exponentials e = row_exponentials<WARP>(a.x, a.dtype, at, a.columns);
        if (threadIdx.x % WARP == 0)
            loss[row] = e.max - load(a.x, a.dtype, at + column(a, row)) + logf(e.sum);
    }
}

/* Keys are ordered as anchors are taken: by decreasing loss, NaN as infinity and 0 for positives;
   equal losses by increasing index.  No two are equal. */
__device__ inline unsigned long long key_of(const td_gpu_anchors &a, const float *loss,
                                            int64_t image, int64_t i)
{
    const int64_t row = image * a.anchors + i;
    const float v = column(a, row) > 0 ? 0 : loss[row];
    const unsigned bits = v != v ? 0x7f800000u : v > 0 ? __float_as_uint(v) : 0;
    return static_cast<unsigned long long>(bits) << 32 | (0xffffffffu - static_cast<unsigned>(i));
}

constexpr unsigned DIGITS = 256;
static_assert(DIGITS == THREADS, "a thread for each digit");

/* the digit after a prefix of the wanted key, chosen by the keys that begin with this prefix */
struct digit_choice {
    unsigned digit;
    int64_t rank;  /* how many keys with that digit are still to be taken */
    bool has_all;  /* that is all of them */
};

/* count[d]: keys with digit d.  Chooses the digit of the rank-th largest key. */
__device__ inline digit_choice choose_digit(unsigned *count, int64_t rank)
{
    __shared__ digit_choice choice;
    const unsigned d = threadIdx.x, own = count[d];
    for (unsigned step = 1; step < DIGITS; step *= 2) { /* count[d] += count of digits above d */
        const unsigned above = d + step < DIGITS ? count[d + step] : 0;
        __syncthreads();
        count[d] += above;
        __syncthreads();
    }
    const int64_t above = count[d] - own;
    if (above < rank && rank <= count[d])
        choice = { d, rank - above, rank == count[d] };
    __syncthreads();
    return choice;
}

/* the lowest of the `wanted` largest keys of an image, or a number below it and above the others */
__device__ inline unsigned long long lowest_key(const td_gpu_anchors &a, const float *loss,
                                                int64_t image, int64_t wanted)
{
    __shared__ unsigned count[DIGITS];
    unsigned long long prefix = 0;
    if (wanted == 0)
        return ~0ull;
    for (int shift = 56; shift >= 0; shift -= 8) {
        count[threadIdx.x] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < a.anchors; i += THREADS) {
            const unsigned long long key = key_of(a, loss, image, i);
            if (shift == 56 || key >> (shift + 8) == prefix >> (shift + 8))
                atomicAdd(&count[key >> shift & (DIGITS - 1)], 1u);
        }
        __syncthreads();
        const digit_choice c = choose_digit(count, wanted);
        prefix |= static_cast<unsigned long long>(c.digit) << shift;
        wanted = c.rank;
        if (c.has_all)
            break;
    }
    return prefix;
}

__device__ inline bool is_taken(const td_gpu_anchors &a, const float *loss,
                                unsigned long long lowest, int64_t image, int64_t i)
{
    return column(a, image * a.anchors + i) > 0 || key_of(a, loss, image, i) >= lowest;
}

/* a block for each image: its positives, its negatives, and the sum of their losses */
__global__ void multibox_select_kernel(td_gpu_anchors a, selection s, int64_t ratio)
{
    for (int64_t image = blockIdx.x; image < a.images; image += gridDim.x) {
        int64_t positives = 0;
        for (int64_t i = threadIdx.x; i < a.anchors; i += THREADS)
            positives += column(a, image * a.anchors + i) > 0;
        positives = row_sum<THREADS>(positives);
        const int64_t wanted = ratio * positives < a.anchors ? ratio * positives : a.anchors;
        const unsigned long long lowest = lowest_key(a, s.loss, image, wanted);
        double sum = 0;
        for (int64_t i = threadIdx.x; i < a.anchors; i += THREADS)
            sum += is_taken(a, s.loss, lowest, image, i) ? s.loss[image * a.anchors + i] : 0;
        sum = row_sum<THREADS>(sum);
        if (threadIdx.x == 0) {
            s.positives[image] = positives;
            s.lowest[image] = lowest;
            s.sum[image] = sum;
        }
    }
}

/* writes the slopes of a selected anchor; called by its warp */
__device__ inline void multibox_slopes(const td_gpu_anchors &a, int64_t row, float by)
{
    const int64_t at = row * a.columns, hit = column(a, row);
    const exponentials e = row_exponentials<WARP>(a.x, a.dtype, at, a.columns);
    for (int64_t c = threadIdx.x % WARP; c < a.columns; c += WARP) {
        const float p = expf(load(a.x, a.dtype, at + c) - e.max) / e.sum;
        store(a.y, a.dtype, at + c, by * (c == hit ? p - 1 : p));
    }
}

/* a warp for each anchor */
__global__ void multibox_grad_kernel(td_gpu_anchors a, selection s, shares by_images)
{
    const double dloss = load(a.dloss, a.dtype, 0), of_batch = batch_share(by_images);
    for (int64_t image = blockIdx.y; image < a.images; image += gridDim.y) {
        const float by = static_cast<float>(dloss * share_of(by_images, image, of_batch));
        const unsigned long long lowest = s.lowest[image];
        for (int64_t k = row_index<WARP>(); k < a.anchors; k += row_count<WARP>()) {
            const int64_t row = image * a.anchors + k;
            if (is_taken(a, s.loss, lowest, image, k))
                multibox_slopes(a, row, by);
            else
                for (int64_t c = threadIdx.x % WARP; c < a.columns; c += WARP)
                    store(a.y, a.dtype, row * a.columns + c, 0);
        }
    }
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *focal_loss(const td_gpu_focal_loss *f)
{
    const partial_sums p = partial_sums_of(f->a);
    const shares s = { p.positives, f->a.images, f->per_image, 1, true };
    const unsigned most = f->a.dloss ? enough_blocks(f->a) : PARTS;
    const dim3 grid = image_grid(f->a, f->a.anchors * WARP, most);
    count_positives(f->a, p.positives);
    with_type(f->a.dtype, [=](auto zero) {
        if (f->a.dloss)
            TD_LAUNCH(focal_grad_kernel<decltype(zero)>, grid, THREADS, 0, queue(), *f, s);
        else
            TD_LAUNCH(focal_kernel<decltype(zero)>, grid, THREADS, 0, queue(), *f, p.part);
    });
    if (!f->a.dloss)
        add_parts(f->a, s, p.part, grid.x);
    return started();
}

const char *huber_loss(const td_gpu_huber_loss *h)
{
    const partial_sums p = partial_sums_of(h->a);
    const shares s = { p.positives, h->a.images, h->per_image, 0.25, false };
    const dim3 grid = image_grid(h->a, h->a.anchors * 4, h->a.dloss ? enough_blocks(h->a) : PARTS);
    count_positives(h->a, p.positives);
    if (h->a.dloss) {
        TD_LAUNCH(huber_grad_kernel, grid, THREADS, 0, queue(), *h, s);
    } else {
        TD_LAUNCH(huber_kernel, grid, THREADS, 0, queue(), *h, p.part);
        add_parts(h->a, s, p.part, grid.x);
    }
    return started();
}

const char *multibox_loss(const td_gpu_multibox_loss *m)
{
    const td_gpu_anchors &a = m->a;
    const selection s = selection_of(a);
    const shares by_images = { s.positives, a.images, !m->whole_batch, 1, false };
    const unsigned rows = blocks_for(a.images * a.anchors * WARP);
    const unsigned images = blocks_for(a.images * THREADS);
    TD_LAUNCH(multibox_rows_kernel, rows, THREADS, 0, queue(), a, s.loss);
    TD_LAUNCH(multibox_select_kernel, images, THREADS, 0, queue(), a, s, m->ratio);
    const dim3 grid = image_grid(a, a.anchors * WARP, enough_blocks(a));
    if (a.dloss)
        TD_LAUNCH(multibox_grad_kernel, grid, THREADS, 0, queue(), a, s, by_images);
    else
        add_parts(a, by_images, s.sum, 1);
    return started();
}

} // namespace tandem
