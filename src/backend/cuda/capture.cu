/*
 * capture.cu -- CUDA graphs: what is queued between begin and end, launched later as a whole
 *
 * Only this thread's calls are restricted in between: others may load images meanwhile, or allocate.
 * cuDNN's execution plans may be captured; their variant packs hold the same pointers in every step.
 *
 * Source: CUDA C++ Programming Guide 13.0, "CUDA Graphs", "Stream Capture".
 */
#include "backend/cuda/plugin.cuh"

namespace tandem
{

const char *begin_capture()
{
    const char *m = explain("cudaStreamBeginCapture",
                            cudaStreamBeginCapture(queue(), cudaStreamCaptureModeThreadLocal));
    if (m)
        (void)cudaGetLastError(); /* it is not one of the launches that follow */
    return m;
}

const char *end_capture(void **out)
{
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    const char *m = explain("cudaStreamEndCapture", cudaStreamEndCapture(queue(), &graph));
    if (!m && out)
        m = explain("cudaGraphInstantiate", cudaGraphInstantiate(&made, graph, 0));
    if (graph)
        (void)cudaGraphDestroy(graph);
    if (m || !out)
        (void)cudaGetLastError();
    if (out)
        *out = made;
    return m;
}

const char *run_captured(void *graph)
{
    return explain("cudaGraphLaunch",
                   cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), queue()));
}

void free_captured(void *graph)
{
    (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

} // namespace tandem
