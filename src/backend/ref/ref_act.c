/*
 * ref_act.c -- activations, element by element: the formulas of ops/act_list.h in float64
 */
#include <math.h>

#include "backend/ref/ref.h"

typedef double real;

#define EXP   exp
#define EXPM1 expm1
#define LOG   log
#define SQRT  sqrt
#define POW   pow
#define TANH  tanh
#define ERF   erf
#define ABS   fabs

static td_act_attr attr_of(const td_node *n)
{
    return n->attr ? *(const td_act_attr *)n->attr : (td_act_attr){ 0 };
}

/* the padding of a layout must stay zero */
static td_status accepts_unpadded(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (td_type_padded_count(x) != td_type_count(x))
        return td_error(TD_ENOKERNEL, "layout %s has padding", x->layout);
    return td_ref_accepts_each(n);
}

#define ACCEPTS_BOTH      td_ref_accepts_each
#define ACCEPTS_GRAD      accepts_unpadded
#define ACCEPTS_NONE      accepts_unpadded
#define ACCEPTS_GRAD_BOTH td_ref_accepts_each
#define ACCEPTS_GRAD_GRAD td_ref_accepts_each
#define ACCEPTS_GRAD_NONE accepts_unpadded

/* clang-format off */
#define OPERAND_X const double x = t[1][i];
#define OPERAND_Y const double y = t[1][i];

/* not every formula reads a, b, or the operand of its gradient */
#define KERNELS(K, id, tf, tf_grad, fields, reads, zero, text, function, gradient)                 \
    static void id##_each(const td_node *n, int64_t count, double *const *t)                       \
    {                                                                                              \
        const td_act_attr attr = attr_of(n);                                                       \
        const double a = attr.a, b = attr.b;                                                       \
        (void)a, (void)b;                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const double x = t[0][i];                                                              \
            t[1][i] = function;                                                                    \
        }                                                                                          \
    }                                                                                              \
    static void id##_grad_each(const td_node *n, int64_t count, double *const *t)                  \
    {                                                                                              \
        const td_act_attr attr = attr_of(n);                                                       \
        const double a = attr.a, b = attr.b;                                                       \
        (void)a, (void)b;                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const double dy = t[0][i];                                                             \
            OPERAND_##reads                                                                        \
            t[2][i] = gradient;                                                                    \
        }                                                                                          \
    }                                                                                              \
    const td_ref_kernel td_ref_##id =                                                              \
        TD_REF_KERNEL(id, ACCEPTS_##zero, NULL, td_ref_run_each, .each = id##_each);               \
    const td_ref_kernel td_ref_##id##_grad =                                                       \
        TD_REF_KERNEL(id##_grad, ACCEPTS_GRAD_##zero, NULL, td_ref_run_each,                       \
                      .each = id##_grad_each);
/* clang-format on */

TD_ACT_LIST(KERNELS, )
