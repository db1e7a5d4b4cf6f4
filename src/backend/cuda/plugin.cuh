/*
 * backend/cuda/plugin.cuh -- what the sources of the CUDA plug-in share
 */
#ifndef TD_BACKEND_CUDA_PLUGIN_CUH
#define TD_BACKEND_CUDA_PLUGIN_CUH

#include <cuda_runtime.h>

#include "device/gpu_kernels.h"

namespace tandem
{

/** The queue that all kernels and copies are on. */
cudaStream_t queue();

/** The bytes of the open GPU's memory; 0: it is only described. */
size_t memory_size();

/** The properties of the GPU that plans are made for, as JSON; NULL: it is here, and open. */
const char *described();

/** Open cuDNN, once: NULL, or why it cannot be used. */
const char *open_cudnn();

/** The version of cuDNN, "9.28.1", or why it cannot be used. */
void survey_cudnn(char *text, size_t n);

/** Open cuBLASLt, once: NULL, or why it cannot be used. */
const char *open_cublaslt();

/** The version of cuBLASLt, "13.1.0", or why it cannot be used. */
void survey_cublaslt(char *text, size_t n);

/** The version of NCCL, "2.32.3", or why it cannot be used. */
void survey_nccl(char *text, size_t n);

/** NULL, or why convolutions cannot be planned for a GPU with these properties. */
const char *check_description(const char *json);

/** td_gpu_plugin.properties */
const char *read_properties(char *json, size_t room);

/** NULL, or why the last launch was refused. */
const char *started();

/** NULL, or what failed, as a message. */
const char *explain(const char *what, cudaError_t e);

/** Memory of the GPU, zeros, to be freed by cudaFree: NULL, or what failed. */
const char *device_alloc(size_t n, void **out);

/** Wait for a queue; the check of a group of ranks ends it when a rank is lost. */
const char *wait_for(cudaStream_t stream);

/** Make the second queue and its events (copies.cu): NULL, or what failed. */
const char *open_copies();

/** As the members of td_gpu_plugin with these names. */
const char *host_alloc(size_t n, void **out);
void host_free(void *p);
const char *queue_in(void *to, const void *host, size_t n);
const char *queue_out(void *host, const void *from, size_t n);
const char *wait_ahead(int slot);
const char *send_ahead(int slot, void *to, const void *host, size_t n);
const char *take_ahead(int slot, void *to, const void *from, size_t n);
const char *begin_capture();
const char *end_capture(void **graph);
const char *run_captured(void *graph);
void free_captured(void *graph);

/** The functions of the plug-in: NULL, or an error message. */
#define TD_CUDA_DECLARE(name) const char *name(const td_gpu_##name *a);
TD_GPU_KERNELS(TD_CUDA_DECLARE)
#undef TD_CUDA_DECLARE

} // namespace tandem

#endif
