/*
 * onnx_qdq.c -- rewrites an inference graph of 8-bit integers to the QDQ form
 *
 *     g --fold, fuse, quantize--> conv2d_int8 ... --pass qdq--> conv2d_fused between dequantize and
 *                                                               quantize
 *
 * What depends on parameters only, such as filters scaled by norms, becomes a parameter.  Its
 * numbers come from a program that has these values as outputs.  Pass qdq also separates relu and
 * residual from the convolution: the file that is read back then has the same nodes, and so the
 * same sums before numbers are rounded to integers.
 */
#include "onnx/onnx_qdq.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/rewrite.h"
#include "ops/ops.h"
#include "pass/pass.h"
#include "pass/quantize.h"
#include "plan/plan.h"

#define BIAS_MAX 1073741824.0 /* 2^30: the sum of products needs the rest of 32 bits */

/* --- names of what depends on parameters only ------------------------------------------------- */

typedef struct {
    const td_graph *g;
    bool *is_fixed;      /* [nodes] */
    const char **weight; /* [nodes] of convolutions: their parameters in the QDQ form */
    const char **bias;   /* [nodes] */
    td_map used;         /* names */
    td_arena *texts;
} folding;

static int bias_at(const td_node *n)
{
    return n->op == &td_op_conv2d_int8 ? 3 : 2;
}

static bool is_folded_conv(const td_node *n)
{
    return n->op == &td_op_conv2d_int8 || (n->op == &td_op_conv2d_fused && n->n_in > bias_at(n));
}

static td_status unique(folding *f, const char *base, const char **out)
{
    char name[300];
    snprintf(name, sizeof name, "%.280s", base);
    for (int i = 2; td_map_has(&f->used, name); i++)
        snprintf(name, sizeof name, "%.280s_%d", base, i);
    *out = td_arena_text(f->texts, name);
    return *out ? td_map_set(&f->used, name, f) : TD_ENOMEM;
}

/* LAYER.bias for a convolution with the filter LAYER.weight */
static td_status name_bias(folding *f, const td_node *n, const char *weight)
{
    char base[300];
    const td_value *bias = n->in[bias_at(n)];
    const size_t length = strlen(weight);
    const int keep =
        td_text_ends(weight, ".weight") ? (int)(length - strlen(".weight")) : (int)length;
    if (td_value_is_param(bias))
        return unique(f, bias->name, &f->bias[n->id]);
    snprintf(base, sizeof base, "%.*s.bias", keep < 280 ? keep : 280, weight);
    return unique(f, base, &f->bias[n->id]);
}

/* the weight of a node that a previous one shares has the same name */
static const char *name_of_same(const folding *f, const td_node *n)
{
    for (int i = 0; i < n->id; i++)
        if (f->weight[i] && f->g->nodes[i]->in[1] == n->in[1])
            return f->weight[i];
    return NULL;
}

/* is operand k of `n` not one that the folding replaces? */
static bool is_own_operand(const folding *f, const td_node *n, int k)
{
    const bool is_replaced = f->weight[n->id] && k >= 1 && k <= bias_at(n);
    return !is_replaced && f->is_fixed[n->in[k]->producer->id];
}

static td_status name_conv(folding *f, const td_node *n)
{
    const td_value *filter = td_quantize_filter(n);
    const char *base = filter ? filter->name : td_node_label(n);
    if (!f->is_fixed[n->in[1]->producer->id] || !f->is_fixed[n->in[bias_at(n)]->producer->id])
        return TD_OK;
    f->weight[n->id] = name_of_same(f, n);
    if (!f->weight[n->id])
        TD_TRY(unique(f, base, &f->weight[n->id]));
    return name_bias(f, n, filter ? filter->name : f->weight[n->id]);
}

/* parameters that other nodes read keep their names */
static td_status reserve_names(folding *f)
{
    for (int i = 0; i < f->g->n_nodes; i++) {
        const td_node *n = f->g->nodes[i];
        for (int k = 0; !f->is_fixed[i] && k < n->n_in; k++)
            if (td_value_is_param(n->in[k]) && !(is_folded_conv(n) && k >= 1 && k <= bias_at(n)))
                TD_TRY(td_map_set(&f->used, n->in[k]->name, f));
    }
    return TD_OK;
}

