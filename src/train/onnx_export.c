/*
 * onnx_export.c -- op by op to ONNX; one row of `rows` each
 *
 *     conv2d             Conv                    linear        Gemm, transB
 *     batch_norm_infer   BatchNormalization      relu6         Clip 0 .. 6
 *     global_avg_pool    GlobalAveragePool, Flatten
 *     resize_nearest     Resize where sides grow by whole factors, else Gather of rows and columns:
 *                        indices are exact, scales as float32 are not
 *     squeeze_excite     GlobalAveragePool, Conv, Relu, Conv, Sigmoid, Mul; or with Gemm between
 *                        Flatten and Reshape
 *     bias_add           the third operand of its Conv, else Add
 *     join_heads         of each head Transpose and Reshape; Concat
 *
 * Tensors keep the names of the weights, nodes are called LAYER/OPERATOR, results NODE:0.  A batch
 * that is left open is found by comparing two graphs, one for a picture more than the other:
 * dimensions that differ by one as the batch does are "N", others that differ have no name.
 */
#include "train/onnx_export.h"

#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "boxes/anchors.h"
#include "image/image.h"
#include "ops/ops.h"

#define BATCH_NAME "N"

typedef struct {
    td_onnx *m;
    const td_graph *g, *other;
    td_program *p;
    const td_onnx_opts *o;
    const char **name;     /* [g->n_values] in the model; NULL: not there yet */
    int8_t *rank;          /* [g->n_values] of tensors that are there */
    bool *wanted;          /* [g->n_nodes] */
    const td_value **bias; /* [g->n_values] of a conv2d: what is added to it and to nothing else */
    td_map used;           /* names */
} exporter;

static void stop(exporter *e, td_status st)
{
    if (e->m->st == TD_OK)
        e->m->st = st;
}

static bool is_ok(const exporter *e)
{
    return e->m->st == TD_OK;
}

/* --- names and types -------------------------------------------------------------------------- */

static const char *unique(exporter *e, const char *a, const char *b)
{
    char name[400];
    snprintf(name, sizeof name, "%s%s", a, b);
    for (int i = 2; td_map_has(&e->used, name); i++)
        snprintf(name, sizeof name, "%.380s%s_%d", a, b, i);
    if (is_ok(e))
        stop(e, td_map_set(&e->used, name, e));
    return td_onnx_text(e->m, name);
}

/* "layer1.0.conv1", or the op's name where the node has no parameters */
static void label_of(const td_node *n, char out[300])
{
    const char *label = td_node_label(n);
    bool is_number = *label >= '0' && *label <= '9';
    snprintf(out, 300, is_number ? "%s_%s" : "%.0s%s", n->op->name, label);
}

static td_onnx_value shape_of(const exporter *e, const td_value *v)
{
    td_onnx_value t = { .dtype = v->type.dtype, .rank = v->type.rank };
    const td_type *other = e->other ? &e->other->values[v->id]->type : &v->type;
    for (int i = 0; i < t.rank; i++) {
        int64_t d = v->type.dim[i];
        t.dim[i].value = d == other->dim[i] ? d : -1;
        if (d != other->dim[i] && other->dim[i] == d + 1)
            t.dim[i].param = BATCH_NAME;
    }
    return t;
}

/* [N, c, h, w], or [N, c] with h 0, N as in x */
static td_onnx_value shape_like(const td_onnx_value *x, int64_t c, int64_t h, int64_t w)
{
    td_onnx_value t = { .dtype = x->dtype, .rank = h ? 4 : 2 };
    t.dim[0] = x->dim[0];
    t.dim[1].value = c;
    t.dim[2].value = h;
    t.dim[3].value = w;
    return t;
}

/* --- nodes and tensors ------------------------------------------------------------------------ */

/* append a node; its result's name.  Attributes go to the node added last. */
static const char *add(exporter *e, const char *op, const td_node *n, const td_onnx_value *type,
                       int n_in, const char *const *in)
{
    char label[300];
    label_of(n, label);
    snprintf(label + strlen(label), sizeof label - strlen(label), "/%s", op);
    const char *name = unique(e, label, "");
    td_onnx_value v = *type;
    v.name = unique(e, name, ":0");
    td_onnx_add_node(e->m, op, name, n_in, in, v.name);
    td_onnx_add_value(e->m, &e->m->values, &v);
    return v.name;
}

