/*
 * prepost.c -- finds the nodes before and after a network
 */
#include "onnx_import/prepost.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"

/* --- preparation ------------------------------------------------------------------------------ */

static bool is_cast_to_f32(const td_onnx_node *n)
{
    const td_onnx_attr *to = td_onnx_attr_find(n, "to");
    return strcmp(n->op, "Cast") == 0 && to && td_onnx_dtype_of(to->i) == TD_DT_F32;
}

bool td_onnx_is_to_planes(const td_onnx_node *n)
{
    static const int64_t perm[4] = { 0, 3, 1, 2 };
    const td_onnx_attr *p = td_onnx_attr_find(n, "perm");
    return strcmp(n->op, "Transpose") == 0 && p && p->n == 4 &&
           memcmp(p->ints, perm, sizeof perm) == 0;
}

const td_tensor *td_onnx_channels_of(const td_onnx *m, const td_onnx_node *n, int64_t channels)
{
    bool is_op = strcmp(n->op, "Sub") == 0 || strcmp(n->op, "Div") == 0;
    for (size_t i = 0; is_op && n->n_in == 2 && i < m->n_tensors; i++) {
        const td_tensor *t = &m->tensors[i];
        if (strcmp(t->name, n->in[1]) == 0)
            return t->dtype == TD_DT_F32 && t->rank == 4 && t->dim[0] == 1 &&
                           t->dim[1] == channels && t->dim[2] == 1 && t->dim[3] == 1
                       ? t
                       : NULL;
    }
    return NULL;
}

bool td_onnx_is_preparation(const td_onnx *m, const td_onnx_node *n, td_type *t)
{
    if (t->dtype != TD_DT_F32) {
        bool is_cast = is_cast_to_f32(n);
        t->dtype = TD_DT_F32;
        return is_cast;
    }
    if (td_onnx_is_to_planes(n)) {
        *t = td_type_4d(TD_DT_F32, t->dim[0], t->dim[3], t->dim[1], t->dim[2]);
        return true;
    }
    return td_onnx_channels_of(m, n, t->dim[1]) != NULL;
}

/* --- post-processing -------------------------------------------------------------------------- */

td_status td_onnx_each_post_input(const td_onnx *m, size_t first,
                                  td_status (*use)(void *ctx, int i, const char *name), void *ctx)
{
    td_map known = { 0 };
    td_status st = TD_OK;
    int n = 0;
    for (size_t i = 0; i < m->n_tensors && st == TD_OK; i++)
        st = td_map_set(&known, m->tensors[i].name, &known);
    for (size_t i = first; i < m->n_nodes && st == TD_OK; i++) {
        const td_onnx_node *node = &m->nodes[i];
        for (int k = 0; k < node->n_in && st == TD_OK; k++) {
            if (!*node->in[k] || td_map_has(&known, node->in[k]))
                continue;
            st = td_map_set(&known, node->in[k], &known);
            if (st == TD_OK)
                st = use(ctx, n++, node->in[k]);
        }
        for (int k = 0; k < node->n_out && st == TD_OK; k++)
            st = td_map_set(&known, node->out[k], &known);
    }
    td_map_release(&known);
    return st;
}

void td_onnx_post_input_name(int i, char out[24])
{
    snprintf(out, 24, "post_input.%d", i);
}