static void folding_release(folding *f)
{
    td_free(f->is_fixed);
    td_free((void *)f->weight);
    td_free((void *)f->bias);
    td_map_release(&f->used);
}

static td_status folding_init(folding *f, const td_graph *g, td_arena *texts)
{
    *f = (folding){ .g = g, .texts = texts };
    TD_TRY(TD_ALLOC(f->weight, (size_t)g->n_nodes + 1));
    TD_TRY(TD_ALLOC(f->bias, (size_t)g->n_nodes + 1));
    TD_TRY(td_plan_fixed_new(g, &f->is_fixed));
    TD_TRY(reserve_names(f));
    for (int i = 0; i < g->n_nodes; i++)
        if (is_folded_conv(g->nodes[i]))
            TD_TRY(name_conv(f, g->nodes[i]));
    return TD_OK;
}

/* --- pass qdq --------------------------------------------------------------------------------- */

static td_value *param(td_rewriter *rw, const char *name, const td_value *like)
{
    const td_param_attr attr = { .role = TD_ROLE_STAT, .scale = 1 };
    td_type type = td_type_as(&like->type, TD_DT_F32);
    memset(type.layout, 0, sizeof type.layout);
    td_value *known = td_build_ok(rw->b) ? td_map_get(rw->state, name) : NULL;
    if (known)
        return known;
    td_value *v = td_emit_leaf(rw->b, &td_op_param, &attr, name, &type);
    if (td_build_ok(rw->b) && td_map_set(rw->state, name, v) != TD_OK)
        td_build_fail(rw->b, TD_ENOMEM);
    return v;
}

static td_value *dequantized(td_rewriter *rw, td_value *v, double scale)
{
    const td_quantize_attr a = { .scale = scale };
    return td_emit(rw->b, &td_op_dequantize, &a, v);
}

static td_value *clipped(td_rewriter *rw, td_value *v, bool has_relu, bool is_relu6)
{
    return !has_relu ? v : is_relu6 ? td_relu6(rw->b, v) : td_relu(rw->b, v);
}

static td_value *emit_conv(td_rewriter *rw, const folding *f, const td_node *n,
                           const td_conv_attr *a, td_value *x)
{
    return td_emit(rw->b, &td_op_conv2d_fused, a, x, param(rw, f->weight[n->id], n->in[1]),
                   param(rw, f->bias[n->id], n->in[bias_at(n)]));
}

static void lower_int8(td_rewriter *rw, const folding *f, const td_node *n)
{
    const td_conv_int8_attr *a = n->attr;
    const td_dtype result = td_int8_result(a);
    const td_conv_attr conv = { .stride = a->stride,
                                .pad = a->pad,
                                .dilation = a->dilation,
                                .groups = a->groups,
                                .pad_extra = a->pad_extra };
    td_value *y = emit_conv(rw, f, n, &conv, dequantized(rw, td_rw_get(rw, n->in[0]), a->x_scale));
    if (n->n_in > 4) {
        td_value *r = td_rw_get(rw, n->in[4]);
        y = td_add(rw->b, y, result == TD_DT_F32 ? r : dequantized(rw, r, a->residual_scale));
    }
    y = clipped(rw, y, a->relu, a->relu6);
    if (td_conv_act_op(a->act))
        y = td_emit(rw->b, td_conv_act_op(a->act), NULL, y);
    const td_quantize_attr to = { .scale = a->y_scale, .to = td_int8_to(result) };
    if (result != TD_DT_F32)
        y = td_emit(rw->b, &td_op_quantize, &to, y);
    td_rw_set(rw, n->out[0], y);
}

static void lower_wide(td_rewriter *rw, const folding *f, const td_node *n)
{
    td_conv_attr a = *(const td_conv_attr *)n->attr;
    const bool has_relu = a.relu, is_relu6 = a.relu6;
    const td_op *act = td_conv_act_op(a.act);
    a.relu = a.relu6 = false;
    a.act = TD_CONV_LINEAR;
    td_value *y = emit_conv(rw, f, n, &a, td_rw_get(rw, n->in[0]));
    if (n->n_in > 3)
        y = td_add(rw->b, y, td_rw_get(rw, n->in[3]));
    y = clipped(rw, y, has_relu, is_relu6);
    td_rw_set(rw, n->out[0], act ? td_emit(rw->b, act, NULL, y) : y);
}

