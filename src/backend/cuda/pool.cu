/*
 * pool.cu -- pooling and resizing: a thread has one result, or eight neighbouring channels
 *
 * No dimension is above INT32_MAX.
 * Gradients collect: a pixel adds the windows that contain it, in their order, so no two threads
 * write to one place.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem
{
namespace
{

enum { BATCH = TD_GPU_RANK - 4, CHANNEL, ROW, COLUMN };

/* --- places ----------------------------------------------------------------------------------- */

/* N channels from c of a pixel; a GPU divides numbers of 64 bits several times slower */
struct place {
    int n, c, row, column;
};

__device__ inline int64_t offset(const td_gpu_tensor &t, const place &p)
{
    return p.n * t.stride[BATCH] + p.c * t.stride[CHANNEL] + p.row * t.stride[ROW] +
           p.column * t.stride[COLUMN];
}

__device__ inline int size_of(const td_gpu_tensor &t, int dim)
{
    return static_cast<int>(t.dim[dim]);
}

__host__ __device__ inline int64_t count_of(const td_gpu_tensor &t, int each)
{
    return t.dim[BATCH] * (t.dim[CHANNEL] / each) * t.dim[ROW] * t.dim[COLUMN];
}

/* item i of those of N channels, in the order of memory; I: an unsigned type */
template <int N, typename I> __device__ inline place place_in(const td_gpu_tensor &t, I i)
{
    const bool is_last = t.stride[CHANNEL] == 1;
    const I vectors = static_cast<I>(t.dim[CHANNEL]) / N, columns = static_cast<I>(t.dim[COLUMN]);
    const I rows = static_cast<I>(t.dim[ROW]);
    place p;
    if (is_last) {
        p.c = static_cast<int>(i % vectors) * N;
        i /= vectors;
    }
    p.column = static_cast<int>(i % columns);
    i /= columns;
    p.row = static_cast<int>(i % rows);
    i /= rows;
    if (!is_last) {
        p.c = static_cast<int>(i % vectors) * N;
        i /= vectors;
    }
    p.n = static_cast<int>(i);
    return p;
}

/* `count`: of all items */
template <int N> __device__ inline place place_of(const td_gpu_tensor &t, int64_t i, int64_t count)
{
    return count <= UINT32_MAX ? place_in<N>(t, static_cast<uint32_t>(i))
                               : place_in<N>(t, static_cast<uint64_t>(i));
}

struct range {
    int from, to;
};

__device__ inline range clipped(int from, int to, int size)
{
    return { from > 0 ? from : 0, to < size ? to : size };
}

/* a window's pixels along one side */
__device__ inline int side_of(const td_gpu_pool &a, int dim)
{
    return dim == ROW ? a.kernel : a.width;
}

/* the pixels of window i along one side that are inside the image */
__device__ inline range pixels_of(const td_gpu_pool &a, int i, int dim)
{
    const int at = i * a.stride - a.pad;
    return clipped(at, at + side_of(a, dim), size_of(a.image, dim));
}

__device__ inline int divide_up(int64_t a, int64_t b)
{
    return static_cast<int>((a + b - 1) / b);
}

/* the windows along one side that contain pixel i */
template <td_gpu_window_function F>
__device__ inline range windows_of(const td_gpu_pool &a, int i, int dim)
{
    const int size = size_of(a.image, dim), count = size_of(a.windows, dim);
    if (F == TD_GPU_RESIZE_GRAD)
        return { divide_up(int64_t{ i } * count, size), divide_up(int64_t{ i + 1 } * count, size) };
    const int before = i + a.pad - side_of(a, dim); /* the last pixel of windows that end before i */
    return clipped(before < 0 ? 0 : before / a.stride + 1, (i + a.pad) / a.stride + 1, count);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* N bytes */
template <int N> __device__ inline void write_bytes(void *data, int64_t i, const int (&v)[N])
{
    uint8_t *to = static_cast<uint8_t *>(data) + i;
    if constexpr (N == 1) {
        *to = static_cast<uint8_t>(v[0]);
    } else {
        unsigned low = 0, high = 0;
        TD_UNROLL
        for (int k = 0; k < 4; k++) {
            low |= static_cast<unsigned>(v[k]) << (8 * k);
            high |= static_cast<unsigned>(v[4 + k]) << (8 * k);
        }
        __stwb(reinterpret_cast<uint2 *>(to), make_uint2(low, high));
    }
}

template <int N> __device__ inline void read_bytes(const void *data, int64_t i, int (&v)[N])
{
    const uint8_t *from = static_cast<const uint8_t *>(data) + i;
    if constexpr (N == 1) {
        v[0] = *from;
    } else {
        const uint2 both = *reinterpret_cast<const uint2 *>(from);
        TD_UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = static_cast<int>(both.x >> (8 * k) & 0xff);
            v[4 + k] = static_cast<int>(both.y >> (8 * k) & 0xff);
        }
    }
}

