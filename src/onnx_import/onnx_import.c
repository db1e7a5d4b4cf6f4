/*
 * onnx_import.c -- makes a graph from an ONNX model, following ONNX's definitions of its operators
 *
 * The import is independent of the exporter.  Nodes before the network that convert bytes to floats
 * (Cast, Transpose, Sub, Div) do not become part of the graph; td_onnx_prepare computes them in
 * plain loops.  Neither do the nodes from the first operator that no op of ours corresponds to
 * (onnx_eval.h): a detector's post-processing.  The values that these read from the network are
 * outputs of the graph, post_input.0, post_input.1 ... in the order of reading.
 * Every result's type is compared with its declaration in the file.
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include "onnx_import/onnx_import.h"

#include <string.h>

#include "onnx_import/importer.h"
#include "onnx_import/prepost.h"

#define PREPARED_MAX 8 /* limit for nodes before the network */

/* --- nodes ------------------------------------------------------------------------------------ */

typedef struct {
    const char *op;
    const char *attrs; /* supported attributes, each followed by a space */
    td_status (*get)(td_importer *im, td_value **y);
} row;

#define REDUCE     "keepdims axes noop_with_empty_axes "
#define TRANSPOSED "kernel_shape strides pads dilations group auto_pad output_padding "
#define RESIZE                                                                                     \
    "mode nearest_mode coordinate_transformation_mode cubic_coeff_a exclude_outside "              \
    "extrapolation_value antialias axes keep_aspect_ratio_policy "
#define WINDOW "kernel_shape strides pads dilations ceil_mode auto_pad "

/* clang-format off */
static const row rows[] = {
    { "Conv",               "kernel_shape strides pads dilations group auto_pad ", td_import_conv },
    { "ConvTranspose",      TRANSPOSED, td_import_conv_transpose },
    { "InstanceNormalization", "epsilon ", td_import_group_norm },
    { "GroupNormalization", "epsilon num_groups stash_type ", td_import_group_norm },
    { "Pad",                "mode ", td_import_pad },
    { "BatchNormalization", "epsilon momentum training_mode ", td_import_norm },
    { "Relu",               "", td_import_act },
    { "LeakyRelu",          "alpha ", td_import_act },
    { "Elu",                "alpha ", td_import_act },
    { "Sigmoid",            "", td_import_act },
    { "HardSigmoid",        "alpha beta ", td_import_act },
    { "HardSwish",          "", td_import_act },
    { "Tanh",               "", td_import_act },
    { "Log",                "", td_import_act },
    { "Sqrt",               "", td_import_act },
    { "Reciprocal",         "", td_import_act },
    { "Abs",                "", td_import_act },
    { "Erf",                "", td_import_act },
    { "Gelu",               "approximate ", td_import_gelu },
    { "Neg",                "", td_import_negative },
    { "Pow",                "", td_import_pow },
    { "Max",                "", td_import_extreme },
    { "Min",                "", td_import_extreme },
    { "PRelu",              "", td_import_prelu },
    { "Identity",           "", td_import_identity },
    { "Dropout",            "ratio seed ", td_import_dropout },
    { "Clip",               "", td_import_clip },
    { "MaxPool",            WINDOW "storage_order ", td_import_pool },
    { "AveragePool",        WINDOW "count_include_pad ", td_import_pool },
    { "GlobalAveragePool",  "", td_import_means },
    { "Flatten",            "axis ", td_import_flatten },
    { "Gemm",               "transB transA alpha beta ", td_import_gemm },
    { "MatMul",             "", td_import_matmul },
    { "LayerNormalization", "axis epsilon stash_type ", td_import_layer_norm },
    { "Add",                "", td_import_binary },
    { "Mul",                "", td_import_binary },
    { "Concat",             "axis ", td_import_concat },
    { "Slice",              "", td_import_slice },
    { "Reshape",            "allowzero ", td_import_reshape },
    { "Transpose",          "perm ", td_import_transpose },
    { "Expand",             "", td_import_expand },
    { "Cast",               "to ", td_import_cast },
    { "Resize",             RESIZE, td_import_resize },
    { "Gather",             "axis ", td_import_gather },
    { "ReduceSum",          REDUCE, td_import_reduce },
    { "ReduceMean",         REDUCE, td_import_reduce },
    { "Softmax",            "axis ", td_import_softmax },
    { "QuantizeLinear",     "axis ", td_import_quantize },
    { "DequantizeLinear",   "axis ", td_import_dequantize },
};

