/*
 * ops/act_list.h -- the activations, functions of one tensor element by element: one row each
 *
 *     ROW(K, name, "Op", "OpGrad", fields, reads, zero, "summary", function, gradient)
 *
 * A row makes two ops, `name` and `name_grad` (act.c), and their kernels: in float64 (ref_act.c),
 * in float32 for each instruction set (native_act.inc), and on a GPU (map.cu).  Each defines what
 * the formulas call: EXP, EXPM1, LOG, SQRT, POW, TANH, ERF and ABS of its own type `real`.
 *
 *   Op, OpGrad   TensorFlow's ops whose precision class the two have; of a function that TensorFlow
 *                composes, one of its parts
 *   fields       attributes, TD_ACT_FIELDS_<fields> in act.c; they are `a` and `b` in the formulas
 *   reads        what the gradient reads besides dy: X the operand, Y the result
 *   zero         which of the two ops map zeros to zeros, and so keep the padding of a layout zero:
 *                BOTH, GRAD or NONE
 *   function     of x, by a and b
 *   gradient     of dy and x, or of dy and y
 *
 * At a kink the gradient is PyTorch's.  Everything keeps NaN.  The formulas choose by ?: with plain
 * arithmetic on both sides, which compilers turn into vector code.
 *
 * Sources: Elfwing et al. 2018 (silu), Howard et al. 2019 (hardswish), Hendrycks and Gimpel 2016
 * (gelu), Clevert et al. 2016 (elu), Dugas et al. 2001 (softplus), Misra 2019 (mish).
 */
#ifndef TD_OPS_ACT_LIST_H
#define TD_OPS_ACT_LIST_H

/* parts of formulas; a number of type `real` avoids conversions in float32 */
#define TD_ACT_SIGMOID(x) (1 / (1 + EXP(-(x))))
#define TD_ACT_GELU_INNER(x)                                                                       \
    ((real)0.79788456080286535588 * ((x) + (real)0.044715 * (x) * (x) * (x)))
#define TD_ACT_GELU_SLOPE(x) ((real)0.79788456080286535588 * (1 + (real)0.134145 * (x) * (x)))
#define TD_ACT_NORMAL(x)     ((real)0.39894228040143267794 * EXP((real)-0.5 * (x) * (x)))
#define TD_ACT_CUMULATED(x)  ((real)0.5 * (1 + ERF((real)0.70710678118654752440 * (x))))

/* log(1 + u) for 0 <= u <= 1, exact for small u: the error of 1 + u is divided out */
#define TD_ACT_LOG1P(u) (1 + (u)-1 > 0 ? LOG(1 + (u)) * ((u) / (1 + (u)-1)) : (u))

/* tanh(softplus(x)) = e (e + 2) / (e (e + 2) + 2) with e = exp(x); 1 for large x */
#define TD_ACT_MISH_EXP(x)  EXP((x) > 20 ? 20 : (x))
#define TD_ACT_MISH_GATE(e) ((e) * ((e) + 2) / ((e) * ((e) + 2) + 2))

/* clang-format off */

/* relu has kernels of its own for processors (native_arith.c) */
#define TD_ACT_RELU(ROW, K)                                                                        \
    ROW(K, relu, "Relu", "ReluGrad", none, Y, BOTH, "max(x, 0)",                                   \
        x < 0 ? 0 : x,                                                                             \
        y > 0 ? dy : 0)