/* is `v` a new maximum?  NaN is above all; of equal ones the first counts */
__device__ inline bool is_above(float v, float best)
{
    return !(v <= best) & (best == best);
}

/* pixels of a row of a window that are read before the first is used */
constexpr int TOGETHER = 3;

/* pixels w to w + TOGETHER - 1 of row h; the last before `end` again instead of what is after it */
template <typename T, int N>
__device__ inline void fetch_pixels(const td_gpu_pool &a, const place &to, int h, int w, int end,
                                    elements<T, N> (&x)[TOGETHER])
{
    TD_UNROLL
    for (int u = 0; u < TOGETHER; u++) {
        const int column = w + u < end ? w + u : end - 1;
        x[u] = fetch<T, N>(a.image.data, offset(a.image, { to.n, to.c, h, column }));
    }
}

template <typename T, int N>
__device__ inline void max_of_window(const td_gpu_pool &a, const place &to, float (&best)[N])
{
    const range rows = pixels_of(a, to.row, ROW), columns = pixels_of(a, to.column, COLUMN);
    const int top = to.row * a.stride - a.pad, left = to.column * a.stride - a.pad;
    int where[N];
    TD_UNROLL
    for (int k = 0; k < N; k++) {
        best[k] = -INFINITY;
        where[k] = (rows.from - top) * a.width + columns.from - left;
    }
    for (int h = rows.from; h < rows.to; h++)
        for (int w = columns.from; w < columns.to; w += TOGETHER) {
            const int here = (h - top) * a.width + w - left;
            elements<T, N> x[TOGETHER];
            fetch_pixels(a, to, h, w, columns.to, x);
            TD_UNROLL
            for (int u = 0; u < TOGETHER; u++) {
                float v[N];
                unpack(x[u], v);
                TD_UNROLL
                for (int k = 0; k < N; k++) {
                    const bool is_best = (w + u < columns.to) & is_above(v[k], best[k]);
                    best[k] = is_best ? v[k] : best[k];
                    where[k] = is_best ? here + u : where[k];
                }
            }
        }
    write_bytes(a.where.data, offset(a.where, to), where);
}

/* by what the sum of window (row, column) is divided */
__device__ inline float divisor(const td_gpu_pool &a, const range &rows, const range &columns)
{
    return a.count_include_pad
               ? static_cast<float>(static_cast<int64_t>(a.kernel) * a.width)
               : static_cast<float>((rows.to - rows.from) * (columns.to - columns.from));
}

template <typename T, int N>
__device__ inline void mean_of_window(const td_gpu_pool &a, const place &to, float (&y)[N])
{
    const range rows = pixels_of(a, to.row, ROW), columns = pixels_of(a, to.column, COLUMN);
    const float count = divisor(a, rows, columns);
    for (int h = rows.from; h < rows.to; h++)
        for (int w = columns.from; w < columns.to; w += TOGETHER) {
            elements<T, N> x[TOGETHER];
            fetch_pixels(a, to, h, w, columns.to, x);
            TD_UNROLL
            for (int u = 0; u < TOGETHER; u++) {
                float v[N];
                unpack(x[u], v);
                TD_UNROLL
                for (int k = 0; k < N; k++)
                    y[k] += w + u < columns.to ? v[k] : 0;
            }
        }
    TD_UNROLL
    for (int k = 0; k < N; k++)
        y[k] /= count;
}

