/*
 * cudnn_descriptor.h -- descriptors of the stand-in for cuDNN
 */
#ifndef TD_TESTS_CUDA_STAND_IN_CUDNN_DESCRIPTOR_H
#define TD_TESTS_CUDA_STAND_IN_CUDNN_DESCRIPTOR_H

#include <cstring>
#include <map>
#include <vector>

#include "cudnn_backend.h"

namespace stand_in
{

/* keeps the message for cudnnGetLastErrorString; returns status */
__attribute__((format(printf, 2, 3))) cudnnStatus_t failed(cudnnStatus_t status, const char *format,
                                                           ...);

#define FAIL_IF(condition, status, ...)                                                            \
    do {                                                                                           \
        if (condition)                                                                             \
            return failed(status, __VA_ARGS__);                                                    \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudnnStatus_t status_ = (call);                                                      \
        if (status_ != CUDNN_STATUS_SUCCESS)                                                       \
            return status_;                                                                        \
    } while (0)

using kind = cudnnBackendDescriptorType_t;
using attribute = cudnnBackendAttributeName_t;

const kind POINTWISE = CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
           CONVOLUTION = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
           ENGINE = CUDNN_BACKEND_ENGINE_DESCRIPTOR, CONFIG = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
           HEURISTIC = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
           PLAN = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
           FORWARD = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
           FILTER_GRADIENT = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
           DATA_GRADIENT = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
           MAP = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
           STATISTICS = CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
           GRAPH = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
           PACK = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, TENSOR = CUDNN_BACKEND_TENSOR_DESCRIPTOR,
           DEVICE = CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;

enum { RANK = 4 };

inline bool has_tensor_cores(int64_t engine)
{
    return engine >= 3 && engine <= 5;
}

struct descriptor {
    kind type;
    bool is_final;
    int64_t engine; /* of a configuration, an engine and a plan */
    std::map<attribute, std::vector<unsigned char>> values;
};

template <typename T> std::vector<T> get_all(const descriptor &d, attribute name)
{
    const auto found = d.values.find(name);
    std::vector<T> v(found == d.values.end() ? 0 : found->second.size() / sizeof(T));
    if (!v.empty())
        memcpy(v.data(), found->second.data(), v.size() * sizeof(T));
    return v;
}

template <typename T> T get(const descriptor &d, attribute name, T missing = T())
{
    const auto v = get_all<T>(d, name);
    return v.empty() ? missing : v[0];
}

inline const descriptor *part(const descriptor &d, attribute name)
{
    return static_cast<const descriptor *>(get<void *>(d, name));
}

/* the x, w and y of a convolution or a gradient */
struct operands {
    const descriptor *conv, *x, *w, *y;
};

/* in cudnn.cpp */
operands operands_of(const descriptor &d);
const descriptor *graph_of(const descriptor &plan);
int64_t workspace_of(const descriptor &plan);
std::vector<const descriptor *> tensors_of(const descriptor &operation);

inline std::vector<int64_t> dims_of(const descriptor *tensor)
{
    return get_all<int64_t>(*tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
}

struct geometry {
    std::vector<int64_t> before, after, stride, dilation;
};

inline geometry geometry_of(const descriptor *conv)
{
    return { get_all<int64_t>(*conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             get_all<int64_t>(*conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
             get_all<int64_t>(*conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             get_all<int64_t>(*conv, CUDNN_ATTR_CONVOLUTION_DILATIONS) };
}

/* in cudnn_execute.cpp: run a finalized plan */
cudnnStatus_t execute(const descriptor &plan, const descriptor &pack, cudaStream_t stream);

} // namespace stand_in

#endif