#define IN(...)                  ((const char *const[]){ __VA_ARGS__ })
#define N_IN(...)                ((int)(sizeof IN(__VA_ARGS__) / sizeof(const char *)))
#define ADD(e, op, n, type, ...) add(e, op, n, type, N_IN(__VA_ARGS__), IN(__VA_ARGS__))
#define ATTR_INTS(e, name, ...)                                                                    \
    td_onnx_attr_ints((e)->m, name, (int)(sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t)),     \
                      (const int64_t[]){ __VA_ARGS__ })

/* a tensor that belongs to a node: a shape, a scalar */
static const char *add_constant(exporter *e, const td_node *n, const char *what, td_dtype dtype,
                                int rank, const int64_t *dim, const void *data, size_t n_bytes)
{
    char label[300];
    label_of(n, label);
    const char *name = unique(e, label, what);
    void *copy = is_ok(e) ? td_arena_alloc(&e->m->arena, n_bytes + 1, 1) : NULL;
    if (!copy) {
        stop(e, TD_ENOMEM);
        return name;
    }
    memcpy(copy, data, n_bytes);
    td_onnx_add_tensor(e->m, name, dtype, rank, dim, copy);
    return name;
}

static const char *add_ints(exporter *e, const td_node *n, const char *what, int count,
                            const int64_t *values)
{
    return add_constant(e, n, what, TD_DT_I64, 1, (int64_t[]){ count }, values,
                        (size_t)count * sizeof *values);
}

/* one element; false for a type that has no such numbers here */
static bool element(td_dtype d, double x, unsigned char out[8])
{
    float f = (float)x;
    uint16_t half = d == TD_DT_F16 ? td_f32_to_f16(f) : td_f32_to_bf16(f);
    int64_t i = (int64_t)x;
    int32_t i32 = (int32_t)i;
    memset(out, 0, 8);
    if (d == TD_DT_F32)
        memcpy(out, &f, sizeof f);
    else if (d == TD_DT_F64)
        memcpy(out, &x, sizeof x);
    else if (td_dtype_is_half(d))
        memcpy(out, &half, sizeof half);
    else if (d == TD_DT_I64)
        memcpy(out, &i, sizeof i);
    else if (d == TD_DT_I32)
        memcpy(out, &i32, sizeof i32);
    else
        out[0] = (unsigned char)i32;
    return d != TD_DT_NONE;
}

static const char *add_scalar(exporter *e, const td_node *n, const char *what, td_dtype d, double x)
{
    unsigned char bytes[8];
    element(d, x, bytes);
    return add_constant(e, n, what, d, 0, NULL, bytes, td_dtype_bytes(d));
}

/* --- parameters ------------------------------------------------------------------------------- */

/* fp16 in the file, cast back; the program gets the same rounded numbers */
static const char *add_half(exporter *e, const td_value *v, const char *name, int rank, float *data)
{
    size_t n = (size_t)td_type_count(&v->type);
    uint16_t *half = td_arena_alloc(&e->m->arena, n, sizeof *half);
    td_onnx_value type = { .dtype = TD_DT_F32, .rank = rank };
    if (!half) {
        stop(e, TD_ENOMEM);
        return "";
    }
    td_f32_to_f16_n(data, n, half);
    td_f16_to_f32_n(half, n, data);
    stop(e, td_program_set(e->p, v->name, data));
    for (int i = 0; i < rank; i++)
        type.dim[i].value = v->type.dim[i];
    td_onnx_add_tensor(e->m, name, TD_DT_F16, rank, v->type.dim, half);
    const char *cast = ADD(e, "Cast", v->producer, &type, name);
    td_onnx_attr_int(e->m, "to", td_onnx_dtype_number(TD_DT_F32));
    return cast;
}

static const char *add_param(exporter *e, const td_value *v, int rank)
{
    const char *name = unique(e, v->name, "");
    size_t n_bytes = (size_t)td_type_count(&v->type) * td_dtype_bytes(v->type.dtype);
    void *data = is_ok(e) ? td_arena_alloc(&e->m->arena, n_bytes, 1) : NULL;
    if (!data) {
        stop(e, TD_ENOMEM);
        return name;
    }
    stop(e, td_program_get(e->p, v->name, data));
    if (e->o->half_weights && v->type.dtype == TD_DT_F32 && v->type.rank > 1)
        return add_half(e, v, name, rank, data);
    td_onnx_add_tensor(e->m, name, v->type.dtype, rank, v->type.dim, data);
    return name;
}