/* i size / of */
__device__ inline int scaled(int i, int64_t size, int64_t of)
{
    const int64_t product = i * size;
    return product <= UINT32_MAX && of <= UINT32_MAX
               ? static_cast<int>(static_cast<uint32_t>(product) / static_cast<uint32_t>(of))
               : static_cast<int>(product / of);
}

template <typename T, int N>
__device__ inline void nearest(const td_gpu_pool &a, const place &to, float (&y)[N])
{
    const int h = scaled(to.row, a.image.dim[ROW], a.windows.dim[ROW]);
    const int w = scaled(to.column, a.image.dim[COLUMN], a.windows.dim[COLUMN]);
    unpack(fetch<T, N>(a.image.data, offset(a.image, { to.n, to.c, h, w })), y);
}

template <typename T, int N>
__device__ inline void interpolate(const td_gpu_pool &a, const place &to, float (&y)[N])
{
    for (int i = 0; i < td_resize_count(&a.rows); i++) {
        const td_resize_tap v = td_resize_tap_of(&a.rows, to.row, i);
        for (int j = 0; j < td_resize_count(&a.columns); j++) {
            const td_resize_tap w = td_resize_tap_of(&a.columns, to.column, j);
            float x[N];
            const auto by = static_cast<float>(v.weight * w.weight);
            unpack(fetch<T, N>(a.image.data, offset(a.image, { to.n, to.c, static_cast<int>(v.at),
                                                               static_cast<int>(w.at) })),
                   x);
            TD_UNROLL
            for (int k = 0; k < N; k++)
                y[k] += by * x[k];
        }
    }
}

template <typename T, int N, td_gpu_window_function F> __global__ void forward(td_gpu_pool a)
{
    const int64_t count = count_of(a.windows, N);
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const place to = place_of<N>(a.windows, i, count);
        float y[N] = {};
        if constexpr (F == TD_GPU_MAX_POOL)
            max_of_window<T>(a, to, y);
        else if constexpr (F == TD_GPU_AVG_POOL)
            mean_of_window<T>(a, to, y);
        else if constexpr (F == TD_GPU_INTERPOLATE)
            interpolate<T>(a, to, y);
        else
            nearest<T>(a, to, y);
        write<T>(a.windows.data, offset(a.windows, to), y);
    }
}

/* --- backward --------------------------------------------------------------------------------- */

/* adds to dx of pixel `at` what it gets from window `from` */
template <typename T, int N, td_gpu_window_function F>
__device__ inline void add_window(const td_gpu_pool &a, const place &at, const place &from,
                                  float (&dx)[N])
{
    float dy[N];
    int where[N] = {}, here = 0;
    float by = 1;
    unpack(fetch<T, N>(a.windows.data, offset(a.windows, from)), dy);
    if constexpr (F == TD_GPU_MAX_POOL_GRAD) {
        read_bytes(a.where.data, offset(a.where, from), where);
        here = (at.row + a.pad - from.row * a.stride) * a.width + at.column + a.pad -
               from.column * a.stride;
    } else if constexpr (F == TD_GPU_AVG_POOL_GRAD) {
        by = divisor(a, pixels_of(a, from.row, ROW), pixels_of(a, from.column, COLUMN));
    }
    TD_UNROLL
    for (int k = 0; k < N; k++)
        dx[k] += where[k] != here ? 0 : F == TD_GPU_AVG_POOL_GRAD ? dy[k] / by : dy[k];
}

/* the results along one side that pixel i is a tap of */
__device__ inline range readers_of(const td_resize_axis &a, int i)
{
    int64_t from, to;
    td_resize_readers(&a, i, &from, &to);
    return { static_cast<int>(from), static_cast<int>(to) };
}

