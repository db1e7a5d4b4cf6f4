/*
 * onnx_import.c -- makes a graph from an ONNX model, following ONNX's definitions of its operators
 *
 * The import is independent of the exporter.  Nodes before the network that convert bytes to floats
 * (Cast, Transpose, Sub, Div) do not become part of the graph; td_onnx_prepare computes them in
 * plain loops, and those of a model become the normalization of its images (preparation.h).
 * Neither do the nodes from the first operator that no op of ours corresponds to
 * (onnx_eval.h): a detector's post-processing.  The values that these read from the network are
 * outputs of the graph, post_input.0, post_input.1 ... in the order of reading.
 * Every result's type is compared with its declaration in the file.
 *
 * Source: ONNX operator documentation, opsets 13 to 21.
 */
#include "onnx_import/onnx_import.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "onnx_import/importer.h"
#include "onnx_import/prepost.h"

#define PREPARED_MAX 8    /* limit for nodes before the network */
#define SIDE_MAX     8192 /* of images, as --image-size */

#define SCATTERED_MAX 8  /* nodes from a constant to the ScatterND that reads it */
#define OUTPUTS_SHOWN 20 /* names of outputs in a message */

/* --- nodes ------------------------------------------------------------------------------------ */

typedef struct {
    const char *op;
    const char *attrs; /* supported attributes, each followed by a space */
    td_status (*get)(td_importer *im, td_value **y);
    bool is_by_row; /* of single elements, or of rows of the last dimension */
} row;

#define REDUCE     "keepdims axes noop_with_empty_axes "
#define CONVOLVED  "kernel_shape strides pads dilations group auto_pad "
#define TRANSPOSED CONVOLVED "output_padding "
#define RESIZE                                                                                     \
    "mode nearest_mode coordinate_transformation_mode cubic_coeff_a exclude_outside "              \
    "extrapolation_value antialias axes keep_aspect_ratio_policy "
#define WINDOW "kernel_shape strides pads dilations ceil_mode auto_pad "

/* clang-format off */
static const row rows[] = {
    { "Conv",               CONVOLVED, td_import_conv, false },
    { "ConvTranspose",      TRANSPOSED, td_import_conv_transpose, false },
    { "InstanceNormalization", "epsilon ", td_import_group_norm, false },
    { "GroupNormalization", "epsilon num_groups stash_type ", td_import_group_norm, false },
    { "Pad",                "mode ", td_import_pad, false },
    { "BatchNormalization", "epsilon momentum training_mode ", td_import_norm, false },
    { "Relu",               "", td_import_act, true },
    { "LeakyRelu",          "alpha ", td_import_act, true },
    { "Elu",                "alpha ", td_import_act, true },
    { "Sigmoid",            "", td_import_act, true },
    { "HardSigmoid",        "alpha beta ", td_import_act, true },
    { "HardSwish",          "", td_import_act, true },
    { "Tanh",               "", td_import_act, true },
    { "Log",                "", td_import_act, true },
    { "Sqrt",               "", td_import_act, true },
    { "Reciprocal",         "", td_import_act, true },
    { "Abs",                "", td_import_act, true },
    { "Erf",                "", td_import_act, true },
    { "Gelu",               "approximate ", td_import_gelu, true },
    { "Neg",                "", td_import_negative, true },
    { "Pow",                "", td_import_pow, true },
    { "Max",                "", td_import_extreme, true },
    { "Min",                "", td_import_extreme, true },
    { "PRelu",              "", td_import_prelu, false },
    { "Identity",           "", td_import_identity, false },
    { "Dropout",            "ratio seed ", td_import_dropout, true },
    { "Clip",               "", td_import_clip, true },
    { "MaxPool",            WINDOW "storage_order ", td_import_pool, false },
    { "AveragePool",        WINDOW "count_include_pad ", td_import_pool, false },
    { "GlobalAveragePool",  "", td_import_means, false },
    { "Flatten",            "axis ", td_import_flatten, false },
    { "Gemm",               "transB transA alpha beta ", td_import_gemm, false },
    { "MatMul",             "", td_import_matmul, false },
    { "LayerNormalization", "axis epsilon stash_type ", td_import_layer_norm, true },
    { "Add",                "", td_import_binary, true },
    { "Mul",                "", td_import_binary, true },
    { "Concat",             "axis ", td_import_concat, false },
    { "Slice",              "", td_import_slice, false },
    { "Reshape",            "allowzero ", td_import_reshape, false },
    { "Transpose",          "perm ", td_import_transpose, false },
    { "Expand",             "", td_import_expand, false },
    { "Cast",               "to ", td_import_cast, true },
    { "Resize",             RESIZE, td_import_resize, false },
    { "Gather",             "axis ", td_import_gather, false },
    { "ReduceSum",          REDUCE, td_import_reduce, false },
    { "ReduceMean",         REDUCE, td_import_reduce, false },
    { "Softmax",            "axis ", td_import_softmax, true },
    { "QuantizeLinear",     "axis ", td_import_quantize, false },
    { "DequantizeLinear",   "axis ", td_import_dequantize, false },
};

