/*
 * backend/cuda/walk.cuh -- element i of a result, and where it is in tensors of other layouts
 *
 * The host sorts dimensions by the strides of tensor 0 and merges those that every tensor walks as
 * one, so tensors of one layout have one dimension, and threads write neighbouring elements.
 */
#ifndef TD_BACKEND_CUDA_WALK_CUH
#define TD_BACKEND_CUDA_WALK_CUH

#include <utility>

#include "backend/cuda/device.cuh"
#include "device/gpu_kernels.h"

namespace tandem
{

enum { RANK = TD_GPU_RANK, MAX_TENSORS = 3 };

/** The dimensions of up to three tensors, slowest first; offsets in elements. */
struct walk {
    int rank;
    int64_t count;
    int64_t dim[RANK];
    int64_t stride[MAX_TENSORS][RANK];
};

/** Where an element is in each of them. */
struct places {
    int64_t at[MAX_TENSORS];
};

/* I: an unsigned type for indices below w.count */
template <typename I> __device__ inline places places_in(const walk &w, I i)
{
    places p = { { 0, 0, 0 } };
    for (int d = w.rank - 1; d > 0; d--) {
        const I dim = static_cast<I>(w.dim[d]), k = i % dim;
        i /= dim;
        for (int t = 0; t < MAX_TENSORS; t++)
            p.at[t] += static_cast<int64_t>(k) * w.stride[t][d];
    }
    for (int t = 0; t < MAX_TENSORS; t++)
        p.at[t] += static_cast<int64_t>(i) * w.stride[t][0];
    return p;
}

/** Of element i < w.count; a GPU divides numbers of 64 bits several times slower. */
__device__ inline places places_of(const walk &w, int64_t i)
{
    return w.count <= UINT32_MAX ? places_in(w, static_cast<uint32_t>(i))
                                 : places_in(w, static_cast<uint64_t>(i));
}

/** Appends a dimension; `stride` has MAX_TENSORS numbers. */
inline void add_dim(walk &w, int64_t dim, const int64_t *stride)
{
    w.dim[w.rank] = dim;
    for (int t = 0; t < MAX_TENSORS; t++)
        w.stride[t][w.rank] = stride[t];
    w.rank++;
    w.count *= dim;
}

/* slowest of tensor 0 first */
inline void sort_dims(walk &w)
{
    for (int i = 1; i < w.rank; i++)
        for (int k = i; k > 0 && w.stride[0][k - 1] < w.stride[0][k]; k--) {
            std::swap(w.dim[k - 1], w.dim[k]);
            for (auto &s : w.stride)
                std::swap(s[k - 1], s[k]);
        }
}

/* can dimensions d - 1 and d be walked as one? */
inline bool is_one(const walk &w, int d)
{
    for (const auto &s : w.stride)
        if (s[d - 1] != s[d] * w.dim[d])
            return false;
    return true;
}

inline void merge_dims(walk &w)
{
    for (int d = w.rank - 1; d > 0; d--) {
        if (!is_one(w, d))
            continue;
        w.dim[d - 1] *= w.dim[d];
        for (int t = 0; t < MAX_TENSORS; t++)
            w.stride[t][d - 1] = w.stride[t][d];
        for (int k = d; k + 1 < w.rank; k++) {
            w.dim[k] = w.dim[k + 1];
            for (auto &s : w.stride)
                s[k] = s[k + 1];
        }
        w.rank--;
    }
}

/** As `w`, sorted and with as few dimensions as possible. */
inline walk finished(walk w)
{
    const int64_t none[MAX_TENSORS] = { 0, 0, 0 };
    if (w.rank == 0)
        add_dim(w, 1, none);
    sort_dims(w);
    merge_dims(w);
    return w;
}

/** Of tensor 0's dimensions; strides of the others are 0 where they are repeated. */
inline walk walk_of(const td_gpu_tensor &t0, const td_gpu_tensor &t1, const td_gpu_tensor &t2)
{
    walk w = {};
    w.count = 1;
    for (int d = 0; d < RANK; d++) {
        const int64_t stride[MAX_TENSORS] = { t0.stride[d], t1.stride[d], t2.stride[d] };
        if (t0.dim[d] != 1)
            add_dim(w, t0.dim[d], stride);
    }
    return finished(w);
}

/** Are all elements of the first `n` tensors consecutive, in one order? */
inline bool is_flat(const walk &w, int n)
{
    for (int t = 0; t < n; t++)
        if (w.rank != 1 || (w.count > 1 && w.stride[t][0] != 1))
            return false;
    return true;
}

} // namespace tandem

#endif
