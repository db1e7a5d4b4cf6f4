/*
 * onnx_restore.c -- the weight file of a network that td_onnx_export has written
 *
 * The metadata name the network, its parameters the tensors.  Where a norm was folded into a
 * convolution, the file has only the product: the norm becomes gamma 1, beta = the bias, mean 0,
 * var = 1 - eps.  With several norms for one filter, each row of the filter is that of the norm
 * where it is largest, and the other norms' gammas are the rows' ratios to it.
 */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_file.h"
#include "io/atomic.h"
#include "onnx/onnx_export.h"
#include "onnx/onnx_qdq.h"
#include "ops/ops.h"
#include "optim/training_graph.h"

#define RATIO_ERROR 0.02 /* two steps of 127, relative to the largest element of a row */

typedef struct {
    const char *path;
    td_onnx *model;
    td_model_opts network;
    td_graph *graph;
    td_arena texts;
    td_onnx_folded *folded;
    int n_folded;
    td_map tensors;   /* name -> td_tensor of the model */
    td_tensors *wide; /* f32, and all metadata */
    td_tensors *out;  /* to be written */
    td_quantization quantization;
} job;

static void release(job *j)
{
    td_quantization_release(&j->quantization);
    td_tensors_free(j->out);
    td_tensors_free(j->wide);
    td_map_release(&j->tensors);
    td_free(j->folded);
    td_arena_release(&j->texts);
    td_graph_free(j->graph);
    td_onnx_free(j->model);
}

/* --- the network ------------------------------------------------------------------------------ */

static bool is_of_the_export(const char *key)
{
    return strcmp(key, "tandem.input") == 0 || strcmp(key, "tandem.mean") == 0 ||
           strcmp(key, "tandem.std") == 0;
}

static td_status copy_meta(job *j)
{
    const bool has_graph = td_onnx_meta_find(j->model, "tandem.graph") != NULL;
    for (size_t i = 0; i < j->model->n_meta; i++) {
        const char *key = j->model->meta[i].key;
        if (!td_text_starts(key, "tandem.") || is_of_the_export(key) ||
            (has_graph && strcmp(key, "tandem.arch") == 0))
            continue;
        TD_TRY_MSG(td_tensors_set_meta(j->wide, key, j->model->meta[i].value), "'%s'", j->path);
    }
    return td_tensors_set_meta(j->wide, "tandem.kind", "weights");
}

static bool describes_network(const td_onnx *m)
{
    return td_onnx_meta_find(m, "tandem.arch") || td_onnx_meta_find(m, "tandem.graph");
}

td_status td_onnx_is_export(const char *path, bool *out)
{
    td_onnx *m;
    *out = false;
    TD_TRY(td_onnx_read(path, &m));
    *out = describes_network(m);
    td_onnx_free(m);
    return TD_OK;
}

static td_status open_network(job *j)
{
    td_model_defaults(&j->network);
    TD_TRY(td_onnx_read(j->path, &j->model));
    if (!describes_network(j->model))
        return td_error(TD_EUNSUPPORTED,
                        "'%s' does not describe its network as a file of 'tandem convert' does: "
                        "its weights cannot be named",
                        j->path);
    TD_TRY(td_tensors_new(&j->wide));
    TD_TRY(copy_meta(j));
    td_weight_metadata_apply(j->wide, true, &j->network);
    TD_TRY(td_model_resolve_images(&j->network));
    TD_TRY_MSG(td_inference_graph(&j->network, 1, NULL, &j->graph), "'%s'", j->path);
    TD_TRY_MSG(td_onnx_qdq_folded(j->graph, &j->texts, &j->folded, &j->n_folded), "'%s'", j->path);
    for (size_t i = 0; i < j->model->n_tensors; i++)
        TD_TRY(td_map_set(&j->tensors, j->model->tensors[i].name, &j->model->tensors[i]));
    return TD_OK;
}

/* --- weights ---------------------------------------------------------------------------------- */

/* the elements of tensor `name`, `count` floats; release with td_free */
static td_status floats_of(const job *j, const char *name, int64_t count, float **out)
{
    const td_tensor *t = td_map_get(&j->tensors, name);
    *out = NULL;
    if (!t)
        return td_error(TD_EUNSUPPORTED, "'%s' has no tensor '%s', which the network has", j->path,
                        name);
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n = td_mul_capped(n, t->dim[i]);
    const bool is_float = t->dtype == TD_DT_F32 || td_dtype_is_half(t->dtype);
    if (n != count || !(is_float || t->dtype == TD_DT_S8 || t->dtype == TD_DT_I32))
        return td_error(TD_EUNSUPPORTED,
                        "'%s': tensor '%s' has another shape or type than in the "
                        "network",
                        j->path, name);
    if (!is_float && !td_onnx_scales(j->model, t))
        return td_error(TD_EFORMAT, "'%s': the integers '%s' have no scale for each row", j->path,
                        name);
    *out = td_onnx_numbers(j->model, t);
    return *out ? TD_OK : TD_ENOMEM;
}

