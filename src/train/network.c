/*
 * network.c -- from a model to the graphs that a job runs
 */
#include "train/network.h"

#include <stdio.h>
#include <string.h>

#include "ir/rewrite.h"
#include "ops/ops.h"

bool td_is_undecayed(const char *name)
{
    return strstr(name, "bn") != NULL;
}

td_status td_model_image_size(const td_model_opts *opts, int *out)
{
    td_model_opts o = *opts;
    TD_TRY(td_model_resolve(&o)); /* the architecture's size, or the graph file's */
    *out = o.image_size;
    return TD_OK;
}

static bool is_trained(const td_value *v)
{
    return ((const td_param_attr *)v->producer->attr)->role == TD_ROLE_WEIGHT;
}

/* What every update of a step reads; without loss scaling inverse and finite are NULL. */
typedef struct {
    td_value *lr, *inverse, *finite; /* scalars */
} step_inputs;

static void add_update(td_builder *b, td_value *w, td_value *grad, const step_inputs *in,
                       const td_sgd_opts *sgd)
{
    char name[300];
    const td_type t = td_value_type(w);
    td_sgd_attr attr = { .momentum = sgd->momentum,
                         .decay = sgd->decay,
                         .nesterov = sgd->nesterov };
    if (!sgd->decays_norms && td_is_undecayed(td_value_name(w)))
        attr.decay = 0;
    snprintf(name, sizeof name, TD_MOMENTUM_PREFIX "%s", td_value_name(w));
    td_value *v = td_param(b, name, t.dtype, t.rank, t.dim, "role=momentum");
    td_emit(b, &td_op_sgd, &attr, w, v, grad, in->lr, in->inverse, in->finite);
}

/* each gradient is followed by its update, which frees it */
static void add_updates(td_builder *b, td_value *loss, td_value *lr, const td_sgd_opts *sgd)
{
    const step_inputs in = { .lr = lr };
    int n = td_build_param_count(b);
    for (int i = 0; i < n && td_build_ok(b); i++) {
        td_value *w = td_build_param(b, i);
        if (is_trained(w))
            add_update(b, w, td_gradient(b, loss, w), &in, sgd);
    }
}

/* --- loss scaling ----------------------------------------------------------------------------- */

/*
 * All gradients of the scaled loss first, then whether they are finite, then the updates.  The loss
 * is asked too: one that is not finite is worth no update, whatever its gradients are.
 */
static void add_scaled_updates(td_builder *b, td_value *loss, td_value *lr, const td_sgd_opts *sgd)
{
    const td_type scalar = td_value_type(lr);
    td_value *scaled = td_mul(b, loss, td_input(b, TD_INPUT_SCALE, scalar));
    step_inputs in = { .lr = lr, .inverse = td_input(b, TD_INPUT_INVERSE, scalar) };
    int n = td_build_param_count(b);
    td_value **grad = td_alloc((size_t)n + 1, sizeof *grad);
    if (!grad) {
        td_build_fail(b, TD_ENOMEM);
        return;
    }
    in.finite = td_emit(b, &td_op_all_finite, NULL, loss);
    for (int i = 0; i < n && td_build_ok(b); i++)
        if (is_trained(td_build_param(b, i))) {
            grad[i] = td_gradient(b, scaled, td_build_param(b, i));
            in.finite = td_emit(b, &td_op_all_finite, NULL, grad[i], in.finite);
        }
    for (int i = 0; i < n && td_build_ok(b); i++)
        if (grad[i])
            add_update(b, td_build_param(b, i), grad[i], &in, sgd);
    td_output(b, TD_OUTPUT_FINITE, in.finite);
    td_free(grad);
}

static bool is_statistics(const td_node *n)
{
    return strcmp(n->op->name, td_op_batch_norm_update.name) == 0;
}

/*
 * The forward part asks for the update of running statistics, long before it is known whether the
 * step counts: move those nodes to the end, where `finite` is there for them to obey.
 */
