/*
 * map.cu -- element by element, with repeated operands, and copies
 *
 * Where the tensors share their fastest dimension, a thread has eight neighbours of it, and reads
 * and writes them in 16 bytes at a time ("wide"); an operand that is repeated along this dimension
 * is read once.  Everything else goes one element a thread.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/transpose.cuh"
#include "backend/cuda/vector.cuh"
#include "backend/cuda/walk.cuh"
#include "ops/act_list.h"

namespace tandem
{
namespace
{

/* --- functions of one element ----------------------------------------------------------------- */

__device__ inline float round_tf32(float v)
{
    const uint32_t u = __float_as_uint(v);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return v;
    return __uint_as_float((u + 0xfffu + (u >> 13 & 1)) & ~0x1fffu);
}

typedef float real;

#define EXP   expf
#define EXPM1 expm1f
#define LOG   logf
#define SQRT  sqrtf
#define POW   powf
#define TANH  tanhf
#define ERF   erff
#define ABS   fabsf

#define FUNCTION(K, id, tf, tf_grad, fields, reads, zero, text, formula, ...)                      \
    case TD_ACT_##id:                                                                              \
        return formula;

__device__ inline float act_of(int act, float a, float b, float x)
{
    switch (act) {
        TD_ACT_LIST(FUNCTION, )
    default:
        return x;
    }
}

/* X or Y */
#define READS_X x
#define READS_Y y

#define GRADIENT(K, id, tf, tf_grad, fields, reads, zero, text, formula, grad)                     \
    case TD_ACT_##id: {                                                                            \
        const float READS_##reads = with;                                                          \
        return grad;                                                                               \
    }

__device__ inline float act_gradient_of(int act, float a, float b, float dy, float with)
{
    switch (act) {
        TD_ACT_LIST(GRADIENT, )
    default:
        return dy;
    }
}

#define BINARY(K, id, tf, zero, text, formula)                                                     \
    case TD_BINARY_##id:                                                                           \
        return formula;

__device__ inline float binary_of(int function, float x, float z)
{
    switch (function) {
        TD_BINARY_LIST(BINARY, )
    default:
        return x;
    }
}

/* --- one kernel for each kind, so that none has the registers of all -------------------------- */

struct plain {
    td_gpu_function f;
    float by;

    __device__ inline float operator()(float x, float z) const
    {
        switch (f) {
        case TD_GPU_SCALE:
            return by * x;
        case TD_GPU_ADD:
            return x + z;
        case TD_GPU_CLIP:
            x *= z;
            return x > by ? by : x < -by ? -by : x;
        case TD_GPU_ROUND_TF32:
            return round_tf32(x);
        default:
            return by;
        }
    }
};

struct activation {
    int act;
    float a, b;

    __device__ inline float operator()(float x, float) const
    {
        return act_of(act, a, b, x);
    }
};

struct activation_gradient {
    int act;
    float a, b;

    __device__ inline float operator()(float dy, float with) const
    {
        return act_gradient_of(act, a, b, dy, with);
    }
};

struct binary {
    int function;

    __device__ inline float operator()(float x, float z) const
    {
        return binary_of(function, x, z);
    }
};

/* g(f) with the function of `m` */
template <typename G> void with_function(const td_gpu_map &m, const G &g)
{
    const float by = static_cast<float>(m.by), also = static_cast<float>(m.also);
    if (m.f == TD_GPU_ACT)
        g(activation{ m.act, by, also });
    else if (m.f == TD_GPU_ACT_GRAD)
        g(activation_gradient{ m.act, by, also });
    else if (m.f == TD_GPU_BINARY)
        g(binary{ m.act });
    else
        g(plain{ m.f, by });
}

/* --- one element a thread --------------------------------------------------------------------- */

template <typename F> __global__ void map_kernel(td_gpu_map m, walk w, F f)
{
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        const float x = m.x.data ? load(m.x.data, m.x.dtype, p.at[1]) : 0;
        const float z = m.z.data ? load(m.z.data, m.z.dtype, p.at[2]) : 0;
        store(m.y.data, m.y.dtype, p.at[0], f(x, z));
    }
}

__global__ void copy_kernel(td_gpu_map m, walk w)
{
    for (int64_t i = thread_index(); i < w.count; i += thread_count()) {
        const places p = places_of(w, i);
        copy_bits(m.y.data, p.at[0], m.x.data, p.at[1], m.y.dtype);
    }
}

/* --- several elements a thread ---------------------------------------------------------------- */

constexpr int AT_ONCE = 2; /* vectors of a thread that are read before one is used */

