/*
 * native.c -- the backend: the list of its kernels, and the layouts that they prefer
 */
#include "backend/native/native.h"

#define POINTER(name) &td_own_##name,
static const td_kernel *const kernels[] = { TD_OWN_LIST(POINTER) };
#undef POINTER

static bool wish(const td_node *n, td_layout_wish *out)
{
    return td_own_winograd_wish(n, out) || td_own_grouped_wish(n, out);
}

extern const td_backend td_backend_own;
const td_backend td_backend_own = {
    .name = "own",
    .description = "our own vector kernels for what memory bounds",
    .kernels = kernels,
    .n_kernels = (int)(sizeof kernels / sizeof kernels[0]),
    .wish = wish,
};
