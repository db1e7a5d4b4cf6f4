/*
 * act_operators.c -- ONNX operators that compute element by element
 *
 * Exporters write some activations as several operators, which become one op here: silu as x
 * Sigmoid(x), mish as x Tanh(Softplus(x)), hardswish as x HardSigmoid(x), gelu as
 * 0.5 x (1 + Erf(x / sqrt 2)).  The nodes that are read no more are removed with all dead nodes.
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include <math.h>
#include <string.h>

#include "onnx_import/importer.h"

#define LARGEST 3.4028234663852886e38 /* of f32 */

/* --- activations ------------------------------------------------------------------------------ */

/* clang-format off */
static const struct {
    const char *onnx;
    const td_op *op;
    const char *a, *b; /* attributes in ONNX; NULL: none */
    double otherwise_a, otherwise_b;
} rows[] = {
    { "Relu",        &td_op_relu,        NULL,    NULL,   0,       0 },
    { "LeakyRelu",   &td_op_leaky_relu,  "alpha", NULL,   0.01,    0 },
    { "Elu",         &td_op_elu,         "alpha", NULL,   1,       0 },
    { "Sigmoid",     &td_op_sigmoid,     NULL,    NULL,   0,       0 },
    { "HardSigmoid", &td_op_hardsigmoid, "alpha", "beta", 0.2,     0.5 },
    { "HardSwish",   &td_op_hardswish,   NULL,    NULL,   0,       0 },
    { "Tanh",        &td_op_tanh,        NULL,    NULL,   0,       0 },
    { "Exp",         &td_op_exp,         NULL,    NULL,   0,       0 },
    { "Log",         &td_op_log,         NULL,    NULL,   0,       0 },
    { "Sqrt",        &td_op_sqrt,        NULL,    NULL,   0,       0 },
    { "Reciprocal",  &td_op_reciprocal,  NULL,    NULL,   0,       0 },
    { "Softplus",    &td_op_softplus,    NULL,    NULL,   0,       0 },
    { "Mish",        &td_op_mish,        NULL,    NULL,   0,       0 },
    { "Abs",         &td_op_abs,         NULL,    NULL,   0,       0 },
    { "Erf",         &td_op_erf,         NULL,    NULL,   0,       0 },
};
/* clang-format on */

/* a float attribute as a number of few digits: 0.01 and not 0.0099999997765 */
static double short_number(double x)
{
    const double near = round(x * 1e6) / 1e6;
    return (float)near >= (float)x && (float)near <= (float)x ? near : x;
}

static bool is_near(double x, double y)
{
    return fabs(x - y) <= 1e-6 * fabs(y);
}

td_status td_import_act(td_importer *im, td_value **y)
{
    td_value *x;
    size_t i = 0;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    while (strcmp(im->node->op, rows[i].onnx) != 0)
        i++;
    td_act_attr attr = { 0 };
    if (rows[i].a)
        attr.a = short_number(td_import_attr_float(im, rows[i].a, rows[i].otherwise_a));
    if (rows[i].b)
        attr.b = short_number(td_import_attr_float(im, rows[i].b, rows[i].otherwise_b));
    if (!(fabs(attr.a) <= 1e6) || !(fabs(attr.b) <= 1e6))
        return td_import_wrong(im, "an attribute is not a number of at most 1e6");
    if (rows[i].op == &td_op_hardsigmoid && is_near(attr.a, 1.0 / 6))
        attr.a = 1.0 / 6;
    *y = td_emit(im->b, rows[i].op, rows[i].op->attr_bytes ? &attr : NULL, x);
    return TD_OK;
}

td_status td_import_negative(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    *y = td_emit(im->b, &td_op_scale, &(td_scale_attr){ .by = -1 }, x);
    return TD_OK;
}

td_status td_import_gelu(td_importer *im, td_value **y)
{
    td_value *x;
    const bool is_tanh = td_import_attr_is(im, "approximate", "tanh");
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    if (!is_tanh && td_onnx_attr_find(im->node, "approximate") &&
        !td_import_attr_is(im, "approximate", "none"))
        return td_import_refuse(im, "an approximation other than none and tanh");
    *y = td_emit(im->b, is_tanh ? &td_op_gelu_tanh : &td_op_gelu, NULL, x);
    return TD_OK;
}

