/*
 * native.c -- the native backend: its list of kernels, and the layouts that they prefer
 */
#include "backend/native/native.h"

#include "backend/native/amx/native_amx.h"
#include "backend/native/conv/native_depthwise.h"
#include "backend/native/conv/native_grouped.h"
#include "backend/native/int8/native_pointwise_int8.h"
#include "backend/native/int8/native_pooled.h"
#include "backend/native/int8/native_taps_int8.h"
#include "backend/native/inverted_residual/native_gated.h"
#include "backend/native/inverted_residual/native_inverted.h"
#include "backend/native/inverted_residual/native_stem.h"
#include "backend/native/linear/native_linear.h"
#include "backend/native/linear/native_panels.h"
#include "backend/native/linear/native_panels_bf16.h"
#include "backend/native/winograd/native_winograd.h"

#define POINTER(name) &td_native_##name,
static const td_kernel *const kernels[] = { TD_NATIVE_LIST(POINTER) };
#undef POINTER

static bool preferred_layout(const td_node *n, td_node_layouts *out)
{
    return td_native_winograd_preferred_layout(n, out) ||
           td_native_grouped_preferred_layout(n, out) || td_native_amx_preferred_layout(n, out) ||
           td_native_depthwise_tiles_preferred_layout(n, out) ||
           td_native_depthwise_preferred_layout(n, out) ||
           td_native_inverted_preferred_layout(n, out) ||
           td_native_inverted_bf16_preferred_layout(n, out) ||
           td_native_gated_preferred_layout(n, out) || td_native_stem_preferred_layout(n, out) ||
           td_native_pooled_preferred_layout(n, out) ||
           td_native_pointwise_int8_preferred_layout(n, out) ||
           td_native_taps_int8_preferred_layout(n, out) ||
           td_native_linear_preferred_layout(n, out) || td_native_panels_preferred_layout(n, out) ||
           td_native_panels_bf16_preferred_layout(n, out);
}

extern const td_backend td_backend_native;
const td_backend td_backend_native = {
    .name = "native",
    .description = "our own vector kernels for what memory bounds",
    .kernels = kernels,
    .n_kernels = (int)(sizeof kernels / sizeof kernels[0]),
    .preferred_layout = preferred_layout,
};
