/*
 * norm.cu -- batch normalisation, forward and backward
 *
 *     sums       of a part of the pixels, in float32, then over the block's threads in float64
 *     join       the parts' sums in float64  ->  a channel's statistics and coefficients
 *     apply      the coefficients to each element
 *
 * The order of every sum depends on the shape only.  Where channels are last and a multiple of 8,
 * a thread has the same eight channels in all its pixels ("wide"); else it has one channel in sums,
 * and apply takes eight elements that are consecutive in memory.
 *
 * The variance is taken about a pixel in the middle, so that little cancels.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem
{
namespace
{

/* --- how threads share the pixels of all images ----------------------------------------------- */

/* blockIdx.x chooses lanes * N channels, blockIdx.y one part of the pixels; N is 1 or WIDE */
struct tile {
    int64_t pixels, per_part;
    unsigned lanes, groups, n_parts;
};

bool is_wide(const td_gpu_images &m)
{
    return m.is_channels_last && m.channels % WIDE == 0;
}

tile tile_of(const td_gpu_images &m, int64_t n_parts)
{
    const int64_t vectors = is_wide(m) ? m.channels / WIDE : m.channels;
    const int64_t groups = m.is_channels_last ? (vectors + WARP - 1) / WARP : vectors;
    tile t = {};
    t.pixels = m.n * m.area;
    t.per_part = (t.pixels + n_parts - 1) / n_parts;
    t.groups = static_cast<unsigned>(groups);
    t.lanes = static_cast<unsigned>((vectors + groups - 1) / groups);
    t.n_parts = static_cast<unsigned>(n_parts);
    return t;
}

dim3 grid_of(const tile &t)
{
    return dim3(t.groups, t.n_parts);
}

/* what a thread has: N channels from c, of pixels `at`, at + step, ... */
struct share {
    int64_t c, at, end;
    int step;
};

template <int N> __device__ inline share share_of(const tile &t, int64_t channels, unsigned part)
{
    const unsigned lane = threadIdx.x % t.lanes, row = threadIdx.x / t.lanes;
    const int64_t start = part * t.per_part;
    share s;
    s.step = static_cast<int>(THREADS / t.lanes);
    s.c = (static_cast<int64_t>(blockIdx.x) * t.lanes + lane) * N;
    s.at = start + row;
    s.end = start + t.per_part < t.pixels ? start + t.per_part : t.pixels;
    if (s.c >= channels || static_cast<int>(row) >= s.step)
        s.end = s.at = 0; /* nothing */
    return s;
}

/* for kernels after the sums: the cache still has the parts that were read last */
__device__ inline unsigned part_from_end(const tile &t)
{
    return t.n_parts - 1 - blockIdx.y;
}

/* the index of channel c of pixel p of all images; channels are last where N is WIDE */
template <int N> __device__ inline int64_t element(const td_gpu_images &m, int64_t p, int64_t c)
{
    if (N == WIDE || m.is_channels_last)
        return p * m.channels + c;
    return (p / m.area * m.channels + c) * m.area + p % m.area;
}

__device__ inline int64_t middle(const td_gpu_images &m, int64_t c)
{
    return element<1>(m, m.n / 2 * m.area + m.area / 2, c);
}

template <int U> struct batch {
    static constexpr int size = U;
};

/* f(p, batch<U>()) for pixels p, p + step, ... of the share, U of them; at the end one by one */
template <int U, typename F> __device__ inline void each_batch(const share &s, const F &f)
{
    int64_t p = s.at;
    for (; p + (U - 1) * s.step < s.end; p += U * s.step)
        f(p, batch<U>());
    for (; p < s.end; p += s.step)
        f(p, batch<1>());
}

/* reads N channels of U pixels from p, all before any is used */
template <typename T, int N, int U>
__device__ inline void fetch_batch(const void *data, const td_gpu_images &m, const share &s,
                                   int64_t p, elements<T, N> (&e)[U])
{
    TD_UNROLL
    for (int u = 0; u < U; u++)
        e[u] = fetch<T, N>(data, element<N>(m, p + u * s.step, s.c));
}

/* how many pixels: of one tensor, and of two */
template <typename T> constexpr int MANY = 8 / sizeof(T);
template <typename T> constexpr int SOME = MANY<T> / 2;

/* --- sums of parts ---------------------------------------------------------------------------- */

constexpr unsigned PADDED = THREADS + WIDE;

