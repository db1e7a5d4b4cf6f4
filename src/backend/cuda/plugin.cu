/*
 * plugin.cu -- the plug-in for NVIDIA GPUs: memory, the queues, and the table of its functions
 *
 * Source: CUDA C++ Programming Guide 13.0, "Asynchronous Concurrent Execution".
 */
#include "backend/cuda/plugin.cuh"

#include <cstdio>
#include <cstring>

#include "backend/cuda/device.cuh"
#include "device/gpu_plugin.h"

namespace tandem
{
namespace
{

cudaStream_t stream;
int device;     /* of the process */
size_t n_bytes; /* size of the open GPU's memory; 0: no GPU is open */
char message[512];
char description[TD_GPU_PROPERTIES_BYTES]; /* JSON; "": the GPU is here */

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

const char *check_capability(int index, const cudaDeviceProp &p)
{
    if (p.major * 10 + p.minor >= 75)
        return nullptr;
    (void)snprintf(message, sizeof message,
                   "GPU %d, %s, has compute capability %d.%d, wanted 7.5 (Turing) or above", index,
                   p.name, p.major, p.minor);
    return message;
}

void set_info(const cudaDeviceProp &p, td_gpu_info *out)
{
    *out = {};
    (void)snprintf(out->name, sizeof out->name, "%s", p.name);
    memcpy(out->uuid, p.uuid.bytes, sizeof out->uuid);
    out->major = p.major;
    out->minor = p.minor;
    out->bytes = p.totalGlobalMem;
}

/* a thread begins with GPU 0 */
void use_device()
{
    thread_local int used = 0;
    if (used != device && cudaSetDevice(device) == cudaSuccess)
        used = device;
}

const char *open(int index, td_gpu_info *out)
{
    int n = 0;
    cudaDeviceProp p;
    if (const char *m = count_devices(&n))
        return m;
    index = n == 1 ? 0 : index;
    if (index < 0 || index >= n) {
        (void)snprintf(message, sizeof message,
                       "rank %d of this machine has no GPU of its own: %d are visible", index, n);
        return message;
    }
    device = index;
    CUDA_TRY("cudaSetDevice", cudaSetDevice(index));
    CUDA_TRY("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, index));
    if (const char *m = check_capability(index, p))
        return m;
    if (const char *m = open_cudnn())
        return m;
    if (const char *m = open_cublaslt())
        return m;
    CUDA_TRY("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (const char *m = open_copies())
        return m;
    *description = '\0';
    n_bytes = p.totalGlobalMem;
    set_info(p, out);
    return nullptr;
}

/* --- what is installed ------------------------------------------------------------------------ */

void survey_gpus(td_gpu_survey *out)
{
    const char *why_not = count_devices(&out->n_gpus);
    for (int i = 0; !why_not && i < out->n_gpus && i < TD_GPU_SURVEYED; i++) {
        cudaDeviceProp p = {};
        const char *m = explain("cudaGetDeviceProperties", cudaGetDeviceProperties(&p, i));
        if (!m)
            m = check_capability(i, p);
        why_not = i == 0 ? m : nullptr;
        set_info(p, &out->gpus[i]);
    }
    (void)snprintf(out->why_not, sizeof out->why_not, "%s", why_not ? why_not : "");
    (void)cudaGetLastError();
}

void survey(td_gpu_survey *out)
{
    *out = {};
    (void)cudaDriverGetVersion(&out->driver_cuda);
    (void)cudaRuntimeGetVersion(&out->runtime_cuda);
    survey_gpus(out);
    survey_cudnn(out->cudnn, sizeof out->cudnn);
    survey_cublaslt(out->cublaslt, sizeof out->cublaslt);
    survey_nccl(out->nccl, sizeof out->nccl);
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

const char *memory(size_t *n_free, size_t *n_total)
{
    return explain("cudaMemGetInfo", cudaMemGetInfo(n_free, n_total));
}

const char *no_memory(size_t n)
{
    size_t n_free = 0, n_total = 0;
    (void)cudaGetLastError();
    if (const char *m = memory(&n_free, &n_total))
        return m;
    (void)snprintf(message, sizeof message,
                   "%.1f MB of GPU memory are wanted, %.1f of %.1f MB are free",
                   static_cast<double>(n) / 1e6, static_cast<double>(n_free) / 1e6,
                   static_cast<double>(n_total) / 1e6);
    return message;
}

const char *alloc(size_t n, void **out)
{
    *out = nullptr;
    use_device();
    const cudaError_t e = cudaMalloc(out, n > 0 ? n : 1);
    if (e == cudaErrorMemoryAllocation)
        return no_memory(n);
    CUDA_TRY("cudaMalloc", e);
    const char *m = fill(*out, 0, n);
    if (m) {
        (void)cudaFree(*out);
        *out = nullptr;
    }
    return m;
}

void free(void *p)
{
    (void)cudaFree(p);
}

const char *sync()
{
    return wait_for(stream);
}

const char *copy_in(void *to, const void *from_host, size_t n)
{
    CUDA_TRY("cudaMemcpyAsync", cudaMemcpyAsync(to, from_host, n, cudaMemcpyHostToDevice, stream));
    return sync();
}

const char *copy_out(void *to_host, const void *from, size_t n)
{
    CUDA_TRY("cudaMemcpyAsync", cudaMemcpyAsync(to_host, from, n, cudaMemcpyDeviceToHost, stream));
    return sync();
}

} // namespace

const char *device_alloc(size_t n, void **out)
{
    return alloc(n, out);
}

const char *explain(const char *what, cudaError_t e)
{
    if (e == cudaSuccess)
        return nullptr;
    (void)snprintf(message, sizeof message, "%s: %s (%s)", what, cudaGetErrorString(e),
                   cudaGetErrorName(e));
    return message;
}

cudaStream_t queue()
{
    use_device();
    return stream;
}

size_t memory_size()
{
    return described() ? 0 : n_bytes;
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
    TD_GPU_PLUGIN_VERSION,   tandem::survey,       tandem::open,          tandem::describe,
    tandem::read_properties, tandem::memory,       tandem::alloc,         tandem::free,
    tandem::copy_in,         tandem::copy_out,     tandem::fill,          tandem::sync,
    tandem::host_alloc,      tandem::host_free,    tandem::queue_in,      tandem::queue_out,
    tandem::wait_ahead,      tandem::send_ahead,   tandem::take_ahead,    tandem::begin_capture,
    tandem::end_capture,     tandem::run_captured, tandem::free_captured,
#define MEMBER(name) tandem::name,
    TD_GPU_KERNELS(MEMBER)
#undef MEMBER
};
}