/* --- with constants --------------------------------------------------------------------------- */

/* is operand i given? */
static bool has_operand(const td_importer *im, int i)
{
    return i < im->node->n_in && *im->node->in[i];
}

static td_status limit_at(const td_importer *im, int i, td_dtype d, double otherwise, double *out)
{
    *out = otherwise;
    if (!has_operand(im, i))
        return TD_OK;
    if (!td_import_is_number(im, i, out))
        TD_TRY(td_import_scalar_at(im, i, d, out));
    if (isnan(*out))
        return td_import_wrong(im, "a limit is not a number");
    *out = fmin(fmax(*out, -LARGEST), LARGEST);
    return TD_OK;
}

td_status td_import_clip(td_importer *im, td_value **y)
{
    td_value *x;
    td_act_attr a;
    if (im->node->n_in > 3)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_value_at(im, 0, &x));
    const td_dtype d = td_value_type(x).dtype;
    TD_TRY(limit_at(im, 1, d, -LARGEST, &a.a));
    TD_TRY(limit_at(im, 2, d, LARGEST, &a.b));
    const bool is_from_0 = !(a.a < 0) && !(a.a > 0);
    if (is_from_0 && a.b >= LARGEST)
        *y = td_relu(im->b, x);
    else if (is_from_0 && !(a.b < 6) && !(a.b > 6))
        *y = td_relu6(im->b, x);
    else
        *y = td_emit(im->b, &td_op_clip, &a, x);
    return TD_OK;
}

/* x^p by a tensor, of positive x: exp(p log(x)) */
static td_status power(td_importer *im, td_value *x, td_value **y)
{
    td_value *p;
    TD_TRY(td_import_value_at(im, 1, &p));
    x = td_emit(im->b, &td_op_log, NULL, x);
    *y = td_emit(im->b, &td_op_exp, NULL, td_mul(im->b, p, x));
    return TD_OK;
}

/* the exponent is one number */
td_status td_import_pow(td_importer *im, td_value **y)
{
    td_value *x;
    td_act_attr a = { 0 };
    if (im->node->n_in != 2)
        return td_import_wrong(im, "an unsupported number of operands");
    TD_TRY(td_import_value_at(im, 0, &x));
    const bool is_number = td_map_has(&im->tensors, im->node->in[1]);
    if (im->o->is_model && (!is_number || td_import_is_gate(im, 1)))
        return power(im, x, y);
    if (!td_import_is_number(im, 1, &a.a))
        TD_TRY(td_import_scalar_at(im, 1, td_value_type(x).dtype, &a.a));
    if (!(fabs(a.a) <= 1e6))
        return td_import_wrong(im, "the exponent is not a number of at most 1e6");
    *y = td_emit(im->b, &td_op_pow, &a, x);
    return TD_OK;
}

/* --- activations of several operators --------------------------------------------------------- */

static bool is_op(const td_value *v, const td_op *op)
{
    return v->producer->op == op && v->index == 0;
}

/* is `v` by * x?  Then *x */
static bool is_scaled(const td_value *v, double by, td_value **x)
{
    if (!is_op(v, &td_op_scale) || !is_near(((const td_scale_attr *)v->producer->attr)->by, by))
        return false;
    *x = v->producer->in[0];
    return true;
}

/* is `v` 1 + x? */
static bool is_one_more(const td_value *v, td_value **x)
{
    if (!is_op(v, &td_op_add))
        return false;
    for (int i = 0; i < 2; i++) {
        const td_value *one = v->producer->in[i];
        if (is_op(one, &td_op_constant) && td_type_count(&one->type) == 1 &&
            is_near(((const td_constant_attr *)one->producer->attr)->value, 1)) {
            *x = v->producer->in[1 - i];
            return true;
        }
    }
    return false;
}

