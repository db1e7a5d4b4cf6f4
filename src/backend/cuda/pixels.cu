/*
 * pixels.cu -- images whose channels are last: sums over pixels, and vectors added to pixels
 *
 * A thread has a.width neighbouring channels, and several pixels in flight.
 *
 *     sums    of pixels, of products, or of products with a gradient that is masked and kept on the
 *             way; a block has some channels of one part of an image's pixels; the sums of 32
 *             pixels are float32, everything else float64.  Where an image, or the result, has
 *             several parts, a second kernel adds them.
 *     map     a block has consecutive elements of an image
 *
 * The order of every sum depends on the shape only.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem
{
namespace
{

/* --- 2, 4, 8 or 16 bytes at a time ------------------------------------------------------------ */

template <int BYTES> struct raw;
template <> struct raw<2> {
    typedef unsigned short type;
};
template <> struct raw<4> {
    typedef unsigned type;
};
template <> struct raw<8> {
    typedef uint2 type;
};
template <> struct raw<16> {
    typedef uint4 type;
};

/* N neighbouring elements, as they are in memory */
template <typename T, int N> struct pack {
    static constexpr int BYTES = int(sizeof(T)) * N, EACH = BYTES < 16 ? BYTES : 16;
    typedef typename raw<EACH>::type piece;
    piece part[BYTES / EACH];
};

template <typename T, int N> __device__ inline pack<T, N> fetch_pack(const void *data, int64_t i)
{
    typedef typename pack<T, N>::piece piece;
    const piece *from = reinterpret_cast<const piece *>(static_cast<const T *>(data) + i);
    pack<T, N> p;
    TD_UNROLL
    for (int k = 0; k < p.BYTES / p.EACH; k++)
        p.part[k] = from[k];
    return p;
}

template <typename T, int N>
__device__ inline void store_pack(void *data, int64_t i, const pack<T, N> &p)
{
    typedef typename pack<T, N>::piece piece;
    piece *to = reinterpret_cast<piece *>(static_cast<T *>(data) + i);
    TD_UNROLL
    for (int k = 0; k < p.BYTES / p.EACH; k++)
        __stwb(to + k, p.part[k]);
}

template <typename T, int N> __device__ inline void unpack_all(const pack<T, N> &p, float (&v)[N])
{
    T each[N];
    memcpy(each, p.part, sizeof each);
    TD_UNROLL
    for (int k = 0; k < N; k++)
        v[k] = to_float(each[k]);
}

template <typename T, int N> __device__ inline pack<T, N> packed(const float (&v)[N])
{
    pack<T, N> p;
    T each[N];
    TD_UNROLL
    for (int k = 0; k < N; k++)
        each[k] = from_float<T>(v[k]);
    memcpy(p.part, each, sizeof each);
    return p;
}

/* --- sums over pixels ------------------------------------------------------------------------- */

constexpr int FETCHED = 4;              /* pixels before the first is used */
constexpr int CHUNK = 32;               /* pixels that are summed in float32 */
constexpr unsigned LEAST_LANES = 8;     /* threads with neighbouring channels */
constexpr int64_t WANTED_BLOCKS = 1024; /* as many keep the largest GPUs busy */

/* blockIdx.x: `lanes` vectors of channels; blockIdx.y: a part of an image */
struct tile {
    unsigned lanes, groups, rows;
    int64_t per_part; /* pixels */
    int64_t pieces;   /* parts of all images */
};

tile tile_of(const td_gpu_pixel_sums &s)
{
    tile t = {};
    const auto vectors = static_cast<unsigned>(s.channels / s.width);
    t.pieces = s.n * s.n_parts;
    t.per_part = (s.area + s.n_parts - 1) / s.n_parts;
    for (unsigned most = WARP;; most /= 2) {
        t.groups = (vectors + most - 1) / most;
        t.lanes = (vectors + t.groups - 1) / t.groups;
        t.rows = THREADS / t.lanes;
        const bool is_short = t.per_part < 2 * FETCHED * static_cast<int64_t>(t.rows);
        if (most == LEAST_LANES || is_short || t.groups * t.pieces >= WANTED_BLOCKS)
            return t;
    }
}

