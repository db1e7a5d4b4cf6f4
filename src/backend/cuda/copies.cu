/*
 * copies.cu -- queued copies, and those that run on a second queue while the first one computes
 *
 *     compute   wait for arrived[1], take, taken ... kernels ... wait for arrived[0], take, taken
 *     copies                           wait for taken, send, arrived[0]
 *
 * The host's memory is page-locked: otherwise CUDA's copies would wait.
 *
 * Source: CUDA C++ Programming Guide 13.0, "Asynchronous Concurrent Execution".
 */
#include "backend/cuda/plugin.cuh"
#include "device/gpu_plugin.h"

namespace tandem
{
namespace
{

cudaStream_t copies;
cudaEvent_t taken;
cudaEvent_t arrived[TD_GPU_AHEAD];

#define CUDA_TRY(name, ...)                                                                        \
    do {                                                                                           \
        if (const char *m_ = explain(#name, name(__VA_ARGS__)))                                    \
            return m_;                                                                             \
    } while (0)

} // namespace

const char *open_copies()
{
    CUDA_TRY(cudaStreamCreateWithFlags, &copies, cudaStreamNonBlocking);
    CUDA_TRY(cudaEventCreateWithFlags, &taken, cudaEventDisableTiming);
    for (cudaEvent_t &e : arrived)
        CUDA_TRY(cudaEventCreateWithFlags, &e, cudaEventDisableTiming);
    return nullptr;
}

const char *host_alloc(size_t n, void **out)
{
    *out = nullptr;
    (void)queue(); /* the thread's GPU */
    return explain("cudaHostAlloc", cudaHostAlloc(out, n > 0 ? n : 1, cudaHostAllocDefault));
}

void host_free(void *p)
{
    (void)cudaFreeHost(p);
}

const char *queue_in(void *to, const void *host, size_t n)
{
    return explain("cudaMemcpyAsync",
                   cudaMemcpyAsync(to, host, n, cudaMemcpyHostToDevice, queue()));
}

const char *queue_out(void *host, const void *from, size_t n)
{
    return explain("cudaMemcpyAsync",
                   cudaMemcpyAsync(host, from, n, cudaMemcpyDeviceToHost, queue()));
}

const char *wait_ahead(int slot)
{
    return explain("cudaEventSynchronize", cudaEventSynchronize(arrived[slot]));
}

const char *send_ahead(int slot, void *to, const void *host, size_t n)
{
    (void)queue(); /* the thread's GPU */
    CUDA_TRY(cudaStreamWaitEvent, copies, taken, 0);
    CUDA_TRY(cudaMemcpyAsync, to, host, n, cudaMemcpyHostToDevice, copies);
    return explain("cudaEventRecord", cudaEventRecord(arrived[slot], copies));
}

const char *take_ahead(int slot, void *to, const void *from, size_t n)
{
    CUDA_TRY(cudaStreamWaitEvent, queue(), arrived[slot], 0);
    CUDA_TRY(cudaMemcpyAsync, to, from, n, cudaMemcpyDeviceToDevice, queue());
    return explain("cudaEventRecord", cudaEventRecord(taken, queue()));
}

} // namespace tandem