/* x gate, where gate is a function of x */
static td_value *gated(td_importer *im, td_value *x, td_value *gate)
{
    const td_op *op = NULL;
    if (!td_build_ok(im->b))
        return NULL;
    if (is_op(gate, &td_op_sigmoid))
        op = &td_op_silu;
    else if (is_op(gate, &td_op_hardsigmoid)) {
        const td_act_attr *a = gate->producer->attr;
        op = is_near(a->a, 1.0 / 6) && is_near(a->b, 0.5) ? &td_op_hardswish : NULL;
    } else if (is_op(gate, &td_op_tanh) && is_op(gate->producer->in[0], &td_op_softplus)) {
        op = &td_op_mish;
        gate = gate->producer->in[0];
    }
    return op && gate->producer->in[0] == x ? td_emit(im->b, op, NULL, x) : NULL;
}

/* 0.5 v, where v = x (1 + erf(x / sqrt 2)) */
static td_value *half_of(td_importer *im, const td_value *v)
{
    if (!td_build_ok(im->b) || !is_op(v, &td_op_mul))
        return NULL;
    for (int i = 0; i < 2; i++) {
        td_value *erf, *inner;
        if (is_one_more(v->producer->in[i], &erf) && is_op(erf, &td_op_erf) &&
            is_scaled(erf->producer->in[0], sqrt(0.5), &inner) && inner == v->producer->in[1 - i])
            return td_emit(im->b, &td_op_gelu, NULL, inner);
    }
    return NULL;
}

/* --- sums and products ------------------------------------------------------------------------ */

static td_value *scaled(td_importer *im, td_value *x, double by)
{
    const td_scale_attr a = { by };
    return td_emit(im->b, &td_op_scale, &a, x);
}

/* x + by */
static td_value *shifted(td_importer *im, td_value *x, double by)
{
    const td_type one = td_type_1d(td_value_type(x).dtype, 1);
    const td_constant_attr a = { .value = by, .type = td_build_type_text(im->b, &one) };
    return td_add(im->b, x, td_emit_n(im->b, &td_op_constant, &a, 0, NULL, NULL));
}

static td_value *product(td_importer *im, td_value *x, td_value *y)
{
    td_value *z = gated(im, x, y);
    if (!z)
        z = gated(im, y, x);
    return z ? z : td_mul(im->b, x, y);
}

static td_value *multiple(td_importer *im, td_value *x, double by)
{
    td_value *y = is_near(by, 0.5) ? half_of(im, x) : NULL;
    return y ? y : scaled(im, x, by);
}

static td_value *inverse(td_importer *im, td_value *x)
{
    return td_emit(im->b, &td_op_reciprocal, NULL, x);
}

/* one operand is the number c; `x`: the other, which is the second if is_second */
static td_status with_number(td_importer *im, td_value *x, bool is_second, double c, td_value **y)
{
    const char *op = im->node->op;
    if (strcmp(op, "Sub") == 0)
        *y = is_second ? shifted(im, scaled(im, x, -1), c) : shifted(im, x, -c);
    else if (strcmp(op, "Mul") == 0)
        *y = multiple(im, x, c);
    else if (strcmp(op, "Add") == 0)
        *y = shifted(im, x, c);
    else if (is_second)
        *y = scaled(im, inverse(im, x), c);
    else if (c < 0 || c > 0)
        *y = scaled(im, x, 1 / c);
    else
        return td_import_wrong(im, "a divisor of 0");
    return TD_OK;
}

/* is operand i one number that no training changes? */
static bool is_constant(const td_importer *im, int i, double *out)
{
    return td_import_is_number(im, i, out) && !td_import_is_gate(im, i);
}

td_status td_import_binary(td_importer *im, td_value **y)
{
    td_value *in[2] = { NULL, NULL };
    double c;
    const char *op = im->node->op;
    const int known = is_constant(im, 1, &c) ? 1 : is_constant(im, 0, &c) ? 0 : -1;
    if (im->node->n_in != 2)
        return td_import_wrong(im, "an unsupported number of operands");
    for (int i = 0; i < 2; i++)
        if (i != known)
            TD_TRY(td_import_value_at(im, i, &in[i]));
    if (known >= 0)
        return with_number(im, in[1 - known], known == 0, c, y);
    if (strcmp(op, "Mul") == 0)
        *y = product(im, in[0], in[1]);
    else
        *y = td_emit(im->b,
                     strcmp(op, "Sub") == 0   ? &td_op_sub
                     : strcmp(op, "Div") == 0 ? &td_op_div
                                              : &td_op_add,
                     NULL, in[0], in[1]);
    return TD_OK;
}

