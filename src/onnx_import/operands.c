/*
 * operands.c -- operands and attributes of ONNX nodes
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "onnx_import/importer.h"

td_status td_import_refuse(const td_importer *im, const char *what)
{
    return td_error(TD_EUNSUPPORTED, "'%s': node '%s' (%s): %s", im->what, im->node->name,
                    im->node->op, what);
}

td_status td_import_wrong(const td_importer *im, const char *what)
{
    return td_error(TD_EFORMAT, "'%s': node '%s' (%s): %s", im->what, im->node->name, im->node->op,
                    what);
}

/* how `tandem init` and a head of another size fill a trained parameter: as PyTorch does */
static td_param_attr trained(const td_importer *im, const td_type *t, int operand)
{
    const bool is_norm = strcmp(im->node->op, "BatchNormalization") == 0;
    double fan_in = 1;
    for (int i = 1; i < t->rank; i++)
        fan_in *= (double)t->dim[i];
    if (is_norm && operand > 2)
        return (td_param_attr){ .role = TD_ROLE_STAT,
                                .init = operand == 4 ? TD_INIT_ONES : TD_INIT_ZEROS,
                                .scale = 1 };
    if (t->rank == 4)
        return (td_param_attr){ .init = TD_INIT_NORMAL, .scale = sqrt(2 / fan_in) };
    if (t->rank == 2)
        return (td_param_attr){ .init = TD_INIT_UNIFORM, .scale = 1 / sqrt(fan_in) };
    return (td_param_attr){ .init = is_norm && operand == 1 ? TD_INIT_ONES : TD_INIT_ZEROS,
                            .scale = 1 };
}

static td_status add_param(td_onnx_graph *g, const td_tensor *t)
{
    TD_TRY(td_reserve(&g->params, &g->cap_params, g->n_params + 1, sizeof *g->params));
    g->params[g->n_params++] = *t;
    return TD_OK;
}

/* adds a parameter; half tensors become f32 parameters and a cast, since programs take parameters
   as f32 */
td_status td_import_leaf_of(td_importer *im, const td_tensor *t, int operand, td_value **out)
{
    td_type type = td_type_of(td_dtype_is_half(t->dtype) ? TD_DT_F32 : t->dtype, 0, NULL);
    td_param_attr attr = { .role = TD_ROLE_STAT, .scale = 1 }; /* never trained */
    if (t->rank > TD_RANK_MAX)
        return td_import_wrong(im, "a tensor has too many dimensions");
    type.rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        type.dim[i] = t->dim[i];
    if (im->o->is_model) {
        if (type.dtype != TD_DT_F32)
            return td_import_refuse(im, "an operand that is neither f32 nor a half type");
        attr = trained(im, &type, operand);
        *out = td_emit_leaf(im->b, &td_op_param, &attr, t->name, &type);
        TD_TRY(add_param(im->out, t));
        return td_map_set(&im->values, t->name, *out);
    }
    *out = td_cast(im->b, td_emit_leaf(im->b, &td_op_param, &attr, t->name, &type), t->dtype);
    return td_map_set(&im->values, t->name, *out);
}

/* operand i as a value of the graph; a tensor becomes a parameter when it is first read */
td_status td_import_value_at(td_importer *im, int i, td_value **out)
{
    const char *name = i < im->node->n_in ? im->node->in[i] : "";
    const td_tensor *t = td_map_get(&im->tensors, name);
    *out = td_map_get(&im->values, name);
    if (*out)
        return TD_OK;
    if (!t)
        return td_import_wrong(im, "an operand is missing");
    return td_import_leaf_of(im, t, i, out);
}

td_status td_import_values_of(td_importer *im, int least, int most, td_value **out)
{
    int n = im->node->n_in;
    if (n < least || n > most || n > TD_IN_MAX)
        return td_import_wrong(im, "an unsupported number of operands");
    for (int i = 0; i < n; i++)
        TD_TRY(td_import_value_at(im, i, &out[i]));
    return TD_OK;
}

td_status td_import_tensor_at(const td_importer *im, int i, td_dtype dtype, int rank,
                              const td_tensor **out)
{
    *out = i < im->node->n_in ? td_map_get(&im->tensors, im->node->in[i]) : NULL;
    if (!*out || (*out)->dtype != dtype || (*out)->rank != rank)
        return td_import_refuse(im, "an operand is not a constant of the expected type");
    return TD_OK;
}

/* operand i, a constant i64 [n], n <= room */
td_status td_import_ints_at(const td_importer *im, int i, int room, int *n, int64_t *out)
{
    const td_tensor *t;
    TD_TRY(td_import_tensor_at(im, i, TD_DT_I64, 1, &t));
    if (t->dim[0] > room)
        return td_import_refuse(im, "a list of integers is too long");
    *n = (int)t->dim[0];
    if (t->n_bytes)
        memcpy(out, t->data, t->n_bytes);
    return TD_OK;
}

td_status td_import_attr_int(const td_importer *im, const char *name, int64_t otherwise,
                             int64_t *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    *out = a ? a->i : otherwise;
    return a && a->kind != TD_ONNX_INT ? td_import_wrong(im, "an attribute is not an integer")
                                       : TD_OK;
}

