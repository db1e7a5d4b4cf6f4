/*
 * weight_network.c -- see weight_network.h
 *
 * Names and shapes distinguish most networks: the number of blocks per stage, a third convolution,
 * the channels of the second one, squeeze-and-excitation.  They do not distinguish se-resnet50 from
 * seresnet50; the first match in the table is used.
 */
#include "checkpoint/weight_network.h"

#include <stdio.h>

#include "base/map.h"
#include "checkpoint/weights.h"
#include "model/arch.h"

static const td_tensor *block_tensor(const td_map *map, int stage, int block, const char *rest)
{
    char name[64];
    snprintf(name, sizeof name, "layer%d.%d.%s", stage + 1, block, rest);
    return td_map_get(map, name);
}

static bool fits(const td_map *map, const td_arch *a)
{
    const td_tensor *conv = block_tensor(map, 0, 0, "conv2.weight");
    if (a->detector || !conv || conv->rank != 4 || conv->dim[0] != a->widths[0] ||
        conv->dim[1] != a->widths[0] / a->groups)
        return false;
    for (int i = 0; i < 4; i++)
        if (!block_tensor(map, i, a->layers[i] - 1, "conv1.weight") ||
            block_tensor(map, i, a->layers[i], "conv1.weight"))
            return false;
    return (block_tensor(map, 0, 0, "conv3.weight") != NULL) == a->is_bottleneck &&
           (block_tensor(map, 0, 0, "se.fc1.weight") != NULL) == (a->se != TD_SE_NONE);
}

const char *td_weight_network(const td_tensors *t)
{
    const char *name = NULL, *found = NULL;
    td_map map = { 0 };
    td_status st = TD_OK;
    for (size_t i = 0; st == TD_OK && i < td_tensors_count(t); i++) {
        char own[256];
        const td_tensor *x = td_tensors_at(t, i);
        td_weight_name(x->name, own);
        st = td_map_set(&map, own, (void *)(uintptr_t)x);
    }
    for (int i = 0; st == TD_OK && !found && (name = td_arch_name_at(i)); i++)
        found = fits(&map, td_arch_known(name)) ? name : NULL;
    td_map_release(&map);
    return found;
}
