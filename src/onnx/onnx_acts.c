/*
 * onnx_acts.c -- converts activations to ONNX
 *
 *     silu        Sigmoid, Mul                  gelu        Mul, Erf, Add, Mul, Mul
 *     hardswish   HardSigmoid, Mul              gelu_tanh   the polynomial by Mul, Add; then Tanh,
 *                                                           Add, Mul, Mul
 *     mish        Softplus, Tanh, Mul
 *     clip        Clip with two constants       pow         Pow with a constant
 *
 * The others have an operator.  HardSwish and Gelu are operators of opsets 14 and 20 only.
 */
#include "onnx/onnx_write.h"

#include "ops/ops.h"

typedef struct {
    td_onnx_writer *e;
    const td_node *n;
    td_onnx_value type; /* of the result, and of all intermediate ones */
    const td_act_attr *attr;
} act;

static const char *one(act *p, const char *op, const char *x)
{
    return TD_WRITER_ADD(p->e, op, p->n, &p->type, x);
}

static const char *two(act *p, const char *op, const char *x, const char *y)
{
    return TD_WRITER_ADD(p->e, op, p->n, &p->type, x, y);
}

static const char *number(act *p, const char *what, double x)
{
    return td_writer_scalar(p->e, p->n, what, td_in_type(p->n, 0)->dtype, x);
}

static const char *put_silu(act *p, const char *x)
{
    return two(p, "Mul", x, one(p, "Sigmoid", x));
}

static const char *hard_sigmoid(act *p, const char *x, double alpha, double beta)
{
    const char *y = one(p, "HardSigmoid", x);
    td_onnx_attr_float(p->e->m, "alpha", (float)alpha);
    td_onnx_attr_float(p->e->m, "beta", (float)beta);
    return y;
}

static const char *put_hardsigmoid(act *p, const char *x)
{
    return hard_sigmoid(p, x, p->attr->a, p->attr->b);
}

static const char *put_hardswish(act *p, const char *x)
{
    return two(p, "Mul", x, hard_sigmoid(p, x, 1.0 / 6, 0.5));
}

/* Mish is an operator of opset 18 only */
static const char *put_mish(act *p, const char *x)
{
    return two(p, "Mul", x, one(p, "Tanh", one(p, "Softplus", x)));
}

/* x (1 + y) / 2 */
static const char *gated(act *p, const char *x, const char *y)
{
    const char *gate = two(p, "Add", y, number(p, "/one", 1));
    return two(p, "Mul", two(p, "Mul", x, gate), number(p, "/half", 0.5));
}

static const char *put_gelu(act *p, const char *x)
{
    const char *inner = two(p, "Mul", x, number(p, "/inner", 0.70710678118654752440));
    return gated(p, x, one(p, "Erf", inner));
}

/* sqrt(2 / pi) (x + 0.044715 x^3) */
static const char *put_gelu_tanh(act *p, const char *x)
{
    const char *cube = two(p, "Mul", two(p, "Mul", x, x), x);
    const char *more = two(p, "Mul", cube, number(p, "/cube", 0.044715));
    const char *sum = two(p, "Add", x, more);
    const char *inner = two(p, "Mul", sum, number(p, "/inner", 0.79788456080286535588));
    return gated(p, x, one(p, "Tanh", inner));
}

static const char *put_clip(act *p, const char *x)
{
    return TD_WRITER_ADD(p->e, "Clip", p->n, &p->type, x, number(p, "/min", p->attr->a),
                         number(p, "/max", p->attr->b));
}

static const char *put_pow(act *p, const char *x)
{
    return two(p, "Pow", x, number(p, "/exponent", p->attr->a));
}

/* LeakyRelu, Elu: the attribute alpha */
static const char *put_alpha(act *p, const char *op, const char *x)
{
    const char *y = one(p, op, x);
    td_onnx_attr_float(p->e->m, "alpha", (float)p->attr->a);
    return y;
}

static const char *put_leaky_relu(act *p, const char *x)
{
    return put_alpha(p, "LeakyRelu", x);
}

static const char *put_elu(act *p, const char *x)
{
    return put_alpha(p, "Elu", x);
}

/* clang-format off */
static const struct {
    const td_op *op;
    const char *onnx; /* an operator of the same operand and no attributes, or NULL */
    const char *(*put)(act *p, const char *x);
} rows[] = {
    { &td_op_relu,        "Relu",       NULL },
    { &td_op_leaky_relu,  NULL,         put_leaky_relu },
    { &td_op_elu,         NULL,         put_elu },
    { &td_op_clip,        NULL,         put_clip },
    { &td_op_sigmoid,     "Sigmoid",    NULL },
    { &td_op_hardsigmoid, NULL,         put_hardsigmoid },
    { &td_op_silu,        NULL,         put_silu },
    { &td_op_hardswish,   NULL,         put_hardswish },
    { &td_op_softplus,    "Softplus",   NULL },
    { &td_op_mish,        NULL,         put_mish },
    { &td_op_gelu,        NULL,         put_gelu },
    { &td_op_gelu_tanh,   NULL,         put_gelu_tanh },
    { &td_op_tanh,        "Tanh",       NULL },
    { &td_op_exp,         "Exp",        NULL },
    { &td_op_log,         "Log",        NULL },
    { &td_op_sqrt,        "Sqrt",       NULL },
    { &td_op_reciprocal,  "Reciprocal", NULL },
    { &td_op_pow,         NULL,         put_pow },
    { &td_op_abs,         "Abs",        NULL },
    { &td_op_erf,         "Erf",        NULL },
};
/* clang-format on */

static int row_of(const td_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op)
            return (int)i;
    return -1;
}

bool td_writer_is_act(const td_op *op)
{
    return row_of(op) >= 0;
}

static const char *put(const td_op *op, act *p, const char *x)
{
    const int i = row_of(op);
    if (i < 0)
        return NULL;
    return rows[i].put ? rows[i].put(p, x) : one(p, rows[i].onnx, x);
}

const char *td_writer_act(td_onnx_writer *e, const td_node *n, const td_op *op, const char *x)
{
    act p = { .e = e, .n = n, .type = td_writer_shape(e, n->out[0]), .attr = n->attr };
    return put(op, &p, x);
}

const char *td_writer_act_of(td_onnx_writer *e, const td_node *n, const td_op *op,
                             const td_onnx_value *type, const char *x)
{
    td_act_attr own = { 0 };
    act p = { .e = e, .n = n, .type = *type, .attr = &own };
    if (op->fields)
        td_fields_default(op->fields, &own);
    return put(op, &p, x);
}