__device__ inline double *sums_at(const td_gpu_norm_work &w, int64_t part, int64_t channels,
                                  int64_t c)
{
    return w.sums + 2 * (part * channels + c);
}

/* the block has one channel */
__device__ inline void write_sums_of_one(double *to, float a, float b)
{
    const double sum_a = block_sum(a), sum_b = block_sum(b);
    if (threadIdx.x == 0) {
        to[0] = sum_a;
        to[1] = sum_b;
    }
}

/* sums a and b over the threads that have the same channels; a thread without a share has zeros */
template <int N>
__device__ inline void write_sums(const td_gpu_norm_work &w, const tile &t, int64_t channels,
                                  const float (&a)[N], const float (&b)[N])
{
    __shared__ float all[2][N * PADDED];
    if (N == 1 && t.lanes == 1) {
        write_sums_of_one(sums_at(w, blockIdx.y, channels, blockIdx.x), a[0], b[0]);
        return;
    }
    TD_UNROLL
    for (int k = 0; k < N; k++) {
        all[0][k * PADDED + threadIdx.x] = a[k];
        all[1][k * PADDED + threadIdx.x] = b[k];
    }
    __syncthreads();
    const unsigned lane = threadIdx.x % t.lanes, k = threadIdx.x / t.lanes;
    const int64_t c = (static_cast<int64_t>(blockIdx.x) * t.lanes + lane) * N + k;
    if (k >= N || c >= channels)
        return;
    double sum_a = 0, sum_b = 0;
    for (unsigned i = lane; i < THREADS / t.lanes * t.lanes; i += t.lanes) {
        sum_a += all[0][k * PADDED + i];
        sum_b += all[1][k * PADDED + i];
    }
    double *to = sums_at(w, blockIdx.y, channels, c);
    to[0] = sum_a;
    to[1] = sum_b;
}

/* sums of x - k and of its square, where k is the value of a pixel in the middle */
template <typename T, int N>
__device__ inline void add_forward(const td_gpu_norm &a, const share &s, float (&sum)[N],
                                   float (&squares)[N])
{
    float from[N];
    unpack(fetch<T, N>(a.x, middle(a.images, s.c)), from);
    each_batch<MANY<T>>(s, [&](int64_t p, auto many) {
        elements<T, N> x[many.size];
        fetch_batch(a.x, a.images, s, p, x);
        TD_UNROLL
        for (int u = 0; u < many.size; u++) {
            float v[N];
            unpack(x[u], v);
            TD_UNROLL
            for (int k = 0; k < N; k++) {
                const float d = v[k] - from[k];
                sum[k] += d;
                squares[k] += d * d;
            }
        }
    });
}

template <typename T, int N> __global__ void forward_sums(td_gpu_norm a, tile t)
{
    float sum[N] = {}, squares[N] = {};
    const share s = share_of<N>(t, a.images.channels, blockIdx.y);
    if (s.at < s.end)
        add_forward<T>(a, s, sum, squares);
    write_sums(a.work, t, a.images.channels, sum, squares);
}

/* the bits of elements i to i + N - 1; without a mask, all */
template <int N> __device__ inline unsigned mask_bits(const uint8_t *mask, int64_t i)
{
    return mask ? mask[i / 8] >> (i % 8) : 0xff;
}

template <int N, int U>
__device__ inline void fetch_bits(const uint8_t *mask, const td_gpu_images &m, const share &s,
                                  int64_t p, unsigned (&bits)[U])
{
    TD_UNROLL
    for (int u = 0; u < U; u++)
        bits[u] = mask_bits<N>(mask, element<N>(m, p + u * s.step, s.c));
}

/* dy + dy2 where the mask is set, otherwise 0 */
template <typename T, int N>
__device__ inline void masked(const elements<T, N> &dy, const elements<T, N> &dy2, unsigned bits,
                              float (&g)[N])
{
    float plus[N];
    unpack(dy, g);
    unpack(dy2, plus);
    TD_UNROLL
    for (int k = 0; k < N; k++)
        g[k] = bits >> k & 1 ? g[k] + plus[k] : 0;
}

/* a mask that was not stored: relu's input is scale x + shift.  Channels c to c + N - 1 */
template <int N> struct sign {
    float scale[N], shift[N];

    __device__ inline void read(const td_gpu_norm_grad &a, int k, int64_t c)
    {
        scale[k] = load(a.scale, a.vectors, c);
        shift[k] = load(a.shift, a.vectors, c);
    }

    __device__ inline bool passes(const td_gpu_norm_grad &a, int k, float x) const
    {
        const float y = x * scale[k] + shift[k];
        return (y > 0) & (y < a.cap);
    }
};

