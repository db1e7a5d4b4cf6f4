/*
 * inspect_model.c -- shows the layers of a network: results, parameters, operations
 */
#include "inspect/inspect.h"

#include "checkpoint/class_list.h"
#include "image/norm_text.h"
#include "ir/graph.h"
#include "ir/leaf.h"
#include "ir/op.h"
#include "model/arch.h"

enum { SOME_CLASSES = 20 /* class names shown in a line of text */ };

typedef struct {
    const td_inspection *q;
    td_text *out;
    bool *is_counted; /* [values] parameters counted for an earlier layer */
    int64_t parameters, macs;
    int tensors, n_layers;
} layers;

static bool is_trained(const td_value *v)
{
    return td_value_is_param(v) &&
           ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_WEIGHT;
}

static int64_t count_parameters(layers *l, const td_node *n)
{
    int64_t sum = 0;
    for (int i = 0; i < n->n_in; i++)
        if (is_trained(n->in[i]) && !l->is_counted[n->in[i]->id]) {
            l->is_counted[n->in[i]->id] = true;
            l->tensors++;
            sum += td_type_count(&n->in[i]->type);
        }
    return sum;
}

static void add_layer(layers *l, const td_node *n)
{
    int64_t parameters = count_parameters(l, n);
    int64_t macs = n->op->macs ? n->op->macs(n) : 0;
    td_text shape = { 0 };
    if (n->op->is_leaf || n->n_out == 0)
        return;
    l->parameters += parameters;
    l->macs += macs;
    if (l->q->opts->json) {
        td_text_add(l->out, l->n_layers++ ? ", {" : "{");
        td_json_add_text(l->out, "name", td_node_label(n));
        td_json_add_text(l->out, "op", n->op->name);
        td_type_print(&n->out[0]->type, &shape);
        td_json_add_text(l->out, "type", td_text_get(&shape));
        td_json_add(l->out, "parameters", (double)parameters);
        td_json_add(l->out, "macs", (double)macs);
        td_text_add(l->out, "}");
    } else if (parameters || macs) {
        td_type_print(&n->out[0]->type, &shape);
        td_text_add(l->out, "%-28s %-18s %-24s %12lld %14lld\n", td_node_label(n), n->op->name,
                    td_text_get(&shape), (long long)parameters, (long long)macs);
    }
    td_text_release(&shape);
}

/* Add the metadata of weights: "ssd320, backbone resnet18, 2 classes: circle, square". */
static td_status add_metadata(const td_inspection *q, td_text *out)
{
    const td_model_opts *m = &q->opts->model;
    const bool has_backbone = td_model_detector(m) && !td_model_lacks(m, "backbone");
    td_status st = TD_OK;
    char **names;
    int n;
    if (!q->weights)
        return TD_OK;
    TD_TRY(td_classes_from_json(td_tensors_meta(q->weights, "tandem.classes"), q->opts->weights, &n,
                                &names));
    if (q->opts->json) {
        td_json_add_text(out, "weights", q->opts->weights);
        if (has_backbone)
            td_json_add_text(out, "backbone", m->backbone);
        td_json_add(out, "num_classes", m->num_classes);
        td_text_add(out, ", \"classes\": ");
        st = td_classes_to_json(n, (const char *const *)names, out);
    } else {
        if (has_backbone)
            td_text_add(out, ", backbone %s", m->backbone);
        td_text_add(out, ", %d classes", m->num_classes);
        for (int i = 0; i < n && i <= SOME_CLASSES; i++)
            td_text_add(out, "%s%s", i ? ", " : ": ", i < SOME_CLASSES ? names[i] : "...");
    }
    td_texts_free(names, (size_t)n);
    return st;
}

/* How an ONNX file's own nodes normalize its images, which is done before the graph instead. */
static void add_preparation(const td_inspection *q, td_text *out)
{
    const char *nodes = q->weights ? td_tensors_meta(q->weights, TD_NORM_META_NODES) : NULL;
    const char *mean = nodes ? td_tensors_meta(q->weights, TD_NORM_META_MEAN) : NULL;
    const char *std = nodes ? td_tensors_meta(q->weights, TD_NORM_META_STD) : NULL;
    if (!mean || !std)
        return;
    if (q->opts->json) {
        td_json_add_text(out, "image_nodes", nodes);
        td_json_add_text(out, "mean", mean);
        td_json_add_text(out, "std", std);
    } else {
        td_text_add(out, "\nits own nodes normalize its images (%s), as --mean %s --std %s does",
                    nodes, mean, std);
    }
}

static td_status add_model(layers *l, const td_graph *g, const char *name, int batch)
{
    bool json = l->q->opts->json;
    if (json) {
        td_text_add(l->out, "{");
        td_json_add_text(l->out, "arch", name);
        TD_TRY(add_metadata(l->q, l->out));
        add_preparation(l->q, l->out);
        td_json_add(l->out, "batch_size", batch);
        td_text_add(l->out, ", \"layers\": [");
    } else {
        td_text_add(l->out, "%s", name);
        TD_TRY(add_metadata(l->q, l->out));
        add_preparation(l->q, l->out);
        td_text_add(l->out, "\n\n%-28s %-18s %-24s %12s %14s\n", "layer", "op", "result",
                    "parameters", "MACs");
    }
    for (int i = 0; i < g->n_nodes; i++)
        add_layer(l, g->nodes[i]);
    if (json) {
        td_text_add(l->out, "]");
        td_json_add(l->out, "parameters", (double)l->parameters);
        td_json_add(l->out, "trainable_tensors", l->tensors);
        td_json_add(l->out, "macs", (double)l->macs);
        td_text_add(l->out, "}\n");
    } else {
        td_text_add(l->out, "\n%lld parameters in %d tensors, %.3f GMAC for %d image%s\n",
                    (long long)l->parameters, l->tensors, (double)l->macs / 1e9, batch,
                    batch == 1 ? "" : "s");
    }
    return TD_OK;
}

td_status td_inspect_model(const td_inspection *q, td_text *out)
{
    td_graph *g;
    char name[200];
    layers l = { .q = q, .out = out };
    td_status st = TD_ENOMEM;
    TD_TRY(td_model_graph(&q->opts->model, q->opts->batch_size, false, &g));
    td_model_name(&q->opts->model, name, sizeof name);
    l.is_counted = td_alloc((size_t)g->n_values + 1, sizeof *l.is_counted);
    if (l.is_counted)
        st = add_model(&l, g, name, q->opts->batch_size);
    td_free(l.is_counted);
    td_graph_free(g);
    return st;
}