/* a pixel adds the results that it is a tap of */
template <typename T, int N> __global__ void interpolate_back(td_gpu_pool a)
{
    const int64_t count = count_of(a.image, N);
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const place at = place_of<N>(a.image, i, count);
        const range rows = readers_of(a.rows, at.row), columns = readers_of(a.columns, at.column);
        float dx[N] = {};
        for (int p = rows.from; p < rows.to; p++) {
            const double of_row = td_resize_weight(&a.rows, p, at.row);
            for (int q = columns.from; q < columns.to; q++) {
                const auto by =
                    static_cast<float>(of_row * td_resize_weight(&a.columns, q, at.column));
                float dy[N];
                unpack(fetch<T, N>(a.windows.data, offset(a.windows, { at.n, at.c, p, q })), dy);
                TD_UNROLL
                for (int k = 0; k < N; k++)
                    dx[k] += by * dy[k];
            }
        }
        write<T>(a.image.data, offset(a.image, at), dx);
    }
}

template <typename T, int N, td_gpu_window_function F> __global__ void backward(td_gpu_pool a)
{
    const int64_t count = count_of(a.image, N);
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const place at = place_of<N>(a.image, i, count);
        const range rows = windows_of<F>(a, at.row, ROW);
        const range columns = windows_of<F>(a, at.column, COLUMN);
        float dx[N] = {};
        for (int p = rows.from; p < rows.to; p++)
            for (int q = columns.from; q < columns.to; q++)
                add_window<T, N, F>(a, at, { at.n, at.c, p, q }, dx);
        write<T>(a.image.data, offset(a.image, at), dx);
    }
}

/* --- max pooling by 2 x 2 --------------------------------------------------------------------- */

/* Windows of KERNEL, 2 or 3, at every second pixel: tile t along one side is pixels 2 t - pad and
   2 t - pad + 1, which only windows t - 1 and t contain. */
constexpr int SIDE = 2;

__host__ __device__ inline int first_tile(const td_gpu_pool &a)
{
    return a.pad / SIDE;
}

__host__ __device__ inline int tiles_of(const td_gpu_pool &a, int dim)
{
    return (static_cast<int>(a.image.dim[dim]) - 1 + a.pad) / SIDE - first_tile(a) + 1;
}

/* what a window brings: the gradients of N channels, and where they go; nowhere if it is absent */
template <typename T, int N> struct window {
    elements<T, N> dy;
    int where[N];
};

template <typename T, int N>
__device__ inline void fetch_window(const td_gpu_pool &a, const place &from, window<T, N> &w)
{
    if (from.row >= 0 && from.row < size_of(a.windows, ROW) && from.column >= 0 &&
        from.column < size_of(a.windows, COLUMN)) {
        w.dy = fetch<T, N>(a.windows.data, offset(a.windows, from));
        read_bytes(a.where.data, offset(a.where, from), w.where);
        return;
    }
    w.dy = {};
    TD_UNROLL
    for (int k = 0; k < N; k++)
        w.where[k] = -1;
}

/* dx of pixel (row, column) of a tile, from windows [t - 1, t] x [t - 1, t] */
template <typename T, int N, int KERNEL>
__device__ inline void sum_of_windows(const window<T, N> (&w)[SIDE][SIDE], int row, int column,
                                      float (&dx)[N])
{
    TD_UNROLL
    for (int p = 0; p < SIDE; p++)
        TD_UNROLL
    for (int q = 0; q < SIDE; q++) {
        const int r = row + SIDE * (1 - p), s = column + SIDE * (1 - q);
        float dy[N];
        if (r >= KERNEL || s >= KERNEL)
            continue;
        unpack(w[p][q].dy, dy);
        TD_UNROLL
        for (int k = 0; k < N; k++)
            dx[k] += w[p][q].where[k] == r * KERNEL + s ? dy[k] : 0;
    }
}

/* item i: N channels of a tile */
template <int N> __device__ inline place tile_of(const td_gpu_pool &a, int64_t i, int64_t count)
{
    td_gpu_tensor tiles = a.image;
    tiles.dim[ROW] = tiles_of(a, ROW);
    tiles.dim[COLUMN] = tiles_of(a, COLUMN);
    place p = place_of<N>(tiles, i, count);
    p.row += first_tile(a);
    p.column += first_tile(a);
    return p;
}

__host__ __device__ inline int64_t tile_count(const td_gpu_pool &a, int each)
{
    return a.image.dim[BATCH] * (a.image.dim[CHANNEL] / each) * tiles_of(a, ROW) *
           tiles_of(a, COLUMN);
}