static td_status guard_statistics(const td_graph *g, td_graph **out)
{
    td_value *in[TD_IN_MAX];
    td_rewriter rw = { .old = g, .b = td_build_begin() };
    rw.map = td_alloc((size_t)g->n_values + 1, sizeof *rw.map);
    if (!rw.map)
        td_build_fail(rw.b, TD_ENOMEM);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++)
        if (!is_statistics(g->nodes[i]))
            td_rw_copy(&rw, g->nodes[i]);
    for (int i = 0; i < g->n_nodes && td_build_ok(rw.b); i++)
        if (is_statistics(g->nodes[i])) {
            const td_node *n = g->nodes[i];
            td_rw_operands(&rw, n, in);
            in[n->n_in] = td_rw_get(&rw, td_graph_output_value(g, TD_OUTPUT_FINITE));
            td_emit_n(rw.b, n->op, n->attr, n->n_in + 1, in, NULL);
        }
    for (int i = 0; i < g->n_outputs && td_build_ok(rw.b); i++)
        td_output(rw.b, g->outputs[i].name, td_rw_get(&rw, g->outputs[i].value));
    td_free(rw.map);
    return td_build_end(rw.b, out);
}

/* --- the two graphs --------------------------------------------------------------------------- */

static td_value *image_input(td_builder *b, int batch, int size, td_dtype dtype)
{
    return td_input(b, "images", td_type_4d(dtype ? dtype : TD_DT_F32, batch, 3, size, size));
}

static td_value *targets(td_builder *b, int batch, td_value *logits, double smoothing)
{
    td_value *labels = td_input(b, "labels", td_type_1d(TD_DT_I64, batch));
    int classes = (int)logits->type.dim[logits->type.rank > 1];
    return td_cast(b, td_one_hot(b, labels, classes, smoothing), logits->type.dtype);
}

static td_status plain_training_graph(const td_model_opts *model, int batch, int size,
                                      const td_sgd_opts *sgd, td_graph **out)
{
    td_builder *b = td_build_begin();
    td_value *images = image_input(b, batch, size, model->dtype);
    td_value *lr = td_input(b, "lr", td_type_scalar(model->dtype ? model->dtype : TD_DT_F32));
    td_value *logits = td_model_forward(b, model, images, true);
    if (td_build_ok(b)) {
        td_value *q = targets(b, batch, logits, sgd->smoothing);
        td_value *loss = td_mean(b, td_softmax_cross_entropy(b, logits, q));
        if (sgd->is_scaled)
            add_scaled_updates(b, loss, lr, sgd);
        else
            add_updates(b, loss, lr, sgd);
        td_output(b, "loss", loss);
        td_output(b, "logits", logits);
    }
    return td_build_end(b, out);
}

td_status td_training_graph(const td_model_opts *model, int batch, const td_sgd_opts *sgd,
                            td_graph **out)
{
    int size;
    td_graph *plain = NULL;
    *out = NULL;
    TD_TRY(td_model_image_size(model, &size));
    td_status st = plain_training_graph(model, batch, size, sgd, &plain);
    if (st == TD_OK && sgd->is_scaled) {
        st = guard_statistics(plain, out);
        td_graph_free(plain);
    } else {
        *out = plain;
    }
    return st == TD_OK ? st : td_error_context(st, "pictures of %d x %d", size, size);
}

td_status td_judging_graph(const td_model_opts *model, int batch, double smoothing, bool has_labels,
                           td_graph **out)
{
    int size;
    *out = NULL;
    TD_TRY(td_model_image_size(model, &size));

    td_builder *b = td_build_begin();
    td_value *images = image_input(b, batch, size, model->dtype);
    td_value *logits = td_model_forward(b, model, images, false);
    if (td_build_ok(b)) {
        if (has_labels)
            td_output(b, "losses",
                      td_softmax_cross_entropy(b, logits, targets(b, batch, logits, smoothing)));
        else
            td_output(b, "probabilities", td_softmax(b, logits));
        td_output(b, "logits", logits);
    }
    td_status st = td_build_end(b, out);
    return st == TD_OK ? st : td_error_context(st, "pictures of %d x %d", size, size);
}
