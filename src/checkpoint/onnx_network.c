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
    const td_value *images = td_graph_find(g->graph, "images");
    return st == TD_OK && images && images->type.dim[1] == 1
               ? td_tensors_set_meta(to, "tandem.channels", "1")
               : st;
}

/* What the graph's first nodes do with the images is left to the data pipeline. */
static td_status set_norm(td_tensors *to, const td_onnx_preparation *p)
{
    char text[TD_NORM_TEXT];
    td_norm_print(p->norm.mean, p->channels, text);
    TD_TRY(td_tensors_set_meta(to, TD_NORM_META_MEAN, text));
    td_norm_print(p->norm.std, p->channels, text);
    TD_TRY(td_tensors_set_meta(to, TD_NORM_META_STD, text));
    return td_tensors_set_meta(to, TD_NORM_META_NODES, p->text);
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

td_status td_onnx_weights_read(const char *path, const td_model_opts *model, td_tensors **out)
{
    const td_onnx_import_opts o = { .batch = 1,
                                    .is_model = true,
                                    .output = model ? model->output : NULL,
                                    .height = model ? model->image_size : 0 };
    td_onnx *m;
    td_onnx_graph g = { 0 };
    td_tensors *t = NULL;
    *out = NULL;
    TD_TRY(td_onnx_read(path, &m));
    td_status st = td_graph_of_onnx(m, path, &o, &g);
    TD_OUT(st);
    TD_OUT(td_tensors_new(&t));
    TD_OUT(copy_network(t, &g));
    TD_OUT(g.preparation.has_norm ? set_norm(t, &g.preparation) : copy_norm(t, m));
    if (td_onnx_meta_find(m, "tandem.multi_label"))
        TD_OUT(td_tensors_set_meta(t, "tandem.multi_label",
                                   td_onnx_meta_find(m, "tandem.multi_label")));
    *out = t;
    t = NULL;
out:
    td_tensors_free(t);
    td_onnx_graph_release(&g);
    td_onnx_free(m);
    return st;
}
