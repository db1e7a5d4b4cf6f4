/*
 * onnx_network.c -- see onnx_network.h
 */
#include "checkpoint/onnx_network.h"

#include <string.h>

#include "image/norm_text.h"
#include "ir/graph.h"
#include "onnx_import/onnx_import.h"

static td_status copy_network(td_tensors *to, const td_onnx_graph *g)
{
    char *text;
    for (size_t i = 0; i < g->n_params; i++) {
        const td_tensor *t = &g->params[i];
        void *data;
        TD_TRY(td_tensors_add_new(to, t->name, t->dtype, t->rank, t->dim, &data));
        if (t->n_bytes)
            memcpy(data, t->data, t->n_bytes);
    }
    TD_TRY(td_graph_print(g->graph, &text));
    const td_status st = td_tensors_set_meta(to, "tandem.graph", text);
    td_text_free(text);
    return st;
}

/* Of a file that td_onnx_export has written. */
static td_status copy_norm(td_tensors *to, const td_onnx *m)
{
    static const char *const keys[] = { TD_NORM_META_MEAN, TD_NORM_META_STD };
    for (int i = 0; i < 2; i++)
        if (td_onnx_meta_find(m, keys[i]))
            TD_TRY(td_tensors_set_meta(to, keys[i], td_onnx_meta_find(m, keys[i])));
    return TD_OK;
}

td_status td_onnx_weights_read(const char *path, td_tensors **out)
{
    td_onnx *m;
    td_onnx_graph g = { 0 };
    td_tensors *t = NULL;
    *out = NULL;
    TD_TRY(td_onnx_read(path, &m));
    td_status st =
        td_graph_of_onnx(m, path, &(td_onnx_import_opts){ .batch = 1, .is_model = true }, &g);
    TD_OUT(st);
    TD_OUT(td_tensors_new(&t));
    TD_OUT(copy_network(t, &g));
    TD_OUT(copy_norm(t, m));
    *out = t;
    t = NULL;
out:
    td_tensors_free(t);
    td_onnx_graph_release(&g);
    td_onnx_free(m);
    return st;
}
