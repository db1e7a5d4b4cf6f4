/*
 * gpu_pixels.c -- global average pooling, and sums over the pixels of channels or over rows
 *
 * Where channels are last, the plug-in's functions for pixels run; else those for any tensor.
 */
#include "backend/gpu/gpu_pixels.h"

#include <string.h>

/* --- sizes ------------------------------------------------------------------------------------ */

enum { WIDEST = 8 };

int td_gpu_width(int64_t channels, int64_t step, int64_t start)
{
    int width = WIDEST;
    while (channels % width || step % width || start % width)
        width /= 2;
    return width;
}

int64_t td_gpu_pixel_parts(int64_t n, int64_t area, int64_t channels, int width)
{
    const int64_t wanted = 1024, together = 8, pixels = 512; /* blocks; vectors of a block */
    const int64_t vectors = channels / width;
    const int64_t blocks = n * ((vectors + together - 1) / together);
    const int64_t parts = wanted / blocks, most = area / pixels;
    return parts < 1 || most < 1 ? 1 : parts < most ? parts : most;
}

size_t td_gpu_pixel_sums_bytes(const td_gpu_pixel_sums *s)
{
    const int64_t pieces = s->n * s->n_parts;
    const bool is_one = s->is_total ? pieces == 1 : s->n_parts == 1; /* for a result */
    return is_one ? 0 : (size_t)(pieces * s->channels) * sizeof(double);
}

bool td_gpu_has_channels_last(const td_type *t)
{
    return t->rank == 4 &&
           (strcmp(t->layout, "acdb") == 0 || (td_type_is_plain(t) && t->dim[2] * t->dim[3] == 1));
}

bool td_gpu_is_pixel_float(td_dtype d)
{
    return d == TD_DT_F32 || td_dtype_is_half(d);
}

static bool has_sum(td_dtype x, td_dtype result)
{
    return td_gpu_is_pixel_float(x) && (result == x || result == TD_DT_F32);
}

/* the sums for x [N, C, H, W], without addresses; false: not possible */
static bool sums_of(const td_type *x, td_dtype result, td_gpu_pixel_sums *out)
{
    if (!td_gpu_has_channels_last(x) || !has_sum(x->dtype, result))
        return false;
    *out = (td_gpu_pixel_sums){ .dtype = x->dtype,
                                .result = result,
                                .by = 1,
                                .n = x->dim[0],
                                .area = x->dim[2] * x->dim[3],
                                .channels = x->dim[1] };
    out->step = out->area * out->channels;
    out->width = td_gpu_width(out->channels, 0, 0);
    out->n_parts = td_gpu_pixel_parts(out->n, out->area, out->channels, out->width);
    return true;
}

static td_status start_reduce(const td_gpu_reduce *r)
{
    return td_gpu_status(td_gpu()->reduce(r));
}

/* operand 0 is summed; the result and the scratch memory follow the operands */
static td_status start_sums(const td_node *n, td_gpu_pixel_sums *s, void *const *args)
{
    s->x = args[0];
    s->y = args[n->n_in];
    s->sums = args[n->n_in + 1];
    return td_gpu_status(td_gpu()->pixel_sums(s));
}

/* prepares with the scratch memory of sums_(n, &s), which is false where they are not possible */
#define KERNEL(op_, accepts_, sums_)                                                               \
    static td_status prepare_##op_(const td_node *n, td_prepared *out)                             \
    {                                                                                              \
        td_gpu_pixel_sums s;                                                                       \
        out->scratch_bytes = sums_(n, &s) ? td_gpu_pixel_sums_bytes(&s) : 0;                       \
        return TD_OK;                                                                              \
    }                                                                                              \
    const td_kernel td_gpu_##op_ = { .name = "cuda_" #op_,                                         \
                                     .op = &td_op_##op_,                                           \
                                     .accepts = accepts_,                                          \
                                     .prepare = prepare_##op_,                                     \
                                     .run = run_##op_ };

/* --- the gradient of a gate ------------------------------------------------------------------- */

/* both operands are whole images, and the result has a number for each channel of each image */
static bool gate_sums(const td_node *n, td_gpu_pixel_sums *out)
{
    const td_type *x = td_in_type(n, 0), *z = td_in_type(n, 1), *y = &n->out[0]->type;
    if (x->rank != 4 || z->rank != 4 || y->rank != 4 || strcmp(x->layout, z->layout) != 0)
        return false;
    for (int d = 0; d < 4; d++)
        if (x->dim[d] != z->dim[d] || y->dim[d] != (d < 2 ? x->dim[d] : 1))
            return false;
    return z->dtype == x->dtype && sums_of(x, y->dtype, out);
}

static td_status run_mul_reduce(const td_prepared *p, void *const *args)
{
    td_gpu_pixel_sums s;
    if (gate_sums(p->node, &s)) {
        s.z = args[1];
        return start_sums(p->node, &s, args);
    }
    td_gpu_reduce r = { .by = 1, .y = td_gpu_tensor_at(p, 3, args) };
    td_gpu_tensor x = td_gpu_tensor_at(p, 0, args), z = td_gpu_tensor_at(p, 1, args), full = x;
    for (int d = 0; d < TD_GPU_RANK; d++)
        full.dim[d] = x.dim[d] > z.dim[d] ? x.dim[d] : z.dim[d];
    r.x = td_gpu_broadcast(x, &full);
    r.z = td_gpu_broadcast(z, &full);
    return start_reduce(&r);
}
KERNEL(mul_reduce, td_gpu_accepts_alike, gate_sums)

