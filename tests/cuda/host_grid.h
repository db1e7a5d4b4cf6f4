/*
 * host_grid.h -- CUDA C++ for a host compiler: a kernel source (.cu) compiles as C++17 and its grid
 * runs on the CPU, without CUDA headers, driver or GPU
 *
 * A .cu file includes it through backend/cuda/device.cuh.  Blocks run one after the other; the
 * threads of a block are fibers that change only at __syncthreads*(), __syncwarp() and the other
 * *_sync functions.  The program aborts with one sentence where a GPU would hang or its behaviour
 * is undefined:
 *
 *   - Threads of a block wait at different barriers, so that none can go on.  __syncthreads() in
 *     two lines are two barriers.  A thread that has returned is not waited for, as since Volta.
 *   - Lanes of a warp meet in different *_sync functions or with different masks.
 *   - A lane calls a *_sync function with a mask that does not contain it.
 *
 * A shuffle from a lane that takes no part returns a value with all bits 1 (NaN, -1); dynamic
 * shared memory is filled with such bits at the start of each block.  __activemask() contains only
 * the lane that calls it, which CUDA permits.
 *
 * TANDEM_GRID_ORDER=reverse or random:SEED runs blocks and threads in another order; results must
 * not depend on it.  Not detected: reads of shared memory without a barrier (try another order) and
 * static shared memory above the limit (nvcc refuses it).  A thread that polls memory until another
 * thread writes it never ends.
 */
#ifndef TD_TEST_CUDA_HOST_GRID_H
#define TD_TEST_CUDA_HOST_GRID_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/host_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static /* one block runs at a time */

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

/* why the first launch since the last call failed that did, in this host thread; NULL if none did
 */
const char *host_grid_error();

namespace td_grid
{
/* a place in a source file; as a default argument, the place of the call */
struct site {
    const char *file;
    int line;