template <int N> __device__ inline sign<N> sign_of(const td_gpu_norm_grad &a, int64_t c)
{
    sign<N> f;
    TD_UNROLL
    for (int k = 0; k < N; k++)
        f.read(a, k, c + k);
    return f;
}

template <int N>
__device__ inline void apply_sign(const td_gpu_norm_grad &a, const sign<N> &f, const float (&x)[N],
                                  float (&g)[N])
{
    TD_UNROLL
    for (int k = 0; k < N; k++)
        g[k] = f.passes(a, k, x[k]) ? g[k] : 0;
}

/* sums of g and of g (x - mean), with the sign of scale x + shift as mask */
template <typename T, int N>
__device__ inline void add_signed(const td_gpu_norm_grad &a, const share &s, float (&sum)[N],
                                  float (&dot)[N])
{
    float mean[N];
    const sign<N> f = sign_of<N>(a, s.c);
    unpack(fetch<float, N>(a.mean, s.c), mean);
    each_batch<SOME<T>>(s, [&](int64_t p, auto some) {
        elements<T, N> dy[some.size], x[some.size];
        fetch_batch(a.dy, a.images, s, p, dy);
        fetch_batch(a.x, a.images, s, p, x);
        TD_UNROLL
        for (int u = 0; u < some.size; u++) {
            float g[N], v[N];
            unpack(dy[u], g);
            unpack(x[u], v);
            apply_sign(a, f, v, g);
            TD_UNROLL
            for (int k = 0; k < N; k++) {
                sum[k] += g[k];
                dot[k] += g[k] * (v[k] - mean[k]);
            }
        }
    });
}

template <typename T, int N> __global__ void signed_sums(td_gpu_norm_grad a, tile t)
{
    float sum[N] = {}, dot[N] = {};
    const share s = share_of<N>(t, a.images.channels, blockIdx.y);
    if (s.at < s.end)
        add_signed<T>(a, s, sum, dot);
    write_sums(a.work, t, a.images.channels, sum, dot);
}

/* sums of g and of g (x - mean); writes dz */
template <typename T, int N>
__device__ inline void add_backward(const td_gpu_norm_grad &a, const share &s, float (&sum)[N],
                                    float (&dot)[N])
{
    float mean[N];
    unpack(fetch<float, N>(a.mean, s.c), mean);
    each_batch<SOME<T>>(s, [&](int64_t p, auto some) {
        elements<T, N> dy[some.size], x[some.size], dy2[some.size] = {};
        unsigned bits[some.size];
        fetch_batch(a.dy, a.images, s, p, dy);
        fetch_batch(a.x, a.images, s, p, x);
        if (a.dy2)
            fetch_batch(a.dy2, a.images, s, p, dy2);
        fetch_bits<N>(a.mask, a.images, s, p, bits);
        TD_UNROLL
        for (int u = 0; u < some.size; u++) {
            float g[N], v[N];
            masked<T>(dy[u], dy2[u], bits[u], g);
            unpack(x[u], v);
            if (a.dz)
                write<T>(a.dz, element<N>(a.images, p + u * s.step, s.c), g);
            TD_UNROLL
            for (int k = 0; k < N; k++) {
                sum[k] += g[k];
                dot[k] += g[k] * (v[k] - mean[k]);
            }
        }
    });
}

template <typename T, int N> __global__ void backward_sums(td_gpu_norm_grad a, tile t)
{
    float sum[N] = {}, dot[N] = {};
    const share s = share_of<N>(t, a.images.channels, blockIdx.y);
    if (s.at < s.end)
        add_backward<T>(a, s, sum, dot);
    write_sums(a.work, t, a.images.channels, sum, dot);
}

/* --- joining the parts ------------------------------------------------------------------------ */

/* the threads of a block: JOINED channels, and for each as many threads that share the parts */
constexpr unsigned JOINED = 2; /* 32 bytes of sums, the least that memory reads */

struct totals {
    double a, b;
};

__device__ inline int64_t joined_channel()
{
    return static_cast<int64_t>(blockIdx.x) * JOINED + threadIdx.x % JOINED;
}

