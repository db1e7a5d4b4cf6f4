/*
 * onnx/onnx_qdq.h -- an inference graph of 8-bit integers in ONNX's QDQ form
 *
 *     conv2d_int8(x, w, scale, bias, residual) {relu}      becomes
 *
 *     DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(bias) -> Conv
 *         -> Add DequantizeLinear(residual) -> Relu -> QuantizeLinear
 *
 * A runtime that knows the pattern multiplies integers, any other one computes the same with
 * floats.  Norms are folded into filters and biases, so these are new parameters:
 *
 *     layer1.0.conv1.weight   the filter, which is s8 if the convolution is quantized
 *     layer1.0.conv1.bias     the bias: i32 in steps of x_scale scale[k] if it is quantized
 *
 * A filter that is folded with several norms gives several parameters: F, F_2, F_3 in order of the
 * convolutions.
 */
#ifndef TD_ONNX_ONNX_QDQ_H
#define TD_ONNX_ONNX_QDQ_H

#include "tandem/amp.h"
#include "tandem/graph.h"
#include "tandem/program.h"

#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"

/** A parameter that the file has as integers: element i of row k is integers[..] scale[k]. */
typedef struct {
    td_dtype dtype; /* s8 or i32 */
    const void *integers;
    const float *scale; /* [rows] */
    int64_t rows;
} td_onnx_integers;

/* passes that would change the order of sums: without them the file that is read back gives the
   same integers */
#define TD_ONNX_SKIP "fold,fuse,winograd"

typedef struct {
    td_graph *graph;     /* float32, with quantize and dequantize in place of conv2d_int8 */
    td_program *program; /* of `graph`, with the numbers that the integers stand for */
    td_map integers;     /* name of a parameter -> td_onnx_integers */
    td_arena arena;
} td_onnx_qdq;

/**
 * Rewrite the inference graph `g`, whose weights are those of its program `p`; `ranges` says what
 * is quantized.  A filter whose bias would exceed 32 bits gets a larger scale.  Release `out` in
 * any case.  TD_EUNSUPPORTED: no convolution is quantized.
 */
td_status td_onnx_qdq_init(const td_graph *g, const td_activation_ranges *ranges, td_program *p,
                           td_device *dev, td_onnx_qdq *out) TD_CHECKED;
void td_onnx_qdq_release(td_onnx_qdq *q);

/** Only the graph, of the same network with another batch. */
td_status td_onnx_qdq_graph(const td_graph *g, const td_activation_ranges *ranges,
                            td_graph **out) TD_CHECKED;

/** A convolution after folding, and the parameters of which its weights are made. */
typedef struct {
    const char *weight, *bias;     /* names in the QDQ form */
    const char *filter, *own_bias; /* parameters of the network; own_bias NULL: a norm makes it */
    const char *gamma, *beta, *mean, *var; /* of the norm; NULL: none */
    double eps;
} td_onnx_folded;

/**
 * The convolutions of the inference graph `g` that have a bias after folding, in order.  *folded
 * borrows texts of `texts` and `g`; free it with td_free.  TD_EUNSUPPORTED: one whose weights are
 * made of parameters in another way.
 */
td_status td_onnx_qdq_folded(const td_graph *g, td_arena *texts, td_onnx_folded **folded,
                             int *n) TD_CHECKED;

#endif
