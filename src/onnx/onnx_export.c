/*
 * onnx_export.c -- exports a graph as an ONNX model: input, ops, outputs
 *
 * Tensors keep the names of the weights, nodes are named LAYER/OPERATOR, results NODE:0.  To find
 * the dimensions that depend on the batch, two graphs are compared whose batches differ by one
 * image: dimensions that differ by one are "N"; others that differ have no name.  Those that depend
 * on the size of the images are found likewise (onnx_open_dims.c).
 */
#include "onnx/onnx_export.h"

#include <string.h>

#include "base/arena.h"
#include "boxes/anchors.h"
#include "onnx/onnx_write.h"
#include "ops/ops.h"

/* --- input and outputs ------------------------------------------------------------------------ */

static const char *per_channel(td_onnx_writer *e, const td_node *n, const char *op,
                               const char *what, const float values[3], const char *x,
                               const td_onnx_value *type)
{
    const int64_t dim[4] = { 1, n->out[0]->type.dim[1], 1, 1 };
    const char *c =
        td_writer_constant(e, n, what, TD_DT_F32, 4, dim, values, (size_t)dim[1] * sizeof *values);
    return TD_WRITER_ADD(e, op, n, type, x, c);
}

const td_norm *td_onnx_norm(const td_model_opts *model)
{
    if (model->norm.std[0] > 0)
        return &model->norm;
    return td_model_channels(model) == 1 ? &td_norm_gray
                                         : td_norm_of_detector(td_model_detector(model));
}

/* converts bytes to (pixel - mean) / std */
static void put_images(td_onnx_writer *e, const td_node *n)
{
    const td_norm *norm = td_onnx_norm(&e->o->model);
    td_onnx_value plain = td_writer_shape(e, n->out[0]), in;
    const char *v = td_writer_name(e, n->out[0]->name, "");
    for (int d = 2; d < 4; d++)
        if (plain.dim[d].value < 0)
            plain.dim[d].param = d == 2 ? "height" : "width";
    in = plain;
    if (e->o->input == TD_ONNX_IN_BYTES) {
        in.dtype = TD_DT_U8;
        in.dim[1] = plain.dim[2];
        in.dim[2] = plain.dim[3];
        in.dim[3] = plain.dim[1];
    }
    in.name = v;
    td_onnx_add_value(e->m, &e->m->inputs, &in);
    if (e->o->input == TD_ONNX_IN_BYTES) {
        in.dtype = TD_DT_F32;
        v = TD_WRITER_ADD(e, "Cast", n, &in, v);
        td_onnx_attr_int(e->m, "to", td_onnx_dtype_number(TD_DT_F32));
        v = TD_WRITER_ADD(e, "Transpose", n, &plain, v);
        TD_WRITER_INTS(e, "perm", 0, 3, 1, 2);
    }
    if (e->o->input != TD_ONNX_IN_NORMALISED) {
        v = per_channel(e, n, "Sub", "/mean", norm->mean, v, &plain);
        if (norm != &td_norm_vgg) /* that one has only means */
            v = per_channel(e, n, "Div", "/std", norm->std, v, &plain);
    }
    td_writer_result(e, n, v);
}

/* renames `from` to `to` in nodes and shapes; its type moves to the outputs */
static void rename_output(td_onnx_writer *e, const char *from, const char *to)
{
    td_onnx *m = e->m;
    td_onnx_values *between = &m->values;
    for (size_t i = 0; i < m->n_nodes; i++)
        for (int k = 0; k < m->nodes[i].n_in + m->nodes[i].n_out; k++)
            if (strcmp(m->nodes[i].in[k], from) == 0) /* in[] also has the results, at its end */
                m->nodes[i].in[k] = to;
    for (size_t i = 0; i < between->n; i++)
        if (strcmp(between->at[i].name, from) == 0) {
            td_onnx_value v = between->at[i];
            v.name = to;
            memmove(&between->at[i], &between->at[i + 1],
                    (between->n - i - 1) * sizeof *between->at);
            between->n--;
            td_onnx_add_value(m, &m->outputs, &v);
            return;
        }
}

