/*
 * cudnn_execute.cpp -- operation graphs of convolutions, executed on the host
 *
 * Pointers must be device memory, aligned as their descriptor promises.
 */
#include "cudnn_descriptor.h"

#include <cmath>

#include "convolve.h"
#include "elements.h"
#include "stand_in.h"

namespace
{

using namespace stand_in;

/* a tensor's elements as float32 in the order N, H, W, C, which is also K, R, S, C of filters */
struct array {
    std::vector<int64_t> dims; /* N C H W */
    std::vector<float> v;
};

element element_of(cudnnDataType_t t)
{
    return t == CUDNN_DATA_HALF       ? element::f16
           : t == CUDNN_DATA_BFLOAT16 ? element::bf16
                                      : element::f32;
}

/* calls f(place in memory, place in an array) for each element */
template <typename F> void for_elements(const descriptor &tensor, F f)
{
    const auto d = dims_of(&tensor);
    const auto s = get_all<int64_t>(tensor, CUDNN_ATTR_TENSOR_STRIDES);
    int64_t i = 0;
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t h = 0; h < d[2]; h++)
            for (int64_t w = 0; w < d[3]; w++)
                for (int64_t c = 0; c < d[1]; c++)
                    f(n * s[0] + c * s[1] + h * s[2] + w * s[3], i++);
}

/* one execution: its pointers, and the tensors that no kernel would write to memory */
struct execution {
    std::map<int64_t, void *> pointers; /* by unique id */
    std::map<int64_t, array> virtuals;
    int64_t engine;
};