template <typename T, int N, int KERNEL> __global__ void max_backward(td_gpu_pool a)
{
    const int64_t count = tile_count(a, N);
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const place t = tile_of<N>(a, i, count);
        window<T, N> w[SIDE][SIDE];
        TD_UNROLL
        for (int p = 0; p < SIDE; p++)
            TD_UNROLL
        for (int q = 0; q < SIDE; q++)
            fetch_window(a, { t.n, t.c, t.row - 1 + p, t.column - 1 + q }, w[p][q]);
        TD_UNROLL
        for (int r = 0; r < SIDE; r++)
            TD_UNROLL
        for (int s = 0; s < SIDE; s++) {
            const place at = { t.n, t.c, t.row * SIDE - a.pad + r, t.column * SIDE - a.pad + s };
            float dx[N] = {};
            sum_of_windows<T, N, KERNEL>(w, r, s, dx);
            if (at.row >= 0 && at.row < size_of(a.image, ROW) && at.column >= 0 &&
                at.column < size_of(a.image, COLUMN))
                write<T>(a.image.data, offset(a.image, at), dx);
        }
    }
}

/* --- launches --------------------------------------------------------------------------------- */

bool has_channels_last(const td_gpu_tensor &t)
{
    return !t.data || (t.stride[CHANNEL] == 1 && t.dim[CHANNEL] % WIDE == 0);
}

bool is_wide(const td_gpu_pool &a)
{
    return has_channels_last(a.image) && has_channels_last(a.windows) && has_channels_last(a.where);
}

template <typename T, int N> void start_max_backward(const td_gpu_pool &a)
{
    const unsigned tiles = blocks_for(tile_count(a, N)), images = blocks_for(count_of(a.image, N));
    const bool is_tiled = a.stride == SIDE && a.kernel == a.width;
    if (is_tiled && a.kernel == 3)
        TD_LAUNCH((max_backward<T, N, 3>), tiles, THREADS, 0, queue(), a);
    else if (is_tiled && a.kernel == 2)
        TD_LAUNCH((max_backward<T, N, 2>), tiles, THREADS, 0, queue(), a);
    else
        TD_LAUNCH((backward<T, N, TD_GPU_MAX_POOL_GRAD>), images, THREADS, 0, queue(), a);
}

template <typename T, int N> void start(const td_gpu_pool &a)
{
    const unsigned images = blocks_for(count_of(a.image, N));
    const unsigned windows = blocks_for(count_of(a.windows, N));
    switch (a.f) {
    case TD_GPU_MAX_POOL:
        TD_LAUNCH((forward<T, N, TD_GPU_MAX_POOL>), windows, THREADS, 0, queue(), a);
        break;
    case TD_GPU_AVG_POOL:
        TD_LAUNCH((forward<T, N, TD_GPU_AVG_POOL>), windows, THREADS, 0, queue(), a);
        break;
    case TD_GPU_RESIZE:
        TD_LAUNCH((forward<T, N, TD_GPU_RESIZE>), windows, THREADS, 0, queue(), a);
        break;
    case TD_GPU_MAX_POOL_GRAD:
        start_max_backward<T, N>(a);
        break;
    case TD_GPU_AVG_POOL_GRAD:
        TD_LAUNCH((backward<T, N, TD_GPU_AVG_POOL_GRAD>), images, THREADS, 0, queue(), a);
        break;
    case TD_GPU_RESIZE_GRAD:
        TD_LAUNCH((backward<T, N, TD_GPU_RESIZE_GRAD>), images, THREADS, 0, queue(), a);
        break;
    case TD_GPU_INTERPOLATE:
        TD_LAUNCH((forward<T, N, TD_GPU_INTERPOLATE>), windows, THREADS, 0, queue(), a);
        break;
    case TD_GPU_INTERPOLATE_GRAD:
        TD_LAUNCH((interpolate_back<T, N>), images, THREADS, 0, queue(), a);
    }
}

} // namespace

const char *pool(const td_gpu_pool *a)
{
    with_type(a->image.dtype, [=](auto zero) {
        if (is_wide(*a))
            start<decltype(zero), WIDE>(*a);
        else
            start<decltype(zero), 1>(*a);
    });
    return started();
}

} // namespace tandem
