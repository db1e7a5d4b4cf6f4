/*
 * onnx_open_dims.c -- dimensions that depend on the batch or on the size of the images
 *
 * Graphs of one network are compared: `g`, `other` for one more image, `larger` for larger images
 * that are not square.  A dimension that differs is open; two dimensions that are equal in all of
 * them are the same number.
 *
 *     td_writer_shape_of   a shape with open dimensions as nodes: Shape and Slice of an earlier
 *                          value that has them, Concat with the others
 *     td_onnx_any_size     can the images have any size?
 */
#include "onnx/onnx_write.h"

#include <stdio.h>
#include <string.h>

#include "ops/ops.h"

static const td_type *type_in(const td_graph *g, const td_value *v)
{
    return g ? &g->values[v->id]->type : &v->type;
}

bool td_writer_is_open(const td_onnx_writer *e, const td_value *v, int d)
{
    return v->type.dim[d] != type_in(e->other, v)->dim[d] ||
           v->type.dim[d] != type_in(e->larger, v)->dim[d];
}

bool td_writer_same_dim(const td_onnx_writer *e, const td_value *a, int i, const td_value *b, int k)
{
    return a->type.dim[i] == b->type.dim[k] &&
           type_in(e->other, a)->dim[i] == type_in(e->other, b)->dim[k] &&
           type_in(e->larger, a)->dim[i] == type_in(e->larger, b)->dim[k];
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* the first dimension of x from which on it has dimensions d .. d + size - 1 of v; -1: none */
static int find_run(const td_onnx_writer *e, const td_value *x, const td_value *v, int d, int size)
{
    for (int at = 0; at + size <= x->type.rank; at++) {
        int n = 0;
        while (n < size && td_writer_same_dim(e, x, at + n, v, d + n))
            n++;
        if (n == size)
            return at;
    }
    return -1;
}

/* the nearest value before node n that has these dimensions; NULL: none */
static const td_value *find_source(const td_onnx_writer *e, const td_node *n, const td_value *v,
                                   int d, int size, int *at)
{
    for (int i = n->id - 1; i >= 0; i--) {
        const td_node *before = e->g->nodes[i];
        for (int k = 0; k < before->n_out && !td_value_is_param(before->out[0]); k++) {
            const td_value *x = before->out[k];
            *at = e->name[x->id] ? find_run(e, x, v, d, size) : -1;
            if (*at >= 0)
                return x;
        }
    }
    return NULL;
}

static const char *put_source(td_onnx_writer *e, const td_node *n, const td_value *x, int64_t at,
                              int64_t size)
{
    const int64_t end = at + size;
    td_onnx_value type = { .dtype = TD_DT_I64, .rank = 1, .dim = { { .value = x->type.rank } } };
    const char *shape = TD_WRITER_ADD(e, "Shape", n, &type, td_writer_value(e, x));
    if (size == x->type.rank)
        return shape;
    type.dim[0].value = size;
    return TD_WRITER_ADD(e, "Slice", n, &type, shape, td_writer_ints(e, n, "/starts", 1, &at),
                         td_writer_ints(e, n, "/ends", 1, &end));
}

/* as many of v's open dimensions from d on as one earlier value has; *size gets their number */
static const char *put_open(td_onnx_writer *e, const td_node *n, const td_value *v, int d,
                            int *size)
{
    int at;
    *size = 1;
    while (d + *size < v->type.rank && td_writer_is_open(e, v, d + *size))
        ++*size;
    for (; *size > 0; --*size) {
        const td_value *x = find_source(e, n, v, d, *size, &at);
        if (x)
            return put_source(e, n, x, at, *size);
    }
    *size = v->type.rank - d;
    td_writer_stop(e, td_error(TD_EUNSUPPORTED,
                               "dimension %d of '%%%s' depends on the batch size or the image size "
                               "in a way that ONNX cannot say: fix it with --batch-size or "
                               "--image-size",
                               d, v->name));
    return "";
}

const char *td_writer_shape_of(td_onnx_writer *e, const td_node *n, const td_value *v)
{
    const char *part[TD_RANK_MAX];
    const td_onnx_value type = { .dtype = TD_DT_I64,
                                 .rank = 1,
                                 .dim = { { .value = v->type.rank } } };
    int n_parts = 0;
    for (int d = 0, size; d < v->type.rank; d += size) {
        if (td_writer_is_open(e, v, d)) {
            part[n_parts++] = put_open(e, n, v, d, &size);
            continue;
        }
        for (size = 1; d + size < v->type.rank && !td_writer_is_open(e, v, d + size); size++)
            ;
        part[n_parts++] = td_writer_ints(e, n, "/sides", size, v->type.dim + d);
    }
    if (n_parts == 1)
        return part[0];
    const char *shape = td_writer_add(e, "Concat", n, &type, n_parts, part);
    td_onnx_attr_int(e->m, "axis", 0);
    return shape;
}

/* --- images of any size ----------------------------------------------------------------------- */

bool td_onnx_same_nodes(const td_graph *a, const td_graph *b)
{
    bool same = a->n_nodes == b->n_nodes && a->n_values == b->n_values;
    for (int i = 0; same && i < a->n_nodes; i++)
        same = a->nodes[i]->op == b->nodes[i]->op;
    for (int i = 0; same && i < a->n_values; i++)
        same = a->values[i]->type.rank == b->values[i]->type.rank;
    return same;
}

/* ops whose attributes have sizes, which their rows of td_writer_put compare */
static bool has_sizes(const td_op *op)
{
    return op == &td_op_reshape || op == &td_op_broadcast_to || op == &td_op_resize_nearest ||
           op == &td_op_resize;
}

static bool differs(const td_node *a, const td_node *b)
{
    return a->op->fields && !has_sizes(a->op) && !td_fields_equal(a->op->fields, a->attr, b->attr);
}

/* why node a of the graph is not that of larger images, b */
static bool check_node(const td_node *a, const td_node *b, char why[TD_ONNX_WHY])
{
    if (!a->n_out)
        return true;
    const bool is_fixed = td_value_is_param(a->out[0]) || a->op == &td_op_constant;
    if (is_fixed && !td_type_same_shape(&a->out[0]->type, &b->out[0]->type))
        snprintf(why, TD_ONNX_WHY, "'%.200s' has as many elements as the image size requires",
                 a->out[0]->name);
    else if (!td_value_is_param(a->out[0]) && differs(a, b))
        snprintf(why, TD_ONNX_WHY, "%s '%%%.200s' depends on the image size", a->op->name,
                 a->out[0]->name);
    return !*why;
}

bool td_onnx_any_size(const td_graph *g, const td_graph *larger, char why[TD_ONNX_WHY])
{
    *why = '\0';
    if (!td_onnx_same_nodes(g, larger)) {
        snprintf(why, TD_ONNX_WHY, "its operations depend on the image size");
        return false;
    }
    for (int i = 0; i < g->n_nodes; i++)
        if (!check_node(g->nodes[i], larger->nodes[i], why))
            return false;
    for (int i = 0; i < g->n_outputs; i++)
        if (!td_type_same_shape(&g->outputs[i].value->type, &larger->outputs[i].value->type)) {
            snprintf(why, TD_ONNX_WHY, "the shape of output '%.200s' depends on the image size",
                     g->outputs[i].name);
            return false;
        }
    return true;
}
