/*
 * update.cu -- steps of an optimiser, sums over several batches, averages, running statistics and
 * copies: of one tensor, or of many in one launch
 *
 *     parts:   | conv1 0 | fc 0 | fc 1 | fc 2 ...     a block of threads for each
 *     items:   conv1, fc, ...                         one struct for each tensor
 *
 * A network has some hundred tensors, from 64 elements to some millions, and starting a kernel takes
 * longer than updating a small one.  So the structs of all tensors, and the parts that they are
 * divided in, are written to the GPU's memory once; a kernel's block looks up its part there.
 *
 * Scalars (learning rate, 1 / loss scale, whether gradients are finite) are on the GPU, so a step
 * that is skipped needs no answer from the host.  Multiplications are rounded before they are added
 * (no fma), as on CPUs, so that one tensor and many give the same bits.
 *
 * Source: apex, multi_tensor_apply.
 */
#include <cstdint>
#include <new>

#include "backend/cuda/plugin.cuh"
#include "backend/cuda/vector.cuh"
#include "backend/cuda/walk.cuh"

namespace tandem
{
namespace
{

/* f(T()) with the float type of `d`, f32 or a half, in kernels */
template <typename F> __device__ inline void on_type(td_dtype d, F f)
{
    switch (d) {
    case TD_DT_F16:
        f(__half());
        break;
    case TD_DT_BF16:
        f(__nv_bfloat16());
        break;
    default:
        f(float());
    }
}

/* f(i, n) for this thread's elements i to i + n - 1, n at most WIDE, of [first, end) */
template <typename F> __device__ inline void for_some(int64_t first, int64_t end, F f)
{
    const int64_t stride = static_cast<int64_t>(blockDim.x) * WIDE;
    for (int64_t i = first + static_cast<int64_t>(threadIdx.x) * WIDE; i < end; i += stride)
        f(i, end - i < WIDE ? static_cast<int>(end - i) : WIDE);
}

/* is nothing to be written? */
__device__ inline bool is_skipped(const float *finite)
{
    return finite && *finite == 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* places: of w and of its copies */
struct step_item {
    td_gpu_step s;
    walk places;
    bool is_flat; /* the copies have w's layout */
};

/* lr, 1 / loss scale, momentum and 1 - beta1; adam and lamb: lr / rest1 or lr, rest1, the root of
   rest2, the share of the weight that adam keeps, lamb's ratio */
struct step_scalars {
    float lr, inverse, momentum, first, rest1, root2, kept, ratio;
};

__device__ inline void moments_at(const td_gpu_step &s, const step_scalars &c, float g, float &m,
                                  float &v)
{
    m = __fadd_rn(__fmul_rn(c.momentum, m), __fmul_rn(c.first, g));
    v = __fadd_rn(__fmul_rn(s.alpha, v), __fmul_rn(__fmul_rn(s.rest, g), g));
}

/* the new weight; m and v are updated */
__device__ inline float adam_at(const td_gpu_step &s, const step_scalars &c, float g, float w,
                                float &m, float &v)
{
    moments_at(s, c, __fadd_rn(__fmul_rn(c.inverse, g), __fmul_rn(s.decay, w)), m, v);
    const float by = m / __fadd_rn(sqrtf(v) / c.root2, s.eps);
    return __fadd_rn(__fmul_rn(c.kept, w), -__fmul_rn(c.lr, by));
}

__device__ inline float lamb_direction(const td_gpu_step &s, const step_scalars &c, float w,
                                       float m, float v)
{
    const float by = m / c.rest1 / __fadd_rn(sqrtf(v) / c.root2, s.eps);
    return __fadd_rn(by, __fmul_rn(s.decay, w));
}

/* the new weight; v and a, the mean square, are updated */
__device__ inline float step_at(const td_gpu_step &s, const step_scalars &c, float g, float w,
                                float &v, float &a)
{
    float by = 0;
    if (s.rule == TD_GPU_ADAM)
        return adam_at(s, c, g, w, v, a);
    if (s.rule == TD_GPU_LAMB)
        return __fadd_rn(w, -__fmul_rn(__fmul_rn(c.lr, c.ratio), lamb_direction(s, c, w, v, a)));
    g = __fadd_rn(__fmul_rn(c.inverse, g), __fmul_rn(s.decay, w));
    by = g;
    if (s.square) {
        a = __fadd_rn(__fmul_rn(s.alpha, a), __fmul_rn(__fmul_rn(s.rest, g), g));
        by = g / (sqrtf(a) + s.eps);
    }
    v = __fadd_rn(__fmul_rn(c.momentum, v), by);
    by = s.nesterov ? __fadd_rn(g, __fmul_rn(c.momentum, v)) : v;
    return __fadd_rn(w, -__fmul_rn(c.lr, by));
}

__device__ inline void step_some(const td_gpu_step &s, const step_scalars &c, int64_t i, int n)
{
    float w[WIDE], g[WIDE], v[WIDE], a[WIDE];
    read_some<float>(s.w.data, i, n, w);
    read_some<float>(s.g, i, n, g);
    read_some<float>(s.v, i, n, v);
    if (s.square)
        read_some<float>(s.square, i, n, a);
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        w[k] = step_at(s, c, g[k], w[k], v[k], a[k]);
    write_some<float>(s.w.data, i, n, w);
    write_some<float>(s.v, i, n, v);
    if (s.square)
        write_some<float>(s.square, i, n, a);
    TD_UNROLL
    for (int k = 0; k < TD_GPU_COPIES; k++)
        if (k < s.n_copies)
            on_type(s.copy[k].dtype,
                    [&](auto type) { write_some<decltype(type)>(s.copy[k].data, i, n, w); });
}

/* copies in other layouts than w's */
__device__ inline void step_one(const step_item &t, const step_scalars &c, int64_t n)
{
    const td_gpu_step &s = t.s;
    const places p = places_of(t.places, n);
    const int64_t i = p.at[0];
    float *weight = static_cast<float *>(s.w.data), a = s.square ? s.square[i] : 0;
    const float x = step_at(s, c, s.g[i], weight[i], s.v[i], a);
    weight[i] = x;
    if (s.square)
        s.square[i] = a;
    TD_UNROLL
    for (int k = 0; k < TD_GPU_COPIES; k++)
        if (k < s.n_copies)
            store(s.copy[k].data, s.copy[k].dtype, p.at[1 + k], x);
}

__device__ inline step_scalars momentum_of(const td_gpu_step &s)
{
    const float momentum = s.reads_momentum ? s.lr[1] : s.momentum;
    const float first = s.reads_momentum ? static_cast<float>(1 - static_cast<double>(momentum))
                                         : s.first;
    return { 1, s.inverse ? *s.inverse : 1, momentum, first, 1, 1, 1, 1 };
}

__device__ inline step_scalars scalars_of(const td_gpu_step &s)
{
    step_scalars c = momentum_of(s);
    c.lr = *s.lr;
    if (s.rule == TD_GPU_ADAM || s.rule == TD_GPU_LAMB) {
        c.rest1 = *s.rest1;
        c.root2 = sqrtf(*s.rest2);
    }
    if (s.rule == TD_GPU_ADAM) {
        c.kept = static_cast<float>(1 - __dmul_rn(c.lr, s.decoupled));
        c.lr = c.lr / c.rest1;
    }
    if (s.rule == TD_GPU_LAMB)
        c.ratio = *static_cast<const float *>(s.scratch);
    return c;
}

__device__ inline void work(const step_item &t, int64_t first, int64_t end)
{
    if (is_skipped(t.s.finite))
        return;
    const step_scalars c = scalars_of(t.s);
    if (t.is_flat)
        for_some(first, end, [&](int64_t i, int n) { step_some(t.s, c, i, n); });
    else
        for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
            step_one(t, c, i);
}

step_item item_of(const td_gpu_step &s)
{
    static_assert(TD_GPU_COPIES == 2, "copies are tensors 1 and 2 of a walk");
    const walk places = walk_of(s.w, s.copy[0], s.copy[1]);
    return { s, places, is_flat(places, 1 + s.n_copies) };
}

int64_t count_of(const step_item &t)
{
    return t.places.count;
}

/* --- lamb's norms ----------------------------------------------------------------------------- */

/* the scratch memory: the ratio, then two sums of each part */
__device__ inline double *sums_in(const td_gpu_step &s)
{
    return static_cast<double *>(s.scratch) + 2;
}

/* a block: new means of elements [first, end), part i, and their sums of squares */
__device__ inline void sum_part(const step_item &t, int64_t i, int64_t first, int64_t end)
{
    const td_gpu_step &s = t.s;
    const float *weight = static_cast<const float *>(s.w.data);
    double weights = 0, directions = 0;
    if (is_skipped(s.finite))
        return;
    step_scalars c = momentum_of(s);
    c.rest1 = *s.rest1;
    c.root2 = sqrtf(*s.rest2);
    for (int64_t k = first + threadIdx.x; k < end; k += blockDim.x) {
        moments_at(s, c, __fmul_rn(c.inverse, s.g[k]), s.v[k], s.square[k]);
        const double w = weight[k], u = lamb_direction(s, c, weight[k], s.v[k], s.square[k]);
        weights = __dadd_rn(weights, __dmul_rn(w, w));
        directions = __dadd_rn(directions, __dmul_rn(u, u));
    }
    weights = block_sum(weights);
    directions = block_sum(directions);
    if (threadIdx.x == 0) {
        sums_in(s)[2 * i] = weights;
        sums_in(s)[2 * i + 1] = directions;
    }
}

/* a block: the ratio from the sums of n parts */
__device__ inline void sum_parts(const step_item &t, int64_t n)
{
    const td_gpu_step &s = t.s;
    const double *sums = sums_in(s);
    double weights = 0, directions = 0;
    if (is_skipped(s.finite))
        return;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        weights = __dadd_rn(weights, sums[2 * i]);
        directions = __dadd_rn(directions, sums[2 * i + 1]);
    }
    weights = block_sum(weights);
    directions = block_sum(directions);
    const bool is_scaled = s.decay > 0 && weights > 0 && directions > 0;
    if (threadIdx.x == 0)
        *static_cast<float *>(s.scratch) =
            is_scaled ? static_cast<float>(sqrt(weights / directions)) : 1;
}

/* --- are all elements finite? ----------------------------------------------------------------- */

constexpr int64_t FIRST = 16 * THREADS; /* elements that one block tests */

__device__ inline bool is_finite(float v)
{
    return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u;
}

__device__ inline bool is_finite_at(const td_gpu_finite_test &t, int64_t i)
{
    return is_finite(load(t.x, t.dtype, i));
}

/* one block: y is of the first elements, and of `before` */
__global__ void finite_first_kernel(td_gpu_finite_test t)
{
    const int64_t end = t.count < FIRST ? t.count : FIRST;
    bool is_all = !is_skipped(t.before);
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x)
        is_all = is_finite_at(t, i) && is_all;
    is_all = __syncthreads_and(is_all) != 0;
    if (threadIdx.x == 0)
        *t.y = is_all ? 1 : 0;
}

/* the others; whoever finds something writes the same number */
__global__ void finite_rest_kernel(td_gpu_finite_test t)
{
    bool is_all = true;
    for (int64_t i = FIRST + thread_index(); i < t.count; i += thread_count())
        is_all = is_finite_at(t, i) && is_all;
    if (!is_all)
        *t.y = 0;
}

/* one thread: y before many tensors are tested */
__global__ void finite_begin_kernel(const float *before, float *y)
{
    *y = is_skipped(before) ? 0 : 1;
}

/* of many, y is that of the last */
__device__ inline void work(const td_gpu_finite_test &t, int64_t first, int64_t end)
{
    bool is_all = true;
    for_some(first, end, [&](int64_t i, int n) {
        float v[WIDE];
        on_type(t.dtype, [&](auto type) { read_some<decltype(type)>(t.x, i, n, v); });
        TD_UNROLL
        for (int k = 0; k < WIDE; k++)
            is_all = is_finite(v[k]) && is_all;
    });
    if (!is_all)
        *t.y = 0;
}

/* --- the norm of a gradient ------------------------------------------------------------------- */

/* the scratch memory: a sum of each part, then that of all */
__device__ inline double *sums_in(const td_gpu_norm_of &t)
{
    return static_cast<double *>(t.scratch);
}

/* a block: the sum of squares of elements [first, end), part i */
__device__ inline void sum_part(const td_gpu_norm_of &t, int64_t i, int64_t first, int64_t end)
{
    const double by = *t.inverse;
    double sum = 0;
    for (int64_t k = first + threadIdx.x; k < end; k += blockDim.x) {
        const double g = __dmul_rn(by, load(t.x, t.dtype, k));
        sum = __dadd_rn(sum, __dmul_rn(g, g));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums_in(t)[i] = sum;
}

/* a block: the sum of n parts */
__device__ inline void sum_parts(const td_gpu_norm_of &t, int64_t n)
{
    const double *sums = sums_in(t);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum = __dadd_rn(sum, sums[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums_in(t)[n] = sum;
}

__device__ inline float norm_with(double sum, float before)
{
    return static_cast<float>(sqrt(__dadd_rn(sum, __dmul_rn(before, before))));
}

/* --- bits ------------------------------------------------------------------------------------- */

__device__ inline int64_t bytes_of(td_dtype d)
{
    return d == TD_DT_F32 ? 4 : 2;
}

/* bytes [first, end) of float tensors, first a multiple of 16; from NULL: zeros */
__device__ inline void copy_bytes(void *to, const void *from, int64_t first, int64_t end)
{
    const uint4 *source = static_cast<const uint4 *>(from);
    for (int64_t i = first / 16 + threadIdx.x; i < end / 16; i += blockDim.x) {
        const uint4 v = from ? source[i] : make_uint4(0, 0, 0, 0);
        write_words(static_cast<uint4 *>(to) + i, v.x, v.y, v.z, v.w);
    }
    for (int64_t i = end / 16 * 8 + threadIdx.x; i < end / 2; i += blockDim.x)
        static_cast<uint16_t *>(to)[i] = from ? static_cast<const uint16_t *>(from)[i] : 0;
}

__device__ inline void work(const td_gpu_carry_sum &c, int64_t first, int64_t end)
{
    const int64_t n = bytes_of(c.dtype);
    copy_bytes(c.sum, *c.last != 0 ? nullptr : c.s, first * n, end * n);
}

__device__ inline void work(const td_gpu_commit_step &c, int64_t first, int64_t end)
{
    const int64_t n = bytes_of(c.dtype);
    if (*c.last == 0)
        return;
    if (*c.finite != 0)
        copy_bytes(c.to, c.pending, first * n, end * n);
    else
        copy_bytes(c.pending, c.to, first * n, end * n);
}

/* --- averages, running statistics ------------------------------------------------------------- */

template <typename T>
__device__ inline void average_some(const td_gpu_average &a, float keep, float share, int64_t i,
                                    int n)
{
    float x[WIDE], y[WIDE];
    read_some<T>(a.value, i, n, x);
    read_some<T>(a.average, i, n, y);
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        y[k] = __fadd_rn(__fmul_rn(keep, y[k]), __fmul_rn(share, x[k]));
    write_some<T>(a.average, i, n, y);
}

__device__ inline void work(const td_gpu_average &a, int64_t first, int64_t end)
{
    if (is_skipped(a.finite))
        return;
    const float keep = *a.keep, share = *a.share;
    if (keep == 1 && share == 0)
        return;
    on_type(a.dtype, [&](auto type) {
        for_some(first, end,
                 [&](int64_t i, int n) { average_some<decltype(type)>(a, keep, share, i, n); });
    });
}

__device__ inline float moved(float r, double by, double s)
{
    return static_cast<float>(__dadd_rn(__dmul_rn(1 - by, r), __dmul_rn(by, s)));
}

__device__ inline void work(const td_gpu_norm_update &a, int64_t first, int64_t end)
{
    if (is_skipped(a.finite))
        return;
    for (int64_t c = first + threadIdx.x; c < end; c += blockDim.x) {
        a.running_mean[c] = moved(a.running_mean[c], a.momentum, a.mean[c]);
        a.running_var[c] = moved(a.running_var[c], a.momentum, a.unbiased * a.var[c]);
    }
}

int64_t count_of(const td_gpu_norm_update &a)
{
    return a.channels;
}

/* --- copies and sums of two ------------------------------------------------------------------- */

/* y = x in another dtype or layout, or x + z */
struct map_item {
    td_gpu_map m;
    walk places;
    bool is_flat; /* all tensors have one layout */
    bool is_bits; /* y = x in one dtype */
};

template <typename X, typename Y>
__device__ inline void map_some(const td_gpu_map &m, int64_t i, int n)
{
    float x[WIDE], z[WIDE];
    read_some<X>(m.x.data, i, n, x);
    if (m.z.data) {
        read_some<X>(m.z.data, i, n, z);
        TD_UNROLL
        for (int k = 0; k < WIDE; k++)
            x[k] += z[k];
    }
    write_some<Y>(m.y.data, i, n, x);
}

__device__ inline void map_one(const map_item &t, int64_t n)
{
    const td_gpu_map &m = t.m;
    const places p = places_of(t.places, n);
    if (t.is_bits) {
        copy_bits(m.y.data, p.at[0], m.x.data, p.at[1], m.y.dtype);
        return;
    }
    const float x = load(m.x.data, m.x.dtype, p.at[1]);
    store(m.y.data, m.y.dtype, p.at[0], m.z.data ? x + load(m.z.data, m.z.dtype, p.at[2]) : x);
}

__device__ inline void work(const map_item &t, int64_t first, int64_t end)
{
    const td_gpu_map &m = t.m;
    if (!t.is_flat)
        for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
            map_one(t, i);
    else if (t.is_bits)
        copy_bytes(m.y.data, m.x.data, first * bytes_of(m.y.dtype), end * bytes_of(m.y.dtype));
    else
        on_type(m.x.dtype, [&](auto x) {
            on_type(m.y.dtype, [&](auto y) {
                for_some(first, end,
                         [&](int64_t i, int n) { map_some<decltype(x), decltype(y)>(m, i, n); });
            });
        });
}

bool is_float(td_dtype d)
{
    return d == TD_DT_F32 || d == TD_DT_F16 || d == TD_DT_BF16;
}

map_item item_of(const td_gpu_map &m)
{
    const walk places = walk_of(m.y, m.x, m.z);
    const bool is_flat_ =
        is_flat(places, m.z.data ? 3 : 2) && is_float(m.x.dtype) && is_float(m.y.dtype);
    return { m, places, is_flat_, !m.z.data && m.x.dtype == m.y.dtype };
}

int64_t count_of(const map_item &t)
{
    return t.places.count;
}

/* --- kernels ---------------------------------------------------------------------------------- */

template <typename T> int64_t count_of(const T &t)
{
    return t.count;
}

/* 8 elements for each thread */
constexpr int64_t LEAST = WIDE * THREADS;

/* one tensor, whose parts have LEAST elements */
template <typename T> __global__ void single_kernel(T t, int64_t count)
{
    for (int64_t i = blockIdx.x * LEAST; i < count; i += gridDim.x * LEAST)
        work(t, i, count - i < LEAST ? count : i + LEAST);
}

template <typename T> const char *start_single(const T &t)
{
    const int64_t n = count_of(t);
    TD_LAUNCH(single_kernel<T>, blocks_for((n + WIDE - 1) / WIDE), THREADS, 0, queue(), t, n);
    return started();
}

/* elements of a part: ResNet-50 has 1,700 parts, of which an H200 runs some 500 at a time */
constexpr int64_t PART = 8 * LEAST;
static_assert(PART == TD_GPU_SUMMED, "one tensor and many are summed in one order");

__host__ __device__ inline int64_t parts_of(int64_t count)
{
    return (count + PART - 1) / PART;
}

__device__ inline int64_t end_of_part(int64_t first, int64_t count)
{
    return count - first < PART ? count : first + PART;
}

struct part {
    int64_t first; /* element */
    int item;
};

template <typename T>
__global__ void multi_kernel(const T *items, const int64_t *counts, const part *parts)
{
    const part p = parts[blockIdx.x];
    work(items[p.item], p.first, end_of_part(p.first, counts[p.item]));
}

/* --- sums of whole tensors -------------------------------------------------------------------- */

template <typename T> __global__ void part_kernel(T t, int64_t count)
{
    const int64_t first = blockIdx.x * PART;
    sum_part(t, blockIdx.x, first, end_of_part(first, count));
}

template <typename T> __global__ void parts_kernel(T t, int64_t count)
{
    sum_parts(t, parts_of(count));
}

template <typename T> void start_sums(const T &t, int64_t count)
{
    TD_LAUNCH(part_kernel<T>, static_cast<unsigned>(parts_of(count)), THREADS, 0, queue(), t, count);
    TD_LAUNCH(parts_kernel<T>, 1, THREADS, 0, queue(), t, count);
}

template <typename T>
__global__ void multi_part_kernel(const T *items, const int64_t *counts, const part *parts)
{
    const part p = parts[blockIdx.x];
    sum_part(items[p.item], p.first / PART, p.first, end_of_part(p.first, counts[p.item]));
}

/* a block for each tensor */
template <typename T> __global__ void multi_parts_kernel(const T *items, const int64_t *counts)
{
    sum_parts(items[blockIdx.x], parts_of(counts[blockIdx.x]));
}

/* one thread: after the sums of one tensor */
__global__ void norm_kernel(td_gpu_norm_of t, int64_t count)
{
    *t.y = norm_with(sums_in(t)[parts_of(count)], t.before ? *t.before : 0);
}

/* one block: the norms of n tensors, each with those before it; y is that of the last */
__global__ void multi_norm_kernel(const td_gpu_norm_of *items, const int64_t *counts, unsigned n)
{
    __shared__ double sums[THREADS];
    float y = items[0].before ? *items[0].before : 0;
    for (unsigned from = 0; from < n; from += THREADS) {
        const unsigned i = from + threadIdx.x;
        if (i < n)
            sums[threadIdx.x] = sums_in(items[i])[parts_of(counts[i])];
        __syncthreads();
        for (unsigned k = 0; threadIdx.x == 0 && k < THREADS && from + k < n; k++)
            y = norm_with(sums[k], y);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *items[n - 1].y = y;
}

/* --- tables ----------------------------------------------------------------------------------- */

struct multi {
    td_gpu_multi_kind kind;
    int n;
    unsigned n_parts;
    size_t counts_at, parts_at, sums_at, bytes; /* items are first */
    char *table;                                /* on the GPU */
    const float *before;                        /* finite tests: `before` of the first tensor */
    float *y;                                   /* `y` of the last tensor */
};

size_t aligned(size_t n)
{
    return (n + 15) / 16 * 16;
}

template <typename T> const T &item_of(const T &each)
{
    return each;
}

/* bytes of sums */
template <typename T> size_t sums_bytes(const multi &, const T &)
{
    return 0;
}

size_t sums_bytes(const multi &m, const step_item &t)
{
    return m.kind == TD_GPU_MULTI_LAMB ? static_cast<size_t>(td_gpu_squares_bytes(count_of(t))) : 0;
}

size_t sums_bytes(const multi &, const td_gpu_norm_of &t)
{
    return static_cast<size_t>(td_gpu_squares_bytes(t.count));
}

/* an item of the table; sums: on the GPU */
template <typename T> void place(const multi &, T &, char *)
{
}

void place(const multi &m, td_gpu_finite_test &t, char *)
{
    t.y = m.y;
}

void place(const multi &m, step_item &t, char *sums)
{
    if (m.kind == TD_GPU_MULTI_LAMB)
        t.s.scratch = sums;
}

void place(const multi &, td_gpu_norm_of &t, char *sums)
{
    t.scratch = sums;
}

/* the table in memory of the host, without the sums */
template <typename T, typename E> void fill_table(const multi &m, const E *each, char *table)
{
    auto *items = reinterpret_cast<T *>(table);
    auto *counts = reinterpret_cast<int64_t *>(table + m.counts_at);
    auto *p = reinterpret_cast<part *>(table + m.parts_at);
    char *sums = m.table + m.sums_at;
    for (int i = 0; i < m.n; i++) {
        items[i] = item_of(each[i]);
        counts[i] = count_of(items[i]);
        place(m, items[i], sums);
        sums += sums_bytes(m, items[i]);
        for (int64_t k = 0; k < parts_of(counts[i]); k++)
            *p++ = { k * PART, i };
    }
}

const char *copy_table(const multi &m, const char *table)
{
    const cudaStream_t stream = queue();
    const char *e = explain(
        "cudaMemcpyAsync",
        cudaMemcpyAsync(m.table, table, m.sums_at, cudaMemcpyHostToDevice, stream));
    return e ? e : wait_for(stream);
}

constexpr const char *NO_MEMORY = "out of memory";

/* T: the items of structs E */
template <typename T, typename E> const char *make_table(const td_gpu_multi_new *a, multi &m)
{
    const E *each = static_cast<const E *>(a->each);
    int64_t n_parts = 0;
    size_t sums = 0;
    for (int i = 0; i < a->n; i++) {
        const T t = item_of(each[i]);
        n_parts += parts_of(count_of(t));
        sums += sums_bytes(m, t);
    }
    if (n_parts > INT32_MAX)
        return "one launch for so many tensors would have more than 2147483647 blocks";
    m.n_parts = static_cast<unsigned>(n_parts);
    m.counts_at = aligned(static_cast<size_t>(a->n) * sizeof(T));
    m.parts_at = aligned(m.counts_at + static_cast<size_t>(a->n) * sizeof(int64_t));
    m.sums_at = aligned(m.parts_at + m.n_parts * sizeof(part));
    m.bytes = m.sums_at + sums;
    char *table = new (std::nothrow) char[m.sums_at]();
    void *to = nullptr;
    const char *e = table ? device_alloc(m.bytes, &to) : NO_MEMORY;
    m.table = static_cast<char *>(to);
    if (!e) {
        fill_table<T>(m, each, table);
        e = copy_table(m, table);
        if (e)
            (void)cudaFree(to);
    }
    delete[] table;
    return e;
}

const char *make_tests(const td_gpu_multi_new *a, multi &m)
{
    const auto *each = static_cast<const td_gpu_finite_test *>(a->each);
    m.before = each[0].before;
    m.y = each[a->n - 1].y;
    return make_table<td_gpu_finite_test, td_gpu_finite_test>(a, m);
}

const char *make(const td_gpu_multi_new *a, multi &m)
{
    switch (a->kind) {
    case TD_GPU_MULTI_STEP:
    case TD_GPU_MULTI_LAMB:
        return make_table<step_item, td_gpu_step>(a, m);
    case TD_GPU_MULTI_FINITE:
        return make_tests(a, m);
    case TD_GPU_MULTI_NORM:
        return make_table<td_gpu_norm_of, td_gpu_norm_of>(a, m);
    case TD_GPU_MULTI_CARRY:
        return make_table<td_gpu_carry_sum, td_gpu_carry_sum>(a, m);
    case TD_GPU_MULTI_AVERAGE:
        return make_table<td_gpu_average, td_gpu_average>(a, m);
    case TD_GPU_MULTI_COMMIT:
        return make_table<td_gpu_commit_step, td_gpu_commit_step>(a, m);
    case TD_GPU_MULTI_MAP:
        return make_table<map_item, td_gpu_map>(a, m);
    case TD_GPU_MULTI_NORM_UPDATE:
        return make_table<td_gpu_norm_update, td_gpu_norm_update>(a, m);
    }
    return "no such kind of launch for many tensors";
}

/* the table on the GPU */
template <typename T> const T *items_of(const multi &m)
{
    return reinterpret_cast<const T *>(m.table);
}

const int64_t *counts_of(const multi &m)
{
    return reinterpret_cast<const int64_t *>(m.table + m.counts_at);
}

const part *parts_in(const multi &m)
{
    return reinterpret_cast<const part *>(m.table + m.parts_at);
}

template <typename T> const char *start_multi(const multi &m)
{
    if (m.n_parts > 0)
        TD_LAUNCH(multi_kernel<T>, m.n_parts, THREADS, 0, queue(), items_of<T>(m), counts_of(m),
                  parts_in(m));
    return started();
}

const char *start_tests(const multi &m)
{
    TD_LAUNCH(finite_begin_kernel, 1, 1, 0, queue(), m.before, m.y);
    return start_multi<td_gpu_finite_test>(m);
}

template <typename T> void start_multi_sums(const multi &m)
{
    if (m.n_parts > 0)
        TD_LAUNCH(multi_part_kernel<T>, m.n_parts, THREADS, 0, queue(), items_of<T>(m),
                  counts_of(m), parts_in(m));
    TD_LAUNCH(multi_parts_kernel<T>, static_cast<unsigned>(m.n), THREADS, 0, queue(),
              items_of<T>(m), counts_of(m));
}

const char *start_lamb(const multi &m)
{
    start_multi_sums<step_item>(m);
    return start_multi<step_item>(m);
}

const char *start_norms(const multi &m)
{
    start_multi_sums<td_gpu_norm_of>(m);
    TD_LAUNCH(multi_norm_kernel, 1, THREADS, 0, queue(), items_of<td_gpu_norm_of>(m), counts_of(m),
              static_cast<unsigned>(m.n));
    return started();
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *step(const td_gpu_step *s)
{
    const step_item item = item_of(*s);
    if (s->rule == TD_GPU_LAMB)
        start_sums(item, count_of(item));
    return start_single(item);
}

const char *finite_test(const td_gpu_finite_test *t)
{
    TD_LAUNCH(finite_first_kernel, 1, THREADS, 0, queue(), *t);
    if (t->count > FIRST)
        TD_LAUNCH(finite_rest_kernel, blocks_for(t->count - FIRST), THREADS, 0, queue(), *t);
    return started();
}

const char *norm_of(const td_gpu_norm_of *t)
{
    start_sums(*t, t->count);
    TD_LAUNCH(norm_kernel, 1, 1, 0, queue(), *t, t->count);
    return started();
}

const char *carry_sum(const td_gpu_carry_sum *c)
{
    return start_single(*c);
}

const char *average(const td_gpu_average *a)
{
    return start_single(*a);
}

const char *commit_step(const td_gpu_commit_step *c)
{
    return start_single(*c);
}

const char *norm_update(const td_gpu_norm_update *a)
{
    return start_single(*a);
}

const char *multi_new(const td_gpu_multi_new *a)
{
    auto *m = new (std::nothrow) multi();
    *a->made = nullptr;
    *a->bytes = 0;
    if (!m)
        return NO_MEMORY;
    m->kind = a->kind;
    m->n = a->n;
    const char *e = make(a, *m);
    if (e) {
        delete m;
    } else {
        *a->made = m;
        *a->bytes = m->bytes;
    }
    return e;
}

const char *multi_run(const td_gpu_multi_run *a)
{
    const multi &m = *static_cast<const multi *>(a->multi);
    switch (m.kind) {
    case TD_GPU_MULTI_STEP:
        return start_multi<step_item>(m);
    case TD_GPU_MULTI_FINITE:
        return start_tests(m);
    case TD_GPU_MULTI_LAMB:
        return start_lamb(m);
    case TD_GPU_MULTI_NORM:
        return start_norms(m);
    case TD_GPU_MULTI_CARRY:
        return start_multi<td_gpu_carry_sum>(m);
    case TD_GPU_MULTI_AVERAGE:
        return start_multi<td_gpu_average>(m);
    case TD_GPU_MULTI_COMMIT:
        return start_multi<td_gpu_commit_step>(m);
    case TD_GPU_MULTI_MAP:
        return start_multi<map_item>(m);
    case TD_GPU_MULTI_NORM_UPDATE:
        return start_multi<td_gpu_norm_update>(m);
    }
    return nullptr;
}

const char *multi_free(const td_gpu_multi_free *a)
{
    auto *m = static_cast<multi *>(a->multi);
    const char *e = explain("cudaFree", cudaFree(m->table));
    *a->bytes = m->bytes;
    delete m;
    return e;
}

} // namespace tandem