/* --- gated sums ------------------------------------------------------------------------------- */

/* images of one float type, plain or with channels last; the vectors are plain */
static td_status accepts_gated(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (!td_gpu_is_pixel_float(x->dtype))
        return td_error(TD_ENOKERNEL, "dtype is %s", td_dtype_name(x->dtype));
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_type *t = td_gpu_type(n, i);
        if (t->rank != 4 && !td_type_is_plain(t))
            return td_error(TD_ENOKERNEL, "layout %s", t->layout);
        if (t->rank == 4 && strcmp(t->layout, x->layout) != 0)
            return td_error(TD_ENOKERNEL, "tensors 0 and %d differ in layout", i);
    }
    if (!td_type_is_plain(x) && strcmp(x->layout, "acdb") != 0)
        return td_error(TD_ENOKERNEL, "layout %s", x->layout);
    return TD_OK;
}

static td_status run_gated_add(const td_prepared *p, void *const *args)
{
    const td_gated_attr *a = p->node->attr;
    const td_type *x = td_in_type(p->node, 0), *z = td_in_type(p->node, 2);
    return td_gpu_status(
        td_gpu()->gated_sum(&(td_gpu_gated_sum){ .dtype = x->dtype,
                                                 .vector = z->dtype,
                                                 .is_channels_last = td_gpu_has_channels_last(x),
                                                 .z_is_vector = z->rank == 2,
                                                 .relu = a->relu,
                                                 .by = (float)a->by,
                                                 .n = x->dim[0],
                                                 .area = x->dim[2] * x->dim[3],
                                                 .channels = x->dim[1],
                                                 .x = args[0],
                                                 .gate = args[1],
                                                 .z = args[2],
                                                 .y = args[3] }));
}

const td_kernel td_gpu_gated_add = {
    .name = "cuda_gated_add", .op = &td_op_gated_add, .accepts = accepts_gated, .run = run_gated_add
};

static bool gated_sums(const td_node *n, td_gpu_pixel_sums *out)
{
    return sums_of(td_in_type(n, 0), n->out[1]->type.dtype, out);
}

/* (dy, y, x[, dy2]) -> dz, dgate */
static td_status run_gated_add_relu_grad(const td_prepared *p, void *const *args)
{
    const td_node *n = p->node;
    const td_type *x = td_in_type(n, 2);
    const void *dy2 = n->n_in > 3 ? args[3] : NULL;
    void *dz = args[n->n_in], *dgate = args[n->n_in + 1];
    td_gpu_pixel_sums s;
    if (!gated_sums(n, &s))
        return td_gpu_status(
            td_gpu()->gated_grad(&(td_gpu_gated_grad){ .dtype = x->dtype,
                                                       .result = n->out[1]->type.dtype,
                                                       .planes = x->dim[0] * x->dim[1],
                                                       .area = x->dim[2] * x->dim[3],
                                                       .dy = args[0],
                                                       .dy2 = dy2,
                                                       .y = args[1],
                                                       .x = args[2],
                                                       .dz = dz,
                                                       .dgate = dgate }));
    s.x = args[0];
    s.x2 = dy2;
    s.where = args[1];
    s.z = args[2];
    s.kept = dz;
    s.y = dgate;
    s.sums = args[n->n_in + 2];
    return td_gpu_status(td_gpu()->pixel_sums(&s));
}
KERNEL(gated_add_relu_grad, accepts_gated, gated_sums)

/* --- gradients of biases ---------------------------------------------------------------------- */

/* all that is summed as one image of `rows` pixels */
static void set_total(td_gpu_pixel_sums *s, int64_t rows)
{
    s->is_total = true;
    s->n = 1;
    s->area = rows;
    s->step = rows * s->channels;
    s->width = td_gpu_width(s->channels, 0, 0);
    s->n_parts = td_gpu_pixel_parts(1, rows, s->channels, s->width);
}

/* a number for each channel of all images; false: not possible */
static bool channels_of(const td_node *n, td_gpu_pixel_sums *out)
{
    if (!sums_of(td_in_type(n, 0), n->out[0]->type.dtype, out))
        return false;
    set_total(out, out->n * out->area);
    return true;
}

/* a number for each place in the result's dimensions, which the operand has last */
static bool columns_of(const td_node *n, td_gpu_pixel_sums *out)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    int first = 0;
    while (first < y->rank && y->dim[first] == 1)
        first++;
    for (int d = first; d < y->rank; d++)
        if (y->dim[d] != x->dim[x->rank - y->rank + d])
            return false;
    if (!td_type_is_plain(x) || !td_type_is_plain(y) || !has_sum(x->dtype, y->dtype))
        return false;
    *out = (td_gpu_pixel_sums){
        .dtype = x->dtype, .result = y->dtype, .by = 1, .channels = td_type_count(y)
    };
    set_total(out, td_type_count(x) / td_type_count(y));
    return true;
}