#define TD_ACT_OTHERS(ROW, K)                                                                      \
    ROW(K, relu6, "Relu6", "Relu6Grad", none, Y, BOTH, "min(max(x, 0), 6)",                        \
        x < 0 ? 0 : x > 6 ? 6 : x,                                                                 \
        ((y > 0) & (y < 6)) ? dy : 0)                                                              \
    ROW(K, leaky_relu, "LeakyRelu", "LeakyReluGrad", slope, X, BOTH, "x, or slope x below 0",      \
        x < 0 ? a * x : x,                                                                         \
        x > 0 ? dy : a * dy)                                                                       \
    ROW(K, elu, "Elu", "EluGrad", alpha, X, BOTH, "x, or alpha (exp(x) - 1) below 0",              \
        x < 0 ? a * EXPM1(x) : x,                                                                  \
        x > 0 ? dy : dy * a * EXP(x))                                                              \
    ROW(K, clip, "ClipByValue", "Select", bounds, X, GRAD, "min(max(x, min), max)",                \
        (x < a ? a : x) > b ? b : x < a ? a : x,                                                   \
        ((x < a) | (x > b)) ? 0 : dy)                                                              \
    ROW(K, sigmoid, "Sigmoid", "SigmoidGrad", none, Y, GRAD, "1 / (1 + exp(-x))",                  \
        TD_ACT_SIGMOID(x),                                                                         \
        dy * y * (1 - y))                                                                          \
    ROW(K, hardsigmoid, "Mul", "Mul", line, X, GRAD, "min(max(alpha x + beta, 0), 1)",             \
        a * x + b < 0 ? 0 : a * x + b > 1 ? 1 : a * x + b,                                         \
        ((a * x + b > 0) & (a * x + b < 1)) ? a * dy : 0)                                          \
    ROW(K, silu, "Sigmoid", "SigmoidGrad", none, X, BOTH, "x / (1 + exp(-x))",                     \
        x * TD_ACT_SIGMOID(x),                                                                     \
        dy * (TD_ACT_SIGMOID(x) * (1 + x * (1 - TD_ACT_SIGMOID(x)))))                              \
    ROW(K, hardswish, "Mul", "Mul", none, X, BOTH, "x min(max(x / 6 + 1/2, 0), 1)",                \
        x * (x < -3 ? 0 : x > 3 ? 6 : x + 3) / 6,                                                  \
        x <= -3 ? 0 : x < 3 ? dy * (x / 3 + (real)0.5) : dy)                                       \
    ROW(K, softplus, "Softplus", "SoftplusGrad", none, X, GRAD, "log(1 + exp(x))",                 \
        (x > 0 ? x : 0) + TD_ACT_LOG1P(EXP(-ABS(x))),                                              \
        dy * TD_ACT_SIGMOID(x))                                                                    \
    ROW(K, mish, "Tanh", "TanhGrad", none, X, BOTH, "x tanh(log(1 + exp(x)))",                     \
        x * TD_ACT_MISH_GATE(TD_ACT_MISH_EXP(x)),                                                  \
        dy * (TD_ACT_MISH_GATE(TD_ACT_MISH_EXP(x)) + x * TD_ACT_SIGMOID(x)                         \
            * (1 - TD_ACT_MISH_GATE(TD_ACT_MISH_EXP(x)) * TD_ACT_MISH_GATE(TD_ACT_MISH_EXP(x)))))  \
    ROW(K, gelu, "Erf", "Erf", none, X, BOTH, "x (1 + erf(x / sqrt 2)) / 2",                       \
        x * TD_ACT_CUMULATED(x),                                                                   \
        dy * (TD_ACT_CUMULATED(x) + x * TD_ACT_NORMAL(x)))                                         \
    ROW(K, gelu_tanh, "Tanh", "TanhGrad", none, X, BOTH,                                           \
        "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",                                       \
        (real)0.5 * x * (1 + TANH(TD_ACT_GELU_INNER(x))),                                          \
        (real)0.5 * dy * (1 + TANH(TD_ACT_GELU_INNER(x))                                           \
            + x * (1 - TANH(TD_ACT_GELU_INNER(x)) * TANH(TD_ACT_GELU_INNER(x)))                    \
                * TD_ACT_GELU_SLOPE(x)))                                                           \
    ROW(K, tanh, "Tanh", "TanhGrad", none, Y, BOTH, "tanh(x)",                                     \
        TANH(x),                                                                                   \
        dy * (1 - y * y))                                                                          \
    ROW(K, exp, "Exp", "Mul", none, Y, GRAD, "exp(x)",                                             \
        EXP(x),                                                                                    \
        dy * y)                                                                                    \
    ROW(K, log, "Log", "RealDiv", none, X, NONE, "natural logarithm of x",                         \
        LOG(x),                                                                                    \
        dy / x)                                                                                    \
    ROW(K, sqrt, "Sqrt", "Sqrt", none, Y, NONE, "square root of x",                                \
        SQRT(x),                                                                                   \
        (real)0.5 * dy / y)                                                                        \
    ROW(K, reciprocal, "Reciprocal", "Mul", none, Y, NONE, "1 / x",                                \
        1 / x,                                                                                     \
        -dy * y * y)                                                                               \
    ROW(K, pow, "Pow", "Pow", exponent, X, NONE, "x to a power",                                   \
        POW(x, a),                                                                                 \
        ((a < 0) | (a > 0)) ? dy * a * POW(x, a - 1) : 0)                                          \
    ROW(K, abs, "Abs", "Mul", none, X, BOTH, "|x|",                                                \
        ABS(x),                                                                                    \
        x > 0 ? dy : x < 0 ? -dy : 0)                                                              \
    ROW(K, erf, "Erf", "Erf", none, X, BOTH, "error function of x",                                \
        ERF(x),                                                                                    \
        dy * (real)1.12837916709551257390 * EXP(-x * x))

