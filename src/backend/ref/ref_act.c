/*
 * ref_act.c -- activations, element by element
 */
#include <math.h>

#include "backend/ref/ref.h"

static void relu(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = a[0][i] < 0 ? 0 : a[0][i]; /* keeps NaN */
}

static void relu_grad(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[2][i] = a[1][i] > 0 ? a[0][i] : 0;
}

static void relu6(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = a[0][i] < 0 ? 0 : a[0][i] > 6 ? 6 : a[0][i];
}

static void relu6_grad(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[2][i] = a[1][i] > 0 && a[1][i] < 6 ? a[0][i] : 0;
}

static void sigmoid(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[1][i] = 1 / (1 + exp(-a[0][i]));
}

static void sigmoid_grad(const td_node *n, int64_t count, double *const *a)
{
    (void)n;
    for (int64_t i = 0; i < count; i++)
        a[2][i] = a[0][i] * a[1][i] * (1 - a[1][i]);
}

/* the padding of a layout must stay zero, and sigmoid(0) is not */
static td_status accepts_unpadded(const td_node *n)
{
    const td_type *x = td_in_type(n, 0);
    if (td_type_bytes(x) != td_type_count(x) * (int64_t)td_dtype_bytes(x->dtype))
        return td_error(TD_ENOKERNEL, "layout %s has padding", x->layout);
    return td_ref_accepts_each(n);
}

const td_ref_kernel td_ref_relu = TD_REF_EACH(relu, relu);
const td_ref_kernel td_ref_relu_grad = TD_REF_EACH(relu_grad, relu_grad);
const td_ref_kernel td_ref_relu6 = TD_REF_EACH(relu6, relu6);
const td_ref_kernel td_ref_relu6_grad = TD_REF_EACH(relu6_grad, relu6_grad);
const td_ref_kernel td_ref_sigmoid =
    TD_REF_KERNEL(sigmoid, accepts_unpadded, NULL, td_ref_run_each, .each = sigmoid);
const td_ref_kernel td_ref_sigmoid_grad = TD_REF_EACH(sigmoid_grad, sigmoid_grad);