/* copies the expression of `v`, which depends on parameters only */
static void copy_fixed(td_rewriter *rw, const td_value *v)
{
    const td_node *n = v->producer;
    if (rw->map[v->id] || !td_build_ok(rw->b))
        return;
    for (int i = 0; i < n->n_in; i++)
        copy_fixed(rw, n->in[i]);
    td_rw_copy(rw, n);
}

static void lower(td_rewriter *rw, const folding *f)
{
    for (int i = 0; i < rw->old->n_nodes && td_build_ok(rw->b); i++) {
        const td_node *n = rw->old->nodes[i];
        const bool is_conv = f->weight[i] != NULL;
        if (f->is_fixed[i])
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (is_own_operand(f, n, k))
                copy_fixed(rw, n->in[k]);
        if (!is_conv)
            td_rw_copy(rw, n);
        else if (n->op == &td_op_conv2d_int8)
            lower_int8(rw, f, n);
        else
            lower_wide(rw, f, n);
    }
    for (int i = 0; i < rw->old->n_outputs; i++)
        if (f->is_fixed[rw->old->outputs[i].value->producer->id])
            copy_fixed(rw, rw->old->outputs[i].value);
}

static void qdq_run(td_rewriter *rw)
{
    folding f;
    td_arena texts;
    td_map params = { 0 };
    td_arena_init(&texts);
    td_status st = folding_init(&f, rw->old, &texts);
    rw->state = &params;
    if (st == TD_OK)
        lower(rw, &f);
    else
        td_build_fail(rw->b, st);
    rw->state = NULL;
    td_map_release(&params);
    folding_release(&f);
    td_arena_release(&texts);
}

static const td_pass pass_qdq = {
    .name = "qdq",
    .summary = "convolutions of 8-bit integers as float32 between dequantize and quantize",
    .counts = "convolutions rewritten",
    .run = qdq_run,
};

/* --- the graphs ------------------------------------------------------------------------------- */

static bool supports_all(void *ctx, const td_node *n)
{
    (void)ctx;
    (void)n;
    return true;
}

static bool prefers_none(void *ctx, const td_node *n, td_node_layouts *out)
{
    (void)ctx;
    (void)n;
    (void)out;
    return false;
}

static td_status fold_graph_with(const td_graph *g, const td_activation_ranges *ranges,
                                 td_graph **out)
{
    static const td_pass *const passes[] = { &td_pass_fold, &td_pass_fuse, &td_pass_quantize };
    const td_target all = { .supports = supports_all,
                            .preferred_layout = prefers_none,
                            .is_reference = true };
    const td_amp_opts amp = { .precision = TD_PRECISION_INT8, .ranges = ranges, .is_silent = true };
    td_graph *now = NULL;
    *out = NULL;
    for (size_t i = 0; i < sizeof passes / sizeof *passes - !ranges; i++) {
        td_graph *next;
        td_status st = td_pass_run(passes[i], now ? now : g, &all, ranges ? &amp : NULL, &next);
        td_graph_free(now);
        TD_TRY(st);
        now = next;
    }
    *out = now;
    return TD_OK;
}

/* fold, fuse and, with ranges, quantize, whatever kernels there are; linear layers stay float32 */
static td_status fold_graph(const td_graph *g, const td_activation_ranges *ranges, td_graph **out)
{
    *out = NULL;
    if (!ranges)
        return fold_graph_with(g, NULL, out);
    td_activation_range *rows;
    TD_TRY(TD_ALLOC(rows, (size_t)ranges->n + 1));
    for (int i = 0; i < ranges->n; i++) {
        rows[i] = ranges->ranges[i];
        const td_value *weight = td_graph_find(g, rows[i].weight);
        rows[i].is_wide = rows[i].is_wide || (weight && weight->type.rank == 2);
    }
    const td_activation_ranges convs = { .n = ranges->n, .ranges = rows };
    td_status st = fold_graph_with(g, &convs, out);
    td_free(rows);
    return st;
}

td_status td_onnx_qdq_graph(const td_graph *g, const td_activation_ranges *ranges, td_graph **out)
{
    td_graph *narrow;
    *out = NULL;
    TD_TRY(fold_graph(g, ranges, &narrow));
    td_status st = td_pass_run(&pass_qdq, narrow, NULL, NULL, out);
    td_graph_free(narrow);
    return st;
}

