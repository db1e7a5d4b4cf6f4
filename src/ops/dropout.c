/*
 * dropout(x [, random]) -> y     y = x / (1 - p) where a draw is at least p, otherwise 0
 *
 *   x       [N, ...]  any float   activations; N samples
 *   random  [3]       i64         seed, epoch, number in the epoch of the batch's first sample
 *   y       [N, ...]  same as x
 *
 * Without `random` y is x: the form of a forward graph, which inference leaves out and training
 * gives its random numbers and its id (model/dropout_source.h).
 *
 * Draw e of sample i is number e, of 32 bits, of the stream (base/rng.h)
 *
 *     seed random[0], purpose TD_RNG_DROPOUT, a = random[1], b = id 2^32 + random[2] + i
 *
 * where e is the element's number within the sample in plain order (mode element) or 0 (mode row:
 * stochastic depth); mode batch has one draw for all samples, that of i = 0.  So the mask depends
 * on neither layout, kernel, threads nor ranks, and nothing needs to be stored: the gradient is the
 * same op on dy.  Source: Srivastava et al. 2014; Huang et al. 2016; agrees with torchvision's
 * StochasticDepth in modes and scaling.
 */
#include <math.h>

#include "base/rng.h"
#include "ir/build.h"
#include "ops/ops.h"

#define LARGEST_ROW ((int64_t)1 << 34) /* draws of one stream */

static const char *const modes[] = { "element", "row", "batch", NULL };

/* clang-format off */
static const td_field dropout_fields[] = {
    TD_REAL(td_dropout_attr, p, 0.5, 0, 1, "probability of 0, less than 1"),
    TD_ENUM(td_dropout_attr, mode, TD_DROPOUT_ELEMENT, modes,
            "what one draw decides on: an element, a row (a sample), or the batch"),
    TD_INT(td_dropout_attr, id, 0, 0, (1 << 24) - 1,
           "number of the node, so that no two have the same draws"),
    TD_END,
};
/* clang-format on */

static td_status dropout_infer(const td_node *n, td_type *y)
{
    const td_dropout_attr *a = n->attr;
    const td_type *x = td_in_type(n, 0);
    if (!(a->p < 1))
        return td_error(TD_ESHAPE, "dropout: p is %g, wanted 0 to less than 1", a->p);
    if (x->rank < 1)
        return td_error(TD_ESHAPE, "dropout: the operand is a scalar, wanted rows of samples");
    if (x->dim[0] && td_type_count(x) / x->dim[0] > LARGEST_ROW)
        return td_error(TD_ESHAPE, "dropout: a sample has %lld elements, wanted at most %lld",
                        (long long)(td_type_count(x) / x->dim[0]), (long long)LARGEST_ROW);
    if (n->n_in > 1 &&
        (td_in_type(n, 1)->dtype != TD_DT_I64 || td_in_type(n, 1)->dim[0] != TD_RANDOM_COUNT))
        return td_error(TD_ESHAPE, "dropout: random is no i64[%d]", TD_RANDOM_COUNT);
    *y = *x;
    return TD_OK;
}

static void dropout_grad(td_builder *b, const td_node *n, td_value *const *dy, td_value **dx)
{
    dx[0] = n->n_in > 1 ? td_emit(b, &td_op_dropout, n->attr, dy[0], n->in[1]) : dy[0];
}

const td_op td_op_dropout = {
    .name = "dropout",
    .summary = "zero a random part and scale the rest; or whole samples: stochastic depth",
    .n_in = 1,
    .n_in_max = 2,
    .n_out = 1,
    .in_rank = { 0, 1 },
    .fields = dropout_fields,
    .attr_bytes = sizeof(td_dropout_attr),
    .tf_op = "Mul", /* TensorFlow multiplies by a mask */
    .any_dtype = 1u << 1,
    .layout = TD_LAYOUT_FOLLOWS,
    .own_layout = 1u << 1,
    .may_overwrite = 1u,
    .infer = dropout_infer,
    .grad = dropout_grad,
};

bool td_dropout_is_off(const td_node *n)
{
    return n->op == &td_op_dropout && (n->n_in < 2 || ((const td_dropout_attr *)n->attr)->p == 0);
}

td_dropout_rule td_dropout_rule_of(const td_node *n)
{
    const td_dropout_attr *a = n->attr;
    const double least = td_dropout_is_off(n) ? 0 : rint(a->p * 0x1p32);
    return (td_dropout_rule){ .least = least < UINT32_MAX ? (uint32_t)least : UINT32_MAX,
                              .scale = td_dropout_is_off(n) ? 1 : 1 / (1 - a->p) };
}

td_rng td_dropout_stream(const td_dropout_attr *a, const int64_t *random, int64_t sample)
{
    const uint64_t first = random ? (uint64_t)random[2] : 0;
    const uint64_t i = a->mode == TD_DROPOUT_BATCH ? 0 : (uint64_t)sample;
    return td_rng_make(random ? (uint64_t)random[0] : 0, TD_RNG_DROPOUT,
                       random ? (uint64_t)random[1] : 0,
                       (uint64_t)a->id << 32 | (uint32_t)(first + i));
}
