/*
 * onnx_write.c -- adds names, nodes and tensors to a model; parameters become tensors when they are
 * first read
 */
#include "onnx/onnx_write.h"

#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "onnx/onnx_qdq.h"
#include "ops/ops.h"

#define BATCH_NAME "N"

void td_writer_stop(td_onnx_writer *e, td_status st)
{
    if (e->m->st == TD_OK)
        e->m->st = st;
}

bool td_writer_is_ok(const td_onnx_writer *e)
{
    return e->m->st == TD_OK;
}

/* --- names and types -------------------------------------------------------------------------- */

const char *td_writer_name(td_onnx_writer *e, const char *a, const char *b)
{
    char name[400];
    snprintf(name, sizeof name, "%s%s", a, b);
    for (int i = 2; td_map_has(&e->used, name); i++)
        snprintf(name, sizeof name, "%.380s%s_%d", a, b, i);
    if (td_writer_is_ok(e))
        td_writer_stop(e, td_map_set(&e->used, name, e));
    return td_onnx_text(e->m, name);
}

/* "layer1.0.conv1", or the op's name if the node has no parameters */
static void label_of(const td_node *n, char out[300])
{
    const char *label = td_node_label(n);
    bool is_number = *label >= '0' && *label <= '9';
    snprintf(out, 300, is_number ? "%s_%s" : "%.0s%s", n->op->name, label);
}

td_onnx_value td_writer_shape(const td_onnx_writer *e, const td_value *v)
{
    td_onnx_value t = { .dtype = v->type.dtype, .rank = v->type.rank };
    const td_type *other = e->other ? &e->other->values[v->id]->type : &v->type;
    const td_type *larger = e->larger ? &e->larger->values[v->id]->type : &v->type;
    for (int i = 0; i < t.rank; i++) {
        int64_t d = v->type.dim[i];
        t.dim[i].value = d == other->dim[i] && d == larger->dim[i] ? d : -1;
        if (d != other->dim[i] && other->dim[i] == d + 1 && d == larger->dim[i])
            t.dim[i].param = BATCH_NAME;
    }
    return t;
}

/* --- nodes and tensors ------------------------------------------------------------------------ */

/* append a node and return its result's name */
const char *td_writer_add(td_onnx_writer *e, const char *op, const td_node *n,
                          const td_onnx_value *type, int n_in, const char *const *in)
{
    char label[300];
    label_of(n, label);
    snprintf(label + strlen(label), sizeof label - strlen(label), "/%s", op);
    const char *name = td_writer_name(e, label, "");
    td_onnx_value v = *type;
    v.name = td_writer_name(e, name, ":0");
    td_onnx_add_node(e->m, op, name, n_in, in, v.name);
    td_onnx_add_value(e->m, &e->m->values, &v);
    return v.name;
}

/* add a tensor that belongs to a node: a shape, a scalar */
const char *td_writer_constant(td_onnx_writer *e, const td_node *n, const char *what,
                               td_dtype dtype, int rank, const int64_t *dim, const void *data,
                               size_t n_bytes)
{
    char label[300];
    label_of(n, label);
    const char *name = td_writer_name(e, label, what);
    void *copy = td_writer_is_ok(e) ? td_arena_alloc(&e->m->arena, n_bytes + 1, 1) : NULL;
    if (!copy) {
        td_writer_stop(e, TD_ENOMEM);
        return name;
    }
    memcpy(copy, data, n_bytes);
    td_onnx_add_tensor(e->m, name, dtype, rank, dim, copy);
    return name;
}

const char *td_writer_ints(td_onnx_writer *e, const td_node *n, const char *what, int count,
                           const int64_t *values)
{
    return td_writer_constant(e, n, what, TD_DT_I64, 1, (int64_t[]){ count }, values,
                              (size_t)count * sizeof *values);
}

/* stores x as an element of dtype d; false if d is not supported */
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

const char *td_writer_scalar(td_onnx_writer *e, const td_node *n, const char *what, td_dtype d,
                             double x)
{
    unsigned char bytes[8];
    element(d, x, bytes);
    return td_writer_constant(e, n, what, d, 0, NULL, bytes, td_dtype_bytes(d));
}

/* --- parameters ------------------------------------------------------------------------------- */

/* stores an fp16 tensor and a cast back; the program gets the same rounded numbers */
static const char *add_half(td_onnx_writer *e, const td_value *v, const char *name, int rank,
                            float *data)
{
    size_t n = (size_t)td_type_count(&v->type);
    uint16_t *half = td_arena_alloc(&e->m->arena, n, sizeof *half);
    td_onnx_value type = { .dtype = TD_DT_F32, .rank = rank };
    if (!half) {
        td_writer_stop(e, TD_ENOMEM);
        return "";
    }
    td_f32_to_f16_n(data, n, half);
    td_f16_to_f32_n(half, n, data);
    td_writer_stop(e, td_program_set(e->p, v->name, data));
    for (int i = 0; i < rank; i++)
        type.dim[i].value = v->type.dim[i];
    td_onnx_add_tensor(e->m, name, TD_DT_F16, rank, v->type.dim, half);
    const char *cast = TD_WRITER_ADD(e, "Cast", v->producer, &type, name);
    td_onnx_attr_int(e->m, "to", td_onnx_dtype_number(TD_DT_F32));
    return cast;
}

