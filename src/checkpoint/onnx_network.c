/*
 * onnx_network.c -- see onnx_network.h
 */
#include "checkpoint/onnx_network.h"

#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/class_list.h"
#include "checkpoint/quantization.h"
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

static td_status copy_meta(td_tensors *to, const td_onnx *m, const char *key)
{
    const char *text = td_onnx_meta_find(m, key);
    return text ? td_tensors_set_meta(to, key, text) : TD_OK;
}

/* Of a file that td_onnx_export has written. */
static td_status copy_norm(td_tensors *to, const td_onnx *m)
{
    TD_TRY(copy_meta(to, m, TD_NORM_META_MEAN));
    return copy_meta(to, m, TD_NORM_META_STD);
}

/* The names are those of the outputs, unless --model-output chose others. */
static td_status copy_classes(td_tensors *to, const td_onnx *m, const char *path, const td_graph *g)
{
    const char *const key = "tandem.classes";
    const td_value *logits = td_graph_output_value(g, "logits");
    int n;
    char **names;
    TD_TRY(td_classes_from_json(td_onnx_meta_find(m, key), path, &n, &names));
    td_texts_free(names, (size_t)n);
    return n && logits && logits->type.dim[1] == n ? copy_meta(to, m, key) : TD_OK;
}

static td_status leave_out_activation(td_tensors *to, const char *path, const td_onnx_graph *g)
{
    if (!g->last_activation)
        return TD_OK;
    td_log(TD_LOG_INFO, "onnx", "'%s': the logits are the operand of the last node, %s%s", path,
           g->last_activation->op, g->multi_label ? ": an image may have several labels" : "");
    if (!g->multi_label || td_tensors_meta(to, "tandem.multi_label"))
        return TD_OK;
    TD_TRY(td_tensors_set_meta(to, TD_LAST_ACTIVATION_META, g->last_activation->op));
    return td_tensors_set_meta(to, "tandem.multi_label", "1");
}

/* Some files that td_onnx_export has written become weight files only by td_onnx_restore. */
static td_status check_kind(const td_onnx *m, const char *path)
{
    const td_model_opts network = { .arch = td_onnx_meta_find(m, "tandem.arch") };
    const char *kind = td_onnx_meta_find(m, TD_QUANTIZATION_META)    ? "has 8-bit weights"
                       : network.arch && td_model_detector(&network) ? "is a detector"
                                                                     : NULL;
    if (!kind)
        return TD_OK;
    return td_error(TD_EUNSUPPORTED,
                    "'%s' %s: make a weight file of it, with 'tandem convert %s "
                    "WEIGHTS.safetensors', and use that",
                    path, kind, path);
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
    td_status st = check_kind(m, path);
    TD_OUT(st);
    TD_OUT(td_graph_of_onnx(m, path, &o, &g));
    TD_OUT(td_tensors_new(&t));
    TD_OUT(copy_network(t, &g));
    TD_OUT(g.preparation.has_norm ? set_norm(t, &g.preparation) : copy_norm(t, m));
    /* metadata that td_onnx_export writes */
    TD_OUT(copy_meta(t, m, "tandem.multi_label"));
    TD_OUT(copy_meta(t, m, TD_LAST_ACTIVATION_META));
    TD_OUT(leave_out_activation(t, path, &g));
    TD_OUT(copy_classes(t, m, path, g.graph));
    *out = t;
    t = NULL;
out:
    td_tensors_free(t);
    td_onnx_graph_release(&g);
    td_onnx_free(m);
    return st;
}