int64_t id_of(const descriptor *tensor)
{
    return get<int64_t>(*tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
}

bool is_virtual(const descriptor *tensor)
{
    return get<unsigned char>(*tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
}

element type_of(const descriptor *tensor)
{
    return element_of(get<cudnnDataType_t>(*tensor, CUDNN_ATTR_TENSOR_DATA_TYPE));
}

array zeros_like(const descriptor *tensor)
{
    const auto d = dims_of(tensor);
    return { d, std::vector<float>(static_cast<size_t>(d[0] * d[1] * d[2] * d[3])) };
}

array load(const execution &e, const descriptor *tensor)
{
    if (is_virtual(tensor))
        return e.virtuals.at(id_of(tensor));
    array a = zeros_like(tensor);
    const void *p = e.pointers.at(id_of(tensor));
    const element t = type_of(tensor);
    for_elements(*tensor, [&](int64_t from, int64_t to) {
        a.v[static_cast<size_t>(to)] = read(p, t, from);
    });
    return a;
}

/* virtual tensors are rounded to their type, too */
void store(execution &e, const descriptor *tensor, array a)
{
    const element t = type_of(tensor);
    if (is_virtual(tensor)) {
        for (float &v : a.v) {
            unsigned char bits[4];
            write(bits, t, 0, v);
            v = read(bits, t, 0);
        }
        e.virtuals[id_of(tensor)] = std::move(a);
        return;
    }
    void *p = e.pointers.at(id_of(tensor));
    for_elements(*tensor, [&](int64_t to, int64_t from) {
        write(p, t, to, a.v[static_cast<size_t>(from)]);
    });
}

sizes sizes_of(const geometry &g, const array &x, const array &w, const array &y)
{
    const int64_t groups = x.dims[1] / w.dims[1];
    return { x.dims[0],
             groups,
             w.dims[1],
             x.dims[2],
             x.dims[3],
             w.dims[0] / groups,
             w.dims[2],
             w.dims[3],
             y.dims[2],
             y.dims[3],
             { g.before[0], g.before[1] },
             { g.stride[0], g.stride[1] },
             { g.dilation[0], g.dilation[1] } };
}

void run_convolution(execution &e, const descriptor &d)
{
    const operands o = operands_of(d);
    const bool to_x = d.type == DATA_GRADIENT, to_w = d.type == FILTER_GRADIENT;
    array x = to_x ? zeros_like(o.x) : load(e, o.x), w = to_w ? zeros_like(o.w) : load(e, o.w);
    array y = to_x || to_w ? load(e, o.y) : zeros_like(o.y);
    if (has_tensor_cores(e.engine))
        for (array *a : { &x, &w, &y })
            for (float &v : a->v)
                v = to_tf32(v);
    convolve(d.type, sizes_of(geometry_of(o.conv), x, w, y), x.v.data(), w.v.data(), y.v.data());
    if (to_x)
        store(e, o.x, std::move(x));
    else if (to_w)
        store(e, o.w, std::move(w));
    else
        store(e, o.y, std::move(y));
}

/* element i of `like` in b, which has one element in some dimensions */
size_t broadcast(const array &b, const array &like, size_t i)
{
    const auto &d = like.dims;
    const int64_t at = static_cast<int64_t>(i), c = at % d[1], w = at / d[1] % d[3];
    const int64_t h = at / d[1] / d[3] % d[2], n = at / d[1] / d[3] / d[2];
    const int64_t places[RANK] = { n, c, h, w };
    int64_t p[RANK];
    for (int k = 0; k < RANK; k++)
        p[k] = b.dims[static_cast<size_t>(k)] == 1 ? 0 : places[k];
    return static_cast<size_t>(((p[0] * b.dims[2] + p[2]) * b.dims[3] + p[3]) * b.dims[1] + p[1]);
}

void run_map(execution &e, const descriptor &d)
{
    const descriptor &kind = *part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = get<int>(kind, CUDNN_ATTR_POINTWISE_MODE);
    const double cap = get<double>(kind, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, INFINITY);
    const bool is_backward = mode == CUDNN_POINTWISE_RELU_BWD;
    array x = load(e, part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    const auto *second = part(d, is_backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                                             : CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const array b = second ? load(e, second) : array();
    for (size_t i = 0; i < x.v.size(); i++) {
        const float z = second ? b.v[broadcast(b, x, i)] : 0;
        float &v = x.v[i];
        v = mode == CUDNN_POINTWISE_ADD        ? v + z
            : mode == CUDNN_POINTWISE_MUL      ? v * z
            : mode == CUDNN_POINTWISE_IDENTITY ? v
            : mode == CUDNN_POINTWISE_RELU_FWD ? (v < 0     ? 0
                                                  : v > cap ? static_cast<float>(cap)
                                                            : v)
                                               : (v > 0 ? z : 0);
    }
    store(e,
          part(d, is_backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC
                              : CUDNN_ATTR_OPERATION_POINTWISE_YDESC),
          std::move(x));
}

void run_statistics(execution &e, const descriptor &d)
{
    const array x = load(e, part(d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC));
    const auto *sum_of = part(d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC);
    const auto *squares_of = part(d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC);
    array sum = zeros_like(sum_of), squares = zeros_like(squares_of);
    for (size_t i = 0; i < x.v.size(); i++) {
        const size_t c = i % static_cast<size_t>(x.dims[1]);
        sum.v[c] += x.v[i];
        squares.v[c] += x.v[i] * x.v[i];
    }
    store(e, sum_of, std::move(sum));
    store(e, squares_of, std::move(squares));
}

void run_operation(execution &e, const descriptor &d)
{
    if (d.type == MAP)
        run_map(e, d);
    else if (d.type == STATISTICS)
        run_statistics(e, d);
    else
        run_convolution(e, d);
}

/* the bytes from a tensor's first element to its last */
size_t extent_of(const descriptor &tensor)
{
    const auto d = dims_of(&tensor), s = get_all<int64_t>(tensor, CUDNN_ATTR_TENSOR_STRIDES);
    int64_t last = 0;
    for (int i = 0; i < RANK; i++)
        last += (d[i] - 1) * s[i];
    return static_cast<size_t>(last + 1) * bytes_of(type_of(&tensor));
}

/* every tensor of an operation that is in memory has a pointer to that much */
cudnnStatus_t check_pointers(const execution &e, const descriptor &operation)
{
    for (const descriptor *t : tensors_of(operation)) {
        if (is_virtual(t))
            continue;
        const auto id = static_cast<long long>(id_of(t));
        const auto p = e.pointers.find(id_of(t));
        FAIL_IF(p == e.pointers.end(), CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                "tensor %lld has no pointer", id);
        FAIL_IF(reinterpret_cast<uintptr_t>(p->second) %
                    get<uint64_t>(*t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "tensor %lld is not aligned", id);
        FAIL_IF(!is_device(p->second, extent_of(*t)), CUDNN_STATUS_EXECUTION_FAILED,
                "tensor %lld is not in device memory", id);
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t stand_in::execute(const descriptor &plan, const descriptor &pack, cudaStream_t stream)
{
    execution e0 = { {}, {}, part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine };
    const auto ids = get_all<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = get_all<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    const auto operations = get_all<descriptor *>(*graph_of(plan), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    void *workspace = get<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const auto n = static_cast<size_t>(workspace_of(plan));
    for (size_t i = 0; i < ids.size(); i++)
        e0.pointers[ids[i]] = pointers[i];
    for (const descriptor *d : operations)
        TRY(check_pointers(e0, *d));
    FAIL_IF(n > 0 && !is_device(workspace, n), CUDNN_STATUS_EXECUTION_FAILED,
            "%zu bytes of workspace are not in device memory", n);
    do_work(stream, [=] {
        execution e = e0;
        const opening is_open;
        spoil(workspace, n);
        for (const descriptor *d : operations)
            run_operation(e, *d);
        return true;
    });
    return CUDNN_STATUS_SUCCESS;
}