/* not in detectors that are verified: there these are nodes before or after the network */
static const row model_rows[] = {
    { "Split",              "axis num_outputs split ", td_import_split, false },
    { "GatherND",           "batch_dims ", td_import_gather_nd, false },
    { "Squeeze",            "axes ", td_import_squeeze, false },
    { "Unsqueeze",          "axes ", td_import_unsqueeze, false },
    { "Sub",                "", td_import_binary, true },
    { "Div",                "", td_import_binary, true },
    { "Exp",                "", td_import_act, true },
    { "Sum",                "", td_import_sum, true },
    { "Mean",               "", td_import_sum, true },
    { "Softplus",           "", td_import_act, true },
    { "Mish",               "", td_import_act, true },
    { "Selu",               "alpha gamma ", td_import_selu, true },
    { "Celu",               "alpha ", td_import_celu, true },
    { "Softsign",           "", td_import_softsign, true },
    { "GlobalMaxPool",      "", td_import_global_max_pool, false },
    { "Tile",               "", td_import_tile, false },
    { "Einsum",             "equation ", td_import_einsum, false },
    { "LogSoftmax",         "axis ", td_import_log_softmax, false },
    { "ReduceMax",          REDUCE, td_import_reduce, false },
    { "ReduceMin",          REDUCE, td_import_reduce, false },
    { "ReduceL1",           REDUCE, td_import_reduce, false },
    { "ReduceL2",           REDUCE, td_import_reduce, false },
    { "ReduceSumSquare",    REDUCE, td_import_reduce, false },
    { "ReduceLogSum",       REDUCE, td_import_reduce, false },
    { "ReduceLogSumExp",    REDUCE, td_import_reduce, false },
    { "Equal",              "", td_import_compare, false },
    { "Greater",            "", td_import_compare, false },
    { "GreaterOrEqual",     "", td_import_compare, false },
    { "Less",               "", td_import_compare, false },
    { "LessOrEqual",        "", td_import_compare, false },
    { "And",                "", td_import_logic, false },
    { "Or",                 "", td_import_logic, false },
    { "Xor",                "", td_import_logic, false },
    { "Not",                "", td_import_logic, false },
    { "Sign",               "", td_import_sign, true },
    { "IsNaN",              "", td_import_is_nan, false },
    { "Where",              "", td_import_where, false },
    { "Trilu",              "upper ", td_import_triangle, false },
    { "CastLike",           "", td_import_cast_like, false },
    { "SplitToSequence",    "axis keepdims ", td_import_sequence, false },
    { "SequenceAt",         "", td_import_sequence_at, false },
    { "DepthToSpace",       "blocksize mode ", td_import_depth_to_space, false },
    { "SpaceToDepth",       "blocksize ", td_import_space_to_depth, false },
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

/* do all nodes that read it only move its elements, and write them into another tensor at last,
   after at most `depth` others? */
static bool is_scattered(const td_onnx *m, const char *name, size_t from, int depth)
{
    static const char moves[] = " Expand Reshape Unsqueeze Squeeze Identity ";
    bool is_read = false;
    for (size_t i = from; i < m->n_nodes; i++) {
        const td_onnx_node *n = &m->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            char word[16];
            if (strcmp(n->in[k], name) != 0)
                continue;
            is_read = true;
            if ((strcmp(n->op, "ScatterND") == 0 && k == 2) || strcmp(n->op, "Shape") == 0)
                continue;
            const int length = snprintf(word, sizeof word, " %.12s ", n->op);
            if (k != 0 || n->n_out != 1 || length >= (int)sizeof word || !strstr(moves, word) ||
                depth == 0 || !is_scattered(m, n->out[0], i + 1, depth - 1))
                return false;
        }
    }
    return is_read;
}

