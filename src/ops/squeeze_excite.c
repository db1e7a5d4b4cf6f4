/*
 * squeeze_excite(x, w1, b1, w2, b2) -> y      scales each channel by a gate computed from the
 * channel means
 *
 *   x   [N, C, H, W]  any float
 *   w1  [D, C]        same        squeeze; timm's [D, C, 1, 1] is the same tensor
 *   b1  [D]
 *   w2  [C, D]        same        excite
 *   b2  [C]
 *   y   [N, C, H, W]  x[n, c, h, w] * gate(w2 hidden(w1 mean_hw(x) + b1) + b2)[n, c]
 *
 * `hidden` is relu or silu, `gate` sigmoid or hardsigmoid.  Composite: the decompose pass expands
 * it.  Source: Hu et al. 2018, section 3; hardsigmoid: Howard et al. 2019; silu: Tan and Le 2019.
 */
#include "ir/build.h"
#include "ops/ops.h"

static const char *const hidden_names[] = { "relu", "silu", NULL };
static const char *const gate_names[] = { "sigmoid", "hardsigmoid", NULL };

/* clang-format off */
static const td_field se_fields[] = {
    TD_ENUM(td_squeeze_excite_attr, hidden, TD_SE_RELU, hidden_names,
            "activation of the hidden units"),
    TD_ENUM(td_squeeze_excite_attr, gate, TD_SE_SIGMOID, gate_names, "function of the gates"),
    TD_END,
};
/* clang-format on */

const td_op *td_squeeze_excite_hidden(const td_node *n)
{
    const td_squeeze_excite_attr *a = n->attr;
    return a->hidden == TD_SE_SILU ? &td_op_silu : &td_op_relu;
}

const td_op *td_squeeze_excite_gate(const td_node *n)
{
    const td_squeeze_excite_attr *a = n->attr;
    return a->gate == TD_SE_HARDSIGMOID ? &td_op_hardsigmoid : &td_op_sigmoid;
}

/* rows and columns of an [A, B] or [A, B, 1, 1] weight; false for other shapes */
static bool matrix_of(const td_type *w, int64_t *rows, int64_t *cols)
{
    if (w->rank != 2 && !(w->rank == 4 && w->dim[2] == 1 && w->dim[3] == 1))
        return false;
    *rows = w->dim[0];
    *cols = w->dim[1];
    return true;
}

static td_status se_infer(const td_node *n, td_type *y)
{
    int64_t d1, c1, c2, d2;
    const td_type *x = td_in_type(n, 0);
    if (!matrix_of(td_in_type(n, 1), &d1, &c1) || !matrix_of(td_in_type(n, 3), &c2, &d2) ||
        d1 != d2 || c1 != x->dim[1] || c2 != x->dim[1] || td_in_type(n, 2)->dim[0] != d1 ||
        td_in_type(n, 4)->dim[0] != c2)
        return td_error(TD_ESHAPE, "squeeze_excite: weights do not match %lld channels",
                        (long long)x->dim[1]);
    for (int i = 1; i < 5; i++)
        if (td_in_type(n, i)->dtype != x->dtype)
            return td_error(TD_ESHAPE, "squeeze_excite: operand %d is %s, wanted %s", i,
                            td_dtype_name(td_in_type(n, i)->dtype), td_dtype_name(x->dtype));
    *y = *x;
    return TD_OK;
}

static int64_t se_macs(const td_node *n)
{
    return td_mul_capped(td_in_type(n, 0)->dim[0],
                         td_type_count(td_in_type(n, 1)) + td_type_count(td_in_type(n, 3)));
}

static td_value *as_matrix(td_builder *b, td_value *w)
{
    return w->type.rank == 2 ? w : td_reshape(b, w, 2, w->type.dim);
}

static void se_decompose(td_builder *b, const td_node *n, td_value *const *in, td_value **out)
{
    td_value *s = td_global_avg_pool(b, in[0]);
    s = td_linear(b, s, as_matrix(b, in[1]), in[2]);
    s = td_emit(b, td_squeeze_excite_hidden(n), NULL, s);
    s = td_linear(b, s, as_matrix(b, in[3]), in[4]);
    s = td_emit(b, td_squeeze_excite_gate(n), NULL, s);
    int64_t gate[4] = { s->type.dim[0], in[0]->type.dim[1], 1, 1 };
    out[0] = td_mul(b, in[0], td_reshape(b, s, 4, gate));
}

const td_op td_op_squeeze_excite = {
    .name = "squeeze_excite",
    .summary = "channel gates from the channel means",
    .n_in = 5,
    .n_out = 1,
    .in_rank = { 4, 0, 1, 0, 1 },
    .fields = se_fields,
    .attr_bytes = sizeof(td_squeeze_excite_attr),
    .layout = TD_LAYOUT_PLAIN,
    .is_composite = true,
    .infer = se_infer,
    .decompose = se_decompose,
    .macs = se_macs,
};

td_value *td_squeeze_excite(td_builder *b, td_value *x, td_value *w1, td_value *b1, td_value *w2,
                            td_value *b2)
{
    return td_emit(b, &td_op_squeeze_excite, NULL, x, w1, b1, w2, b2);
}
