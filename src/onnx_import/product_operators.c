/*
 * product_operators.c -- ONNX operators of matrices and rows: products, layer norms, softmax
 *
 * PyTorch writes a linear layer of [N, T, C] as MatMul and Add; both become one matmul of [N T, C].
 * A transposed weight is read as it is, so that the parameter has the weight's name and shape.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <string.h>

#include "onnx_import/importer.h"

/* --- products --------------------------------------------------------------------------------- */

/* x if it has only its last two dimensions exchanged, what it was before; sets *is_transposed */
static td_value *before_transpose(td_value *x, bool *is_transposed)
{
    const td_node *n = x->producer;
    int perm[TD_RANK_MAX];
    *is_transposed = false;
    if (n->op != &td_op_transpose || x->type.rank < 2 || !td_transpose_perm(n, perm))
        return x;
    const int rank = x->type.rank;
    for (int d = 0; d < rank - 2; d++)
        if (perm[d] != d)
            return x;
    *is_transposed = perm[rank - 1] == rank - 2;
    return n->in[0];
}

static int count_reads(const td_importer *im, const char *name)
{
    int n = 0;
    for (size_t i = 0; i < im->m->n_nodes; i++)
        for (int k = 0; k < im->m->nodes[i].n_in; k++)
            n += strcmp(im->m->nodes[i].in[k], name) == 0;
    for (size_t i = 0; i < im->m->outputs.n; i++)
        n += strcmp(im->m->outputs.at[i].name, name) == 0;
    return n;
}

/* the operand of the next node that is the bias of this product, [columns]; -1: there is none */
static int bias_after(const td_importer *im, int64_t columns)
{
    const td_onnx_node *next = im->node + 1;
    if (!im->o->is_model || next >= im->m->nodes + im->m->n_nodes || strcmp(next->op, "Add") != 0 ||
        next->n_in != 2)
        return -1;
    for (int i = 0; i < 2; i++) {
        const td_tensor *t = td_map_get(&im->tensors, next->in[i]);
        if (t && t->rank == 1 && t->dim[0] == columns &&
            strcmp(next->in[1 - i], im->node->out[0]) == 0 &&
            count_reads(im, im->node->out[0]) == 1)
            return i;
    }
    return -1;
}

/* reads the bias as an operand of the next node, whose result is the product's then */
static td_status take_bias(td_importer *im, int operand, td_value **bias)
{
    const td_onnx_node *here = im->node;
    im->node = here + 1;
    const td_status st = td_import_value_at(im, operand, bias);
    im->node = here;
    im->merged = here + 1;
    return st;
}

/* a vector on the left is a row, on the right a column, whose dimension of 1 is left out then */
static td_status vector_product(td_importer *im, td_value **in, td_value **y)
{
    const td_type a = td_value_type(in[0]), b = td_value_type(in[1]);
    int64_t dim[TD_RANK_MAX];
    int rank = 0;
    if (a.rank == 0 || b.rank == 0)
        return td_import_wrong(im, "a product with a number");
    const int64_t columns = b.rank == 1 ? 1 : b.dim[b.rank - 1];
    for (int d = 0; d < b.rank - 2; d++) /* at most one of them has more than a row */
        dim[rank++] = b.dim[d];
    for (int d = 0; d < a.rank - 1; d++)
        dim[rank++] = a.dim[d];
    if (b.rank > 1)
        dim[rank++] = columns;
    td_value *x = td_reshape(im->b, in[0], 2, (int64_t[]){ -1, a.dim[a.rank - 1] });
    td_value *w = b.rank == 1 ? td_reshape(im->b, in[1], 2, (int64_t[]){ b.dim[0], 1 }) : in[1];
    if (b.rank > 2) { /* the same row for each matrix */
        int64_t one[TD_RANK_MAX] = { 1, 1, 1, 1, 1 };
        one[b.rank - 1] = a.dim[0];
        x = td_reshape(im->b, in[0], b.rank, one);
    }
    *y = td_import_reshaped(im, td_matmul(im->b, x, false, w, false, NULL), rank, dim);
    return TD_OK;
}