/* can tensor t be read or written by vectors of n elements of the fastest dimension? */
bool has_vectors(const walk &w, int t, int64_t n, bool may_repeat)
{
    const int last = w.rank - 1;
    if (may_repeat && w.stride[t][last] == 0)
        return true;
    for (int d = 0; d < last; d++)
        if (w.stride[t][d] % n != 0)
            return false;
    return w.stride[t][last] == 1;
}

/* are the rows vectors? In a tensor of one row the last may be shorter */
bool has_rows(const walk &w, int64_t n)
{
    return w.rank == 1 ? w.count >= n : w.dim[w.rank - 1] % n == 0;
}

/* the walk over whole vectors of n elements; it counts vectors, not elements */
walk vectors_of(walk w, int64_t n)
{
    const int last = w.rank - 1;
    w.dim[last] /= n;
    for (auto &stride : w.stride)
        stride[last] *= n;
    w.count = 1;
    for (int d = 0; d < w.rank; d++)
        w.count *= w.dim[d];
    return w;
}

/* the elements after the last vector of a tensor of one row */
int tail_of(const walk &w, int64_t n)
{
    return w.rank == 1 ? static_cast<int>(w.count % n) : 0;
}

/* eight times the same */
template <typename T> __device__ inline elements<T, WIDE> repeated(const void *data, int64_t i)
{
    const T one = static_cast<const T *>(data)[i];
    unsigned w = 0;
    memcpy(&w, &one, sizeof one);
    if (sizeof one < sizeof w)
        w |= w << 16;
    elements<T, WIDE> e;
    for (uint4 &quarter : e.quarter)
        quarter = make_uint4(w, w, w, w);
    return e;
}

template <typename T>
__device__ inline elements<T, WIDE> fetch_operand(const td_gpu_tensor &t, const walk &w, int k,
                                                  const places &p)
{
    if (!t.data)
        return {};
    return w.stride[k][w.rank - 1] ? fetch<T, WIDE>(t.data, p.at[k])
                                   : repeated<T>(t.data, p.at[k]);
}

template <typename Y, typename X, typename F>
__device__ inline void put_vector(const td_gpu_map &m, const places &p, const F &f,
                                  const elements<X, WIDE> &x, const elements<X, WIDE> &z)
{
    float v[WIDE], plus[WIDE], y[WIDE];
    unpack(x, v);
    unpack(z, plus);
    TD_UNROLL
    for (int k = 0; k < WIDE; k++)
        y[k] = f(v[k], plus[k]);
    write<Y>(m.y.data, p.at[0], y);
}

/* the vectors of w; the elements after the last, `tail` of them, follow the vectors in memory */
template <typename Y, typename X, typename F>
__global__ void map_wide(td_gpu_map m, walk w, int tail, F f)
{
    const int64_t step = thread_count();
    for (int64_t i = thread_index(); i < w.count; i += AT_ONCE * step) {
        places p[AT_ONCE];
        elements<X, WIDE> x[AT_ONCE], z[AT_ONCE];
        TD_UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            p[u] = places_of(w, i + u * step < w.count ? i + u * step : i);
            x[u] = fetch_operand<X>(m.x, w, 1, p[u]);
            z[u] = fetch_operand<X>(m.z, w, 2, p[u]);
        }
        TD_UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            if (i + u * step < w.count)
                put_vector<Y>(m, p[u], f, x[u], z[u]);
    }
    const int64_t k = thread_index();
    if (k >= tail)
        return;
    const int64_t at = w.count * WIDE + k;
    const float x = m.x.data ? load(m.x.data, m.x.dtype, w.stride[1][0] ? at : 0) : 0;
    const float z = m.z.data ? load(m.z.data, m.z.dtype, w.stride[2][0] ? at : 0) : 0;
    store(m.y.data, m.y.dtype, at, f(x, z));
}

/* as map_wide, of vectors of 16 bytes of any dtype */
__global__ void copy_wide(td_gpu_map m, walk w, int tail, int size)
{
    const int64_t step = thread_count();
    const char *from = static_cast<const char *>(m.x.data);
    char *to = static_cast<char *>(m.y.data);
    for (int64_t i = thread_index(); i < w.count; i += AT_ONCE * step) {
        places p[AT_ONCE];
        uint4 v[AT_ONCE];
        TD_UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            p[u] = places_of(w, i + u * step < w.count ? i + u * step : i);
            v[u] = *reinterpret_cast<const uint4 *>(from + p[u].at[1] * size);
        }
        TD_UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            if (i + u * step < w.count)
                write_words(reinterpret_cast<uint4 *>(to + p[u].at[0] * size), v[u].x, v[u].y,
                            v[u].z, v[u].w);
    }
    const int64_t k = thread_index(), at = w.count * (16 / size) + k;
    if (k < tail)
        copy_bits(m.y.data, at, m.x.data, at, m.y.dtype);
}

