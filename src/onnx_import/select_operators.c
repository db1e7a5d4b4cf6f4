/*
 * select_operators.c -- ONNX operators that compare and choose
 *
 * A condition is known when the file is read, as the mask of an attention, or it is a tensor of the
 * graph that is 1 or 0.  Where(c, x, z) is c x + (1 - c) z, which has gradients; what it does not
 * choose must be finite.
 *
 * Source: ONNX operator documentation, opsets 11 to 21.
 */
#include <math.h>
#include <string.h>

#include "onnx_import/importer.h"
#include "onnx_import/known_tensor.h"

#define BOOL     9    /* TensorProto.DataType */
#define MOST     1e30 /* a number that a computed condition chooses */
#define RANK_MAX TD_KNOWN_RANK_MAX

static td_value *scaled(td_importer *im, td_value *x, double by)
{
    return td_emit(im->b, &td_op_scale, &(td_scale_attr){ .by = by }, x);
}

static td_value *number(td_importer *im, td_dtype d, double value)
{
    const td_type one = td_type_1d(d, 1);
    const td_constant_attr a = { .value = value, .type = td_build_type_text(im->b, &one) };
    return td_emit_n(im->b, &td_op_constant, &a, 0, NULL, NULL);
}

/* by x + more */
static td_value *line(td_importer *im, td_value *x, double by, double more)
{
    return td_add(im->b, scaled(im, x, by), number(im, td_value_type(x).dtype, more));
}

static td_value *opposite(td_importer *im, td_value *mask)
{
    return line(im, mask, -1, 1);
}

/* --- comparisons: 1 or 0 ---------------------------------------------------------------------- */

/* operand i; of a file's single numbers none is a parameter here */
static td_status compared(td_importer *im, int i, td_value **out)
{
    double c;
    if (td_import_is_number(im, i, &c))
        *out = number(im, TD_DT_F32, c);
    else
        TD_TRY(td_import_value_at(im, i, out));
    return td_dtype_is_float(td_value_type(*out).dtype)
               ? TD_OK
               : td_import_refuse(im, "integers that the network computes");
}

/* 1 where x > y, -1 where x < y, otherwise 0 */
static td_value *sign_of(td_importer *im, td_value *x, td_value *y)
{
    return line(im, td_emit(im->b, &td_op_larger, NULL, x, y), 2, -1);
}

static td_value *is_equal(td_importer *im, td_value *x, td_value *y)
{
    return opposite(im, td_emit(im->b, &td_op_abs, NULL, sign_of(im, x, y)));
}

td_status td_import_compare(td_importer *im, td_value **y)
{
    td_value *in[2];
    const char *op = im->node->op;
    if (im->node->n_in != 2)
        return td_import_wrong(im, "an unsupported number of operands");
    for (int i = 0; i < 2; i++)
        TD_TRY(compared(im, i, &in[i]));
    if (strcmp(op, "Equal") == 0)
        *y = is_equal(im, in[0], in[1]);
    else if (strcmp(op, "Greater") == 0)
        *y = td_relu(im->b, sign_of(im, in[0], in[1]));
    else if (strcmp(op, "Less") == 0)
        *y = td_relu(im->b, sign_of(im, in[1], in[0]));
    else if (strcmp(op, "GreaterOrEqual") == 0)
        *y = opposite(im, td_relu(im->b, sign_of(im, in[1], in[0])));
    else
        *y = opposite(im, td_relu(im->b, sign_of(im, in[0], in[1])));
    return TD_OK;
}

td_status td_import_sign(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    *y = sign_of(im, x, number(im, td_value_type(x).dtype, 0));
    return TD_OK;
}

/* a condition that is known, as the constant 1 or 0 of this type; dims [RANK_MAX] */
static td_status known_mask(td_importer *im, const td_known *c, bool is_opposite, td_value **out)
{
    td_tensor t;
    void *data;
    TD_TRY(td_known_new(&im->folder, im->node, TD_DT_F32, c->rank, c->dim, &t, &data));
    if (!data)
        return td_import_refuse(im, "a condition without elements, or of too many");
    for (int64_t i = 0; i < c->count; i++)
        ((float *)data)[i] = (td_known_int(c, i) != 0) != is_opposite;
    return td_import_constant(im, &t, out);
}

static bool is_condition(const td_importer *im, int i, td_known *c)
{
    return td_known_get(&im->folder, im->node, i, c) && c->dtype != TD_DT_F32;
}

/* operand i, 1 or 0 */
static td_status condition_at(td_importer *im, int i, td_value **out)
{
    td_known c;
    return is_condition(im, i, &c) ? known_mask(im, &c, false, out)
                                   : td_import_value_at(im, i, out);
}

