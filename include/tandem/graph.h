/*
 * tandem/graph.h -- networks as graphs: values, ops, a builder, a text form
 *
 * A graph is a list of nodes in execution order. A node applies an op to values and produces
 * values; a value has one producer and one type. A graph has no devices, buffers or kernels.
 * Building functions return no status: the builder keeps the first failure, later calls return a
 * dummy, and td_build_end reports it.
 *
 *     td_builder *b = td_build_begin();
 *     td_value *x = td_input(b, "images", td_type_of(TD_DT_F32, 4, (int64_t[]){ 8, 3, 32, 32 }));
 *     td_value *w = td_param(b, "conv.weight", TD_DT_F32, 4, (int64_t[]){ 16, 3, 3, 3 },
 *                            "init=normal, scale=0.2");
 *     td_value *y = td_relu(b, td_conv2d(b, x, w, "pad=1"));
 *     td_output(b, "logits", y);
 *     td_graph *g;
 *     if (td_build_end(b, &g) != TD_OK) ...
 *
 * Attributes are given as text, "stride=2, pad=1", the same as in the text form of a graph:
 *
 *     %images:f32[8,3,32,32] = input
 *     %conv.weight:f32[16,3,3,3] = param {init=normal, scale=0.2}
 *     %1:f32[8,16,32,32] = conv2d %images, %conv.weight {pad=1}
 *     %2:f32[8,16,32,32] = relu %1
 *     output logits = %2
 *
 * Letters: N batch, C in-channels, H W image, K out-channels, R S filter, P Q output, G groups.
 */
#ifndef TD_GRAPH_H
#define TD_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TD_RANK_MAX     5
#define TD_LAYOUT_BYTES 28

/**
 * dtype, shape and memory layout. `layout` is "" for plain C order, otherwise the blocking in
 * oneDNN's notation: "acdb" is channels last, "aBcd16b" has 16 channels innermost; a leading "32g"
 * splits the first dimension into 32 groups, which the letters then refer to.
 */
typedef struct {
    td_dtype dtype;
    int rank;
    int64_t dim[TD_RANK_MAX];
    char layout[TD_LAYOUT_BYTES];
} td_type;

typedef struct td_graph td_graph;
typedef struct td_builder td_builder;
typedef struct td_value td_value;

TD_API td_type td_type_of(td_dtype dtype, int rank, const int64_t *dim);
TD_API int64_t td_type_count(const td_type *t); /* elements, without the padding of the layout */

/* --- building --------------------------------------------------------------------------------- */

/**
 * A new builder, never NULL: if memory is exhausted, td_build_end returns TD_ENOMEM.
 */
TD_API td_builder *td_build_begin(void);

/**
 * Finish: verify the graph and return it. The builder is freed, also on failure. Returns the first
 * failure of all calls since td_build_begin; the message names the op.
 */
TD_API TD_CHECKED td_status td_build_end(td_builder *b, td_graph **out);

/** A value that the caller feeds before each run. */
TD_API td_value *td_input(td_builder *b, const char *name, td_type type);

/**
 * A tensor that persists between runs.  attrs: role=weight|stat|momentum,
 * init=zeros|ones|normal|uniform, scale= standard deviation or half width.  A name used before
 * returns the same value.
 */
TD_API td_value *td_param(td_builder *b, const char *name, td_dtype dtype, int rank,
                          const int64_t *dim, const char *attrs);

/** Make `v` an output of the graph with the name `name`. */
TD_API void td_output(td_builder *b, const char *name, td_value *v);

/** Any op by name: `n_in` inputs, attributes as text (NULL for none); outputs go to out[]. */
TD_API void td_apply(td_builder *b, const char *op, int n_in, td_value *const *in,
                     const char *attrs, int n_out, td_value **out);

TD_API td_value *td_conv2d(td_builder *b, td_value *x, td_value *w, const char *attrs);
/** y[N,K] = x[N,C] w[K,C]^T + bias[K]; `bias` may be NULL. */
TD_API td_value *td_linear(td_builder *b, td_value *x, td_value *w, td_value *bias);
/**
 * Batch statistics, and running statistics updated at the end of the step. attrs: eps, momentum.
 */
TD_API td_value *td_batch_norm_train(td_builder *b, td_value *x, td_value *gamma, td_value *beta,
                                     td_value *running_mean, td_value *running_var,
                                     const char *attrs);
TD_API td_value *td_batch_norm_infer(td_builder *b, td_value *x, td_value *gamma, td_value *beta,
                                     td_value *mean, td_value *var, const char *attrs);