static const char *add_filled(exporter *e, const td_value *v)
{
    unsigned char one[8];
    size_t each = td_dtype_bytes(v->type.dtype), n = (size_t)td_type_count(&v->type);
    const char *name = unique(e, v->producer->op->name, v->name);
    char *data = is_ok(e) ? td_arena_alloc(&e->m->arena, n, each) : NULL;
    if (!data) {
        stop(e, TD_ENOMEM);
        return name;
    }
    element(v->type.dtype, ((const td_constant_attr *)v->producer->attr)->value, one);
    for (size_t i = 0; i < n; i++)
        memcpy(data + i * each, one, each);
    td_onnx_add_tensor(e->m, name, v->type.dtype, v->type.rank, v->type.dim, data);
    return name;
}

/* the name of a value; a parameter becomes a tensor when it is first read */
static const char *name_of(exporter *e, const td_value *v)
{
    if (!e->name[v->id]) {
        TD_CHECK(v->producer->op == &td_op_param || v->producer->op == &td_op_constant ||
                 !is_ok(e));
        e->rank[v->id] = (int8_t)v->type.rank;
        e->name[v->id] = td_value_is_param(v) ? add_param(e, v, v->type.rank) : add_filled(e, v);
    }
    return e->name[v->id];
}

static const char *operand(exporter *e, const td_node *n, int i)
{
    return name_of(e, n->in[i]);
}

/* the same as a tensor of 2 or 4 dimensions, [A, B] or [A, B, 1, 1] */
static const char *weight_as(exporter *e, const td_node *n, int i, int rank)
{
    td_value v = *n->in[i];
    v.type.dim[2] = v.type.dim[3] = 1;
    if (!e->name[v.id] && td_value_is_param(&v)) {
        e->rank[v.id] = (int8_t)rank;
        e->name[v.id] = add_param(e, &v, rank);
    }
    const char *name = operand(e, n, i);
    if (e->rank[v.id] == rank)
        return name;
    td_onnx_value type = { .dtype = v.type.dtype, .rank = rank };
    for (int k = 0; k < rank; k++)
        type.dim[k].value = v.type.dim[k];
    return ADD(e, "Reshape", n, &type, name, add_ints(e, n, "/matrix", rank, v.type.dim));
}

static void set_result(exporter *e, const td_node *n, const char *name)
{
    e->name[n->out[0]->id] = name;
    e->rank[n->out[0]->id] = (int8_t)n->out[0]->type.rank;
}

/* --- op by op --------------------------------------------------------------------------------- */

/* operands as they are, one node, no attributes */
static void put_same(exporter *e, const td_node *n, const char *op)
{
    const char *in[TD_IN_MAX];
    td_onnx_value y = shape_of(e, n->out[0]);
    for (int i = 0; i < n->n_in; i++)
        in[i] = operand(e, n, i);
    set_result(e, n, add(e, op, n, &y, n->n_in, in));
}

static const char *clip6(exporter *e, const td_node *n, const char *x)
{
    const td_dtype d = td_in_type(n, 0)->dtype;
    td_onnx_value y = shape_of(e, n->out[0]);
    return ADD(e, "Clip", n, &y, x, add_scalar(e, n, "/min", d, 0), add_scalar(e, n, "/max", d, 6));
}

static void put_relu_if(exporter *e, const td_node *n, bool has_relu, bool is_relu6, const char *x)
{
    td_onnx_value y = shape_of(e, n->out[0]);
    if (has_relu)
        x = is_relu6 ? clip6(e, n, x) : ADD(e, "Relu", n, &y, x);
    set_result(e, n, x);
}

/* top, left, bottom, right */
static void put_pads(exporter *e, int pad, int extra)
{
    ATTR_INTS(e, "pads", pad, pad, pad + extra, pad + extra);
}

/* conv2d, conv2d_fused(x, w, bias, residual) {relu} */
static void put_conv(exporter *e, const td_node *n, const char *op)
{
    const char *in[3];
    const td_conv_attr *a = n->attr;
    const td_type *w = td_in_type(n, 1);
    const td_value *bias = e->bias[n->out[0]->id];
    td_onnx_value y = shape_of(e, n->out[0]);
    int n_in = 0;
    for (; n_in < n->n_in && n_in < 3; n_in++)
        in[n_in] = operand(e, n, n_in);
    if (bias)
        in[n_in++] = name_of(e, bias);
    const char *v = add(e, op, n, &y, n_in, in);
    ATTR_INTS(e, "kernel_shape", w->dim[2], w->dim[3]);
    ATTR_INTS(e, "strides", a->stride, a->stride);
    put_pads(e, a->pad, a->pad_extra);
    ATTR_INTS(e, "dilations", a->dilation, a->dilation);
    td_onnx_attr_int(e->m, "group", a->groups);
    if (n->n_in > 3)
        v = ADD(e, "Add", n, &y, v, operand(e, n, 3));
    put_relu_if(e, n, n->op == &td_op_conv2d_fused && a->relu, a->relu6, v);
}