/* pixels p, p + rows, ... before `end` of channels c to c + N - 1; those after it are 0 */
template <typename T, int N>
__device__ inline void fetch_pixels(const td_gpu_pixel_sums &s, const void *data, int64_t at,
                                    int64_t p, int64_t end, int rows, pack<T, N> (&x)[FETCHED])
{
    TD_UNROLL
    for (int u = 0; u < FETCHED; u++)
        x[u] = p + u * rows < end ? fetch_pack<T, N>(data, at + (p + u * rows) * s.channels)
                                  : pack<T, N>{};
}

/* what is summed: x; x z; or x z of the x that is kept, made of one operand or of two */
enum terms { PLAIN, PRODUCT, KEPT, KEPT_OF_TWO };

/* v becomes v + x2 where `where` is above 0, otherwise 0; it is written, rounded, to element i of
   kept */
template <typename T, int N, bool HAS_TWO>
__device__ inline void keep(const td_gpu_pixel_sums &s, int64_t i, const pack<T, N> &where,
                            const pack<T, N> &x2, float (&v)[N])
{
    float positive[N], plus[N] = {};
    unpack_all(where, positive);
    if constexpr (HAS_TWO)
        unpack_all(x2, plus);
    TD_UNROLL
    for (int k = 0; k < N; k++)
        v[k] = positive[k] > 0 ? v[k] + plus[k] : 0;
    store_pack<T, N>(s.kept, i, packed<T, N>(v));
}

/* sum += the pixels p, p + rows, ... of [p, end) of image elements from `at` */
template <typename T, int N, terms TERMS>
__device__ inline void sum_of(const td_gpu_pixel_sums &s, int64_t at, int64_t p, int64_t end,
                              int rows, double (&sum)[N])
{
    while (p < end) {
        float few[N] = {};
        const int64_t stop = p + CHUNK * rows;
        for (; p < end && p < stop; p += FETCHED * rows) {
            constexpr bool IS_KEPT = TERMS == KEPT || TERMS == KEPT_OF_TWO;
            constexpr bool HAS_TWO = TERMS == KEPT_OF_TWO;
            pack<T, N> x[FETCHED], z[TERMS == PLAIN ? 1 : FETCHED];
            pack<T, N> where[IS_KEPT ? FETCHED : 1], x2[HAS_TWO ? FETCHED : 1];
            fetch_pixels<T, N>(s, s.x, at, p, end, rows, x);
            if constexpr (TERMS != PLAIN)
                fetch_pixels<T, N>(s, s.z, at, p, end, rows, z);
            if constexpr (IS_KEPT)
                fetch_pixels<T, N>(s, s.where, at, p, end, rows, where);
            if constexpr (HAS_TWO)
                fetch_pixels<T, N>(s, s.x2, at, p, end, rows, x2);
            TD_UNROLL
            for (int u = 0; u < FETCHED; u++) {
                float v[N], by[N];
                unpack_all(x[u], v);
                if constexpr (TERMS != PLAIN)
                    unpack_all(z[u], by);
                if constexpr (IS_KEPT) {
                    if (p + u * rows >= end)
                        continue;
                    keep<T, N, HAS_TWO>(s, at + (p + u * rows) * s.channels, where[u],
                                        x2[HAS_TWO ? u : 0], v);
                }
                TD_UNROLL
                for (int k = 0; k < N; k++)
                    few[k] += TERMS == PLAIN ? v[k] : v[k] * by[k];
            }
        }
        TD_UNROLL
        for (int k = 0; k < N; k++)
            sum[k] += few[k];
    }
}

