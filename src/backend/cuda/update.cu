/*
 * update.cu -- steps of an optimiser, gradients over several batches, averages
 *
 * Scalars (learning rate, 1 / loss scale, whether gradients are finite) are on the GPU, so a step
 * that is skipped needs no answer from the host.  A kernel's work is one tensor's struct; v, g and
 * other tensors with w's layout have w's offsets.
 */
#include "backend/cuda/plugin.cuh"
#include "backend/cuda/tensor.cuh"
#include "backend/cuda/walk.cuh"

namespace tandem {
namespace {

/* --- steps ------------------------------------------------------------------------------------ */

/* is nothing to be written? */
__device__ inline bool is_skipped(const float *finite)
{
    return finite && *finite == 0;
}

/* what is subtracted from w, over the learning rate */
__device__ inline float sgd_at(const td_gpu_step &s, float g, int64_t i)
{
    const float v = s.momentum * s.v[i] + g;
    s.v[i] = v;
    return s.nesterov ? g + s.momentum * v : v;
}

__device__ inline float rmsprop_at(const td_gpu_step &s, float g, int64_t i)
{
    const float a = s.alpha * s.square[i] + s.rest * g * g;
    const float u = s.momentum * s.v[i] + g / (sqrtf(a) + s.eps);
    s.square[i] = a;
    s.v[i] = u;
    return u;
}

/* w: the places of w and of its copies */
__global__ void step_kernel(td_gpu_step s, walk w)
{
    if (is_skipped(s.finite))
        return;
    float *weight = static_cast<float *>(s.w.data);
    const float lr = *s.lr, inverse = s.inverse ? *s.inverse : 1;
    for (int64_t n = thread_index(); n < w.count; n += thread_count()) {
        const places p = places_of(w, n);
        const int64_t i = p.at[0];
        const float g = inverse * s.g[i] + s.decay * weight[i];
        const float x = weight[i] - lr * (s.square ? rmsprop_at(s, g, i) : sgd_at(s, g, i));
        weight[i] = x;
        TD_UNROLL
        for (int c = 0; c < TD_GPU_COPIES; c++)
            if (c < s.n_copies)
                store(s.copy[c].data, s.copy[c].dtype, p.at[1 + c], x);
    }
}

walk walk_of(const td_gpu_step &s)
{
    walk w = {};
    w.count = 1;
    static_assert(TD_GPU_COPIES == 2, "copies are tensors 1 and 2 of a walk");
    for (int d = 0; d < RANK; d++) {
        const int64_t stride[MAX_TENSORS] = { s.w.stride[d], s.copy[0].stride[d],
                                              s.copy[1].stride[d] };
        if (s.w.dim[d] != 1)
            add_dim(w, s.w.dim[d], stride);
    }
    return finished(w);
}

/* --- are all elements finite? ----------------------------------------------------------------- */

constexpr int64_t FIRST = 16 * THREADS; /* elements that one block tests */

__device__ inline bool is_finite_at(const td_gpu_finite_test &t, int64_t i)
{
    return (__float_as_uint(load(t.x, t.dtype, i)) & 0x7f800000u) != 0x7f800000u;
}

/* one block: y is of the first elements, and of `before` */
__global__ void finite_first_kernel(td_gpu_finite_test t)
{
    const int64_t end = t.count < FIRST ? t.count : FIRST;
    bool is_finite = !is_skipped(t.before);
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x)
        is_finite = is_finite_at(t, i) && is_finite;
    const bool is_all = __syncthreads_and(is_finite) != 0;
    if (threadIdx.x == 0)
        *t.y = is_all ? 1 : 0;
}

/* the others; whoever finds something writes the same number */
__global__ void finite_rest_kernel(td_gpu_finite_test t)
{
    bool is_finite = true;
    for (int64_t i = FIRST + thread_index(); i < t.count; i += thread_count())
        is_finite = is_finite_at(t, i) && is_finite;
    if (!is_finite)
        *t.y = 0;
}

/* --- gradients over several batches, averages ------------------------------------------------- */

__global__ void carry_sum_kernel(td_gpu_carry_sum c)
{
    const bool is_last = *c.last != 0;
    for (int64_t i = thread_index(); i < c.count; i += thread_count())
        if (is_last)
            store(c.sum, c.dtype, i, 0);
        else
            copy_bits(c.sum, i, c.s, i, c.dtype);
}

__global__ void average_kernel(td_gpu_average a)
{
    if (is_skipped(a.finite))
        return;
    const float keep = *a.keep, share = *a.share;
    for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
        const float kept = __fmul_rn(keep, load(a.average, a.dtype, i)); /* no fma, as on CPUs */
        const float added = __fmul_rn(share, load(a.value, a.dtype, i));
        store(a.average, a.dtype, i, __fadd_rn(kept, added));
    }
}

__global__ void commit_step_kernel(td_gpu_commit_step c)
{
    if (*c.last == 0)
        return;
    const bool is_taken = *c.finite != 0;
    void *to = is_taken ? c.to : c.pending;
    const void *from = is_taken ? c.pending : c.to;
    for (int64_t i = thread_index(); i < c.count; i += thread_count())
        copy_bits(to, i, from, i, c.dtype);
}

} // namespace

/* --- the plug-in's functions ------------------------------------------------------------------ */

const char *step(const td_gpu_step *s)
{
    const walk w = walk_of(*s);
    TD_LAUNCH(step_kernel, blocks_for(w.count), THREADS, 0, queue(), *s, w);
    return started();
}

const char *finite_test(const td_gpu_finite_test *t)
{
    TD_LAUNCH(finite_first_kernel, 1, THREADS, 0, queue(), *t);
    if (t->count > FIRST)
        TD_LAUNCH(finite_rest_kernel, blocks_for(t->count - FIRST), THREADS, 0, queue(), *t);
    return started();
}

const char *carry_sum(const td_gpu_carry_sum *c)
{
    TD_LAUNCH(carry_sum_kernel, blocks_for(c->count), THREADS, 0, queue(), *c);
    return started();
}

const char *average(const td_gpu_average *a)
{
    TD_LAUNCH(average_kernel, blocks_for(a->count), THREADS, 0, queue(), *a);
    return started();
}

const char *commit_step(const td_gpu_commit_step *c)
{
    TD_LAUNCH(commit_step_kernel, blocks_for(c->count), THREADS, 0, queue(), *c);
    return started();
}

} // namespace tandem