/* stores integers of 8 or 32 bits, a scale for each row, and their product */
static const char *add_integers(td_onnx_writer *e, const td_value *v, const td_onnx_integers *x)
{
    static const int8_t zeros[1];
    const char *name = td_writer_name(e, v->name, ""), *zero = NULL;
    const char *scale = td_writer_name(e, v->name, TD_SCALE_SUFFIX);
    td_onnx_value type = td_writer_shape(e, v);
    type.dtype = TD_DT_F32;
    td_onnx_add_tensor(e->m, name, x->dtype, v->type.rank, v->type.dim, x->integers);
    td_onnx_add_tensor(e->m, scale, TD_DT_F32, 1, &x->rows, x->scale);
    if (x->dtype == TD_DT_S8) { /* zero is the default, but some runtimes want to read it */
        const size_t n = (size_t)x->rows;
        int8_t *of_rows = td_writer_is_ok(e) ? td_arena_alloc(&e->m->arena, n, 1) : NULL;
        if (!of_rows)
            td_writer_stop(e, TD_ENOMEM);
        zero = td_writer_name(e, v->name, "_zero_point");
        td_onnx_add_tensor(e->m, zero, TD_DT_S8, 1, &x->rows, of_rows ? of_rows : zeros);
    }
    const char *in[] = { name, scale, zero };
    const char *y = td_writer_add(e, "DequantizeLinear", v->producer, &type, zero ? 3 : 2, in);
    td_onnx_attr_int(e->m, "axis", 0);
    return y;
}

static const char *add_param(td_onnx_writer *e, const td_value *v, int rank)
{
    const td_onnx_integers *integers = e->integers ? td_map_get(e->integers, v->name) : NULL;
    if (integers)
        return add_integers(e, v, integers);
    const char *name = td_writer_name(e, v->name, "");
    size_t n_bytes = (size_t)td_type_count(&v->type) * td_dtype_bytes(v->type.dtype);
    void *data = td_writer_is_ok(e) ? td_arena_alloc(&e->m->arena, n_bytes, 1) : NULL;
    if (!data) {
        td_writer_stop(e, TD_ENOMEM);
        return name;
    }
    td_writer_stop(e, td_program_get(e->p, v->name, data));
    if (e->o->half_weights && v->type.dtype == TD_DT_F32 && v->type.rank > 1)
        return add_half(e, v, name, rank, data);
    td_onnx_add_tensor(e->m, name, v->type.dtype, rank, v->type.dim, data);
    return name;
}

static const char *add_filled(td_onnx_writer *e, const td_value *v)
{
    size_t each = td_dtype_bytes(v->type.dtype), n = (size_t)td_type_count(&v->type);
    const char *name = td_writer_name(e, v->producer->op->name, v->name);
    char *data = td_writer_is_ok(e) ? td_arena_alloc(&e->m->arena, n, each) : NULL;
    if (!data) {
        td_writer_stop(e, TD_ENOMEM);
        return name;
    }
    td_constant_fill(v->producer, data);
    td_onnx_add_tensor(e->m, name, v->type.dtype, v->type.rank, v->type.dim, data);
    return name;
}

/* the name of a value; a parameter becomes a tensor when it is first read */
const char *td_writer_value(td_onnx_writer *e, const td_value *v)
{
    if (!e->name[v->id]) {
        TD_CHECK(v->producer->op == &td_op_param || v->producer->op == &td_op_constant ||
                 !td_writer_is_ok(e));
        e->rank[v->id] = (int8_t)v->type.rank;
        e->name[v->id] = td_value_is_param(v) ? add_param(e, v, v->type.rank) : add_filled(e, v);
    }
    return e->name[v->id];
}

const char *td_writer_operand(td_onnx_writer *e, const td_node *n, int i)
{
    return td_writer_value(e, n->in[i]);
}

/* the same, as a tensor with 2 or 4 dimensions, [A, B] or [A, B, 1, 1] */
const char *td_writer_weight(td_onnx_writer *e, const td_node *n, int i, int rank)
{
    td_value v = *n->in[i];
    v.type.dim[2] = v.type.dim[3] = 1;
    if (!e->name[v.id] && td_value_is_param(&v)) {
        e->rank[v.id] = (int8_t)rank;
        e->name[v.id] = add_param(e, &v, rank);
    }
    const char *name = td_writer_operand(e, n, i);
    if (e->rank[v.id] == rank)
        return name;
    td_onnx_value type = { .dtype = v.type.dtype, .rank = rank };
    for (int k = 0; k < rank; k++)
        type.dim[k].value = v.type.dim[k];
    return TD_WRITER_ADD(e, "Reshape", n, &type, name,
                         td_writer_ints(e, n, "/matrix", rank, v.type.dim));
}

void td_writer_result(td_onnx_writer *e, const td_node *n, const char *name)
{
    e->name[n->out[0]->id] = name;
    e->rank[n->out[0]->id] = (int8_t)n->out[0]->type.rank;
}

/* one node with the same operands and no attributes */
void td_writer_same(td_onnx_writer *e, const td_node *n, const char *op)
{
    const char *in[TD_IN_MAX];
    td_onnx_value y = td_writer_shape(e, n->out[0]);
    for (int i = 0; i < n->n_in; i++)
        in[i] = td_writer_operand(e, n, i);
    td_writer_result(e, n, td_writer_add(e, op, n, &y, n->n_in, in));
}