/* a Constant of floats that becomes a part of another tensor is no parameter */
static bool is_only_scattered(const td_importer *im)
{
    const td_tensor *t = td_map_get(&im->tensors, im->node->out[0]);
    return t && t->dtype == TD_DT_F32 && t->n_bytes > TD_ONNX_FOLD_MAX * sizeof(float) &&
           is_scattered(im->m, t->name, (size_t)(im->node - im->m->nodes) + 1, SCATTERED_MAX);
}

/* constants and shapes */
static td_status fold(td_importer *im, bool *done)
{
    const td_wide *w = td_import_wide_at(im);
    if (w && strcmp(im->node->op, "Shape") == 0) {
        *done = true;
        return td_import_wide_shape(im, w);
    }
    if (td_import_repeats_batch(im))
        return TD_OK;
    const td_value *x = im->node->n_in ? td_map_get(&im->values, im->node->in[0]) : NULL;
    const td_type t = x ? td_value_type(x) : (td_type){ 0 };
    td_status st = td_onnx_fold(&im->folder, im->node, x ? &t : NULL, done);
    if (st == TD_OK && *done && strcmp(im->node->op, "Constant") == 0 && is_only_scattered(im))
        st = td_onnx_folder_fix(&im->folder, im->node->out[0]);
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
    for (int i = 0; i < 2; i++)
        if (td_import_wide_of(im, i))
            return td_import_wide_same(im, td_import_wide_of(im, i));
    td_value *y = td_map_get(&im->values, im->node->in[0]);
    if (!y || td_value_is_param(y))
        y = td_map_get(&im->values, im->node->in[1]);
    return td_import_result(im, 0, y);
}

/* a split; a norm in training mode, which also gives its running statistics, a layer norm, which
   gives its statistics, a pooling, which gives its indices, and a dropout, which gives its mask:
   nothing may read these */
static bool is_result_count(const td_importer *im, const row *r)
{
    const int n = im->node->n_out;
    return n == 1 ||
           (im->o->is_model && n > 0 &&
            (r->get == td_import_split ||
             (r->get == td_import_norm && n <= (im->m->opset < 14 ? 5 : 3)) ||
             (r->get == td_import_layer_norm && n <= 3) ||
             (strcmp(r->op, "MaxPool") == 0 && n <= 2) || (r->get == td_import_dropout && n <= 2)));
}

/* the images that a node of the preparation reads, as one of its operands */
static td_value *prepared_value(const td_importer *im, const td_onnx_node *n)
{
    td_value *x = td_map_get(&im->values, n->in[0]);
    return x || n->n_in < 2 ? x : td_map_get(&im->values, n->in[1]);
}