/* --- what was folded -------------------------------------------------------------------------- */

/* the operand of `v`'s producer, if that is an `op`; otherwise NULL */
static const td_value *operand_of(const td_value *v, const td_op *op, int i)
{
    return v && v->producer->op == op && i < v->producer->n_in ? v->producer->in[i] : NULL;
}

static const char *param_name(const td_graph *g, const td_value *v)
{
    const td_value *own = v && td_value_is_param(v) ? td_graph_find(g, v->name) : NULL;
    return own ? own->name : NULL;
}

/* w * reshape(batch_norm_scale(gamma, var)), beta + scale(mean * s): fold.c */
static bool read_norm(const td_graph *g, const td_node *n, td_onnx_folded *f)
{
    const td_value *s = operand_of(operand_of(n->in[1], &td_op_mul, 1), &td_op_reshape, 0);
    const td_value *shift = operand_of(operand_of(n->in[2], &td_op_add, 1), &td_op_scale, 0);
    f->filter = param_name(g, operand_of(n->in[1], &td_op_mul, 0));
    f->gamma = param_name(g, operand_of(s, &td_op_batch_norm_scale, 0));
    f->var = param_name(g, operand_of(s, &td_op_batch_norm_scale, 1));
    f->beta = param_name(g, operand_of(n->in[2], &td_op_add, 0));
    f->mean = param_name(g, operand_of(shift, &td_op_mul, 0));
    if (!f->filter || !f->gamma || !f->var || !f->beta || !f->mean)
        return false;
    f->eps = ((const td_norm_attr *)s->producer->attr)->eps;
    return true;
}

static bool read_folded(const td_graph *g, const td_node *n, td_onnx_folded *f)
{
    f->filter = param_name(g, n->in[1]);
    f->own_bias = param_name(g, n->in[2]);
    return f->filter && f->own_bias ? true : read_norm(g, n, f);
}

static td_status list_folded(const td_graph *g, const folding *f, td_onnx_folded *out, int *n)
{
    for (int i = 0; i < f->g->n_nodes; i++) {
        if (!f->weight[i])
            continue;
        td_onnx_folded *x = &out[(*n)++];
        *x = (td_onnx_folded){ .weight = f->weight[i], .bias = f->bias[i] };
        if (!read_folded(g, f->g->nodes[i], x))
            return td_error(TD_EUNSUPPORTED,
                            "the weights of '%s' are not those of a convolution "
                            "and a norm",
                            x->weight);
    }
    return TD_OK;
}

td_status td_onnx_qdq_folded(const td_graph *g, td_arena *texts, td_onnx_folded **out, int *n)
{
    td_status st = TD_OK;
    td_graph *narrow = NULL;
    folding f = { 0 };
    *out = NULL;
    *n = 0;
    TD_OUT(fold_graph(g, NULL, &narrow));
    TD_OUT(TD_ALLOC(*out, (size_t)narrow->n_nodes + 1));
    TD_OUT(folding_init(&f, narrow, texts));
    st = list_folded(g, &f, *out, n);
out:
    folding_release(&f);
    td_graph_free(narrow);
    return st;
}

/* --- numbers ---------------------------------------------------------------------------------- */

typedef struct {
    td_onnx_qdq *q;
    td_program *from; /* has the network's parameters */
    td_device *dev;
    td_graph *narrow, *constants;
    td_program *computed; /* of `constants` */
    folding folding;
} numbers;

static void output_name(const td_value *v, char out[24])
{
    snprintf(out, 24, "v%d", v->id);
}

/* a graph with the weights, scales and biases of the convolutions as outputs */
static td_status make_constants(numbers *k)
{
    const td_graph *g = k->narrow;
    char name[24];
    td_rewriter rw = { .old = g, .b = td_build_begin() };
    rw.map = td_alloc((size_t)g->n_values + 1, sizeof *rw.map);
    if (!rw.map)
        td_build_fail(rw.b, TD_ENOMEM);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++)
        if (k->folding.is_fixed[i])
            td_rw_copy(&rw, g->nodes[i]);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++)
        for (int c = 1; k->folding.weight[i] && c <= bias_at(g->nodes[i]); c++) {
            const td_value *v = g->nodes[i]->in[c];
            output_name(v, name);
            if (!td_map_has(&k->folding.used, name))
                td_output(rw.b, name, td_rw_get(&rw, v));
            td_status st = td_map_set(&k->folding.used, name, k);
            if (st != TD_OK)
                td_build_fail(rw.b, st);
        }
    td_free(rw.map);
    return td_build_end(rw.b, &k->constants);
}