/* the sums of joined_channel() over all parts, on the first JOINED threads */
__device__ inline totals join_parts(const td_gpu_norm_work &w, int64_t channels)
{
    __shared__ double all[2][THREADS];
    const int64_t c = joined_channel();
    totals t = { 0, 0 };
    for (int64_t i = threadIdx.x / JOINED; c < channels && i < w.n_parts; i += THREADS / JOINED) {
        const double *part = sums_at(w, i, channels, c);
        t.a += part[0];
        t.b += part[1];
    }
    all[0][threadIdx.x] = t.a;
    all[1][threadIdx.x] = t.b;
    for (unsigned half = THREADS / 2; half >= JOINED; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            t.a = all[0][threadIdx.x] += all[0][threadIdx.x + half];
            t.b = all[1][threadIdx.x] += all[1][threadIdx.x + half];
        }
    }
    return t;
}

enum coef { MEAN, SCALE, SHIFT, SLOPE };

__device__ inline int64_t coef_at(int64_t channels, coef k, int64_t c)
{
    return k * channels + c;
}

__device__ inline void set_coef(const td_gpu_norm_work &w, int64_t channels, coef k, int64_t c,
                                double v)
{
    w.coefs[coef_at(channels, k, c)] = static_cast<float>(v);
}

/* from the stored statistics, so that given ones have the same bits in y */
__device__ inline void set_forward(const td_gpu_norm &a, int64_t c)
{
    const int64_t n = a.images.channels;
    set_coef(a.work, n, MEAN, c, a.mean[c]);
    set_coef(a.work, n, SCALE, c, a.gamma[c] / sqrt(a.var[c] + a.eps));
    set_coef(a.work, n, SHIFT, c, a.beta[c]);
}

__global__ void forward_join(td_gpu_norm a)
{
    const int64_t c = joined_channel();
    const double count = static_cast<double>(a.images.n * a.images.area);
    const totals t = join_parts(a.work, a.images.channels);
    if (threadIdx.x >= JOINED || c >= a.images.channels)
        return;
    const double mean = t.a / count, var = t.b / count - mean * mean;
    a.mean[c] = static_cast<float>(load(a.x, a.images.dtype, middle(a.images, c)) + mean);
    a.var[c] = static_cast<float>(var < 0 ? 0 : var); /* NaN stays */
    set_forward(a, c);
}

__global__ void forward_given(td_gpu_norm a)
{
    for (int64_t c = thread_index(); c < a.images.channels; c += thread_count())
        set_forward(a, c);
}

__global__ void backward_join(td_gpu_norm_grad a)
{
    const int64_t c = joined_channel(), n = a.images.channels;
    const double count = static_cast<double>(a.images.n * a.images.area);
    const totals t = join_parts(a.work, n);
    if (threadIdx.x >= JOINED || c >= n)
        return;
    const double rstd = 1 / sqrt(a.var[c] + a.eps);
    a.dbeta[c] = static_cast<float>(t.a);
    a.dgamma[c] = static_cast<float>(t.b * rstd);
    set_coef(a.work, n, MEAN, c, a.mean[c]);
    set_coef(a.work, n, SCALE, c, a.gamma[c] * rstd);
    set_coef(a.work, n, SHIFT, c, a.is_given ? 0 : t.a / count);
    set_coef(a.work, n, SLOPE, c, a.is_given ? 0 : t.b * rstd * rstd / count);
}

/* --- applying the coefficients ---------------------------------------------------------------- */

struct coefs {
    float mean[WIDE], scale[WIDE], shift[WIDE], slope[WIDE];
};

template <typename Args>
__device__ inline void read_coefs(const Args &a, int k, int64_t c, coefs &f)
{
    const int64_t n = a.images.channels;
    const float *from = a.work.coefs;
    f.mean[k] = from[coef_at(n, MEAN, c)];
    f.scale[k] = from[coef_at(n, SCALE, c)];
    f.shift[k] = from[coef_at(n, SHIFT, c)];
    if constexpr (std::is_same<Args, td_gpu_norm_grad>::value)
        f.slope[k] = from[coef_at(n, SLOPE, c)];
}

/* the coefficients for channels c to c + 7 */
template <typename Args> __device__ inline coefs wide_coefs(const Args &a, int64_t c)
{
    const int64_t n = a.images.channels;
    const float *from = a.work.coefs;
    coefs f;
    unpack(fetch<float, WIDE>(from, coef_at(n, MEAN, c)), f.mean);
    unpack(fetch<float, WIDE>(from, coef_at(n, SCALE, c)), f.scale);
    unpack(fetch<float, WIDE>(from, coef_at(n, SHIFT, c)), f.shift);
    if constexpr (std::is_same<Args, td_gpu_norm_grad>::value)
        unpack(fetch<float, WIDE>(from, coef_at(n, SLOPE, c)), f.slope);
    return f;
}

