/*
 * gpu_multi.c -- many nodes in one launch: a table of their structs in the memory of the GPU
 *
 * A kernel that runs like this fills the same struct for a launch of its own, so both have the same
 * bits.
 */
#include "backend/gpu/gpu.h"

td_status td_gpu_multi_prepare(td_gpu_multi_kind kind, size_t size, td_gpu_fill *fill,
                               const td_multi_node *nodes, int n, void **state)
{
    char *each = td_alloc((size_t)n, size);
    size_t bytes = 0;
    if (!each)
        return TD_ENOMEM;
    for (int i = 0; i < n; i++)
        fill(nodes[i].prepared, nodes[i].args, each + (size_t)i * size);
    td_status st = td_gpu_status(td_gpu()->multi_new(
        &(td_gpu_multi_new){ .kind = kind, .n = n, .each = each, .made = state, .bytes = &bytes }));
    td_gpu_memory_count((int64_t)bytes);
    td_free(each);
    return st;
}

td_status td_gpu_multi_start(void *state)
{
    return td_gpu_status(td_gpu()->multi_run(&(td_gpu_multi_run){ state }));
}

void td_gpu_multi_release(void *state)
{
    size_t bytes = 0;
    (void)td_gpu()->multi_free(&(td_gpu_multi_free){ state, &bytes });
    td_gpu_memory_count(-(int64_t)bytes);
}