/* sets parameter i of `p` from the program `from`; a folded one keeps its value */
static td_status copy_param(td_program *from, td_program *p, int i)
{
    const char *name = td_program_param_name(p, i);
    const td_type type = td_program_param_type(p, i);
    void *data = td_alloc((size_t)td_type_count(&type) + 1, td_dtype_bytes(type.dtype));
    if (!data)
        return TD_ENOMEM;
    td_status st = td_program_get(from, name, data);
    if (st == TD_OK)
        st = td_program_set(p, name, data);
    td_free(data);
    return st;
}

static td_status compute_constants(numbers *k)
{
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    TD_TRY(make_constants(k));
    TD_TRY(td_compile(k->constants, k->dev, &(td_compile_opts){ .amp = &float32 }, &k->computed));
    for (int i = 0; i < td_program_param_count(k->computed); i++)
        TD_TRY(copy_param(k->from, k->computed, i));
    return td_program_run(k->computed);
}

static const void *number_of(const numbers *k, const td_value *v)
{
    char name[24];
    output_name(v, name);
    return td_program_output(k->computed, name, NULL);
}

/* integers and scales of one parameter; copies in the arena that may be changed */
typedef struct {
    void *integers;
    float *scale;
} copies;

static td_status add_integers(td_onnx_qdq *q, const char *name, td_dtype dtype, int64_t rows,
                              int64_t count, copies *out)
{
    td_onnx_integers *x = td_arena_alloc(&q->arena, 1, sizeof *x);
    out->integers = td_arena_alloc(&q->arena, (size_t)count, td_dtype_bytes(dtype));
    out->scale = td_arena_alloc(&q->arena, (size_t)rows, sizeof *out->scale);
    if (!x || !out->integers || !out->scale)
        return TD_ENOMEM;
    *x = (td_onnx_integers){ dtype, out->integers, out->scale, rows };
    return td_map_set(&q->integers, name, x);
}

/* a larger scale for row k where a bias would have more than 30 bits */
static void widen_scale(const float *bias, double x_scale, int64_t k, int64_t each, copies *w)
{
    const double least = fabs((double)bias[k]) / (x_scale * BIAS_MAX);
    int8_t *row = (int8_t *)w->integers + k * each;
    if ((double)w->scale[k] >= least)
        return;
    const double ratio = (double)w->scale[k] / least;
    w->scale[k] = (float)least;
    for (int64_t i = 0; i < each; i++)
        row[i] = (int8_t)rint(row[i] * ratio);
}

static td_status add_filter(numbers *k, const td_node *n, copies *out)
{
    const td_type *t = td_in_type(n, 1);
    const int64_t count = td_type_count(t), each = count / t->dim[0];
    const double x_scale = ((const td_conv_int8_attr *)n->attr)->x_scale;
    TD_TRY(add_integers(k->q, k->folding.weight[n->id], TD_DT_S8, t->dim[0], count, out));
    memcpy(out->integers, number_of(k, n->in[1]), (size_t)count);
    memcpy(out->scale, number_of(k, n->in[2]), (size_t)t->dim[0] * sizeof *out->scale);
    for (int64_t row = 0; row < t->dim[0]; row++)
        widen_scale(number_of(k, n->in[3]), x_scale, row, each, out);
    return TD_OK;
}

static td_status add_bias(numbers *k, const td_node *n, const float *scale)
{
    const int64_t rows = td_in_type(n, 1)->dim[0];
    const double x_scale = ((const td_conv_int8_attr *)n->attr)->x_scale;
    const float *bias = number_of(k, n->in[3]);
    copies b;
    TD_TRY(add_integers(k->q, k->folding.bias[n->id], TD_DT_I32, rows, rows, &b));
    for (int64_t row = 0; row < rows; row++) {
        b.scale[row] = (float)(x_scale * (double)scale[row]);
        const double steps = b.scale[row] > 0 ? (double)bias[row] / (double)b.scale[row] : 0;
        if (!(fabs(steps) <= INT32_MAX))
            return td_error(TD_EUNSUPPORTED, "bias %lld of '%s' has more than 32 bits",
                            (long long)row, k->folding.weight[n->id]);
        ((int32_t *)b.integers)[row] = (int32_t)rint(steps);
    }
    return TD_OK;
}

