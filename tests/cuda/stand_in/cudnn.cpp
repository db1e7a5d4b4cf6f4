/*
 * cudnn.cpp -- cuDNN's backend API on a machine without a GPU: descriptors, heuristics and plans
 *
 * It checks what cuDNN checks: attributes by descriptor, type and number, what must be set before a
 * descriptor is finalized, handles and sizes.  cudnn_execute.cpp runs plans.  Which
 * graphs an engine of a GPU accepts, only cuDNN knows: tests/cuda/cuda_plans.c asks it.
 *
 * Heuristics offer nine engines, so that callers must choose:
 *
 *   0   cannot be planned                          2   is not deterministic
 *   1   sums with less than float32                3, 4, 5   use tensor cores: float32 as TF32
 *   6, 7, 8   float32
 */

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <set>

#include "cudnn_descriptor.h"
#include "stand_in.h"

struct stand_in_handle {
    cudaStream_t stream;
};

namespace
{

using namespace stand_in;

enum { N_ENGINES = 9, WORKSPACE = 1000 };

char last_error[256];
std::set<const void *> descriptors, handles; /* that exist */

struct end {
    ~end()
    {
        log_left("descriptors", descriptors.size());
    }
} at_end;

/* --- attributes ------------------------------------------------------------------------------- */

struct rule {
    kind descriptor;
    attribute name;
    cudnnBackendAttributeType_t type;
    int64_t n_min, n_max;
    bool is_required;
};

#define OPERATION(kind_, part, x, w, y)                                                              \
    { kind_,                                                                                         \
      CUDNN_ATTR_OPERATION_CONVOLUTION_##part##_CONV_DESC,                                           \
      CUDNN_TYPE_BACKEND_DESCRIPTOR,                                                                 \
      1,                                                                                             \
      1,                                                                                             \
      true },                                                                                        \
        { kind_, CUDNN_ATTR_OPERATION_CONVOLUTION_##part##_##x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, \
          true },                                                                                    \
        { kind_, CUDNN_ATTR_OPERATION_CONVOLUTION_##part##_##w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, \
          true },                                                                                    \
        { kind_, CUDNN_ATTR_OPERATION_CONVOLUTION_##part##_##y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, \
          true },                                                                                    \
        { kind_, CUDNN_ATTR_OPERATION_CONVOLUTION_##part##_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, true },    \
    {                                                                                                \
        kind_, CUDNN_ATTR_OPERATION_CONVOLUTION_##part##_BETA, CUDNN_TYPE_FLOAT, 1, 1, true          \
    }

const rule rules[] = {
    { POINTWISE, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, true },
    { POINTWISE, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, true },
    { POINTWISE, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, 1, false },
    { POINTWISE, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, 1, 1, false },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1, true },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 2, true },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 2, true },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 2, true },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 2, true },
    { CONVOLUTION, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1, true },
    { HEURISTIC, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, true },
    { HEURISTIC, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true },
    { HEURISTIC, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false },
    { PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, true },
    { PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true },
    OPERATION(FORWARD, FORWARD, X, W, Y),
    OPERATION(DATA_GRADIENT, BWD_DATA, DX, W, DY),
    OPERATION(FILTER_GRADIENT, BWD_FILTER, X, DW, DY),
    { MAP, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1,
      true },
    { MAP, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true },
    { MAP, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false },
    { MAP, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false },
    { MAP, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false },
    { MAP, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false },
    { STATISTICS, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, 1, true },
    { STATISTICS, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, true },
    { STATISTICS, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, true },
    { STATISTICS, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1,
      true },
    { STATISTICS, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1,
      true },
    { GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, true },
    { GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 16, true },
    { TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1, true },
    { TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, true },
    { TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, RANK, RANK, true },
    { TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, RANK, RANK, true },
    { TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1, true },
    { TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1, false },
    { DEVICE, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, true },
    { PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 32, true },
    { PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 32, true },
    { PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, true },
};

size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
        return 8;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return 4; /* float and enums */
    }
}

const rule *rule_of(kind descriptor, attribute name)
{
    for (const rule &r : rules)
        if (r.descriptor == descriptor && r.name == name)
            return &r;
    return nullptr;
}

/* --- finalizing ------------------------------------------------------------------------------- */

bool is_final(const void *d)
{
    return descriptors.count(d) && static_cast<const descriptor *>(d)->is_final;
}

