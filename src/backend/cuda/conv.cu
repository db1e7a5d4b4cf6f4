/*
 * conv.cu -- convolutions by cuDNN: plans, and running them on the plug-in's queue
 *
 * An engine that cuDNN compiles takes it a second, so nodes with the same problem share a plan, and
 * a question (made is NULL) is answered once: the plan is kept for the node that follows.
 * Convolutions with statistics or relu6, or of relu(scale x + shift), run on engines of heuristic
 * mode A only: those of the fallback list are slower than a pass over memory.  Engines that need a
 * workspace above workspace_limit() are for problems that have no other.
 *
 * TANDEM_CUDNN names the library, instead of libcudnn.so.9.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <new>

#include "backend/cuda/plugin.cuh"

extern "C" {
#include "backend/cuda/cudnn_graph.h"
}

namespace tandem
{
namespace
{

char message[TD_CUDNN_TEXT];
void *handle;

/* bytes; the largest of the plans in tests/golden/cuda_plans.txt, at batch 32, have 300 MB */
constexpr int64_t LEAST_LIMIT = int64_t(1) << 30;

/* a sixteenth of the GPU's memory: with 1 GiB ResNet-50 in float32, batch 256, took 1.8 times as
   long on an H200 */
int64_t workspace_limit()
{
    return std::max(LEAST_LIMIT, static_cast<int64_t>(memory_size() / 16));
}

/* a problem with its plan, or with the reason why there is none */
struct planned {
    td_cudnn_conv problem; /* compared by memcmp: its padding is 0 */
    int choice, users;
    bool is_refused;
    char why[TD_CUDNN_TEXT];
    td_cudnn_plan plan;
};

std::list<planned> plans; /* oldest first */

/* plans without users that are kept: some kernels are compiled for a second */
constexpr int KEPT = 64;

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

void read_problem(const td_gpu_conv_plan &a, td_cudnn_conv &v)
{
    memset(&v, 0, sizeof v);
    v.direction = direction_of(a.direction);
    v.dtype = dtype_of(a.dtype);
    v.allow_tf32 = a.allow_tf32;
    v.is_deterministic = true;
    v.wide_vectors = a.wide_vectors;
    v.fused = a.has_bias * TD_CUDNN_BIAS | a.has_residual * TD_CUDNN_ADD | a.relu * TD_CUDNN_RELU |
              a.relu6 * TD_CUDNN_CLIP_6 | a.has_scale_relu * TD_CUDNN_SCALE_RELU |
              a.has_statistics * TD_CUDNN_STATISTICS;
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
}

planned *find_planned(const td_cudnn_conv &problem, int choice)
{
    for (planned &p : plans)
        if (p.choice == choice && memcmp(&p.problem, &problem, sizeof problem) == 0)
            return &p;
    return nullptr;
}

const char *add_plan(const td_cudnn_conv &problem, int choice, planned **out)
{
    td_cudnn_target target;
    if (const char *m = find_target(&target))
        return m;
    target.choice = choice;
    target.workspace_limit_bytes = workspace_limit();
    /* the compiled kernels that also sum take 3 to 10 times as long as a convolution and a pass for
       the sums: of 3 channels, in groups and in bf16 */
    target.without_fallback =
        problem.fused & (TD_CUDNN_SCALE_RELU | TD_CUDNN_STATISTICS | TD_CUDNN_CLIP_6);
    target.without_compiled = problem.fused & TD_CUDNN_STATISTICS;
    try {
        plans.emplace_back();
    } catch (const std::bad_alloc &) {
        return "out of memory";
    }
    planned &p = plans.back();
    memcpy(&p.problem, &problem, sizeof problem);
    p.choice = choice;
    p.users = 0;
    p.is_refused = td_cudnn_plan_init(&p.plan, &problem, &target, p.why) != 0;
    *out = &p;
    return nullptr;
}

template <typename F> void release_plans(const F &is_released)
{
    for (auto p = plans.begin(); p != plans.end();) {
        if (!is_released(*p)) {
            ++p;
            continue;
        }
        if (!p->is_refused)
            td_cudnn_plan_release(&p->plan);
        p = plans.erase(p);
    }
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
    release_plans([](const planned &p) { return p.users == 0; });
    return td_cudnn_check_device(json, message) ? message : nullptr;
}

const char *read_properties(char *json, size_t room)
{
    td_cudnn_target target;
    if (const char *m = find_target(&target))
        return m;
    return td_cudnn_read_device(&target, json, room, message) ? message : nullptr;
}

const char *conv_plan(const td_gpu_conv_plan *a)
{
    td_cudnn_conv problem;
    read_problem(*a, problem);
    planned *p = find_planned(problem, a->choice);
    if (!p)
        if (const char *m = add_plan(problem, a->choice, &p))
            return m;
    if (p->is_refused)
        return p->why;
    if (!a->made)
        return nullptr;
    p->users++;
    a->made->plan = p;
    a->made->scratch_bytes = static_cast<size_t>(p->plan.workspace_bytes);
    (void)snprintf(a->made->impl, sizeof a->made->impl, "cudnn engine %lld%s",
                   static_cast<long long>(p->plan.engine),
                   p->plan.has_tensor_cores ? ", tensor cores" : "");
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
    tensors[TD_CUDNN_SCALE] = a->scale;
    tensors[TD_CUDNN_SHIFT] = a->shift;
    tensors[TD_CUDNN_SUM] = a->sum;
    tensors[TD_CUDNN_SQUARES] = a->squares;
    const auto *p = static_cast<const planned *>(a->plan);
    return td_cudnn_plan_execute(&p->plan, handle, tensors, a->scratch, message) ? message
                                                                                 : nullptr;
}

const char *conv_free(const td_gpu_conv_free *a)
{
    int n_unused = 0;
    if (auto *freed = static_cast<planned *>(a->plan)) {
        freed->users--;
        for (const planned &p : plans)
            n_unused += p.users == 0;
        n_unused -= KEPT;
    } else {
        n_unused = static_cast<int>(plans.size());
    }
    release_plans([&](const planned &p) { return p.users == 0 && n_unused-- > 0; });
    return nullptr;
}

} // namespace tandem