static td_status set_integers(numbers *k, const char *name, int64_t count)
{
    const td_onnx_integers *x = td_map_get(&k->q->integers, name);
    float *wide;
    TD_TRY(TD_ALLOC(wide, (size_t)count));
    for (int64_t i = 0; i < count; i++)
        wide[i] = x->scale[i / (count / x->rows)] *
                  (x->dtype == TD_DT_S8 ? (float)((const int8_t *)x->integers)[i]
                                        : (float)((const int32_t *)x->integers)[i]);
    td_status st = td_program_set(k->q->program, name, wide);
    td_free(wide);
    return st;
}

/* the weights of convolution `n` in the program of the QDQ form */
static td_status set_conv(numbers *k, const td_node *n)
{
    const char *weight = k->folding.weight[n->id], *bias = k->folding.bias[n->id];
    const td_value *b = n->in[bias_at(n)];
    if (n->op != &td_op_conv2d_int8) {
        TD_TRY(td_program_set(k->q->program, weight, number_of(k, n->in[1])));
        return td_program_set(k->q->program, bias, number_of(k, b));
    }
    const td_onnx_integers *known = td_map_get(&k->q->integers, weight);
    copies w;
    if (!known)
        TD_TRY(add_filter(k, n, &w));
    TD_TRY(add_bias(k, n, known ? known->scale : w.scale));
    TD_TRY(set_integers(k, weight, td_type_count(td_in_type(n, 1))));
    return set_integers(k, bias, td_type_count(&b->type));
}

static bool is_folded_name(const numbers *k, const char *name)
{
    for (int i = 0; i < k->narrow->n_nodes; i++)
        if (k->folding.weight[i] &&
            (strcmp(k->folding.weight[i], name) == 0 || strcmp(k->folding.bias[i], name) == 0))
            return true;
    return false;
}

static td_status set_all(numbers *k)
{
    td_program *p = k->q->program;
    for (int i = 0; i < td_program_param_count(p); i++)
        if (!is_folded_name(k, td_program_param_name(p, i)))
            TD_TRY(copy_param(k->from, p, i));
    for (int i = 0; i < k->narrow->n_nodes; i++)
        if (k->folding.weight[i])
            TD_TRY(set_conv(k, k->narrow->nodes[i]));
    return k->q->integers.n
               ? TD_OK
               : td_error(TD_EUNSUPPORTED, "no convolution of the network is quantized");
}

td_status td_onnx_qdq_init(const td_graph *g, const td_activation_ranges *ranges, td_program *p,
                           td_device *dev, td_onnx_qdq *out)
{
    const td_amp_opts float32 = { .precision = TD_PRECISION_FP32 };
    numbers k = { .q = out, .from = p, .dev = dev };
    td_status st = TD_OK;
    *out = (td_onnx_qdq){ 0 };
    td_arena_init(&out->arena);
    TD_OUT(fold_graph(g, ranges, &k.narrow));
    TD_OUT(folding_init(&k.folding, k.narrow, &out->arena));
    TD_OUT(compute_constants(&k));
    TD_OUT(td_pass_run(&pass_qdq, k.narrow, NULL, NULL, &out->graph));
    TD_OUT(td_compile(out->graph, dev, &(td_compile_opts){ .amp = &float32, .skip = TD_ONNX_SKIP },
                      &out->program));
    st = set_all(&k);
out:
    td_program_free(k.computed);
    td_graph_free(k.constants);
    folding_release(&k.folding);
    td_graph_free(k.narrow);
    return st;
}

void td_onnx_qdq_release(td_onnx_qdq *q)
{
    td_program_free(q->program);
    td_graph_free(q->graph);
    td_map_release(&q->integers);
    td_arena_release(&q->arena);
    *q = (td_onnx_qdq){ 0 };
}