/* not in detectors that are verified: there these are nodes before or after the network */
static const row model_rows[] = {
    { "Split",              "axis num_outputs split ", td_import_split },
    { "Squeeze",            "axes ", td_import_squeeze },
    { "Unsqueeze",          "axes ", td_import_unsqueeze },
    { "Sub",                "", td_import_binary },
    { "Div",                "", td_import_binary },
    { "Exp",                "", td_import_act },
    { "Sum",                "", td_import_sum },
    { "Mean",               "", td_import_sum },
    { "Softplus",           "", td_import_act },
    { "Mish",               "", td_import_act },
    { "Selu",               "alpha gamma ", td_import_selu },
    { "Celu",               "alpha ", td_import_celu },
    { "Softsign",           "", td_import_softsign },
    { "GlobalMaxPool",      "", td_import_global_max_pool },
    { "LogSoftmax",         "axis ", td_import_log_softmax },
    { "ReduceMax",          REDUCE, td_import_reduce },
    { "ReduceMin",          REDUCE, td_import_reduce },
    { "ReduceL1",           REDUCE, td_import_reduce },
    { "ReduceL2",           REDUCE, td_import_reduce },
    { "ReduceSumSquare",    REDUCE, td_import_reduce },
    { "ReduceLogSum",       REDUCE, td_import_reduce },
    { "ReduceLogSumExp",    REDUCE, td_import_reduce },
};
/* clang-format on */

static td_status check_attrs(const td_importer *im, const char *known)
{
    for (int i = 0; i < im->node->n_attr; i++) {
        const char *name = im->node->attr[i].name, *at = strstr(known, name);
        size_t n = strlen(name);
        while (at && !(n && at[n] == ' ' && (at == known || at[-1] == ' ')))
            at = n ? strstr(at + 1, name) : NULL;
        if (!at)
            return td_import_refuse(im, "an unsupported attribute");
    }
    return TD_OK;
}

/* constants and shapes */
static td_status fold(td_importer *im, bool *done)
{
    const td_value *x = im->node->n_in ? td_map_get(&im->values, im->node->in[0]) : NULL;
    const td_type t = x ? td_value_type(x) : (td_type){ 0 };
    const td_status st = td_onnx_fold(&im->folder, im->node, x ? &t : NULL, done);
    return st == TD_OK ? st
                       : td_error_context(st, "'%s': node '%s' (%s)", im->what, im->node->name,
                                          im->node->op);
}

static const row *row_of(const td_importer *im, const td_onnx_node *n)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(n->op, rows[i].op) == 0)
            return &rows[i];
    for (size_t i = 0; im->is_classifier && i < sizeof model_rows / sizeof *model_rows; i++)
        if (strcmp(n->op, model_rows[i].op) == 0)
            return &model_rows[i];
    return NULL;
}

/* the result of an Add whose other operand, a product, has the value already */
static td_status get_merged(td_importer *im)
{
    td_value *y = td_map_get(&im->values, im->node->in[0]);
    if (!y || td_value_is_param(y))
        y = td_map_get(&im->values, im->node->in[1]);
    return td_import_result(im, 0, y);
}

/* a split; a norm in training mode, which also gives its running statistics, and a dropout, which
   gives its mask, which nothing may read */
static bool is_result_count(const td_importer *im, const row *r)
{
    const int n = im->node->n_out;
    return n == 1 || (im->o->is_model && n > 0 &&
                      (r->get == td_import_split ||
                       (r->get == td_import_norm && n <= (im->m->opset < 14 ? 5 : 3)) ||
                       (r->get == td_import_dropout && n <= 2)));
}

static td_status get_node(td_importer *im, const td_onnx_node *n)
{
    const row *r = row_of(im, n);
    td_value *y = NULL;
    bool done = false;
    im->node = n;
    if (im->o->is_model)
        TD_TRY(fold(im, &done));
    if (done)
        return TD_OK;
    if (!r)
        return td_import_refuse(im, "an unsupported operator");
    TD_TRY(check_attrs(im, r->attrs));
    if (!is_result_count(im, r))
        return td_import_refuse(im, "more than one result is not supported");
    if (im->merged == n) /* the product has added its bias */
        return get_merged(im);
    TD_TRY(r->get(im, &y));
    return td_import_result(im, r->get == td_import_split ? n->n_out - 1 : 0, y);
}

/* --- post-processing -------------------------------------------------------------------------- */

/* values read after the network become outputs of the graph */
static td_status add_post_input(void *ctx, int i, const char *name)
{
    td_importer *im = ctx;
    char output[24];
    td_value *v = td_map_get(&im->values, name);
    if (!v)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': '%s' is read after the network, which does not produce it", im->what,
                        name);
    td_onnx_post_input_name(i, output);
    td_output(im->b, output, v);
    return TD_OK;
}

