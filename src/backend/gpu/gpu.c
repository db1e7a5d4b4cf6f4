/*
 * gpu.c -- the backend of GPUs: its list of kernels
 */
#include "backend/gpu/gpu.h"

#define POINTER(name) &td_gpu_##name,
static const td_kernel *const kernels[] = { TD_GPU_LIST(POINTER) };
#undef POINTER

static void describe(td_text *out)
{
    const td_gpu_info *i = td_gpu_opened();
    if (i)
        td_text_add(out, "%s, compute capability %d.%d", i->name, i->major, i->minor);
    else
        td_text_add(out, "no GPU");
}

extern const td_backend td_backend_gpu;
const td_backend td_backend_gpu = { .name = "cuda",
                                    .description = "kernels of NVIDIA GPUs, from a plug-in",
                                    .kernels = kernels,
                                    .n_kernels = (int)(sizeof kernels / sizeof kernels[0]),
                                    .preferred_layout = td_gpu_preferred_layout,
                                    .describe = describe };