/* an attribute that only has one supported value */
td_status td_import_attr_must(const td_importer *im, const char *name, int64_t value)
{
    int64_t found;
    TD_TRY(td_import_attr_int(im, name, value, &found));
    return found == value ? TD_OK : td_import_refuse(im, "an attribute has an unsupported value");
}

double td_import_attr_float(const td_importer *im, const char *name, double otherwise)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    return a && a->kind == TD_ONNX_FLOAT ? (double)a->f : otherwise;
}

/* a list of n equal numbers; `otherwise` if the attribute is absent */
td_status td_import_attr_same(const td_importer *im, const char *name, int n, int otherwise,
                              int *out)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    *out = otherwise;
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n != n)
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    for (int i = 0; i < n; i++)
        if (a->ints[i] != a->ints[0] || a->ints[i] < 0 || a->ints[i] > 1 << 20)
            return td_import_refuse(im, "windows, strides, pads or dilations are not square");
    *out = (int)a->ints[0];
    return TD_OK;
}

/* top, left, bottom, right: must be equal in height and width, and at the end not less than at the
   start */
static td_status attr_pads(const td_importer *im, int *pad, int *extra)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "pads");
    *pad = *extra = 0;
    if (!a)
        return TD_OK;
    if (a->kind != TD_ONNX_INTS || a->n != 4)
        return td_import_wrong(im, "an attribute has the wrong number of integers");
    const int64_t *p = a->ints;
    if (p[0] != p[1] || p[2] != p[3])
        return td_import_refuse(im, "windows, strides, pads or dilations are not square");
    if (p[0] < 0 || p[2] < p[0] || p[2] > 1 << 20)
        return td_import_refuse(im, "less padding at the end than at the start");
    *pad = (int)p[0];
    *extra = (int)(p[2] - p[0]);
    return TD_OK;
}

bool td_import_attr_is(const td_importer *im, const char *name, const char *text)
{
    const td_onnx_attr *a = td_onnx_attr_find(im->node, name);
    return a && a->kind == TD_ONNX_TEXT && strcmp(a->text, text) == 0;
}

/* pads that auto_pad gives a square image of `side` pixels */
td_status td_import_attr_auto_pads(const td_importer *im, int64_t side, int64_t window, int stride,
                                   int *pad, int *extra)
{
    if (!td_onnx_attr_find(im->node, "auto_pad") || td_import_attr_is(im, "auto_pad", "NOTSET"))
        return attr_pads(im, pad, extra);
    *pad = *extra = 0;
    if (td_import_attr_is(im, "auto_pad", "VALID"))
        return TD_OK;
    if (!td_import_attr_is(im, "auto_pad", "SAME_UPPER") || stride < 1)
        return td_import_refuse(im, "auto_pad other than NOTSET, VALID and SAME_UPPER");
    const int64_t total = ((side + stride - 1) / stride - 1) * stride + window - side;
    *pad = total > 0 ? (int)(total / 2) : 0;
    *extra = total > 0 ? (int)(total - 2 * (total / 2)) : 0;
    return TD_OK;
}

td_status td_import_check_square(const td_importer *im, const td_type *x)
{
    const bool is_same =
        td_onnx_attr_find(im->node, "auto_pad") && td_import_attr_is(im, "auto_pad", "SAME_UPPER");
    if (x->rank != 4)
        return td_import_wrong(im, "the images have not four dimensions");
    return is_same && x->dim[2] != x->dim[3]
               ? td_import_refuse(im, "SAME_UPPER of images that are not square")
               : TD_OK;
}

/* --- types ------------------------------------------------------------------------------------ */

static td_status check_type(const td_importer *im, const td_onnx_value *v, const td_type *t)
{
    const bool are_floats = td_dtype_is_float(v->dtype) && td_dtype_is_float(t->dtype);
    bool same = (v->dtype == t->dtype || (im->o->is_model && are_floats)) && v->rank == t->rank;
    for (int i = 0; same && i < t->rank; i++)
        if (v->dim[i].value >= 0)
            same = v->dim[i].value == t->dim[i];
        else if (!im->o->is_model && v->dim[i].param && strcmp(v->dim[i].param, "N") == 0)
            same = t->dim[i] == im->o->batch;
    if (same)
        return TD_OK;
    td_text text = { 0 };
    td_type_print(t, &text);
    td_status st =
        td_error(TD_EFORMAT, "'%s': '%s' does not have its declared type and shape, but %s",
                 im->what, v->name, td_text_get(&text));
    td_text_release(&text);
    return st;
}

td_status td_import_check_declared(const td_importer *im, const char *name, const td_type *t)
{
    const td_onnx_value *v = td_map_get(&im->declared, name);
    if (im->o->is_model && (!v || !v->dtype))
        return TD_OK;
    if (!v)
        return td_error(TD_EFORMAT, "'%s': no type is declared for '%s'", im->what, name);
    return check_type(im, v, t);
}

td_status td_import_result(td_importer *im, int i, td_value *v)
{
    if (!td_build_ok(im->b))
        return TD_EFORMAT; /* the builder has set the message */
    const td_type t = td_value_type(v);
    TD_TRY(td_import_check_declared(im, im->node->out[i], &t));
    return td_map_set(&im->values, im->node->out[i], v);
}