/* are all remaining nodes post-processing?  If not, an unknown operator is an error */
static td_status get_post_processing(td_importer *im, size_t first)
{
    for (size_t i = first; i < im->m->n_nodes; i++) {
        im->node = &im->m->nodes[i];
        if (!im->o->is_after || !im->o->is_after(im->node))
            return td_import_refuse(im, "an unsupported operator");
    }
    return td_onnx_each_post_input(im->m, first, add_post_input, im);
}

/* --- preparation of images ------------------------------------------------------------------ */

/* sides that are not fixed get the size that was asked for */
static td_status model_input_type(const td_importer *im, const td_onnx_value *v, int64_t n,
                                  td_type *t)
{
    const int64_t side = im->o->image_size ? im->o->image_size : 224;
    *t = td_type_4d(TD_DT_F32, n, v->dim[1].value, v->dim[2].value < 0 ? side : v->dim[2].value,
                    v->dim[3].value < 0 ? side : v->dim[3].value);
    if (v->dtype == TD_DT_U8)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': its images are u8, wanted normalised f32 images [N,3,H,W]",
                        im->what);
    for (int i = 0; i < 4; i++)
        if (t->dim[i] < 1 || t->dim[i] > 1 << 16 || (i == 1 && t->dim[i] != 3))
            return td_error(TD_EUNSUPPORTED, "'%s': its images are not [N,3,H,W]", im->what);
    return TD_OK;
}

static td_status input_type(const td_importer *im, td_type *t)
{
    const td_onnx_value *v = im->m->inputs.at;
    const bool is_half = im->m->inputs.n == 1 && td_dtype_is_half(v->dtype) && im->o->is_model;
    if (im->m->inputs.n != 1 || v->rank != 4 ||
        (v->dtype != TD_DT_F32 && v->dtype != TD_DT_U8 && !is_half))
        return td_error(TD_EUNSUPPORTED, "'%s' does not have a single 4-D input of type f32 or u8",
                        im->what);
    int64_t n = v->dim[0].value < 0 ? im->o->batch : v->dim[0].value;
    if (im->o->is_model)
        return model_input_type(im, v, n, t);
    for (int i = 1; i < 4; i++)
        if (v->dim[i].value < 1 || v->dim[i].value > 1 << 16)
            return td_error(TD_EUNSUPPORTED, "'%s': the size of its images is not fixed", im->what);
    if (n != im->o->batch)
        return td_error(TD_EFORMAT, "'%s' has a fixed batch of %lld images, wanted %d", im->what,
                        (long long)n, im->o->batch);
    *t = td_type_4d(v->dtype, n, v->dim[1].value, v->dim[2].value, v->dim[3].value);
    return TD_OK;
}

static td_status get_images(td_importer *im, td_onnx_graph *out)
{
    td_type t;
    TD_TRY(input_type(im, &t));
    out->images = im->m->inputs.at[0].name;
    while (!im->o->is_model && out->n_prepared < im->m->n_nodes && out->n_prepared < PREPARED_MAX) {
        const td_onnx_node *n = &im->m->nodes[out->n_prepared];
        td_type next = t;
        if (n->n_in < 1 || strcmp(n->in[0], out->images) != 0 ||
            !td_onnx_is_preparation(im->m, n, &next))
            break;
        t = next;
        out->images = n->out[0];
        TD_TRY(td_import_check_declared(im, out->images, &t));
        out->n_prepared++;
    }
    if (t.dtype != TD_DT_F32)
        return td_error(TD_EUNSUPPORTED, "'%s': its u8 input is not cast to float", im->what);
    return td_map_set(&im->values, out->images, td_input(im->b, "images", t));
}

/* --- entry point ------------------------------------------------------------------------------ */

static td_status index_names(td_importer *im)
{
    const td_onnx *m = im->m;
    im->is_classifier = im->o->is_model;
    for (size_t i = 0; i < m->outputs.n; i++)
        im->is_classifier |= strcmp(m->outputs.at[i].name, "logits") == 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        TD_TRY(td_map_set(&im->tensors, m->tensors[i].name, &m->tensors[i]));
    for (size_t i = 0; i < m->values.n; i++)
        TD_TRY(td_map_set(&im->declared, m->values.at[i].name, &m->values.at[i]));
    for (size_t i = 0; i < m->outputs.n; i++)
        TD_TRY(td_map_set(&im->declared, m->outputs.at[i].name, &m->outputs.at[i]));
    return TD_OK;
}

/* adds the additional outputs */
static td_status get_also(td_importer *im)
{
    for (const char *const *also = im->o->also; also && *also; also++) {
        td_value *v = td_map_get(&im->values, *also);
        if (!v)
            return td_error(TD_EFORMAT, "'%s' has no value '%s'", im->what, *also);
        td_output(im->b, *also, v);
    }
    return TD_OK;
}