/* --- launches --------------------------------------------------------------------------------- */

/* blocks for `n` vectors, AT_ONCE a thread; a tail has fewer elements than a block has threads */
unsigned wide_blocks(int64_t n)
{
    return blocks_for((n + AT_ONCE - 1) / AT_ONCE);
}

bool is_float(td_dtype d)
{
    return d == TD_DT_F32 || d == TD_DT_F16 || d == TD_DT_BF16;
}

/* one dtype, or a conversion from or to float32 */
bool has_wide_types(const td_gpu_map &m)
{
    const td_dtype y = m.y.dtype, x = m.x.data ? m.x.dtype : y;
    const bool is_plain = m.f != TD_GPU_ACT && m.f != TD_GPU_ACT_GRAD && m.f != TD_GPU_BINARY;
    return is_float(y) && is_float(x) && (!m.z.data || m.z.dtype == x) &&
           (x == y || (is_plain && (x == TD_DT_F32 || y == TD_DT_F32)));
}

bool is_wide_map(const td_gpu_map &m, const walk &w)
{
    if (!has_wide_types(m) || !has_rows(w, WIDE))
        return false;
    return is_aligned(m.y.data) && has_vectors(w, 0, WIDE, false) &&
           (!m.x.data || (is_aligned(m.x.data) && has_vectors(w, 1, WIDE, true))) &&
           (!m.z.data || (is_aligned(m.z.data) && has_vectors(w, 2, WIDE, true)));
}

/* bytes of an element that is copied */
int size_of(td_dtype d)
{
    switch (d) {
    case TD_DT_I64:
    case TD_DT_F64:
        return 8;
    case TD_DT_F32:
    case TD_DT_I32:
        return 4;
    case TD_DT_F16:
    case TD_DT_BF16:
        return 2;
    default:
        return 1;
    }
}

bool is_wide_copy(const td_gpu_map &m, const walk &w)
{
    const int64_t n = 16 / size_of(m.y.dtype);
    return is_aligned(m.y.data) && is_aligned(m.x.data) && has_rows(w, n) && has_vectors(w, 0, n, false) &&
           has_vectors(w, 1, n, false);
}

template <typename Y, typename X, typename F>
void start_wide(const td_gpu_map &m, const walk &w, const F &f)
{
    const walk v = vectors_of(w, WIDE);
    const int tail = tail_of(w, WIDE);
    TD_LAUNCH((map_wide<Y, X, F>), wide_blocks(v.count), THREADS, 0, queue(), m, v, tail, f);
}

void start_wide_map(const td_gpu_map &m, const walk &w)
{
    const td_dtype from = m.x.data ? m.x.dtype : m.y.dtype;
    const plain f = { m.f, static_cast<float>(m.by) };
    if (from == m.y.dtype)
        with_function(m, [&](auto g) {
            with_type(from, [&](auto zero) {
                start_wide<decltype(zero), decltype(zero)>(m, w, g);
            });
        });
    else if (from == TD_DT_F32)
        with_type(m.y.dtype, [&](auto zero) { start_wide<decltype(zero), float>(m, w, f); });
    else
        with_type(from, [&](auto zero) { start_wide<float, decltype(zero)>(m, w, f); });
}

void start_copy(const td_gpu_map &m, const walk &w)
{
    const int size = size_of(m.y.dtype);
    if (!is_wide_copy(m, w)) {
        if (!transpose(m, w, size))
            TD_LAUNCH(copy_kernel, blocks_for(w.count), THREADS, 0, queue(), m, w);
        return;
    }
    const walk v = vectors_of(w, 16 / size);
    const int tail = tail_of(w, 16 / size);
    TD_LAUNCH(copy_wide, wide_blocks(v.count), THREADS, 0, queue(), m, v, tail, size);
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *map(const td_gpu_map *m)
{
    const walk w = walk_of(m->y, m->x, m->z);
    if (m->f == TD_GPU_SCALE && m->by == 1 && m->x.dtype == m->y.dtype)
        start_copy(*m, w);
    else if (is_wide_map(*m, w))
        start_wide_map(*m, w);
    else
        with_function(*m, [&](auto f) {
            TD_LAUNCH((map_kernel<decltype(f)>), blocks_for(w.count), THREADS, 0, queue(), *m, w,
                      f);
        });
    return started();
}

} // namespace tandem
