/*
 * ref.c -- the reference backend: its list of kernels
 */
#include "backend/ref/ref.h"

#define POINTER(name) &td_ref_##name.kernel,
static const td_kernel *const kernels[] = { TD_REF_LIST(POINTER) };
#undef POINTER

extern const td_backend td_backend_ref;
const td_backend td_backend_ref = {
    .name = "ref",
    .description = "plain C, float64 inside: the judge of all others",
    .kernels = kernels,
    .n_kernels = (int)(sizeof kernels / sizeof kernels[0]),
};