TD_API td_value *td_relu(td_builder *b, td_value *x);
TD_API td_value *td_relu6(td_builder *b, td_value *x);
TD_API td_value *td_sigmoid(td_builder *b, td_value *x);
TD_API td_value *td_max_pool2d(td_builder *b, td_value *x, const char *attrs);
TD_API td_value *td_avg_pool2d(td_builder *b, td_value *x, const char *attrs);
TD_API td_value *td_global_avg_pool(td_builder *b, td_value *x);  /* [N,C,H,W] -> [N,C] */
TD_API td_value *td_add(td_builder *b, td_value *x, td_value *y); /* numpy broadcasting */
TD_API td_value *td_mul(td_builder *b, td_value *x, td_value *y); /* numpy broadcasting */
TD_API td_value *td_concat(td_builder *b, int n, td_value *const *xs, int axis);
TD_API td_value *td_reshape(td_builder *b, td_value *x, int rank, const int64_t *dim);
TD_API td_value *td_cast(td_builder *b, td_value *x, td_dtype to);
TD_API td_value *td_resize_nearest(td_builder *b, td_value *x, int height, int width);
TD_API td_value *td_sum(td_builder *b, td_value *x);     /* over all elements, to a scalar */
TD_API td_value *td_mean(td_builder *b, td_value *x);    /* over all elements, to a scalar */
TD_API td_value *td_softmax(td_builder *b, td_value *x); /* over the last dimension */
/** labels i64[N] -> [N,classes]: 1 - s + s/classes at the label, s/classes at other positions. */
TD_API td_value *td_one_hot(td_builder *b, td_value *labels, int classes, double smoothing);
/** logits [N,K], target [N,K] (rows need not sum to 1) -> loss [N]. */
TD_API td_value *td_softmax_cross_entropy(td_builder *b, td_value *logits, td_value *target);
/** The same with a decision for each class, mean over them; threshold below 0: none, otherwise
    targets above it are 1 and others 0. */
TD_API td_value *td_sigmoid_cross_entropy(td_builder *b, td_value *logits, td_value *target,
                                          double threshold);
/**
 * A detector's losses, scalars: scores [N,A,C], deltas and target [N,A,4], labels i64[N,A], 0 for
 * anchors without a ground truth.  SSD320 adds the first two; SSD300 adds td_huber_box_loss with
 * "per_image=true" and the third.  attrs: "alpha=0.25, gamma=2", "delta=1", "ratio=3", or NULL.
 */
TD_API td_value *td_sigmoid_focal_loss(td_builder *b, td_value *scores, td_value *labels,
                                       const char *attrs);
TD_API td_value *td_huber_box_loss(td_builder *b, td_value *deltas, td_value *target,
                                   td_value *labels, const char *attrs);
TD_API td_value *td_multibox_class_loss(td_builder *b, td_value *scores, td_value *labels,
                                        const char *attrs);
/**
 * x * sigmoid(fc2(relu(fc1(mean over H,W of x)))); w1 [D,C] or [D,C,1,1], w2 [C,D] or [C,D,1,1].
 */
TD_API td_value *td_squeeze_excite(td_builder *b, td_value *x, td_value *w1, td_value *b1,
                                   td_value *w2, td_value *b2);

/** d loss / d param, computed by the grad pass; `loss` is a scalar. */
TD_API td_value *td_gradient(td_builder *b, td_value *loss, td_value *param);
/** w, v <- SGD step; lr is a scalar value. attrs: momentum, decay, nesterov. */
TD_API void td_sgd(td_builder *b, td_value *w, td_value *v, td_value *grad, td_value *lr,
                   const char *attrs);

/** The type of a value, for models that need a shape. */
TD_API td_type td_value_type(const td_value *v);

/**
 * The number of parameters created so far, and the i-th in order of creation (for a loop of
 * updates).
 */
TD_API int td_build_param_count(const td_builder *b);
TD_API td_value *td_build_param(const td_builder *b, int i);
TD_API const char *td_value_name(const td_value *v);

/* --- finished graphs -------------------------------------------------------------------------- */

/**
 * Parse the text form.  `what` names the source in messages ("net.td:12: ...").  TD_EFORMAT: no
 * graph, or a text without a statement.
 */
TD_API TD_CHECKED td_status td_graph_parse(const char *text, const char *what, td_graph **out);

/** The text form, owned by the caller (td_text_free). */
TD_API TD_CHECKED td_status td_graph_print(const td_graph *g, char **out);

/** Check every invariant; TD_ESHAPE names the first bad node. */
TD_API TD_CHECKED td_status td_graph_verify(const td_graph *g);

TD_API void td_graph_free(td_graph *g);

/** Parameters of a finished graph, in order. */
TD_API int td_graph_param_count(const td_graph *g);
TD_API const char *td_graph_param_name(const td_graph *g, int i);
TD_API td_type td_graph_param_type(const td_graph *g, int i);

/** Multiply-accumulates of one forward run (convolutions and linear layers). */
TD_API int64_t td_graph_macs(const td_graph *g);

/** The name and one-line summary of the i-th op; NULL past the end. */
TD_API const char *td_op_name_at(int i, const char **summary);

#ifdef __cplusplus
}
#endif
#endif