/* the coefficients for the channels that elements i to i + n - 1 belong to */
template <typename Args> __device__ inline coefs any_coefs(const Args &a, int64_t i, int n)
{
    const int64_t inner = a.images.is_channels_last ? 1 : a.images.area;
    int64_t c = i / inner % a.images.channels, at = i % inner;
    coefs f = {};
    TD_UNROLL
    for (int k = 0; k < WIDE; k++) {
        if (k < n)
            read_coefs(a, k, c, f);
        if (++at == inner) {
            at = 0;
            c = c + 1 < a.images.channels ? c + 1 : 0;
        }
    }
    return f;
}

/* clips y; the bits of what was between 0 and cap */
__device__ inline unsigned clip(float cap, float (&y)[WIDE])
{
    unsigned bits = 0;
    TD_UNROLL
    for (int k = 0; k < WIDE; k++) {
        bits |= static_cast<unsigned>((y[k] > 0) & (y[k] < cap)) << k;
        y[k] = y[k] < 0 ? 0 : y[k]; /* NaN stays */
        y[k] = y[k] > cap ? cap : y[k];
    }
    return bits;
}

/* elements i to i + n - 1 of y, from those of x and z */
template <typename T>
__device__ inline void put_forward(const td_gpu_norm &a, const coefs &f, int64_t i, int n,
                                   const float (&x)[WIDE], const float (&z)[WIDE])
{
    float y[WIDE];
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        y[k] = (x[k] - f.mean[k]) * f.scale[k] + f.shift[k] + z[k];
    if (a.cap > 0) {
        const unsigned bits = clip(a.cap, y);
        if (a.mask)
            a.mask[i / 8] = static_cast<uint8_t>(bits);
    }
    write_some<T>(a.y, i, n, y);
}

template <typename T> __global__ void forward_wide(td_gpu_norm a, tile t)
{
    const share s = share_of<WIDE>(t, a.images.channels, part_from_end(t));
    if (s.at >= s.end)
        return;
    const coefs f = wide_coefs(a, s.c);
    each_batch<SOME<T>>(s, [&](int64_t p, auto some) {
        elements<T, WIDE> x[some.size], z[some.size] = {};
        fetch_batch(a.x, a.images, s, p, x);
        if (a.z)
            fetch_batch(a.z, a.images, s, p, z);
        TD_UNROLL
        for (int u = 0; u < some.size; u++) {
            float v[WIDE], plus[WIDE];
            unpack(x[u], v);
            unpack(z[u], plus);
            put_forward<T>(a, f, element<WIDE>(a.images, p + u * s.step, s.c), WIDE, v, plus);
        }
    });
}

/* a thread has elements i to i + n - 1, consecutive in memory; n is 8 but at the end */
__device__ inline int length_at(int64_t i, int64_t count)
{
    return static_cast<int>(count - i < WIDE ? count - i : WIDE);
}

__device__ inline int64_t count_of(const td_gpu_images &m)
{
    return m.n * m.channels * m.area;
}

template <typename T> __global__ void forward_any(td_gpu_norm a)
{
    const int64_t count = count_of(a.images);
    for (int64_t i = thread_index() * WIDE; i < count; i += thread_count() * WIDE) {
        const int n = length_at(i, count);
        float x[WIDE], z[WIDE] = {};
        read_some<T>(a.x, i, n, x);
        if (a.z)
            read_some<T>(a.z, i, n, z);
        put_forward<T>(a, any_coefs(a, i, n), i, n, x, z);
    }
}

/* elements i to i + n - 1 of dx, from those of g and x */
template <typename T>
__device__ inline void put_backward(const td_gpu_norm_grad &a, const coefs &f, int64_t i, int n,
                                    const float (&g)[WIDE], const float (&x)[WIDE])
{
    float dx[WIDE];
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        dx[k] = f.scale[k] * (g[k] - f.shift[k] - (x[k] - f.mean[k]) * f.slope[k]);
    write_some<T>(a.dx, i, n, dx);
}