#define TD_ACT_LIST(ROW, K) TD_ACT_RELU(ROW, K) TD_ACT_OTHERS(ROW, K)
/* clang-format on */

/* gives both names of an activation to a macro K(name), as in TD_ACT_LIST(TD_ACT_BOTH, K) */
#define TD_ACT_BOTH(K, name, ...) K(name) K(name##_grad)

/* TD_ACT_<name>: the number of its row */
#define TD_ACT_NUMBER(K, name, ...) TD_ACT_##name,
typedef enum { TD_ACT_LIST(TD_ACT_NUMBER, ) TD_ACT_COUNT } td_act;
#undef TD_ACT_NUMBER

/*
 * Functions of two tensors x and z, with broadcasting (arith.c):
 *
 *     ROW(K, name, "Op", zero, "summary", formula)
 *
 * zero: BOTH if two zeros give zero, else NONE.  NaN in either operand gives NaN (larger: 1/2).
 */
/* clang-format off */
#define TD_BINARY_LIST(ROW, K)                                                                     \
    ROW(K, add, "AddV2", BOTH, "x + y with broadcasting", x + z)                                   \
    ROW(K, sub, "Sub", BOTH, "x - y with broadcasting", x - z)                                     \
    ROW(K, mul, "Mul", BOTH, "x y with broadcasting", x * z)                                       \
    ROW(K, div, "RealDiv", NONE, "x / y with broadcasting", x / z)                                 \
    ROW(K, max, "Maximum", BOTH, "the larger of x and y with broadcasting",                        \
        ((x > z) | (x != x)) ? x : z)                                                              \
    ROW(K, min, "Minimum", BOTH, "the smaller of x and y with broadcasting",                       \
        ((x < z) | (x != x)) ? x : z)                                                              \
    ROW(K, larger, "Greater", NONE, "1 where x > y, 1/2 where they are equal, otherwise 0",        \
        x > z ? 1 : x < z ? 0 : (real)0.5)
/* clang-format on */

#define TD_BINARY_NAME(K, name, ...) K(name)

/* TD_BINARY_<name>: the number of its row */
#define TD_BINARY_NUMBER(K, name, ...) TD_BINARY_##name,
typedef enum { TD_BINARY_LIST(TD_BINARY_NUMBER, ) TD_BINARY_COUNT } td_binary;
#undef TD_BINARY_NUMBER

/** Attributes of any activation, named by its fields. */
typedef struct {
    double a, b;
} td_act_attr;

#endif
