/*
 * kernel_choice.c -- selects the kernel of a node
 */
#include "runtime/kernel_choice.h"

#include "runtime/all_reduce.h"
#include "runtime/autotune.h"
#include "runtime/backends.h"
#include "runtime/emulate_half.h"

static bool has_half(const td_node *n)
{
    for (int i = 0; i < n->n_in + n->n_out; i++) {
        const td_dtype d = (i < n->n_in ? n->in[i] : n->out[i - n->n_in])->type.dtype;
        if (td_dtype_is_half(d))
            return true;
    }
    return false;
}

const td_kernel *td_device_select(const td_device *dev, const td_node *n, td_text *why)
{
    const td_kernel *k = dev->adds_over_ranks ? NULL : td_collective_select(n);
    for (int b = 0; !k && b < dev->n_backends; b++) {
        if (dev->emulates && td_backend_is_ref(dev->backends[b]) && has_half(n) &&
            td_kernel_accepts(&td_emulate_half, n, why))
            return &td_emulate_half;
        k = td_backend_select(dev->backends[b], n, why);
    }
    return k;
}

td_status td_device_choose(const td_device *dev, const td_node *n, const td_kernel **out,
                           td_text *why)
{
    const td_kernel *measured = NULL;
    *out = td_device_select(dev, n, why);
    if (*out && dev->tuner)
        TD_TRY(td_tune_choose(dev->tuner, n, &measured, why));
    if (measured)
        *out = measured;
    return TD_OK;
}
