/*
 * conv.cu -- convolutions by cuDNN: plans, and running them on the plug-in's queue
 *
 * TANDEM_CUDNN names the library, instead of libcudnn.so.9.
 */
#include <cstdio>
#include <cstdlib>
#include <new>

#include "backend/cuda/plugin.cuh"

extern "C" {
#include "backend/cuda/cudnn_graph.h"
}

namespace tandem {
namespace {

char message[TD_CUDNN_TEXT];
void *handle;

#define INSTALL                                                                                    \
    "install the package nvidia-cudnn-cu13 (pip) and set TANDEM_CUDNN to its file libcudnn.so.9"

/* cuDNN's number of version 9.28.1 is 92801 */
const char *open_library(int64_t *version)
{
    const int64_t oldest = 90800; /* plans for properties of a device */
    char error[TD_CUDNN_TEXT];
    if (td_cudnn_open(getenv("TANDEM_CUDNN"), version, error)) {
        (void)snprintf(message, sizeof message, "%.*s; " INSTALL, TD_CUDNN_TEXT / 2, error);
        return message;
    }
    if (*version >= oldest)
        return nullptr;
    (void)snprintf(message, sizeof message,
                   "cuDNN %d.%d.%d is too old, wanted 9.8 or above; " INSTALL,
                   static_cast<int>(*version / 10000), static_cast<int>(*version / 100 % 100),
                   static_cast<int>(*version % 100));
    return message;
}

/* a GPU that is only described has no handle */
const char *find_target(td_cudnn_target *out)
{
    *out = {};
    if (const char *m = open_cudnn())
        return m;
    out->json = described();
    if (!out->json && !handle && td_cudnn_handle_create(queue(), &handle, message))
        return message;
    out->handle = out->json ? nullptr : handle;
    return nullptr;
}

td_cudnn_dtype dtype_of(td_dtype d)
{
    return d == TD_DT_F16 ? TD_CUDNN_F16 : d == TD_DT_BF16 ? TD_CUDNN_BF16 : TD_CUDNN_F32;
}

td_cudnn_direction direction_of(td_gpu_direction d)
{
    return d == TD_GPU_FORWARD         ? TD_CUDNN_FORWARD
           : d == TD_GPU_DATA_GRADIENT ? TD_CUDNN_DATA_GRADIENT
                                       : TD_CUDNN_FILTER_GRADIENT;
}

td_cudnn_conv problem_of(const td_gpu_conv_plan &a)
{
    td_cudnn_conv v = {};
    v.direction = direction_of(a.direction);
    v.dtype = dtype_of(a.dtype);
    v.allow_tf32 = a.allow_tf32;
    v.is_deterministic = true;
    v.fused = a.has_bias * TD_CUDNN_BIAS | a.has_residual * TD_CUDNN_ADD | a.relu * TD_CUDNN_RELU;
    v.n = a.n;
    v.c = a.c;
    v.h = a.h;
    v.w = a.w;
    v.k = a.k;
    v.r = a.r;
    v.s = a.s;
    v.groups = a.groups;
    for (int i = 0; i < 2; i++) {
        v.pad_before[i] = a.pad_before[i];
        v.pad_after[i] = a.pad_after[i];
        v.stride[i] = a.stride[i];
        v.dilation[i] = a.dilation[i];
    }
    return v;
}

} // namespace

const char *open_cudnn()
{
    int64_t version = 0;
    return open_library(&version);
}

void survey_cudnn(char *text, size_t n)
{
    int64_t version = 0;
    if (const char *m = open_library(&version))
        (void)snprintf(text, n, "%s", m);
    else
        (void)snprintf(text, n, "%d.%d.%d", static_cast<int>(version / 10000),
                       static_cast<int>(version / 100 % 100), static_cast<int>(version % 100));
}

const char *check_description(const char *json)
{
    if (const char *m = open_cudnn())
        return m;
    return td_cudnn_check_device(json, message) ? message : nullptr;
}

const char *conv_plan(const td_gpu_conv_plan *a)
{
    td_cudnn_target target;
    const td_cudnn_conv problem = problem_of(*a);
    if (const char *m = find_target(&target))
        return m;
    target.choice = a->choice;
    auto *plan = new (std::nothrow) td_cudnn_plan;
    if (!plan)
        return "out of memory";
    if (td_cudnn_plan_init(plan, &problem, &target, message)) {
        delete plan;
        return message;
    }
    a->made->plan = plan;
    a->made->scratch_bytes = static_cast<size_t>(plan->workspace_bytes);
    (void)snprintf(a->made->impl, sizeof a->made->impl, "cudnn engine %lld%s",
                   static_cast<long long>(plan->engine),
                   plan->has_tensor_cores ? ", tensor cores" : "");
    return nullptr;
}

const char *conv_run(const td_gpu_conv_run *a)
{
    void *tensors[TD_CUDNN_TENSORS] = {};
    tensors[TD_CUDNN_X] = a->x;
    tensors[TD_CUDNN_W] = a->w;
    tensors[TD_CUDNN_Y] = a->y;
    tensors[TD_CUDNN_BIAS_OF] = a->bias;
    tensors[TD_CUDNN_Z] = a->residual;
    const auto *plan = static_cast<const td_cudnn_plan *>(a->plan);
    return td_cudnn_plan_execute(plan, handle, tensors, a->scratch, message) ? message : nullptr;
}

const char *conv_free(const td_gpu_conv_free *a)
{
    auto *plan = static_cast<td_cudnn_plan *>(a->plan);
    if (plan)
        td_cudnn_plan_release(plan);
    delete plan;
    return nullptr;
}

} // namespace tandem