cudnnStatus_t check_rule(const descriptor &d, const rule &r)
{
    FAIL_IF(r.is_required && !d.values.count(r.name), CUDNN_STATUS_BAD_PARAM,
            "attribute %d is not set", r.name);
    if (r.type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (const void *p : get_all<void *>(d, r.name))
            FAIL_IF(!is_final(p), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                    "attribute %d is not finalized", r.name);
    if (r.type == CUDNN_TYPE_HANDLE)
        FAIL_IF(d.values.count(r.name) && !handles.count(get<void *>(d, r.name)),
                CUDNN_STATUS_BAD_PARAM, "attribute %d is no handle", r.name);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_tensor(const descriptor &d)
{
    const auto dims = get_all<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto strides = get_all<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES);
    const auto align = get<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    for (int i = 0; i < RANK; i++)
        FAIL_IF(dims[i] < 1 || strides[i] < 1, CUDNN_STATUS_BAD_PARAM, "dimension %d is %lld", i,
                static_cast<long long>(dims[i]));
    FAIL_IF(align < 1 || (align & (align - 1)), CUDNN_STATUS_BAD_PARAM, "alignment %lld",
            static_cast<long long>(align));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_convolution(const descriptor &d)
{
    const operands o = operands_of(d);
    const auto x = dims_of(o.x), w = dims_of(o.w), y = dims_of(o.y);
    const geometry g = geometry_of(o.conv);
    FAIL_IF(x[0] != y[0] || w[0] != y[1] || x[1] % w[1] || w[0] % (x[1] / w[1]),
            CUDNN_STATUS_BAD_PARAM, "channels or batches do not match");
    for (int i = 0; i < 2; i++) {
        const int64_t filter = g.dilation[i] * (w[2 + i] - 1) + 1;
        const int64_t out = (x[2 + i] + g.before[i] + g.after[i] - filter) / g.stride[i] + 1;
        FAIL_IF(out != y[2 + i], CUDNN_STATUS_BAD_PARAM, "side %d of y is %lld, wanted %lld", i,
                static_cast<long long>(y[2 + i]), static_cast<long long>(out));
    }
    FAIL_IF(get<int>(*o.conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION,
            CUDNN_STATUS_NOT_SUPPORTED, "true convolution");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_map(const descriptor &d)
{
    const int mode =
        get<int>(*part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE);
    const bool is_backward = mode == CUDNN_POINTWISE_RELU_BWD;
    const bool is_binary = mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL;
    FAIL_IF(is_backward != (part(d, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC) != nullptr) ||
                is_backward != (part(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC) != nullptr) ||
                is_backward == (part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC) != nullptr) ||
                is_binary != (part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != nullptr),
            CUDNN_STATUS_BAD_PARAM, "tensors do not fit pointwise mode %d", mode);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_plan(const descriptor &d)
{
    const auto *config = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    FAIL_IF(config->engine == 0, CUDNN_STATUS_NOT_SUPPORTED, "engine 0 supports nothing");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_pack(const descriptor &d)
{
    const size_t n = get_all<int64_t>(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size();
    FAIL_IF(n != get_all<void *>(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size(),
            CUDNN_STATUS_BAD_PARAM, "%zu ids and another number of pointers", n);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check(const descriptor &d)
{
    for (const rule &r : rules)
        if (r.descriptor == d.type)
            TRY(check_rule(d, r));
    switch (d.type) {
    case TENSOR:
        return check_tensor(d);
    case FORWARD:
    case DATA_GRADIENT:
    case FILTER_GRADIENT:
        return check_convolution(d);
    case MAP:
        return check_map(d);
    case PLAN:
        return check_plan(d);
    case PACK:
        return check_pack(d);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

} // namespace

namespace stand_in
{

cudnnStatus_t failed(cudnnStatus_t status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    return status;
}

#define OPERANDS(part_, x_, w_, y_)                                                                \
    {                                                                                              \
        part(d, CUDNN_ATTR_OPERATION_CONVOLUTION_##part_##_CONV_DESC),                             \
            part(d, CUDNN_ATTR_OPERATION_CONVOLUTION_##part_##_##x_),                              \
            part(d, CUDNN_ATTR_OPERATION_CONVOLUTION_##part_##_##w_),                              \
            part(d, CUDNN_ATTR_OPERATION_CONVOLUTION_##part_##_##y_)                               \
    }

operands operands_of(const descriptor &d)
{
    if (d.type == FORWARD)
        return OPERANDS(FORWARD, X, W, Y);
    if (d.type == DATA_GRADIENT)
        return OPERANDS(BWD_DATA, DX, W, DY);
    return OPERANDS(BWD_FILTER, X, DW, DY);
}

const descriptor *graph_of(const descriptor &plan)
{
    const auto *config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return config ? part(*config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) : nullptr;
}

int64_t workspace_of(const descriptor &plan)
{
    for (void *p : get_all<void *>(*graph_of(plan), CUDNN_ATTR_OPERATIONGRAPH_OPS))
        if (static_cast<descriptor *>(p)->type == FILTER_GRADIENT)
            return WORKSPACE;
    return 0;
}

std::vector<const descriptor *> tensors_of(const descriptor &operation)
{
    std::vector<const descriptor *> v;
    for (const rule &r : rules) {
        const descriptor *t =
            r.descriptor == operation.type && r.type == CUDNN_TYPE_BACKEND_DESCRIPTOR
                ? part(operation, r.name)
                : nullptr;
        if (t && t->type == TENSOR)
            v.push_back(t);
    }
    return v;
}

} // namespace stand_in

namespace
{

/* --- what may be asked ------------------------------------------------------------------------ */

/* what cuDNN 9 refuses (golden/cuda_plans.txt): an operation on the images that a filter gradient
   of bfloat16 reads; in mode A, with groups, such an operation and statistics */
bool is_refused(const descriptor &heuristic)
{
    const bool is_mode_a = get<int>(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
    bool has_statistics = false, has_groups = false, reads_virtual = false, is_bfloat = false;
    for (const descriptor *d :
         get_all<descriptor *>(*part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH),
                               CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
        has_statistics |= d->type == STATISTICS;
        if (d->type != FORWARD && d->type != FILTER_GRADIENT)
            continue;
        const operands o = operands_of(*d);
        has_groups = dims_of(o.x)[1] != dims_of(o.w)[1];
        reads_virtual = get<unsigned char>(*o.x, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
        is_bfloat = d->type == FILTER_GRADIENT &&
                    get<int>(*o.x, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16;
    }
    return (reads_virtual && is_bfloat) ||
           (is_mode_a && has_groups && (reads_virtual || has_statistics));
}

/* fills descriptors that the caller has made */
cudnnStatus_t get_engines(const descriptor &from, kind wanted, int64_t n_max, int64_t *n,
                          void *values)
{
    auto **out = static_cast<descriptor **>(values);
    const int64_t n_engines = from.type != HEURISTIC ? 1
                              : is_refused(from)     ? 0
                                                     : int64_t(N_ENGINES);
    *n = n_max == 0 ? n_engines : std::min(n_max, n_engines);
    for (int64_t i = 0; i < std::min(n_max, n_engines); i++) {
        FAIL_IF(!descriptors.count(out[i]) || out[i]->type != wanted || out[i]->is_final,
                CUDNN_STATUS_BAD_PARAM, "result %lld is no fresh descriptor",
                static_cast<long long>(i));
        out[i]->engine = from.type == HEURISTIC ? i : from.engine;
        out[i]->values = from.values; /* the operation graph */
        out[i]->is_final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

template <typename T> cudnnStatus_t give(T value, int64_t n_max, int64_t *n, void *values)
{
    FAIL_IF(n_max < 1, CUDNN_STATUS_BAD_PARAM, "no room for a value");
    *n = 1;
    memcpy(values, &value, sizeof value);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_note(const descriptor &d, int64_t n_max, int64_t *n, void *values)
{
    *n = 0;
    if (d.engine == 1)
        return give(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, n_max, n, values);
    if (d.engine == 2)
        return give(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, n_max, n, values);
    if (has_tensor_cores(d.engine))
        return give(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, n_max, n, values);
    return CUDNN_STATUS_SUCCESS;
}

/* the text of a GPU's properties, with its NUL byte */
cudnnStatus_t get_properties(int64_t n_max, int64_t *n, void *values)
{
    static const char text[] = "{\"multiProcessorCount\": 1}";
    FAIL_IF(n_max < static_cast<int64_t>(sizeof text), CUDNN_STATUS_BAD_PARAM, "no room");
    *n = sizeof text;
    memcpy(values, text, sizeof text);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

/* --- the interface ---------------------------------------------------------------------------- */

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT size_t cudnnGetVersion(void)
{
    const char *version = getenv("TANDEM_STAND_IN_CUDNN");
    return version ? strtoul(version, nullptr, 10) : 90800;
}

EXPORT void cudnnGetLastErrorString(char *text, size_t size)
{
    (void)snprintf(text, size, "%s%s", *last_error ? "Error; Reason: " : "", last_error);
    *last_error = 0;
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return "CUDNN_STATUS_BAD_PARAM";
    }
}

EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    *out = nullptr;
    FAIL_IF(is_due(), CUDNN_STATUS_NOT_INITIALIZED, "failure of the stand-in");
    *out = new stand_in_handle();
    handles.insert(*out);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    FAIL_IF(handles.erase(handle) == 0, CUDNN_STATUS_BAD_PARAM, "no handle");
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    FAIL_IF(!handles.count(handle) || !stream, CUDNN_STATUS_BAD_PARAM, "no handle or stream");
    FAIL_IF(is_due(), CUDNN_STATUS_INTERNAL_ERROR, "failure of the stand-in");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                  cudnnBackendDescriptor_t *out)
{
    *out = nullptr;
    FAIL_IF(is_due(), CUDNN_STATUS_INTERNAL_ERROR, "failure of the stand-in");
    auto *d = new descriptor();
    d->type = type;
    descriptors.insert(d);
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t p)
{
    FAIL_IF(descriptors.erase(p) == 0, CUDNN_STATUS_BAD_PARAM, "no descriptor");
    delete static_cast<descriptor *>(p);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t p,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t n,
                                              const void *values)
{
    FAIL_IF(!descriptors.count(p) || !values, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
            "no descriptor or no values");
    auto *d = static_cast<descriptor *>(p);
    const rule *r = rule_of(d->type, name);
    FAIL_IF(d->type == DEVICE && !r, CUDNN_STATUS_NOT_SUPPORTED, "properties of a device");
    FAIL_IF(!r, CUDNN_STATUS_BAD_PARAM, "descriptor %d has no attribute %d", d->type, name);
    FAIL_IF(r->type != type || n < r->n_min || n > r->n_max, CUDNN_STATUS_BAD_PARAM,
            "attribute %d: %lld values of type %d", name, static_cast<long long>(n), type);
    FAIL_IF(d->is_final, CUDNN_STATUS_BAD_PARAM, "attribute %d of a finalized descriptor", name);
    FAIL_IF(is_due(), CUDNN_STATUS_INTERNAL_ERROR, "failure of the stand-in");
    const auto *bytes = static_cast<const unsigned char *>(values);
    d->values[name].assign(bytes, bytes + static_cast<size_t>(n) * bytes_of(type));
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t p,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t, int64_t n_max,
                                              int64_t *n, void *values)
{
    FAIL_IF(!is_final(p), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
    FAIL_IF(is_due(), CUDNN_STATUS_INTERNAL_ERROR, "failure of the stand-in");
    const auto &d = *static_cast<descriptor *>(p);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return get_engines(d, CONFIG, n_max, n, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        return get_engines(d, ENGINE, n_max, n, values);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        return give(d.engine, n_max, n, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return get_note(d, n_max, n, values);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        *n = 0;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
        return get_properties(n_max, n, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return give(workspace_of(d), n_max, n, values);
    default:
        return failed(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d", name);
    }
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t p)
{
    FAIL_IF(!descriptors.count(p), CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
    auto *d = static_cast<descriptor *>(p);
    FAIL_IF(d->is_final, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    FAIL_IF(is_due(), CUDNN_STATUS_INTERNAL_ERROR, "failure of the stand-in");
    TRY(check(*d));
    d->is_final = true;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                         cudnnBackendDescriptor_t pack)
{
    FAIL_IF(!handles.count(handle) || !handle->stream, CUDNN_STATUS_BAD_PARAM, "no stream");
    FAIL_IF(!is_final(plan) || !is_final(pack), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
            "the plan or the variant pack is not finalized");
    FAIL_IF(is_due(), CUDNN_STATUS_EXECUTION_FAILED, "failure of the stand-in");
    return execute(*static_cast<descriptor *>(plan), *static_cast<descriptor *>(pack),
                   handle->stream);
}