/* g: dz, which the sums have written, or else dy under the mask */
template <typename T> __global__ void backward_wide(td_gpu_norm_grad a, tile t)
{
    const share s = share_of<WIDE>(t, a.images.channels, part_from_end(t));
    if (s.at >= s.end)
        return;
    const coefs f = wide_coefs(a, s.c);
    each_batch<SOME<T>>(s, [&](int64_t p, auto some) {
        elements<T, WIDE> dy[some.size], x[some.size];
        unsigned bits[some.size];
        fetch_batch(a.dz ? a.dz : a.dy, a.images, s, p, dy);
        fetch_batch(a.x, a.images, s, p, x);
        fetch_bits<WIDE>(a.dz ? nullptr : a.mask, a.images, s, p, bits);
        TD_UNROLL
        for (int u = 0; u < some.size; u++) {
            float g[WIDE], v[WIDE];
            masked<T>(dy[u], elements<T, WIDE>{}, bits[u], g);
            unpack(x[u], v);
            put_backward<T>(a, f, element<WIDE>(a.images, p + u * s.step, s.c), WIDE, g, v);
        }
    });
}

template <typename T> __global__ void signed_wide(td_gpu_norm_grad a, tile t)
{
    const share s = share_of<WIDE>(t, a.images.channels, part_from_end(t));
    if (s.at >= s.end)
        return;
    const coefs f = wide_coefs(a, s.c);
    const sign<WIDE> z = sign_of<WIDE>(a, s.c);
    each_batch<SOME<T>>(s, [&](int64_t p, auto some) {
        elements<T, WIDE> dy[some.size], x[some.size];
        fetch_batch(a.dy, a.images, s, p, dy);
        fetch_batch(a.x, a.images, s, p, x);
        TD_UNROLL
        for (int u = 0; u < some.size; u++) {
            float g[WIDE], v[WIDE];
            unpack(dy[u], g);
            unpack(x[u], v);
            apply_sign(a, z, v, g);
            put_backward<T>(a, f, element<WIDE>(a.images, p + u * s.step, s.c), WIDE, g, v);
        }
    });
}

/* the channel of element i in memory order */
__device__ inline int64_t channel_of(const td_gpu_images &m, int64_t i)
{
    return i / (m.is_channels_last ? 1 : m.area) % m.channels;
}

template <typename T> __global__ void signed_any(td_gpu_norm_grad a)
{
    const int64_t count = count_of(a.images);
    for (int64_t i = thread_index() * WIDE; i < count; i += thread_count() * WIDE) {
        const int n = length_at(i, count);
        float g[WIDE], x[WIDE];
        read_some<T>(a.dy, i, n, g);
        read_some<T>(a.x, i, n, x);
        TD_UNROLL
        for (int k = 0; k < WIDE; k++) {
            sign<1> z;
            z.read(a, 0, channel_of(a.images, k < n ? i + k : i));
            g[k] = z.passes(a, 0, x[k]) ? g[k] : 0;
        }
        put_backward<T>(a, any_coefs(a, i, n), i, n, g, x);
    }
}

template <typename T> __global__ void backward_any(td_gpu_norm_grad a)
{
    const int64_t count = count_of(a.images);
    const uint8_t *mask = a.dz ? nullptr : a.mask;
    for (int64_t i = thread_index() * WIDE; i < count; i += thread_count() * WIDE) {
        const int n = length_at(i, count);
        const unsigned bits = mask_bits<WIDE>(mask, i);
        float g[WIDE], x[WIDE];
        read_some<T>(a.dz ? a.dz : a.dy, i, n, g);
        read_some<T>(a.x, i, n, x);
        TD_UNROLL
        for (int k = 0; k < WIDE; k++)
            g[k] = bits >> k & 1 ? g[k] : 0;
        put_backward<T>(a, any_coefs(a, i, n), i, n, g, x);
    }
}

/* --- vectors ---------------------------------------------------------------------------------- */

__global__ void scale_kernel(td_gpu_norm_scale a)
{
    for (int64_t c = thread_index(); c < a.channels; c += thread_count())
        a.scale[c] = static_cast<float>(a.gamma[c] / sqrt(a.var[c] + a.eps));
}

