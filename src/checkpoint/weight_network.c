/*
 * weight_network.c -- see weight_network.h
 *
 * Names and shapes distinguish most networks.  A residual one needs a few of them: the number of
 * blocks per stage, a third convolution, the channels of the second one, squeeze-and-excitation.
 * They do not distinguish se-resnet50 from seresnet50; the first match in the table is used.  For
 * the other families the parameters of the network's graph are compared, all but the last layer's.
 */
#include "checkpoint/weight_network.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/text.h"
#include "checkpoint/weights.h"
#include "ir/graph.h"
#include "model/resnet.h"

static const td_tensor *block_tensor(const td_map *map, int stage, int block, const char *rest)
{
    char name[64];
    snprintf(name, sizeof name, "layer%d.%d.%s", stage + 1, block, rest);
    return td_map_get(map, name);
}

static bool fits_resnet(const td_map *map, const td_resnet *a)
{
    const td_tensor *conv = block_tensor(map, 0, 0, "conv2.weight");
    if (!conv || conv->rank != 4 || conv->dim[0] != a->widths[0] ||
        conv->dim[1] != a->widths[0] / a->groups)
        return false;
    for (int i = 0; i < 4; i++)
        if (!block_tensor(map, i, a->layers[i] - 1, "conv1.weight") ||
            block_tensor(map, i, a->layers[i], "conv1.weight"))
            return false;
    return (block_tensor(map, 0, 0, "conv3.weight") != NULL) == a->is_bottleneck &&
           (td_map_get(map, "conv1.0.weight") != NULL) == a->is_deep &&
           (block_tensor(map, 0, 0, "se.fc1.weight") != NULL) == (a->se != TD_SE_NONE);
}

static bool has_shape(const td_tensor *t, const td_type *type)
{
    bool fits = t->rank == type->rank;
    for (int i = 0; fits && i < type->rank; i++)
        fits = t->dim[i] == type->dim[i];
    return fits;
}

/* does the file have all parameters of this network, but for the classes, and no other tensors? */
static bool fits_graph(const td_map *map, const td_arch *a)
{
    td_graph *g;
    td_model_opts o;
    size_t found = 0, n = 0;
    const size_t head = strlen(a->family->head);
    td_model_defaults(&o);
    o.arch = a->name;
    const td_tensor *at = a->family->positions ? td_map_get(map, a->family->positions) : NULL;
    if (at && at->rank == 3)
        o.image_size = a->family->side_of(a, at->dim[1]);
    if (td_model_graph(&o, 1, false, &g) != TD_OK)
        return false;
    for (int i = 0; i < td_graph_param_count(g); i++) {
        const char *name = td_graph_param_name(g, i);
        const td_tensor *t = td_map_get(map, name);
        const td_type type = td_graph_param_type(g, i);
        found += t && (strncmp(name, a->family->head, head) == 0 || has_shape(t, &type));
    }
    for (size_t i = 0; i < map->n; i++)
        n += !td_text_ends(map->entries[i].key, ".num_batches_tracked");
    const bool fits = found == (size_t)td_graph_param_count(g) && found == n;
    td_graph_free(g);
    return fits;
}

static bool fits(const td_map *map, const td_arch *a)
{
    const td_resnet *r = td_resnet_of(a);
    return r ? fits_resnet(map, r) : a->family->build && fits_graph(map, a);
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