/* a graph output's name in the model; NULL: not exported */
static const char *output_name(const td_onnx_writer *e, const char *output)
{
    bool is_detector = !td_graph_output_value(e->g, "logits");
    if (strcmp(output, "logits") == 0)
        return "logits";
    if (e->o->probabilities && strcmp(output, "probabilities") == 0)
        return "probabilities";
    if (is_detector && strcmp(output, "codes") == 0)
        return "codes";
    return is_detector && strcmp(output, "scores") == 0 ? "logits" : NULL;
}

static void put_output(td_onnx_writer *e, const char *output)
{
    const td_value *v = td_graph_output_value(e->g, output);
    const char *to = output_name(e, output);
    if (!v || !to || !td_writer_is_ok(e))
        return;
    td_onnx_value type = td_writer_shape(e, v);
    td_node as_operand = { .op = v->producer->op,
                           .in = (td_value *[]){ v->producer->out[v->index] } };
    const char *name = td_writer_operand(e, &as_operand, 0);
    if (v->producer->op->is_leaf)
        name = TD_WRITER_ADD(e, "Identity", v->producer, &type, name);
    rename_output(e, name, to);
    e->name[v->id] = to;
}

/* --- entry point ------------------------------------------------------------------------------ */

/* marks the nodes that outputs depend on */
static void mark(td_onnx_writer *e)
{
    for (int i = 0; i < e->g->n_outputs; i++)
        if (output_name(e, e->g->outputs[i].name))
            e->wanted[e->g->outputs[i].value->producer->id] = true;
    for (int i = e->g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; e->wanted[i] && k < e->g->nodes[i]->n_in; k++)
            e->wanted[e->g->nodes[i]->in[k]->producer->id] = true;
}

/* finds the biases that become operands of their convolutions */
static void find_biases(td_onnx_writer *e)
{
    for (int i = 0; i < e->g->n_nodes; i++) {
        const td_node *n = e->g->nodes[i];
        bool has_biases = n->op == &td_op_bias_add || n->op == &td_op_join_heads;
        for (int k = 0; has_biases && k + 1 < n->n_in; k += 2)
            if (n->in[k]->producer->op == &td_op_conv2d && n->in[k]->n_uses == 1 &&
                td_value_is_param(n->in[k + 1]))
                e->bias[n->in[k]->id] = n->in[k + 1];
    }
}

static void put_all(td_onnx_writer *e)
{
    mark(e);
    find_biases(e);
    /* reserve the names of outputs */
    for (int i = 0; i < e->g->n_outputs && td_writer_is_ok(e); i++)
        if (output_name(e, e->g->outputs[i].name))
            td_writer_stop(e, td_map_set(&e->used, output_name(e, e->g->outputs[i].name), e));
    for (int i = 0; i < e->g->n_nodes && td_writer_is_ok(e); i++) {
        const td_node *n = e->g->nodes[i];
        if (n->op == &td_op_input)
            put_images(e, n);
        else if (e->wanted[i] && n->op != &td_op_param && n->op != &td_op_constant)
            td_writer_put(e, n);
    }
    static const char *const outputs[] = { "logits", "probabilities", "codes", "scores" };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        put_output(e, outputs[i]);
}

td_status td_onnx_of_graph(const td_graph *g, const td_graph *other, const td_graph *larger,
                           td_program *p, const td_map *integers, const td_onnx_opts *opts,
                           td_onnx *m)
{
    td_onnx_writer e = {
        .m = m, .g = g, .other = other, .larger = larger, .p = p, .o = opts, .integers = integers
    };
    TD_CHECK(!larger || td_onnx_same_nodes(g, larger));
    if (other && !td_onnx_same_nodes(g, other))
        return td_error(TD_EUNSUPPORTED,
                        "the graph depends on the batch size: fix it with --batch-size");
    e.name = td_alloc((size_t)g->n_values + 1, sizeof *e.name);
    e.rank = td_alloc((size_t)g->n_values + 1, sizeof *e.rank);
    e.wanted = td_alloc((size_t)g->n_nodes + 1, sizeof *e.wanted);
    e.bias = td_alloc((size_t)g->n_values + 1, sizeof *e.bias);
    if (e.name && e.rank && e.wanted && e.bias)
        put_all(&e);
    else
        td_writer_stop(&e, TD_ENOMEM);
    td_map_release(&e.used);
    td_free(e.name);
    td_free(e.rank);
    td_free(e.wanted);
    td_free(e.bias);
    return m->st;
}