/* rows of more than TD_RANK_MAX dimensions by a matrix */
static td_status wide_linear(td_importer *im, const td_wide *w)
{
    td_value *rows, *matrix, *bias = NULL;
    bool is_transposed = false;
    if (im->node->n_in != 2 || td_import_wide_of(im, 1))
        return td_import_wide_product(im);
    TD_TRY(td_import_value_at(im, 1, &matrix));
    matrix = before_transpose(matrix, &is_transposed);
    const td_type t = td_value_type(matrix);
    if (t.rank != 2)
        return td_import_wide_product(im); /* refuses it */
    const int64_t columns = t.dim[is_transposed ? 0 : 1];
    const int operand = bias_after(im, columns);
    if (operand >= 0)
        TD_TRY(take_bias(im, operand, &bias));
    TD_TRY(td_import_wide_rows(im, w, &rows));
    rows = td_matmul(im->b, rows, false, matrix, is_transposed, bias);
    return td_import_wide_of_rows(im, w, rows, columns);
}

td_status td_import_matmul(td_importer *im, td_value **y)
{
    td_value *in[2], *bias = NULL;
    bool is_transposed[2] = { false, false };
    if (td_import_wide_at(im))
        return wide_linear(im, td_import_wide_at(im));
    TD_TRY(td_import_values_of(im, 2, 2, in));
    if (td_value_type(in[0]).rank < 2 || td_value_type(in[1]).rank < 2)
        return vector_product(im, in, y);
    in[1] = before_transpose(in[1], &is_transposed[1]);
    const td_type x = td_value_type(in[0]), w = td_value_type(in[1]);
    const int64_t columns = w.dim[w.rank - (is_transposed[1] ? 2 : 1)];
    const int operand = bias_after(im, columns);
    if (operand >= 0)
        TD_TRY(take_bias(im, operand, &bias));
    if (w.rank > 2 || x.rank == 2) {
        in[0] = before_transpose(in[0], &is_transposed[0]);
        *y = td_matmul(im->b, in[0], is_transposed[0], in[1], is_transposed[1], bias);
        return TD_OK;
    }
    int64_t dim[TD_RANK_MAX];
    for (int d = 0; d < x.rank; d++)
        dim[d] = x.dim[d];
    in[0] = td_reshape(im->b, in[0], 2, (int64_t[]){ -1, x.dim[x.rank - 1] });
    *y = td_matmul(im->b, in[0], false, in[1], is_transposed[1], bias);
    dim[x.rank - 1] = columns;
    *y = td_import_reshaped(im, *y, x.rank, dim);
    return TD_OK;
}

/* --- Einsum ----------------------------------------------------------------------------------- */

/* the dimensions of the two operands and of the result, as letters */
typedef struct {
    char part[3][TD_RANK_MAX + 1];
} equation;

/* false: not two operands and a result of a few different letters */
static bool equation_of(const char *text, equation *out)
{
    *out = (equation){ 0 };
    int part = 0;
    for (const char *c = text; *c; c++) {
        char *now = out->part[part];
        const size_t n = strlen(now);
        if (*c == ' ')
            continue;
        if ((*c == ',' && part == 0) || (c[0] == '-' && c[1] == '>' && part == 1)) {
            c += *c == '-';
            part++;
        } else if (((*c | 32) < 'a' || (*c | 32) > 'z') || strchr(now, *c) || n == TD_RANK_MAX) {
            return false;
        } else {
            now[n] = *c;
        }
    }
    return part == 2;
}

/* appends the letters of `of` that are in `with`, or not, and in `also`, or not; their number */
static int add_letters(const char *of, const char *with, bool is_with, const char *also,
                       bool is_also, char *to)
{
    size_t n = strlen(to);
    const size_t first = n;
    for (; *of; of++)
        if ((strchr(with, *of) != NULL) == is_with && (strchr(also, *of) != NULL) == is_also)
            to[n++] = *of;
    to[n] = 0;
    return (int)(n - first);
}