static td_status run_bias_add_grad(const td_prepared *p, void *const *args)
{
    td_gpu_pixel_sums s;
    if (channels_of(p->node, &s))
        return start_sums(p->node, &s, args);
    td_gpu_tensor y = td_gpu_tensor_at(p, 1, args);
    const int last = TD_GPU_RANK - 1, channel = last - 2;
    y.dim[channel] = y.dim[last];
    y.stride[channel] = y.stride[last];
    y.dim[last] = 1;
    return start_reduce(&(td_gpu_reduce){ .by = 1, .y = y, .x = td_gpu_tensor_at(p, 0, args) });
}
KERNEL(bias_add_grad, td_gpu_accepts_any, channels_of)

static td_status run_sum_to(const td_prepared *p, void *const *args)
{
    td_gpu_pixel_sums s;
    if (columns_of(p->node, &s))
        return start_sums(p->node, &s, args);
    return start_reduce(&(td_gpu_reduce){
        .by = 1, .y = td_gpu_tensor_at(p, 2, args), .x = td_gpu_tensor_at(p, 0, args) });
}
KERNEL(sum_to, td_gpu_accepts_any, columns_of)

/* --- global average pooling ------------------------------------------------------------------- */

static double mean_factor(const td_type *x)
{
    return 1 / (double)(x->dim[2] * x->dim[3]);
}

static bool means_of(const td_node *n, td_gpu_pixel_sums *out)
{
    const td_type *x = td_in_type(n, 0);
    const bool is_possible = sums_of(x, n->out[0]->type.dtype, out);
    out->by = is_possible ? mean_factor(x) : 0;
    return is_possible;
}

static td_status run_global_avg_pool(const td_prepared *p, void *const *args)
{
    td_gpu_pixel_sums s;
    const td_type *x = td_in_type(p->node, 0);
    if (means_of(p->node, &s))
        return start_sums(p->node, &s, args);
    td_gpu_reduce r = { .by = mean_factor(x), .x = td_gpu_tensor_at(p, 0, args) };
    const td_gpu_tensor y = td_gpu_tensor_at(p, 1, args);
    r.y = (td_gpu_tensor){ .data = y.data,
                           .dtype = y.dtype,
                           .dim = { 1, x->dim[0], x->dim[1], 1, 1 },
                           .stride = { 0, x->dim[1], 1, 0, 0 } };
    return start_reduce(&r);
}
KERNEL(global_avg_pool, td_gpu_accepts_any, means_of)

/* a vector for each image, at all its pixels; false: not possible */
static bool spread_of(const td_node *n, td_gpu_pixel_map *out)
{
    const td_type *dy = td_in_type(n, 0), *dx = &n->out[0]->type;
    const int64_t channels = dx->dim[1], area = dx->dim[2] * dx->dim[3];
    if (!td_gpu_has_channels_last(dx) || (dx->dtype != dy->dtype && dy->dtype != TD_DT_F32) ||
        !td_gpu_is_pixel_float(dx->dtype) || channels * area > INT32_MAX)
        return false;
    *out = (td_gpu_pixel_map){ .dtype = dx->dtype,
                               .result = dx->dtype,
                               .vector = dy->dtype,
                               .width = td_gpu_width(channels, 0, 0),
                               .by = (float)mean_factor(dx),
                               .n = dx->dim[0],
                               .area = area,
                               .channels = channels,
                               .y_step = channels * area,
                               .v_step = channels };
    return true;
}

static td_status run_global_avg_pool_grad(const td_prepared *p, void *const *args)
{
    td_gpu_pixel_map m;
    if (spread_of(p->node, &m)) {
        m.v = args[0];
        m.y = args[2];
        return td_gpu_status(td_gpu()->pixel_map(&m));
    }
    const int images = TD_GPU_RANK - 2, batch = TD_GPU_RANK - 4, channel = TD_GPU_RANK - 3;
    td_gpu_map any = { .f = TD_GPU_SCALE,
                       .by = mean_factor(td_in_type(p->node, 1)),
                       .y = td_gpu_tensor_at(p, 2, args) };
    const td_gpu_tensor dy = td_gpu_tensor_at(p, 0, args);
    td_gpu_tensor x = { .data = dy.data, .dtype = dy.dtype, .dim = { 1, 1, 1, 1, 1 } };
    x.dim[batch] = dy.dim[images];
    x.stride[batch] = dy.stride[images];
    x.dim[channel] = dy.dim[images + 1];
    x.stride[channel] = dy.stride[images + 1];
    any.x = td_gpu_broadcast(x, &any.y);
    return td_gpu_status(td_gpu()->map(&any));
}

const td_kernel td_gpu_global_avg_pool_grad = { .name = "cuda_global_avg_pool_grad",
                                                .op = &td_op_global_avg_pool_grad,
                                                .accepts = td_gpu_accepts_any,
                                                .run = run_global_avg_pool_grad };
