/*
 * factors.c -- which ops multiply, and may do so with TF32
 */
#include "ops/ops.h"

uint32_t td_factors(const td_op *op)
{
    const bool multiplies = op == &td_op_conv2d || op == &td_op_conv2d_fused ||
                            op == &td_op_conv2d_grad_x || op == &td_op_conv2d_grad_w ||
                            op == &td_op_linear || op == &td_op_linear_grad_x ||
                            op == &td_op_linear_grad_w;
    return multiplies ? 3u : 0;
}

bool *td_tf32_of(const td_op *op, void *attr)
{
    const bool is_linear =
        op == &td_op_linear || op == &td_op_linear_grad_x || op == &td_op_linear_grad_w;
    return is_linear ? &((td_linear_attr *)attr)->tf32 : &((td_conv_attr *)attr)->tf32;
}

bool td_is_tf32(const td_node *n)
{
    return td_factors(n->op) && *td_tf32_of(n->op, n->attr);
}