/* x, with dimensions `names`, the last groups of which become one dimension each */
static td_value *joined(td_importer *im, td_value *x, int n_batch, int n_rows)
{
    const td_type t = td_value_type(x);
    int64_t dim[TD_RANK_MAX + 2], rows = 1, inner = 1;
    int rank = 0;
    for (int d = 0; d < t.rank; d++)
        if (d < n_batch)
            dim[rank++] = t.dim[d];
        else if (d < n_batch + n_rows)
            rows *= t.dim[d];
        else
            inner *= t.dim[d];
    dim[rank++] = rows;
    dim[rank++] = inner;
    if (rank == t.rank && n_rows == 1)
        return x;
    for (int d = 0; d < rank && n_batch == 0; d++) /* only the rows can contain the images */
        dim[d] = d == 0 ? -1 : dim[d];
    return n_batch == 0 ? td_reshape(im->b, x, rank, dim) : td_import_reshaped(im, x, rank, dim);
}

/* x, with dimensions `from`, with dimensions `to` */
static td_value *ordered(td_importer *im, td_value *x, const char *from, const char *to)
{
    int perm[TD_RANK_MAX];
    const int rank = (int)strlen(to);
    for (int d = 0; d < rank; d++)
        perm[d] = (int)(strchr(from, to[d]) - from);
    return strcmp(from, to) == 0 ? x : td_transpose(im->b, x, perm);
}

/* the dimensions of operands and result in the order of a product of matrices */
typedef struct {
    char first[TD_RANK_MAX + 1], second[TD_RANK_MAX + 1], both[2 * TD_RANK_MAX + 1];
    int n_batch, n_rows, n_columns;
} product;

/* false: a letter of one operand only is summed over, or the result has one that no operand has */
static bool product_of(const equation *e, product *p)
{
    const char *x = e->part[0], *w = e->part[1], *out = e->part[2];
    *p = (product){ .n_batch = 0 };
    p->n_batch = add_letters(x, w, true, out, true, p->first);
    memcpy(p->second, p->first, sizeof p->second);
    memcpy(p->both, p->first, sizeof p->first);
    p->n_rows = add_letters(x, w, false, out, true, p->first);
    p->n_columns = add_letters(w, x, false, out, true, p->second);
    add_letters(x, w, false, out, true, p->both);
    add_letters(w, x, false, out, true, p->both);
    const int inner = add_letters(x, w, true, out, false, p->first);
    add_letters(x, w, true, out, false, p->second);
    return inner > 0 && strlen(p->first) == strlen(x) && strlen(p->second) == strlen(w) &&
           strlen(p->both) == strlen(out) && p->n_batch + 2 <= TD_RANK_MAX;
}

/* products of matrices: b i k, b j k -> b i j, in any order and with any number of each */
td_status td_import_einsum(td_importer *im, td_value **y)
{
    td_value *in[2];
    equation e;
    product p;
    int64_t dim[TD_RANK_MAX];
    int rank = 0;
    const td_onnx_attr *a = td_onnx_attr_find(im->node, "equation");
    TD_TRY(td_import_values_of(im, 2, 2, in));
    if (!a || a->kind != TD_ONNX_TEXT)
        return td_import_wrong(im, "there is no equation");
    if (!equation_of(a->text, &e))
        return td_import_refuse(im, "an equation that is not two operands and a result");
    if (!product_of(&e, &p))
        return td_import_refuse(im, "an equation that is not a product of matrices");
    if (td_value_type(in[0]).rank != (int)strlen(e.part[0]) ||
        td_value_type(in[1]).rank != (int)strlen(e.part[1]))
        return td_import_wrong(im, "operands have not as many dimensions as the equation");
    in[0] = ordered(im, in[0], e.part[0], p.first);
    in[1] = ordered(im, in[1], e.part[1], p.second);
    if (!td_build_ok(im->b))
        return TD_OK;
    const td_type x = td_value_type(in[0]), w = td_value_type(in[1]);
    for (int d = 0; d < p.n_batch + p.n_rows; d++)
        dim[rank++] = x.dim[d];
    for (int d = 0; d < p.n_columns; d++)
        dim[rank++] = w.dim[p.n_batch + d];
    in[0] = joined(im, in[0], p.n_batch, p.n_rows);
    in[1] = joined(im, in[1], p.n_batch, p.n_columns);
    td_value *z = td_matmul(im->b, in[0], false, in[1], true, NULL);
    if (p.n_rows != 1 || p.n_columns != 1)
        z = td_import_reshaped(im, z, rank, dim);
    *y = ordered(im, z, p.both, e.part[2]);
    return TD_OK;
}