/* batch_norm_infer, batch_norm_relu_infer, batch_norm_add_relu_infer */
static void put_norm(exporter *e, const td_node *n, const char *op)
{
    const td_norm_attr *a = n->attr;
    td_onnx_value y = shape_of(e, n->out[0]);
    const char *v = ADD(e, op, n, &y, operand(e, n, 0), operand(e, n, 1), operand(e, n, 2),
                        operand(e, n, 3), operand(e, n, 4));
    td_onnx_attr_float(e->m, "epsilon", (float)a->eps);
    if (n->n_in > 5)
        v = ADD(e, "Add", n, &y, v, operand(e, n, 5));
    put_relu_if(e, n, n->op != &td_op_batch_norm_infer, a->relu6, v);
}

/* operand i, [N, C, H, W], plus operand i + 1, [C] */
static const char *biased(exporter *e, const td_node *n, int i)
{
    const char *x = operand(e, n, i);
    const int64_t shape[3] = { td_in_type(n, i)->dim[1], 1, 1 };
    td_onnx_value type = { .dtype = td_in_type(n, i + 1)->dtype, .rank = 3 };
    td_onnx_value y = shape_of(e, n->in[i]);
    if (e->bias[n->in[i]->id])
        return x;
    for (int k = 0; k < 3; k++)
        type.dim[k].value = shape[k];
    const char *bias =
        ADD(e, "Reshape", n, &type, operand(e, n, i + 1), add_ints(e, n, "/channels", 3, shape));
    return ADD(e, "Add", n, &y, x, bias);
}

static void put_bias(exporter *e, const td_node *n, const char *op)
{
    (void)op;
    set_result(e, n, biased(e, n, 0));
}

/* [N, a columns, H, W] -> [N, H, W, a columns] -> [N, H W a, columns] */
static const char *put_head_pixel(exporter *e, const td_node *n, int i, td_onnx_value *rows)
{
    const td_onnx_value x = shape_of(e, n->in[i]);
    td_onnx_value last = x;
    last.dim[1] = x.dim[2];
    last.dim[2] = x.dim[3];
    last.dim[3] = x.dim[1];
    const char *v = ADD(e, "Transpose", n, &last, biased(e, n, i));
    ATTR_INTS(e, "perm", 0, 2, 3, 1);
    return ADD(
        e, "Reshape", n, rows, v,
        add_ints(e, n, "/rows", 3, (int64_t[]){ 0, rows->dim[1].value, rows->dim[2].value }));
}

/* [N, columns a, H, W] -> [N, columns, a H W] -> [N, a H W, columns] */
static const char *put_head_channel(exporter *e, const td_node *n, int i, td_onnx_value *rows)
{
    td_onnx_value lines = *rows;
    lines.dim[1] = rows->dim[2];
    lines.dim[2] = rows->dim[1];
    const char *shape =
        add_ints(e, n, "/lines", 3, (int64_t[]){ 0, lines.dim[1].value, lines.dim[2].value });
    const char *v = ADD(e, "Reshape", n, &lines, biased(e, n, i), shape);
    v = ADD(e, "Transpose", n, rows, v);
    ATTR_INTS(e, "perm", 0, 2, 1);
    return v;
}

static void put_join(exporter *e, const td_node *n, const char *op)
{
    const td_join_attr *a = n->attr;
    const char *heads[TD_IN_MAX];
    td_onnx_value y = shape_of(e, n->out[0]), rows = y;
    for (int i = 0; i < n->n_in; i += 2) {
        rows.dim[1].value = td_join_rows(a, td_in_type(n, i));
        heads[i / 2] = a->order == TD_JOIN_PIXEL ? put_head_pixel(e, n, i, &rows)
                                                 : put_head_channel(e, n, i, &rows);
    }
    set_result(e, n, add(e, op, n, &y, n->n_in / 2, heads));
    td_onnx_attr_int(e->m, "axis", 1);
}

static void put_linear(exporter *e, const td_node *n, const char *op)
{
    put_same(e, n, op);
    td_onnx_attr_int(e->m, "transB", 1);
}

static void put_relu6(exporter *e, const td_node *n, const char *op)
{
    (void)op;
    set_result(e, n, clip6(e, n, operand(e, n, 0)));
}

