/*
 * dropout.cu -- a random part of the elements, or of the samples, is 0 and the rest scaled
 *
 * A thread has four neighbouring elements of a sample, for which one block of Philox4x32-10 gives
 * the draws: the numbers of base/rng.c, so that the masks are those of the other backends.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/row.cuh"
#include "backend/cuda/tensor.cuh"

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
    return philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) ^
                                                   static_cast<uint32_t>(epoch >> 32),
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

} // namespace

const char *drop(const td_gpu_drop *d)
{
    const int64_t blocks = (d->width + LANES - 1) / LANES;
    if (d->rows * blocks > 0)
        TD_LAUNCH(drop_kernel, blocks_for(d->rows * blocks), THREADS, 0, queue(), *d, blocks);
    return started();
}

} // namespace tandem