static td_value *scaled(td_importer *im, td_value *x, double by)
{
    const td_scale_attr a = { by };
    return by < 1 || by > 1 ? td_emit(im->b, &td_op_scale, &a, x) : x;
}

td_status td_import_gemm(td_importer *im, td_value **y)
{
    td_value *in[3] = { NULL, NULL, NULL };
    int64_t ta, tb;
    const double alpha = td_import_attr_float(im, "alpha", 1),
                 beta = td_import_attr_float(im, "beta", 1);
    TD_TRY(td_import_values_of(im, 2, 3, in));
    TD_TRY(td_import_attr_int(im, "transA", 0, &ta));
    TD_TRY(td_import_attr_int(im, "transB", 0, &tb));
    const td_type a = td_value_type(in[0]), b = td_value_type(in[1]);
    const bool is_vector = in[2] && td_value_type(in[2]).rank == 1 && b.rank == 2 &&
                           td_value_type(in[2]).dim[0] == b.dim[tb ? 0 : 1];
    if (a.rank != 2 || b.rank != 2)
        return td_import_wrong(im, "an operand is not a matrix");
    in[0] = scaled(im, in[0], alpha);
    if (in[2])
        in[2] = scaled(im, in[2], beta);
    td_value *bias = is_vector ? in[2] : NULL;
    if (!ta && tb)
        *y = td_linear(im->b, in[0], in[1], bias);
    else
        *y = td_matmul(im->b, in[0], ta != 0, in[1], tb != 0, bias);
    if (in[2] && !is_vector)
        *y = td_add(im->b, *y, in[2]);
    return TD_OK;
}

/* --- rows ------------------------------------------------------------------------------------- */

/* zeros like `gamma` */
static td_value *zeros_like(td_importer *im, td_value *gamma)
{
    const td_type t = td_value_type(gamma);
    const td_constant_attr a = { .value = 0, .type = td_build_type_text(im->b, &t) };
    return td_emit_n(im->b, &td_op_constant, &a, 0, NULL, NULL);
}

td_status td_import_layer_norm(td_importer *im, td_value **y)
{
    td_value *in[3];
    int64_t axis;
    const td_layer_norm_attr a = { td_import_attr_float(im, "epsilon", 1e-5) };
    TD_TRY(td_import_values_of(im, 2, 3, in));
    TD_TRY(td_import_attr_must(im, "stash_type", 1));
    TD_TRY(td_import_attr_int(im, "axis", -1, &axis));
    const td_type x = td_value_type(in[0]), gamma = td_value_type(in[1]);
    axis += axis < 0 ? x.rank : 0;
    if (axis < 0 || axis >= x.rank || gamma.rank != x.rank - axis)
        return td_import_refuse(im, "a scale that does not have the shape of a row");
    if (im->node->n_in < 3)
        in[2] = zeros_like(im, in[1]);
    *y = td_emit(im->b, &td_op_layer_norm, &a, in[0], in[1], in[2]);
    return TD_OK;
}

/* the dimensions with axis `axis` last, and back */
static td_value *exchanged(td_importer *im, td_value *x, int axis)
{
    int perm[TD_RANK_MAX];
    const int last = td_value_type(x).rank - 1;
    for (int d = 0; d <= last; d++)
        perm[d] = d == axis ? last : d == last ? axis : d;
    return axis == last ? x : td_transpose(im->b, x, perm);
}

/* before opset 13 all dimensions from the axis on were one */
td_status td_import_softmax_axis(const td_importer *im, int rank, int64_t *axis)
{
    const bool is_old = im->m->opset < 13;
    TD_TRY(td_import_attr_int(im, "axis", is_old ? 1 : -1, axis));
    *axis += *axis < 0 ? rank : 0;
    if (*axis < 0 || *axis >= rank)
        return td_import_wrong(im, "an axis is out of range");
    return is_old && *axis != rank - 1
               ? td_import_refuse(im, "before opset 13, an axis that is not the last one")
               : TD_OK;
}

td_status td_import_softmax(td_importer *im, td_value **y)
{
    td_value *x;
    int64_t axis;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    TD_TRY(td_import_softmax_axis(im, td_value_type(x).rank, &axis));
    *y = exchanged(im, td_softmax(im->b, exchanged(im, x, (int)axis)), (int)axis);
    return TD_OK;
}