static void put_pool(exporter *e, const td_node *n, const char *op)
{
    const td_pool_attr *a = n->attr;
    const bool is_average = n->op == &td_op_avg_pool2d;
    if (n->n_out > 1 && n->out[1]->n_uses)
        stop(e, td_error(TD_EUNSUPPORTED, "the second result of %s is used, ONNX has none like it",
                         n->op->name));
    put_same(e, n, op);
    ATTR_INTS(e, "kernel_shape", a->kernel, a->kernel);
    ATTR_INTS(e, "strides", a->stride, a->stride);
    put_pads(e, a->pad, is_average ? 0 : a->pad_extra);
    if (is_average)
        td_onnx_attr_int(e->m, "count_include_pad", a->count_include_pad);
}

/* means over height and width, [N, C, 1, 1] */
static const char *put_means(exporter *e, const td_node *n)
{
    td_onnx_value x = shape_of(e, n->in[0]);
    td_onnx_value mean = shape_like(&x, td_in_type(n, 0)->dim[1], 1, 1);
    return ADD(e, "GlobalAveragePool", n, &mean, operand(e, n, 0));
}

static void put_global(exporter *e, const td_node *n, const char *op)
{
    td_onnx_value y = shape_of(e, n->out[0]);
    set_result(e, n, ADD(e, op, n, &y, put_means(e, n)));
    td_onnx_attr_int(e->m, "axis", 1);
}

static void put_softmax(exporter *e, const td_node *n, const char *op)
{
    put_same(e, n, op);
    td_onnx_attr_int(e->m, "axis", -1);
}

static void put_reduce(exporter *e, const td_node *n, const char *op)
{
    put_same(e, n, op);
    td_onnx_attr_int(e->m, "keepdims", 0);
}

static void put_scale(exporter *e, const td_node *n, const char *op)
{
    td_onnx_value y = shape_of(e, n->out[0]);
    double by = ((const td_scale_attr *)n->attr)->by;
    set_result(
        e, n,
        ADD(e, op, n, &y, operand(e, n, 0), add_scalar(e, n, "/by", td_in_type(n, 0)->dtype, by)));
}

static void put_concat(exporter *e, const td_node *n, const char *op)
{
    put_same(e, n, op);
    td_onnx_attr_int(e->m, "axis", ((const td_concat_attr *)n->attr)->axis);
}

static void put_slice(exporter *e, const td_node *n, const char *op)
{
    const td_slice_attr *a = n->attr;
    int64_t end = a->start + a->size, axis = a->axis;
    td_onnx_value y = shape_of(e, n->out[0]);
    set_result(e, n,
               ADD(e, op, n, &y, operand(e, n, 0), add_ints(e, n, "/starts", 1, &a->start),
                   add_ints(e, n, "/ends", 1, &end), add_ints(e, n, "/axes", 1, &axis)));
}

/* 0 copies a dimension of x, -1 is what remains */
static void put_reshape(exporter *e, const td_node *n, const char *op)
{
    int n_open = 0;
    int64_t dim[TD_RANK_MAX];
    td_onnx_value x = shape_of(e, n->in[0]), y = shape_of(e, n->out[0]);
    for (int i = 0; i < y.rank; i++) {
        dim[i] = y.dim[i].value;
        if (dim[i] < 0 && y.dim[i].param && i < x.rank && x.dim[i].param)
            dim[i] = 0;
        n_open += dim[i] < 0;
    }
    if (n_open > 1)
        stop(e, td_error(TD_EUNSUPPORTED,
                         "reshape '%%%s' depends on the batch in two dimensions: --batch-size "
                         "makes them fixed",
                         n->out[0]->name));
    const char *in = operand(e, n, 0);
    set_result(e, n, ADD(e, op, n, &y, in, add_ints(e, n, "/shape", y.rank, dim)));
}

static void put_cast(exporter *e, const td_node *n, const char *op)
{
    put_same(e, n, op);
    td_onnx_attr_int(e->m, "to", td_onnx_dtype_number(td_cast_to(n->attr)));
}

/* rows or columns floor(i * from / to) */
static const char *put_gather(exporter *e, const td_node *n, const char *x, int axis,
                              td_onnx_value *type)
{
    int64_t from = td_in_type(n, 0)->dim[axis], to = n->out[0]->type.dim[axis];
    if (from == to)
        return x;
    int64_t *at = is_ok(e) ? td_arena_alloc(&e->m->arena, (size_t)to, sizeof *at) : NULL;
    if (!at) {
        stop(e, TD_ENOMEM);
        return x;
    }
    for (int64_t i = 0; i < to; i++)
        at[i] = i * from / to;
    type->dim[axis].value = to;
    const char *y =
        ADD(e, "Gather", n, type, x, add_ints(e, n, axis == 2 ? "/rows" : "/columns", (int)to, at));
    td_onnx_attr_int(e->m, "axis", axis);
    return y;
}

