/*
 * dropout.cu -- a random part of the elements, or of the samples, is 0 and the rest scaled
 *
 * A thread has four neighbouring elements of a sample, for which one block of Philox4x32-10 gives
 * the draws: the numbers of base/rng.c, so that the masks are those of the other backends.  Where a
 * sample is dropped as a whole, a thread has vectors of eight of its elements.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/row.cuh"
#include "backend/cuda/vector.cuh"

namespace tandem
{
namespace
{

constexpr int LANES = 4, ROUNDS = 10;

struct draws {
    uint32_t of[LANES];
};

__device__ inline draws philox(uint32_t k0, uint32_t k1, draws c)
{
    TD_UNROLL
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c.of[0];
        const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c.of[2];
        c = { { static_cast<uint32_t>(p1 >> 32) ^ c.of[1] ^ k0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ c.of[3] ^ k1, static_cast<uint32_t>(p0) } };
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* block `block` of the stream of sample `sample`, as td_dropout_stream of ops/dropout.c */
__device__ inline draws draws_of(const td_gpu_drop &d, int64_t sample, int64_t block)
{
    const uint64_t seed = static_cast<uint64_t>(d.random[0]);
    const uint64_t epoch = static_cast<uint64_t>(d.random[1]);
    const uint64_t number = static_cast<uint64_t>(d.random[2]) + static_cast<uint64_t>(sample);
    return philox(static_cast<uint32_t>(seed),
                  static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(epoch >> 32),
                  { { static_cast<uint32_t>(block), d.purpose << 24 | d.id,
                      static_cast<uint32_t>(number), static_cast<uint32_t>(epoch) } });
}

__global__ void drop_kernel(td_gpu_drop d, int64_t blocks)
{
    for (int64_t i = thread_index(); i < d.rows * blocks; i += thread_count()) {
        const int64_t row = i / blocks, block = i % blocks;
        const draws r = draws_of(d, d.per_batch ? 0 : row, d.per_element ? block : 0);
        for (int k = 0; k < LANES && block * LANES + k < d.width; k++) {
            const int64_t at = row * d.width + block * LANES + k;
            const bool is_kept = r.of[d.per_element ? k : 0] >= d.least;
            store(d.y, d.dtype, at, is_kept ? load(d.x, d.dtype, at) * d.scale : 0.0f);
        }
    }
}

/* --- whole samples ---------------------------------------------------------------------------- */

constexpr int AHEAD = 4; /* vectors that are read before the first is used */

/* blockIdx.y: a sample; one draw decides, and what is dropped is not read */
template <typename T> __global__ void drop_samples(td_gpu_drop d)
{
    const int64_t count = d.width / WIDE;
    for (int64_t row = blockIdx.y; row < d.rows; row += gridDim.y) {
        const bool is_kept = draws_of(d, d.per_batch ? 0 : row, 0).of[0] >= d.least;
        for (int64_t i = blockIdx.x * THREADS * AHEAD + threadIdx.x; i < count;
             i += gridDim.x * THREADS * AHEAD) {
            elements<T, WIDE> x[AHEAD] = {};
            TD_UNROLL
            for (int u = 0; u < AHEAD; u++)
                if (is_kept && i + u * THREADS < count)
                    x[u] = fetch<T, WIDE>(d.x, row * d.width + (i + u * THREADS) * WIDE);
            TD_UNROLL
            for (int u = 0; u < AHEAD; u++) {
                float v[WIDE];
                unpack(x[u], v);
                TD_UNROLL
                for (int k = 0; k < WIDE; k++)
                    v[k] *= d.scale;
                if (i + u * THREADS < count)
                    write<T>(d.y, row * d.width + (i + u * THREADS) * WIDE, v);
            }
        }
    }
}

void start_samples(const td_gpu_drop &d)
{
    const int64_t rows = d.rows < 65535 ? d.rows : 65535;
    const dim3 grid(blocks_for((d.width / WIDE + AHEAD - 1) / AHEAD), rows);
    with_type(d.dtype, [=](auto zero) {
        TD_LAUNCH(drop_samples<decltype(zero)>, grid, THREADS, 0, queue(), d);
    });
}

} // namespace

const char *drop(const td_gpu_drop *d)
{
    const int64_t blocks = (d->width + LANES - 1) / LANES;
    if (!d->per_element && d->width % WIDE == 0 && d->rows * blocks > 0)
        start_samples(*d);
    else if (d->rows * blocks > 0)
        TD_LAUNCH(drop_kernel, blocks_for(d->rows * blocks), THREADS, 0, queue(), *d, blocks);
    return started();
}

} // namespace tandem