/* And, Or, Xor, Not */
td_status td_import_logic(td_importer *im, td_value **y)
{
    td_value *in[2] = { NULL, NULL };
    const char *op = im->node->op;
    const int n = strcmp(op, "Not") == 0 ? 1 : 2;
    if (im->node->n_in != n)
        return td_import_wrong(im, "an unsupported number of operands");
    for (int i = 0; i < n; i++)
        TD_TRY(condition_at(im, i, &in[i]));
    if (n == 1)
        *y = opposite(im, in[0]);
    else if (strcmp(op, "And") == 0)
        *y = td_mul(im->b, in[0], in[1]);
    else if (strcmp(op, "Or") == 0)
        *y = td_emit(im->b, &td_op_max, NULL, in[0], in[1]);
    else
        *y = td_emit(im->b, &td_op_abs, NULL, td_emit(im->b, &td_op_sub, NULL, in[0], in[1]));
    return TD_OK;
}

/* IsNaN: no value that a network computes is expected to be NaN, so the result is zeros */
td_status td_import_is_nan(td_importer *im, td_value **y)
{
    td_value *x;
    td_tensor t;
    void *data;
    int64_t dim[TD_RANK_MAX];
    *y = NULL;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    const int rank = td_value_type(x).rank;
    for (int d = 0; d < rank; d++)
        dim[d] = 1;
    TD_TRY(td_known_new(&im->folder, im->node, TD_DT_I64, rank, dim, &t, &data));
    if (!data)
        return td_import_refuse(im, "too many numbers that are computed");
    *(int64_t *)data = 0;
    return td_onnx_folder_add(&im->folder, im->node, &t);
}

/* --- conversions ------------------------------------------------------------------------------ */

/* to booleans: 1 where x is not 0 */
td_status td_import_cast_to_bool(td_importer *im, td_value *x, td_value **y)
{
    *y = opposite(im, is_equal(im, x, number(im, td_value_type(x).dtype, 0)));
    return TD_OK;
}

/* to the type of operand 1 */
td_status td_import_cast_like(td_importer *im, td_value **y)
{
    td_value *x, *like;
    if (im->node->n_in != 2)
        return td_import_wrong(im, "an unsupported number of operands");
    const td_tensor *t = td_map_get(&im->tensors, im->node->in[1]);
    TD_TRY(td_import_value_at(im, 0, &x));
    if (!t)
        TD_TRY(td_import_value_at(im, 1, &like));
    const td_dtype to = t ? t->dtype : td_value_type(like).dtype;
    if (!td_dtype_is_float(to))
        return td_import_refuse(im, "a type other than a float's");
    *y = td_cast(im->b, x, im->o->is_model && t && td_dtype_is_half(to) ? TD_DT_F32 : to);
    return TD_OK;
}

/* --- choices ---------------------------------------------------------------------------------- */

/* operands 1 and 2 of a Where: known, or values of the graph */
typedef struct {
    td_known known;
    td_value *x; /* NULL: it is known */
} choice;

static td_status get_choice(td_importer *im, int i, choice *out)
{
    *out = (choice){ .x = NULL };
    if (td_known_beside(&im->folder, im->node, i, &out->known))
        return out->known.dtype == TD_DT_F32 ? TD_OK : td_import_refuse(im, "integers");
    return td_import_value_at(im, i, &out->x);
}

/* the numbers of a known operand where the condition chooses it, elsewhere 0; NULL: all are 0 */
static td_status chosen_numbers(td_importer *im, const td_known *c, bool is_opposite,
                                const td_known *from, td_value **out)
{
    td_tensor t;
    void *data;
    int rank;
    int64_t dim[RANK_MAX];
    bool is_zero = true;
    *out = NULL;
    if (!td_known_common(c, from, &rank, dim))
        return td_import_wrong(im, "the operands' shapes do not fit");
    TD_TRY(td_known_new(&im->folder, im->node, TD_DT_F32, rank, dim, &t, &data));
    if (!data)
        return td_import_refuse(im, "a condition without elements, or of too many");
    for (int64_t i = 0; i < (int64_t)(t.n_bytes / sizeof(float)); i++) {
        const bool is = td_known_int(c, td_known_repeated(c, rank, dim, i)) != 0;
        const float x = td_known_float(from, td_known_repeated(from, rank, dim, i));
        ((float *)data)[i] = is != is_opposite ? x : 0;
        is_zero = is_zero && (is == is_opposite || !(x < 0 || x > 0));
    }
    return is_zero ? TD_OK : td_import_constant(im, &t, out);
}

/* does a known condition choose the same for all elements? */
static bool is_uniform(const td_known *c)
{
    for (int64_t i = 1; i < c->count; i++)
        if ((td_known_int(c, i) != 0) != (td_known_int(c, 0) != 0))
            return false;
    return c->count > 0;
}