static void put_resize(exporter *e, const td_node *n, const char *op)
{
    const td_type *x = td_in_type(n, 0), *y = &n->out[0]->type;
    td_onnx_value type = shape_of(e, n->in[0]);
    const char *in = operand(e, n, 0);
    if (y->dim[2] % x->dim[2] || y->dim[3] % x->dim[3]) {
        const char *rows = put_gather(e, n, in, 2, &type);
        set_result(e, n, put_gather(e, n, rows, 3, &type));
        return;
    }
    float by[4] = { 1, 1, (float)(y->dim[2] / x->dim[2]), (float)(y->dim[3] / x->dim[3]) };
    type = shape_of(e, n->out[0]);
    const char *scales =
        add_constant(e, n, "/scales", TD_DT_F32, 1, (int64_t[]){ 4 }, by, sizeof by);
    set_result(e, n, ADD(e, op, n, &type, in, "", scales));
    td_onnx_attr_text(e->m, "mode", "nearest");
    td_onnx_attr_text(e->m, "coordinate_transformation_mode", "asymmetric");
    td_onnx_attr_text(e->m, "nearest_mode", "floor");
}

/* x * sigmoid(fc2(relu(fc1(means)))) */
static void put_squeeze_excite(exporter *e, const td_node *n, const char *op)
{
    bool is_conv = e->o->se_layers == TD_ONNX_SE_CONV;
    int rank = is_conv ? 4 : 2, side = is_conv;
    int64_t c = td_in_type(n, 0)->dim[1], d = td_in_type(n, 1)->dim[0];
    td_onnx_value x = shape_of(e, n->in[0]);
    td_onnx_value hidden = shape_like(&x, d, side, side), gate = shape_like(&x, c, side, side);
    const char *layer = is_conv ? "Conv" : "Gemm";
    const char *v = put_means(e, n);
    if (!is_conv)
        v = ADD(e, "Flatten", n, &gate, v); /* axis 1 unless said otherwise */
    v = ADD(e, layer, n, &hidden, v, weight_as(e, n, 1, rank), operand(e, n, 2));
    if (!is_conv)
        td_onnx_attr_int(e->m, "transB", 1);
    v = ADD(e, "Relu", n, &hidden, v);
    v = ADD(e, layer, n, &gate, v, weight_as(e, n, 3, rank), operand(e, n, 4));
    if (!is_conv)
        td_onnx_attr_int(e->m, "transB", 1);
    v = ADD(e, "Sigmoid", n, &gate, v);
    if (!is_conv) {
        const char *shape =
            add_ints(e, n, "/gate", 4, (int64_t[]){ e->other ? 0 : x.dim[0].value, c, 1, 1 });
        gate = shape_like(&x, c, 1, 1);
        v = ADD(e, "Reshape", n, &gate, v, shape);
    }
    set_result(e, n, ADD(e, op, n, &x, operand(e, n, 0), v));
}

/* clang-format off */
static const struct {
    const td_op *op;
    const char *onnx; /* the operator, of several the last */
    void (*put)(exporter *e, const td_node *n, const char *onnx);
} rows[] = {
    { &td_op_conv2d,                    "Conv",               put_conv },
    { &td_op_conv2d_fused,              "Conv",               put_conv },
    { &td_op_batch_norm_infer,          "BatchNormalization", put_norm },
    { &td_op_batch_norm_relu_infer,     "BatchNormalization", put_norm },
    { &td_op_batch_norm_add_relu_infer, "BatchNormalization", put_norm },
    { &td_op_linear,                    "Gemm",               put_linear },
    { &td_op_relu,                      "Relu",               put_same },
    { &td_op_relu6,                     "Clip",               put_relu6 },
    { &td_op_sigmoid,                   "Sigmoid",            put_same },
    { &td_op_max_pool2d,                "MaxPool",            put_pool },
    { &td_op_avg_pool2d,                "AveragePool",        put_pool },
    { &td_op_global_avg_pool,           "Flatten",            put_global },
    { &td_op_squeeze_excite,            "Mul",                put_squeeze_excite },
    { &td_op_add,                       "Add",                put_same },
    { &td_op_mul,                       "Mul",                put_same },
    { &td_op_scale,                     "Mul",                put_scale },
    { &td_op_bias_add,              "Add",                put_bias },
    { &td_op_join_heads,            "Concat",             put_join },
    { &td_op_concat,                    "Concat",             put_concat },
    { &td_op_slice,                     "Slice",              put_slice },
    { &td_op_reshape,                   "Reshape",            put_reshape },
    { &td_op_cast,                      "Cast",               put_cast },
    { &td_op_resize_nearest,            "Resize",             put_resize },
    { &td_op_sum,                       "ReduceSum",          put_reduce },
    { &td_op_mean,                      "ReduceMean",         put_reduce },
    { &td_op_softmax,                   "Softmax",            put_softmax },
};
/* clang-format on */