/* Max, Min of any number of operands; with one number a clip */
td_status td_import_extreme(td_importer *im, td_value **y)
{
    const bool is_max = strcmp(im->node->op, "Max") == 0;
    *y = NULL;
    if (im->node->n_in < 1)
        return td_import_wrong(im, "an operand is missing");
    for (int i = 0; i < im->node->n_in; i++) {
        td_value *x;
        double c;
        if (*y && td_import_is_number(im, i, &c)) {
            const td_act_attr a = { is_max ? c : -LARGEST, is_max ? LARGEST : c };
            *y = td_emit(im->b, &td_op_clip, &a, *y);
            continue;
        }
        TD_TRY(td_import_value_at(im, i, &x));
        *y = *y ? td_emit(im->b, is_max ? &td_op_max : &td_op_min, NULL, *y, x) : x;
    }
    return TD_OK;
}

/* Sum, Mean of any number of operands */
td_status td_import_sum(td_importer *im, td_value **y)
{
    const int n = im->node->n_in;
    *y = NULL;
    if (n < 1)
        return td_import_wrong(im, "an operand is missing");
    for (int i = 0; i < n; i++) {
        td_value *x;
        TD_TRY(td_import_value_at(im, i, &x));
        *y = *y ? td_add(im->b, *y, x) : x;
    }
    if (strcmp(im->node->op, "Mean") == 0 && n > 1)
        *y = scaled(im, *y, 1.0 / n);
    return TD_OK;
}

/* --- activations as other ones ---------------------------------------------------------------- */

static td_value *elu(td_importer *im, td_value *x, double alpha)
{
    return td_emit(im->b, &td_op_elu, &(td_act_attr){ .a = alpha }, x);
}

/* gamma (x, or alpha (exp(x) - 1) below 0) */
td_status td_import_selu(td_importer *im, td_value **y)
{
    td_value *x;
    const double alpha = td_import_attr_float(im, "alpha", 1.67326319217681884765625);
    const double gamma = td_import_attr_float(im, "gamma", 1.05070102214813232421875);
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    if (!(fabs(alpha) <= 1e6) || !(fabs(gamma) <= 1e6))
        return td_import_wrong(im, "an attribute is not a number of at most 1e6");
    *y = scaled(im, elu(im, x, alpha), gamma);
    return TD_OK;
}

/* x, or alpha (exp(x / alpha) - 1) below 0 */
td_status td_import_celu(td_importer *im, td_value **y)
{
    td_value *x;
    const double alpha = td_import_attr_float(im, "alpha", 1);
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    if (!(alpha >= 1e-6 && alpha <= 1e6))
        return td_import_wrong(im, "alpha is not a number from 1e-6 to 1e6");
    *y = scaled(im, elu(im, scaled(im, x, 1 / alpha), 1), alpha);
    return TD_OK;
}

/* x / (1 + |x|) */
td_status td_import_softsign(td_importer *im, td_value **y)
{
    td_value *x;
    TD_TRY(td_import_values_of(im, 1, 1, &x));
    *y = td_mul(im->b, x, inverse(im, shifted(im, td_emit(im->b, &td_op_abs, NULL, x), 1)));
    return TD_OK;
}

/* relu(x) - slope relu(-x) */
td_status td_import_prelu(td_importer *im, td_value **y)
{
    td_value *in[2];
    TD_TRY(td_import_values_of(im, 2, 2, in));
    td_value *below = td_relu(im->b, scaled(im, in[0], -1));
    *y = td_emit(im->b, &td_op_sub, NULL, td_relu(im->b, in[0]), td_mul(im->b, in[1], below));
    return TD_OK;
}