/* the sums over the block's rows, on row 0 */
template <int N> __device__ inline void join_rows(const tile &t, double (&sum)[N])
{
    constexpr unsigned padded = THREADS + N;
    __shared__ double all[N * padded];
    const unsigned lane = threadIdx.x % t.lanes, row = threadIdx.x / t.lanes;
    TD_UNROLL
    for (int k = 0; k < N; k++)
        all[k * padded + threadIdx.x] = sum[k];
    for (unsigned n = t.rows; n > 1; n = (n + 1) / 2) {
        const unsigned half = (n + 1) / 2;
        __syncthreads();
        if (row + half < n) {
            TD_UNROLL
            for (int k = 0; k < N; k++)
                all[k * padded + threadIdx.x] += all[k * padded + (row + half) * t.lanes + lane];
        }
    }
    __syncthreads();
    TD_UNROLL
    for (int k = 0; k < N; k++)
        sum[k] = all[k * padded + threadIdx.x];
    __syncthreads(); /* `all` is written for the next piece */
}

/* how many pieces make a result */
__host__ __device__ inline int64_t pieces_of_result(const td_gpu_pixel_sums &s)
{
    return s.is_total ? s.n * s.n_parts : s.n_parts;
}

template <typename T, int N, terms TERMS> __global__ void sum_pixels(td_gpu_pixel_sums s, tile t)
{
    const unsigned lane = threadIdx.x % t.lanes, row = threadIdx.x / t.lanes;
    const int64_t c = (static_cast<int64_t>(blockIdx.x) * t.lanes + lane) * N;
    const bool is_alone = pieces_of_result(s) == 1, has_share = c < s.channels && row < t.rows;
    for (int64_t i = blockIdx.y; i < t.pieces; i += gridDim.y) {
        const int64_t start = i % s.n_parts * t.per_part, stop = start + t.per_part;
        double sum[N] = {};
        if (has_share)
            sum_of<T, N, TERMS>(s, i / s.n_parts * s.step + c, start + row,
                                stop < s.area ? stop : s.area, static_cast<int>(t.rows), sum);
        join_rows(t, sum);
        if (!has_share || row > 0)
            continue;
        TD_UNROLL
        for (int k = 0; k < N; k++) {
            const int64_t at = i * s.channels + c + k;
            if (is_alone)
                store(s.y, s.result, at, static_cast<float>(s.by * sum[k]));
            else
                s.sums[at] = sum[k];
        }
    }
}

/* a block of add_pieces: JOINED channels of a result, and for each as many threads for the pieces;
   32 bytes of sums are the least that memory reads */
constexpr unsigned JOINED = 4;

__global__ void add_pieces(td_gpu_pixel_sums s)
{
    const int64_t each = pieces_of_result(s), results = s.is_total ? 1 : s.n;
    const int64_t c = static_cast<int64_t>(blockIdx.x) * JOINED + threadIdx.x % JOINED;
    for (int64_t r = blockIdx.y; r < results; r += gridDim.y) {
        double sum = 0;
        for (int64_t i = threadIdx.x / JOINED; c < s.channels && i < each; i += THREADS / JOINED)
            sum += s.sums[(r * each + i) * s.channels + c];
        sum = lane_sum<JOINED>(sum);
        if (threadIdx.x < JOINED && c < s.channels)
            store(s.y, s.result, r * s.channels + c, static_cast<float>(s.by * sum));
    }
}

/* --- vectors added to pixels ------------------------------------------------------------------ */

/* numbers i to i + N - 1 of v, of dtype T or float32 */
template <typename T, int N>
__device__ inline void read_vector(const td_gpu_pixel_map &m, int64_t i, float (&v)[N])
{
    if (m.vector == TD_DT_F32)
        unpack_all(fetch_pack<float, N>(m.v, i), v);
    else
        unpack_all(fetch_pack<T, N>(m.v, i), v);
}

template <typename X, typename Y, int N>
__device__ inline pack<Y, N> pixel_of(const td_gpu_pixel_map &m, const pack<X, N> &x, int64_t v_at)
{
    float y[N] = {}, v[N];
    if (m.x)
        unpack_all(x, y);
    if (m.v) {
        read_vector<X, N>(m, v_at, v);
        TD_UNROLL
        for (int k = 0; k < N; k++)
            y[k] += m.by * v[k];
    } else if constexpr (std::is_same<X, Y>::value) {
        return x; /* its bits */
    }
    return packed<Y, N>(y);
}

