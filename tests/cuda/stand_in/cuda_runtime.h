/*
 * cuda_runtime.h -- stands in for the CUDA runtime where own kernels are compiled for the host
 *
 * Found before the toolkit's header by tests/CMakeLists.txt.  Memory of the device is memory of the
 * host that cannot be accessed except by copies and kernels, so a pointer used in the wrong place
 * is a segmentation fault.  Copies check that each side is what its direction says, and its size.
 * Kernels and copies run when they are called, or are queued (TANDEM_STAND_IN_ORDER); copies from
 * and to the host's memory are queued only if it is page-locked (cudaHostAlloc), others wait.  Sums
 * over ranks are queued always (stand_in.h).  What is queued runs when something waits for it: the
 * host, or an event on another stream that was recorded after it.  So what reads too early reads
 * what was there before.  A stream that is captured records its work; a launch of the graph does
 * it.  Environment variables choose the order and failures:
 *
 *   TANDEM_STAND_IN_ORDER=late    the work of every stream is queued
 *                         early   that of the first stream that was made; on others it runs at once
 *                                 when what it waits for has run
 *   TANDEM_STAND_IN_DEVICES=-1    no driver; 0: no GPU; else the number of GPUs, 1 by default
 *   TANDEM_STAND_IN_BYTES=1e6     memory of each, 1e9 by default
 *   TANDEM_STAND_IN_OTHERS=3e6    of it in use by other processes
 *   TANDEM_STAND_IN_CAPABILITY=7.0  compute capability, 9.0 by default
 *   TANDEM_STAND_IN_CUDNN=90100   version of cuDNN, 90800 by default
 *   TANDEM_STAND_IN_CUBLASLT=120804  version of cuBLASLt, 130100 by default
 *   TANDEM_STAND_IN_FAIL=7        the 7th call that can fail does, launches of kernels included
 *   TANDEM_STAND_IN_CALL=ncclSend of this function only
 *   TANDEM_STAND_IN_RANK=1        of this rank of `tandem launch` only; rank 0 by default
 *   TANDEM_STAND_IN_LOG=calls     file to which the names of these calls are appended, one a line,
 *                                 and at the end "left: 1 allocations" if not all were freed
 */
#ifndef TD_TESTS_CUDA_STAND_IN_CUDA_RUNTIME_H
#define TD_TESTS_CUDA_STAND_IN_CUDA_RUNTIME_H

#include <cstddef>

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901
};

enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };

struct cudaUUID_t {
    char bytes[16];
};

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    int major, minor;
    size_t totalGlobalMem;
};

typedef struct stand_in_stream *cudaStream_t;
typedef struct stand_in_event *cudaEvent_t;
typedef struct stand_in_graph *cudaGraph_t, *cudaGraphExec_t;

const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError();

cudaError_t cudaDriverGetVersion(int *out);
cudaError_t cudaRuntimeGetVersion(int *out);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaSetDevice(int index);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int index);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total);
cudaError_t cudaMalloc(void **out, size_t n);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **out, size_t n, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s);
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g);

#endif