static td_status get_node(td_importer *im, const td_onnx_node *n)
{
    const row *r = row_of(im, n);
    td_value *y = NULL;
    bool done = false;
    im->node = n;
    if (td_onnx_is_prepared(&im->out->preparation, n))
        return td_map_set(&im->values, n->out[0], prepared_value(im, n));
    if (im->o->is_model || (im->is_classifier && strcmp(n->op, "Identity") != 0))
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
    if (r->is_by_row && (td_import_wide_at(im) || td_import_wide_of(im, 1)))
        return td_import_wide_each(im, r->get);
    TD_TRY(r->get(im, &y));
    if (!y && td_build_ok(im->b)) /* it has joined im->wide */
        return TD_OK;
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

/* the size for which a file that td_onnx_export has written was made; 224: it does not say */
static int64_t size_in_metadata(const td_onnx *m)
{
    int64_t side;
    const char *text = td_onnx_meta_find(m, "tandem.image_size");
    return text && td_text_to_int(text, &side) && side >= 1 && side <= SIDE_MAX ? side : 224;
}

/* sides that are not fixed get the size that was asked for */
static td_status model_input_type(const td_importer *im, const td_onnx_value *v, int64_t n,
                                  td_type *t)
{
    const int64_t side = im->o->height ? im->o->height : size_in_metadata(im->m);
    const td_onnx_preparation *p = &im->out->preparation;
    const bool is_last = p->is_last && p->n_nodes;
    const int64_t h = v->dim[is_last ? 1 : 2].value, w = v->dim[is_last ? 2 : 3].value;
    *t =
        td_type_4d(TD_DT_F32, n, v->dim[is_last ? 3 : 1].value, h < 0 ? side : h, w < 0 ? side : w);
    if (v->dtype == TD_DT_U8 && !p->n_nodes)
        return td_error(TD_EUNSUPPORTED,
                        "'%s': its images are u8, and its first nodes do not convert them to f32 "
                        "images [N,3,H,W] with a mean and a deviation for each channel",
                        im->what);
    for (int i = 0; i < 4; i++)
        if (t->dim[i] < 1 || t->dim[i] > 1 << 16 || (i == 1 && t->dim[i] != 3 && t->dim[i] != 1))
            return td_error(TD_EUNSUPPORTED, "'%s': its images are not [N,3,H,W] or [N,1,H,W]",
                            im->what);
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
    if (n != im->o->batch)
        return td_error(TD_EFORMAT, "'%s' has a fixed batch of %lld images, wanted %d", im->what,
                        (long long)n, im->o->batch);
    *t = td_type_4d(v->dtype, n, v->dim[1].value, v->dim[2].value, v->dim[3].value);
    for (int i = 1; i < 4; i++) {
        const char *name = v->dim[i].param ? v->dim[i].param : "";
        if (t->dim[i] < 0)
            t->dim[i] = strcmp(name, "height") == 0  ? im->o->height
                        : strcmp(name, "width") == 0 ? im->o->width
                                                     : -1;
        if (t->dim[i] < 1 || t->dim[i] > 1 << 16)
            return td_error(TD_EUNSUPPORTED, "'%s': the size of its images is not fixed", im->what);
    }
    return TD_OK;
}

static td_status get_images(td_importer *im, td_onnx_graph *out)
{
    td_type t;
    TD_TRY(input_type(im, &t));
    out->input = t;
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
    for (size_t i = 0; i < m->values.n; i++) {
        TD_TRY(td_map_set(&im->declared, m->values.at[i].name, &m->values.at[i]));
        im->has_kinds |= m->values.at[i].kind != NULL;
    }
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

/* the outputs' names, for a message */
static td_status wrong_output(const td_importer *im, const char *what)
{
    td_text names = { 0 };
    for (size_t i = 0; i < im->m->outputs.n && i < OUTPUTS_SHOWN; i++)
        td_text_add(&names, "%s'%.80s'", i ? ", " : "", im->m->outputs.at[i].name);
    td_text_add(&names, im->m->outputs.n > OUTPUTS_SHOWN ? ", ..." : "");
    const td_status st = td_error(TD_EUNSUPPORTED, "'%s' has %s; its outputs are %s", im->what,
                                  what, td_text_get(&names));
    td_text_release(&names);
    return st;
}

/* the value that becomes `logits`: the one asked for, the output of this name, or the only one */
static td_status choose_output(const td_importer *im, const char **out)
{
    const td_onnx_values *all = &im->m->outputs;
    char what[160];
    *out = im->o->output;
    if (*out && !td_onnx_producer(im->m, *out)) {
        snprintf(what, sizeof what, "no value '%.100s'", *out);
        return wrong_output(im, what);
    }
    for (size_t i = 0; i < all->n && !*out; i++)
        if (all->n == 1 || strcmp(all->at[i].name, "logits") == 0)
            *out = all->at[i].name;
    if (*out)
        return TD_OK;
    snprintf(what, sizeof what,
             "%zu outputs, none of which is named 'logits': choose one with "
             "--model-output",
             all->n);
    return wrong_output(im, what);
}

/* over the classes of [N,classes] */
static bool is_softmax(const td_onnx_node *n)
{
    const td_onnx_attr *axis = td_onnx_attr_find(n, "axis");
    return strcmp(n->op, "Softmax") == 0 && (!axis || axis->i == 1 || axis->i == -1);
}

/*
 * Classifiers of other programs may end with the classes' probabilities.  Every verb computes them
 * from `logits`, so these are what the last softmax or sigmoid reads.
 */
static const char *without_activation(const td_importer *im, const char *output, td_onnx_graph *out)
{
    const td_onnx_node *n = td_onnx_producer(im->m, output);
    const bool is_sigmoid = n && strcmp(n->op, "Sigmoid") == 0;
    if (!n || n->n_in != 1 || n->n_out != 1 || !(is_sigmoid || is_softmax(n)))
        return output;
    out->last_activation = n;
    out->multi_label = is_sigmoid;
    return n->in[0];
}

/* marks the nodes that the output depends on; nodes are in an order of execution */
static td_status find_needed(td_importer *im, const char *output)
{
    td_map wanted = { 0 };
    td_status st = td_map_set(&wanted, output, im);
    im->is_needed = td_alloc(im->m->n_nodes + 1, sizeof *im->is_needed);
    if (!im->is_needed)
        st = TD_ENOMEM;
    for (size_t i = im->m->n_nodes; i-- > 0 && st == TD_OK;) {
        const td_onnx_node *n = &im->m->nodes[i];
        for (int k = 0; k < n->n_out; k++)
            im->is_needed[i] = im->is_needed[i] || td_map_has(&wanted, n->out[k]);
        for (int k = 0; k < n->n_in && im->is_needed[i] && st == TD_OK; k++)
            st = td_map_set(&wanted, n->in[k], im);
    }
    td_map_release(&wanted);
    return st;
}

static td_status get_model_output(td_importer *im, const char *name)
{
    td_value *v = td_map_get(&im->values, name);
    const td_type t = v ? td_value_type(v) : (td_type){ 0 };
    if (t.rank == 2) {
        td_output(im->b, "logits", v);
        return TD_OK;
    }
    td_text text = { 0 };
    if (v)
        td_type_print(&t, &text);
    const td_status st = td_error(TD_EUNSUPPORTED, "'%s': output '%s' is not [N,classes], but %s",
                                  im->what, name, v ? td_text_get(&text) : "a constant");
    td_text_release(&text);
    return st;
}

static td_status get_model(td_importer *im, td_onnx_graph *out)
{
    const char *output;
    TD_TRY(index_names(im));
    TD_TRY(choose_output(im, &output));
    output = without_activation(im, output, out);
    if (im->m->outputs.n > 1 || im->o->output || out->last_activation)
        TD_TRY(find_needed(im, output));
    td_onnx_find_preparation(im->m, &out->preparation);
    TD_TRY(get_images(im, out));
    for (size_t i = 0; i < im->m->n_nodes; i++)
        if (!im->is_needed || im->is_needed[i])
            TD_TRY(get_node(im, &im->m->nodes[i]));
    return get_model_output(im, output);
}

/* is it a part of the network?  A detector's post-processing has Shape, too */
static bool is_network(const td_importer *im, const td_onnx_node *n)
{
    return row_of(im, n) || (im->is_classifier && strcmp(n->op, "Shape") == 0);
}

static td_status get_all(td_importer *im, td_onnx_graph *out)
{
    TD_TRY(index_names(im));
    TD_TRY(get_images(im, out));
    out->first_post = out->n_prepared;
    for (; out->first_post < im->m->n_nodes && is_network(im, &im->m->nodes[out->first_post]);
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
    td_map_release(&im.wide);
    td_onnx_folder_release(&im.folder);
    td_free(im.is_needed);
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