/* are x's dimensions those of the result? */
static bool is_whole(const td_value *x, const td_known *c, const choice *other)
{
    td_known own = { 0 }, all[2] = { *c, other->known };
    const td_type t = td_value_type(x), o = other->x ? td_value_type(other->x) : (td_type){ 0 };
    own.rank = t.rank;
    memcpy(own.dim, t.dim, (size_t)t.rank * sizeof *t.dim);
    if (other->x) {
        all[1] = (td_known){ .rank = o.rank };
        memcpy(all[1].dim, o.dim, (size_t)o.rank * sizeof *o.dim);
    }
    for (int i = 0; i < 2; i++) {
        int rank;
        int64_t dim[RANK_MAX];
        if (!td_known_common(&own, &all[i], &rank, dim) || rank != own.rank ||
            memcmp(dim, own.dim, (size_t)rank * sizeof *dim) != 0)
            return false;
    }
    return true;
}

static td_status where_known(td_importer *im, const td_known *c, const choice *in, td_value **y)
{
    if (!td_onnx_folder_read(&im->folder, c->count))
        return td_import_refuse(im, "computed operands of too many elements in all");
    const bool first = is_uniform(c) && td_known_int(c, 0) != 0;
    if (is_uniform(c) && in[!first].x && is_whole(in[!first].x, c, &in[first])) {
        *y = in[!first].x;
        return TD_OK;
    }
    *y = NULL;
    for (int i = 0; i < 2; i++) {
        td_value *part = NULL, *mask;
        if (in[i].x) {
            TD_TRY(known_mask(im, c, i == 1, &mask));
            part = td_mul(im->b, in[i].x, mask);
        } else {
            TD_TRY(chosen_numbers(im, c, i == 1, &in[i].known, &part));
        }
        *y = *y && part ? td_add(im->b, *y, part) : part ? part : *y;
    }
    return *y ? TD_OK : td_import_refuse(im, "numbers only");
}

/* mask x, of a condition that the graph computes */
static td_status masked(td_importer *im, td_value *mask, const choice *in, td_value **y)
{
    td_value *x = in->x;
    if (!x) {
        const td_known *k = &in->known;
        td_tensor t = { .dtype = TD_DT_F32,
                        .rank = k->rank,
                        .data = k->bytes,
                        .n_bytes = (size_t)k->count * k->each };
        memcpy(t.dim, k->dim, (size_t)k->rank * sizeof *t.dim);
        for (int64_t i = 0; i < k->count; i++)
            if (!(fabs((double)td_known_float(k, i)) <= MOST))
                return td_import_refuse(im, "a number above 1e30 by a computed condition");
        TD_TRY(td_import_constant(im, &t, &x));
    }
    *y = td_mul(im->b, mask, x);
    return TD_OK;
}

td_status td_import_where(td_importer *im, td_value **y)
{
    td_known c;
    td_value *mask, *part[2];
    choice in[2];
    if (im->node->n_in != 3)
        return td_import_wrong(im, "an unsupported number of operands");
    for (int i = 0; i < 2; i++)
        TD_TRY(get_choice(im, i + 1, &in[i]));
    if (is_condition(im, 0, &c))
        return where_known(im, &c, in, y);
    TD_TRY(td_import_value_at(im, 0, &mask));
    TD_TRY(masked(im, mask, &in[0], &part[0]));
    TD_TRY(masked(im, opposite(im, mask), &in[1], &part[1]));
    *y = td_add(im->b, part[0], part[1]);
    return TD_OK;
}

/* Trilu of matrices that are computed */
td_status td_import_triangle(td_importer *im, td_value **y)
{
    td_value *x, *mask;
    int64_t k = 0, upper;
    td_tensor t;
    void *data;
    TD_TRY(td_import_value_at(im, 0, &x));
    TD_TRY(td_import_attr_int(im, "upper", 1, &upper));
    const td_type type = td_value_type(x);
    if (type.rank < 2)
        return td_import_wrong(im, "the operand is not a matrix");
    if (im->node->n_in > 1 && *im->node->in[1]) {
        const td_tensor *diagonal;
        TD_TRY(td_import_tensor_at(im, 1, TD_DT_I64, 0, &diagonal));
        memcpy(&k, diagonal->data, sizeof k);
    }
    const int64_t *dim = &type.dim[type.rank - 2];
    TD_TRY(td_known_new(&im->folder, im->node, TD_DT_F32, 2, dim, &t, &data));
    if (!data || k < -TD_ONNX_KNOWN_MAX || k > TD_ONNX_KNOWN_MAX)
        return td_import_refuse(im, "matrices that are too large");
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        const int64_t right = i % dim[1] - i / dim[1];
        ((float *)data)[i] = upper ? right >= k : right <= k;
    }
    TD_TRY(td_import_constant(im, &t, &mask));
    *y = td_mul(im->b, x, mask);
    return TD_OK;
}