static void put_node(exporter *e, const td_node *n)
{
    for (int i = 1; i < n->n_in; i++)
        if (td_in_type(n, i)->dtype != td_in_type(n, 0)->dtype) {
            stop(e, td_error(TD_EUNSUPPORTED, "%s has operands of types %s and %s, ONNX wants one",
                             n->op->name, td_dtype_name(td_in_type(n, 0)->dtype),
                             td_dtype_name(td_in_type(n, i)->dtype)));
            return;
        }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == n->op) {
            rows[i].put(e, n, rows[i].onnx);
            return;
        }
    stop(e, td_error(TD_EUNSUPPORTED, "the op %s ('%%%s') has no counterpart in ONNX", n->op->name,
                     n->n_out ? n->out[0]->name : "nothing"));
}

/* --- input and outputs ------------------------------------------------------------------------ */

static const char *per_channel(exporter *e, const td_node *n, const char *op, const char *what,
                               const float values[3], const char *x, const td_onnx_value *type)
{
    const int64_t dim[4] = { 1, 3, 1, 1 };
    const char *c = add_constant(e, n, what, TD_DT_F32, 4, dim, values, 3 * sizeof *values);
    return ADD(e, op, n, type, x, c);
}

const td_norm *td_onnx_norm(const td_model_opts *model)
{
    return td_model_detector(model) == TD_DETECTOR_SSD320 ? &td_norm_vgg : &td_norm_torch;
}

/* (pixel - mean) / std, and what it takes to come there */
static void put_images(exporter *e, const td_node *n)
{
    const td_norm *norm = td_onnx_norm(&e->o->model);
    td_onnx_value plain = shape_of(e, n->out[0]), in = plain;
    const char *v = unique(e, n->out[0]->name, "");
    if (e->o->input == TD_ONNX_IN_BYTES) {
        in.dtype = TD_DT_U8;
        in.dim[1] = plain.dim[2];
        in.dim[2] = plain.dim[3];
        in.dim[3] = plain.dim[1];
    }
    in.name = v;
    td_onnx_add_value(e->m, &e->m->inputs, &in);
    if (e->o->input == TD_ONNX_IN_BYTES) {
        in.dtype = TD_DT_F32;
        v = ADD(e, "Cast", n, &in, v);
        td_onnx_attr_int(e->m, "to", td_onnx_dtype_number(TD_DT_F32));
        v = ADD(e, "Transpose", n, &plain, v);
        ATTR_INTS(e, "perm", 0, 3, 1, 2);
    }
    if (e->o->input != TD_ONNX_IN_NORMALISED) {
        v = per_channel(e, n, "Sub", "/mean", norm->mean, v, &plain);
        if (norm != &td_norm_vgg) /* which has only means */
            v = per_channel(e, n, "Div", "/std", norm->std, v, &plain);
    }
    set_result(e, n, v);
}

/* what nodes and shapes call `from` is `to` from now on; its type moves to the outputs */
static void rename_output(exporter *e, const char *from, const char *to)
{
    td_onnx *m = e->m;
    td_onnx_values *between = &m->values;
    for (size_t i = 0; i < m->n_nodes; i++)
        for (int k = 0; k < m->nodes[i].n_in + m->nodes[i].n_out; k++)
            if (strcmp(m->nodes[i].in[k], from) == 0) /* results stand behind operands */
                m->nodes[i].in[k] = to;
    for (size_t i = 0; i < between->n; i++)
        if (strcmp(between->at[i].name, from) == 0) {
            td_onnx_value v = between->at[i];
            v.name = to;
            memmove(&between->at[i], &between->at[i + 1],
                    (between->n - i - 1) * sizeof *between->at);
            between->n--;
            td_onnx_add_value(m, &m->outputs, &v);
            return;
        }
}

