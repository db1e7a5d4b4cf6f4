/*
 * plugin.cu -- the plug-in for NVIDIA GPUs: memory, one queue, and the table of its functions
 *
 * Source: CUDA C++ Programming Guide 13.0, "Asynchronous Concurrent Execution".
 */
#include "backend/cuda/plugin.cuh"

#include <cstdio>
#include <cstring>

#include "backend/cuda/device.cuh"
#include "runtime/gpu_plugin.h"

namespace tandem {
namespace {

cudaStream_t stream;
char message[512];
char description[1 << 14]; /* JSON; "": the GPU is here */

/* NULL, or what failed */
const char *explain(const char *what, cudaError_t e)
{
    if (e == cudaSuccess)
        return nullptr;
    (void)snprintf(message, sizeof message, "%s: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
    return message;
}

#define CUDA_TRY(what, call)                                                                       \
    do {                                                                                           \
        if (const char *m_ = explain(what, call))                                                  \
            return m_;                                                                             \
    } while (0)

const char *count_devices(int *n)
{
    const cudaError_t e = cudaGetDeviceCount(n);
    if (e == cudaErrorInsufficientDriver)
        return "no NVIDIA driver, or one that is older than CUDA 13 requires (580)";
    if (e == cudaErrorNoDevice || (e == cudaSuccess && *n == 0))
        return "the NVIDIA driver finds no GPU";
    return explain("cudaGetDeviceCount", e);
}

const char *open(int index, td_gpu_info *out)
{
    int n = 0;
    cudaDeviceProp p;
    if (const char *m = count_devices(&n))
        return m;
    if (index < 0 || index >= n) {
        (void)snprintf(message, sizeof message, "there is no GPU %d: %d found", index, n);
        return message;
    }
    CUDA_TRY("cudaSetDevice", cudaSetDevice(index));
    CUDA_TRY("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, index));
    if (p.major * 10 + p.minor < 75) {
        (void)snprintf(message, sizeof message,
                       "GPU %d has compute capability %d.%d, wanted 7.5 or above", index, p.major,
                       p.minor);
        return message;
    }
    CUDA_TRY("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *description = '\0';
    *out = {};
    (void)snprintf(out->name, sizeof out->name, "%s", p.name);
    out->major = p.major;
    out->minor = p.minor;
    out->bytes = p.totalGlobalMem;
    return nullptr;
}

const char *describe(const char *json)
{
    if (strlen(json) == 0 || strlen(json) >= sizeof description)
        return "the description of a GPU has 1 to 16383 bytes";
    if (const char *m = check_description(json))
        return m;
    (void)snprintf(description, sizeof description, "%s", json);
    return nullptr;
}

const char *fill(void *p, int byte, size_t n)
{
    return explain("cudaMemsetAsync", cudaMemsetAsync(p, byte, n, stream));
}

const char *alloc(size_t n, void **out)
{
    *out = nullptr;
    const cudaError_t e = cudaMalloc(out, n > 0 ? n : 1);
    if (e == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        (void)snprintf(message, sizeof message, "no %.1f MB of GPU memory are free",
                       static_cast<double>(n) / 1e6);
        return message;
    }
    CUDA_TRY("cudaMalloc", e);
    return fill(*out, 0, n);
}

void free(void *p)
{
    (void)cudaFree(p);
}

const char *sync()
{
    return explain("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

const char *copy_in(void *to, const void *from_host, size_t n)
{
    CUDA_TRY("cudaMemcpyAsync",
             cudaMemcpyAsync(to, from_host, n, cudaMemcpyHostToDevice, stream));
    return sync();
}

const char *copy_out(void *to_host, const void *from, size_t n)
{
    CUDA_TRY("cudaMemcpyAsync",
             cudaMemcpyAsync(to_host, from, n, cudaMemcpyDeviceToHost, stream));
    return sync();
}

} // namespace

cudaStream_t queue()
{
    return stream;
}

const char *described()
{
    return *description ? description : nullptr;
}

const char *started()
{
    return td_launch_error();
}

} // namespace tandem

/* found by name: TD_GPU_PLUGIN_SYMBOL */
extern "C" {
extern __attribute__((visibility("default"))) const td_gpu_plugin td_gpu_plugin_v1;

const td_gpu_plugin td_gpu_plugin_v1 = {
    TD_GPU_PLUGIN_VERSION,
    tandem::open,
    tandem::describe,
    tandem::alloc,
    tandem::free,
    tandem::copy_in,
    tandem::copy_out,
    tandem::fill,
    tandem::sync,
#define MEMBER(name) tandem::name,
    TD_GPU_KERNELS(MEMBER)
#undef MEMBER
};
}
