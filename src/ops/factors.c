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

bool td_is_tf32(const td_node *n)
{
    if (!td_factors(n->op))
        return false;
    if (n->op->attr_bytes == sizeof(td_linear_attr))
        return ((const td_linear_attr *)n->attr)->tf32;
    return ((const td_conv_attr *)n->attr)->tf32;
}