/* blockIdx.y: an image */
template <typename X, typename Y, int N> __global__ void map_pixels(td_gpu_pixel_map m)
{
    const auto vectors = static_cast<unsigned>(m.channels / N);
    const unsigned count = static_cast<unsigned>(m.area) * vectors;
    for (int64_t image = blockIdx.y; image < m.n; image += gridDim.y)
        for (unsigned i = blockIdx.x * THREADS * FETCHED + threadIdx.x; i < count;
             i += gridDim.x * THREADS * FETCHED) {
            pack<X, N> x[FETCHED] = {};
            TD_UNROLL
            for (int u = 0; u < FETCHED; u++) {
                const unsigned at = i + u * THREADS;
                if (m.x && at < count)
                    x[u] = fetch_pack<X, N>(m.x, image * m.x_step + static_cast<int64_t>(at) * N);
            }
            TD_UNROLL
            for (int u = 0; u < FETCHED; u++) {
                const unsigned at = i + u * THREADS;
                if (at < count)
                    store_pack(m.y, image * m.y_step + static_cast<int64_t>(at) * N,
                               pixel_of<X, Y, N>(m, x[u], image * m.v_step + at % vectors * N));
            }
        }
}

/* --- launches --------------------------------------------------------------------------------- */

unsigned at_most_65535(int64_t n)
{
    return static_cast<unsigned>(n < 65535 ? n : 65535);
}

/* f(the width as a constant) */
template <typename F> void with_width(int width, F f)
{
    switch (width) {
    case 8:
        f(std::integral_constant<int, 8>());
        break;
    case 4:
        f(std::integral_constant<int, 4>());
        break;
    case 2:
        f(std::integral_constant<int, 2>());
        break;
    default:
        f(std::integral_constant<int, 1>());
    }
}

template <typename T, int N> void start_sums(const td_gpu_pixel_sums &s)
{
    const tile t = tile_of(s);
    const dim3 blocks(t.groups, at_most_65535(t.pieces));
    if (s.kept && s.x2)
        TD_LAUNCH((sum_pixels<T, N, KEPT_OF_TWO>), blocks, THREADS, 0, queue(), s, t);
    else if (s.kept)
        TD_LAUNCH((sum_pixels<T, N, KEPT>), blocks, THREADS, 0, queue(), s, t);
    else if (s.z)
        TD_LAUNCH((sum_pixels<T, N, PRODUCT>), blocks, THREADS, 0, queue(), s, t);
    else
        TD_LAUNCH((sum_pixels<T, N, PLAIN>), blocks, THREADS, 0, queue(), s, t);
    const dim3 results((s.channels + JOINED - 1) / JOINED, at_most_65535(s.is_total ? 1 : s.n));
    if (pieces_of_result(s) > 1)
        TD_LAUNCH(add_pieces, results, THREADS, 0, queue(), s);
}

template <typename X, typename Y> void start_map(const td_gpu_pixel_map &m)
{
    const int64_t each = THREADS * FETCHED, count = m.area * (m.channels / m.width);
    const dim3 blocks(at_most_65535((count + each - 1) / each), at_most_65535(m.n));
    with_width(m.width, [=](auto width) {
        TD_LAUNCH((map_pixels<X, Y, width.value>), blocks, THREADS, 0, queue(), m);
    });
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *pixel_sums(const td_gpu_pixel_sums *s)
{
    with_type(s->dtype, [=](auto zero) {
        with_width(s->width, [=](auto width) { start_sums<decltype(zero), width.value>(*s); });
    });
    return started();
}

const char *pixel_map(const td_gpu_pixel_map *m)
{
    if (m->dtype == m->result)
        with_type(m->dtype, [=](auto x) { start_map<decltype(x), decltype(x)>(*m); });
    else if (m->dtype == TD_DT_F32)
        with_type(m->result, [=](auto y) { start_map<float, decltype(y)>(*m); });
    else
        with_type(m->dtype, [=](auto x) { start_map<decltype(x), float>(*m); });
    return started();
}

} // namespace tandem