/* output `logits`: the one of this name, or the only one */
static td_status get_model_output(td_importer *im)
{
    const td_onnx_values *all = &im->m->outputs;
    const char *name = all->at[0].name;
    bool is_named = false;
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->at[i].name, "logits") == 0) {
            name = all->at[i].name;
            is_named = true;
        }
    td_value *v = td_map_get(&im->values, name);
    if (all->n != 1 && !is_named)
        return td_error(TD_EUNSUPPORTED, "'%s' has %zu outputs, wanted one, or one named 'logits'",
                        im->what, all->n);
    if (!v || td_value_type(v).rank != 2)
        return td_error(TD_EUNSUPPORTED, "'%s': output '%s' is not [N,classes]", im->what, name);
    td_output(im->b, "logits", v);
    return TD_OK;
}

static td_status get_model(td_importer *im, td_onnx_graph *out)
{
    TD_TRY(index_names(im));
    TD_TRY(get_images(im, out));
    for (size_t i = 0; i < im->m->n_nodes; i++)
        TD_TRY(get_node(im, &im->m->nodes[i]));
    return get_model_output(im);
}

static td_status get_all(td_importer *im, td_onnx_graph *out)
{
    TD_TRY(index_names(im));
    TD_TRY(get_images(im, out));
    out->first_post = out->n_prepared;
    for (; out->first_post < im->m->n_nodes && row_of(im, &im->m->nodes[out->first_post]);
         out->first_post++)
        TD_TRY(get_node(im, &im->m->nodes[out->first_post]));
    TD_TRY(get_post_processing(im, out->first_post));
    for (size_t i = 0; i < im->m->outputs.n; i++) {
        const char *name = im->m->outputs.at[i].name;
        td_value *v = td_map_get(&im->values, name);
        if (!v && out->first_post < im->m->n_nodes)
            continue; /* a result of post-processing */
        if (!v)
            return td_error(TD_EUNSUPPORTED, "'%s': output '%s' is a constant", im->what, name);
        td_output(im->b, name, v);
    }
    return get_also(im);
}

static td_status import(const td_onnx *m, const char *what, const td_onnx_import_opts *opts,
                        uint8_t *batch_dims, td_onnx_graph *out)
{
    td_importer im = { .m = m, .what = what, .o = opts, .b = td_build_begin(), .out = out };
    im.batch_dims = batch_dims;
    im.is_probe = opts->batch == TD_IMPORT_PROBE;
    im.folder.tensors = &im.tensors;
    *out = (td_onnx_graph){ .model = m, .batch = opts->batch };
    td_status st = opts->is_model ? get_model(&im, out) : get_all(&im, out);
    td_map_release(&im.values);
    td_map_release(&im.tensors);
    td_map_release(&im.declared);
    td_onnx_folder_release(&im.folder);
    if (st != TD_OK && td_build_ok(im.b)) {
        td_build_abandon(im.b);
    } else {
        st = td_build_end(im.b, &out->graph);
        if (st != TD_OK)
            st = td_error_context(st, "'%s'", what);
    }
    if (st != TD_OK)
        td_onnx_graph_release(out);
    return st;
}

/* finds the dimensions that contain the batch (axis_operators.c); an error of the file is found
   without it, too */
static td_status probe(const td_onnx *m, const char *what, const td_onnx_import_opts *opts,
                       uint8_t *batch_dims)
{
    td_onnx_import_opts o = *opts;
    td_onnx_graph unused;
    o.batch = TD_IMPORT_PROBE;
    const td_status st = import(m, what, &o, batch_dims, &unused);
    if (st == TD_OK)
        td_onnx_graph_release(&unused);
    else if (st != TD_ENOMEM)
        td_error_clear();
    return st == TD_ENOMEM ? st : TD_OK;
}

td_status td_graph_of_onnx(const td_onnx *m, const char *what, const td_onnx_import_opts *opts,
                           td_onnx_graph *out)
{
    const bool is_open =
        m->inputs.n == 1 && m->inputs.at[0].rank > 0 && m->inputs.at[0].dim[0].value < 0;
    if (!opts->is_model || !is_open)
        return import(m, what, opts, NULL, out);
    uint8_t *batch_dims = td_alloc(m->n_nodes + 1, 1);
    *out = (td_onnx_graph){ 0 };
    if (!batch_dims)
        return TD_ENOMEM;
    td_status st = probe(m, what, opts, batch_dims);
    if (st == TD_OK)
        st = import(m, what, opts, batch_dims, out);
    td_free(batch_dims);
    return st;
}

void td_onnx_graph_release(td_onnx_graph *g)
{
    td_graph_free(g->graph);
    td_free(g->params);
    *g = (td_onnx_graph){ 0 };
}