    site(const char *source = __builtin_FILE(), int number = __builtin_LINE())
        : file(source), line(number)
    {
    }
};

enum class barrier {
    syncthreads,
    syncthreads_or,
    syncthreads_and,
    syncthreads_count,
    syncwarp,
    shfl,
    shfl_up,
    shfl_down,
    shfl_xor,
    ballot,
    any,
    all
};

/* may this grid be launched?  false: host_grid_error says why not */
bool permits(const char *name, dim3 grid, dim3 block, size_t shared_bytes);

/* runs body(context) once for each thread of the grid; NAME and WHERE are the launch's in messages
 */
void run(const char *name, site where, dim3 grid, dim3 block, size_t shared_bytes,
         void (*body)(const void *context), const void *context);

void *dynamic_shared();

/* called before and after every launch, unless it is NULL: a stand-in of the device's memory */
extern void (*around_launch)(bool begins);

/* called before every launch, unless it is NULL: does it fail? */
extern bool (*launch_fails)(const char *name);

/* given a launch and its stream, unless it is NULL: runs it, now or later, once or several times */
extern void (*on_stream)(const void *stream, std::function<void()> launch);

/* wait for the block; returns for how many threads PREDICATE holds, or in ALL whether it does for
 * all */
struct votes {
    int n_true, n_threads;
};
votes sync_block(barrier kind, int predicate, site where);

/* waits for the lanes of MASK; returns for which of them PREDICATE holds, one bit each */
unsigned vote_warp(barrier kind, unsigned mask, int predicate, site where);

/* waits for the lanes of MASK; returns the bits that lane SOURCE brought */
uint64_t shuffle_warp(barrier kind, unsigned mask, uint64_t bits, int source, site where);

/* the lane that a shuffle reads; ends the program if WIDTH is none of 1, 2, 4, 8, 16, 32 */
int shuffle_source(barrier kind, unsigned arg, int width, site where);

template <typename T>
T shuffle(barrier kind, unsigned mask, T value, unsigned arg, int width, site where)
{
    static_assert(std::is_arithmetic<T>::value, "only numbers are shuffled");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = shuffle_warp(kind, mask, bits, shuffle_source(kind, arg, width, where), where);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/* as kernel<<<grid, block, shared_bytes, stream>>>(args...); arguments are evaluated once */
template <typename Stream, typename... Params, typename... Args>
void launch(const char *name, site where, void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared_bytes, Stream &&stream, Args &&...args)
{
    struct call {
        void (*kernel)(Params...);
        std::tuple<std::decay_t<Params>...> args;
    };
    const call this_call{ kernel,
                          std::tuple<std::decay_t<Params>...>(std::forward<Args>(args)...) };
    if (!permits(name, grid, block, shared_bytes))
        return;
    const auto run_call = [=] {
        if (around_launch)
            around_launch(true);
        run(
            name, where, grid, block, shared_bytes,
            [](const void *context) {
                const call *c = static_cast<const call *>(context);
                std::apply(c->kernel, c->args);
            },
            &this_call);
        if (around_launch)
            around_launch(false);
    };
    if constexpr (std::is_pointer<std::decay_t<Stream>>::value) {
        if (on_stream) {
            on_stream(stream, run_call);
            return;
        }
    } else {
        (void)stream;
    }
    run_call();
}
} // namespace td_grid

/* --- barriers, votes, shuffles ------------------------------------------------------------ */

inline void __syncthreads(td_grid::site where = {})
{
    td_grid::sync_block(td_grid::barrier::syncthreads, 0, where);
}

inline int __syncthreads_or(int predicate, td_grid::site where = {})
{
    return td_grid::sync_block(td_grid::barrier::syncthreads_or, predicate, where).n_true > 0;
}

inline int __syncthreads_and(int predicate, td_grid::site where = {})
{
    td_grid::votes v = td_grid::sync_block(td_grid::barrier::syncthreads_and, predicate, where);
    return v.n_true == v.n_threads;
}

inline int __syncthreads_count(int predicate, td_grid::site where = {})
{
    return td_grid::sync_block(td_grid::barrier::syncthreads_count, predicate, where).n_true;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, td_grid::site where = {})
{
    td_grid::vote_warp(td_grid::barrier::syncwarp, mask, 0, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, td_grid::site where = {})
{
    return td_grid::vote_warp(td_grid::barrier::ballot, mask, predicate, where);
}

inline int __any_sync(unsigned mask, int predicate, td_grid::site where = {})
{
    return td_grid::vote_warp(td_grid::barrier::any, mask, predicate, where) != 0;
}

inline int __all_sync(unsigned mask, int predicate, td_grid::site where = {})
{
    return td_grid::vote_warp(td_grid::barrier::all, mask, !predicate, where) == 0;
}

unsigned __activemask();

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, td_grid::site where = {})
{
    return td_grid::shuffle(td_grid::barrier::shfl, mask, value, unsigned(source), width, where);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, td_grid::site where = {})
{
    return td_grid::shuffle(td_grid::barrier::shfl_up, mask, value, delta, width, where);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, td_grid::site where = {})
{
    return td_grid::shuffle(td_grid::barrier::shfl_down, mask, value, delta, width, where);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, td_grid::site where = {})
{
    return td_grid::shuffle(td_grid::barrier::shfl_xor, mask, value, unsigned(lanes), width, where);
}

inline void __threadfence()
{
}

inline void __threadfence_block()
{
}

/* --- atomics: threads change only at barriers, so plain reads and writes do --------------- */

namespace td_grid
{
template <typename T>
using same = typename std::common_type<T>::type; /* T is not deduced from it */

template <typename T> T exchange(T *address, T value)
{
    T old = *address;
    *address = value;
    return old;
}

template <typename T> T add(T a, T b)
{
    if constexpr (std::is_integral<T>::value) {
        using U = std::make_unsigned_t<T>; /* wraps around */
        return T(U(a) + U(b));
    } else {
        return a + b;
    }
}
} // namespace td_grid

template <typename T> T atomicAdd(T *address, td_grid::same<T> value)
{
    static_assert(std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
                      std::is_same<T, unsigned long long>::value || std::is_same<T, float>::value ||
                      std::is_same<T, double>::value,
                  "CUDA has no atomicAdd of this type");
    return td_grid::exchange(address, td_grid::add(*address, value));
}

template <typename T> T atomicSub(T *address, td_grid::same<T> value)
{
    static_assert(std::is_same<T, int>::value || std::is_same<T, unsigned>::value,
                  "CUDA has no atomicSub of this type");
    using U = std::make_unsigned_t<T>;
    return td_grid::exchange(address, T(U(*address) - U(value)));
}

template <typename T> T atomicMax(T *address, td_grid::same<T> value)
{
    static_assert(std::is_integral<T>::value && sizeof(T) >= 4,
                  "CUDA has no atomicMax of this type");
    return td_grid::exchange(address, *address > value ? *address : value);
}

template <typename T> T atomicMin(T *address, td_grid::same<T> value)
{
    static_assert(std::is_integral<T>::value && sizeof(T) >= 4,
                  "CUDA has no atomicMin of this type");
    return td_grid::exchange(address, *address < value ? *address : value);
}

template <typename T> T atomicOr(T *address, td_grid::same<T> value)
{
    static_assert(std::is_integral<T>::value && sizeof(T) >= 4,
                  "CUDA has no atomicOr of this type");
    return td_grid::exchange(address, *address | value);
}

template <typename T> T atomicAnd(T *address, td_grid::same<T> value)
{
    static_assert(std::is_integral<T>::value && sizeof(T) >= 4,
                  "CUDA has no atomicAnd of this type");
    return td_grid::exchange(address, *address & value);
}

template <typename T> T atomicExch(T *address, td_grid::same<T> value)
{
    static_assert(std::is_arithmetic<T>::value && sizeof(T) >= 4 && !std::is_same<T, double>::value,
                  "CUDA has no atomicExch of this type");
    return td_grid::exchange(address, value);
}

template <typename T> T atomicCAS(T *address, td_grid::same<T> compare, td_grid::same<T> value)
{
    static_assert(std::is_integral<T>::value, "CUDA has no atomicCAS of this type");
    return td_grid::exchange(address, *address == compare ? value : *address);
}

#endif