/* what an output of the graph is called in the model; NULL: it is not wanted */
static const char *output_name(const exporter *e, const char *output)
{
    bool is_detector = !td_graph_output_value(e->g, "logits");
    if (strcmp(output, "logits") == 0)
        return "logits";
    if (e->o->probabilities && strcmp(output, "probabilities") == 0)
        return "probabilities";
    if (is_detector && strcmp(output, "codes") == 0)
        return "codes";
    return is_detector && strcmp(output, "scores") == 0 ? "logits" : NULL;
}

static void put_output(exporter *e, const char *output)
{
    const td_value *v = td_graph_output_value(e->g, output);
    const char *to = output_name(e, output);
    if (!v || !to || !is_ok(e))
        return;
    td_onnx_value type = shape_of(e, v);
    td_node as_operand = { .op = v->producer->op,
                           .in = (td_value *[]){ v->producer->out[v->index] } };
    const char *name = operand(e, &as_operand, 0);
    if (v->producer->op->is_leaf)
        name = ADD(e, "Identity", v->producer, &type, name);
    rename_output(e, name, to);
    e->name[v->id] = to;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* nodes that outputs depend on */
static void mark(exporter *e)
{
    for (int i = 0; i < e->g->n_outputs; i++)
        if (output_name(e, e->g->outputs[i].name))
            e->wanted[e->g->outputs[i].value->producer->id] = true;
    for (int i = e->g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; e->wanted[i] && k < e->g->nodes[i]->n_in; k++)
            e->wanted[e->g->nodes[i]->in[k]->producer->id] = true;
}

/* convolutions that a bias is added to take it as an operand */
static void find_biases(exporter *e)
{
    for (int i = 0; i < e->g->n_nodes; i++) {
        const td_node *n = e->g->nodes[i];
        bool has_biases = n->op == &td_op_bias_add || n->op == &td_op_join_heads;
        for (int k = 0; has_biases && k + 1 < n->n_in; k += 2)
            if (n->in[k]->producer->op == &td_op_conv2d && n->in[k]->n_uses == 1 &&
                td_value_is_param(n->in[k + 1]))
                e->bias[n->in[k]->id] = n->in[k + 1];
    }
}

static bool same_nodes(const td_graph *a, const td_graph *b)
{
    bool same = a->n_nodes == b->n_nodes && a->n_values == b->n_values;
    for (int i = 0; same && i < a->n_nodes; i++)
        same = a->nodes[i]->op == b->nodes[i]->op;
    for (int i = 0; same && i < a->n_values; i++)
        same = a->values[i]->type.rank == b->values[i]->type.rank;
    return same;
}

static void put_all(exporter *e)
{
    mark(e);
    find_biases(e);
    /* outputs' names are promised */
    for (int i = 0; i < e->g->n_outputs && is_ok(e); i++)
        if (output_name(e, e->g->outputs[i].name))
            stop(e, td_map_set(&e->used, output_name(e, e->g->outputs[i].name), e));
    for (int i = 0; i < e->g->n_nodes && is_ok(e); i++) {
        const td_node *n = e->g->nodes[i];
        if (n->op == &td_op_input)
            put_images(e, n);
        else if (e->wanted[i] && n->op != &td_op_param && n->op != &td_op_constant)
            put_node(e, n);
    }
    static const char *const outputs[] = { "logits", "probabilities", "codes", "scores" };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        put_output(e, outputs[i]);
}

td_status td_onnx_of_graph(const td_graph *g, const td_graph *other, td_program *p,
                           const td_onnx_opts *opts, td_onnx *m)
{
    exporter e = { .m = m, .g = g, .other = other, .p = p, .o = opts };
    if (other && !same_nodes(g, other))
        return td_error(TD_EUNSUPPORTED, "the graph is another one for another batch: "
                                         "--batch-size makes it fixed");
    e.name = td_alloc((size_t)g->n_values + 1, sizeof *e.name);
    e.rank = td_alloc((size_t)g->n_values + 1, sizeof *e.rank);
    e.wanted = td_alloc((size_t)g->n_nodes + 1, sizeof *e.wanted);
    e.bias = td_alloc((size_t)g->n_values + 1, sizeof *e.bias);
    if (e.name && e.rank && e.wanted && e.bias)
        put_all(&e);
    else
        stop(&e, TD_ENOMEM);
    td_map_release(&e.used);
    td_free(e.name);
    td_free(e.rank);
    td_free(e.wanted);
    td_free(e.bias);
    return m->st;
}
