/*
 * dnnl.c -- the list of oneDNN's kernels
 */
#include "backend/dnnl/dnnl_common.h"

static const td_kernel *const kernels[] = {
    &td_dnnl_conv,
    &td_dnnl_conv_slices,
    &td_dnnl_conv_fused,
    &td_dnnl_conv_fused_slices,
    &td_dnnl_conv_grad_x,
    &td_dnnl_conv_grad_x_slices,
    &td_dnnl_conv_grad_w_parts,
    &td_dnnl_conv_grad_w,
    &td_dnnl_conv_int8,
    &td_dnnl_linear,
    &td_dnnl_linear_fused,
    &td_dnnl_linear_grad_x,
    &td_dnnl_linear_grad_w,
    &td_dnnl_matmul,
    &td_dnnl_attention,
    &td_dnnl_reorder,
    &td_dnnl_assign,
    &td_dnnl_max_pool,
    &td_dnnl_max_pool_grad,
    &td_dnnl_avg_pool,
    &td_dnnl_avg_pool_grad,
};

static void describe(td_text *out)
{
    const dnnl_version_t *v = dnnl_version();
    td_text_add(out, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

static bool preferred_layout(const td_node *n, td_node_layouts *out)
{
    return td_dnnl_conv_int8_preferred_layout(n, out) || td_dnnl_conv_preferred_layout(n, out) ||
           td_dnnl_linear_preferred_layout(n, out);
}

extern const td_backend td_backend_dnnl;

const td_backend td_backend_dnnl = {
    .name = "dnnl",
    .description = "oneDNN: convolutions, matrix products, pooling, reorders",
    .kernels = kernels,
    .n_kernels = (int)(sizeof kernels / sizeof kernels[0]),
    .preferred_layout = preferred_layout,
    .candidate_layout = td_dnnl_conv_candidate_layout,
    .describe = describe,
};