/* sums of float32 cancel: the variance may come out below 0 */
template <typename V> __global__ void statistics_kernel(td_gpu_norm_statistics a)
{
    for (int64_t c = thread_index(); c < a.channels; c += thread_count()) {
        const double mean = a.sum[c] / a.count, var = a.squares[c] / a.count - mean * mean;
        a.mean[c] = static_cast<float>(mean);
        a.var[c] = static_cast<float>(var < 0 ? 0 : var); /* NaN stays */
        const double scale = a.gamma[c] / sqrt(a.var[c] + a.eps);
        static_cast<V *>(a.scale)[c] = from_float<V>(static_cast<float>(scale));
        static_cast<V *>(a.shift)[c] =
            from_float<V>(static_cast<float>(a.beta[c] - a.mean[c] * scale));
    }
}

/* --- launches --------------------------------------------------------------------------------- */

unsigned join_blocks(const td_gpu_images &m)
{
    return static_cast<unsigned>((m.channels + JOINED - 1) / JOINED);
}

unsigned any_blocks(const td_gpu_images &m)
{
    return blocks_for((m.n * m.channels * m.area + WIDE - 1) / WIDE);
}

template <typename T> void start_forward_sums(const td_gpu_norm &a, const tile &t)
{
    if (is_wide(a.images))
        TD_LAUNCH((forward_sums<T, WIDE>), grid_of(t), THREADS, 0, queue(), a, t);
    else
        TD_LAUNCH((forward_sums<T, 1>), grid_of(t), THREADS, 0, queue(), a, t);
    TD_LAUNCH(forward_join, join_blocks(a.images), THREADS, 0, queue(), a);
}

template <typename T> void start_forward(const td_gpu_norm &a)
{
    const tile t = tile_of(a.images, a.work.n_parts);
    if (a.is_given)
        TD_LAUNCH(forward_given, blocks_for(a.images.channels), THREADS, 0, queue(), a);
    else
        start_forward_sums<T>(a, t);
    if (is_wide(a.images))
        TD_LAUNCH(forward_wide<T>, grid_of(t), THREADS, 0, queue(), a, t);
    else
        TD_LAUNCH(forward_any<T>, any_blocks(a.images), THREADS, 0, queue(), a);
}

template <typename T> void start_signed(const td_gpu_norm_grad &a, const tile &t)
{
    if (is_wide(a.images))
        TD_LAUNCH((signed_sums<T, WIDE>), grid_of(t), THREADS, 0, queue(), a, t);
    else
        TD_LAUNCH((signed_sums<T, 1>), grid_of(t), THREADS, 0, queue(), a, t);
    TD_LAUNCH(backward_join, join_blocks(a.images), THREADS, 0, queue(), a);
    if (is_wide(a.images))
        TD_LAUNCH(signed_wide<T>, grid_of(t), THREADS, 0, queue(), a, t);
    else
        TD_LAUNCH(signed_any<T>, any_blocks(a.images), THREADS, 0, queue(), a);
}

template <typename T> void start_backward(const td_gpu_norm_grad &a)
{
    const tile t = tile_of(a.images, a.work.n_parts);
    if (a.scale) {
        start_signed<T>(a, t);
        return;
    }
    if (is_wide(a.images))
        TD_LAUNCH((backward_sums<T, WIDE>), grid_of(t), THREADS, 0, queue(), a, t);
    else
        TD_LAUNCH((backward_sums<T, 1>), grid_of(t), THREADS, 0, queue(), a, t);
    TD_LAUNCH(backward_join, join_blocks(a.images), THREADS, 0, queue(), a);
    if (is_wide(a.images))
        TD_LAUNCH(backward_wide<T>, grid_of(t), THREADS, 0, queue(), a, t);
    else
        TD_LAUNCH(backward_any<T>, any_blocks(a.images), THREADS, 0, queue(), a);
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *norm(const td_gpu_norm *a)
{
    with_type(a->images.dtype, [=](auto zero) { start_forward<decltype(zero)>(*a); });
    return started();
}

const char *norm_grad(const td_gpu_norm_grad *a)
{
    with_type(a->images.dtype, [=](auto zero) { start_backward<decltype(zero)>(*a); });
    return started();
}

const char *norm_scale(const td_gpu_norm_scale *a)
{
    TD_LAUNCH(scale_kernel, blocks_for(a->channels), THREADS, 0, queue(), *a);
    return started();
}

const char *norm_statistics(const td_gpu_norm_statistics *a)
{
    with_type(a->vectors, [=](auto zero) {
        TD_LAUNCH(statistics_kernel<decltype(zero)>, blocks_for(a->channels), THREADS, 0, queue(),
                  *a);
    });
    return started();
}

} // namespace tandem