/* a tensor of parameter `name`; *data may be written */
static td_status add(job *j, const char *name, float **data)
{
    const td_type *t = &td_graph_find(j->graph, name)->type;
    void *bytes = NULL;
    TD_TRY(td_tensors_add_new(j->wide, name, TD_DT_F32, t->rank, t->dim, &bytes));
    *data = bytes;
    return TD_OK;
}

static float largest(const float *row, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(row[i]));
    return most;
}

/* the ratio of row `a` to row `b`; NaN if they are not proportional */
static float ratio_of(const float *a, const float *b, int64_t n)
{
    double ab = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        bb += (double)b[i] * (double)b[i];
    }
    const double ratio = bb > 0 ? ab / bb : 1, most = fabs(ratio) * (double)largest(b, n);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - ratio * (double)b[i]) <= RATIO_ERROR * most))
            return NAN;
    return (float)ratio;
}

static bool is_same_filter(const td_onnx_folded *a, const td_onnx_folded *b)
{
    return strcmp(a->filter, b->filter) == 0;
}

/* filter [rows, each] of convolution i and those that share it: the largest row of all */
static td_status add_filter(job *j, int i, float *filter, int64_t rows, int64_t each)
{
    for (int l = i; l < j->n_folded; l++) {
        float *w;
        if (!is_same_filter(&j->folded[l], &j->folded[i]))
            continue;
        TD_TRY(floats_of(j, j->folded[l].weight, rows * each, &w));
        for (int64_t k = 0; k < rows; k++)
            if (largest(w + k * each, each) > largest(filter + k * each, each))
                memcpy(filter + k * each, w + k * each, (size_t)each * sizeof *w);
        td_free(w);
    }
    return TD_OK;
}

static td_status add_constant(job *j, const char *name, double value)
{
    float *data;
    const int64_t n = td_type_count(&td_graph_find(j->graph, name)->type);
    TD_TRY(add(j, name, &data));
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)value;
    return TD_OK;
}

static td_status add_copy(job *j, const char *name, const char *from)
{
    const int64_t n = td_type_count(&td_graph_find(j->graph, name)->type);
    float *data, *numbers;
    TD_TRY(floats_of(j, from, n, &numbers));
    td_status st = add(j, name, &data);
    if (st == TD_OK)
        memcpy(data, numbers, (size_t)n * sizeof *data);
    td_free(numbers);
    return st;
}

static td_status add_gamma(job *j, const td_onnx_folded *f, const float *filter, int64_t rows,
                           int64_t each)
{
    float *gamma, *w;
    TD_TRY(add(j, f->gamma, &gamma));
    TD_TRY(floats_of(j, f->weight, rows * each, &w));
    td_status st = TD_OK;
    for (int64_t k = 0; k < rows && st == TD_OK; k++) {
        gamma[k] = ratio_of(w + k * each, filter + k * each, each);
        if (gamma[k] != gamma[k])
            st = td_error(TD_EUNSUPPORTED,
                          "'%s': row %lld of '%s' is no multiple of that filter's "
                          "other rows",
                          j->path, (long long)k, f->weight);
    }
    td_free(w);
    return st;
}

static td_status add_norm(job *j, const td_onnx_folded *f, const float *filter, int64_t rows,
                          int64_t each)
{
    if (!f->gamma)
        return TD_OK;
    TD_TRY(add_gamma(j, f, filter, rows, each));
    TD_TRY(add_copy(j, f->beta, f->bias));
    TD_TRY(add_constant(j, f->mean, 0));
    return add_constant(j, f->var, 1 - f->eps);
}

/* the filter of convolution i, and the norms of all convolutions that share it */
static td_status add_convs(job *j, int i)
{
    const td_type *t = &td_graph_find(j->graph, j->folded[i].filter)->type;
    const int64_t rows = t->dim[0], each = td_type_count(t) / rows;
    float *filter;
    if (td_tensors_get(j->wide, j->folded[i].filter))
        return TD_OK;
    TD_TRY(add(j, j->folded[i].filter, &filter));
    TD_TRY(add_filter(j, i, filter, rows, each));
    for (int l = i; l < j->n_folded; l++)
        if (is_same_filter(&j->folded[l], &j->folded[i]))
            TD_TRY(add_norm(j, &j->folded[l], filter, rows, each));
    return TD_OK;
}

/* An export in floats has all parameters; one in QDQ form those that were not folded. */
static td_status add_weights(job *j)
{
    bool is_folded = false;
    for (int i = 0; i < j->n_folded; i++)
        is_folded =
            is_folded || (j->folded[i].gamma && !td_map_has(&j->tensors, j->folded[i].gamma));
    for (int i = 0; i < j->n_folded && is_folded; i++)
        TD_TRY(add_convs(j, i));
    for (int i = 0; i < j->graph->n_values; i++) {
        const td_value *v = j->graph->values[i];
        if (td_value_is_param(v) && !td_tensors_get(j->wide, v->name))
            TD_TRY(add_copy(j, v->name, v->name));
    }
    return TD_OK;
}

/* --- ranges ----------------------------------------------------------------------------------- */

/* the range that the scale of a convolution's input represents; 0: it is not that of integers */
static double input_range(const job *j, const td_onnx_node *conv)
{
    float scale;
    const td_onnx_node *d = td_onnx_producer(j->model, conv->in[0]);
    const bool is_dequantized = d && strcmp(d->op, "DequantizeLinear") == 0 && d->n_in == 3;
    const td_tensor *s = is_dequantized ? td_map_get(&j->tensors, d->in[1]) : NULL;
    const td_tensor *zero = is_dequantized ? td_map_get(&j->tensors, d->in[2]) : NULL;
    if (!s || !zero || s->dtype != TD_DT_F32 || s->n_bytes != sizeof scale)
        return 0;
    memcpy(&scale, s->data, sizeof scale);
    return (double)scale * (zero->dtype == TD_DT_U8 ? UINT8_MAX : TD_INT8_MAX);
}

/* the convolution whose filter is the dequantized tensor `name` */
static const td_onnx_node *conv_of(const td_onnx *m, const char *name)
{
    for (size_t i = 0; i < m->n_nodes; i++) {
        const td_onnx_node *n = &m->nodes[i];
        const td_onnx_node *w =
            strcmp(n->op, "Conv") == 0 && n->n_in > 1 ? td_onnx_producer(m, n->in[1]) : NULL;
        if (w && strcmp(w->op, "DequantizeLinear") == 0 && w->n_in && !strcmp(w->in[0], name))
            return n;
    }
    return NULL;
}

static bool is_same_range(double a, float b)
{
    return fabs(a - (double)b) <= 1e-5 * (double)b;
}

/* a value has the output range of its producer, if that has a row, otherwise the input range of its
   reader (pass/quantize.c) */
static bool is_input_range(const td_quantization *q, const td_activation_range *reader,
                           double range)
{
    bool is_known = is_same_range(range, reader->input);
    for (int i = 0; i < q->n; i++)
        is_known = is_known || is_same_range(range, q->ranges[i].output);
    return is_known;
}

static td_status check_ranges(const job *j)
{
    for (int i = 0; i < j->quantization.n; i++) {
        const td_activation_range *r = &j->quantization.ranges[i];
        const td_onnx_node *conv = r->is_wide ? NULL : conv_of(j->model, r->weight);
        const double range = conv ? input_range(j, conv) : (double)r->input;
        if (!is_input_range(&j->quantization, r, range))
            return td_error(TD_EFORMAT,
                            "'%s': the input of '%s' has the range %g, but %g in the metadata "
                            "tandem.quantization",
                            j->path, r->weight, range, (double)r->input);
    }
    return TD_OK;
}

/* --- entry point ------------------------------------------------------------------------------ */

td_status td_onnx_restore(const char *path, const char *out_path, bool overwrite,
                          int64_t *n_tensors)
{
    td_status st = TD_OK;
    job j = { .path = path };
    *n_tensors = 0;
    td_arena_init(&j.texts);
    TD_OUT(td_weight_file_name_check("OUT", out_path));
    TD_OUT(td_output_check_new(out_path, overwrite));
    TD_OUT(open_network(&j));
    TD_OUT(add_weights(&j));
    TD_OUT(td_quantization_read(j.wide, path, &j.quantization));
    TD_OUT(check_ranges(&j));
    TD_OUT(td_tensors_new(&j.out));
    TD_OUT(td_quantization_add_tensors(&j.quantization, j.wide, j.out));
    for (size_t i = 0; i < td_tensors_meta_count(j.wide); i++) {
        const char *key = td_tensors_meta_key(j.wide, i);
        TD_OUT(td_tensors_set_meta(j.out, key, td_tensors_meta(j.wide, key)));
    }
    *n_tensors = (int64_t)td_tensors_count(j.out);
    st = td_tensors_write(j.out, out_path);
out:
    release(&j);
    return st;
}
